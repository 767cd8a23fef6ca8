// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>
#include <tessera/planner/part_placement.hpp>
#include <tessera/planner/strategies.hpp>
#include <tessera/planner/table_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Searches for the cut of every table, and its ranks, that make the predicted step shortest within
/// memory.
///
/// Every table has options (whole, K columns, rows, grid, a copy everywhere), each with what it
/// costs per part and on every rank. A plan is an option per table. First plans: for a falling
/// limit of time and memory per part, every table's cheapest option below it; the best of these, of
/// all and of those without each kind of cut. Each is improved: a table leaves the plan and comes
/// back in its best option, on the ranks where the step grows least; so do tables that share a fixed
/// cost, and small groups drawn by chance. `predict` compares the answer with the plain strategies.
class Planner {
 public:
  constexpr Planner(const Layout& tables, const CostModel& model,
                    const PlanConstraints& constraints)
      : layout_(tables),
        model_(model),
        constraints_(constraints),
        ranks_(tables.ranks()),
        effort_(constraints.effort),
        options_(layout_, model, constraints),
        placement_(layout_, model_, options_.all()) {
    for (const Tier tier : all_tiers) {
      const std::int64_t memory = memory_of(model.cluster(), tier),
                         reserve = tier == Tier::device ? constraints.reserve : 0;
      room(tier) = memory == 0 ? detail::PartPlacement::no_limit
                               : std::max<std::int64_t>(memory - reserve, 0);
    }
    for (std::size_t t = 0; t < layout_.tables.size(); ++t) {
      const TableSpec& table = layout_.tables[t];
      limits().even += static_cast<double>(
                           model.memory(static_cast<int>(t)).of({0, table.rows, 0, table.width})) /
                       ranks_;
    }
    limits().balance = constraints.memory_balance;
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
  using Option = detail::CutOption;
  using Value = detail::PartPlacement::Value;
  // searches with less effort, while compiling, take fewer ways
  static constexpr std::int64_t kThorough = 1'000'000;
  static constexpr std::int64_t kCall = 30;  // what a trial costs besides, in places
  // the most that fewer rectangles may cost of a step
  static constexpr double kSimpler = 2e-3;

  /// A plan, to come back to.
  struct Found {
    std::vector<int> options;
    std::vector<std::vector<int>> places;
    Value value{};
  };

  constexpr PlanChoice search_within() {
    effort_ = constraints_.effort;
    const bool thorough = effort_ >= kThorough && ranks_ > 1;
    std::vector<Found> found;
    search_once(found.emplace_back(), thorough);
    if (thorough) {
      // Even memory may make the step longer than that of a plain strategy.
      if (limits().balance > 0 && found.front().value.fits && uneven(found.front())) {
        effort_ = constraints_.effort / 2;
        limits().balance = 0;
        search_once(found.emplace_back(), true);
        limits().balance = constraints_.memory_balance;
      }
      found.push_back(simpler(found.front()));
    }
    return select(found);
  }

  constexpr detail::PartPlacement::Limits& limits() { return placement_.limits(); }
  constexpr const detail::PartPlacement::Limits& limits() const { return placement_.limits(); }
  constexpr std::int64_t& room(Tier tier) { return limits().room[tier]; }
  constexpr std::int64_t room(Tier tier) const { return limits().room[tier]; }

  // ---- first plans ----

  /// Leaves the best plan found in `best`: from first plans of all cuts, and of all but one.
  constexpr void search_once(Found& best, bool thorough) {
    const int tables = static_cast<int>(layout_.tables.size());
    const std::int64_t all = effort_;
    std::vector<Found> starts;
    for (int cut = -1; cut < 6; ++cut) {
      if (cut >= 0 && !has_choice(static_cast<Cut>(cut))) continue;
      effort_ = all / (cut < 0 ? 5 : 10);
      if (cut >= 0) options_.ban(static_cast<Cut>(cut));
      Found start;
      if (!thorough) effort_ = all;
      try_limits(start);
      restore(start);
      if (ranks_ > 1) improve(start);
      if (thorough) {
        share_fees(start);
        exchange_some(start, 100 + 10 * tables);
      }
      options_.allow_cuts();
      starts.push_back(std::move(start));
      if (!thorough) break;
    }
    std::sort(starts.begin(), starts.end(),
              [](const Found& a, const Found& b) { return a.value.better_than(b.value); });
    best = starts.front();
    if (!thorough) return;
    for (std::size_t i = 0; i < std::min<std::size_t>(2, starts.size()); ++i) {
      effort_ = all / 5;
      restore(starts[i]);
      share_fees(starts[i]);
      exchange_some(starts[i], 200 + 60 * tables);
      if (starts[i].value.better_than(best.value)) best = std::move(starts[i]);
    }
  }

  /// Whether some table may be cut so, and otherwise too.
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
    const double mean_seconds = options_.least_seconds();
    std::vector<int> choice;
    if (options_.has(Tier::host) || options_.has(Tier::file))
      for (const double fill : {0.95, 0.8, 0.6})
        for (const bool caches : {true, false}) {
          if (!caches && !options_.has(Tier::host)) continue;
          options_.fill_devices(limits().room, fill, caches, choice);
          consider(choice, best);
        }
    std::vector<int> last;
    for (const double time_share : {1e9, 1.0, 0.3, 0.1, 0.5, 0.2})
      for (const double byte_share : {1e9, 1.0, 0.3, 0.1, 0.02, 0.5, 0.05}) {
        if (constraints_.effort < kThorough &&
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

  // ---- steps of the search ----

  constexpr void keep(Found& best, const Value& value) const {
    best.options = placement_.choice();
    best.places.resize(best.options.size());
    for (std::size_t t = 0; t < best.options.size(); ++t) best.places[t] = placement_.places(t);
    best.value = value;
  }
  constexpr bool keep_better(Found& best) {
    effort_ -= ranks_;
    const Value value = placement_.value();
    if (!best.options.empty() && !value.better_than(best.value)) return false;
    keep(best, value);
    return true;
  }
  constexpr void restore(const Found& found) {
    const int tables = static_cast<int>(found.options.size());
    for (int t = 0; t < tables; ++t) {
      if (placement_.choice()[t] == found.options[t] && placement_.places(t) == found.places[t])
        continue;
      if (placement_.choice()[t] >= 0) placement_.take(t);
      placement_.put(t, found.options[t], found.places[t]);
    }
  }

  /// Puts a table that is not in the plan where the step is shortest.
  constexpr Value insert(int t) {
    Value best;
    int chosen = -1;
    const double without = placement_.value().step;
    for (std::size_t o = options_.begin(t); o < options_.end(t); ++o) {
      if (options_.banned(o, t) ||
          (chosen >= 0 && without + options_[o].base.total() - options_[o].spared > best.step))
        continue;
      placement_.put(t, static_cast<int>(o));
      effort_ -= 2 * ranks_ + kCall + static_cast<std::int64_t>(options_[o].pieces.size());
      if (const Value value = placement_.value(); chosen < 0 || value.shorter_than(best)) {
        best = value;
        chosen = static_cast<int>(o);
        places_ = placement_.places(t);
      }
      placement_.take(t);
    }
    placement_.put(t, chosen, places_);
    return best;
  }

  /// Takes every table out in turn, the costliest first, and puts it back where the step is
  /// shortest, until nothing is better or the effort is spent. Equal tables are tried together
  /// before: where many ranks are equally slow, a change of one table shows nowhere.
  constexpr void improve(Found& best) {
    std::vector<std::pair<double, int>> order;
    for (std::size_t t = 0; t < best.options.size(); ++t)
      order.push_back({-options_[best.options[t]].total, static_cast<int>(t)});
    std::sort(order.begin(), order.end());
    best.value = placement_.value();
    if (alike_.empty() && constraints_.effort >= kThorough) alike_ = options_.equal_tables();
    for (int pass = 0; pass < 12; ++pass) {
      const Value before = best.value;
      for (const std::vector<int>& tables : alike_) {
        for (std::size_t o = 0; o < options_.count(tables.front()); ++o) {
          if (effort_ <= 0) return restore(best);
          if (options_.banned(options_.begin(tables.front()) + o, tables.front())) continue;
          for (const int t : tables) placement_.take(t);
          for (const int t : tables) placement_.put(t, static_cast<int>(options_.begin(t) + o));
          effort_ -= ranks_ * static_cast<std::int64_t>(tables.size());
          keep_better(best);
        }
        restore(best);
      }
      for (const auto& [cost, t] : order) {
        if (effort_ <= 0) return restore(best);
        placement_.take(t);
        const Value value = insert(t);
        if (value.better_than(best.value)) {
          best.options[t] = placement_.choice()[t];
          best.places[t] = placement_.places(t);
          best.value = value;
        } else {
          placement_.take(t);
          placement_.put(t, best.options[t], best.places[t]);
        }
      }
      if (best.value.step > before.step * (1 - 1e-6)) break;
    }
  }

  /// Tables that share a fixed cost give it up together; and tables that may share one are tried as
  /// if it was paid.
  constexpr void share_fees(Found& best) {
    for (const detail::Fee& fee : options_.fees()) {
      if (effort_ <= 0) return;
      Found other = best;
      if (placement_.in_use(fee)) {
        options_.ban(fee);
        std::vector<int> users;
        for (std::size_t t = 0; t < best.options.size(); ++t)
          if (options_.banned(static_cast<std::size_t>(best.options[t]), t))
            users.push_back(static_cast<int>(t));
        for (const int t : users) placement_.take(t);
        for (const int t : users) insert(t);
        keep(other, placement_.value());
        if (other.value.step < best.value.step * 1.2) improve(other);
        options_.allow_fees();
      } else {
        placement_.pay(fee, 1);
        improve(other);
        placement_.pay(fee, -1);
        other.value = placement_.value();
      }
      if (other.value.better_than(best.value))
        best = std::move(other);
      else
        restore(best);
    }
  }

  /// Takes a few tables out and puts them back in another order, again and again. Plans that are a
  /// little worse are taken, too, ever less so: that leads out of what one table's change does not
  /// leave.
  constexpr void exchange_some(Found& best, int rounds) {
    const int tables = static_cast<int>(best.options.size());
    const std::vector<detail::Fee> fees = options_.fees();
    std::uint64_t state = 0x9e3779b97f4a7c15;
    const auto draw = [&](int below) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      return static_cast<int>((state >> 33) % static_cast<std::uint64_t>(below));
    };
    std::vector<std::pair<double, int>> sizes;
    for (int t = 0; t < tables; ++t)
      sizes.push_back(
          {-placement_.size_of(best.options[t]) * options_[best.options[t]].rectangles, t});
    std::sort(sizes.begin(), sizes.end());
    std::vector<int> by_size, out;
    for (const auto& [size, t] : sizes) by_size.push_back(t);
    const auto add = [&](int t) {
      if (std::find(out.begin(), out.end(), t) == out.end()) out.push_back(t);
    };
    double before = 0;
    do {
      before = best.value.step;
      restore(best);
      Found now = best;
      for (int round = 0; round < rounds && effort_ > 0; ++round) {
        out.clear();
        const int most = std::min(tables, 2 + draw(7));
        const int which = draw(4);
        if (which < 2) {  // of the slowest and a lighter rank
          const int slow = draw(3) > 0 ? placement_.extreme_rank(draw(5), true) : draw(ranks_),
                    light = draw(2) == 0 ? placement_.extreme_rank(draw(5), false) : draw(ranks_);
          const int first = draw(tables);
          for (int i = 0; i < tables && std::ssize(out) < most; ++i)
            if (const int t = (first + i) % tables;
                placement_.holds(t, slow) || (placement_.holds(t, light) && draw(2) == 0))
              add(t);
        }
        while (std::ssize(out) < most)  // of all, or rather of the large ones
          add(by_size[static_cast<std::size_t>(which == 2 ? draw(tables)
                                                          : draw(1 + draw(tables)))]);
        if (which != 3 && draw(2) == 0)
          std::sort(out.begin(), out.end(), [&](int a, int b) {
            return placement_.size_of(now.options[a]) > placement_.size_of(now.options[b]);
          });
        // some fixed cost is saved, or taken to be paid
        const detail::Fee fee = fees[static_cast<std::size_t>(draw(static_cast<int>(fees.size())))];
        const int how = draw(10);
        if (how == 0) {
          out.clear();
          options_.ban(fee);
          for (int t = 0; t < tables && std::ssize(out) < 20; ++t)
            if (options_.banned(static_cast<std::size_t>(now.options[t]), t)) out.push_back(t);
        }
        if (how == 1) placement_.pay(fee, 1);
        placement_.weigh(draw(2) == 0 ? 4 : draw(2), draw(3) == 0 ? 4 : 1);
        for (const int t : out) placement_.take(t);
        for (const int t : out) {
          if ((how == 2 || how == 3) && t == out.front())  // any option, for the others to adapt to
            placement_.put(
                t, static_cast<int>(options_.begin(t)) + draw(static_cast<int>(options_.count(t))));
          else
            insert(t);
        }
        if (how == 0) options_.allow_fees();
        if (how == 1) placement_.pay(fee, -1);
        const Value value = placement_.value();
        const double worse = 0.01 * (rounds - round) / rounds;
        if (value.better_than(best.value) || value.step < best.value.step * (1 + worse)) {
          for (const int t : out) {
            now.options[t] = placement_.choice()[t];
            now.places[t] = placement_.places(t);
          }
          now.value = value;
          if (value.better_than(best.value)) best = now;
          continue;
        }
        for (const int t : out) placement_.take(t);
        for (const int t : out) placement_.put(t, now.options[t], now.places[t]);
      }
      placement_.weigh(4, 1);
    } while (best.value.step < before * (1 - 1e-3) && effort_ > 0);
  }

  /// A plan with fewer, larger rectangles that takes hardly longer.
  constexpr Found simpler(Found found) {
    restore(found);
    const double most = found.value.step * (1 + kSimpler);
    std::vector<std::pair<int, int>> order;
    for (std::size_t t = 0; t < found.options.size(); ++t)
      if (const int count = options_[found.options[t]].rectangles; count > 1)
        order.push_back({-count, static_cast<int>(t)});
    std::sort(order.begin(), order.end());
    for (const auto& [count, t] : order) {
      int fewest = -count;
      placement_.take(t);
      int chosen = found.options[t];
      for (std::size_t o = options_.begin(t); o < options_.end(t); ++o) {
        if (options_[o].rectangles >= fewest) continue;
        placement_.put(t, static_cast<int>(o));
        if (const Value value = placement_.value(); value.fits && value.step <= most) {
          fewest = options_[o].rectangles;
          chosen = static_cast<int>(o);
          found.places[t] = placement_.places(t);
        }
        placement_.take(t);
      }
      found.options[t] = chosen;
      placement_.put(t, chosen, found.places[t]);
    }
    found.value = placement_.value();
    return found;
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
      const Option& o = options_[found.options[t]];
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

  /// Of the plans found and the plain strategies that are allowed, those that fit and are not
  /// slower than the fastest such strategy; of these the best, memory balance included, or one with
  /// fewer rectangles that is hardly worse.
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
        if (PlanChoice plain = detail::plain_choice(s, layout_, constraints_, candidates.front());
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
  int ranks_;
  std::int64_t effort_;
  detail::TableOptions options_;
  detail::PartPlacement placement_;
  std::vector<std::vector<int>> alike_;  // equal tables
  std::vector<int> places_;
};

}}  // namespace tessera::v0
