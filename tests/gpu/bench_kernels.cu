// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Lookup, update, routing, dot interaction and codecs, each alone. Counters: bench_gpu.hpp.
#include <gpu/bench_gpu.hpp>

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <tuple>

namespace {

struct Shape {
  std::int64_t rows = 4'000'000;  ///< of each table
  std::int64_t bags = 1 << 20;    ///< of each table
  std::int64_t bag = 1;
  int tables = 1;
  double skew = 0;
  bool one_hot = true;  ///< bags of one come without offsets
  /// rows and their states lie in page-locked memory of the host, and travel over the bus
  Tier tier = Tier::device;
};

constexpr std::size_t inputs = 4;  ///< that iterations take in turn

/// Ids of all tables and inputs, bags' offsets, and how many distinct rows an input reads.
struct Ids {
  DeviceArray<std::int32_t> ids;
  DeviceArray<std::int64_t> offsets;
  double distinct = 0;

  Ids(const Cuda& backend, const Shape& s)
      : ids(backend, static_cast<std::size_t>(s.bags * s.bag * s.tables) * inputs),
        offsets(backend, offsets_of(s)) {
    const std::int64_t entries = s.bags * s.bag;
    std::int32_t* to = ids.data();
    for (std::size_t input = 0; input < inputs; ++input)
      for (int t = 0; t < s.tables; ++t, to += entries)
        distinct +=
            static_cast<double>(draw(backend, to, entries,
                                     {input * 100 + static_cast<std::size_t>(t), s.rows, s.skew})) /
            inputs;
  }

 private:
  static std::vector<std::int64_t> offsets_of(const Shape& s) {
    std::vector<std::int64_t> offsets;
    for (std::int64_t b = 0; b <= s.bags; ++b) offsets.push_back(b * s.bag);
    return offsets;
  }
};

/// Drawn once per shape, and never freed: the driver may be gone when static variables end.
const Ids& ids_of(const Shape& s) {
  static auto& drawn =
      *new std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, int, double>, Ids>;
  const auto key = std::tuple(s.rows, s.bags, s.bag, s.tables, s.skew);
  const auto found = drawn.find(key);
  return found != drawn.end() ? found->second : drawn.emplace(key, Ids(Cuda(), s)).first->second;
}

template <class Group>
std::vector<Group> groups_of(const Shape& s, const std::int32_t* ids, const std::int64_t* offsets,
                             std::size_t input, decltype(Group::bags) bags,
                             const std::function<Group(const op::Bags<std::int32_t>&, int)>& make) {
  std::vector<Group> groups;
  for (int t = 0; t < s.tables; ++t) {
    bags.ids = ids + (static_cast<std::int64_t>(input) * s.tables + t) * s.bags * s.bag;
    bags.offsets = s.bag == 1 && s.one_hot ? nullptr : offsets;
    bags.bags = s.bags;
    bags.row_bias = t * s.rows;
    bags.entry_bound = s.bags * s.bag;
    groups.push_back(make(bags, t));
  }
  return groups;
}

template <int Width>
void lookup(benchmark::State& state, Shape s) {
  const Cuda backend;
  const Ids& drawn = ids_of(s);
  const detail::Arena<Cuda> arena(backend, std::type_identity<float>{}, s.rows * s.tables, Width,
                                  Sgd{}, s.tier);
  const DeviceArray<float> output(backend, static_cast<std::size_t>(s.bags * s.tables * Width));
  const std::int64_t stride = std::int64_t{Width} * s.tables;
  const double entries = static_cast<double>(s.bags * s.bag * s.tables),
               out = static_cast<double>(output.size()) * 4;
  // Over the bus rows travel as often as they are read, and nothing else counts.
  const bool far = s.tier == Tier::host;
  measure(
      state, backend, inputs, entries * (4 * Width + 4) + out,
      far ? entries * 4 * Width : drawn.distinct * 4 * Width + entries * 4 + out,
      far ? Expected{.share = 0.7, .over_bus = true} : Expected{.share = 0.8, .from_cache = true},
      [&](std::size_t input) {
        const auto groups = groups_of<op::LookupGroup<std::int32_t>>(
            s, drawn.ids.data(), drawn.offsets.data(), input, {}, [&](const auto& bags, int t) {
              return op::LookupGroup<std::int32_t>{bags, output.data() + t * Width, stride};
            });
        op::run<op::Lookup<float, std::int32_t, Width>>(backend,
                                                        {arena.weights<float>(), Width, groups});
      });
}

template <int Width, class O>
void update(benchmark::State& state, Shape s) {
  const Cuda backend;
  const Ids& drawn = ids_of(s);
  const O optimizer{};
  const std::int64_t rows = s.rows * s.tables;
  const detail::Arena<Cuda> arena(backend, std::type_identity<float>{}, rows, Width, optimizer,
                                  s.tier);
  const DeviceArray<float> gradient(backend, static_cast<std::size_t>(s.bags * s.tables * Width));
  const std::int64_t stride = std::int64_t{Width} * s.tables;
  const double entries = static_cast<double>(s.bags * s.bag * s.tables),
               in = static_cast<double>(gradient.size()) * 4;
  const double row_bytes = 2.0 * (4 * Width * (1 + O::element_states) + 4 * O::row_states);
  const bool far = s.tier == Tier::host;
  measure(state, backend, inputs, entries * (row_bytes + 4 * Width + 4),
          far ? drawn.distinct * row_bytes : drawn.distinct * row_bytes + in + entries * 4,
          far ? Expected{.share = 1.0, .over_bus = true}  // both ways at once
              : Expected{.share = std::is_same_v<O, Sgd> ? 0.6 : 0.55},
          [&](std::size_t input) {
            const auto groups = groups_of<op::GradientGroup<std::int32_t>>(
                s, drawn.ids.data(), drawn.offsets.data(), input, {}, [&](const auto& bags, int t) {
                  return op::GradientGroup<std::int32_t>{bags, gradient.data() + t * Width, stride};
                });
            op::run<op::Update<float, std::int32_t, Width, O>>(
                backend, {arena.template state<float, O>({}, 1), optimizer.at(0.01f, 1), groups});
          });
}

template <class T, bool Tf32, bool Backward>
void dot(benchmark::State& state, double share) {
  using Dot = DotInteraction<27, 128, 32, T, Tf32>;
  const Cuda backend;
  const std::int64_t batch = size_or(65536, 8);
  const DeviceArray<T> x = drawn_values<T>(backend, 2 * batch * Dot::input_columns(), 1),
                       z = drawn_values<T>(backend, batch * Dot::columns(), 2),
                       dx(backend,
                          static_cast<std::size_t>(Backward ? batch * Dot::input_columns() : 0));
  const double bytes =
      static_cast<double>(sizeof(T)) *
      static_cast<double>(batch * (Dot::input_columns() * (Backward ? 2 : 1) + Dot::columns()));
  measure(state, backend, 2, bytes, bytes, {.share = share}, [&](std::size_t input) {
    const MatrixView<const T> in(
        x.data() + static_cast<std::int64_t>(input) * batch * Dot::input_columns(), batch,
        Dot::input_columns());
    if constexpr (Backward)
      Dot::backward(backend, in, MatrixView<const T>(z.data(), batch, Dot::columns()),
                    {dx.data(), batch, Dot::input_columns()});
    else
      Dot::forward(backend, in, {z.data(), batch, Dot::columns()});
  });
}

/// Bags split by the ranks that hold their rows, of tables cut into 8 blocks: sizes first, for
/// which the host waits, then ids, bags and lengths.
void route(benchmark::State& state, Shape s) {
  constexpr int ranks = 8;
  const Cuda backend;
  const Ids& drawn = ids_of(s);
  const std::int64_t entries = s.bags * s.bag * s.tables;
  const DeviceArray<std::int32_t> routed(backend, static_cast<std::size_t>(entries)),
      samples(backend, static_cast<std::size_t>(entries));
  const DeviceArray<std::uint32_t> lengths(backend, static_cast<std::size_t>(entries));
  using Pack = op::PackBags<std::int32_t>;
  std::vector<Pack::Block> blocks(static_cast<std::size_t>(ranks * s.tables));
  const auto step = [&](std::size_t input) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto rank = static_cast<std::int64_t>(i % ranks);
      blocks[i] = {};
      blocks[i].row_begin = rank * s.rows / ranks, blocks[i].row_end = (rank + 1) * s.rows / ranks;
    }
    const auto jobs = groups_of<Pack::Job>(
        s, drawn.ids.data(), drawn.offsets.data(), input, {},
        [&](op::Bags<std::int32_t> bags, int t) {
          bags.row_bias = 0;
          return Pack::Job{bags,
                           std::span(blocks).subspan(static_cast<std::size_t>(ranks * t), ranks)};
        });
    op::run<Pack>(backend, {jobs, true});
    std::int64_t entry = 0, bag = 0;
    for (Pack::Block& block : blocks) {
      block.ids = routed.data() + entry, block.samples = samples.data() + bag,
      block.lengths = lengths.data() + bag;
      entry += block.entries, bag += block.bags;
    }
    op::run<Pack>(backend, {jobs});
    return bag;
  };
  const double bytes = 8.0 * static_cast<double>(entries) + 8.0 * static_cast<double>(step(0)) +
                       (s.one_hot ? 0.0 : 8.0 * static_cast<double>(s.bags));
  measure(state, backend, inputs, bytes, bytes, {}, step);
}

/// One exchange's vectors: 26 tables of width 128, 8192 samples each.
template <class C, bool Decode>
void codec(benchmark::State& state, double share) {
  const Cuda backend;
  constexpr int tables = 26, width = 128;
  const std::int64_t rows = size_or(8192, 3);
  const DeviceArray<float> vectors = drawn_values<float>(backend, 2 * tables * rows * width, 1);
  const DeviceArray<std::byte> encoded(
      backend, static_cast<std::size_t>(2 * tables * rows) * C::bytes(width));
  const double bytes = static_cast<double>(tables * rows) *
                       static_cast<double>(width * sizeof(float) + C::bytes(width));
  measure(state, backend, 2, bytes, bytes, {.share = share}, [&](std::size_t input) {
    float* at = vectors.data() + static_cast<std::int64_t>(input) * tables * rows * width;
    std::byte* codes = encoded.data() + input * tables * rows * C::bytes(width);
    std::vector<typename op::EncodeRows<C>::Job> encode;
    std::vector<typename op::DecodeRows<C>::Job> decode;
    for (int t = 0; t < tables; ++t, at += rows * width, codes += rows * C::bytes(width)) {
      encode.push_back({at, width, codes, rows, width});
      decode.push_back({codes, at, width, rows, width});
    }
    if constexpr (Decode)
      op::run<op::DecodeRows<C>>(backend, {decode});
    else
      op::run<op::EncodeRows<C>>(backend, {encode});
  });
}

/// As it is, or a small run's.
Shape sized(Shape s) {
  s.rows = size_or(s.rows, 50);
  s.bags = size_or(s.bags, 7);
  s.bag = size_or(s.bag, 40);
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string markdown = take_options(argc, argv);
  const auto cases = [&](const char* name, auto lookup_or_update) {
    for (const double skew : {0.0, 1.05})
      for (const std::int64_t bag : {1, 10}) {
        const Shape s = sized({.bags = (1 << 20) / bag, .bag = bag, .skew = skew});
        add(fmt::format("{}/bag:{}/{}", name, bag, skew == 0 ? "uniform" : "zipf:1.05"),
            [=](benchmark::State& state) { lookup_or_update(state, s); });
      }
    for (const std::int64_t bag : {1, 2, 100}) {
      const Shape s = sized({.bags = (1 << 20) / bag, .bag = bag, .skew = 1.05, .one_hot = false});
      add(fmt::format("{}/bags of {} with offsets/zipf:1.05", name, bag),
          [=](benchmark::State& state) { lookup_or_update(state, s); });
    }
    for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{4'000'000}}) {
      const Shape s = sized({.rows = rows, .skew = 2});
      add(fmt::format("{}/one-hot/{}", name, rows == 1 ? "one row" : "zipf:2"),
          [=](benchmark::State& state) { lookup_or_update(state, s); });
    }
    const Shape tables = sized({.rows = 200'000, .bags = 65536, .tables = 26, .skew = 1.05});
    add(fmt::format("{}/26 tables/one-hot/zipf:1.05", name),
        [=](benchmark::State& state) { lookup_or_update(state, tables); });
  };
  cases("lookup/width:128", lookup<128>);
  cases("lookup/width:16", lookup<16>);
  cases("update/sgd/width:128", update<128, Sgd>);
  cases("update/rowwise adagrad/width:128", update<128, RowWiseAdagrad>);
  cases("update/rowwise adagrad/width:16", update<16, RowWiseAdagrad>);
  for (const std::int64_t rows : {10, 1000, 10'000})
    for (const std::int64_t bag : {1, 10}) {
      const Shape s = sized({.rows = rows,
                             .bags = 65536,
                             .bag = bag,
                             .tables = 26 / static_cast<int>(bag),
                             .skew = 1.05});
      add(fmt::format("update/rowwise adagrad/width:16/{} tables of {}/bag:{}", s.tables, rows,
                      bag),
          [=](benchmark::State& state) { update<16, RowWiseAdagrad>(state, s); });
    }
  for (const double skew : {0.0, 1.05}) {
    const Shape s = sized({.bags = 1 << 18, .skew = skew, .tier = Tier::host});
    const char* const ids = skew == 0 ? "uniform" : "zipf:1.05";
    add(fmt::format("lookup/width:128/on the host/{}", ids),
        [=](benchmark::State& state) { lookup<128>(state, s); });
    add(fmt::format("update/rowwise adagrad/width:128/on the host/{}", ids),
        [=](benchmark::State& state) { update<128, RowWiseAdagrad>(state, s); });
  }
  add("dot forward/27 x 128/bf16",
      [](benchmark::State& state) { dot<BFloat16, false, false>(state, 0.95); });
  add("dot backward/27 x 128/bf16",
      [](benchmark::State& state) { dot<BFloat16, false, true>(state, 0.95); });
  add("dot forward/27 x 128/fp16",
      [](benchmark::State& state) { dot<Half, false, false>(state, 0.95); });
  add("dot backward/27 x 128/fp16",
      [](benchmark::State& state) { dot<Half, false, true>(state, 0.95); });
  add("dot forward/27 x 128/fp32",
      [](benchmark::State& state) { dot<float, false, false>(state, 0.6); });
  add("dot backward/27 x 128/fp32",
      [](benchmark::State& state) { dot<float, false, true>(state, 0.6); });
  add("dot forward/27 x 128/tf32",
      [](benchmark::State& state) { dot<float, true, false>(state, 0.95); });
  add("dot backward/27 x 128/tf32",
      [](benchmark::State& state) { dot<float, true, true>(state, 0.95); });
  add("encode/width:128/bf16", [](benchmark::State& state) { codec<Bf16, false>(state, 0.75); });
  add("encode/width:128/int8", [](benchmark::State& state) { codec<Int8, false>(state, 0.65); });
  add("decode/width:128/bf16", [](benchmark::State& state) { codec<Bf16, true>(state, 0.6); });
  add("decode/width:128/int8", [](benchmark::State& state) { codec<Int8, true>(state, 0.6); });
  for (const std::int64_t bag : {1, 10}) {
    const Shape s = sized({.rows = 200'000,
                           .bags = 65536,
                           .bag = bag,
                           .tables = 26,
                           .skew = 1.05,
                           .one_hot = bag == 1});
    add(fmt::format("route/26 tables, 8 ranks/bag:{}", bag),
        [=](benchmark::State& state) { route(state, s); });
  }
  return run_cases(argc, argv, markdown);
}
