// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/update.cuh>
#include <tessera/cuda/weight_gradients.cuh>
#include <tessera/optimizer/optimizers.hpp>

#include <doctest/doctest.h>
#include <gpu/graph.hpp>
#include <gpu/update_data.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace {

/// `G`: of the gradients, whose values it holds.
template <class T, class Id, int Width, class G = float, class O>
void check_update(const std::vector<HostGroup<Id>>& groups, std::int64_t rows, const O& optimizer,
                  bool exact) {
  Random random(11);
  const HostArena<T, O> before(random, rows, Width);
  HostArena<T, O> expected = before;
  const typename O::Step step = optimizer.at(0.05f, 3);
  update_plainly(expected, Width, step, merge_plainly(groups, Width));

  in_every_order([&] {
    const Cuda backend;
    const ArenaOnDevice<T, O> arena(backend, before, rows, Width);
    const GroupsOnDevice<Id, G> sources(backend, groups);
    op::run<op::Update<T, Id, Width, O, G>>(backend, {arena.view(), step, sources.views()});
    const HostArena<T, O> after = arena.read();
    if (exact) {
      CHECK((after.weights == expected.weights));
      CHECK((after.element_state == expected.element_state));
      CHECK((after.row_state == expected.row_state));
    } else {
      CHECK(nearly_equal(after.weights, expected.weights));
      for (std::size_t s = 0; s < after.element_state.size(); ++s)
        CHECK(nearly_equal(after.element_state[s], expected.element_state[s]));
      for (std::size_t s = 0; s < after.row_state.size(); ++s)
        CHECK(nearly_equal(after.row_state[s], expected.row_state[s]));
    }
  });
}

template <class T, class Id, int Width, class G = float>
void check_kinds(int padding) {
  INFO("width ", Width, ", bytes per element ", sizeof(T), ", padding ", padding);
  constexpr std::int64_t rows = 60;
  std::vector<HostGroup<Id>> groups = rounded<G>(groups_of_every_kind<Id>(Width, rows, padding));
  check_update<T, Id, Width, G>(groups, rows, Keep{}, true);
  for (HostGroup<Id>& group : groups) group.bags.weights.clear();  // and without weights at all
  check_update<T, Id, Width, G>(groups, rows, Keep{}, true);
}

/// Bags of a table that has the arena's rows [begin, begin + rows); a tenth of the ids were taken
/// out.
template <class Id>
HostGroup<Id> group_of_table(Random& random, std::int64_t begin, std::int64_t rows,
                             std::int64_t bags, int longest, Coefficients c) {
  HostGroup<Id> group =
      with_gradients(random, random_bags<Id>(random, bags, longest, rows, begin, c, true), 2, 0);
  for (Id& id : group.bags.ids)
    if (random_below(random, 10) == 0) id = -1;
  group.rows = {begin, begin + rows};
  return group;
}

/// Tables of 20,000 and 11,264 rows, one of 700 whose groups are not neighbours, one of ten with more
/// groups than one launch takes.
template <class Id>
std::vector<HostGroup<Id>> groups_of_tables(Coefficients c) {
  constexpr std::int64_t most = 11'264;
  Random random(21);
  std::vector<HostGroup<Id>> groups;
  groups.push_back(group_of_table<Id>(random, 300, 700, 14'000, 1, c));
  groups.push_back(group_of_table<Id>(random, 1000, 20'000, 900, 3, Coefficients::none));
  groups.push_back(group_of_table<Id>(random, 300, 700, 1'000, 19, Coefficients::none));
  groups.push_back(group_of_table<Id>(random, 1000, 20'000, 500, 1, c));
  groups.push_back(group_of_table<Id>(random, 21'000, most, 15'000, 1, Coefficients::none));
  for (int g = 0; g < 40; ++g)
    groups.push_back(group_of_table<Id>(random, 21'000 + most, 10, 30, 1 + g % 3, c));
  groups.push_back(group_of_table<Id>(random, 300, 700, 70, 40, c));
  return groups;
}
constexpr std::int64_t rows_of_tables = 21'000 + 11'264 + 10;

/// One-hot bags in which row r occurs lengths[r] times, shuffled.
std::vector<HostGroup<std::int32_t>> groups_of_lengths(const std::vector<int>& lengths, int width) {
  Random random(8);
  HostBags<std::int32_t> bags;
  for (std::size_t row = 0; row < lengths.size(); ++row)
    for (int i = 0; i < lengths[row]; ++i) bags.ids.push_back(static_cast<std::int32_t>(row));
  std::shuffle(bags.ids.begin(), bags.ids.end(), random);
  bags.bags = std::ssize(bags.ids);
  return {with_gradients(random, bags, width, 0)};
}

template <class T, class O>
void check_optimizer(const O& optimizer) {
  check_update<T, std::int32_t, 24>(groups_of_every_kind<std::int32_t>(24, 60, 0), 60, optimizer,
                                    false);
}

}  // namespace

TEST_CASE("update: every width and kind of bags; gradients summed to the bit") {
  check_kinds<float, std::int64_t, 1>(0);
  check_kinds<float, std::int32_t, 12>(1);
  check_kinds<float, std::int32_t, 128>(0);
  check_kinds<float, std::int64_t, 130>(3);
  check_kinds<float, std::int32_t, 1030>(1);  // wider than a warp's registers
}

TEST_CASE_TEMPLATE("update: 16-bit tables", T, BFloat16, Half) {
  check_kinds<T, std::int64_t, 3>(2);
  check_kinds<T, std::int32_t, 64>(0);
}

TEST_CASE("update: gradients of 16 bits are the floats that they hold") {
  check_kinds<float, std::int32_t, 64, BFloat16>(0);
  check_kinds<float, std::int32_t, 24, BFloat16>(4);  // aligned to 8 bytes, not to 16
  check_kinds<BFloat16, std::int64_t, 36, Half>(2);
  check_kinds<float, std::int64_t, 1045, BFloat16>(3);  // panels of 128, 16 and 1 columns
}

TEST_CASE("update: runs of equal rows around every boundary of windows and of the tree") {
  std::vector<std::vector<int>> cases;
  for (const int first : {1, 31, 32, 33, 64, 65, 1023, 1024, 1025, 2100})
    for (const int second : {1, 32, 40, 1056}) cases.push_back({first, second, 1, 33, 0, 2});
  cases.push_back({});
  cases.push_back({1});
  cases.push_back(std::vector<int>(100, 1));
  cases.push_back(std::vector<int>(40, 33));
  std::vector<int> growing(70);
  std::iota(growing.begin(), growing.end(), 1);
  cases.push_back(growing);
  for (const std::vector<int>& lengths : cases) {
    INFO("case ", &lengths - cases.data());
    check_update<float, std::int32_t, 4>(groups_of_lengths(lengths, 4), 200, Keep{}, true);
    // too wide for gradients in shared memory
    check_update<float, std::int32_t, 36>(groups_of_lengths(lengths, 36), 200, Keep{}, true);
  }
}

TEST_CASE("update: a row with more entries than two levels of the tree hold") {
  check_update<float, std::int32_t, 2>(groups_of_lengths({5, 33'000, 7, 40}, 2), 10, Keep{}, true);
}

TEST_CASE("update: popular rows of small tables beside rows of large ones") {
  check_update<float, std::int32_t, 2>(groups_of_tables<std::int32_t>(Coefficients::none),
                                       rows_of_tables, Keep{}, true);
  check_update<float, std::int64_t, 2>(groups_of_tables<std::int64_t>(Coefficients::weights),
                                       rows_of_tables, Keep{}, true);
}

TEST_CASE("update: groups that name other rows, but share some") {
  Random random(5);
  std::vector<HostGroup<std::int32_t>> groups{
      group_of_table<std::int32_t>(random, 10, 40, 300, 1, Coefficients::none),
      group_of_table<std::int32_t>(random, 30, 50, 300, 3, Coefficients::none),
      group_of_table<std::int32_t>(random, 80, 7, 300, 1, Coefficients::none)};
  check_update<float, std::int32_t, 2>(groups, 90, Keep{}, true);
  groups[0].rows = {0, 90};
  check_update<float, std::int32_t, 2>(groups, 90, Keep{}, true);
  groups[0].rows = {};  // anywhere
  check_update<float, std::int32_t, 2>(groups, 90, Keep{}, true);
}

TEST_CASE("update: gradients of -0 add up to -0") {
  // -0 - 0.1 * -0 is +0, -0 - 0.1 * +0 is -0: the weight shows which zero the gradient was.
  constexpr std::int64_t rows = 6, width = 8;
  std::vector<HostGroup<std::int32_t>> groups = groups_of_lengths({1, 2, 31, 33, 1100, 5}, width);
  std::fill(groups[0].gradient.begin(), groups[0].gradient.end(), -0.0f);
  Random random(3);
  HostArena<float, Sgd> minus(random, rows, width);
  std::fill(minus.weights.begin(), minus.weights.end(), -0.0f);
  in_every_order([&] {
    const Cuda backend;
    const ArenaOnDevice<float, Sgd> arena(backend, minus, rows, width);
    const GroupsOnDevice<std::int32_t> sources(backend, groups);
    op::run<op::Update<float, std::int32_t, width, Sgd>>(
        backend, {arena.view(), Sgd{}.at(0.1f, 1), sources.views()});
    const std::vector<float> after = arena.read().weights;
    CHECK(std::none_of(after.begin(), after.end(),
                       [](float x) { return x != 0 || std::signbit(x); }));
  });
}

TEST_CASE("update: optimizers of the library, 32 and 16 bits") {
  check_optimizer<float>(Sgd{});
  check_optimizer<float>(Adagrad{});
  check_optimizer<float>(RowWiseAdagrad{});
  check_optimizer<float>(Adam{});
  check_optimizer<BFloat16>(Adam{});
  check_optimizer<Half>(RowWiseAdagrad{});
  check_optimizer<float>(Ftrl{.l1 = 0.1f});
  check_optimizer<float>(PartialRowWiseAdam{});
  check_optimizer<float>(CountedAdam{});
  check_optimizer<float>(Lamb{.weight_decay = 0.1f});
  check_optimizer<float>(AdamW{});
  check_optimizer<float>(Momentum{.nesterov = true});
  check_optimizer<float>(Lion{.weight_decay = 0.1f});
  check_optimizer<float>(RowWiseAdagradL2{.weight_decay = 0.1f});
  check_optimizer<float>(RowWiseAdagradDecoupled{.weight_decay = 0.1f});
  check_optimizer<float>(CountedRowWiseAdagrad{.half_life = 3, .weight_decay = 0.1f});
  check_optimizer<float>(CountedRowWiseAdagradL2{{.half_life = 3, .weight_decay = 0.1f}});
}

TEST_CASE("update: too many rows for one arena is an error, no rows is not") {
  const Cuda backend;
  op::ArenaState<float, Sgd> state;
  state.rows = std::int64_t{1} << 32;
  state.width = 4;
  const std::vector<op::GradientGroup<std::int32_t>> groups;
  CHECK_THROWS_AS((op::run<op::Update<float, std::int32_t, 4, Sgd>>(backend, {state, {}, groups})),
                  InvalidArgument);
  state.rows = 5;
  op::run<op::Update<float, std::int32_t, 4, Sgd>>(backend, {state, {}, groups});
}

TEST_CASE("update: smaller batches leave a captured one its memory") {
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  Random random(9);
  constexpr std::int64_t rows = 10'000;
  const HostArena<float, Sgd> before(random, rows, 2);
  const ArenaOnDevice<float, Sgd> arena(backend, before, rows, 2), other(backend, before, rows, 2);
  const std::vector<HostGroup<std::int32_t>> largest{
      group_of_table<std::int32_t>(random, 0, rows, 15'000, 1, Coefficients::none)};
  const GroupsOnDevice<std::int32_t> captured(backend, largest);
  const auto step = [&](const auto& state, const auto& groups) {
    op::run<op::Update<float, std::int32_t, 2, Sgd>>(
        backend, {state.view(), Sgd{}.at(0.1f, 1), groups.views()});
  };
  step(other, captured);
  const Graph graph(stream, [&] { step(arena, captured); });
  for (const std::int64_t bags : {14'000, 3'000}) {
    const std::vector<HostGroup<std::int32_t>> fewer{
        group_of_table<std::int32_t>(random, 0, rows, bags, 1, Coefficients::none)};
    const GroupsOnDevice<std::int32_t> groups(backend, fewer);
    const ArenaOnDevice<float, Sgd> third(backend, before, rows, 2);
    step(third, groups);
    backend.synchronize();
  }
  graph.launch();
  CHECK((arena.read().weights == other.read().weights));
}

TEST_CASE("update: a backend that updated before; ids that were all taken out change nothing") {
  Random random(6);
  std::vector<HostGroup<std::int32_t>> groups{
      group_of_table<std::int32_t>(random, 0, 20, 300, 1, Coefficients::none),
      group_of_table<std::int32_t>(random, 20, 10, 300, 3, Coefficients::none)};
  std::vector<HostGroup<std::int32_t>> none = groups;
  for (HostGroup<std::int32_t>& group : none)
    std::fill(group.bags.ids.begin(), group.bags.ids.end(), -1);
  const HostArena<float, Sgd> before(random, 30, 2);
  in_every_order([&] {
    const Cuda backend;
    const ArenaOnDevice<float, Sgd> arena(backend, before, 30, 2);
    const GroupsOnDevice<std::int32_t> sources(backend, groups), empty(backend, none);
    op::run<op::Update<float, std::int32_t, 2, Sgd>>(
        backend, {arena.view(), Sgd{}.at(0.1f, 1), sources.views()});
    const std::vector<float> after = arena.read().weights;
    CHECK((after != before.weights));
    op::run<op::Update<float, std::int32_t, 2, Sgd>>(
        backend, {arena.view(), Sgd{}.at(0.1f, 1), empty.views()});
    CHECK((arena.read().weights == after));
  });
}

TEST_CASE("update: entries behind a group's bound have no gradient") {
  constexpr std::int64_t bound = 200;
  Random random(7);
  const std::vector<HostGroup<std::int32_t>> whole{
      group_of_table<std::int32_t>(random, 0, 20, 300, 3, Coefficients::none)};
  std::vector<HostGroup<std::int32_t>> cut = whole;
  for (std::int64_t& offset : cut[0].bags.offsets)
    offset = std::min(offset, bound + cut[0].bags.offsets.front());
  REQUIRE(cut[0].bags.offsets.back() < whole[0].bags.offsets.back());
  const HostArena<float, Keep> before(random, 20, 2);
  HostArena<float, Keep> expected = before;
  update_plainly(expected, 2, Keep::Step{}, merge_plainly(cut, 2));
  in_every_order([&] {
    const Cuda backend;
    const ArenaOnDevice<float, Keep> arena(backend, before, 20, 2);
    const GroupsOnDevice<std::int32_t> sources(backend, whole);
    std::vector<op::GradientGroup<std::int32_t>> groups = sources.views();
    groups[0].bags.entry_bound = bound;
    op::run<op::Update<float, std::int32_t, 2, Keep>>(backend, {arena.view(), {}, groups});
    CHECK((arena.read().weights == expected.weights));
  });
}

namespace {

/// Room for merged gradients of at most so many rows.
struct MergedOnGpu {
  OnGpu<std::int64_t> rows;
  OnGpu<float> gradients;
  MergedOnGpu(const Cuda& backend, std::int64_t count, std::int64_t width)
      : rows(backend, std::vector<std::int64_t>(static_cast<std::size_t>(count))),
        gradients(backend, std::vector<float>(static_cast<std::size_t>(count * width))) {}
};

/// `batches` one after another, each onto the sums so far, of which more and more lists come. Whole
/// numbers: their sums are the same in any order.
template <int Width>
void check_merge_onto(int batches, std::int64_t bags, std::int64_t rows) {
  Random random(8);
  std::vector<HostGroup<std::int32_t>> groups;
  for (int batch = 0; batch < batches; ++batch) {
    groups.push_back(with_gradients(
        random, random_bags<std::int32_t>(random, bags, 12, rows, 0, Coefficients::none, true),
        Width, 0));
    for (float& g : groups.back().gradient) g = std::rint(100 * g);
  }
  const auto expected = merge_plainly(groups, Width);
  in_every_order([&] {
    const Cuda backend;
    const MergedOnGpu on_gpu(backend, rows, Width);
    std::vector<op::MergedGradients> sums;
    std::int64_t count = 0;
    for (const HostGroup<std::int32_t>& group : groups) {
      const GroupsOnDevice<std::int32_t> sources(backend, {group});
      struct Room final : op::MergedRoom {
        op::MergedGradients at;
        op::MergedGradients make(std::int64_t n) const override {
          return {n, at.rows, at.gradients};
        }
      } room;
      room.at = {0, on_gpu.rows.data() + count, on_gpu.gradients.data() + count * Width};
      op::MergedGradients merged;
      op::run<op::Merge<std::int32_t, Width>>(
          backend, {rows, Width, sources.views(), &merged, false, &room, sums});
      count += merged.count;
      sums.push_back(merged);
    }
    REQUIRE(count == std::ssize(expected));
    const std::vector<std::int64_t> got_rows = on_gpu.rows.read();
    const std::vector<float> got = on_gpu.gradients.read();
    std::int64_t at = 0;
    for (const op::MergedGradients& list : sums)
      for (std::int64_t i = 0; i < list.count; ++i, ++at) {
        const auto k = static_cast<std::size_t>(at);
        CHECK((i == 0 || got_rows[k - 1] < got_rows[k]));
        const auto found = expected.find(got_rows[k]);
        REQUIRE(found != expected.end());
        CHECK(std::equal(found->second.begin(), found->second.end(), got.begin() + at * Width));
      }
  });
}

template <int Width>
void check_merge(const std::vector<HostGroup<std::int32_t>>& groups, std::int64_t rows) {
  const auto expected = merge_plainly(groups, Width);
  in_every_order([&] {
    const Cuda backend;
    const MergedOnGpu on_gpu(backend, rows, Width);
    const GroupsOnDevice<std::int32_t> sources(backend, groups);
    op::MergedGradients merged{-1, on_gpu.rows.data(), on_gpu.gradients.data()};
    op::run<op::Merge<std::int32_t, Width>>(backend, {rows, Width, sources.views(), &merged});
    REQUIRE(merged.count == std::ssize(expected));
    std::vector<std::int64_t> expected_rows;
    std::vector<float> expected_gradients;
    for (const auto& [row, gradient] : expected) {
      expected_rows.push_back(row);
      expected_gradients.insert(expected_gradients.end(), gradient.begin(), gradient.end());
    }
    std::vector<std::int64_t> got_rows = on_gpu.rows.read();
    std::vector<float> got = on_gpu.gradients.read();
    got_rows.resize(expected_rows.size());
    got.resize(expected_gradients.size());
    CHECK((got_rows == expected_rows));
    CHECK((got == expected_gradients));
  });
}

}  // namespace

TEST_CASE("merge: the same sums, handed out in the order of rows") {
  std::vector<HostGroup<std::int32_t>> groups = groups_of_every_kind<std::int32_t>(12, 60, 0);
  check_merge<12>(groups, 60);
  for (HostGroup<std::int32_t>& group : groups) group.bags.weights.clear();
  check_merge<12>(groups, 60);
  for (HostGroup<std::int32_t>& group : groups)
    group.rows = {group.bags.row_bias, group.bags.row_bias + 30};
  check_merge<12>(groups, 60);
  check_merge<2>(groups_of_tables<std::int32_t>(Coefficients::none), rows_of_tables);
}

TEST_CASE("merge: sums go on in their place, in as many lists as there were batches") {
  check_merge_onto<12>(170, 3, 900);  // more lists than a launch uploads at a time
  check_merge_onto<2>(3, 200, 20);    // rows of more than 32 entries, and of more than 32 * 32
  check_merge_onto<1040>(4, 20, 60);  // in panels
}

TEST_CASE_TEMPLATE("gradients of weights: 16 sums and a tree, to the bit", T, float, BFloat16) {
  constexpr int width = 36, rows = 60;
  Random random(4);
  const std::vector<T> arena = random_elements<T>(random, rows * width);
  const std::vector<HostGroup<std::int32_t>> groups =
      groups_of_every_kind<std::int32_t>(width, rows, 3);
  in_every_order([&] {
    using Operation = op::WeightGradients<T, std::int32_t, width>;
    const Cuda backend;
    const OnGpu<T> device_arena(backend, arena);
    const GroupsOnDevice<std::int32_t> sources(backend, groups);
    std::vector<OnGpu<float>> outputs;
    std::vector<typename Operation::Group> jobs;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      outputs.emplace_back(backend, std::vector<float>(groups[g].bags.ids.size()));
      jobs.push_back({sources.views()[g], outputs.back().data()});
    }
    op::run<Operation>(backend, {device_arena.data(), width, jobs});
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const HostGroup<std::int32_t>& group = groups[g];
      std::vector<float> expected(group.bags.ids.size());
      for (std::int64_t bag = 0; bag < group.bags.bags; ++bag)
        for (std::int64_t i = group.bags.begin(bag); i < group.bags.end(bag); ++i) {
          float sums[16] = {};
          for (int c = 0; c < width; ++c)
            sums[c % 16] = std::fma(
                group.gradient[static_cast<std::size_t>(bag * group.stride + c)],
                to_float(arena[static_cast<std::size_t>(
                    (group.bags.ids[static_cast<std::size_t>(i)] + group.bags.row_bias) * width +
                    c)]),
                sums[c % 16]);
          for (int half = 8; half > 0; half /= 2)
            for (int l = 0; l < half; ++l) sums[l] += sums[l + half];
          expected[static_cast<std::size_t>(i)] = sums[0];
        }
      CHECK((outputs[g].read() == expected));
    }
  });
}

TEST_CASE("apply: merged rows and their mean squares, as given") {
  Random random(2);
  constexpr int width = 20, rows = 30;
  const HostArena<float, Keep> before(random, rows, width);
  HostArena<float, Keep> expected = before;
  std::map<std::int64_t, std::vector<float>> merged;
  std::vector<std::int64_t> merged_rows;
  std::vector<float> gradients, mean_squares;
  for (const std::int64_t row : {0, 3, 4, 17, 29}) {
    merged[row] = random_elements<float>(random, width);
    merged_rows.push_back(row);
    gradients.insert(gradients.end(), merged[row].begin(), merged[row].end());
    mean_squares.push_back(static_cast<float>(row) + 0.5f);
  }
  update_plainly(expected, width, Keep::Step{}, merged);
  for (const std::int64_t row : merged_rows)
    expected.row_state[0][static_cast<std::size_t>(row)] = static_cast<float>(row) + 0.5f;
  in_every_order([&] {
    const Cuda backend;
    const ArenaOnDevice<float, Keep> arena(backend, before, rows, width);
    const OnGpu<std::int64_t> device_rows(backend, merged_rows);
    const OnGpu<float> device_gradients(backend, gradients), device_squares(backend, mean_squares);
    op::run<op::Apply<float, width, Keep>>(
        backend, {arena.view(),
                  {},
                  {std::ssize(merged_rows), device_rows.data(), device_gradients.data()},
                  device_squares.data()});
    const HostArena<float, Keep> after = arena.read();
    CHECK((after.weights == expected.weights));
    CHECK((after.element_state == expected.element_state));
    CHECK((after.row_state == expected.row_state));
  });
}
