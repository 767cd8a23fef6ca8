// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <string_view>

/// The smallest codec, as a user may write it, which gives whole rows only: mirrored floats behind
/// a word of its own, so that a row read as floats would be seen.
struct Mirrored {
  static constexpr std::string_view name = "mirrored";
  TESSERA_HOST_DEVICE static constexpr std::size_t bytes(int width) {
    return 4 + 4 * static_cast<std::size_t>(width);
  }
  TESSERA_HOST_DEVICE static void encode(const float* row, int width, std::byte* to) {
    std::memcpy(to, &width, 4);
    for (int c = 0; c < width; ++c) std::memcpy(to + 4 * (width - c), row + c, 4);
  }
  TESSERA_HOST_DEVICE static void decode(const std::byte* from, int width, float* row) {
    int written = 0;
    std::memcpy(&written, from, 4);
    for (int c = 0; c < width; ++c) row[c] = NAN;
    if (written != width) return;
    for (int c = 0; c < width; ++c) std::memcpy(row + c, from + 4 * (width - c), 4);
  }
};
