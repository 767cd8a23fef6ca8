// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "service.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace serve {

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  ///< 0: any that is free
  int threads = 2;
  std::uint64_t most_body = std::uint64_t{64} << 20;
  /// of all requests together, with what is read of them and their replies; one that would pass it
  /// is answered 503
  std::uint64_t most_memory = std::uint64_t{1} << 30;
  int most_connections = 1024;
  double request_seconds = 30;  ///< from a request's first byte to its last
  double idle_seconds = 60;     ///< between requests of a connection
  double drain_seconds = 1;     ///< after SIGTERM, for clients to look elsewhere
};

/// Serves until SIGTERM or SIGINT has been received; then what has begun is answered. A second one
/// ends the process. `ready` is called with the port. Throws tessera::Error where the port cannot be had.
void serve_http(Service& service, const HttpOptions& options,
                const std::function<void(int port)>& ready);

}  // namespace serve
