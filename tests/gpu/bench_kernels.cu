// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Lookup, update, routing, dot interaction, cross layers' elements and codecs, each alone. Counters: bench_gpu.hpp.
#include <gpu/bench_gpu.hpp>

#include <tessera/interaction/cross_kernels.cuh>

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

/// Rows of T with an optimizer's state.
template <Element T, class O>
detail::Arena<Cuda> make_arena(const Cuda& backend, std::int64_t rows, int width,
                               const O& optimizer, Tier tier) {
  std::vector<std::int64_t> row_bytes{static_cast<std::int64_t>(sizeof(T)) * width};
  row_bytes.resize(1 + O::element_states,
                   static_cast<std::int64_t>(sizeof(detail::StateElement<O>)) * width);
  row_bytes.resize(1 + O::element_states + O::row_states, 4);
  detail::Arena<Cuda> arena(backend, rows, width, row_bytes, tier);
  arena.reset_state(backend, 0, rows, optimizer);
  return arena;
}

/// Rows and outputs of T.
template <int Width, Element T = float>
void lookup(benchmark::State& state, Shape s) {
  using Group = op::LookupGroup<std::int32_t, T>;
  const Cuda backend;
  const Ids& drawn = ids_of(s);
  const auto arena = make_arena<T>(backend, s.rows * s.tables, Width, Sgd{}, s.tier);
  const DeviceArray<T> output(backend, static_cast<std::size_t>(s.bags * s.tables * Width));
  const std::int64_t stride = std::int64_t{Width} * s.tables;
  constexpr double row = sizeof(T) * Width;
  const double entries = static_cast<double>(s.bags * s.bag * s.tables),
               out = static_cast<double>(output.size() * sizeof(T));
  // Over the bus rows travel as often as they are read, and nothing else counts.
  const bool far = s.tier == Tier::host;
  measure(
      state, backend, inputs, entries * (row + 4) + out,
      far ? entries * row : drawn.distinct * row + entries * 4 + out,
      far ? Expected{.share = 0.7, .over_bus = true} : Expected{.share = 0.8, .from_cache = true},
      [&](std::size_t input) {
        const auto groups = groups_of<Group>(
            s, drawn.ids.data(), drawn.offsets.data(), input, {}, [&](const auto& bags, int t) {
              return Group{bags, output.data() + t * Width, stride};
            });
        op::run<op::Lookup<T, std::int32_t, Width, T>>(
            backend, {arena.template weights<T>(), Width, groups});
      });
}

template <int Width, class O>
void update(benchmark::State& state, Shape s) {
  const Cuda backend;
  const Ids& drawn = ids_of(s);
  const O optimizer{};
  const std::int64_t rows = s.rows * s.tables;
  const auto arena = make_arena<float>(backend, rows, Width, optimizer, s.tier);
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

/// What a layer of DCNv2's cross does beside its products of T, of vectors of DLRM's width: forward
/// the last layer, which reads x0, its scale and its input; backward a layer that the last one lies
/// above. `End`: of x0, y and its gradient.
template <Element End, Element T, bool Backward>
void cross(benchmark::State& state, double share) {
  constexpr std::int64_t width = 27 * 128, blocks = width / gpu::cross_columns;
  const Cuda backend;
  const std::int64_t batch = size_or(32768, 8), chunks = gpu::ceil_divide(batch, gpu::sum_rows);
  const auto drawn = [&]<class E>(E, std::uint64_t seed) {
    return drawn_values<E>(backend, batch * width, seed);
  };
  const auto matrix = [&](const auto& array) { return MatrixView(array.data(), batch, width); };
  const DeviceArray<End> x0 = drawn(End{}, 1), end = drawn(End{}, 2);
  const DeviceArray<T> scale = drawn(T{}, 3), before = drawn(T{}, 4);
  const DeviceArray<float> sum = drawn(float{}, 5),
                           partial(backend, static_cast<std::size_t>(chunks * width));
  const double element = 2.0 * sizeof(End) + 2.0 * sizeof(T) + (Backward ? 8 : 0),
               bytes = element * static_cast<double>(batch * width);
  measure(state, backend, 1, bytes, bytes, {.share = share}, [&](std::size_t) {
    if constexpr (Backward)
      backend.launch("cross_backward", chunks * blocks, gpu::dense_threads,
                     gpu::cross_backward<End, End, T>,
                     gpu::CrossGradients<End, End, T>{matrix(end), matrix(x0), matrix(scale),
                                                      matrix(before), matrix(sum)},
                     partial.data(), static_cast<int>(blocks));
    else
      backend.launch("cross_forward", gpu::ceil_divide(batch, gpu::cross_rows<End, T>) * blocks,
                     gpu::dense_threads, gpu::cross_forward<End, T, End>,
                     MatrixView<const End>(matrix(x0)), MatrixView<const T>(matrix(scale)),
                     MatrixView<const T>(matrix(before)), matrix(end), static_cast<int>(blocks));
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
    op::run<Pack>(backend, {.jobs = jobs, .count_only = true});
    std::int64_t entry = 0, bag = 0;
    for (Pack::Block& block : blocks) {
      block.ids = routed.data() + entry, block.samples = samples.data() + bag,
      block.lengths = lengths.data() + bag;
      entry += block.entries, bag += block.bags;
    }
    op::run<Pack>(backend, {.jobs = jobs, .counted = true});
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
  cases("lookup/width:128", lookup<128, float>);
  cases("lookup/width:16", lookup<16, float>);
  for (const double skew : {0.0, 1.05})
    for (const std::int64_t bag : {1, 16}) {
      const Shape s = sized({.bags = (1 << 20) / bag, .bag = bag, .skew = skew});
      const std::string of = fmt::format("bag:{}/{}", bag, skew == 0 ? "uniform" : "zipf:1.05");
      add("lookup/fp16/width:128/" + of,
          [=](benchmark::State& state) { lookup<128, Half>(state, s); });
      add("lookup/bf16/width:128/" + of,
          [=](benchmark::State& state) { lookup<128, BFloat16>(state, s); });
    }
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
  const auto crosses = [&]<class End, class T>(const char* name, End, T) {
    add(fmt::format("cross forward/3456/{}", name),
        [](benchmark::State& state) { cross<End, T, false>(state, 0.85); });
    add(fmt::format("cross backward/3456/{}", name),
        [](benchmark::State& state) { cross<End, T, true>(state, 0.75); });
  };
  crosses("fp32", float{}, float{});
  crosses("bf16 ends", BFloat16{}, float{});
  crosses("bf16", BFloat16{}, BFloat16{});
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
