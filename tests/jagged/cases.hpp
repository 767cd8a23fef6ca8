// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tests of the jagged kit on JaggedBackend, which the including file names. References are plain
// loops over vectors of rows.

#include <tessera/sequence/jagged.hpp>

#include <doctest/doctest.h>
#include <support/on_backend.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tessera;
using on_backend::Array;

using Rows = std::vector<std::vector<float>>;

struct Jagged {
  std::int64_t columns = 1;
  std::vector<Rows> sequences;

  std::vector<std::int64_t> offsets() const {
    std::vector<std::int64_t> o{0};
    for (const Rows& rows : sequences) o.push_back(o.back() + std::ssize(rows));
    return o;
  }
  std::vector<float> values() const {
    std::vector<float> all;
    for (const Rows& rows : sequences)
      for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    return all;
  }
  std::int64_t rows() const { return offsets().back(); }
};

Jagged random_jagged(unsigned seed, const std::vector<int>& lengths, std::int64_t columns) {
  std::mt19937 random(seed);
  Jagged jagged{columns, {}};
  for (const int length : lengths) {
    Rows rows;
    for (int r = 0; r < length; ++r) {
      rows.emplace_back();
      for (std::int64_t c = 0; c < columns; ++c)
        rows.back().push_back(static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 256);
    }
    jagged.sequences.push_back(rows);
  }
  return jagged;
}

/// A jagged matrix in the backend's memory.
class Held {
 public:
  Held(const JaggedBackend& backend, const Jagged& jagged)
      : rows_(jagged.rows()),
        columns_(jagged.columns),
        values_(backend, jagged.values()),
        offsets_(backend, jagged.offsets()) {}
  jagged::JaggedView<float> view() const {
    return {{values_.data(), rows_, columns_}, offsets_.span()};
  }
  std::vector<float> read() const { return values_.read(); }

 private:
  std::int64_t rows_, columns_;
  Array<float, JaggedBackend> values_;
  Array<std::int64_t, JaggedBackend> offsets_;
};

const std::vector<int> kLengths{3, 0, 7, 1, 40, 0, 0, 5};
const std::vector<std::int64_t> kColumns{1, 5, 64};

Array<float, JaggedBackend> filled(const JaggedBackend& backend, std::int64_t count,
                                   float value = -77.0f) {
  return {backend, std::vector<float>(static_cast<std::size_t>(count), value)};
}

bool near(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= 1e-5f * (1 + std::abs(b[i])))) return false;
  return true;
}

}  // namespace

TEST_CASE("jagged: padded, its first or last rows, and back with zeros for what was cut") {
  for (const std::int64_t columns : kColumns)
    for (const std::int64_t most : {1, 5, 41})
      for (const jagged::Keep keep : {jagged::Keep::first, jagged::Keep::last}) {
        INFO("columns ", columns, ", max_length ", most, ", last ", keep == jagged::Keep::last);
        const Jagged jagged = random_jagged(1, kLengths, columns);
        std::vector<float> padded, back;
        for (const Rows& rows : jagged.sequences) {
          const std::int64_t length = std::ssize(rows),
                             from = keep == jagged::Keep::last
                                        ? std::max<std::int64_t>(0, length - most)
                                        : 0;
          for (std::int64_t p = 0; p < most; ++p)
            for (std::int64_t c = 0; c < columns; ++c)
              padded.push_back(from + p < length ? rows[from + p][c] : 0.0f);
          for (std::int64_t r = 0; r < length; ++r)
            for (std::int64_t c = 0; c < columns; ++c)
              back.push_back(r >= from && r < from + most ? rows[r][c] : 0.0f);
        }
        const JaggedBackend backend;
        const Held held(backend, jagged), again(backend, random_jagged(2, kLengths, columns));
        const auto out = filled(backend, std::ssize(padded));
        const MatrixView<float> view{out.data(), std::ssize(kLengths) * most, columns};
        jagged::jagged_to_padded_dense(backend, held.view(), most, view, keep);
        CHECK((out.read() == padded));
        jagged::padded_dense_to_jagged(backend, view, most, again.view(), keep);
        CHECK((again.read() == back));
      }
}

TEST_CASE("jagged: a padded matrix inside a wider one: nothing beside it is touched") {
  const JaggedBackend backend;
  const Jagged jagged = random_jagged(3, {2, 0, 1}, 3);
  const Held held(backend, jagged);
  const auto wide = filled(backend, 6 * 5);
  jagged::jagged_to_padded_dense(backend, held.view(), 2, {wide.data(), 6, 3, 5});
  const std::vector<float> got = wide.read(), values = jagged.values();
  const std::vector<int> row_of{0, 1, -1, -1, 2, -1};
  for (int row = 0; row < 6; ++row)
    for (int c = 0; c < 5; ++c)
      CHECK(got[row * 5 + c] == (c >= 3            ? -77.0f
                                 : row_of[row] < 0 ? 0.0f
                                                   : values[row_of[row] * 3 + c]));
}

TEST_CASE("jagged: two joined sequence by sequence, and taken apart") {
  for (const std::int64_t columns : kColumns) {
    const Jagged a = random_jagged(4, kLengths, columns),
                 b = random_jagged(5, {0, 2, 1, 0, 9, 0, 4, 33}, columns);
    Jagged joined{columns, a.sequences};
    for (std::size_t s = 0; s < b.sequences.size(); ++s)
      joined.sequences[s].insert(joined.sequences[s].end(), b.sequences[s].begin(),
                                 b.sequences[s].end());
    const JaggedBackend backend;
    const Held first(backend, a), second(backend, b),
        first_again(backend, random_jagged(6, kLengths, columns)),
        second_again(backend, random_jagged(7, {0, 2, 1, 0, 9, 0, 4, 33}, columns));
    const auto out = filled(backend, joined.rows() * columns);
    const MatrixView<float> view{out.data(), joined.rows(), columns};
    jagged::concat_jagged(backend, first.view(), second.view(), view);
    CHECK((out.read() == joined.values()));
    jagged::split_jagged(backend, view, first_again.view(), second_again.view());
    CHECK((first_again.read() == a.values()));
    CHECK((second_again.read() == b.values()));
  }
}

TEST_CASE("jagged: rows by a list, and to a list") {
  const JaggedBackend backend;
  const std::vector<float> from{0, 1, 10, 11, 20, 21, 30, 31};
  const Array<float, JaggedBackend> source(backend, from);
  const Array<std::int64_t, JaggedBackend> rows(backend, std::vector<std::int64_t>{3, -1, 0});
  const auto to = filled(backend, 6), spread = filled(backend, 8, 5.0f);
  jagged::gather_rows(backend, MatrixView<const float>(source.data(), 4, 2), rows.span(),
                      {to.data(), 3, 2});
  CHECK((to.read() == std::vector<float>{30, 31, 0, 0, 0, 1}));
  jagged::scatter_rows(backend, MatrixView<const float>(to.data(), 3, 2), rows.span(),
                       {spread.data(), 4, 2});
  CHECK((spread.read() == std::vector<float>{0, 1, 5, 5, 5, 5, 30, 31}));
}

TEST_CASE("jagged: sums, means and softmax over sequences, and their gradients") {
  for (const std::int64_t columns : kColumns) {
    const Jagged jagged = random_jagged(8, kLengths, columns),
                 slope = random_jagged(9, kLengths, columns);
    const std::int64_t sequences = std::ssize(kLengths);
    std::vector<float> sum, mean, spread, spread_mean, softmax, softmax_back;
    std::vector<float> gradient;
    for (std::int64_t i = 0; i < sequences * columns; ++i)
      gradient.push_back(0.25f * static_cast<float>(i % 13));
    for (std::int64_t s = 0; s < sequences; ++s) {
      const Rows& rows = jagged.sequences[s];
      for (std::int64_t c = 0; c < columns; ++c) {
        double total = 0;
        for (const auto& row : rows) total += row[c];
        sum.push_back(static_cast<float>(total));
        mean.push_back(rows.empty() ? 0.0f
                                    : static_cast<float>(total / static_cast<double>(rows.size())));
      }
      for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
          const float g = gradient[s * columns + c];
          spread.push_back(g);
          spread_mean.push_back(g / static_cast<float>(rows.size()));
          double all = 0, product = 0;
          for (std::size_t i = 0; i < rows.size(); ++i) {
            const double e = std::exp(double{rows[i][c]});
            all += e;
            product += e * slope.sequences[s][i][c];
          }
          const double p = std::exp(double{rows[r][c]}) / all;
          softmax.push_back(static_cast<float>(p));
          softmax_back.push_back(
              static_cast<float>(p * (slope.sequences[s][r][c] - product / all)));
        }
    }
    const JaggedBackend backend;
    const Held held(backend, jagged), slopes(backend, slope);
    const Array<float, JaggedBackend> upper(backend, gradient);
    const auto to = filled(backend, sequences * columns);
    const MatrixView<float> rows{to.data(), sequences, columns};
    jagged::segment_sum(backend, held.view(), rows);
    CHECK(near(to.read(), sum));
    jagged::segment_mean(backend, held.view(), rows);
    CHECK(near(to.read(), mean));
    const MatrixView<const float> g{upper.data(), sequences, columns};
    const Held out(backend, random_jagged(10, kLengths, columns));
    jagged::segment_sum_backward(backend, g, out.view());
    CHECK(near(out.read(), spread));
    jagged::segment_mean_backward(backend, g, out.view());
    CHECK(near(out.read(), spread_mean));
    jagged::segment_softmax(backend, held.view(), held.view().values);
    CHECK(near(held.read(), softmax));
    jagged::segment_softmax_backward(backend, held.view(), slopes.view().values,
                                     slopes.view().values);
    CHECK(near(slopes.read(), softmax_back));
  }
}

TEST_CASE("jagged: ids of positions and of times; lengths and offsets") {
  const JaggedBackend backend;
  const std::vector<std::int64_t> lengths{3, 0, 5, 1}, offsets{0, 3, 3, 8, 9};
  const Array<std::int64_t, JaggedBackend> held_lengths(backend, lengths),
      held_offsets(backend, offsets), to_offsets(backend, std::vector<std::int64_t>(5, -1)),
      to_lengths(backend, std::vector<std::int64_t>(4, -1)),
      ids(backend, std::vector<std::int64_t>(9, -1));
  jagged::lengths_to_offsets(backend, held_lengths.span(), to_offsets.span());
  CHECK((to_offsets.read() == offsets));
  jagged::offsets_to_lengths(backend, held_offsets.span(), to_lengths.span());
  CHECK((to_lengths.read() == lengths));
  jagged::position_ids(backend, held_offsets.span(), 4, ids.span());
  CHECK((ids.read() == std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 3, 3, 0}));
  jagged::position_ids(backend, held_offsets.span(), 100, ids.span(), jagged::Keep::last);
  CHECK((ids.read() == std::vector<std::int64_t>{2, 1, 0, 4, 3, 2, 1, 0, 0}));
  // distances 1,000,000, 60, 0 | 100, 2, 3, 1, 0 | 0: log / 0.301 = 45.9, 13.6; 15.3, 2.3, 3.65
  const std::vector<std::int64_t> times{5, 999945, 1000005, 0, 98, 97, 99, 100, 42};
  const Array<std::int64_t, JaggedBackend> held_times(backend, times);
  jagged::time_bucket_ids(backend, held_offsets.span(), held_times.span(), 40, ids.span());
  CHECK((ids.read() == std::vector<std::int64_t>{39, 13, 0, 15, 2, 3, 0, 0, 0}));
  // distances of nanoseconds: 200, 100 and 0, of times that doubles do not tell apart; and 2^64 - 1
  constexpr std::int64_t now = 1'700'000'000'000'000'000;
  const Array<std::int64_t, JaggedBackend> far(
      backend, std::vector<std::int64_t>{now, now + 100, now + 200, 0, 0, 0, 0, 0,
                                         std::numeric_limits<std::int64_t>::min()}),
      extremes(backend, std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 0,
                                                  std::numeric_limits<std::int64_t>::max(),
                                                  std::numeric_limits<std::int64_t>::min()}),
      one(backend, std::vector<std::int64_t>{0, 3, 8, 9}),
      both(backend, std::vector<std::int64_t>{0, 3, 7, 9});
  jagged::time_bucket_ids(backend, one.span(), far.span(), 200, ids.span());
  CHECK((ids.read() == std::vector<std::int64_t>{17, 15, 0, 0, 0, 0, 0, 0, 0}));
  jagged::time_bucket_ids(backend, both.span(), extremes.span(), 200, ids.span());
  CHECK((ids.read() == std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 0, 147, 0}));

  std::vector<std::int64_t> many(1000), sums{0};
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int64_t>(i * 7 % 11);
  for (const std::int64_t length : many) sums.push_back(sums.back() + length);
  const Array<std::int64_t, JaggedBackend> held_many(backend, many),
      to(backend, std::vector<std::int64_t>(1001, -1));
  jagged::lengths_to_offsets(backend, held_many.span(), to.span());
  CHECK((to.read() == sums));
}

TEST_CASE("jagged: no sequences, no rows") {
  const JaggedBackend backend;
  const Held none(backend, Jagged{3, {}}), empty(backend, Jagged{3, {{}, {}}});
  const auto to = filled(backend, 6);
  jagged::segment_sum(backend, none.view(), {to.data(), 0, 3});
  CHECK((to.read() == std::vector<float>(6, -77.0f)));
  jagged::segment_sum(backend, empty.view(), {to.data(), 2, 3});
  CHECK((to.read() == std::vector<float>(6, 0.0f)));
  jagged::segment_softmax(backend, empty.view(), empty.view().values);
  jagged::concat_jagged(backend, empty.view(), empty.view(), {to.data(), 0, 3});
  jagged::jagged_to_padded_dense(backend, none.view(), 4, {to.data(), 0, 3});
}

TEST_CASE("jagged: shapes that do not fit are named, and nothing is written") {
  const JaggedBackend backend;
  const Held held(backend, random_jagged(11, {2, 1}, 3)), other(backend, random_jagged(12, {2}, 3)),
      narrow(backend, random_jagged(13, {2, 1}, 2));
  const auto to = filled(backend, 24);
  const auto says = [&](const auto& f, const std::string& text) {
    CHECK(message_of<InvalidArgument>(f) == text);
    CHECK((to.read() == std::vector<float>(24, -77.0f)));
  };
  says([&] { jagged::jagged_to_padded_dense(backend, held.view(), 0, {to.data(), 0, 3}); },
       "jagged_to_padded_dense: max_length must be positive, got 0");
  says([&] { jagged::jagged_to_padded_dense(backend, held.view(), 4, {to.data(), 7, 3}); },
       "jagged_to_padded_dense: the padded matrix is 7 x 3, must be 8 x 3");
  says([&] { jagged::concat_jagged(backend, held.view(), other.view(), {to.data(), 5, 3}); },
       "concat_jagged: 2 and 1 sequences; both need the same");
  says([&] { jagged::concat_jagged(backend, held.view(), narrow.view(), {to.data(), 6, 3}); },
       "concat_jagged: 3 and 2 columns; both need the same");
  says([&] { jagged::segment_mean(backend, held.view(), {to.data(), 2, 2}); },
       "segment_mean: the result is 2 x 2, must be 2 x 3");
  says([&] { jagged::segment_sum(backend, held.view(), {to.data(), 2, 3, 2}); },
       "segment_sum: the result has no memory, or a stride below its columns");
  jagged::JaggedView<const float> unsound = held.view();
  unsound.values.data = nullptr;
  says([&] { jagged::segment_sum(backend, unsound, {to.data(), 2, 3}); },
       "segment_sum: the matrix of values has no memory, or a stride below its columns");
  says([&] { jagged::gather_rows(backend, unsound.values, {}, {to.data(), 0, 3}); },
       "gather_rows: the source has no memory, or a stride below its columns");
  says([&] { jagged::segment_sum(backend, jagged::JaggedView<const float>(), {to.data(), 0, 0}); },
       "segment_sum: offsets are empty; give sequences + 1 of them");
  if constexpr (JaggedBackend::host_readable) {
    const std::vector<std::int64_t> wrong{0, 2, 1, 3}, beyond{0, 4}, rows{0, 3}, lengths{2, -1};
    std::vector<std::int64_t> offsets(3, -1);
    const MatrixView<float> values = held.view().values;
    says(
        [&] {
          jagged::segment_sum(backend, jagged::JaggedView<const float>(values, wrong),
                              {to.data(), 3, 3});
        },
        "segment_sum: offsets decrease after sequence 1");
    says(
        [&] {
          jagged::segment_sum(backend, jagged::JaggedView<const float>(values, beyond),
                              {to.data(), 1, 3});
        },
        "segment_sum: offsets go from 0 to 4; they must go from 0 to 3, the rows of the values");
    says([&] { jagged::gather_rows(backend, values, rows, {to.data(), 2, 3}); },
         "gather_rows: rows[1] is 3, of 3 rows");
    says([&] { jagged::lengths_to_offsets(backend, lengths, offsets); },
         "lengths_to_offsets: lengths[1] is -1");
    CHECK((offsets == std::vector<std::int64_t>(3, -1)));
  }
}
