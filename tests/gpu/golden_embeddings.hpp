// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/io/safetensors.hpp>
#include <tessera/tessera.cuh>

#include <gpu/golden_folder.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <list>
#include <span>
#include <string>
#include <vector>

// What golden vectors of embeddings say, and their parts on Cuda.

namespace {

using namespace tessera;

struct GoldenCase {
  SafetensorsReader file;
  std::vector<std::string> names;  // specs point into these
  std::vector<TableSpec> tables;
  std::vector<FeatureSpec> features;
  nlohmann::json json;

  explicit GoldenCase(const std::filesystem::path& path)
      : file(path), json(read_golden_case(path)) {
    const bool model = !json.contains("features");  // which has a feature per table
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
                          detail::find_pooling(f["pooling"].get<std::string>()).value(),
                          f.value("weighted", false)});
  }
  const TableSpec& table(const std::string& wanted) const {
    for (const TableSpec& t : tables)
      if (t.name == wanted) return t;
    throw InvalidArgument("no table " + wanted);
  }
};

/// Whole tables on one rank, or blocks of rows on each.
inline Layout golden_layout(const GoldenCase& golden, int ranks) {
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

/// Ids of samples [begin, end) of one batch, of all features, and where their bags begin.
struct GoldenIds {
  std::vector<std::int64_t> ids, offsets{0};
  std::vector<float> weights;

  GoldenIds(const GoldenCase& golden, const std::string& prefix, std::int64_t begin,
            std::int64_t end) {
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
  }
};

}  // namespace
