// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Whole training steps, batch 65,536, one GPU: route, lookup, interaction, MLPs forward and backward, loss, dense and embedding updates;
// called, and as CUDA graphs, which cost the host nothing. Batches are in device memory before the clock starts, and take turns.
//   Two of NVIDIA Merlin's synthetic models (distributed-embeddings, config_v3.py: Tiny and Small), Adagrad, MLP in TF32 or bfloat16.
//   Published on one A100: Tiny 24.4 ms, Small 67.4 ms.
//   DLRM: 26 tables x 1,000,000 rows x 128, one id each; bottom 13-512-256-128, top 1024-1024-512-256-1; SGD; dot in TF32, MLPs in TF32
//   or bfloat16.
#include <gpu/bench_gpu.hpp>
#include <gpu/graph.hpp>

#include <tessera/cuda/dense.cuh>
#include <tessera/cuda/dot.cuh>

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace {

/// `tables` tables; each is read by one feature per hotness.
struct Tables {
  int tables;
  std::vector<int> hotness;
  std::int64_t rows;
  int width;
};

struct SyntheticModel {
  std::string_view name;
  std::vector<Tables> groups;
  std::vector<std::int64_t> mlp;
};

const std::vector<SyntheticModel>& models() {
  static const std::vector<SyntheticModel> all{{"Tiny",
                                                {{1, {1, 10}, 10'000, 8},
                                                 {1, {1, 10}, 1'000'000, 16},
                                                 {1, {1, 10}, 25'000'000, 16},
                                                 {1, {1}, 25'000'000, 16},
                                                 {16, {1}, 10, 8},
                                                 {10, {1}, 1'000, 8},
                                                 {4, {1}, 10'000, 8},
                                                 {2, {1}, 100'000, 16},
                                                 {19, {1}, 1'000'000, 16}},
                                                {256, 128}},
                                               {"Small",
                                                {{5, {1, 30}, 10'000, 16},
                                                 {3, {1, 30}, 4'000'000, 32},
                                                 {1, {1, 30}, 50'000'000, 32},
                                                 {1, {1}, 50'000'000, 32},
                                                 {30, {1}, 10, 16},
                                                 {30, {1}, 1'000, 16},
                                                 {5, {1}, 10'000, 16},
                                                 {5, {1}, 100'000, 32},
                                                 {27, {1}, 4'000'000, 32}},
                                                {512, 256, 128}}};
  return all;
}

constexpr std::int64_t batch_size = 65536;
constexpr int numbers = 10;
constexpr std::size_t batches = 3;

using One = BasicSelfCommunicator<CudaMemory>;

DeviceArray<float> floats(const Cuda& backend, std::int64_t count) { return {backend, static_cast<std::size_t>(count)}; }

/// Times `train(b)`, which trains with batch b, or graphs of it.
template <class Train>
void measure_steps(benchmark::State& state, const Cuda& backend, const gpu::Stream& stream, bool captured, double bytes, double dram_bytes,
                   const Train& train) {
  std::vector<std::unique_ptr<Graph>> graphs;
  if (captured) train(0);  // buffers get their sizes
  for (std::size_t b = 0; captured && b < batches; ++b) graphs.push_back(std::make_unique<Graph>(stream, [&] { train(b); }));
  measure(state, backend, batches, bytes, dram_bytes, [&](std::size_t b) { captured ? graphs[b]->launch() : train(b); });
  state.counters["samples/s"] = static_cast<double>(batch_size) / (state.counters["us"] * 1e-6);
}

void merlin(benchmark::State& state, const SyntheticModel& model, DensePrecision precision, bool captured) {
  std::vector<std::string> names;
  std::vector<TableSpec> tables;
  std::vector<FeatureSpec> features;
  std::vector<int> hotness;
  names.reserve(1000);
  for (const Tables& group : model.groups)
    for (int t = 0; t < group.tables; ++t) {
      tables.push_back({names.emplace_back(fmt::format("t{}", tables.size())), group.rows, group.width});
      for (const int hot : group.hotness) {
        features.push_back({names.emplace_back(fmt::format("f{}", features.size())), tables.back().name, Pooling::sum, false});
        hotness.push_back(hot);
      }
    }
  std::vector<Shard> shards;
  for (std::size_t t = 0; t < tables.size(); ++t) shards.push_back({static_cast<int>(t), {0, tables[t].rows, 0, tables[t].width}, 0});

  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  One self{CudaMemory(backend)};
  const Adagrad adagrad{1e-7f, 0.1f};
  ShardedCollection<Widths<8, 16, 32>, Adagrad, Cuda, One> embeddings{
      self, backend, make_layout({1}, tables, features, shards), {.learning_rate = 0.001f, .optimizer = adagrad}};
  const std::int64_t columns = embeddings.columns() + numbers;
  std::vector<std::int64_t> sizes{columns};
  sizes.insert(sizes.end(), model.mlp.begin(), model.mlp.end());
  sizes.push_back(1);
  CudaMlp mlp(backend, sizes, {.precision = precision, .tf32 = precision == DensePrecision::float32});
  const CudaDenseParameters parameters(backend, 1, mlp);
  CudaDenseOptimizer<Adagrad> dense(backend, adagrad);

  std::vector<std::int64_t> bounds, host_offsets{0};
  for (const int hot : hotness) {
    bounds.push_back(batch_size * hot);
    for (std::int64_t s = 0; s < batch_size; ++s) host_offsets.push_back(host_offsets.back() + hot);
  }
  std::vector<DeviceArray<std::int64_t>> ids;
  double distinct_bytes = 0, entry_bytes = 0;
  for (std::size_t b = 0; b < batches; ++b) {
    std::vector<std::int64_t> drawn;
    for (std::size_t f = 0; f < features.size(); ++f) {
      const auto table = std::find_if(tables.begin(), tables.end(), [&](const TableSpec& t) { return t.name == features[f].table; });
      std::unordered_set<std::int64_t> seen;
      for (std::int64_t i = 0; i < batch_size * hotness[f]; ++i) {
        drawn.push_back(draw_id(b * 1000 + f, static_cast<std::uint64_t>(i), table->rows, 1.05, true));
        seen.insert(drawn.back());
      }
      distinct_bytes += static_cast<double>(seen.size()) * table->width * 4 / batches;
      entry_bytes += static_cast<double>(batch_size * hotness[f]) * table->width * 4 / batches;
    }
    ids.emplace_back(backend, drawn);
  }
  const DeviceArray<std::int64_t> offsets(backend, host_offsets);
  const DeviceArray<float> x = floats(backend, batch_size * columns), dx = floats(backend, batch_size * columns),
                           labels = floats(backend, batch_size), logits = floats(backend, batch_size),
                           d_logits = floats(backend, batch_size);
  const DeviceArray<double> loss(backend, 1);
  const MatrixView<float> vectors(x.data(), batch_size, embeddings.columns(), columns), d_x(dx.data(), batch_size, columns);

  // Rows once for the lookup and, with their states, once read and once written by the update; activations written and read, both ways.
  const double activations = 4.0 * 4 * static_cast<double>(batch_size * columns);
  const auto train = [&](std::size_t b) {
    KeyedJagged<std::int64_t> batch{std::ssize(features), batch_size, ids[b].span(), offsets.span(), {}};
    batch.bounds = bounds;
    const auto pooled = embeddings.forward(batch, vectors);
    mlp.forward({x.data(), batch_size, columns}, {logits.data(), batch_size, 1});
    CudaBinaryCrossEntropy{}.forward_backward(backend, {logits.data(), batch_size, 1}, labels.span(), {d_logits.data(), batch_size, 1},
                                              loss.data());
    mlp.backward({d_logits.data(), batch_size, 1}, d_x);
    dense.step(parameters, 0.001f);
    embeddings.backward(pooled, d_x.column_range(0, embeddings.columns()));
  };
  measure_steps(state, backend, stream, captured, 6 * entry_bytes + activations, 5 * distinct_bytes + activations, train);
}

struct DlrmCase {
  const char* name;
  DensePrecision precision = DensePrecision::float32;  ///< float32: products in TF32
  bool gradient_epilogues = false;
};

void dlrm(benchmark::State& state, const DlrmCase& how, bool captured) {
  constexpr int width = 128, tables = 26, numbers_in = 13;
  constexpr std::int64_t rows = 1'000'000, columns = (tables + 1) * std::int64_t{width};
  using Dot = CudaDotInteraction<tables + 1, width, 32, float, true>;
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  One self{CudaMemory(backend)};
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
  ShardedCollection<Widths<width>, Sgd, Cuda, One> embeddings{self, backend, make_layout({1}, specs, features, shards), {}};
  const CudaMlpOptions options{
      .precision = how.precision, .tf32 = how.precision == DensePrecision::float32, .gradient_epilogues = how.gradient_epilogues};
  CudaMlpOptions of_bottom = options;
  of_bottom.last_relu = true;
  CudaMlp bottom(backend, {numbers_in, 512, 256, width}, of_bottom);
  CudaMlp top(backend, {Dot::columns(), 1024, 1024, 512, 256, 1}, options);
  const CudaDenseParameters parameters(backend, 1, bottom, top);
  CudaDenseOptimizer<Sgd> dense(backend);

  std::vector<DeviceArray<std::int64_t>> ids;
  double distinct_bytes = 0;
  for (std::size_t b = 0; b < batches; ++b) {
    std::vector<std::int64_t> drawn;
    for (int t = 0; t < tables; ++t) {
      std::unordered_set<std::int64_t> seen;
      for (std::int64_t s = 0; s < batch_size; ++s)
        seen.insert(drawn.emplace_back(draw_id(b * 1000 + static_cast<std::size_t>(t), static_cast<std::uint64_t>(s), rows, 1.05, true)));
      distinct_bytes += static_cast<double>(seen.size()) * width * 4 / batches;
    }
    ids.emplace_back(backend, drawn);
  }
  const DeviceArray<float> numbers_of = floats(backend, batch_size * numbers_in), x = floats(backend, batch_size * columns),
                           dx = floats(backend, batch_size * columns), z = floats(backend, batch_size * Dot::columns()),
                           dz = floats(backend, batch_size * Dot::columns()), labels = floats(backend, batch_size),
                           logits = floats(backend, batch_size), d_logits = floats(backend, batch_size);
  const DeviceArray<double> loss(backend, 1);
  const MatrixView<float> vectors(x.data(), batch_size, columns), d_vectors(dx.data(), batch_size, columns),
      products(z.data(), batch_size, Dot::columns()), d_products(dz.data(), batch_size, Dot::columns()), out(logits.data(), batch_size, 1),
      d_out(d_logits.data(), batch_size, 1);
  const auto train = [&](std::size_t b) {
    bottom.forward({numbers_of.data(), batch_size, numbers_in}, vectors.column_range(0, width));
    const auto pooled = embeddings.forward(KeyedJagged<std::int64_t>{tables, batch_size, ids[b].span(), {}, {}},
                                           vectors.column_range(width, tables * width));
    Dot::forward(backend, vectors, products);
    top.forward(products, out);
    CudaBinaryCrossEntropy{}.forward_backward(backend, out, labels.span(), d_out, loss.data());
    top.backward(d_out, d_products);
    Dot::backward(backend, vectors, d_products, d_vectors);
    bottom.backward(d_vectors.column_range(0, width), {});
    dense.step(parameters, 0.01f);
    embeddings.backward(pooled, d_vectors.column_range(width, tables * width));
  };
  // Vectors written, read by both directions of the interaction, their gradients written and read; products and theirs written and read.
  const double activations = 4.0 * static_cast<double>(batch_size) * static_cast<double>(5 * columns + 4 * Dot::columns());
  const double entry_bytes = 4.0 * static_cast<double>(batch_size) * tables * width;
  measure_steps(state, backend, stream, captured, 3 * entry_bytes + activations, 3 * distinct_bytes + activations, train);
}

template <class F>
void add(const std::string& name, const F& f) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [f](benchmark::State& state) {
                                 try {
                                   f(state);
                                 } catch (const Error& error) {  // cuBLASLt need not have every epilogue
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.5);
}

}  // namespace

int main(int argc, char** argv) {
  for (const bool captured : {false, true}) {
    const char* const graph = captured ? "/graph" : "";
    for (const SyntheticModel& model : models())
      for (const DensePrecision precision : {DensePrecision::float32, DensePrecision::bfloat16})
        add(fmt::format("step/Merlin {}/{}{}", model.name, precision == DensePrecision::float32 ? "tf32" : "bf16", graph),
            [&model, precision, captured](benchmark::State& state) { merlin(state, model, precision, captured); });
    for (const DlrmCase how : {DlrmCase{"tf32"}, DlrmCase{"tf32, gradients' epilogues", DensePrecision::float32, true},
                               DlrmCase{"bf16", DensePrecision::bfloat16}})
      add(fmt::format("step/DLRM/{}{}", how.name, graph), [how, captured](benchmark::State& state) { dlrm(state, how, captured); });
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
