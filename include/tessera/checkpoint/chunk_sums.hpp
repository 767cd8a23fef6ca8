// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/io/crc32.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A file is checked in pieces of this size.
inline constexpr std::uint64_t kChunkBytes = 1 << 20;

constexpr std::uint64_t chunks_of(std::uint64_t file_bytes) {
  return (file_bytes + kChunkBytes - 1) / kChunkBytes;
}
constexpr std::uint64_t chunk_size(std::uint64_t file_bytes, std::uint64_t chunk) {
  return std::min(kChunkBytes, file_bytes - chunk * kChunkBytes);
}

/// What one writer knows of the checksums of a file's chunks. Several ranks may write to one chunk,
/// and none reads it back: a CRC is linear, so each takes the bytes of others for zeros, and the
/// exclusive or of all ranks' sums is that of the whole chunk.
class ChunkSums {
 public:
  explicit ChunkSums(std::uint64_t file_bytes) : bytes_(file_bytes), sums_(chunks_of(file_bytes)) {}

  std::uint64_t file_bytes() const { return bytes_; }
  std::uint32_t sum(std::uint64_t chunk) const { return sums_[chunk]; }
  void combine(std::uint64_t chunk, std::uint32_t sum) { sums_[chunk] ^= sum; }
  std::uint32_t crc(std::uint64_t chunk) const {
    return crc_finish(sums_[chunk], chunk_size(bytes_, chunk));
  }

  /// Takes bytes in, from low offsets to high. One for each run of writes; its end gives the rest
  /// to the sums.
  class Cursor {
   public:
    explicit Cursor(ChunkSums& sums) : sums_(&sums) {}
    Cursor(Cursor&& other) noexcept
        : sums_(other.sums_),
          state_(other.state_),
          at_(other.at_),
          gap_(other.gap_),
          after_gap_(other.after_gap_) {
      other.state_ = 0;
    }
    Cursor& operator=(Cursor&&) = delete;
    ~Cursor() { flush(); }

    void add(std::uint64_t offset, std::span<const std::byte> bytes) {
      while (!bytes.empty()) {
        const std::uint64_t chunk = offset / kChunkBytes,
                            end = std::min((chunk + 1) * kChunkBytes, sums_->bytes_);
        if (chunk != at_ / kChunkBytes || at_ > offset) flush();
        const std::size_t count =
            static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), end - offset));
        if (state_ != 0) state_ = zeros(state_, offset - at_);
        state_ = crc_feed(state_, bytes.first(count));
        at_ = offset += count;
        bytes = bytes.subspan(count);
        if (at_ == end) flush();
      }
    }

    void flush() {
      if (state_ == 0) return;
      // at_ may be the chunk's end.
      const std::uint64_t chunk = (at_ - 1) / kChunkBytes,
                          end = std::min((chunk + 1) * kChunkBytes, sums_->bytes_);
      sums_->sums_[chunk] ^= crc_multiply(state_, crc_zeros(end - at_));
      state_ = 0;
    }

   private:
    /// Passes over `count` zeros. The rows of a rectangle are equally far apart: the step over a
    /// gap is tabulated.
    std::uint32_t zeros(std::uint32_t state, std::uint64_t count) {
      if (count == 0) return state;
      if (count != gap_) {
        gap_ = count;
        const std::uint32_t power = crc_zeros(count);
        for (std::size_t k = 0; k < 4; ++k)
          for (std::uint32_t byte = 0; byte < 256; ++byte)
            after_gap_[k][byte] = crc_multiply(byte << (8 * k), power);
      }
      return after_gap_[0][state & 255] ^ after_gap_[1][state >> 8 & 255] ^
             after_gap_[2][state >> 16 & 255] ^ after_gap_[3][state >> 24];
    }

    ChunkSums* sums_;
    std::uint32_t state_ = 0;
    std::uint64_t at_ = 0, gap_ = 0;
    std::array<std::array<std::uint32_t, 256>, 4> after_gap_;
  };

 private:
  std::uint64_t bytes_;
  std::vector<std::uint32_t> sums_;
};

}}}  // namespace tessera::v0::detail
