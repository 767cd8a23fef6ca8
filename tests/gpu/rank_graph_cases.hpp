// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tessera.cuh>

#include <gpu/array.hpp>
#include <gpu/graph.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

// Steps of a collection on several ranks as CUDA graphs. For communicators whose exchanges are work
// of the stream.

namespace {

using namespace tessera;

constexpr int rank_samples = 37;
/// Of each feature's ids in a rank's batch: bags have 0 to 3.
constexpr std::int64_t rank_bound = 3 * rank_samples;

/// A table of each policy: whole, cut by rows, by columns, and one copy per rank; and one that is
/// cut both ways. `sequences`: with sequences of some, and max pooling.
inline Layout rank_layout(int ranks, bool weighted, bool sequences = false) {
  const std::vector<TableSpec> tables{
      {"whole", 9, 4}, {"rows", 20, 8}, {"columns", 11, 8}, {"copies", 7, 4}, {"grid", 12, 8}};
  std::vector<FeatureSpec> features{
      {"f0", "whole", Pooling::sum, weighted}, {"f1", "rows"},
      {"f2", "rows", Pooling::mean, weighted}, {"f3", "columns", Pooling::sum, weighted},
      {"f4", "copies", Pooling::sqrtn},        {"f5", "grid", Pooling::sqrtn, weighted}};
  if (sequences)
    features = {{"h1", "rows", Pooling::none},
                {"f0", "whole", Pooling::sum, weighted},
                {"m2", "grid", Pooling::max},
                {"h3", "columns", Pooling::none},
                {"h4", "copies", Pooling::none},
                {"m1", "rows", Pooling::max},
                {"f1", "rows"}};
  std::vector<Shard> shards{{0, {0, 9, 0, 4}, ranks - 1}, {3, {0, 7, 0, 4}, every_rank}};
  for (int r = 0; r < ranks; ++r)
    shards.push_back({1, {even_cut(20, ranks, r), even_cut(20, ranks, r + 1), 0, 8}, r});
  for (const int column : {0, 4}) {
    shards.push_back({2, {0, 11, column, column + 4}, column / 4 % ranks});
    for (const int row : {0, 6})
      shards.push_back({4, {row, row + 6, column, column + 4}, (row / 6 + column / 4) % ranks});
  }
  return make_layout({ranks}, tables, features, shards);
}

/// Appends all rows.
void see_tables(const auto& embeddings, const Layout& layout, std::vector<float>& seen) {
  for (const TableSpec& t : layout.tables) {
    const std::size_t begin = seen.size();
    seen.resize(begin + static_cast<std::size_t>(t.rows * t.width));
    embeddings.tables().get(t.name, {seen.data() + begin, t.rows, t.width});
  }
}

/// Everything that a rank sees of some steps: called ones, or one called and the others replayed
/// from a graph.
template <class O, class Comm>
std::vector<float> train_rank(Comm& communicator, const gpu::Stream& stream, bool captured,
                              bool bags, bool weighted, bool sequences = false,
                              bool equal_batches = true) {
  const Cuda backend({.stream = stream.get()});
  const Layout layout = rank_layout(communicator.size(), weighted, sequences);
  using E = LayoutCollection<Widths<4, 8>, O, Cuda, Comm>;
  typename E::Options options;
  options.learning_rate = 0.25f;
  options.seed = 5;
  options.equal_batches = captured && equal_batches;
  if constexpr (requires { options.optimizer.group_of_table; })
    options.optimizer.group_of_table = {1, 0, 1, 0, 2};
  E embeddings(communicator, backend, layout, options);
  const std::int64_t features = std::ssize(layout.features), bags_in_all = features * rank_samples;
  const std::vector<std::int64_t> bounds(bags ? static_cast<std::size_t>(features) : 0, rank_bound);
  // Room for the largest batch; a called step must be told how many ids it has.
  const auto room = static_cast<std::size_t>(bags ? features * rank_bound : bags_in_all);
  const Array<std::int32_t, Cuda> ids(backend, std::vector<std::int32_t>(room));
  const Array<std::int64_t, Cuda> offsets(
      backend, std::vector<std::int64_t>(bags ? static_cast<std::size_t>(bags_in_all) + 1 : 0));
  const Array<float, Cuda> weights(backend, std::vector<float>(weighted ? room : 0)),
      of_weights(backend, std::vector<float>(room)),
      output(backend,
             std::vector<float>(static_cast<std::size_t>(rank_samples * layout.columns())));
  const MatrixView<float> rows(output.data(), rank_samples, layout.columns());
  const KeyedJagged<std::int32_t> batch{features,       rank_samples,   ids.span(),
                                        offsets.span(), weights.span(), bounds};
  // vectors of sequences, which are their gradients, too
  std::vector<Array<float, Cuda>> vectors;
  std::vector<SequenceGradient> gradients;
  for (const FeatureSpec& feature : layout.features)
    if (feature.pooling == Pooling::none)
      vectors.emplace_back(backend, std::vector<float>(static_cast<std::size_t>(rank_bound * 8)));
  const auto step = [&] {
    const auto pooled = embeddings.forward(batch, rows);
    gradients.clear();
    for (std::size_t f = 0; f < layout.features.size(); ++f) {
      if (layout.features[f].pooling != Pooling::none) continue;
      const auto view = pooled.sequence(static_cast<int>(f));
      const MatrixView<float> x(vectors[gradients.size()].data(), view.ids(), view.width());
      view.materialize(x);
      gradients.push_back(view.per_id(x));
    }
    if (weighted)
      embeddings.backward(pooled, rows, of_weights.span(), gradients);
    else
      embeddings.backward(pooled, rows, gradients);
  };

  std::vector<float> seen;
  const auto see_some = [&](const Array<float, Cuda>& values, std::size_t count) {
    seen.resize(seen.size() + count);
    backend.copy(seen.data() + seen.size() - count, values.data(), count * sizeof(float));
    backend.synchronize();
  };
  const auto see = [&](const auto& values) { see_some(values, values.span().size()); };
  std::optional<Graph> graph;
  for (int n = 0, steps = sequences && communicator.size() == 1 ? 9 : 4; n < steps; ++n) {
    std::vector<std::int32_t> new_ids;
    std::vector<std::int64_t> new_offsets{0};
    std::vector<float> new_weights;
    for (std::int64_t f = 0; f < features; ++f) {
      const std::int64_t table_rows = layout.tables[layout.feature_table[f]].rows;
      for (int s = 0; s < rank_samples; ++s) {
        for (int i = 0, count = bags ? (s + n + communicator.rank()) % 4 : 1; i < count; ++i) {
          new_ids.push_back(static_cast<std::int32_t>(
              (s * 5 + i * 3 + n * 7 + communicator.rank()) % table_rows));
          new_weights.push_back(static_cast<float>((s + 3 * i + n) % 7) * 0.25f - 0.5f);
        }
        new_offsets.push_back(std::ssize(new_ids));
      }
    }
    backend.copy(ids.data(), new_ids.data(), new_ids.size() * sizeof(std::int32_t));
    if (bags)
      backend.copy(offsets.data(), new_offsets.data(), new_offsets.size() * sizeof(std::int64_t));
    if (weighted)
      backend.copy(weights.data(), new_weights.data(), new_weights.size() * sizeof(float));
    backend.synchronize();
    if (!captured || n == 0) {
      step();
    } else {
      if (!graph) graph.emplace(stream, step);
      graph->launch();
    }
    see(output);
    if (weighted) see(of_weights);
    std::size_t next = 0;
    for (std::int64_t f = 0; f < features; ++f) {
      if (layout.features[static_cast<std::size_t>(f)].pooling != Pooling::none) continue;
      const auto bag = static_cast<std::size_t>(f * rank_samples);
      const auto ids_of = new_offsets[bag + rank_samples] - new_offsets[bag];
      const auto width = layout.tables[layout.feature_table[static_cast<std::size_t>(f)]].width;
      see_some(vectors[next++], static_cast<std::size_t>(ids_of * width));
    }
  }
  see_tables(embeddings, layout, seen);
  return seen;
}

/// Whether replayed steps gave the bits of called ones, with optimizers of both kinds and every
/// kind of batch, or bags with weights alone.
template <class Comm>
bool graphs_train_like_calls(Comm& communicator, const gpu::Stream& stream,
                             bool every_kind = true) {
  bool equal = true;
  const auto compare = [&]<class O>(std::type_identity<O>, bool bags, bool weighted) {
    equal &= train_rank<O>(communicator, stream, true, bags, weighted) ==
             train_rank<O>(communicator, stream, false, bags, weighted);
  };
  for (const bool bags : {false, true})
    for (const bool weighted : {false, true}) {
      if (!every_kind && !(bags && weighted)) continue;
      compare(std::type_identity<Sgd>(), bags, weighted);
      compare(std::type_identity<RowWiseAdagrad>(), bags, weighted);
    }
  return equal;
}

}  // namespace
