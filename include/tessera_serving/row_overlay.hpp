// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/host/bag_parts.hpp>
#include <tessera/tables/buffer.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Rows that take the place of those of a frozen table. Two bits for each row of the table say
/// which and where: whether a row is here, and how many before it are.
class RowOverlay {
 public:
  /// Makes room for rows. `rows`: of the table; `numbers`: which of them are here, ascending,
  /// inside the table, each once. Their bytes go to `data()`, in that order.
  RowOverlay(std::int64_t rows, std::span<const std::int64_t> numbers, std::size_t row_bytes)
      : words_(static_cast<std::size_t>(rows + 63) / 64), rows_(std::ssize(numbers)) {
    data_.resize(Host(), numbers.size() * row_bytes);
    for (const std::int64_t row : numbers)
      words_[static_cast<std::size_t>(row / 64)].here |= std::uint64_t{1} << (row % 64);
    std::uint64_t before = 0;
    for (Word& word : words_) {
      word.before = before;
      before += static_cast<std::uint64_t>(std::popcount(word.here));
    }
  }

  std::int64_t rows() const { return rows_; }
  std::byte* data() { return data_.data(); }

  /// Returns where a row is, if `base` is where it is in the table. Without a branch: which rows
  /// have changed cannot be foreseen.
  const std::byte* find(std::int64_t row, const std::byte* base, std::int64_t row_bytes) const {
    const Word word = words_[static_cast<std::size_t>(row / 64)];
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    const std::uint64_t index =
        word.before + static_cast<std::uint64_t>(std::popcount(word.here & (bit - 1)));
    const std::byte* const changed = data_.data() + index * static_cast<std::uint64_t>(row_bytes);
    return (word.here & bit) != 0 ? changed : base;
  }
  /// Fetches what `find` will read of its own.
  void foresee(std::int64_t row) const {
    prefetch(&words_[static_cast<std::size_t>(row / 64)], sizeof(Word));
  }

 private:
  struct Word {
    std::uint64_t here = 0, before = 0;
  };
  std::vector<Word> words_;
  std::int64_t rows_;
  Buffer<std::byte, Host> data_;  ///< on huge pages, as any row may be read
};

}}}  // namespace tessera::v0::detail
