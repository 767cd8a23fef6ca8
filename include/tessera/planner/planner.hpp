// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>
#include <tessera/planner/part_placement.hpp>
#include <tessera/planner/strategies.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Searches for the cut of every table, and its ranks, that make the predicted step shortest within
/// memory.
///
/// Every table has options (whole, K columns, rows, grid, a copy everywhere), each with what it
/// costs per part and on every rank. A plan is an option per table; parts are placed largest first
/// on the rank that carries least. First plans: for a falling limit of time and memory per part,
/// every table's cheapest option below it. The best is improved by trying every option of every
/// table in turn. The answer is compared, by `predict`, with the plain strategies, so that it is
/// never worse than one that fits and is allowed.
class Planner {
 public:
  constexpr Planner(const Layout& tables, const CostModel& model,
                    const PlanConstraints& constraints)
      : layout_(tables),
        model_(model),
        constraints_(constraints),
        ranks_(tables.ranks()),
        effort_(constraints.effort),
        placement_(layout_, model_, options_) {
    for (const Tier tier : all_tiers) {
      const std::int64_t memory = memory_of(model.cluster(), tier),
                         reserve = tier == Tier::device ? constraints.reserve : 0;
      room(tier) =
          memory == 0 ? std::int64_t{1} << 62 : std::max<std::int64_t>(memory - reserve, 0);
    }
    for (std::size_t t = 0; t < layout_.tables.size(); ++t) {
      const TableSpec& table = layout_.tables[t];
      limits().even += static_cast<double>(
                           model.memory(static_cast<int>(t)).of({0, table.rows, 0, table.width})) /
                       ranks_;
      first_option_.push_back(options_.size());
      detail::append_cut_options(layout_, static_cast<int>(t), model_, constraints_, options_);
    }
  }

  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  /// The best plan found; `fits` is false where none fits.
  constexpr PlanChoice search() {
    if (constraints_.memory_share <= 0) return search_within();
    const std::int64_t memory = room(Tier::device);
    room(Tier::device) =
        std::min(memory, static_cast<std::int64_t>(constraints_.memory_share * limits().even));
    PlanChoice level = search_within();
    if (level.fits) return level;
    room(Tier::device) = memory;
    return search_within();
  }

 private:
  constexpr PlanChoice search_within() {
    const bool thorough = constraints_.effort >= kThorough && ranks_ > 1;
    std::vector<PlanChoice> found;
    search_once(constraints_.memory_balance,
                thorough ? constraints_.effort / 2 : constraints_.effort, found);
    // Less even memory, for where an even one makes the step slower than that of a plain strategy.
    if (thorough && constraints_.memory_balance > 0) {
      for (const double balance : {constraints_.memory_balance / 4, 0.0})
        search_once(balance, constraints_.effort / 4, found);
      const std::int64_t memory = room(Tier::device);  // even memory from the start leads elsewhere
      room(Tier::device) =
          std::min(memory, static_cast<std::int64_t>(detail::PartPlacement::level * limits().even));
      search_once(0, constraints_.effort / 4, found);
      room(Tier::device) = memory;
    }
    limits().balance = constraints_.memory_balance;
    return select(found);
  }

  using Option = detail::CutOption;
  // searches with less effort, while compiling, take fewer ways
  static constexpr std::int64_t kThorough = 1'000'000;

  constexpr void search_once(double balance, std::int64_t effort, std::vector<PlanChoice>& found) {
    limits().balance = balance;
    effort_ = effort;
    best_.clear();
    try_limits();
    improve();
    const double score = placement_.place(best_, effort_);
    found.push_back(choice_of(best_));
    found.back().fits = score < detail::PartPlacement::overflow;
    if (constraints_.effort < kThorough || ranks_ == 1) return;
    placement_.exchange(best_);
    const double exchanged = placement_.score();
    if (exchanged >= score) return;
    found.back() = choice_of(best_);
    found.back().fits = exchanged < detail::PartPlacement::overflow;
  }

  constexpr detail::PartPlacement::Limits& limits() { return placement_.limits(); }
  constexpr const detail::PartPlacement::Limits& limits() const { return placement_.limits(); }
  constexpr std::int64_t& room(Tier tier) { return limits().room[tier]; }
  constexpr std::int64_t room(Tier tier) const { return limits().room[tier]; }
  constexpr bool has(Tier tier) const { return memory_of(model_.cluster(), tier) > 0; }

  constexpr std::size_t end_option(std::size_t t) const {
    return t + 1 < first_option_.size() ? first_option_[t + 1] : options_.size();
  }

  // ---- search ----

  constexpr void try_limits() {
    double mean_seconds = 0;
    for (std::size_t t = 0; t < first_option_.size(); ++t) {
      double least = options_[first_option_[t]].total;
      for (std::size_t o = first_option_[t]; o < end_option(t); ++o)
        least = std::min(least, options_[o].total);
      mean_seconds += least / ranks_;
    }
    std::vector<int> choice;
    if (has(Tier::host) || has(Tier::file))
      for (const double fill : {0.95, 0.8, 0.6})
        for (const bool caches : {true, false}) {
          if (!caches && !has(Tier::host)) continue;
          fill_devices(fill, caches, choice);
          consider(choice);
        }
    for (const double time_share : {1e9, 1.0, 0.3, 0.1, 0.5, 0.2})
      for (const double byte_share : {1e9, 1.0, 0.3, 0.1, 0.02, 0.5, 0.05}) {
        if (constraints_.effort < kThorough &&
            (time_share == 0.5 || time_share == 0.2 || byte_share == 0.5 || byte_share == 0.05))
          continue;
        choose(mean_seconds * time_share,
               std::min(limits().even * byte_share, static_cast<double>(room(Tier::device))),
               choice);
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
        const double excess =
            std::max(options_[o].seconds / seconds, options_[o].part().device_bytes() / bytes);
        const double score = excess <= 1 ? options_[o].total : 1e100 * excess;
        if (score < least) {
          least = score;
          best = static_cast<int>(o);
        }
      }
      choice.push_back(best);
    }
  }

  /// The tables that gain most per byte on the devices, up to a share of their memory; the others
  /// on the hosts, behind caches where those pay and `caches` are allowed, or in files. Parts are
  /// small beside a rank's memory, where a table has such.
  constexpr void fill_devices(double share, bool caches, std::vector<int>& choice) const {
    const Tier farther = has(Tier::host) ? Tier::host : Tier::file;
    const auto cheapest = [&](std::size_t t, Tier tier) {
      int best = -1;
      double least = 1e300;
      for (std::size_t o = first_option_[t]; o < end_option(t); ++o) {
        if (options_[o].tier != tier ||
            (tier == Tier::host && options_[o].cache_rows != 0 && !caches))
          continue;
        const double excess =
            8 * static_cast<double>(options_[o].bytes) / static_cast<double>(room(tier));
        const double score = excess <= 1 ? options_[o].total : 1e100 * excess;
        if (score < least) best = (least = score, static_cast<int>(o));
      }
      return best;
    };
    // of all ranks
    const auto bytes_of = [&](const Option& o, std::int64_t part) {
      return static_cast<double>(part) *
             (o.cut == Cut::replicated || o.cut == Cut::row_wise ? ranks_ : o.parts) *
             (o.cut == Cut::grid ? layout_.topology.node_size() : 1);
    };
    std::vector<std::pair<double, int>> order;
    double left = share * static_cast<double>(room(Tier::device)) * ranks_;
    choice.clear();
    for (std::size_t t = 0; t < first_option_.size(); ++t) {
      const int near = cheapest(t, Tier::device), far = cheapest(t, farther);
      choice.push_back(far >= 0 ? far : near);
      if (far >= 0) left -= bytes_of(options_[far], options_[far].cache_bytes);
      if (near < 0 || far < 0) continue;
      const TableSpec& table = layout_.tables[t];
      const double bytes = static_cast<double>(
          model_.memory(static_cast<int>(t)).of({0, table.rows, 0, table.width}));
      order.push_back({(options_[near].total - options_[far].total) / bytes, static_cast<int>(t)});
    }
    std::sort(order.begin(), order.end());
    for (const auto& [gain, t] : order) {
      const int near = cheapest(static_cast<std::size_t>(t), Tier::device);
      const Option &o = options_[near], &cached = options_[choice[t]];
      const double bytes = bytes_of(o, o.bytes) - bytes_of(cached, cached.cache_bytes);
      if (bytes > left) continue;
      left -= bytes;
      choice[t] = near;
    }
  }

  constexpr bool consider(const std::vector<int>& choice) {
    const double score = placement_.place(choice, effort_);
    if (!best_.empty() && score >= best_score_ * (1 - 1e-9)) return false;
    best_ = choice;
    best_score_ = score;
    return true;
  }

  /// Every option of every table in turn, the costliest tables first, until nothing is better or
  /// the effort is spent. Equal tables are tried together before they are tried alone: where many
  /// ranks are equally slow, a change of one table shows nowhere.
  constexpr void improve() {
    if (ranks_ == 1) return;
    std::vector<std::pair<double, int>> order;
    for (std::size_t t = 0; t < best_.size(); ++t)
      order.push_back({-options_[best_[t]].total, static_cast<int>(t)});
    std::sort(order.begin(), order.end());
    const std::vector<std::vector<int>> alike = equal_tables();
    std::vector<int> choice = best_;
    for (bool better = true; better;) {
      better = false;
      for (const std::vector<int>& tables : alike) {
        for (std::size_t o = 0; o < options_of(tables.front()); ++o) {
          if (effort_ <= 0) return;
          for (const int t : tables) choice[t] = static_cast<int>(first_option_[t] + o);
          better |= consider(choice);
        }
        choice = best_;
      }
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

  constexpr std::size_t options_of(int t) const {
    return end_option(static_cast<std::size_t>(t)) - first_option_[t];
  }

  /// Groups of at least two tables of one shape, load and set of options, in the order of their
  /// first tables.
  constexpr std::vector<std::vector<int>> equal_tables() const {
    std::vector<std::vector<int>> groups;
    if (constraints_.effort < kThorough) return groups;
    const auto key = [&](int t) {
      const TableSpec& table = layout_.tables[t];
      return std::tuple(table.rows, table.width, table.skew, options_of(t), model_.ids_of(t));
    };
    std::vector<int> order(best_.size());
    for (std::size_t t = 0; t < order.size(); ++t) order[t] = static_cast<int>(t);
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return std::pair(key(a), a) < std::pair(key(b), b); });
    for (std::size_t i = 0; i < order.size(); ++i)
      i > 0 && key(order[i - 1]) == key(order[i]) ? groups.back().push_back(order[i])
                                                  : groups.push_back({order[i]});
    std::erase_if(groups, [](const std::vector<int>& group) { return group.size() < 2; });
    std::sort(groups.begin(), groups.end());
    return groups;
  }

  // ---- the answer ----

  static constexpr TableCut tables_cut(const Option& o, const std::vector<int>& places) {
    return {.cut = o.cut,
            .parts = o.parts,
            .places = places,
            .policy = o.policy,
            .tier = o.tier,
            .cache_rows = o.cache_rows};
  }

  /// After `place(best)`.
  constexpr PlanChoice choice_of(const std::vector<int>& best) const {
    PlanChoice choice;
    for (std::size_t t = 0; t < best.size(); ++t)
      choice.tables.push_back(tables_cut(options_[best[t]], placement_.places(t)));
    return choice;
  }

  /// Of the plans found and the plain strategies that are allowed, those that fit and are not
  /// slower than the fastest such strategy; of these the best, memory balance included.
  constexpr PlanChoice select(std::vector<PlanChoice>& candidates) {
    const std::size_t own = candidates.size();
    bool fits = false;
    for (const PlanChoice& choice : candidates) fits |= choice.fits;
    if (constraints_.pins.empty() && ranks_ > 1)
      for (const Strategy s : all_strategies)
        if (constraints_.allows(detail::cut_of(s)))
          candidates.push_back(strategy_choice(s, layout_));
    std::vector<double> seconds, scores;
    double fastest = 1e300;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      layout_.shards = shards_of(candidates[i], layout_);
      const Prediction p = predict(layout_, model_);
      const bool has_room = p.most_bytes() <= room(Tier::device) &&
                            p.most_host_bytes() <= room(Tier::host) &&
                            p.most_file_bytes() <= room(Tier::file);
      fits |= has_room;
      seconds.push_back(has_room ? p.step_seconds : 1e300);
      scores.push_back(p.step_seconds *
                       placement_.memory_penalty(static_cast<double>(p.most_bytes())));
      if (i >= own) fastest = std::min(fastest, seconds.back());
    }
    std::size_t best = candidates.size();
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (seconds[i] < 1e300 && seconds[i] <= fastest &&
          (best == candidates.size() || scores[i] < scores[best]))
        best = i;
    PlanChoice choice = std::move(candidates[best < candidates.size() ? best : 0]);
    choice.fits = fits;
    return choice;
  }

  Layout layout_;  // tables and features; shards of whatever is being looked at
  const CostModel& model_;
  const PlanConstraints& constraints_;
  int ranks_;
  std::int64_t effort_;
  std::vector<Option> options_;
  detail::PartPlacement placement_;
  std::vector<std::size_t> first_option_;  // by table
  std::vector<int> best_;                  // option of each table
  double best_score_ = 0;
};

}}  // namespace tessera::v0
