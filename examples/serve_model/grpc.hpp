// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "http.hpp"
#include "service.hpp"

#include <functional>
#include <memory>

namespace serve {

/// Answers gRPC's calls of the KServe v2 protocol by a service. When it ends, what has begun is
/// answered.
class GrpcServer {
 public:
  virtual ~GrpcServer() = default;
  /// The port, if 0 was asked for.
  virtual int port() const = 0;
};

/// Starts one on a port of `options.host`, with the limits of `options` for messages, memory, and
/// idle connections; empty in a program that was built without gRPC. Throws tessera::Error for a
/// port that cannot be had.
inline std::function<std::unique_ptr<GrpcServer>(Service&, const HttpOptions& options, int port)>&
grpc_servers() {
  static std::function<std::unique_ptr<GrpcServer>(Service&, const HttpOptions&, int)> start;
  return start;
}

}  // namespace serve
