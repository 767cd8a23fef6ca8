// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "id_statistics.hpp"

#include <tessera/core/error.hpp>
#include <tessera/planner/power_law.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace plan {
namespace {

using namespace tessera;
using Json = nlohmann::ordered_json;
using Counts = std::unordered_map<std::int64_t, std::int64_t>;

/// The share of the ids in the first eighth of the rows beyond that of any eighth, over that of the
/// most frequent eighth: 1 if frequent rows come first, about 0 if they are anywhere. No value: rows
/// are too much alike to tell.
std::optional<double> sortedness(const Counts& counts, const std::vector<std::int64_t>& sorted,
                                 std::int64_t rows, double ids) {
  const std::int64_t eighth = std::max<std::int64_t>(1, rows / 8);
  double first = 0, most = 0;
  for (const auto& [row, count] : counts)
    if (row < eighth) first += static_cast<double>(count);
  for (std::size_t k = 0; k < sorted.size() && static_cast<std::int64_t>(k) < eighth; ++k)
    most += static_cast<double>(sorted[k]);
  const double even = static_cast<double>(eighth) / static_cast<double>(rows);
  if (most / ids < even + 0.1) return std::nullopt;
  return std::max(0.0, (first / ids - even) / (most / ids - even));
}

Json feature_json(const FeatureIds& feature, std::string_view name) {
  std::vector<std::int64_t> lengths;
  for (std::size_t s = 0; s + 1 < feature.offsets.size(); ++s)
    lengths.push_back(feature.offsets[s + 1] - feature.offsets[s]);
  std::sort(lengths.begin(), lengths.end());
  const auto at = [&](double share) {
    return lengths[static_cast<std::size_t>(share * static_cast<double>(lengths.size() - 1))];
  };
  return {
      {"name", name},
      {"hotness", static_cast<double>(feature.ids.size()) / static_cast<double>(lengths.size())},
      {"lengths", {{"p10", at(0.1)}, {"p50", at(0.5)}, {"p90", at(0.9)}, {"most", at(1)}}}};
}

}  // namespace

double fitted_skew(double ids, double rows, double distinct) {
  double low = 0, high = 4;  // the more skew, the fewer rows
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (tessera::detail::distinct_rows(ids, rows, 0, rows, middle) > distinct ? low : high) = middle;
  }
  return low < 1e-3 ? 0 : low;
}

std::string statistics_text(const std::vector<FeatureIds>& ids,
                            const std::vector<FeatureSpec>& features,
                            const std::vector<TableSpec>& tables,
                            const std::vector<int>& feature_table, std::int64_t batch) {
  const std::int64_t samples = ids.front().samples();
  require<DataError>(samples > 0, "recorded ids: there is no sample");
  batch = std::min(batch, samples);
  Json of_tables = Json::array(), of_features = Json::array();
  double sorted_ids = 0, told_ids = 0;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    Counts counts;
    double given = 0, of_batch = 0, distinct = 0;
    const std::int64_t batches = samples / batch;
    for (std::int64_t b = 0; b < batches; ++b) {
      std::unordered_set<std::int64_t> touched;
      for (std::size_t f = 0; f < features.size(); ++f) {
        if (feature_table[f] != static_cast<int>(t)) continue;
        const auto begin = ids[f].offsets[static_cast<std::size_t>(b * batch)],
                   end = ids[f].offsets[static_cast<std::size_t>((b + 1) * batch)];
        touched.insert(ids[f].ids.begin() + begin, ids[f].ids.begin() + end);
        of_batch += static_cast<double>(end - begin);
      }
      distinct += static_cast<double>(touched.size());
    }
    of_batch /= static_cast<double>(batches);
    distinct /= static_cast<double>(batches);
    for (std::size_t f = 0; f < features.size(); ++f)
      if (feature_table[f] == static_cast<int>(t))
        for (const std::int64_t id : ids[f].ids) ++counts[id], ++given;
    Json json{{"name", tables[t].name}, {"rows", tables[t].rows}, {"ids", given}};
    if (given > 0) {
      std::vector<std::int64_t> sorted;
      for (const auto& [row, count] : counts) sorted.push_back(count);
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      if (const auto order = sortedness(counts, sorted, tables[t].rows, given)) {
        json["sorted"] = *order;
        told_ids += given;
        sorted_ids += given * *order;
      }
      json["distinct_rows"] = counts.size();
      json["ids_of_batch"] = of_batch;
      json["distinct_rows_of_batch"] = distinct;
      json["duplicates_of_batch"] = of_batch > 0 ? 1 - distinct / of_batch : 0;
      json["skew"] = fitted_skew(of_batch, static_cast<double>(tables[t].rows), distinct);
      for (const auto& group :
           tessera::detail::row_frequencies(std::move(sorted), tables[t].rows).groups)
        json["frequencies"].push_back({static_cast<std::int64_t>(group.rows), group.share});
    }
    of_tables.push_back(std::move(json));
  }
  for (std::size_t f = 0; f < features.size(); ++f)
    of_features.push_back(feature_json(ids[f], features[f].name));
  return Json{{"tessera_statistics", 1},
              {"samples", samples},
              {"batch", batch},
              {"sorted_ids", told_ids > 0 && sorted_ids >= 0.9 * told_ids},
              {"tables", of_tables},
              {"features", of_features}}
             .dump(1) +
         "\n";
}

}  // namespace plan
