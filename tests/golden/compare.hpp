// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/io/safetensors.hpp>

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace golden {

namespace ts = tessera;

inline constexpr double kRelative = 1e-4, kAbsolute = 1e-5;

/// The first deviation that any rank of one run saw; shared by the ranks.
class Verdict {
 public:
  void compare(std::string_view what, std::span<const float> found, std::span<const float> expected,
               double absolute = kAbsolute) {
    if (found.size() != expected.size())
      return fail(fmt::format("{}: {} values, expected {}", what, found.size(), expected.size()));
    for (std::size_t i = 0; i < found.size(); ++i)
      if (!(std::abs(double{found[i]} - expected[i]) <=
            absolute + kRelative * std::abs(double{expected[i]})))
        return fail(
            fmt::format("{}: element {} is {}, expected {}", what, i, found[i], expected[i]));
  }
  void fail(std::string text) {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = std::move(text);
  }
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::string text_;
};

/// Counts runs and prints those that failed; the last line of the program is "N passed, N failed".
class Tally {
 public:
  void run(const std::string& name, const std::function<void(Verdict&)>& body) {
    Verdict verdict;
    try {
      body(verdict);
    } catch (const std::exception& error) {
      verdict.fail(error.what());
    }
    if (verdict.text().empty()) {
      ++passed_;
    } else {
      ++failed_;
      fmt::print("FAILED {}: {}\n", name, verdict.text());
    }
  }
  int finish() const {
    fmt::print("{} passed, {} failed\n", passed_, failed_);
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }

 private:
  int passed_ = 0;
  int failed_ = 0;
};

/// A tensor of the case, read once.
inline std::vector<float> floats(const ts::SafetensorsReader& file, const std::string& name) {
  return file.read<float>(name);
}
inline std::vector<std::int64_t> integers(const ts::SafetensorsReader& file,
                                          const std::string& name) {
  return file.read<std::int64_t>(name);
}

}  // namespace golden
