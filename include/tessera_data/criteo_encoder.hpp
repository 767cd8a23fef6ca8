// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/random.hpp>
#include <tessera_data/click_batch.hpp>
#include <tessera_data/criteo.hpp>
#include <tessera_data/value_map.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// Returns the logarithm of an integer. Integers span orders of magnitude: their logarithm is what
/// models digest. Negative numbers count as 0; a missing one is as far below 0 as 2 is above 1.
inline float log_integer(std::int32_t x) {
  return x == CriteoRecord::kMissing ? -1.0f : std::log(1.0f + static_cast<float>(std::max(x, 0)));
}

}  // namespace detail

/// What an encoder learns from the training records: how often each category value occurs, and each
/// integer column's mean and deviation (of logarithms). About 16-32 bytes per distinct value. Never
/// add test records.
class CriteoStatistics {
 public:
  void add(std::span<const CriteoRecord> records) {
    for (const CriteoRecord& record : records) {
      for (int i = 0; i < kCriteoIntegers; ++i) {
        const double x = detail::log_integer(record.integers[i]);
        sum_[i] += x;
        sum_of_squares_[i] += x * x;
      }
      for (int f = 0; f < kCriteoCategories; ++f)
        if (!record.missing(f)) counts_[f].add(record.categories[f], 1);
    }
    records_ += static_cast<std::int64_t>(records.size());
  }

  std::int64_t records() const { return records_; }
  std::int64_t distinct_values(int category) const {
    return static_cast<std::int64_t>(counts_[category].size());
  }
  std::int64_t count(int category, std::uint32_t value) const {
    return counts_[category].find(value);
  }

  /// Returns mean and standard deviation of one integer column's logarithms.
  std::pair<double, double> mean_and_deviation(int integer) const {
    if (records_ == 0) return {0.0, 0.0};
    const double n = static_cast<double>(records_);
    const double mean = sum_[integer] / n;
    return {mean, std::sqrt(std::max(sum_of_squares_[integer] / n - mean * mean, 0.0))};
  }

  /// Returns the values of a category seen at least `min_count` times, in ascending order.
  std::vector<std::uint32_t> frequent_values(int category, std::int64_t min_count) const {
    std::vector<std::uint32_t> values;
    counts_[category].for_each([&](std::uint32_t value, std::uint32_t count) {
      if (count >= min_count) values.push_back(value);
    });
    std::sort(values.begin(), values.end());
    return values;
  }

 private:
  std::array<detail::ValueMap<std::uint32_t>, kCriteoCategories> counts_;
  std::array<double, kCriteoIntegers> sum_{};
  std::array<double, kCriteoIntegers> sum_of_squares_{};
  std::int64_t records_ = 0;
};

/// How many rows a CriteoEncoder gives, and to which values.
struct CriteoEncoderOptions {
  std::int64_t max_rows = 1 << 20;  ///< cap per table, at least 3
  /// with statistics: a value seen less often in training goes to the table's rare row
  std::int64_t min_count = 10;
  std::uint64_t seed = 0;  ///< of the hashes
};

/// Turns records into batches: categories into row numbers, integers into numbers of about unit
/// size. Row 0 of every table is that of "missing". Without statistics, other values are hashed
/// over the rows from 1 on. With them, row 1 is that of rare and unseen values, and frequent ones
/// get rows from 2 on: each its own if they fit under max_rows, else hashed.
class CriteoEncoder {
 public:
  static constexpr std::int64_t kMissingRow = 0;
  static constexpr std::int64_t kRareRow = 1;

  /// Encodes by hashing alone; integers become log(1 + x).
  explicit CriteoEncoder(CriteoEncoderOptions options = {}) : options_(options) {
    require(options.max_rows >= 3 && options.max_rows <= std::numeric_limits<std::int32_t>::max(),
            "CriteoEncoder: max_rows ({}) must be 3 .. 2^31-1", options.max_rows);
    for (int f = 0; f < kCriteoCategories; ++f) streams_[f] = random_word(options.seed, f);
    rows_.fill(options.max_rows);
    scale_.fill(1.0f);
  }

  /// Encodes with the training data's statistics; integers become log(1 + x), shifted and scaled to
  /// mean 0 and deviation 1.
  CriteoEncoder(CriteoEncoderOptions options, const CriteoStatistics& statistics)
      : CriteoEncoder(options) {
    by_frequency_ = true;
    for (int f = 0; f < kCriteoCategories; ++f) {
      std::vector<std::uint32_t> values = statistics.frequent_values(f, options.min_count);
      const std::int64_t count = static_cast<std::int64_t>(values.size());
      const bool own_rows = count <= options.max_rows - 2;
      rows_[f] = own_rows ? count + 2 : options.max_rows;
      // In the hashes' order, so that popular values spread over a table that is cut by rows.
      std::sort(values.begin(), values.end(),
                [&](std::uint32_t a, std::uint32_t b) { return hash(f, a) < hash(f, b); });
      for (std::int64_t i = 0; i < count; ++i)
        vocabulary_[f].add(
            values[i],
            static_cast<std::uint32_t>(
                2 + (own_rows ? i : detail::scale_hash(hash(f, values[i]), options.max_rows - 2))));
    }
    for (int i = 0; i < kCriteoIntegers; ++i) {
      const auto [mean, deviation] = statistics.mean_and_deviation(i);
      shift_[i] = static_cast<float>(mean);
      // a constant column becomes 0
      scale_[i] = deviation > 1e-6 ? static_cast<float>(1.0 / deviation) : 1.0f;
    }
  }

  /// Returns rows of the 26 tables.
  const std::array<std::int64_t, kCriteoCategories>& rows() const { return rows_; }

  /// Returns what a missing integer counts as, in place of a logarithm.
  static float missing_integer() { return detail::log_integer(CriteoRecord::kMissing); }

  /// Returns the value of each row of a category, if values have rows of their own: row ->
  /// value (0 for the two first rows). Of values that share a row, one. Empty without statistics.
  std::vector<std::uint32_t> values(int category) const {
    if (!by_frequency_) return {};
    std::vector<std::uint32_t> values(static_cast<std::size_t>(rows_[category]));
    vocabulary_[category].for_each([&](std::uint32_t value, std::uint32_t row) {
      values[row] = std::max(values[row], value);
    });
    return values;
  }

  /// Calls visit(value, row) for every value of a category that has a row, in no useful order; for
  /// none without statistics.
  template <class Visit>
  void for_each_value(int category, Visit visit) const {
    vocabulary_[category].for_each(visit);
  }

  /// Returns what is subtracted from the logarithms of the integers, and by what they are then
  /// multiplied.
  const std::array<float, kCriteoIntegers>& shift() const { return shift_; }
  const std::array<float, kCriteoIntegers>& scale() const { return scale_; }

  std::int64_t row(int category, std::uint32_t value) const {
    if (!by_frequency_) return 1 + detail::scale_hash(hash(category, value), rows_[category] - 1);
    const std::uint32_t row = vocabulary_[category].find(value);
    return row == 0 ? kRareRow : row;
  }

  /// Fills a batch of one-hot ids: 26 features, 13 dense columns.
  template <IdType Id>
  void encode(std::span<const CriteoRecord> records, ClickBatch<Id>& batch) const {
    batch.size = static_cast<std::int64_t>(records.size());
    batch.features = kCriteoCategories;
    batch.dense_columns = kCriteoIntegers;
    batch.labels.resize(records.size());
    batch.dense.resize(records.size() * kCriteoIntegers);
    batch.ids.resize(records.size() * kCriteoCategories);
    batch.offsets.clear();
    for (std::size_t s = 0; s < records.size(); ++s) {
      const CriteoRecord& record = records[s];
      batch.labels[s] = record.label;
      for (int i = 0; i < kCriteoIntegers; ++i)
        batch.dense[s * kCriteoIntegers + i] =
            (detail::log_integer(record.integers[i]) - shift_[i]) * scale_[i];
      for (int f = 0; f < kCriteoCategories; ++f)
        batch.ids[f * records.size() + s] =
            static_cast<Id>(record.missing(f) ? kMissingRow : row(f, record.categories[f]));
    }
  }

 private:
  std::uint64_t hash(int category, std::uint32_t value) const {
    return mix64(streams_[category] ^ value);
  }

  CriteoEncoderOptions options_;
  bool by_frequency_ = false;
  std::array<std::uint64_t, kCriteoCategories> streams_{};
  std::array<detail::ValueMap<std::uint32_t>, kCriteoCategories> vocabulary_;
  std::array<std::int64_t, kCriteoCategories> rows_{};
  std::array<float, kCriteoIntegers> shift_{};
  std::array<float, kCriteoIntegers> scale_{};
};

}}  // namespace tessera::v0
