// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/io/safetensors.hpp>
#include <tessera/tessera.cuh>

#include <doctest/doctest.h>
#include <gpu/golden_folder.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <numeric>
#include <span>
#include <string>
#include <vector>

// Golden vectors of kind "embedding" on Cuda: every step's output and sequences, and the tables at
// the end.

namespace {

using namespace tessera;

struct GoldenCase {
  SafetensorsReader file;
  std::vector<std::string> names;  // specs point into these
  std::vector<TableSpec> tables;
  std::vector<FeatureSpec> features;
  nlohmann::json json;

  explicit GoldenCase(const std::filesystem::path& path)
      : file(path), json(nlohmann::json::parse(file.metadata().at("case"))) {
    const bool model = json["kind"] != "embedding";  // which has a feature per table
    for (const auto& t : json["tables"]) names.push_back(t["name"]);
    if (!model)
      for (const auto& f : json["features"]) names.push_back(f["name"]);
    std::size_t name = 0;
    for (const auto& t : json["tables"])
      tables.push_back({names[name++], t["rows"].get<std::int64_t>(), t["width"].get<int>()});
    for (const TableSpec& t : tables)
      if (model) features.push_back({t.name, t.name});
    for (const auto& f : model ? nlohmann::json::array() : json["features"])
      features.push_back({names[name++], table(f["table"]).name,
                          find_pooling(f["pooling"].get<std::string>()).value(),
                          f.value("weighted", false)});
  }
  const TableSpec& table(const std::string& wanted) const {
    for (const TableSpec& t : tables)
      if (t.name == wanted) return t;
    throw InvalidArgument("no table " + wanted);
  }
};

/// Whole tables on one rank, or blocks of rows on each.
Layout golden_layout(const GoldenCase& golden, int ranks) {
  std::vector<Shard> shards;
  for (std::size_t t = 0; t < golden.tables.size(); ++t)
    for (int r = 0; r < ranks; ++r) {
      const TableSpec& table = golden.tables[t];
      const Rectangle block{even_cut(table.rows, ranks, r), even_cut(table.rows, ranks, r + 1), 0,
                            table.width};
      if (!block.empty()) shards.push_back({static_cast<int>(t), block, r});
    }
  return make_layout({ranks}, golden.tables, golden.features, shards);
}

template <class T>
class GoldenArray {
 public:
  GoldenArray(const Cuda& backend, std::span<const T> values) {
    backend.copy(buffer_.resize(backend, values.size()).data(), values.data(), values.size_bytes());
    backend.synchronize();
  }
  std::span<T> span() const { return buffer_.span(); }

 private:
  Buffer<T, Cuda> buffer_;
};

/// The sequence features of samples [begin, end): compares their vectors with the case's, and holds
/// the gradients to feed back.
class GoldenSequences {
 public:
  template <class Found>
  GoldenSequences(const Cuda& backend, const GoldenCase& golden, const Found& found,
                  const std::string& prefix, std::int64_t begin, std::int64_t end) {
    for (const FeatureSpec& f : golden.features) {
      if (f.pooling != Pooling::none) continue;
      const auto view = found.sequence(f.name);
      const std::string feature = prefix + "feature." + std::string(f.name) + ".";
      const auto offsets = golden.file.read<std::int64_t>(feature + "offsets");
      const auto first = static_cast<std::size_t>(offsets[static_cast<std::size_t>(begin)] *
                                                  view.width()),
                 count = static_cast<std::size_t>(view.ids() * view.width());
      const GoldenArray<float> rows(backend, std::vector<float>(count));
      view.materialize({rows.span().data(), view.ids(), view.width()});
      std::vector<float> output(count);
      backend.copy(output.data(), rows.span().data(), count * sizeof(float));
      backend.synchronize();
      const std::vector<float> expected = golden.file.read<float>(feature + "rows");
      const auto last = offsets[static_cast<std::size_t>(end)] * view.width();
      if (first + count != static_cast<std::size_t>(last) ||
          !golden_close(output, std::span(expected).subspan(first, count)))
        throw Error(feature + "rows differs");
      const std::vector<float> gradient = golden.file.read<float>(feature + "grad_rows");
      memory_.emplace_back(backend, std::span(gradient).subspan(first, count));
      gradients.push_back(view.per_id({memory_.back().span().data(), view.ids(), view.width()}));
    }
  }
  std::vector<SequenceGradient> gradients;

 private:
  std::list<GoldenArray<float>> memory_;
};

template <class O>
void run_golden(const GoldenCase& golden, const O& optimizer, int ranks) {
  const Layout layout = golden_layout(golden, ranks);
  const auto batch = golden.json["batch"].get<std::int64_t>();
  std::vector<std::vector<float>> finals;
  for (const TableSpec& t : golden.tables)
    finals.emplace_back(static_cast<std::size_t>(t.rows * t.width));
  run_ranks(ranks, [&](ThreadCommunicator& host) {
    const Cuda backend;
    BasicThreadCommunicator<CudaTransfer> communicator(host.group(), host.rank(),
                                                       CudaTransfer(backend));
    LayoutCollection<Widths<16>, O, Cuda, BasicThreadCommunicator<CudaTransfer>> embeddings{
        communicator,
        backend,
        layout,
        {.learning_rate = golden.json["optimizer"]["lr"].get<float>(), .optimizer = optimizer}};
    for (const TableSpec& t : golden.tables) {
      const std::vector<float> initial =
          golden.file.read<float>("table." + std::string(t.name) + ".initial");
      embeddings.tables().set(t.name, {initial.data(), t.rows, t.width});
    }
    const std::int64_t begin = even_cut(batch, ranks, host.rank()),
                       end = even_cut(batch, ranks, host.rank() + 1);
    for (int step = 0; step < golden.json["steps"].get<int>(); ++step) {
      const std::string prefix = "step" + std::to_string(step) + ".";
      std::vector<std::int64_t> ids, offsets{0};
      std::vector<float> weights;
      for (const FeatureSpec& f : golden.features) {
        const std::string feature = prefix + "feature." + std::string(f.name) + ".";
        const auto feature_offsets = golden.file.read<std::int64_t>(feature + "offsets"),
                   feature_ids = golden.file.read<std::int64_t>(feature + "ids");
        const auto feature_weights = f.weighted ? golden.file.read<float>(feature + "weights")
                                                : std::vector<float>(feature_ids.size(), 1.0f);
        for (std::int64_t s = begin; s < end; ++s) {
          for (std::int64_t i = feature_offsets[static_cast<std::size_t>(s)];
               i < feature_offsets[static_cast<std::size_t>(s) + 1]; ++i) {
            ids.push_back(feature_ids[static_cast<std::size_t>(i)]);
            weights.push_back(feature_weights[static_cast<std::size_t>(i)]);
          }
          offsets.push_back(static_cast<std::int64_t>(ids.size()));
        }
      }
      const GoldenArray<std::int64_t> device_ids(backend, ids), device_offsets(backend, offsets);
      const GoldenArray<float> device_weights(backend, weights);
      const auto pooled = embeddings.forward(KeyedJagged<std::int64_t>{
          static_cast<std::int64_t>(golden.features.size()), end - begin, device_ids.span(),
          device_offsets.span(), device_weights.span()});
      const auto first = static_cast<std::size_t>(begin * layout.columns()),
                 count = static_cast<std::size_t>((end - begin) * layout.columns());
      std::vector<float> output(count);
      backend.copy(output.data(), pooled.values.data, count * sizeof(float));
      backend.synchronize();
      const auto pooled_floats = [&](const char* name) {
        return count == 0 ? std::vector<float>() : golden.file.read<float>(prefix + name);
      };
      const std::vector<float> expected = pooled_floats("output");
      if (!golden_close(output, std::span(expected).subspan(first, count)))
        throw Error(prefix + "output differs");
      const std::vector<float> gradient = pooled_floats("grad_output");
      const GoldenArray<float> device_gradient(backend, std::span(gradient).subspan(first, count));
      const GoldenSequences sequences(backend, golden, pooled, prefix, begin, end);
      embeddings.backward(pooled, {device_gradient.span().data(), end - begin, layout.columns()},
                          sequences.gradients);
    }
    for (int rank = 0; rank < ranks; ++rank, host.barrier())
      if (rank == host.rank())
        for (std::size_t t = 0; t < golden.tables.size(); ++t)
          embeddings.tables().get(golden.tables[t].name, {finals[t].data(), golden.tables[t].rows,
                                                          golden.tables[t].width});
  });
  for (std::size_t t = 0; t < golden.tables.size(); ++t) {
    INFO("table ", std::string(golden.tables[t].name), ", ranks ", ranks);
    CHECK(golden_close(finals[t], golden.file.read<float>(
                                      "table." + std::string(golden.tables[t].name) + ".final")));
  }
}

void run_golden_embedding(const std::filesystem::path& path) {
  const GoldenCase golden(path);
  // an optimizer per table: tests/golden has those
  if (golden.json["kind"] != "embedding" || !golden.json.contains("optimizer")) return;
  INFO(path.filename().string());
  const nlohmann::json& o = golden.json["optimizer"];
  const std::string kind = o["kind"];
  for (const int ranks : {1, 3}) {
    if (kind == "sgd") run_golden(golden, Sgd{}, ranks);
    if (kind == "adagrad")
      run_golden(golden, Adagrad{o["eps"], o.value("initial_accumulator", 0.0f)}, ranks);
    if (kind == "rowwise_adagrad")
      run_golden(golden, RowWiseAdagrad{o["eps"], o.value("initial_accumulator", 0.0f)}, ranks);
    if (kind == "adam") run_golden(golden, Adam{o["beta1"], o["beta2"], o["eps"]}, ranks);
  }
}

}  // namespace

TEST_CASE("golden vectors of embeddings, whole tables and tables cut by rows") {
  run_golden_folder(run_golden_embedding);
}
