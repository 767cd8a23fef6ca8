// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Whole training steps, batch 65,536, one GPU: route, lookup, interaction, MLPs forward and
// backward, loss, dense and embedding updates; called, and as CUDA graphs, which cost the host
// nothing. Batches are in device memory before the clock starts, and take turns.
//   Two of NVIDIA Merlin's synthetic models (distributed-embeddings, config_v3.py: Tiny and Small), Adagrad, MLP in TF32 or bfloat16.
//   Published on one A100: Tiny 24.4 ms, Small 67.4 ms.
//   A table of 2 GB alone: in the GPU's memory, in the host's, and there behind caches; batches routed ahead.
//   DCNv2: the same with three cross layers of rank 512 in place of the dot products, as MLPerf's.
//   DLRM: 26 tables x 1,000,000 rows x 128, one id each; bottom 13-512-256-128, top 1024-1024-512-256-1; SGD; dot in TF32, MLPs in TF32
//   or bfloat16; "bf16 outputs": MLPs, pooled vectors, dot and their gradients in bfloat16. Its 13 numbers, and the rows of the others' models, are padded to multiples of 16.
#include <gpu/bench_gpu.hpp>
#include <gpu/graph.hpp>

#include <tessera/dense/dense.cuh>
#include <tessera/interaction/cross.cuh>
#include <tessera/interaction/dot.cuh>
#include <tessera/planner/power_law.hpp>
#include <tessera_data/synthetic_models.hpp>

#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace {

struct MerlinModel {
  const char* name;
  const SyntheticModel& tables_and_mlp;
  double memory_us, tf32_us, bf16_us;  ///< docs/gpu/README.md: all but the products, and these
};

const std::vector<MerlinModel>& models() {
  static const std::vector<MerlinModel> all{{"Tiny", synthetic_model("tiny"), 820, 315, 158},
                                            {"Small", synthetic_model("small"), 3'960, 1'800, 900}};
  return all;
}

constexpr int numbers = 10;
constexpr std::size_t batches = 3;
constexpr int candidates = 8;  ///< of cuBLASLt's algorithms for a product

std::int64_t batch_size() { return size_or(65536, 8); }

/// Layers' sizes, or a small run's.
std::vector<std::int64_t> layers(std::vector<std::int64_t> sizes) {
  for (std::int64_t& size : sizes) size = size_or(size, 24);
  return sizes;
}

/// Rows of whole cache sectors, with zeros behind: cuBLASLt's kernels for Hopper take no other
/// strides, and lookups store 16 bytes at once.
std::int64_t padded(std::int64_t columns) { return gpu::ceil_divide(columns, 16) * 16; }

using One = BasicSelfCommunicator<CudaTransfer>;

DeviceArray<float> floats(const Cuda& backend, std::int64_t count) {
  return {backend, static_cast<std::size_t>(count)};
}

/// Times `train(b)`, which trains with batch b, or graphs of it.
template <class Train>
void measure_steps(benchmark::State& state, const Cuda& backend, const gpu::Stream& stream,
                   bool captured, double bytes, double dram_bytes, const Expected& expected,
                   const Train& train) {
  std::vector<std::unique_ptr<Graph>> graphs;
  if (captured) train(0);  // buffers get their sizes
  for (std::size_t b = 0; captured && b < batches; ++b)
    graphs.push_back(std::make_unique<Graph>(stream, [&] { train(b); }));
  measure(state, backend, batches, bytes, dram_bytes, expected,
          [&](std::size_t b) { captured ? graphs[b]->launch() : train(b); });
  state.counters["samples/s"] = static_cast<double>(batch_size()) / (state.counters["us"] * 1e-6);
}

/// One feature's ids: how many per sample, of a table of how many rows and columns.
struct Source {
  std::int64_t hotness, rows;
  int width;
};

/// All batches of a model, drawn once: every case takes the same. Never freed: the driver may be
/// gone when static variables end.
struct Batches {
  std::vector<DeviceArray<std::int64_t>> ids;
  DeviceArray<std::int64_t> offsets;
  double distinct_bytes = 0, entry_bytes = 0;  ///< of a batch

  Batches(const Cuda& backend, const std::vector<Source>& sources)
      : offsets(backend, offsets_of(sources)) {
    std::int64_t entries = 0;
    for (const Source& source : sources) entries += batch_size() * source.hotness;
    for (std::size_t b = 0; b < batches; ++b) {
      std::int64_t* to = ids.emplace_back(backend, static_cast<std::size_t>(entries)).data();
      for (std::size_t f = 0; f < sources.size(); ++f) {
        const auto [hotness, rows, width] = sources[f];
        const std::int64_t count = batch_size() * hotness;
        const std::int64_t distinct = draw(backend, to, count, {b * 1000 + f, rows, 1.05, true});
        distinct_bytes += static_cast<double>(distinct * width * 4) / batches;
        entry_bytes += static_cast<double>(count * width * 4) / batches;
        to += count;
      }
    }
  }

  static const Batches& of(std::string_view model, const std::vector<Source>& sources) {
    static auto& drawn = *new std::map<std::string_view, Batches>;
    const auto found = drawn.find(model);
    return found != drawn.end() ? found->second
                                : drawn.emplace(model, Batches(Cuda(), sources)).first->second;
  }

 private:
  static std::vector<std::int64_t> offsets_of(const std::vector<Source>& sources) {
    std::vector<std::int64_t> offsets{0};
    for (const Source& source : sources)
      for (std::int64_t s = 0; s < batch_size(); ++s)
        offsets.push_back(offsets.back() + source.hotness);
    return offsets;
  }
};

/// `T`: of pooled vectors and their gradients.
template <Element T>
void merlin(benchmark::State& state, const MerlinModel& model, DensePrecision precision,
            bool captured) {
  std::vector<std::string> names;
  std::vector<TableSpec> tables;
  std::vector<FeatureSpec> features;
  std::vector<Source> sources;
  names.reserve(1000);
  for (const SyntheticTables& group : model.tables_and_mlp.groups)
    for (int t = 0; t < group.tables; ++t) {
      tables.push_back({names.emplace_back(fmt::format("t{}", tables.size())),
                        size_or(group.rows, 50), group.width});
      for (const int hot : std::set{1, group.hotness}) {
        features.push_back({names.emplace_back(fmt::format("f{}", features.size())),
                            tables.back().name, Pooling::sum, false});
        sources.push_back({hot, tables.back().rows, group.width});
      }
    }
  std::vector<Shard> shards;
  for (std::size_t t = 0; t < tables.size(); ++t)
    shards.push_back({static_cast<int>(t), {0, tables[t].rows, 0, tables[t].width}, 0});

  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  One self{CudaTransfer(backend)};
  const Adagrad adagrad{1e-7f, 0.1f};
  LayoutCollection<Widths<8, 16, 32>, Adagrad, Cuda, One, OutputType<T>> embeddings{
      self,
      backend,
      make_layout({1}, tables, features, shards),
      {.learning_rate = 0.001f, .optimizer = adagrad}};
  const std::int64_t columns = padded(embeddings.columns() + numbers);
  const auto mlp_sizes = model.tables_and_mlp.mlp;
  std::vector<std::int64_t> sizes = layers({mlp_sizes.begin(), mlp_sizes.end()});
  sizes.insert(sizes.begin(), columns);
  sizes.push_back(1);
  Mlp<Cuda> mlp(backend, sizes,
                {.precision = precision,
                 .tf32 = precision == DensePrecision::float32,
                 .candidates = candidates});
  DenseParameters parameters(backend, 1, mlp);
  DenseOptimizer dense(backend, adagrad);

  std::vector<std::int64_t> bounds;
  for (const Source& source : sources) bounds.push_back(batch_size() * source.hotness);
  const Batches& drawn = Batches::of(model.name, sources);
  const std::int64_t batch = batch_size();
  const DeviceArray<T> x(backend, static_cast<std::size_t>(batch * columns)), dx(backend, x.size());
  const DeviceArray<float> labels = floats(backend, batch), logits = floats(backend, batch),
                           d_logits = floats(backend, batch);
  const DeviceArray<double> loss(backend, 1);
  const MatrixView<T> vectors(x.data(), batch, embeddings.columns(), columns),
      d_x(dx.data(), batch, columns);

  // Rows once for the lookup and, with their states, once read and once written by the update;
  // activations written and read, both ways.
  const double activations = 4.0 * sizeof(T) * static_cast<double>(batch * columns);
  const auto train = [&](std::size_t b) {
    KeyedJagged<std::int64_t> input{
        std::ssize(features), batch, drawn.ids[b].span(), drawn.offsets.span(), {}};
    input.bounds = bounds;
    const auto pooled = embeddings.forward(input, vectors);
    mlp.forward(MatrixView<const T>(x.data(), batch, columns),
                MatrixView<float>(logits.data(), batch, 1));
    BinaryCrossEntropyWithLogits{}.forward_backward(backend, {logits.data(), batch, 1},
                                                    labels.span(), {d_logits.data(), batch, 1},
                                                    loss.data());
    mlp.backward(MatrixView<float>(d_logits.data(), batch, 1), d_x);
    dense.step(parameters, 0.001f);
    embeddings.backward(pooled, d_x.column_range(0, embeddings.columns()));
  };
  measure_steps(
      state, backend, stream, captured, 6 * drawn.entry_bytes + activations,
      5 * drawn.distinct_bytes + activations,
      {.memory_us = model.memory_us,
       .products_us = precision == DensePrecision::float32 ? model.tf32_us : model.bf16_us},
      train);
}

struct DlrmCase {
  const char* name;
  DensePrecision precision = DensePrecision::float32;  ///< float32: products in TF32
  bool gradient_epilogues = false;
};

constexpr int dlrm_tables = 26, dlrm_width = 128;

/// DLRM's interaction of vectors of T.
template <Element T>
struct Dots {
  using Dot = DotInteraction<dlrm_tables + 1, dlrm_width, 32, T, std::is_same_v<T, float>>;
  const Cuda& backend;

  static constexpr std::int64_t columns() { return Dot::columns(); }
  void forward(MatrixView<T> x, MatrixView<T> z) { Dot::forward(backend, x, z); }
  void backward(MatrixView<T> x, MatrixView<T> dz, MatrixView<T> dx) {
    Dot::backward(backend, x, dz, dx);
  }
  DenseParameters<Cuda> parameters(Mlp<Cuda>& bottom, Mlp<Cuda>& top) {
    return {backend, 1, bottom, top};
  }
  static double memory_us(bool tf32) { return tf32 ? 3'580 : is_float ? 3'200 : 2'060; }
  static double products_us(bool tf32) { return tf32 ? 2'530 : 1'260; }
  static double bytes(std::int64_t batch) {
    // Vectors written, read by both directions, their gradients written and read; products and
    // theirs written and read.
    return sizeof(T) * static_cast<double>(batch * (5 * Dot::input_columns() + 4 * columns()));
  }

 private:
  static constexpr bool is_float = std::is_same_v<T, float>;
};

/// DCNv2's.
template <Element T>
struct Cross {
  static constexpr std::int64_t columns() { return (dlrm_tables + 1) * dlrm_width; }
  const Cuda& backend;
  static constexpr bool is_float = std::is_same_v<T, float>;
  CrossInteraction<Linear<Cuda>> layers{
      backend,
      columns(),
      {.layers = 3,
       .rank = size_or(512, 8),
       .tf32 = is_float,
       .precision = is_float ? DensePrecision::float32 : DensePrecision::bfloat16,
       .candidates = candidates}};

  void forward(MatrixView<T> x, MatrixView<T> z) { layers.forward(MatrixView<const T>(x), z); }
  void backward(MatrixView<T>, MatrixView<T> dz, MatrixView<T> dx) {
    layers.backward(MatrixView<const T>(dz), dx);
  }
  DenseParameters<Cuda> parameters(Mlp<Cuda>& bottom, Mlp<Cuda>& top) {
    return {backend, 1, bottom, layers, top};
  }
  static double memory_us(bool) { return is_float ? 16'150 : 9'600; }
  static double products_us(bool tf32) { return tf32 ? 17'000 : 8'500; }
  static double bytes(std::int64_t batch) {
    // A layer's numbers of T: 6 forward, 9 backward, and 2 floats; beside the layers as Dots.
    return static_cast<double>(batch * columns()) * (3.0 * (15 * sizeof(T) + 8) + 7 * sizeof(T));
  }
};

/// `Interaction`: Dots or Cross; `T`: of pooled vectors, what the interaction gives, and their
/// gradients.
template <template <Element> class Interaction, Element T>
void dlrm(benchmark::State& state, const DlrmCase& how, bool captured) {
  constexpr int width = dlrm_width, tables = dlrm_tables, numbers_in = 16;  // 13 numbers, padded
  const std::int64_t batch = batch_size(), rows = size_or(1'000'000, 50);
  constexpr std::int64_t columns = (tables + 1) * std::int64_t{width};
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  Interaction<T> interaction{backend};
  One self{CudaTransfer(backend)};
  std::vector<std::string> names;
  for (int t = 0; t < tables; ++t) names.push_back(fmt::format("t{}", t));
  std::vector<TableSpec> specs;
  std::vector<FeatureSpec> features;
  std::vector<Shard> shards;
  for (int t = 0; t < tables; ++t) {
    specs.push_back({names[t], rows, width});
    features.push_back({names[t], names[t], Pooling::sum, false});
    shards.push_back({t, {0, rows, 0, width}, 0});
  }
  LayoutCollection<Widths<width>, Sgd, Cuda, One, OutputType<T>> embeddings{
      self, backend, make_layout({1}, specs, features, shards), {}};
  const MlpOptions options{.precision = how.precision,
                           .tf32 = how.precision == DensePrecision::float32,
                           .gradient_epilogues = how.gradient_epilogues,
                           .candidates = candidates};
  MlpOptions of_bottom = options;
  of_bottom.last_relu = true;
  std::vector<std::int64_t> of_top = layers({1024, 1024, 512, 256, 1}), sizes = layers({512, 256});
  sizes.insert(sizes.begin(), numbers_in);
  sizes.push_back(width);
  of_top.insert(of_top.begin(), interaction.columns());
  Mlp<Cuda> bottom(backend, sizes, of_bottom);
  Mlp<Cuda> top(backend, of_top, options);
  DenseParameters<Cuda> parameters = interaction.parameters(bottom, top);
  DenseOptimizer dense(backend, Sgd{});

  const Batches& drawn = Batches::of("DLRM", std::vector<Source>(tables, {1, rows, width}));
  const DeviceArray<float> numbers_of = drawn_values<float>(backend, batch * numbers_in, 7),
                           labels = floats(backend, batch), logits = floats(backend, batch),
                           d_logits = floats(backend, batch);
  const auto matrix = [&](std::int64_t columns_of) {
    return DeviceArray<T>(backend, static_cast<std::size_t>(batch * columns_of));
  };
  const DeviceArray<T> x = matrix(columns), dx = matrix(columns), z = matrix(interaction.columns()),
                       dz = matrix(interaction.columns());
  const DeviceArray<double> loss(backend, 1);
  const MatrixView<T> vectors(x.data(), batch, columns), d_vectors(dx.data(), batch, columns),
      products(z.data(), batch, interaction.columns()),
      d_products(dz.data(), batch, interaction.columns());
  const MatrixView<float> numbers(numbers_of.data(), batch, numbers_in),
      out(logits.data(), batch, 1), d_out(d_logits.data(), batch, 1);
  const auto train = [&](std::size_t b) {
    bottom.forward(numbers, vectors.column_range(0, width));
    const auto pooled =
        embeddings.forward(KeyedJagged<std::int64_t>{tables, batch, drawn.ids[b].span(), {}, {}},
                           vectors.column_range(width, tables * width));
    interaction.forward(vectors, products);
    top.forward(MatrixView<const T>(products), out);
    BinaryCrossEntropyWithLogits{}.forward_backward(backend, out, labels.span(), d_out,
                                                    loss.data());
    top.backward(d_out, d_products);
    interaction.backward(vectors, d_products, d_vectors);
    bottom.backward(MatrixView<const T>(d_vectors.column_range(0, width)));
    dense.step(parameters, 0.01f);
    embeddings.backward(pooled, d_vectors.column_range(width, tables * width));
  };
  const double activations = interaction.bytes(batch);
  const bool tf32 = how.precision == DensePrecision::float32;
  measure_steps(
      state, backend, stream, captured, 3 * drawn.entry_bytes + activations,
      3 * drawn.distinct_bytes + activations,
      {.memory_us = interaction.memory_us(tf32), .products_us = interaction.products_us(tf32)},
      train);
}

/// Where the rows of a table are: in the GPU's memory, in the host's, or there behind a cache of so
/// many of a hundred rows.
struct TierCase {
  const char* name;
  Tier tier = Tier::device;
  int cached_percent = 0;
};

/// BasicSelfCommunicator for a thread of its own: nobody else takes part in its calls.
struct SecondSelf : One {
  using One::One;
  void interrupt(const std::string&) const {}
};

/// Steps of a table alone, one id per sample, its batches routed ahead on a second stream.
void tiers(benchmark::State& state, const TierCase& how, double skew) {
  constexpr int width = 128;
  constexpr std::size_t many = 40;  // batches: the cache must not know them by heart
  const std::int64_t rows = size_or(4'000'000, 1'000), batch = batch_size();
  const std::int64_t cached = rows * how.cached_percent / 100;
  const gpu::Stream stream, second_stream;
  const Cuda backend({.stream = stream.get()}), second_backend({.stream = second_stream.get()});
  One self{CudaTransfer(backend)};
  SecondSelf second{CudaTransfer(second_backend)};
  using Embeddings = LayoutCollection<Widths<width>, Sgd, Cuda, One>;
  Embeddings embeddings{self,
                        backend,
                        make_layout({1}, {{"table", rows, width}}, {{"feature", "table"}},
                                    {{0, {0, rows, 0, width}, 0, how.tier, cached}}),
                        {}};
  std::vector<DeviceArray<std::int64_t>> ids;
  double distinct = 0;
  for (std::size_t b = 0; b < many; ++b) {
    ids.emplace_back(backend, static_cast<std::size_t>(batch));
    distinct +=
        static_cast<double>(draw(backend, ids.back().data(), batch, {b, rows, skew, true})) / many;
  }
  const DeviceArray<float> output = floats(backend, batch * width),
                           gradient = drawn_values<float>(backend, batch * width, 3);
  backend.synchronize();  // ids are read on the other stream
  const MatrixView<float> out(output.data(), batch, width);
  const auto keyed = [&](std::size_t b) {
    return KeyedJagged<std::int64_t>{1, batch, ids[b % many].span(), {}, {}};
  };
  RouteAhead<Embeddings, std::int64_t, SecondSelf, Cuda> ahead(embeddings, second, second_backend);
  std::size_t turn = 0;
  ahead.start(keyed(turn));
  const auto step = [&](std::size_t) {
    const auto pooled = embeddings.forward_routed(ahead.take(), out);
    ahead.start(keyed(++turn));
    embeddings.backward(pooled, {gradient.data(), batch, width});
  };
  for (int i = 0; i < (small_run() ? 2 : 30); ++i) step(0);  // the cache is full
  const detail::CacheCounters before = embeddings.tables().cache_counters();
  const std::size_t first = turn;
  const double n = static_cast<double>(batch), row = 4.0 * width, table = static_cast<double>(rows);
  const double missed =
      cached == 0 ? 0 : detail::IdLaw{table, skew}.missed(n, static_cast<double>(cached), 0, table);
  // Over the bus: rows looked up and, each once, updated; or those that the cache lacks, both ways.
  // In the GPU's memory: both, and outputs and gradients.
  const bool bus = how.tier != Tier::device;
  const double least = !bus          ? 3 * row * distinct + 2 * row * n
                       : cached == 0 ? row * n + 2 * row * distinct
                                     : 2 * row * missed;
  measure(state, backend, 1, bus ? least : 3 * row * n + 2 * row * n, least,
          {.share = 0.7,
           .over_bus = bus,
           .host_us = cached == 0 ? 0
                                  : 1e6 * (n * Cluster{}.directory_seconds +
                                           missed * Cluster{}.missing_seconds)},
          step);
  static_cast<void>(ahead.take());
  const detail::CacheCounters after = embeddings.tables().cache_counters();
  const double steps = static_cast<double>(turn - first);
  if (cached == 0) return;
  state.counters["hit_rate"] = 1 - static_cast<double>(after.fetched_rows - before.fetched_rows) /
                                       static_cast<double>(after.rows - before.rows);
  state.counters["expected_hit_rate"] = 1 - missed / distinct;
  state.counters["bus_bytes"] = static_cast<double>(after.read_bytes + after.written_bytes -
                                                    before.read_bytes - before.written_bytes) /
                                steps;
  state.counters["waited_ms"] = 1e3 * (after.seconds - before.seconds) / steps;
  results().back().name += fmt::format(" (hit rate {:.2f})", state.counters["hit_rate"].value);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string markdown = take_options(argc, argv);
  for (const bool captured : {false, true}) {
    const char* const graph = captured ? "/graph" : "";
    for (const MerlinModel& model : models())
      for (const DensePrecision precision : {DensePrecision::float32, DensePrecision::bfloat16})
        add(fmt::format("step/Merlin {}/{}{}", model.name,
                        precision == DensePrecision::float32 ? "tf32" : "bf16", graph),
            [&model, precision, captured](benchmark::State& state) {
              merlin<float>(state, model, precision, captured);
            });
    for (const MerlinModel& model : models())
      add(fmt::format("step/Merlin {}/bf16 outputs{}", model.name, graph),
          [&model, captured](benchmark::State& state) {
            merlin<BFloat16>(state, model, DensePrecision::bfloat16, captured);
          });
    for (const DlrmCase how :
         {DlrmCase{"tf32"}, DlrmCase{"tf32, gradients' epilogues", DensePrecision::float32, true},
          DlrmCase{"bf16", DensePrecision::bfloat16}})
      add(fmt::format("step/DLRM/{}{}", how.name, graph),
          [how, captured](benchmark::State& state) { dlrm<Dots, float>(state, how, captured); });
    add(fmt::format("step/DLRM/bf16 outputs{}", graph), [captured](benchmark::State& state) {
      dlrm<Dots, BFloat16>(state, {"bf16 outputs", DensePrecision::bfloat16}, captured);
    });
    add(fmt::format("step/DCNv2/tf32{}", graph),
        [captured](benchmark::State& state) { dlrm<Cross, float>(state, {"tf32"}, captured); });
    add(fmt::format("step/DCNv2/bf16 outputs{}", graph), [captured](benchmark::State& state) {
      dlrm<Cross, BFloat16>(state, {"bf16 outputs", DensePrecision::bfloat16}, captured);
    });
  }
  for (const double skew : {0.0, 1.05})
    for (const TierCase how :
         {TierCase{"resident"}, TierCase{"on the host", Tier::host},
          TierCase{"cache of 5 %", Tier::host, 5}, TierCase{"cache of 25 %", Tier::host, 25},
          TierCase{"cache of 60 %", Tier::host, 60}})
      add(fmt::format("tiers/{}/{}", how.name, skew == 0 ? "uniform" : "zipf 1.05"),
          [how, skew](benchmark::State& state) { tiers(state, how, skew); });
  return run_cases(argc, argv, markdown);
}
