// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's codec has no way back, and rows that are not whole words.
// expect: Codec: need static constexpr std::size_t bytes(int width), a multiple of 4 above 0 for every width (docs/concepts/codec.md)
// expect: Codec: need static void decode(const std::byte* from, int width, float* row) (docs/concepts/codec.md)
#include <tessera/concepts/codec.hpp>

#include <cstring>

using namespace tessera;

struct Signs {
  static constexpr std::string_view name = "signs";
#ifdef ALLOWED_TWIN
  static constexpr std::size_t bytes(int width) {
    return (static_cast<std::size_t>(width) + 3) / 4 * 4;
  }
  static void decode(const std::byte* from, int width, float* row) {
    for (int c = 0; c < width; ++c) row[c] = from[c] == std::byte{0} ? 1.0f : -1.0f;
  }
#else
  static constexpr std::size_t bytes(int width) {
    return (static_cast<std::size_t>(width) + 3) / 4 * 4 + (width == 8 ? 1 : 0);
  }
#endif
  static void encode(const float* row, int width, std::byte* to) {
    for (int c = 0; c < width; ++c) to[c] = std::byte{row[c] < 0};
  }
};
static_assert(explain_codec<Signs>());
