// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/checkpoint/chunk_sums.hpp>
#include <tessera/io/crc32.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

using namespace tessera;

TEST_CASE("the published check value, and zlib's of some texts") {
  CHECK(detail::crc32("123456789") == 0xcbf43926u);
  CHECK(detail::crc32("") == 0);
  CHECK(detail::crc32("a") == 0xe8b7be43u);
  CHECK(detail::crc32("The quick brown fox jumps over the lazy dog") == 0x414fa339u);
  CHECK(detail::crc32(std::string(32, '\0')) == 0x190a55adu);
}

TEST_CASE("bit by bit gives the same, whatever the length and place") {
  std::mt19937 random(1);
  std::string text(400, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (int i = 0; i < 300; ++i) {
    const std::string_view part = std::string_view(text).substr(random() % 40, random() % 360);
    std::uint32_t crc = ~0u;
    for (const char c : part) {
      crc ^= static_cast<unsigned char>(c);
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 != 0 ? 0xedb88320u : 0);
    }
    CHECK(detail::crc32(part) == ~crc);
  }
}

TEST_CASE("sums of several writers of strips and pieces are the checksums of the whole") {
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    const std::size_t size = 1 + random() % (round < 10 ? 5000 : 4'000'000);
    std::string file(size, '\0');
    for (char& c : file) c = static_cast<char>(random());
    const auto bytes = std::as_bytes(std::span(file));
    detail::ChunkSums all(size);
    // Rows of `stride` bytes, of which each of four writers has some columns.
    const std::size_t stride = 1 + random() % 3000,
                      cuts[] = {0, stride / 5, stride / 3, stride / 2, stride};
    for (int writer = 0; writer < 4; ++writer) {
      detail::ChunkSums own(size);
      {
        detail::ChunkSums::Cursor cursor(own);
        for (std::size_t row = 0; row < size; row += stride) {
          const std::size_t begin = std::min(size, row + cuts[writer]),
                            end = std::min(size, row + cuts[writer + 1]);
          if (random() % 3 == 0) cursor.flush();
          cursor.add(begin, bytes.subspan(begin, end - begin));
        }
      }
      for (std::uint64_t c = 0; c < detail::chunks_of(size); ++c) all.combine(c, own.sum(c));
    }
    for (std::uint64_t c = 0; c < detail::chunks_of(size); ++c)
      CHECK(all.crc(c) ==
            detail::crc32(bytes.subspan(static_cast<std::size_t>(c * detail::kChunkBytes),
                                        static_cast<std::size_t>(detail::chunk_size(size, c)))));
  }
}
