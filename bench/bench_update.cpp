// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The exact update (duplicates merged) against its floor: the pooled gradients read once, and the
// distinct rows with their optimizer state read, modified and written back, each at the rate that
// this machine gives it in the same run (limits.hpp). `limit_share` = median floor / median time;
// `step_share` the same for lookup + update, whose floor gathers and writes the output too.
#include <tessera/host/lookup.hpp>
#include <tessera/host/update.hpp>
#include <tessera/optimizer/optimizers.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "limits.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

struct Shape {
  std::int64_t bag = 10;
  double skew = 0;
  std::int64_t batch = 65536;
  int tables = 1;
  int threads = 2;
  std::int64_t rows = 4'000'000;  ///< of all tables together
  bool by_frequency = false;      ///< under Zipf: popular rows side by side
};

template <Element T, int Width, Optimizer O>
void update(benchmark::State& state, Shape shape) {
  constexpr int row_bytes = Width * static_cast<int>(sizeof(T));
  using Id = std::int32_t;
  const std::int64_t entries = shape.batch * shape.bag * shape.tables;
  // other ids every time, as in training
  const std::int64_t batches = std::clamp<std::int64_t>(4'000'000 / entries, 2, 16);
  const std::int64_t rows_of_table = shape.rows / shape.tables;
  HugeArray<T> arena(shape.rows * Width);
  using S = detail::StateElement<O>;
  std::vector<std::unique_ptr<HugeArray<S>>> element_states;
  std::vector<std::unique_ptr<HugeArray<float>>> row_states;
  op::ArenaState<T, O> arena_state{
      .arena = arena.data(), .rows = shape.rows, .width = Width, .rounding_seed = 1};
  for (int k = 0; k < O::element_states; ++k)
    arena_state.element_state[static_cast<std::size_t>(k)] =
        element_states.emplace_back(std::make_unique<HugeArray<S>>(shape.rows * Width))->data();
  for (int k = 0; k < O::row_states; ++k)
    arena_state.row_state[static_cast<std::size_t>(k)] =
        row_states.emplace_back(std::make_unique<HugeArray<float>>(shape.rows))->data();
  const op::ArenaSegment segment{.rows = shape.rows};
  arena_state.segments = {&segment, 1};

  HugeArray<float> output(shape.batch * shape.tables * Width),
      gradient(shape.batch * shape.tables * Width);
  for (std::int64_t i = 0; i < gradient.size(); ++i)
    gradient.data()[i] = unit_float(random_word(2, i)) - 0.5f;
  std::vector<std::int64_t> offsets;
  for (std::int64_t b = 0; b <= shape.batch * shape.tables; ++b) offsets.push_back(b * shape.bag);
  HugeArray<Id> ids(entries * batches), arena_rows(entries * batches);
  const auto rows_of_batch = [&](std::int64_t batch) {
    return std::span<const Id>(arena_rows.data() + batch * entries,
                               static_cast<std::size_t>(entries));
  };
  std::vector<std::vector<Id>> distinct;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    for (std::int64_t j = 0; j < entries; ++j) {
      const std::int64_t i = batch * entries + j, table = j / (shape.batch * shape.bag);
      ids.data()[i] = static_cast<Id>(
          draw_id(1, static_cast<std::uint64_t>(i), rows_of_table, shape.skew, shape.by_frequency));
      arena_rows.data()[i] = static_cast<Id>(ids.data()[i] + table * rows_of_table);
    }
    distinct.push_back(distinct_ids(rows_of_batch(batch), shape.rows));
  }

  const Host host({.threads = shape.threads});
  std::vector<op::GradientGroup<Id>> groups(static_cast<std::size_t>(shape.tables));
  std::vector<op::LookupGroup<Id>> lookups(static_cast<std::size_t>(shape.tables));
  const auto set_batch = [&](std::int64_t batch) {
    for (int t = 0; t < shape.tables; ++t) {
      const op::Bags<Id> bags{
          .ids = ids.data() + batch * entries + (shape.bag == 1 ? t * shape.batch : 0),
          .offsets = shape.bag == 1 ? nullptr : offsets.data() + t * shape.batch,
          .bags = shape.batch,
          .row_bias = t * rows_of_table};
      const std::int64_t stride = std::int64_t{Width} * shape.tables;
      groups[static_cast<std::size_t>(t)] = {
          bags, gradient.data() + t * Width, stride, {t * rows_of_table, (t + 1) * rows_of_table}};
      lookups[static_cast<std::size_t>(t)] = {bags, output.data() + t * Width, stride};
    }
  };
  const typename O::Step step = O{}.at(0.01f, 1);
  const auto read_modify_write = [&](std::int64_t batch, int distance) {
    constexpr int state_row = Width * static_cast<int>(sizeof(S));
    const std::span<const Id> rows = distinct[static_cast<std::size_t>(batch)];
    std::array<char*, O::element_states> states;
    for (int k = 0; k < O::element_states; ++k)
      states[k] = reinterpret_cast<char*>(arena_state.element_state[k]);
    if constexpr (row_bytes == state_row) {
      std::array<char*, O::element_states + 1> all{reinterpret_cast<char*>(arena.data())};
      std::ranges::copy(states, all.begin() + 1);
      gather_modify_write<row_bytes, O::element_states + 1, O::row_states>(
          shape.threads, all, arena_state.row_state, rows, distance);
    } else {
      gather_modify_write<row_bytes, 1, O::row_states>(shape.threads,
                                                       {reinterpret_cast<char*>(arena.data())},
                                                       arena_state.row_state, rows, distance);
      if constexpr (O::element_states > 0)
        gather_modify_write<state_row, O::element_states, 0>(shape.threads, states, {}, rows,
                                                             distance);
    }
  };
  const auto gather_rows = [&](std::int64_t batch, int distance) {
    gather<row_bytes, Width>(shape.threads, reinterpret_cast<const char*>(arena.data()),
                             rows_of_batch(batch), shape.bag, output.data(), distance);
  };
  std::int64_t turn = 0;
  const int write_distance = best_distance([&](int d) { read_modify_write(turn++ % batches, d); });
  const int gather_distance = best_distance([&](int d) { gather_rows(turn++ % batches, d); });

  const auto forward = [&] {
    op::run<op::Lookup<T, Id, Width>>(host, {.arena = arena.data(), .groups = lookups});
  };
  const auto backward = [&] {
    op::run<op::Update<T, Id, Width, O>>(host,
                                         {.state = arena_state, .step = step, .groups = groups});
  };
  for (int warm_up = 0; warm_up < 2; ++warm_up) {  // scratch memory is allocated and touched
    set_batch(turn++ % batches);
    forward();
    backward();
  }
  std::vector<double> floors, gathers, times, lookup_times;
  for (auto _ : state) {
    floors.push_back(seconds([&] {
      read_modify_write(turn++ % batches, write_distance);
      benchmark::DoNotOptimize(read_stream(shape.threads, gradient.span()));
    }));
    gathers.push_back(seconds([&] { gather_rows(turn++ % batches, gather_distance); }));
    // Forward and backward of one batch, as in training: the update finds in the caches what the
    // lookup left there.
    set_batch(turn++ % batches);
    lookup_times.push_back(seconds(forward));
    times.push_back(seconds(backward));
    state.SetIterationTime(times.back());
  }
  const double time = median(times), floor = median(floors);
  state.counters["limit_ms"] = floor * 1e3;
  state.counters["ms"] = time * 1e3;
  state.counters["limit_share"] = floor / time;
  // where other work disturbs the medians
  state.counters["best_share"] = std::ranges::min(floors) / std::ranges::min(times);
  state.counters["step_ms"] = (time + median(lookup_times)) * 1e3;
  state.counters["step_share"] = (floor + median(gathers)) / (time + median(lookup_times));
  state.counters["ids/s"] = static_cast<double>(entries) / time;
  state.counters["distinct"] = static_cast<double>(distinct[0].size());
}

template <Element T, int Width, Optimizer O>
void add(std::string_view element, std::string_view optimizer, Shape shape) {
  const std::string name = fmt::format(
      "update{}/{}/{}/width:{}/bag:{}/{}/batch:{}/tables:{}/threads:{}",
      shape.rows == Shape{}.rows ? "" : fmt::format("_of/rows:{}", shape.rows), optimizer, element,
      Width, shape.bag,
      shape.skew == 0
          ? "uniform"
          : fmt::format("zipf{}:{}", shape.by_frequency ? "_by_frequency" : "", shape.skew),
      shape.batch, shape.tables, shape.threads);
  benchmark::RegisterBenchmark(
      name.c_str(), [shape](benchmark::State& state) { update<T, Width, O>(state, shape); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.4);
}

/// Tables that fit into a core's cache, into the last one, and 8 GiB.
template <int Width>
void add_sizes() {
  for (const std::int64_t bytes :
       {std::int64_t{256} << 10, std::int64_t{16} << 20, std::int64_t{8} << 30})
    add<float, Width, Sgd>("fp32", "sgd", {.rows = bytes / (Width * 4)});
}

template <int Width>
void add_width() {
  for (const int threads : {1, 2})
    for (const std::int64_t bag : {1, 10})
      for (const double skew : {0.0, 1.05}) {
        add<float, Width, Sgd>("fp32", "sgd", {.bag = bag, .skew = skew, .threads = threads});
        add<float, Width, RowWiseAdagrad>("fp32", "rowwise_adagrad",
                                          {.bag = bag, .skew = skew, .threads = threads});
      }
  for (const std::int64_t batch : {2048, 8192})
    add<float, Width, Sgd>("fp32", "sgd", {.batch = batch});
  for (const double skew : {0.0, 1.05})
    add<float, Width, Sgd>("fp32", "sgd", {.bag = 40, .skew = skew});
  add<float, Width, Sgd>("fp32", "sgd", {.skew = 1.05, .by_frequency = true});
  add<float, Width, Adagrad>("fp32", "adagrad", {});
  add<float, Width, Adam>("fp32", "adam", {});
  add<BFloat16, Width, RowWiseAdagrad>("bf16", "rowwise_adagrad", {});
}

}  // namespace

int main(int argc, char** argv) {
  add_width<4>();
  add_width<16>();
  add_width<64>();
  add_width<128>();
  add_width<256>();
  add_sizes<16>();
  add_sizes<128>();
  add<float, 128, NarrowStates<Adam>>("fp32", "adam_bf16_states", {});
  add<float, 128, Momentum>("fp32", "momentum", {});
  add<float, 128, Lion>("fp32", "lion", {});
  add<float, 128, AdamW>("fp32", "adamw", {});
  add<float, 128, PartialRowWiseAdam>("fp32", "partial_rowwise_adam", {});
  add<float, 128, Lamb>("fp32", "lamb", {});
  add<float, 128, Ftrl>("fp32", "ftrl", {});
  add<float, 128, RowWiseAdagradL2>("fp32", "rowwise_adagrad_l2", {});
  add<float, 128, RowWiseAdagradDecoupled>("fp32", "rowwise_adagrad_decoupled", {});
  add<float, 128, CountedRowWiseAdagrad>("fp32", "rowwise_adagrad_counted", {});
  for (const int tables : {1, 26, 600}) {
    // The same number of ids, and of rows, in one table, in 26 and in 600 small ones.
    const std::int64_t bags = 26 * 8192;
    add<float, 16, Sgd>("fp32", "sgd", {.bag = 1, .batch = bags / tables, .tables = tables});
    add<float, 128, RowWiseAdagrad>("fp32", "rowwise_adagrad",
                                    {.bag = 1, .batch = bags / tables, .tables = tables});
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
