// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/plan.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace dlrm {

/// Prints which rank holds which rectangle of which table, and bytes per rank (optimizer state included).
void print_plan(const tessera::Layout& layout, const tessera::MemoryCost& cost);

/// 1234567 -> "1,234,567".
std::string grouped(std::int64_t number);

/// The state of a run: a bar that redraws itself on a terminal, a line now and then elsewhere.
class Progress {
 public:
  explicit Progress(std::int64_t steps);

  /// After `step` steps and `samples` samples; `loss`: mean since the last call.
  void show(std::int64_t step, std::int64_t samples, double loss);
  /// Since the construction.
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t steps_;
  bool terminal_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

}  // namespace dlrm
