// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>
#include <tessera/planner/plan_steps.hpp>
#include <tessera/planner/strategies.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// What a mean rank gets of some tables: parts and seconds of every table's cheapest option, bytes.
struct RoundShare {
  StageLoad load{};
  double seconds = 0, bytes = 0;

  constexpr void add(const RoundShare& other) {
    load.add(other.load), seconds += other.seconds, bytes += other.bytes;
  }
};

/// Searches for the cut of every table, and its ranks, that make the predicted step shortest within
/// memory.
///
/// Every table has options (whole, K columns, rows, grid, a copy everywhere), each with what it
/// costs per part and on every rank. A plan is an option per table. First plans: for a falling
/// limit of time and memory per part, every table's cheapest option below it; the best of these, of
/// all, of those without each kind of cut, and of those that pay few fixed costs. Each is improved
/// by the steps of PlanSteps, the best six more thoroughly. `predict` compares the answer with the
/// plain strategies.
class Planner : PlanSteps {
 public:
  constexpr Planner(const Layout& tables, const CostModel& model,
                    const PlanConstraints& constraints)
      : PlanSteps(tables, model, constraints),
        layout_(tables),
        model_(model),
        constraints_(constraints) {}

  /// Returns the best plan found; `fits` is false if none fits.
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

  /// Returns what a mean rank gets of the tables.
  constexpr RoundShare share() const {
    return {options_.least_load(), options_.least_seconds(), limits().even};
  }

  /// Plans the tables as one of several rounds, beside the tables of the rounds before. `all`: of
  /// all rounds; `later`: bytes of a rank that later rounds need. Tries first plans only.
  constexpr PlanChoice search_beside(const PlacedBefore& before, const RoundShare& all,
                                     double later, PlacedBefore& after) {
    share_of_room_ = limits().even / all.bytes;
    mean_seconds_ = all.seconds;
    limits().even = all.bytes;
    if (constraints_.memory_share > 0)
      room(Tier::device) = std::min(
          room(Tier::device), static_cast<std::int64_t>(constraints_.memory_share * limits().even));
    const std::int64_t memory = room(Tier::device);
    if (memory < PartPlacement::no_limit && !options_.has(Tier::host) && !options_.has(Tier::file))
      room(Tier::device) = std::max<std::int64_t>(memory - static_cast<std::int64_t>(later), 1);
    placement_.begin_beside(before);
    Found found;
    search_once(found);
    room(Tier::device) = memory;
    found.value = placement_.value();
    after = placement_.placed();
    return choice_of(found);
  }

 private:
  constexpr PlanChoice search_within() {
    effort_ = constraints_.effort;
    std::vector<Found> found;
    search_once(found.emplace_back());
    if (thorough_) {
      // Even memory may make the step longer than that of a plain strategy.
      if (limits().balance > 0 && found.front().value.fits && uneven(found.front())) {
        effort_ = constraints_.effort / 2;
        limits().balance = 0;
        search_once(found.emplace_back());
        limits().balance = constraints_.memory_balance;
      }
      found.push_back(simpler(found.front()));
    }
    return select(found);
  }

  // ---- first plans ----

  /// Leaves the best plan found in `best`: from first plans of all cuts, of all but one, and of few
  /// fixed costs.
  constexpr void search_once(Found& best) {
    if (!thorough_) {
      try_limits(best);
      restore(best);
      if (ranks_ > 1) improve(best);
      return;
    }
    const std::int64_t all = effort_;
    const int tables = static_cast<int>(layout_.tables.size());
    std::vector<Found> starts;
    std::vector<double> begun;  // what starts begin with: what comes twice is dropped
    const auto start = [&](const std::vector<Fee>& spared) {
      effort_ = all / 20;
      options_.ban(spared);
      Found& found = starts.emplace_back();
      try_limits(found);
      restore(found);
      improve(found);
      options_.allow();
      if (std::find(begun.begin(), begun.end(), found.value.step) != begun.end()) {
        starts.pop_back();
      } else {
        begun.push_back(found.value.step);
        share_fees(found);
        effort_ = all / 60;
        settle(found, 1e-2, 0.9);
      }
      options_.allow_cuts();
    };
    start({});
    for (int cut = 0; cut < static_cast<int>(Cut::own); ++cut) {
      if (!has_choice(static_cast<Cut>(cut))) continue;
      options_.ban(static_cast<Cut>(cut));
      start({});
    }
    for (const double limit : {1e9, 1.0, 0.3, 0.1}) {
      const auto sets = options_.fees_to_spare(
          limit * options_.least_seconds(), [&](const Fee& fee) { return placement_.price(fee); });
      for (std::size_t i = 0; i < std::min<std::size_t>(2, sets.size()); ++i) start(sets[i]);
    }
    std::sort(starts.begin(), starts.end(),
              [](const Found& a, const Found& b) { return a.value.better_than(b.value); });
    // fewer of large models, whose searches take long
    const int most = std::clamp(300'000 / (tables * ranks_), 2, 6);
    starts.resize(std::min(static_cast<std::size_t>(most), starts.size()));
    best = starts.front();
    for (Found& found : starts) {
      effort_ = all / 10;
      restore(found);
      share_fees(found);
      lower_peaks(found);
      effort_ = std::max(effort_ / 2, all / 20);
      exchange_some(found, 200 + 60 * tables);
      effort_ = all / 10;
      settle(found, 1e-2, 0.9);
      if (found.value.better_than(best.value)) best = std::move(found);
    }
    for (const auto& [worse, even] :
         {std::pair{3e-2, 0.0}, {1e-2, 0.9}, {3e-3, 0.6}, {1e-3, 0.0}}) {
      effort_ = all / 10;
      settle(best, worse, even);
    }
  }

  /// Returns whether some table may be cut so, and otherwise too.
  constexpr bool has_choice(Cut cut) const {
    for (std::size_t t = 0; t < options_.tables(); ++t) {
      bool so = false, otherwise = false;
      for (std::size_t o = options_.begin(t); o < options_.end(t); ++o)
        (options_[o].cut == cut ? so : otherwise) = true;
      if (so && otherwise) return true;
    }
    return false;
  }

  constexpr void try_limits(Found& best) {
    const double mean_seconds = mean_seconds_ > 0 ? mean_seconds_ : options_.least_seconds();
    TierBytes fill_room = limits().room;
    fill_room.device =
        static_cast<std::int64_t>(static_cast<double>(fill_room.device) * share_of_room_);
    std::vector<int> choice;
    if (options_.has(Tier::host) || options_.has(Tier::file))
      for (const double fill : {0.95, 0.8, 0.6})
        for (const bool caches : {true, false}) {
          if (!caches && !options_.has(Tier::host)) continue;
          options_.fill_devices(fill_room, fill, caches, choice);
          consider(choice, best);
        }
    std::vector<int> last;
    for (const double time_share : {1e9, 1.0, 0.3, 0.1, 0.5, 0.2})
      for (const double byte_share : {1e9, 1.0, 0.3, 0.1, 0.02, 0.5, 0.05}) {
        if (!thorough_ &&
            (time_share == 0.5 || time_share == 0.2 || byte_share == 0.5 || byte_share == 0.05))
          continue;
        options_.choose(
            mean_seconds * time_share,
            std::min(limits().even * byte_share, static_cast<double>(room(Tier::device))), choice);
        if (choice != last) consider(choice, best);
        last = choice;
        if (ranks_ == 1 || effort_ <= 0) return;
      }
  }

  constexpr void consider(const std::vector<int>& choice, Found& best) {
    placement_.place(choice);
    effort_ -= static_cast<std::int64_t>(choice.size()) * ranks_;
    keep_better(best);
  }

  constexpr bool uneven(const Found& found) {
    layout_.shards = shards_of(choice_of(found), layout_);
    return placement_.memory_price(static_cast<double>(predict(layout_, model_).most_bytes())) >
           1.001;
  }

  // ---- the answer ----

  constexpr PlanChoice choice_of(const Found& found) const {
    PlanChoice choice;
    for (std::size_t t = 0; t < found.options.size(); ++t) {
      const CutOption& o = options_[found.options[t]];
      choice.tables.push_back({.cut = o.cut,
                               .parts = o.parts,
                               .places = found.places[t],
                               .policy = o.policy,
                               .tier = o.tier,
                               .cache_rows = o.cache_rows});
    }
    choice.fits = found.value.fits;
    return choice;
  }

  /// Selects, of the plans found and the plain strategies that are allowed, those that fit and are
  /// not slower than the fastest such strategy; of these the best, memory balance included, or one
  /// with fewer rectangles that is hardly worse.
  constexpr PlanChoice select(const std::vector<Found>& found) {
    std::vector<PlanChoice> candidates;
    bool fits = false;
    for (const Found& one : found) {
      candidates.push_back(choice_of(one));
      fits |= one.value.fits;
    }
    const std::size_t own = candidates.size();
    if (ranks_ > 1)
      for (const Strategy s : all_strategies)
        if (PlanChoice plain = plain_choice(s, layout_, constraints_, candidates.front());
            !plain.tables.empty())
          candidates.push_back(std::move(plain));
    std::vector<double> seconds, scores;
    std::vector<std::size_t> rectangles;
    double fastest = 1e300, least = 1e300;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      layout_.shards = shards_of(candidates[i], layout_);
      const Prediction p = predict(layout_, model_);
      const bool has_room = p.most_bytes() <= room(Tier::device) &&
                            p.most_host_bytes() <= room(Tier::host) &&
                            p.most_file_bytes() <= room(Tier::file);
      fits |= has_room;
      seconds.push_back(has_room ? p.step_seconds : 1e300);
      scores.push_back(p.step_seconds *
                       placement_.memory_price(static_cast<double>(p.most_bytes())));
      rectangles.push_back(layout_.shards.size());
      if (i >= own) fastest = std::min(fastest, seconds.back());
    }
    const auto allowed = [&](std::size_t i) { return seconds[i] < 1e300 && seconds[i] <= fastest; };
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (allowed(i)) least = std::min(least, scores[i]);
    std::size_t best = candidates.size();
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (allowed(i) && scores[i] <= least * (1 + kSimpler) &&
          (best == candidates.size() ||
           std::pair(rectangles[i], scores[i]) < std::pair(rectangles[best], scores[best])))
        best = i;
    PlanChoice choice = std::move(candidates[best < candidates.size() ? best : 0]);
    choice.fits = fits;
    return choice;
  }

  Layout layout_;  // tables and features; shards of whatever is being looked at
  const CostModel& model_;
  const PlanConstraints& constraints_;
  double mean_seconds_ = 0, share_of_room_ = 1;  // of a round
};

}}}  // namespace tessera::v0::detail
