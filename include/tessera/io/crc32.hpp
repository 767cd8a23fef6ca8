// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace tessera { inline namespace v0 { namespace detail {

/// The polynomial of zlib, PNG and Ethernet, bits reversed: bit 31 is that of x^0.
inline constexpr std::uint32_t kCrcPolynomial = 0xedb88320u;

/// of[k][b]: what byte b followed by k zero bytes adds.
struct CrcTables {
  std::uint32_t of[16][256];
};
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCrcPolynomial : 0);
    tables.of[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 16; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables.of[k][byte] =
          (tables.of[k - 1][byte] >> 8) ^ tables.of[0][tables.of[k - 1][byte] & 255];
  return tables;
}
inline constexpr auto kCrcTables = make_crc_tables();

/// Returns the product of two polynomials modulo that of the CRC.
constexpr std::uint32_t crc_multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a >> 31) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kCrcPolynomial : 0);
  }
  return product;
}

/// Returns x^(8 bytes): multiplying a CRC by it is the same as feeding it so many zero bytes.
constexpr std::uint32_t crc_zeros(std::uint64_t bytes) {
  std::uint32_t power = 0x80000000u, square = 0x00800000u;
  for (; bytes != 0; bytes >>= 1, square = crc_multiply(square, square))
    if ((bytes & 1) != 0) power = crc_multiply(power, square);
  return power;
}

/// Feeds bytes to a CRC without the inversions at both ends: linear in state and bytes.
inline std::uint32_t crc_feed(std::uint32_t state, std::span<const std::byte> bytes) {
  static_assert(std::endian::native == std::endian::little);
  const auto& t = kCrcTables.of;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 16; left -= 16, at += 16) {
    std::uint32_t w[4];
    std::memcpy(w, at, 16);
    w[0] ^= state;
    state = 0;
    for (std::size_t i = 0; i < 4; ++i)
      state ^= t[15 - 4 * i][w[i] & 255] ^ t[14 - 4 * i][w[i] >> 8 & 255] ^
               t[13 - 4 * i][w[i] >> 16 & 255] ^ t[12 - 4 * i][w[i] >> 24];
  }
  for (; left > 0; --left, ++at)
    state = (state >> 8) ^ t[0][(state ^ std::to_integer<std::uint32_t>(*at)) & 255];
  return state;
}

/// Returns the CRC of a message from the linear sum over its bytes (from state 0) and its length.
constexpr std::uint32_t crc_finish(std::uint32_t sum, std::uint64_t bytes) {
  return ~(sum ^ crc_multiply(~0u, crc_zeros(bytes)));
}

/// Returns the CRC-32 as zlib's crc32() gives it. `before`: that of the bytes before these.
inline std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0) {
  return ~crc_feed(~before, bytes);
}
inline std::uint32_t crc32(std::string_view text) { return crc32(std::as_bytes(std::span(text))); }

}}}  // namespace tessera::v0::detail
