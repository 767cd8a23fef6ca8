// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace dlrm {

/// Answers GET /metrics on a port of the loopback with a text, in Prometheus' format, that changes
/// while a run goes on.
class MetricsServer {
 public:
  virtual ~MetricsServer() = default;
  virtual void set(std::string text) = 0;
  /// The port, if 0 was asked for.
  virtual int port() const = 0;
};

/// Starts one, on a thread of its own; empty in a program that was built without Boost. Throws
/// tessera::Error for a port that is taken.
inline std::function<std::unique_ptr<MetricsServer>(int port)>& metrics_servers() {
  static std::function<std::unique_ptr<MetricsServer>(int)> start;
  return start;
}

}  // namespace dlrm
