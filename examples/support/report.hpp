// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/plan.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace support {

/// Prints which rank holds which rectangle of which table, and bytes per rank (optimizer state
/// included).
void print_plan(const tessera::Layout& layout, const tessera::detail::MemoryCost& cost);

/// 1234567 -> "1,234,567".
std::string grouped(std::int64_t number);

/// What --version prints: the program and the library's version.
std::string version_of(const std::string& program);

/// Keeps files that this program opens away from the numbers of standard streams that its caller
/// closed: writing to those fails.
void open_standard_streams();

/// Throws tessera::Error if what was printed is lost: standard output is closed, or its disk is
/// full.
void check_output();

/// Prints an error as one line behind the program's name and returns `code`. Of a long text, as of a
/// file's content, it prints the begin.
int fail(const char* program, std::string text, int code);

/// The state of a run: a bar that redraws itself on a terminal, a line now and then elsewhere.
class Progress {
 public:
  /// `every_call`: each call of `show` prints.
  Progress(std::int64_t steps, bool every_call);

  /// After `step` steps and `samples` samples; `loss`: mean since the last call.
  void show(std::int64_t step, std::int64_t samples, double loss);
  /// Since the construction.
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t steps_;
  bool every_call_, terminal_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

}  // namespace support
