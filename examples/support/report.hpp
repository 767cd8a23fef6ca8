// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/plan.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

namespace support {

/// Prints which rank holds which rectangle of which table, and bytes per rank (optimizer state
/// included).
void print_plan(const tessera::Layout& layout, const tessera::MemoryCost& cost);

/// 1234567 -> "1,234,567".
std::string grouped(std::int64_t number);

/// Keeps files that this program opens away from the numbers of standard streams that its caller
/// closed: writing to those fails.
void open_standard_streams();

/// Throws tessera::Error if what was printed is lost: standard output is closed, or its disk is
/// full.
void check_output();

/// A file that appears, or is replaced, when it is complete; before that its content stands beside
/// it under another name. Pipes and devices are written to as they are. Throws tessera::DataError.
class ResultFile {
 public:
  /// Shows whether it can be written. `option` names the file in errors.
  explicit ResultFile(const std::filesystem::path& path, const char* option = "--json");
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();
  void write(const std::string& text);

 private:
  [[noreturn]] void fail(int error) const;

  const char* option_;
  std::filesystem::path path_, partial_;  ///< partial_ is empty where there is none to remove
  int file_ = -1;
};

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
