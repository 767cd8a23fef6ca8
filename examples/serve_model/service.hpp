// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coding.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace serve {

/// A model on the command line: NAME=DIR.
struct ModelSource {
  std::string name;
  std::filesystem::path folder;
};

struct ServiceOptions {
  std::vector<ModelSource> models;
  std::string format = "fp32";          ///< of frozen tables
  int threads = 1;                      ///< that score, of each model
  std::int64_t most_samples = 1 << 16;  ///< of a request
  std::int64_t batch_samples = 256;     ///< that are scored together
  std::int64_t batch_delay_us = 0;
  std::int64_t most_waiting = 1 << 18;  ///< samples, of each model
  /// Folders of training runs are followed: how often they are looked at; 0: never.
  double watch_seconds = 0;
  /// Gets a line for each model that is replaced, and for each that is refused.
  std::function<void(const std::string&)> log = [](const std::string&) {};
};

/// The bytes that one request holds, from its body to its reply, of all that requests may hold.
class Held {
 public:
  /// `all`: the sum of all requests.
  Held(std::atomic<std::uint64_t>& all, std::uint64_t most) : all_(all), most_(most) {}
  ~Held() { set(0); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  /// Holds so many bytes from now on. False, and nothing has changed, if all would hold too many.
  bool set(std::uint64_t bytes) {
    const std::uint64_t more = bytes > bytes_ ? bytes - bytes_ : 0;
    if (more > 0 && all_.fetch_add(more) + more > most_) {
      all_.fetch_sub(more);
      return false;
    }
    if (more == 0) all_.fetch_sub(bytes_ - bytes);
    bytes_ = bytes;
    return true;
  }

 private:
  std::atomic<std::uint64_t>& all_;
  std::uint64_t most_, bytes_ = 0;
};
inline constexpr const char* kHeldTooMuch =
    "the server holds as many bytes of requests as it may; try again in a second";

/// What a connection has read.
struct HttpRequest {
  std::string method, target, body{};
  std::optional<std::string> json_bytes{};            ///< header Inference-Header-Content-Length
  std::string encoding{};                             ///< header Content-Encoding
  std::optional<std::string> accepts{};               ///< header Accept-Encoding
  std::uint64_t most_body = std::uint64_t{64} << 20;  ///< bytes that a packed body may unpack to
  Held* held = nullptr;                               ///< until the reply; null: nothing is counted
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::size_t json_bytes = 0;  ///< of an unpacked body that binary tensors follow; else 0
  Coding coding = Coding::identity;
};

/// The server without its connections: models by name and version, requests of the v2 protocol,
/// counters. Thread-safe.
class Service {
 public:
  /// Loads all models. Throws tessera::DataError for one that cannot be served.
  explicit Service(const ServiceOptions& options);
  /// Answers all requests first.
  ~Service();

  /// Whether a request's body is wanted: it goes to a model that is there, by the right method.
  bool takes_body(const HttpRequest& request) const;
  /// Calls reply once, from here or from another thread. Long bodies are read on threads of the
  /// service.
  void handle(HttpRequest request, std::function<void(HttpReply)> reply);
  /// An answer that the connection makes without a request: 408, 413, ...; it is counted.
  HttpReply refusal(int status, const std::string& text);
  /// From now on the server is not ready: it is about to end.
  void leave();
  /// The bytes that all requests hold, of whichever protocol.
  std::atomic<std::uint64_t>& held_bytes() { return held_bytes_; }
  /// One line per model and version.
  std::vector<std::string> descriptions() const;

 private:
  struct Parts;
  struct Inference;
  void infer(const std::shared_ptr<Inference>& inference);
  template <class F>
  void answer_faults(const std::function<void(HttpReply)>& reply, const F& f);

  std::atomic<std::uint64_t> held_bytes_{0};
  std::unique_ptr<Parts> parts_;
};

}  // namespace serve
