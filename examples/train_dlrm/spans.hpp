// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

namespace dlrm {

/// What ran from when to when, in seconds of std::chrono::steady_clock, as StageSpan.
struct Span {
  std::string_view name;
  double begin = 0, end = 0;
};

/// Spans of one rank's thread, if they are wanted.
class Spans {
 public:
  explicit Spans(bool wanted) : wanted_(wanted) {}

  /// From now until it is destroyed.
  class Timing {
   public:
    Timing(Spans& spans, std::string_view name) : spans_(spans) {
      if (spans_.wanted_) span_ = {name, now(), 0};
    }
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;
    ~Timing() {
      if (!spans_.wanted_) return;
      span_.end = now();
      spans_.spans_.push_back(span_);
    }

   private:
    Spans& spans_;
    Span span_;
  };
  Timing time(std::string_view name) { return {*this, name}; }

  bool wanted() const { return wanted_; }
  void stop() { wanted_ = false; }
  /// Those since the last call.
  std::vector<Span> take() { return std::exchange(spans_, {}); }
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

 private:
  bool wanted_;
  std::vector<Span> spans_;
};

}  // namespace dlrm
