// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A fuzz target's bytes, read as numbers: what is missing is 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace fuzz {

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  /// One of [least, most]; two bytes where that is a wide range.
  int number(int least, int most) {
    const unsigned range = static_cast<unsigned>(most - least) + 1;
    const unsigned value = range > 256 ? byte() * 256u + byte() : byte();
    return least + static_cast<int>(value % range);
  }
  std::int64_t word() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return static_cast<std::int64_t>(value);
  }

 private:
  std::span<const std::uint8_t> rest_;
};

/// Ends the target where a promise is broken.
inline void expect(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

}  // namespace fuzz
