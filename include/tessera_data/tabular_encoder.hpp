// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera_data/schema.hpp>
#include <tessera_data/standardized.hpp>
#include <tessera_data/tabular.hpp>
#include <tessera_data/value_map.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// Returns what a number counts as before it is standardized; NaN: an empty field that counts as
/// nothing.
inline double moved(const NumericColumn& column, double x) {
  if (std::isnan(x)) return column.empty ? double{*column.empty} : x;
  return column.log1p ? std::log1p(std::max(x, 0.0)) : x;
}

/// Calls visit(column, key) for each key of a block.
template <class Block, class Visit>
void for_each_key(Block& block, std::size_t columns, Visit visit) {
  const std::size_t bags = static_cast<std::size_t>(block.size) * columns;
  std::size_t k = 0;
  for (std::size_t bag = 0; bag < bags; ++bag)
    for (const std::size_t end = block.ends.empty() ? bag + 1 : block.ends[bag]; k < end; ++k)
      visit(bag % columns, block.keys[k]);
}

}  // namespace detail

/// What an encoder learns from training samples: how often each text of a table occurs, in which
/// order they came first, and each numeric column's mean and deviation. About 24-40 bytes per
/// distinct text. Never add test samples.
class TabularStatistics {
 public:
  explicit TabularStatistics(Schema schema)
      : schema_(std::move(schema)),
        counts_(schema_.tables.size()),
        order_(schema_.tables.size()),
        moments_(schema_.numeric.size()) {}

  void add(const TabularBlock& block) {
    for (std::size_t i = 0; i < block.numbers.size(); ++i) {
      double x = detail::moved(schema_.numeric[i % moments_.size()], block.numbers[i]);
      if (std::isnan(x)) continue;
      // Welford's way, from the first number on: squares of dates and of seconds since 1970 would
      // cancel
      Moments& moments = moments_[i % moments_.size()];
      if (moments.count == 0) moments.first = x;
      x -= moments.first;
      const double apart = x - moments.mean;
      moments.mean += apart / ++moments.count;
      moments.squares += apart * (x - moments.mean);
    }
    detail::for_each_key(block, schema_.categorical.size(), [&](std::size_t c, std::uint64_t key) {
      const std::size_t t = schema_.categorical[c].table;
      if (schema_.tables[t].rows_by == RowsBy::appearance && key != TabularBlock::kMissing &&
          counts_[t].add(key, 1) == 1)
        order_[t].push_back(key);
    });
  }

  const Schema& schema() const { return schema_; }
  /// Returns the keys of a table that gives rows by appearance, seen at least so often, in the
  /// order of their first appearance.
  std::vector<std::uint64_t> frequent_keys(std::size_t table, std::int64_t min_count) const {
    std::vector<std::uint64_t> keys;
    for (const std::uint64_t key : order_[table])
      if (counts_[table].find(key) >= min_count) keys.push_back(key);
    return keys;
  }
  /// Returns mean and deviation of the numbers that are there; {0, 0}: there are none.
  std::pair<double, double> mean_and_deviation(std::size_t column) const {
    const Moments& moments = moments_[column];
    if (moments.count == 0) return {0.0, 0.0};
    return {moments.first + moments.mean, std::sqrt(moments.squares / moments.count)};
  }

 private:
  struct Moments {
    double count = 0, first = 0;
    double mean = 0, squares = 0;  ///< of differences from the first, of those from their mean
  };
  Schema schema_;
  std::vector<detail::ValueMap<std::uint64_t>> counts_;  // by table
  std::vector<std::vector<std::uint64_t>> order_;
  std::vector<Moments> moments_;
};

/// How many rows a TabularEncoder gives, and to which texts.
struct TabularEncoderOptions {
  std::int64_t max_rows = 1 << 20;  ///< cap of tables that the schema gives no rows, at least 3
  std::int64_t min_count = 1;       ///< if the schema says nothing
  std::uint64_t seed = 0;           ///< of the hashes
};

/// Puts rows in the place of keys, and transformed numbers in that of numbers. Row 0 of a table
/// is that of an empty field; an empty list is an empty bag. By appearance: row 1 is shared by
/// unknown texts, known ones get rows from 2 on, each its own if they fit under max_rows, else
/// hashed. By hash: rows from 1 on. Keys of a vocabulary stay keys.
class TabularEncoder {
 public:
  static constexpr std::int64_t kMissingRow = 0;
  static constexpr std::int64_t kUnknownRow = 1;

  explicit TabularEncoder(const TabularStatistics& statistics, TabularEncoderOptions options = {})
      : schema_(statistics.schema()), seed_(options.seed), rows_by_key_(schema_.tables.size()) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    require(options.max_rows >= 3 && options.max_rows <= kMost,
            "TabularEncoder: max_rows ({}) must be 3 .. {}", options.max_rows, kMost);
    for (std::size_t t = 0; t < schema_.tables.size(); ++t) {
      const TableColumns& table = schema_.tables[t];
      require(table.rows <= kMost, "table '{}' of '{}': {} rows are more than {}", table.name,
              schema_.name, table.rows, kMost);
      rows_.push_back(table.rows);
      if (table.rows_by != RowsBy::appearance) continue;
      const std::vector<std::uint64_t> keys =
          statistics.frequent_keys(t, table.min_count == 0 ? options.min_count : table.min_count);
      const bool own_rows = std::ssize(keys) <= options.max_rows - 2;
      rows_[t] = own_rows ? std::ssize(keys) + 2 : options.max_rows;
      for (std::size_t i = 0; i < keys.size(); ++i)
        rows_by_key_[t].add(
            keys[i], static_cast<std::uint32_t>(
                         2 + (own_rows ? static_cast<std::int64_t>(i)
                                       : detail::scale_hash(hash(t, keys[i]), rows_[t] - 2))));
    }
    for (std::size_t c = 0; c < schema_.numeric.size(); ++c) {
      const auto [mean, deviation] = statistics.mean_and_deviation(c);
      const bool standardize = schema_.numeric[c].standardize;
      shift_.push_back(standardize ? mean : 0.0);
      // a constant column becomes 0; what differs in a double's last digit only is one
      const bool varies = deviation > std::abs(mean) * std::numeric_limits<double>::epsilon();
      scale_.push_back(standardize && varies ? 1.0 / deviation : 1.0);
    }
  }

  const Schema& schema() const { return schema_; }
  /// Returns rows of each table.
  const std::vector<std::int64_t>& rows() const { return rows_; }

  /// Transforms a block in place; an id may be -1 if the schema says `unknown: bad_id`. Throws
  /// DataError for an unknown text where it says `unknown: error`; `where` names the block there.
  void encode(TabularBlock& block, std::string_view where = "a block") const {
    encode_numbers(block, where);
    std::size_t visited = 0;
    detail::for_each_key(block, schema_.categorical.size(), [&](std::size_t c, std::uint64_t& key) {
      const std::int64_t id = row(schema_.categorical[c].table, key);
      if (id == kRefused)
        throw DataError(detail::formatted(
            "{}, sample {}, column '{}': the text is not in the training data (often enough); "
            "choose 'unknown: shared' in '{}', or fix the data",
            where, sample_of(block, visited), schema_.categorical[c].name, schema_.name));
      key = static_cast<std::uint64_t>(id);
      ++visited;
    });
  }
  /// Returns the row of a text in a table; -1 and -2 where an unknown text is a bad id or an error.
  std::int64_t row_of(std::size_t table, std::string_view text) const {
    return row(table, text.empty() ? TabularBlock::kMissing : category_key(text));
  }
  /// Calls visit(key, row) for every key of a table that has a row by appearance, in no useful
  /// order.
  template <class Visit>
  void for_each_key(std::size_t table, Visit visit) const {
    rows_by_key_[table].for_each(visit);
  }
  /// Returns the seed of the hash of a table's keys: row 1 + scale_hash(mix64(seed ^ key), rows -
  /// 1).
  std::uint64_t hash_seed(std::size_t table) const { return random_word(seed_, table); }
  /// Returns what is subtracted from the numbers of a column, after log1p, and by what they are
  /// multiplied.
  std::pair<double, double> shift_and_scale(std::size_t column) const {
    return {shift_[column], scale_[column]};
  }
  /// Transforms the numbers alone: ids stay keys. Throws DataError for one that is too large for a
  /// float then.
  void encode_numbers(TabularBlock& block, std::string_view where = "a block") const {
    for (std::size_t i = 0; i < block.numbers.size(); ++i) {
      double& x = block.numbers[i];
      const std::size_t c = i % shift_.size();
      if (!detail::needs_double(shift_[c], scale_[c])) x = static_cast<float>(x);
      const double counts_as = detail::moved(schema_.numeric[c], x),
                   number = std::isnan(counts_as) ? 0.0 : (counts_as - shift_[c]) * scale_[c];
      require<DataError>(std::abs(number) <= std::numeric_limits<float>::max(),
                         "{}, sample {}, column '{}': {:.6g} is too far from the training data's "
                         "numbers: standardized it is {:.3g}, which is too large for a float",
                         where, i / shift_.size(), schema_.numeric[c].name, x, number);
      x = number;
    }
  }

 private:
  static constexpr std::int64_t kRefused = -2;

  std::uint64_t hash(std::size_t table, std::uint64_t key) const {
    return mix64(hash_seed(table) ^ key);
  }
  std::int64_t row(std::size_t t, std::uint64_t key) const {
    const TableColumns& table = schema_.tables[t];
    if (table.rows_by == RowsBy::vocabulary) return static_cast<std::int64_t>(key);
    if (key == TabularBlock::kMissing) return kMissingRow;
    if (table.rows_by == RowsBy::hash) return 1 + detail::scale_hash(hash(t, key), rows_[t] - 1);
    if (const std::uint32_t row = rows_by_key_[t].find(key); row != 0) return row;
    return table.unknown == UnknownCategory::shared_row ? kUnknownRow
           : table.unknown == UnknownCategory::bad_id   ? -1
                                                        : kRefused;
  }
  std::size_t sample_of(const TabularBlock& block, std::size_t key) const {
    const std::size_t columns = schema_.categorical.size();
    if (block.ends.empty()) return key / columns;
    const auto end = std::upper_bound(block.ends.begin(), block.ends.end(), key);
    return static_cast<std::size_t>(end - block.ends.begin()) / columns;
  }

  Schema schema_;
  std::uint64_t seed_;
  std::vector<detail::ValueMap<std::uint64_t>> rows_by_key_;
  std::vector<std::int64_t> rows_;
  std::vector<double> shift_, scale_;
};

}}  // namespace tessera::v0
