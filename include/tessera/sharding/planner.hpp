// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/cost.hpp>
#include <tessera/sharding/strategies.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// Cuts one table in a given way; the planner chooses what is left open.
struct TablePin {
  std::string_view table;
  Cut cut = Cut::table_wise;
  int parts = 0;  ///< columns of column_wise and grid; 0: open
  int rank = -1;  ///< of table_wise; negative: open
};

/// What a planner must respect.
struct PlanConstraints {
  std::vector<TablePin> pins{};
  std::vector<Cut> forbidden{};      ///< for tables without a pin
  std::int64_t reserve = 0;          ///< bytes of each rank that tables may not use
  int min_width = 4;                 ///< of column parts
  double memory_balance = 0.5;       ///< a memory imbalance (max/mean) of 1.05 + x counts as a step slower by this times x
  std::int64_t effort = 60'000'000;  ///< places tried before the search ends

  constexpr bool allows(Cut cut) const { return std::find(forbidden.begin(), forbidden.end(), cut) == forbidden.end(); }
};

/// Searches for the cut of every table, and its ranks, that make the predicted step shortest within memory.
///
/// Every table has options (whole, K columns, rows, grid, a copy everywhere), each with what it costs per part and on every rank. A plan
/// is an option per table; parts are placed largest first on the rank that carries least. First plans: for a falling limit of time and
/// memory per part, every table's cheapest option below it. The best is improved by trying every option of every table in turn. The
/// answer is compared, by `predict`, with the plain strategies, so that it is never worse than one that fits and is allowed.
class Planner {
 public:
  constexpr Planner(const Layout& tables, const CostModel& model, const PlanConstraints& constraints)
      : layout_(tables), model_(model), constraints_(constraints), ranks_(tables.ranks()), effort_(constraints.effort) {
    const std::int64_t memory = model.cluster().memory_per_rank;
    capacity_ = memory == 0 ? std::int64_t{1} << 62 : std::max<std::int64_t>(memory - constraints.reserve, 0);
    for (std::size_t t = 0; t < layout_.tables.size(); ++t) add_options(static_cast<int>(t));
    seconds_.assign(static_cast<std::size_t>(ranks_), 0.0);
    bytes_.assign(static_cast<std::size_t>(ranks_), 0);
    taken_by_.assign(static_cast<std::size_t>(ranks_), -1);
  }

  /// The best plan found; fault `no_plan_fits` if none fits.
  constexpr PlanChoice search() {
    try_limits();
    improve();
    const double own_score = place(best_);
    PlanChoice choice = choice_of(best_);
    choice.fits = own_score < kOverflow;
    select(choice);
    return choice;
  }

 private:
  struct Option {
    Cut cut = Cut::table_wise;
    int parts = 1;
    double seconds = 0;             // of one part, on its rank; of a grid, on each rank of its node
    double shared = 0;              // on every rank
    std::int64_t bytes = 0;         // of one part
    double total = 0;               // over all ranks
    int rank = -1;                  // pinned
    std::vector<double> by_rank{};  // row_wise, where frequent rows stand first: seconds of each rank
  };
  static constexpr double kOverflow = 1e9;

  // ---- options ----

  constexpr void add_options(int t) {
    const TableSpec& table = layout_.tables[t];
    first_option_.push_back(options_.size());
    const TablePin* pin = nullptr;
    for (const TablePin& p : constraints_.pins)
      if (p.table == table.name) pin = &p;
    const auto wanted = [&](Cut cut) { return pin != nullptr ? pin->cut == cut : constraints_.allows(cut); };
    const int parts = pin != nullptr ? pin->parts : 0, nodes = layout_.topology.nodes(), size = layout_.topology.node_size();
    const bool even_nodes = ranks_ % size == 0;
    if (wanted(Cut::table_wise)) add(t, Cut::table_wise, 1, pin != nullptr && pin->rank >= 0 ? pin->rank % ranks_ : -1);
    if (ranks_ > 1 && wanted(Cut::replicated)) add(t, Cut::replicated, 1);
    if (ranks_ > 1 && wanted(Cut::row_wise) && (table.rows >= ranks_ || pin != nullptr)) add(t, Cut::row_wise, 1);
    for (int k = 1; k <= ranks_ && k <= table.width; ++k) {
      if (table.width % k != 0 || (parts != 0 && k != parts) || (parts == 0 && k > 1 && table.width / k < constraints_.min_width)) continue;
      if (k > 1 && wanted(Cut::column_wise)) add(t, Cut::column_wise, k);
      if (nodes > 1 && even_nodes && k <= nodes && table.rows >= size && wanted(Cut::grid)) add(t, Cut::grid, k);
    }
    // Too few ranks for what was pinned or left over: the table stays whole.
    if (first_option_.back() == options_.size()) add(t, Cut::table_wise, 1);
  }

  constexpr void add(int t, Cut cut, int parts, int rank = -1) {
    const TableSpec& table = layout_.tables[t];
    const int blocks = cut == Cut::row_wise ? ranks_ : cut == Cut::grid ? layout_.topology.node_size() : 1;
    const Rectangle part{0, even_cut(table.rows, blocks, 1), 0, table.width / parts};
    const ShardCost cost = model_.cost(t, part, cut == Cut::replicated);
    Option o{.cut = cut, .parts = parts, .seconds = cost.seconds(), .bytes = model_.workload().memory.of(part), .rank = rank};
    const double count = static_cast<double>(parts) * blocks, ranks = ranks_;
    o.shared = cost.shared_seconds() * count;
    o.total = (cut == Cut::replicated ? o.seconds * ranks : o.seconds * count) + o.shared * ranks;
    if (cut == Cut::row_wise && model_.workload().sorted_ids) {
      o.shared = o.total = 0;
      for (int r = 0; r < ranks_; ++r) {
        const ShardCost c = model_.cost(t, {even_cut(table.rows, ranks_, r), even_cut(table.rows, ranks_, r + 1), 0, table.width}, false);
        o.by_rank.push_back(c.seconds());
        o.shared += c.shared_seconds();
        o.total += c.seconds() + c.shared_seconds() * ranks;
      }
    }
    options_.push_back(std::move(o));
  }

  constexpr std::size_t end_option(std::size_t t) const { return t + 1 < first_option_.size() ? first_option_[t + 1] : options_.size(); }

  // ---- search ----

  constexpr void try_limits() {
    double mean_seconds = 0, mean_bytes = 0;
    for (std::size_t t = 0; t < first_option_.size(); ++t) {
      double least = options_[first_option_[t]].total;
      for (std::size_t o = first_option_[t]; o < end_option(t); ++o) least = std::min(least, options_[o].total);
      mean_seconds += least / ranks_;
      mean_bytes += static_cast<double>(model_.workload().memory.of({0, layout_.tables[t].rows, 0, layout_.tables[t].width})) / ranks_;
    }
    std::vector<int> choice;
    for (const double time_share : {1e9, 1.0, 0.3, 0.1})
      for (const double byte_share : {1e9, 1.0, 0.3, 0.1, 0.02}) {
        choose(mean_seconds * time_share, std::min(mean_bytes * byte_share, static_cast<double>(capacity_)), choice);
        consider(choice);
        if (ranks_ == 1 || effort_ <= 0) return;
      }
  }

  /// Every table's cheapest option whose parts keep both limits, or that exceeds them least.
  constexpr void choose(double seconds, double bytes, std::vector<int>& choice) const {
    choice.clear();
    for (std::size_t t = 0; t < first_option_.size(); ++t) {
      double least = 1e300;
      int best = 0;
      for (std::size_t o = first_option_[t]; o < end_option(t); ++o) {
        const double excess = std::max(options_[o].seconds / seconds, static_cast<double>(options_[o].bytes) / bytes);
        const double score = excess <= 1 ? options_[o].total : 1e100 * excess;
        if (score < least) {
          least = score;
          best = static_cast<int>(o);
        }
      }
      choice.push_back(best);
    }
  }

  constexpr bool consider(const std::vector<int>& choice) {
    const double score = place(choice);
    if (!best_.empty() && score >= best_score_ * (1 - 1e-9)) return false;
    best_ = choice;
    best_score_ = score;
    return true;
  }

  /// Every option of every table in turn, the costliest tables first, until nothing is better or the effort is spent.
  constexpr void improve() {
    if (ranks_ == 1) return;
    std::vector<std::pair<double, int>> order;
    for (std::size_t t = 0; t < best_.size(); ++t) order.push_back({-options_[best_[t]].total, static_cast<int>(t)});
    std::sort(order.begin(), order.end());
    std::vector<int> choice = best_;
    for (bool better = true; better;) {
      better = false;
      for (const auto& [cost, t] : order) {
        for (std::size_t o = first_option_[t]; o < end_option(t); ++o) {
          if (effort_ <= 0) return;
          if (best_[t] == static_cast<int>(o)) continue;
          choice[t] = static_cast<int>(o);
          better |= consider(choice);
        }
        choice[t] = best_[t];
      }
    }
  }

  // ---- placing ----

  /// Places the parts of a plan. Returns its time with the penalty for uneven memory; above kOverflow: it does not fit.
  constexpr double place(const std::vector<int>& choice) {
    double base_seconds = 0, sum_seconds = 1e-30, sum_bytes = 1;
    std::int64_t base_bytes = 0;
    order_.clear();
    places_.assign(choice.size(), {});
    std::fill(seconds_.begin(), seconds_.end(), 0.0);
    std::fill(bytes_.begin(), bytes_.end(), 0);
    std::fill(taken_by_.begin(), taken_by_.end(), -1);
    for (std::size_t t = 0; t < choice.size(); ++t) {
      const Option& o = options_[choice[t]];
      base_seconds += o.shared;
      if (o.cut == Cut::replicated || o.cut == Cut::row_wise) {
        base_bytes += o.bytes;
        if (o.by_rank.empty()) base_seconds += o.seconds;
        for (std::size_t r = 0; r < o.by_rank.size(); ++r) seconds_[r] += o.by_rank[r];
      } else if (o.rank >= 0) {
        put(static_cast<int>(t), o, o.rank);
      } else {
        order_.push_back({0, static_cast<int>(t)});
      }
      sum_seconds += o.total;
      sum_bytes += static_cast<double>(o.bytes) * (o.cut == Cut::column_wise ? o.parts : 1);
    }
    const double seconds_unit = ranks_ / sum_seconds, bytes_unit = ranks_ / sum_bytes;
    for (auto& [key, t] : order_)
      key = -(options_[choice[t]].seconds * seconds_unit + static_cast<double>(options_[choice[t]].bytes) * bytes_unit);
    std::sort(order_.begin(), order_.end());
    for (const auto& [key, t] : order_) {
      const Option& o = options_[choice[t]];
      for (int part = 0; part < o.parts; ++part)
        o.cut == Cut::grid ? put_on_node(t, o, base_bytes, seconds_unit, bytes_unit)
                           : put(t, o, lightest(t, o, base_bytes, seconds_unit, bytes_unit));
      effort_ -= static_cast<std::int64_t>(o.parts) * ranks_;
    }
    effort_ -= static_cast<std::int64_t>(choice.size()) * 4;
    double most = 0, sum = 0, most_bytes = 0, all_bytes = 0;
    for (std::size_t r = 0; r < seconds_.size(); ++r) {
      most = std::max(most, seconds_[r]);
      sum += seconds_[r];
      most_bytes = std::max(most_bytes, static_cast<double>(bytes_[r] + base_bytes));
      all_bytes += static_cast<double>(bytes_[r] + base_bytes);
    }
    const int cores = model_.cluster().concurrent_ranks * layout_.topology.nodes();
    const double time = cores > 0 ? std::max(base_seconds + most, (base_seconds * ranks_ + sum) / cores) : base_seconds + most;
    const double imbalance = most_bytes * ranks_ / std::max(all_bytes, 1.0);
    const double penalty = 1 + constraints_.memory_balance * std::max(0.0, imbalance - 1.05);
    return most_bytes > static_cast<double>(capacity_) ? kOverflow * (most_bytes / static_cast<double>(capacity_)) : time * penalty;
  }

  constexpr void put(int t, const Option& o, int rank) {
    seconds_[rank] += o.seconds;
    bytes_[rank] += o.bytes;
    taken_by_[rank] = t;
    places_[t].push_back(rank);
  }

  /// How much a rank would carry; ranks that hold a part of the table, or have no room, come last.
  constexpr double load_with(int rank, int t, const Option& o, std::int64_t base_bytes, double seconds_unit, double bytes_unit) const {
    const std::int64_t bytes = bytes_[rank] + o.bytes;
    return (bytes + base_bytes > capacity_ ? 1e6 : 0) + (taken_by_[rank] == t ? 1e3 : 0) + (seconds_[rank] + o.seconds) * seconds_unit +
           static_cast<double>(bytes) * bytes_unit;
  }

  constexpr int lightest(int t, const Option& o, std::int64_t base_bytes, double seconds_unit, double bytes_unit) const {
    int best = 0;
    double least = 1e300;
    for (int r = 0; r < ranks_; ++r)
      if (const double load = load_with(r, t, o, base_bytes, seconds_unit, bytes_unit); load < least) best = (least = load, r);
    return best;
  }

  constexpr void put_on_node(int t, const Option& o, std::int64_t base_bytes, double seconds_unit, double bytes_unit) {
    const int size = layout_.topology.node_size();
    int best = 0;
    double least = 1e300;
    for (int node = 0; node < layout_.topology.nodes(); ++node) {
      double load = 0;
      for (int m = 0; m < size; ++m) load = std::max(load, load_with(node * size + m, t, o, base_bytes, seconds_unit, bytes_unit));
      if (load < least) best = (least = load, node);
    }
    for (int m = 0; m < size; ++m) {
      seconds_[best * size + m] += o.seconds;
      bytes_[best * size + m] += o.bytes;
      taken_by_[best * size + m] = t;
    }
    places_[t].push_back(best);
  }

  // ---- the answer ----

  /// After `place(best)`.
  constexpr PlanChoice choice_of(const std::vector<int>& best) const {
    PlanChoice choice;
    for (std::size_t t = 0; t < best.size(); ++t) choice.tables.push_back({options_[best[t]].cut, options_[best[t]].parts, places_[t]});
    return choice;
  }

  /// Replaces `choice` where a plain strategy is faster, and fits, and is allowed; of all that are not slower than the best of those,
  /// memory balance included, the best stays.
  constexpr void select(PlanChoice& choice) {
    std::vector<PlanChoice> candidates{choice};
    if (constraints_.pins.empty() && ranks_ > 1)
      for (const Strategy s : all_strategies)
        if (constraints_.allows(cut_of(s))) candidates.push_back(strategy_choice(s, layout_));
    bool fits = choice.fits;
    std::vector<double> seconds, scores;
    double fastest = 1e300;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      layout_.shards = shards_of(candidates[i], layout_);
      const Prediction p = predict(layout_, model_);
      const bool room = p.most_bytes() <= capacity_;
      fits |= room;
      seconds.push_back(room ? p.step_seconds : 1e300);
      scores.push_back(p.step_seconds * (1 + constraints_.memory_balance * std::max(0.0, p.memory_imbalance() - 1.05)));
      if (i > 0) fastest = std::min(fastest, seconds.back());
    }
    std::size_t best = candidates.size();
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (seconds[i] < 1e300 && (seconds[i] <= fastest) && (best == candidates.size() || scores[i] < scores[best])) best = i;
    if (best < candidates.size()) choice = std::move(candidates[best]);
    choice.fits = fits;
  }

  Layout layout_;  // tables and features; shards of whatever is being looked at
  const CostModel& model_;
  const PlanConstraints& constraints_;
  int ranks_;
  std::int64_t effort_;
  std::int64_t capacity_ = 0;
  std::vector<Option> options_;
  std::vector<std::size_t> first_option_;  // by table
  std::vector<int> best_;                  // option of each table
  double best_score_ = 0;
  // of the plan being placed
  std::vector<double> seconds_;
  std::vector<std::int64_t> bytes_;
  std::vector<int> taken_by_;
  std::vector<std::pair<double, int>> order_;
  std::vector<std::vector<int>> places_;
};

/// Tables and features on some ranks, before anything is cut. `features` empty: one per table. Its `fault` says what is wrong with them.
constexpr Layout uncut_layout(const Topology& topology, std::vector<TableSpec> tables, std::vector<FeatureSpec> features = {}) {
  Layout layout{.topology = topology, .tables = std::move(tables), .features = std::move(features)};
  const bool one_feature_per_table = layout.features.empty();
  if (one_feature_per_table)
    for (const TableSpec& table : layout.tables) layout.features.push_back({table.name, table.name, table.pooling});
  resolve_features(layout, one_feature_per_table);
  return layout;
}

/// Why nothing fits: the largest table, and the cheapest change that would help. Cutting every table by rows is what needs least memory.
constexpr PlanFault explain_no_fit(const Layout& tables, const Cluster& cluster, const Workload& workload,
                                   const PlanConstraints& constraints) {
  const auto least = [&](std::int64_t ranks, std::int64_t per_element) {
    std::int64_t bytes = 0;
    for (const TableSpec& t : tables.tables) bytes += (t.rows + ranks - 1) / ranks * (t.width * per_element + workload.memory.per_row);
    return bytes;
  };
  const std::int64_t capacity = std::max<std::int64_t>(cluster.memory_per_rank - constraints.reserve, 0);
  std::size_t largest = 0;
  std::int64_t most = -1;
  for (std::size_t t = 0; t < tables.tables.size(); ++t)
    if (const std::int64_t bytes = workload.memory.of({0, tables.tables[t].rows, 0, tables.tables[t].width}); bytes > most) {
      most = bytes;
      largest = t;
    }
  PlanFault fault = PlanFault::of(PlanFault::Kind::no_plan_fits, tables.tables[largest].name, most, capacity);
  const std::int64_t per_element = workload.memory.per_element;
  if (least(cluster.ranks, per_element) <= capacity) {
    fault.remedy = PlanFault::Remedy::lift_constraints;
  } else if (least(cluster.ranks, per_element) <= cluster.memory_per_rank) {
    fault.remedy = PlanFault::Remedy::free_reserve;
    fault.remedy_amount = constraints.reserve;
  } else if (workload.element_bytes == 4 && least(cluster.ranks, per_element - 2) <= capacity) {
    fault.remedy = PlanFault::Remedy::store_16_bit;
  } else if (capacity > 0) {
    std::int64_t ranks = std::max<std::int64_t>(cluster.ranks + 1, least(1, per_element) / capacity);
    const std::int64_t stop = 2 * ranks + 16;
    while (ranks < stop && least(ranks, per_element) > capacity) ++ranks;
    if (ranks < stop) {
      fault.remedy = PlanFault::Remedy::more_ranks;
      fault.remedy_amount = ranks;
    }
  }
  return fault;
}

/// Plans a model: rectangles and ranks for `ShardedCollection`. At run time and in constant expressions. Its `fault` is `no_plan_fits`
/// where no allowed plan fits, or says what is wrong with the tables; pins of unknown tables are `unknown_table`.
constexpr Layout plan_layout(Layout layout, const Cluster& cluster, const Workload& workload, const PlanConstraints& constraints = {}) {
  if (!layout.fault.ok()) return layout;
  const NameIndex names(layout.tables);
  for (const TablePin& pin : constraints.pins)
    if (names.find(layout.tables, pin.table) < 0) layout.fault = PlanFault::of(PlanFault::Kind::unknown_table, pin.table);
  if (!layout.fault.ok()) return layout;
  const CostModel model(layout.tables, layout.features, layout.feature_table, cluster, workload);
  const PlanChoice choice = Planner(layout, model, constraints).search();
  layout.shards = shards_of(choice, layout);
  layout.fault = choice.fits ? check_cover(layout) : explain_no_fit(layout, cluster, workload, constraints);
  return layout;
}
constexpr Layout plan_layout(std::vector<TableSpec> tables, std::vector<FeatureSpec> features, const Cluster& cluster,
                             const Workload& workload, const PlanConstraints& constraints = {}) {
  return plan_layout(uncut_layout(cluster.topology(), std::move(tables), std::move(features)), cluster, workload, constraints);
}

}  // namespace tessera::inline v0
