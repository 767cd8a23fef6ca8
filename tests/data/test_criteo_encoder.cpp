// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Rows of categories and scaled integers against their definitions, recomputed with maps and
// doubles.
#include <tessera_data/criteo_encoder.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

using namespace tessera;

namespace {

std::vector<CriteoRecord> random_records(std::size_t count, std::uint64_t seed,
                                         std::uint32_t values) {
  std::mt19937_64 random(seed);
  std::vector<CriteoRecord> records(count);
  for (CriteoRecord& record : records) {
    record.label = random() % 3 == 0;
    for (auto& x : record.integers)
      x = random() % 5 == 0 ? CriteoRecord::kMissing
                            : static_cast<std::int32_t>(random() % 1000) - 2;
    for (int f = 0; f < kCriteoCategories; ++f) {
      const std::uint32_t value = static_cast<std::uint32_t>(random() % (1 + random() % values));
      if (random() % 6 == 0) {
        record.missing_categories |= 1u << f;
      } else {
        record.categories[f] = value * 0x9e3779b1u;  // value 0 stays 0: a category like any other
      }
    }
  }
  return records;
}

}  // namespace

TEST_CASE("statistics count values and describe columns") {
  const auto records = random_records(5000, 1, 300);
  CriteoStatistics statistics;
  statistics.add(std::span(records).first(1234));
  statistics.add(std::span(records).subspan(1234));
  CHECK(statistics.records() == 5000);
  for (int f = 0; f < kCriteoCategories; ++f) {
    std::map<std::uint32_t, std::int64_t> counts;
    for (const auto& record : records)
      if (!record.missing(f)) ++counts[record.categories[f]];
    CHECK(statistics.distinct_values(f) == static_cast<std::int64_t>(counts.size()));
    std::vector<std::uint32_t> frequent;
    for (const auto& [value, count] : counts) {
      CHECK(statistics.count(f, value) == count);
      if (count >= 8) frequent.push_back(value);
    }
    CHECK(statistics.frequent_values(f, 8) == frequent);
    CHECK(statistics.count(f, 12345) == 0);
  }
  for (int i = 0; i < kCriteoIntegers; ++i) {
    double sum = 0, squares = 0;
    const auto value = [&](const CriteoRecord& r) {
      return r.integers[i] == CriteoRecord::kMissing ? -1.0
                                                     : std::log1p(std::max(r.integers[i], 0));
    };
    for (const auto& record : records) sum += value(record) / 5000;
    for (const auto& record : records) squares += std::pow(value(record) - sum, 2) / 5000;
    const auto [mean, deviation] = statistics.mean_and_deviation(i);
    CHECK(mean == doctest::Approx(sum).epsilon(1e-5));
    CHECK(deviation == doctest::Approx(std::sqrt(squares)).epsilon(1e-5));
  }
}

TEST_CASE(
    "with statistics: missing in row 0, rare and unseen in row 1, every frequent value alone in a "
    "row of its own") {
  const auto records = random_records(5000, 2, 300);
  CriteoStatistics statistics;
  statistics.add(records);
  const CriteoEncoder encoder({.max_rows = 1000, .min_count = 5, .seed = 3}, statistics);
  for (int f = 0; f < kCriteoCategories; ++f) {
    const auto frequent = statistics.frequent_values(f, 5);
    CHECK(encoder.rows()[f] == static_cast<std::int64_t>(frequent.size()) + 2);
    std::set<std::int64_t> rows;
    for (const std::uint32_t value : frequent) rows.insert(encoder.row(f, value));
    CHECK(rows.size() == frequent.size());
    CHECK(*rows.begin() == 2);
    CHECK(*rows.rbegin() == encoder.rows()[f] - 1);
    CHECK(encoder.row(f, 777) == CriteoEncoder::kRareRow);
  }
  ClickBatch<std::int32_t> batch;
  encoder.encode<std::int32_t>(records, batch);
  CHECK(batch.size == 5000);
  CHECK_NOTHROW(batch.keyed().validate());
  CHECK(batch.keyed().one_hot());
  std::vector<double> mean(kCriteoIntegers), square(kCriteoIntegers);
  for (std::size_t s = 0; s < records.size(); ++s) {
    if (batch.labels[s] != records[s].label) FAIL("label of sample ", s);
    for (int f = 0; f < kCriteoCategories; ++f) {
      const bool rare = statistics.count(f, records[s].categories[f]) < 5;
      const std::int64_t expected = records[s].missing(f) ? 0
                                    : rare                ? 1
                                           : encoder.row(f, records[s].categories[f]);
      if (batch.ids[static_cast<std::size_t>(f) * records.size() + s] != expected)
        FAIL("sample ", s, " feature ", f);
    }
    for (int i = 0; i < kCriteoIntegers; ++i) {
      const double x = batch.dense_view()(static_cast<std::int64_t>(s), i);
      mean[static_cast<std::size_t>(i)] += x / 5000;
      square[static_cast<std::size_t>(i)] += x * x / 5000;
    }
  }
  for (int i = 0; i < kCriteoIntegers; ++i) {
    CHECK(std::abs(mean[static_cast<std::size_t>(i)]) < 1e-4);
    CHECK(square[static_cast<std::size_t>(i)] == doctest::Approx(1.0).epsilon(1e-3));
  }
}

TEST_CASE("more frequent values than rows: they share rows, row 0 and 1 stay reserved") {
  const auto records = random_records(5000, 4, 300);
  CriteoStatistics statistics;
  statistics.add(records);
  const CriteoEncoder encoder({.max_rows = 20, .min_count = 1}, statistics);
  std::set<std::int64_t> rows;
  for (const std::uint32_t value : statistics.frequent_values(0, 1))
    rows.insert(encoder.row(0, value));
  CHECK(encoder.rows()[0] == 20);
  CHECK(rows.size() == 18);
  CHECK(*rows.begin() == 2);
  CHECK(*rows.rbegin() == 19);
}

TEST_CASE("by hashing alone: all rows but 0 are used evenly, features and seeds differ") {
  constexpr std::int64_t kRows = 101;
  const CriteoEncoder encoder({.max_rows = kRows, .seed = 1});
  const CriteoEncoder other({.max_rows = kRows, .seed = 2});
  std::vector<double> counts(kRows);
  int same_feature = 0, same_seed = 0;
  constexpr int kValues = 100'000;
  for (std::uint32_t value = 0; value < kValues; ++value) {
    const std::int64_t row = encoder.row(5, value);
    if (row < 1 || row >= kRows) FAIL("row ", row);
    ++counts[static_cast<std::size_t>(row)];
    same_feature += row == encoder.row(6, value);
    same_seed += row == other.row(5, value);
  }
  double chi_squared = 0;
  const double expected = kValues / 100.0;
  for (std::size_t row = 1; row < kRows; ++row)
    chi_squared += std::pow(counts[row] - expected, 2) / expected;
  CHECK(chi_squared < 160);  // 99 degrees of freedom: exceeded with probability 1e-4
  CHECK(chi_squared > 50);
  CHECK(std::abs(same_feature - expected) < 5 * std::sqrt(expected));
  CHECK(std::abs(same_seed - expected) < 5 * std::sqrt(expected));
}

TEST_CASE("integers without statistics are log(1 + x), negative ones 0, missing ones -1") {
  CriteoRecord record;
  record.integers = {0, 1, 2, -1, -2, 100, 1'700'000, 2147483647, CriteoRecord::kMissing,
                     3, 4, 5, 6};
  record.missing_categories = 1u << 3;
  ClickBatch<std::int64_t> batch;
  CriteoEncoder({.max_rows = 10}).encode<std::int64_t>({&record, 1}, batch);
  for (int i = 0; i < kCriteoIntegers; ++i) {
    const double expected = record.integers[i] == CriteoRecord::kMissing
                                ? -1.0
                                : std::log1p(std::max(record.integers[i], 0));
    CHECK(batch.dense[static_cast<std::size_t>(i)] == doctest::Approx(expected).epsilon(1e-6));
  }
  CHECK(batch.ids[3] == 0);
  CHECK(batch.ids[4] >= 1);
}

TEST_CASE("columns that never vary, no records at all") {
  const CriteoEncoder nothing({}, CriteoStatistics{});
  CHECK(nothing.rows()[0] == 2);
  std::vector<CriteoRecord> records(10);
  for (auto& record : records) record.integers.fill(7);
  CriteoStatistics statistics;
  statistics.add(records);
  ClickBatch<std::int32_t> batch;
  CriteoEncoder({}, statistics).encode<std::int32_t>(records, batch);
  for (const float x : batch.dense) CHECK(std::abs(x) < 1e-6f);
  CriteoEncoder({}, statistics).encode<std::int32_t>({}, batch);
  CHECK(batch.size == 0);
  CHECK_NOTHROW(batch.keyed().validate());
  CHECK_THROWS_AS(CriteoEncoder({.max_rows = 2}), InvalidArgument);
  CHECK_THROWS_AS(CriteoEncoder({.max_rows = std::int64_t{1} << 31}), InvalidArgument);
}
