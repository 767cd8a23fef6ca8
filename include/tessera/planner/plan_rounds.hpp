// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/planner.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A plan as the compiler keeps it: no memory of its own.
template <std::size_t Tables, std::size_t MaxParts>
struct StoredPlan {
  std::array<Cut, Tables> cuts{};
  std::array<std::int32_t, Tables> parts{};
  std::array<PlannedPolicy, Tables> policies{};
  std::array<Tier, Tables> tiers{};
  std::array<std::int64_t, Tables> cache_rows{};
  std::array<std::int16_t, Tables> place_count{};
  std::array<std::array<std::int16_t, MaxParts>, Tables> places{};
  bool fits = true;

  constexpr void keep(std::size_t t, const TableCut& cut) {
    cuts[t] = cut.cut;
    parts[t] = cut.parts;
    policies[t] = cut.policy;
    tiers[t] = cut.tier;
    cache_rows[t] = cut.cache_rows;
    place_count[t] = static_cast<std::int16_t>(cut.places.size());
    for (std::size_t k = 0; k < cut.places.size(); ++k)
      places[t][k] = static_cast<std::int16_t>(cut.places[k]);
  }
  /// Keeps table `from` of another plan.
  template <std::size_t Others>
  constexpr void keep(std::size_t t, const StoredPlan<Others, MaxParts>& other, std::size_t from) {
    cuts[t] = other.cuts[from];
    parts[t] = other.parts[from];
    policies[t] = other.policies[from];
    tiers[t] = other.tiers[from];
    cache_rows[t] = other.cache_rows[from];
    place_count[t] = other.place_count[from];
    for (int k = 0; k < place_count[t]; ++k) places[t][k] = other.places[from][k];
  }
  constexpr PlanChoice choice() const {
    PlanChoice c;
    c.tables.reserve(Tables);
    for (std::size_t t = 0; t < Tables; ++t) {
      TableCut cut{.cut = cuts[t],
                   .parts = parts[t],
                   .policy = policies[t],
                   .tier = tiers[t],
                   .cache_rows = cache_rows[t]};
      for (int k = 0; k < place_count[t]; ++k) cut.places.push_back(places[t][k]);
      c.tables.push_back(std::move(cut));
    }
    return c;
  }
};

// Compilers limit the steps of each constant evaluation. So a large model is planned in rounds of a
// few tables, the largest first, each in an evaluation of its own, beside what the rounds before
// have placed. The same functions run at run time.

/// Models of more tables are planned in rounds while compiling.
inline constexpr std::size_t tables_at_once = 24;

/// Returns the number of tables of a round: fewer on many ranks, which every part is tried on.
constexpr std::size_t round_size(int ranks) {
  return static_cast<std::size_t>(std::clamp(512 / ranks, 1, 12));
}
constexpr std::int64_t round_effort(int ranks) {
  const std::int64_t places = static_cast<std::int64_t>(round_size(ranks)) * ranks;
  return std::max<std::int64_t>(2000, (ranks > 256 ? 1 : ranks > 64 ? 6 : 10) * places);
}

/// A model's tables and features in the order of its rounds, and what all rounds share. `Tables`
/// and the others: arrays or vectors.
template <class Tables, class Features, class Numbers>
struct RoundModel {
  Tables tables{};
  Features features{};
  Numbers feature_table{};  // by feature
  Numbers order{};          // tables, the largest first
  bool ragged = false;

  constexpr std::size_t rounds(int ranks) const {
    return (tables.size() + round_size(ranks) - 1) / round_size(ranks);
  }
  constexpr std::size_t first(std::size_t round, int ranks) const {
    return std::min(tables.size(), round * round_size(ranks));
  }

  /// Sets `order`, by shares of all bytes and of all lookups, and `ragged`.
  constexpr void sort(const MemoryCost& memory) {
    std::vector<double> lookups(tables.size(), 0.0);
    for (std::size_t f = 0; f < features.size(); ++f) {
      const TableSpec& table = tables[static_cast<std::size_t>(feature_table[f])];
      const double hotness = features[f].hotness > 0 ? features[f].hotness : table.hotness;
      lookups[static_cast<std::size_t>(feature_table[f])] += hotness * table.width;
      ragged |= !keeps_rows(features[f].pooling) && hotness != 1;
    }
    double all_lookups = 1e-300, all_bytes = 1e-300;
    std::vector<std::pair<double, int>> sizes;
    sizes.reserve(tables.size());
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const double bytes = static_cast<double>(
          memory_cost(tables[t], memory).of({0, tables[t].rows, 0, tables[t].width}));
      sizes.push_back({bytes, static_cast<int>(t)});
      all_bytes += bytes;
      all_lookups += lookups[t];
    }
    for (auto& [size, t] : sizes)
      size = -size / all_bytes - lookups[static_cast<std::size_t>(t)] / all_lookups;
    std::sort(sizes.begin(), sizes.end());
    for (std::size_t i = 0; i < sizes.size(); ++i) order[i] = sizes[i].second;
  }

  /// Returns the tables of one round, with their features.
  constexpr Layout layout(std::size_t round, const Topology& topology) const {
    Layout layout{.topology = topology};
    std::vector<int> place(tables.size(), -1);
    for (std::size_t i = first(round, topology.ranks); i < first(round + 1, topology.ranks); ++i) {
      const std::size_t t = static_cast<std::size_t>(order[i]);
      place[t] = static_cast<int>(layout.tables.size());
      layout.tables.push_back(tables[t]);
    }
    for (std::size_t f = 0; f < features.size(); ++f) {
      const int table = place[static_cast<std::size_t>(feature_table[f])];
      if (table < 0) continue;
      layout.features.push_back(features[f]);
      layout.feature_table.push_back(table);
    }
    return layout;
  }

  /// Calls `use` with the planner of one round.
  template <class Use>
  constexpr auto with_planner(std::size_t round, const Cluster& cluster, const Workload& workload,
                              const PlanConstraints& constraints, Use use) const {
    const Layout some = layout(round, cluster.topology());
    CostModel model(some.tables, some.features, some.feature_table,
                    for_batches(cluster, tables, features, feature_table, workload), workload);
    model.send_lengths(ragged);
    Planner planner(some, model, constraints);
    return use(planner);
  }
};

/// Returns the constraints of a round. `lean`: without copies, which take memory that later rounds
/// may need; tried if a plan with them does not fit.
constexpr PlanConstraints round_constraints(PlanConstraints constraints, int ranks, bool lean) {
  constraints.effort = round_effort(ranks);
  if (lean) constraints.forbidden.push_back(Cut::replicated);
  if (lean) constraints.forbidden.push_back(Cut::hot_rows);
  if (lean) constraints.memory_share = 0;
  return constraints;
}

/// Plans a model in rounds, at run time, as the compiler does.
constexpr PlanChoice plan_in_rounds(const Layout& uncut, const Cluster& cluster,
                                    const Workload& workload, const PlanConstraints& given,
                                    bool lean = false) {
  RoundModel<std::vector<TableSpec>, std::vector<FeatureSpec>, std::vector<int>> model{
      uncut.tables, uncut.features, uncut.feature_table, std::vector<int>(uncut.tables.size())};
  model.sort(workload.memory);
  const PlanConstraints constraints = round_constraints(given, cluster.ranks, lean);
  std::vector<RoundShare> shares;
  RoundShare all;
  for (std::size_t i = 0; i < model.rounds(cluster.ranks); ++i) {
    shares.push_back(model.with_planner(i, cluster, workload, constraints,
                                        [](const Planner& planner) { return planner.share(); }));
    all.add(shares.back());
  }
  PlanChoice choice;
  choice.tables.resize(uncut.tables.size());
  PlacedBefore before{.level = all.load};
  double later = all.bytes;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    later -= shares[i].bytes;
    PlanChoice some = model.with_planner(i, cluster, workload, constraints, [&](Planner& planner) {
      PlacedBefore after;
      PlanChoice found = planner.search_beside(before, all, later, after);
      before = std::move(after);
      return found;
    });
    choice.fits = some.fits;
    for (std::size_t k = 0; k < some.tables.size(); ++k)
      choice.tables[static_cast<std::size_t>(model.order[model.first(i, cluster.ranks) + k])] =
          std::move(some.tables[k]);
  }
  if (!choice.fits && !lean) return plan_in_rounds(uncut, cluster, workload, given, true);
  return choice;
}

/// A round's plan as the compiler keeps it, and what its ranks carry then.
template <std::size_t Tables, std::size_t MaxParts, std::size_t Ranks>
struct StoredRound {
  static constexpr std::size_t most_fees = 64;  // further ones are priced as if each was the first
  StoredPlan<Tables, MaxParts> plan{};
  std::array<StageLoad, Ranks> loads{};
  std::array<double, Ranks> seconds{};
  std::array<TierBytes, Ranks> bytes{};
  StageLoad base{};
  TierBytes base_bytes{};
  std::array<Fee, most_fees> fees{};
  std::size_t fee_count = 0;

  constexpr void keep(const PlacedBefore& placed) {
    for (std::size_t r = 0; r < Ranks; ++r) {
      loads[r] = placed.loads[r];
      seconds[r] = placed.seconds[r];
      bytes[r] = placed.bytes[r];
    }
    base = placed.base;
    base_bytes = placed.base_bytes;
    fee_count = std::min(most_fees, placed.fees.size());
    for (std::size_t i = 0; i < fee_count; ++i) fees[i] = placed.fees[i];
  }
  constexpr PlacedBefore placed() const {
    return {.loads = {loads.begin(), loads.end()},
            .seconds = {seconds.begin(), seconds.end()},
            .bytes = {bytes.begin(), bytes.end()},
            .base = base,
            .base_bytes = base_bytes,
            .fees = {fees.begin(), fees.begin() + static_cast<std::ptrdiff_t>(fee_count)}};
  }
};

}}}  // namespace tessera::v0::detail
