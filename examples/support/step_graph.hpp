// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace support {

/// How often the steps of --graph were captured, and replayed.
struct GraphCounts {
  std::int64_t captured = 0, replayed = 0;
};

/// How a backend repeats steps: the host calls each. On a GPU: step_graph.cuh.
template <class Backend>
class StepGraph {
 public:
  /// Whether steps are captured, so that what they read keeps its place and its size.
  static constexpr bool captures() { return false; }
  /// Whether the captured step, if there is one, can no longer be replayed.
  static constexpr bool stale() { return false; }
  GraphCounts counts() const { return {}; }
  /// Makes a step. `sizes`: all that its work depends on besides the numbers in the backend's
  /// memory. `stale`: on this rank, or on another. Ranks that share a step's exchanges call, capture
  /// and replay it together: both are alike on all.
  template <class Step>
  void run(const std::vector<std::int64_t>& sizes, bool stale, const Step& step) {
    static_cast<void>(sizes), static_cast<void>(stale);
    step();
  }
};

}  // namespace support
