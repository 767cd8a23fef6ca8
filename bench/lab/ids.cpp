// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "ids.hpp"

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/planner/power_law.hpp>
#include <tessera_data/permutation.hpp>
#include <tessera_data/synthetic.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace lab {

using namespace tessera;
using plan::FeatureIds;

Batches batches_of(const std::vector<FeatureIds>& features, std::int64_t samples, int most,
                   const std::string& path) {
  const std::int64_t there = features.front().samples();
  require<DataError>(there > 0, "'{}' holds no samples", path);
  require<DataError>(there >= samples,
                     "'{}' has {} samples, fewer than a batch of {}; give --batch {} or less", path,
                     there, samples, there);
  Batches all;
  all.samples = samples;
  const std::int64_t count = std::min<std::int64_t>(most, there / samples);
  bool one_hot = true;  // of all batches, or none
  for (const FeatureIds& feature : features)
    for (std::size_t s = 0; s < static_cast<std::size_t>(count * samples); ++s)
      one_hot = one_hot && feature.offsets[s + 1] - feature.offsets[s] == 1;
  for (std::int64_t b = 0; b < count; ++b) {
    std::vector<std::int64_t>&ids = all.ids.emplace_back(), &offsets = all.offsets.emplace_back();
    if (!one_hot) offsets.push_back(0);
    for (const FeatureIds& feature : features)
      for (std::int64_t s = b * samples; s < (b + 1) * samples; ++s) {
        const auto begin = feature.offsets[static_cast<std::size_t>(s)],
                   end = feature.offsets[static_cast<std::size_t>(s) + 1];
        ids.insert(ids.end(), feature.ids.begin() + begin, feature.ids.begin() + end);
        if (!one_hot) offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
  }
  all.source = fmt::format("{} ({} samples, {} batches of {})", path, there, count, samples);
  for (std::size_t b = 0; b < all.ids.size(); ++b)
    all.views.push_back(
        {static_cast<std::int64_t>(features.size()), samples, all.ids[b], all.offsets[b], {}});
  return all;
}

namespace {

/// Draws rows as often as a table's were measured.
class MeasuredRows {
 public:
  MeasuredRows(const TableSpec& table, bool sorted, std::uint64_t key)
      : table_(table), sorted_(sorted), order_(table.rows, key) {
    double share = 0, rows = 0;
    if (table.frequencies == nullptr) return;
    for (const auto& group : table.frequencies->groups) {
      shares_.push_back(share += group.share);
      rows_.push_back(rows);
      rows += group.rows;
    }
  }
  /// `u` and `v`: two random numbers in [0, 1).
  std::int64_t operator()(double u, double v) const {
    std::int64_t row = 0;
    if (shares_.empty()) {  // no id was recorded
      row = static_cast<std::int64_t>(u * static_cast<double>(table_.rows));
    } else {
      const auto g = static_cast<std::size_t>(
          std::upper_bound(shares_.begin(), shares_.end() - 1, u * shares_.back()) -
          shares_.begin());
      row = static_cast<std::int64_t>(rows_[g] + v * table_.frequencies->groups[g].rows);
    }
    row = std::min(row, table_.rows - 1);
    return sorted_ ? row : order_(row);
  }

 private:
  const TableSpec& table_;
  bool sorted_;
  Permutation order_;
  std::vector<double> shares_, rows_;  // up to a group's end; before it
};

Batches draw_measured(const std::vector<FeatureSpec>& features,
                      const std::vector<TableSpec>& tables, const std::vector<int>& feature_table,
                      std::int64_t samples, int count, bool sorted_ids, std::uint64_t seed) {
  std::vector<MeasuredRows> laws;
  for (std::size_t t = 0; t < tables.size(); ++t)
    laws.emplace_back(tables[t], sorted_ids, seed + t);
  Batches all;
  all.samples = samples;
  std::uint64_t number = 0;
  const auto random = [&] {
    return static_cast<double>(random_word(seed, 7, number++) >> 11) * 0x1p-53;
  };
  const bool one_hot = std::all_of(features.begin(), features.end(),
                                   [](const FeatureSpec& f) { return f.hotness == 1; });
  for (int b = 0; b < count; ++b) {
    std::vector<std::int64_t>&ids = all.ids.emplace_back(), &offsets = all.offsets.emplace_back();
    if (!one_hot) offsets.push_back(0);
    for (std::size_t f = 0; f < features.size(); ++f)
      for (std::int64_t s = 0; s < samples; ++s) {
        const double hotness = features[f].hotness, whole = std::floor(hotness);
        auto more = static_cast<std::int64_t>(whole);
        if (hotness > whole && random() < hotness - whole) ++more;
        for (; more > 0; --more) {
          const double u = random();
          ids.push_back(laws[static_cast<std::size_t>(feature_table[f])](u, random()));
        }
        if (!one_hot) offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
  }
  for (std::size_t b = 0; b < all.ids.size(); ++b)
    all.views.push_back(
        {static_cast<std::int64_t>(features.size()), samples, all.ids[b], all.offsets[b], {}});
  all.source = fmt::format("drawn as measured ({} batches of {})", count, samples);
  return all;
}

}  // namespace

Batches draw_batches(const std::vector<FeatureSpec>& features, const std::vector<TableSpec>& tables,
                     const std::vector<int>& feature_table, std::int64_t samples, int count,
                     double skew, bool sorted_ids, std::uint64_t seed) {
  if (std::any_of(tables.begin(), tables.end(),
                  [](const TableSpec& table) { return table.frequencies != nullptr; }))
    return draw_measured(features, tables, feature_table, samples, count, sorted_ids, seed);
  std::vector<SyntheticFeature> drawn;
  std::vector<double> dropped;  // by feature: the share of samples with one id less
  for (std::size_t f = 0; f < features.size(); ++f) {
    const TableSpec& table = tables[static_cast<std::size_t>(feature_table[f])];
    const double hotness = features[f].hotness > 0 ? features[f].hotness : table.hotness;
    require<DataError>(table.rows <= std::int64_t{1} << 32,
                       "table '{}' has {} rows: ids are drawn for at most 2^32; give recorded ids "
                       "with --ids, or fewer rows",
                       table.name, table.rows);
    drawn.push_back({.rows = table.rows,
                     .alpha = table.skew < 0 ? skew : table.skew,
                     .min_hotness = static_cast<std::int32_t>(std::ceil(hotness)),
                     .max_hotness = static_cast<std::int32_t>(std::ceil(hotness))});
    dropped.push_back(std::ceil(hotness) - hotness);
  }
  const SyntheticClicks clicks(drawn,
                               {.seed = seed, .dense_columns = 0, .scatter_ids = !sorted_ids});
  Batches all;
  all.samples = samples;
  for (std::int64_t b = 0; b < count; ++b) {
    ClickBatch<std::int64_t> batch;
    clicks.generate(b * samples, samples, batch);
    std::vector<std::int64_t>&ids = all.ids.emplace_back(), &offsets = all.offsets.emplace_back();
    if (batch.offsets.empty() && std::ranges::all_of(dropped, [](double d) { return d == 0; })) {
      ids.assign(batch.ids.begin(), batch.ids.end());
      continue;
    }
    offsets.push_back(0);
    auto from = batch.ids.begin();
    for (std::size_t f = 0; f < features.size(); ++f)
      for (std::int64_t s = 0; s < samples; ++s) {
        const double draw =
            static_cast<double>(random_word(seed, 8, f, b * samples + s) >> 11) * 0x1p-53;
        ids.insert(ids.end(), from, from + drawn[f].max_hotness - (draw < dropped[f] ? 1 : 0));
        from += drawn[f].max_hotness;
        offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
  }
  for (std::size_t b = 0; b < all.ids.size(); ++b)
    all.views.push_back(
        {static_cast<std::int64_t>(features.size()), samples, all.ids[b], all.offsets[b], {}});
  all.source = fmt::format("drawn by power laws ({} batches of {})", count, samples);
  return all;
}

void count_rows(Batches& batches, const Layout& layout) {
  const std::size_t tables = layout.tables.size();
  const std::vector<int>& feature_table = layout.feature_table;
  const auto count = static_cast<double>(batches.views.size());
  batches.hotness.assign(feature_table.size(), 0);
  batches.distinct.assign(tables, 0);
  batches.given.assign(tables, 0);
  for (const KeyedJagged<std::int64_t>& batch : batches.views)
    for (std::size_t t = 0; t < tables; ++t) {
      std::unordered_set<std::int64_t> rows;
      for (std::size_t f = 0; f < feature_table.size(); ++f) {
        if (feature_table[f] != static_cast<int>(t)) continue;
        const std::int64_t begin = batch.begin(static_cast<std::int64_t>(f)),
                           end = batch.end(static_cast<std::int64_t>(f));
        rows.insert(batch.ids.begin() + begin, batch.ids.begin() + end);
        batches.given[t] += static_cast<double>(end - begin) / count;
        batches.hotness[f] +=
            static_cast<double>(end - begin) / (count * static_cast<double>(batches.samples));
      }
      batches.distinct[t] += static_cast<double>(rows.size()) / count;
    }
  const auto add = [&](std::int64_t value) {
    batches.checksum = random_word(batches.checksum, static_cast<std::uint64_t>(value));
  };
  for (const TableSpec& table : layout.tables) add(table.rows), add(table.width);
  for (std::size_t f = 0; f < layout.features.size(); ++f)
    add(feature_table[f]), add(static_cast<std::int64_t>(layout.features[f].pooling));
  for (const auto* const lists : {&batches.ids, &batches.offsets})
    for (const auto& list : *lists)
      for (const std::int64_t value : list) add(value);
}

}  // namespace lab
