// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Update, Merge and Apply: against naive double references, and bit for bit against each other,
// other threads, widths and shards.
#include <tessera/host/update.hpp>
#include <tessera/optimizer/optimizers.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "cases.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// An arena with the state of an optimizer, filled with the values that depend on (row, table
/// column) alone.
template <Element T, Optimizer O>
struct Arena {
  Array<T> weights;
  std::vector<Array<float>> element_states;
  std::vector<Array<float>> row_states;
  std::vector<op::ArenaSegment> segments;
  std::int64_t rows;
  int width;

  /// The columns [begin, begin + width) of a table of `table_width` columns.
  Arena(std::int64_t rows_, int table_width, int begin, int width_)
      : weights(static_cast<std::size_t>(rows_ * width_)), rows(rows_), width(width_) {
    const auto all = random_elements<T>(static_cast<std::size_t>(rows * table_width), 3);
    for (std::int64_t r = 0; r < rows; ++r)
      for (int c = 0; c < width; ++c)
        weights[static_cast<std::size_t>(r * width + c)] =
            all[static_cast<std::size_t>(r * table_width + begin + c)];
    for (int k = 0; k < O::element_states; ++k)
      element_states.emplace_back(static_cast<std::size_t>(rows * width));
    for (int k = 0; k < O::row_states; ++k) row_states.emplace_back(static_cast<std::size_t>(rows));
    const std::int64_t half = rows / 2;
    segments = {{.row_offset = 0,
                 .rows = half,
                 .table_key = detail::name_key("a"),
                 .row_begin = 100,
                 .column_begin = begin},
                {.row_offset = half,
                 .rows = rows - half,
                 .table_key = detail::name_key("b"),
                 .row_begin = 0,
                 .column_begin = begin}};
  }
  op::ArenaState<T, O> state() {
    op::ArenaState<T, O> s{.arena = weights.data(),
                           .rows = rows,
                           .width = width,
                           .segments = segments,
                           .rounding_seed = 9};
    for (std::size_t k = 0; k < element_states.size(); ++k)
      s.element_state[k] = element_states[k].data();
    for (std::size_t k = 0; k < row_states.size(); ++k) s.row_state[k] = row_states[k].data();
    return s;
  }
  friend bool operator==(const Arena& a, const Arena& b) {
    return a.weights == b.weights && a.element_states == b.element_states &&
           a.row_states == b.row_states;
  }
};

template <Element T, IdType Id, int Width, Optimizer O>
Arena<T, O> updated(int threads, const O& optimizer, const Batch<Id>& batch,
                    const Array<float>& gradient, int width, int steps = 3) {
  Arena<T, O> arena(batch.rows, width, 0, width);
  const Host host({.threads = threads});
  const auto groups = batch.gradient_groups(gradient.data(), width);
  for (int step = 1; step <= steps; ++step)
    op::run<op::Update<T, Id, Width, O>>(
        host, {.state = arena.state(), .step = optimizer.at(0.1f, step), .groups = groups});
  return arena;
}

/// The columns [begin, end) of the same table: Merge, the mean squares of the whole rows, Apply.
template <Element T, IdType Id, int Width, Optimizer O>
Arena<T, O> updated_shard(int threads, const O& optimizer, const Batch<Id>& batch,
                          const Array<float>& gradient, int table_width, int begin, int width,
                          int steps = 3) {
  Arena<T, O> arena(batch.rows, table_width, begin, width);
  const Host host({.threads = threads});
  const auto groups = batch.gradient_groups(gradient.data(), table_width, begin);
  const auto whole_groups = batch.gradient_groups(gradient.data(), table_width);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(batch.rows)), whole_rows = rows;
  Array<float> sums(static_cast<std::size_t>(batch.rows * width)),
      whole_sums(static_cast<std::size_t>(batch.rows * table_width));
  std::vector<float> means(static_cast<std::size_t>(batch.rows));
  for (int step = 1; step <= steps; ++step) {
    op::MergedGradients merged{.rows = rows.data(), .gradients = sums.data()},
        whole{.rows = whole_rows.data(), .gradients = whole_sums.data()};
    op::run<op::Merge<Id, Width>>(
        host, {.arena_rows = batch.rows, .width = width, .groups = groups, .merged = &merged});
    op::run<op::Merge<Id, op::dynamic_width>>(
        host,
        {.arena_rows = batch.rows, .width = table_width, .groups = whole_groups, .merged = &whole});
    for (std::int64_t k = 0; k < whole.count; ++k)
      means[static_cast<std::size_t>(k)] =
          op::mean_square(whole.gradients + k * table_width, table_width);
    op::run<op::Apply<T, Width, O>>(host,
                                    {.state = arena.state(),
                                     .step = optimizer.at(0.1f, step),
                                     .merged = merged,
                                     .mean_square = O::needs_mean_square ? means.data() : nullptr});
  }
  return arena;
}

/// Three steps of the optimizer's published formula in double.
template <Element T, Optimizer O>
void check_against_reference(const O& optimizer, const Batch<std::int32_t>& batch,
                             const Array<float>& gradient, int width, const Arena<T, O>& result) {
  Arena<T, O> start(batch.rows, width, 0, width);
  const auto merged = reference_gradients(batch.gradient_groups(gradient.data(), width), width);
  double worst = 0;
  bool untouched_same = true;
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const auto found = merged.find(row);
    double row_sum = 0;
    for (int c = 0; c < width; ++c) {
      const auto at = static_cast<std::size_t>(row * width + c);
      double w = to_float(start.weights[at]);
      if (found == merged.end()) {
        untouched_same = untouched_same && result.weights[at] == start.weights[at];
        continue;
      }
      const double g = found->second[static_cast<std::size_t>(c)];
      double sum = 0, m = 0, v = 0;
      double mean = 0;
      for (const double x : found->second) mean += x * x / width;
      for (int step = 1; step <= 3; ++step) {
        if constexpr (std::is_same_v<O, Sgd>) w -= 0.1f * g;
        if constexpr (std::is_same_v<O, Adagrad>) {
          sum += g * g;
          w -= 0.1f * g / (std::sqrt(sum) + optimizer.epsilon);
        }
        if constexpr (std::is_same_v<O, RowWiseAdagrad>) {
          row_sum = step * mean;
          w -= 0.1f * g / (std::sqrt(row_sum) + optimizer.epsilon);
        }
        if constexpr (std::is_same_v<O, Adam>) {
          const double b1 = optimizer.beta1, b2 = optimizer.beta2;
          m = b1 * m + (1 - b1) * g;
          v = b2 * v + (1 - b2) * g * g;
          w -= 0.1f * (m / (1 - std::pow(b1, step))) /
               (std::sqrt(v / (1 - std::pow(b2, step))) + 1e-30);
        }
      }
      // A gradient near zero that is a sum of large terms has no accurate direction.
      if (std::abs(g) > 1e-3)
        worst = std::max(worst, std::abs(w - to_float(result.weights[at])) / (1 + std::abs(w)));
    }
  }
  CHECK(worst < (std::is_same_v<T, float> ? 1e-4 : std::is_same_v<T, Half> ? 4e-3 : 3e-2));
  CHECK(untouched_same);
}

template <Element T, int Width, Optimizer O>
void check_update(const O& optimizer, int width, std::int64_t samples = 400) {
  CAPTURE(width);
  const Batch<std::int32_t> batch(samples);
  const Batch<std::int64_t> wide_ids(samples);
  const auto gradient = random_elements<float>(static_cast<std::size_t>(batch.bags * width), 11);
  const auto result = updated<T, std::int32_t, Width>(1, optimizer, batch, gradient, width);
  check_against_reference(optimizer, batch, gradient, width, result);
  const auto same = [&](const Arena<T, O>& other) { return result == other; };
  CHECK(same(updated<T, std::int32_t, Width>(2, optimizer, batch, gradient, width)));
  CHECK(same(updated<T, std::int32_t, Width>(7, optimizer, batch, gradient, width)));
  CHECK(same(updated<T, std::int32_t, op::dynamic_width>(1, optimizer, batch, gradient, width)));
  CHECK(same(updated<T, std::int64_t, op::dynamic_width>(3, optimizer, wide_ids, gradient, width)));
  CHECK(
      same(updated_shard<T, std::int32_t, Width>(1, optimizer, batch, gradient, width, 0, width)));
  CHECK(
      same(updated_shard<T, std::int32_t, Width>(4, optimizer, batch, gradient, width, 0, width)));

  // Column shards, cut where it suits nobody, hold the same bits.
  const std::vector<int> cuts =
      width >= 40 ? std::vector<int>{0, 7, 23, 39, width} : std::vector<int>{0, width / 2, width};
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
    const int begin = cuts[s], shard_width = cuts[s + 1] - begin;
    if (shard_width == 0) continue;
    const auto shard = updated_shard<T, std::int32_t, op::dynamic_width>(
        2, optimizer, batch, gradient, width, begin, shard_width);
    bool equal = true;
    for (std::int64_t r = 0; r < batch.rows; ++r)
      for (int c = 0; c < shard_width; ++c) {
        const auto whole = static_cast<std::size_t>(r * width + begin + c),
                   part = static_cast<std::size_t>(r * shard_width + c);
        equal = equal && shard.weights[part] == result.weights[whole];
        for (std::size_t k = 0; k < O::element_states; ++k)
          equal = equal && shard.element_states[k][part] == result.element_states[k][whole];
      }
    CHECK(equal);
    CHECK(shard.row_states == result.row_states);
  }
}

}  // namespace

TEST_CASE(
    "every optimizer follows its formula, with the same bits for every thread count, width kind, "
    "shard and Merge + Apply") {
  check_update<float, 16>(Sgd{}, 16);
  check_update<float, 64>(Adagrad{}, 64);
  check_update<float, 128>(RowWiseAdagrad{}, 128);
  check_update<float, 64>(Adam{}, 64);
  check_update<float, 4>(RowWiseAdagrad{}, 4);
  check_update<float, 100>(Adam{}, 100);
  check_update<float, 27>(Adagrad{}, 27);
  check_update<float, 1>(Sgd{}, 1);
  check_update<float, 300>(RowWiseAdagrad{}, 300, 60);
}

TEST_CASE(
    "16-bit tables round stochastically, with the same bits for every thread count, width kind, "
    "shard and Merge + Apply") {
  check_update<BFloat16, 16>(Sgd{}, 16);
  check_update<BFloat16, 100>(RowWiseAdagrad{}, 100);
  check_update<Half, 64>(Adagrad{}, 64);
  check_update<Half, 45>(Adam{}, 45);
}

TEST_CASE("the rows that groups name change the partition, not a bit of the result") {
  // Tables of very different sizes; one is read by two features, one by none.
  const std::vector<std::int64_t> table_rows = {3, 10'000, 1, 700, 65, 50'000};
  std::vector<std::int64_t> begins = {0};
  for (const std::int64_t rows : table_rows) begins.push_back(begins.back() + rows);
  const std::int64_t arena_rows = begins.back();
  std::vector<Feature<std::int32_t>> features;
  std::vector<op::RowRange> ranges;
  const auto add = [&](Kind kind, std::size_t table, std::int64_t bags) {
    const auto seed = static_cast<std::uint32_t>(features.size() + 5);
    features.push_back(random_feature<std::int32_t>(kind, bags, table_rows[table], begins[table],
                                                    table == 3, seed));
    ranges.push_back({begins[table], begins[table + 1]});
  };
  add(Kind::one_hot, 5, 10'000);
  add(Kind::sum, 0, 3000);
  add(Kind::weighted, 1, 9000);
  add(Kind::mean, 3, 3000);
  add(Kind::one_hot, 1, 3000);
  add(Kind::one_hot, 4, 3000);
  add(Kind::sum, 2, 100);
  const auto gradient = random_elements<float>(10'000 * 16, 11);

  const auto result = [&]<int Width, Optimizer O>(int threads, const O& optimizer,
                                                  std::span<const op::RowRange> named) {
    std::vector<op::GradientGroup<std::int32_t>> groups;
    for (std::size_t f = 0; f < features.size(); ++f)
      groups.push_back(
          {features[f].view(), gradient.data(), 16, named.empty() ? op::RowRange{} : named[f]});
    Arena<float, O> arena(arena_rows, 16, 0, 16);
    op::run<op::Update<float, std::int32_t, Width, O>>(
        Host({.threads = threads}),
        {.state = arena.state(), .step = optimizer.at(0.1f, 1), .groups = groups});
    return arena;
  };
  std::vector<op::RowRange> some = ranges, wide = ranges;
  some[3] = {};              // one may lie anywhere
  wide[1] = {0, begins[2]};  // overlaps the second table
  wide[2] = {begins[1], begins[1] + table_rows[1] + 1};
  const auto check = [&]<Optimizer O>(const O& optimizer) {
    const auto expected = result.template operator()<op::dynamic_width>(1, optimizer, {});
    for (const int threads : {1, 2, 7})
      for (const std::vector<op::RowRange>& named :
           {std::vector<op::RowRange>{}, ranges, some, wide}) {
        CHECK(result.template operator()<16>(threads, optimizer, named) == expected);
        CHECK(result.template operator()<op::dynamic_width>(threads, optimizer, named) == expected);
      }
  };
  check(Sgd{});
  check(RowWiseAdagrad{});
}

TEST_CASE("merged gradients: ascending distinct rows, sums of the batch") {
  for (const std::int64_t table_rows : {3, 500, 100'000}) {
    CAPTURE(table_rows);
    const Batch<std::int64_t> batch(2000, table_rows);
    const int width = 8;
    const auto gradient = random_elements<float>(static_cast<std::size_t>(batch.bags * width), 11);
    const auto groups = batch.gradient_groups(gradient.data(), width);
    const auto expected = reference_gradients(groups, width);
    std::vector<std::int64_t> rows(expected.size());
    std::vector<float> sums(expected.size() * width), first;
    for (const int threads : {1, 2, 5}) {
      op::MergedGradients merged{.rows = rows.data(), .gradients = sums.data()};
      op::run<op::Merge<std::int64_t, 8>>(
          Host({.threads = threads}),
          {.arena_rows = batch.rows, .width = width, .groups = groups, .merged = &merged});
      REQUIRE(merged.count == std::ssize(expected));
      std::size_t k = 0;
      double worst = 0;
      for (const auto& [row, sum] : expected) {
        REQUIRE(rows[k] == row);
        for (std::size_t c = 0; c < 8; ++c)
          worst = std::max(worst, std::abs(sum[c] - sums[k * 8 + c]));
        ++k;
      }
      CHECK(worst < 2e-2);  // rows of thousands of terms of size 1
      if (first.empty()) first = sums;
      CHECK(first == sums);
    }
  }
}

TEST_CASE(
    "popular rows that are neighbours: no thread is left with most of the batch, and sums keep "
    "their order") {
  struct Shape {
    /// nine of ten ids are one of `popular` rows from `first` on
    std::int64_t rows, first, popular;
  };
  const std::int64_t many = std::int64_t{1} << 35;
  for (const Shape& shape :
       {Shape{5000, 0, 5}, Shape{5000, 4990, 10}, Shape{3'000'000, 1'234'567, 2},
        Shape{many, 77, 3000}, Shape{many, many / 3, 40}, Shape{many, many - 1, 1}})
    for (const Kind kind : {Kind::one_hot, Kind::weighted}) {
      const std::int64_t rows = shape.rows, first = shape.first, popular = shape.popular;
      CAPTURE(rows);
      CAPTURE(popular);
      Feature<std::int64_t> feature = random_feature<std::int64_t>(kind, 20'000, rows, 0, false, 3);
      std::mt19937_64 random(4);
      for (std::int64_t& id : feature.ids)
        id =
            random() % 10 == 0
                ? static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rows))
                : first + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(popular));
      // exact products, fused or not
      for (float& weight : feature.weights)
        weight = std::ldexp(1.0f, static_cast<int>(random() % 7) - 3);
      constexpr int width = 4;
      const auto gradient =
          random_elements<float>(static_cast<std::size_t>(feature.bags * width), 11);
      std::map<std::int64_t, std::array<float, width>> expected;
      const op::Bags<std::int64_t> bags = feature.view();
      for (std::int64_t bag = 0; bag < bags.bags; ++bag)
        for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i)
          for (std::size_t c = 0; c < width; ++c) {
            float& sum = expected[bags.ids[i]][c];
            sum += bags.coefficient(bag, i) * gradient[static_cast<std::size_t>(bag * width) + c];
          }

      const std::vector<op::GradientGroup<std::int64_t>> groups = {{bags, gradient.data(), width}};
      for (const int threads : {1, 2, 3, 8}) {
        CAPTURE(threads);
        const Host host({.threads = threads});
        const detail::RowPartition<std::int64_t> partition(host, groups, rows, 4096);
        std::int64_t entries = 0, before = 0;
        bool ascending = true, inside = true, light = true;
        for (const detail::RowBucket& bucket : partition.buckets()) {
          const std::int64_t bucket_rows = bucket.row_end - bucket.row_begin;
          ascending = ascending && bucket.row_begin >= before && bucket_rows > 0;
          before = bucket.row_end;
          entries += bucket.entries();
          light = light &&
                  (bucket_rows == 1 || 2 * threads * bucket.entries() <= 3 * partition.entries());
          for (std::int64_t i = bucket.begin; i < bucket.end; ++i)
            inside =
                inside && partition.entry(i)->row - static_cast<std::uint32_t>(bucket.row_begin) <
                              bucket_rows;
        }
        CHECK(ascending);
        CHECK(inside);
        CHECK(light);
        CHECK(entries == bags.entries());

        std::vector<std::int64_t> merged_rows(expected.size());
        std::vector<float> sums(expected.size() * width);
        op::MergedGradients merged{.rows = merged_rows.data(), .gradients = sums.data()};
        op::run<op::Merge<std::int64_t, width>>(
            host, {.arena_rows = rows, .width = width, .groups = groups, .merged = &merged});
        REQUIRE(merged.count == std::ssize(expected));
        bool same = true;
        std::size_t k = 0;
        for (const auto& [row, sum] : expected) {
          same = same && merged_rows[k] == row &&
                 std::equal(sum.begin(), sum.end(), sums.data() + k * width);
          ++k;
        }
        CHECK(same);

        if (rows > 10'000) continue;
        std::vector<float> weights(static_cast<std::size_t>(rows * width));
        const op::ArenaSegment segment{.rows = rows};
        const op::ArenaState<float, Sgd> state{
            .arena = weights.data(), .rows = rows, .width = width, .segments = {&segment, 1}};
        op::run<op::Update<float, std::int64_t, width, Sgd>>(
            host, {.state = state, .step = Sgd{}.at(1.0f, 1), .groups = groups});
        for (const auto& [row, sum] : expected)
          for (std::size_t c = 0; c < width; ++c)
            same = same && weights[static_cast<std::size_t>(row * width) + c] == -sum[c];
        CHECK(same);
      }
    }
}

TEST_CASE("a row that is too heavy only together with its neighbour is split from it") {
  std::vector<std::int32_t> ids(40'000);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = i < 2000     ? 0
             : i < 31'000 ? 1
                          : static_cast<std::int32_t>(
                                100'000 + i);  // of two threads, 30,000 are too many for one
  const std::vector<float> gradient(ids.size(), 1.0f);
  const std::vector<op::GradientGroup<std::int32_t>> groups = {
      {{.ids = ids.data(), .bags = std::ssize(ids)}, gradient.data(), 1}};
  const Host host({.threads = 2});
  const detail::RowPartition<std::int32_t> partition(host, groups, 1'000'000, 4096);
  for (const detail::RowBucket& bucket : partition.buckets()) CHECK(bucket.entries() <= 30'000);
  std::vector<std::int64_t> rows(ids.size());
  std::vector<float> sums(ids.size());
  op::MergedGradients merged{.rows = rows.data(), .gradients = sums.data()};
  op::run<op::Merge<std::int32_t, 1>>(
      host, {.arena_rows = 1'000'000, .groups = groups, .merged = &merged});
  CHECK(merged.count == 9002);
  CHECK(sums[0] == 2000);
  CHECK(sums[1] == 29'000);
}

TEST_CASE("a row's gradient is summed in the order of the batch, each step one multiply-add") {
  // 2^24 + 1 is 2^24 in float, so that every other order of these terms has another sum.
  const std::vector<float> terms = {1.0f, 0x1p24f, 1.0f, 1.0f, -0x1p24f, 3.0f, 0x1p-10f};
  std::vector<std::int32_t> ids(terms.size(), 0);
  std::vector<op::GradientGroup<std::int32_t>> groups;
  for (std::size_t i = 0; i < terms.size(); ++i)
    groups.push_back({.bags = {.ids = ids.data(), .bags = 1, .row_bias = 1},
                      .gradient = &terms[i],
                      .gradient_stride = 1});
  float expected = 0;
  for (const float x : terms) expected += x;
  std::int64_t row = 0;
  float sum = 0;
  op::MergedGradients merged{.rows = &row, .gradients = &sum};
  op::run<op::Merge<std::int32_t, 1>>(Host({.threads = 2}),
                                      {.arena_rows = 4, .groups = groups, .merged = &merged});
  CHECK(merged.count == 1);
  CHECK(row == 1);
  CHECK(sum == expected);
}

TEST_CASE("a gradient of -0 stays one, however a row is merged") {
  // -0 - 0.1 * -0 is +0, -0 - 0.1 * +0 is -0: the weight shows which zero the gradient was.
  const auto check = [&]<int Width>(std::integral_constant<int, Width>, int width,
                                    std::int64_t copies, bool weighted) {
    CAPTURE(width);
    CAPTURE(copies);
    CAPTURE(weighted);
    const std::int64_t rows = 200;
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < rows * copies; ++i)
      ids.push_back(static_cast<std::int32_t>(i % rows));
    const std::vector<float> ones(ids.size(), 1.0f);
    const auto size = static_cast<std::size_t>(width);
    Array<float> gradient(ids.size() * size), minus(static_cast<std::size_t>(rows) * size);
    std::fill_n(gradient.data(), gradient.size(), -0.0f);
    std::fill_n(minus.data(), minus.size(), -0.0f);
    const op::GradientGroup<std::int32_t> groups[] = {
        {.bags = {.ids = ids.data(),
                  .weights = weighted ? ones.data() : nullptr,
                  .bags = std::ssize(ids)},
         .gradient = gradient.data(),
         .gradient_stride = width}};
    const op::ArenaSegment segment{.rows = rows};
    const auto state = [&](Array<float>& weights) {
      return op::ArenaState<float, Sgd>{
          .arena = weights.data(), .rows = rows, .width = width, .segments = {&segment, 1}};
    };
    const auto all_plus = [](const Array<float>& values) {
      return std::none_of(values.data(), values.data() + values.size(),
                          [](float x) { return x != 0 || std::signbit(x); });
    };
    Array<float> updated = minus, applied = minus, sums = minus;
    op::run<op::Update<float, std::int32_t, Width, Sgd>>(
        Host(), {.state = state(updated), .step = Sgd{}.at(0.1f, 1), .groups = groups});
    CHECK(all_plus(updated));
    std::vector<std::int64_t> merged_rows(static_cast<std::size_t>(rows));
    op::MergedGradients merged{.rows = merged_rows.data(), .gradients = sums.data()};
    op::run<op::Merge<std::int32_t, Width>>(
        Host(), {.arena_rows = rows, .width = width, .groups = groups, .merged = &merged});
    REQUIRE(merged.count == rows);
    op::run<op::Apply<float, Width, Sgd>>(
        Host(), {.state = state(applied), .step = Sgd{}.at(0.1f, 1), .merged = merged});
    CHECK(all_plus(applied));
  };
  for (const std::int64_t copies : {1, 2})
    for (const bool weighted : {false, true}) {
      check(std::integral_constant<int, 1>{}, 1, copies, weighted);
      check(std::integral_constant<int, 16>{}, 16, copies, weighted);
      check(std::integral_constant<int, 64>{}, 64, copies, weighted);
      check(std::integral_constant<int, op::dynamic_width>{}, 37, copies, weighted);
    }
}

TEST_CASE(
    "wide rows whose bags are long: the mean square is the row's, whether the row shares its bag's "
    "gradient or merges some") {
  const auto check = [&]<int Width>(std::integral_constant<int, Width>, int width) {
    CAPTURE(width);
    const std::int64_t rows = 3000, sizes[] = {70, 1, 130};  // bags of three groups, ten ids each
    std::mt19937 random(5);
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> offsets{0};
    for (std::int64_t bag = 0; bag < 70 + 1 + 130; ++bag) {
      for (int i = 0; i < 10; ++i)
        ids.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(rows)));
      offsets.push_back(std::ssize(ids));
    }
    const auto gradient =
        random_elements<float>(static_cast<std::size_t>((70 + 1 + 130) * width), 8);
    std::vector<op::GradientGroup<std::int32_t>> groups;
    std::int64_t first = 0;
    for (const std::int64_t bags : sizes) {
      groups.push_back(
          {.bags = {.ids = ids.data(), .offsets = offsets.data() + first, .bags = bags},
           .gradient = gradient.data() + first * width,
           .gradient_stride = width});
      first += bags;
    }
    Arena<float, RowWiseAdagrad> expected(rows, width, 0, width);
    std::vector<std::int64_t> merged_rows(static_cast<std::size_t>(rows));
    Array<float> sums(static_cast<std::size_t>(rows * width));
    op::MergedGradients merged{.rows = merged_rows.data(), .gradients = sums.data()};
    op::run<op::Merge<std::int32_t, Width>>(
        Host(), {.arena_rows = rows, .width = width, .groups = groups, .merged = &merged});
    std::vector<float> means;
    for (std::int64_t k = 0; k < merged.count; ++k)
      means.push_back(op::mean_square(merged.gradients + k * width, width));
    const auto step = RowWiseAdagrad{}.at(0.1f, 1);
    op::run<op::Apply<float, Width, RowWiseAdagrad>>(
        Host(),
        {.state = expected.state(), .step = step, .merged = merged, .mean_square = means.data()});
    for (const int threads : {1, 3}) {
      Arena<float, RowWiseAdagrad> arena(rows, width, 0, width);
      op::run<op::Update<float, std::int32_t, Width, RowWiseAdagrad>>(
          Host({.threads = threads}), {.state = arena.state(), .step = step, .groups = groups});
      CHECK(arena == expected);
    }
  };
  check(std::integral_constant<int, 64>{}, 64);
  check(std::integral_constant<int, op::dynamic_width>{}, 52);
}

TEST_CASE("merge: sums go on in their place, in as many lists as there were batches") {
  const auto check = [&]<int Width>(std::integral_constant<int, Width>, std::int64_t width,
                                    std::int64_t rows, const std::vector<std::int64_t>& sizes,
                                    bool weighted) {
    CAPTURE(width);
    CAPTURE(rows);
    CAPTURE(weighted);
    for (const int threads : {1, 3}) {
      const Host host({.threads = threads});
      std::mt19937_64 random(static_cast<std::uint64_t>(rows));
      std::map<std::int64_t, std::vector<float>> expected;  // sums in the order of entries
      struct List final : op::MergedRoom {
        std::int64_t width = 0;
        std::vector<std::int64_t> rows;
        std::vector<float> gradients;
        op::MergedGradients make(std::int64_t count) const override {
          auto& list = const_cast<List&>(*this);
          list.rows.assign(static_cast<std::size_t>(count), -1);
          list.gradients.resize(static_cast<std::size_t>(count * width));
          return {count, list.rows.data(), list.gradients.data()};
        }
      };
      std::vector<List> lists(sizes.size());
      std::vector<op::MergedGradients> sums;
      for (std::size_t batch = 0; batch < sizes.size(); ++batch) {
        // the later the batch, the more rows of its own
        const auto first = static_cast<std::uint64_t>(rows) * batch / (2 * sizes.size());
        std::vector<std::int64_t> ids;
        std::vector<float> weights;
        for (std::int64_t i = 0; i < sizes[batch]; ++i) {
          ids.push_back(
              static_cast<std::int64_t>(first + random() % (static_cast<std::uint64_t>(rows) / 2)));
          weights.push_back(std::ldexp(1.0f, static_cast<int>(random() % 5) - 2));
        }
        const auto gradient = random_elements<float>(static_cast<std::size_t>(sizes[batch] * width),
                                                     static_cast<unsigned>(batch));
        for (std::size_t i = 0; i < ids.size(); ++i) {
          const auto [at, is_new] = expected.try_emplace(ids[i]);
          at->second.resize(static_cast<std::size_t>(width), -0.0f);
          for (std::size_t c = 0; c < static_cast<std::size_t>(width); ++c)
            at->second[c] +=
                (weighted ? weights[i] : 1.0f) * gradient[i * static_cast<std::size_t>(width) + c];
        }
        op::Bags<std::int64_t> bags;
        bags.ids = ids.data();
        bags.weights = weighted ? weights.data() : nullptr;
        bags.bags = bags.entry_bound = std::ssize(ids);
        const std::vector<op::GradientGroup<std::int64_t>> groups{{bags, gradient.data(), width}};
        lists[batch].width = width;
        op::MergedGradients merged;
        op::run<op::Merge<std::int64_t, Width>>(
            host, {rows, static_cast<int>(width), groups, &merged, false, &lists[batch], sums});
        sums.push_back(merged);
      }
      std::size_t found = 0;
      bool ascending = true, same = true;
      for (const op::MergedGradients& list : sums)
        for (std::int64_t k = 0; k < list.count; ++k, ++found) {
          ascending = ascending && (k == 0 || list.rows[k - 1] < list.rows[k]);
          const auto of_row = expected.find(list.rows[k]);
          REQUIRE(of_row != expected.end());
          same = same && std::memcmp(of_row->second.data(), list.gradients + k * width,
                                     static_cast<std::size_t>(width) * sizeof(float)) == 0;
        }
      CHECK(found == expected.size());
      CHECK(ascending);
      CHECK(same);
    }
  };
  // small batches on large lists and large ones on small lists: both ways to find sums by bisection
  const std::vector<std::int64_t> mixed{20'000, 5, 4000, 0, 1, 9000, 30, 20'000};
  for (const bool weighted : {false, true}) {
    check(std::integral_constant<int, 4>{}, 4, 30'000, mixed, weighted);
    check(std::integral_constant<int, op::dynamic_width>{}, 37, 3000, {4, 2000, 2000, 7, 100, 3000},
          weighted);
  }
  check(std::integral_constant<int, 4>{}, 4, 5000, std::vector<std::int64_t>(100, 70), false);
}

TEST_CASE("a batch without ids changes nothing") {
  Arena<float, Adam> arena(10, 16, 0, 16);
  const auto before = arena;
  const std::int64_t offsets[] = {0, 0, 0};
  const std::int32_t id = 0;
  const float gradient[32] = {};
  const op::GradientGroup<std::int32_t> groups[] = {
      {},
      {.bags = {.ids = &id, .offsets = offsets, .bags = 2},
       .gradient = gradient,
       .gradient_stride = 16}};
  op::run<op::Update<float, std::int32_t, 16, Adam>>(
      Host(), {.state = arena.state(), .step = Adam{}.at(1, 1), .groups = groups});
  op::run<op::Update<float, std::int32_t, 16, Adam>>(
      Host(), {.state = arena.state(), .step = Adam{}.at(1, 1), .groups = {}});
  op::MergedGradients merged{.count = 5};
  op::run<op::Merge<std::int32_t, 16>>(Host(),
                                       {.arena_rows = 10, .groups = groups, .merged = &merged});
  CHECK(merged.count == 0);
  CHECK(arena == before);
}
