// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>
#include <tessera/planner/part_placement.hpp>
#include <tessera/planner/table_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A plan and the steps by which a search makes it better, until its effort is spent.
class PlanSteps {
 public:
  using Value = PartPlacement::Value;

  /// A plan, to come back to.
  struct Found {
    std::vector<int> options;
    std::vector<std::vector<int>> places;
    Value value{};
  };

  /// Takes `layout`, `model` and `constraints`, which must outlive it.
  constexpr PlanSteps(const Layout& layout, const CostModel& model,
                      const PlanConstraints& constraints)
      : ranks_(layout.ranks()),
        look_(model.cluster().concurrent_ranks > 0 ? 5 * layout.ranks() : layout.ranks()),
        thorough_(constraints.effort >= kThorough && ranks_ > 1),
        effort_(constraints.effort),
        options_(layout, model, constraints),
        placement_(layout, model, options_.all()) {
    for (const Tier tier : all_tiers) {
      const std::int64_t memory = memory_of(model.cluster(), tier),
                         reserve = tier == Tier::device ? constraints.reserve : 0;
      room(tier) =
          memory == 0 ? PartPlacement::no_limit : std::max<std::int64_t>(memory - reserve, 0);
    }
    for (std::size_t t = 0; t < layout.tables.size(); ++t) {
      const TableSpec& table = layout.tables[t];
      limits().even += static_cast<double>(
                           model.memory(static_cast<int>(t)).of({0, table.rows, 0, table.width})) /
                       ranks_;
    }
    limits().balance = constraints.memory_balance;
  }

  PlanSteps(const PlanSteps&) = delete;
  PlanSteps& operator=(const PlanSteps&) = delete;

 protected:
  // searches with less effort, while compiling, take fewer ways
  static constexpr std::int64_t kThorough = 1'000'000;
  static constexpr std::int64_t kMoves = 16'000;  // of settle, per table
  static constexpr std::int64_t kCall = 30;       // what a trial costs besides, in places
  // the most that fewer rectangles may cost of a step
  static constexpr double kSimpler = 2e-3;

  constexpr PartPlacement::Limits& limits() { return placement_.limits(); }
  constexpr const PartPlacement::Limits& limits() const { return placement_.limits(); }
  constexpr std::int64_t& room(Tier tier) { return limits().room[tier]; }
  constexpr std::int64_t room(Tier tier) const { return limits().room[tier]; }

  /// Returns a number from 0 to below `below`, the same ones in every search.
  constexpr int draw(int below) {
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
    return static_cast<int>((random_ >> 33) % static_cast<std::uint64_t>(below));
  }

  constexpr void keep(Found& best, const Value& value) const {
    best.options = placement_.choice();
    best.places.resize(best.options.size());
    for (std::size_t t = 0; t < best.options.size(); ++t) best.places[t] = placement_.places(t);
    best.value = value;
  }
  constexpr bool keep_better(Found& best) {
    effort_ -= look_;
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
    const PartPlacement::Peaks rest = placement_.peaks();
    for (std::size_t o = options_.begin(t); o < options_.end(t); ++o) {
      if (options_.banned(o) ||
          (chosen >= 0 && without + options_[o].base.total() - options_[o].spared > best.step))
        continue;
      effort_ -= ranks_ + look_ + kCall + static_cast<std::int64_t>(options_[o].pieces.size());
      const Value value = placement_.value_with(t, static_cast<int>(o), rest, tried_);
      if (chosen >= 0 && !value.shorter_than(best)) continue;
      best = value;
      chosen = static_cast<int>(o);
      std::swap(places_, tried_);
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
    if (alike_.empty() && thorough_) alike_ = options_.equal_tables();
    for (int pass = 0; pass < 12; ++pass) {
      const Value before = best.value;
      for (const std::vector<int>& tables : alike_) {
        for (std::size_t o = 0; o < options_.count(tables.front()); ++o) {
          if (effort_ <= 0) return restore(best);
          if (options_.banned(options_.begin(tables.front()) + o)) continue;
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

  /// Cuts the tables whose options are banned now in other ways, and keeps the plan if it is better;
  /// it is improved before, unless it is longer by more than a share of `worse`.
  constexpr bool do_without(Found& best, double worse) {
    Found other = best;
    std::vector<int> users;
    for (std::size_t t = 0; t < best.options.size(); ++t)
      if (options_.banned(static_cast<std::size_t>(best.options[t])))
        users.push_back(static_cast<int>(t));
    for (const int t : users) placement_.take(t);
    for (const int t : users) insert(t);
    keep(other, placement_.value());
    if (other.value.step < best.value.step * (1 + worse)) improve(other);
    options_.allow();
    return keep_or_restore(other, best);
  }
  constexpr bool keep_or_restore(Found& other, Found& best) {
    const bool better = other.value.better_than(best.value);
    if (better)
      best = std::move(other);
    else
      restore(best);
    return better;
  }

  /// Lets tables that share a fixed cost, or two, give it up together; and tries tables that may
  /// share one as if it was paid.
  constexpr void share_fees(Found& best) {
    const std::vector<Fee> fees = options_.fees();
    for (std::size_t i = 0; i < fees.size(); ++i)
      for (std::size_t k = i; k < fees.size() && effort_ > 0; ++k) {
        if (!placement_.in_use(fees[k]) || !placement_.in_use(fees[i])) continue;
        options_.ban({fees[i], fees[k]});
        do_without(best, k == i ? 0.2 : 0.05);
      }
    for (const Fee& fee : fees) {
      if (effort_ <= 0) return;
      if (placement_.in_use(fee)) continue;
      Found other = best;
      placement_.pay(fee, 1);
      improve(other);
      placement_.pay(fee, -1);
      other.value = placement_.value();
      keep_or_restore(other, best);
    }
  }

  /// Cuts all tables whose parts take long in a stage into smaller ones together: the slowest rank
  /// decides, so that one table alone gains nothing.
  constexpr void lower_peaks(Found& best) {
    for (const auto stage :
         {&StageLoad::route, &StageLoad::lookup, &StageLoad::exchange, &StageLoad::update})
      for (const double share : {0.99, 0.9, 0.75, 0.5}) {
        double most = 0;
        for (const int o : best.options) most = std::max(most, options_[o].load.*stage);
        if (most <= 0 || effort_ <= 0) break;
        options_.ban_if([&](const CutOption& o) { return o.load.*stage > share * most; });
        do_without(best, 0.2);
      }
  }

  /// Takes a few tables out and puts them back in another order, again and again. Plans that are a
  /// little worse are taken, too, ever less so: that leads out of what one table's change does not
  /// leave.
  constexpr void exchange_some(Found& best, int rounds) {
    const int tables = static_cast<int>(best.options.size());
    const std::vector<Fee> fees = options_.fees();
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
        const Fee fee = fees[static_cast<std::size_t>(draw(static_cast<int>(fees.size())))];
        const int how = draw(10);
        const Fee other = fees[static_cast<std::size_t>(draw(static_cast<int>(fees.size())))];
        const bool paid = how == 1 || (how == 0 && draw(2) == 0);
        if (how == 0) {
          out.clear();
          if (draw(2) == 0)
            options_.ban({fee});
          else
            options_.ban(
                {fee, fees[static_cast<std::size_t>(draw(static_cast<int>(fees.size())))]});
          for (int t = 0; t < tables && std::ssize(out) < 20; ++t)
            if (options_.banned(static_cast<std::size_t>(now.options[t]))) out.push_back(t);
        }
        if (paid) placement_.pay(other, 1);
        placement_.weigh(draw(2) == 0 ? 4 : draw(2), draw(3) == 0 ? 4 : 1);
        for (const int t : out) placement_.take(t);
        for (const int t : out) {
          if ((how == 2 || how == 3) && t == out.front())  // any option, for the others to adapt to
            placement_.put(
                t, static_cast<int>(options_.begin(t)) + draw(static_cast<int>(options_.count(t))));
          else
            insert(t);
        }
        if (how == 0) options_.allow();
        if (paid) placement_.pay(other, -1);
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

  /// Moves a part, swaps two between ranks, or cuts a table in another way, again and again. Plans
  /// that are longer by a share of `worse` are taken, ever less so. `even`: how far a step counts as
  /// shorter if few ranks are at its peaks; where many are, one move shows in no step.
  constexpr void settle(Found& best, double worse, double even) {
    restore(best);
    const std::size_t tables = best.options.size();
    const auto draw = [&](std::size_t below) {
      return static_cast<std::size_t>(this->draw(static_cast<int>(below)));
    };
    const auto holds = [&](std::size_t t, int rank) {
      const std::vector<int>& places = placement_.places(t);
      return std::find(places.begin(), places.end(), rank) != places.end();
    };
    const std::int64_t rounds =
        std::min(kMoves * static_cast<std::int64_t>(tables), effort_ / (2 * look_ + 8));
    std::vector<int> before;
    placement_.weigh_even(even);
    Value now = placement_.value();
    double heat = 0;
    const auto taken = [&] {
      const Value value = placement_.value();
      if (!value.better_than(now) && (value.fits < now.fits || value.even >= now.even * (1 + heat)))
        return false;
      now = value;
      if (value.better_than(best.value)) keep(best, value);
      return true;
    };
    for (std::int64_t round = 0; round < rounds; ++round) {
      const double left = static_cast<double>(rounds - round) / static_cast<double>(rounds);
      heat = worse * left * left * static_cast<double>(draw(1000)) / 1000;
      const std::size_t a = draw(tables), b = draw(tables);
      if (draw(4) == 0) {
        const int was = placement_.choice()[a];
        before = placement_.places(a);
        placement_.take(static_cast<int>(a));
        placement_.put(static_cast<int>(a),
                       static_cast<int>(options_.begin(a) + draw(options_.count(a))));
        if (taken()) continue;
        placement_.take(static_cast<int>(a));
        placement_.put(static_cast<int>(a), was, before);
        continue;
      }
      if (!placement_.movable(a)) continue;
      const bool swap = draw(2) == 0 && b != a && placement_.movable(b);
      const std::size_t i = draw(placement_.places(a).size()),
                        k = swap ? draw(placement_.places(b).size()) : 0;
      const int from = placement_.places(a)[i],
                to = swap ? placement_.places(b)[k] : this->draw(ranks_);
      if (to == from || holds(a, to) || (swap && holds(b, from))) continue;
      placement_.move(a, i, to);
      if (swap) placement_.move(b, k, from);
      if (taken()) continue;
      if (swap) placement_.move(b, k, to);
      placement_.move(a, i, from);
    }
    placement_.weigh_even(0);
    restore(best);
    best.value = placement_.value();
  }

  /// Returns a plan with fewer, larger rectangles that takes hardly longer.
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

  const int ranks_;
  const int look_;  // what the value of a plan costs, in places
  const bool thorough_;
  std::int64_t effort_;
  TableOptions options_;
  PartPlacement placement_;

 private:
  std::uint64_t random_ = 0x9e3779b97f4a7c15;
  std::vector<std::vector<int>> alike_;  // equal tables
  std::vector<int> places_, tried_;      // of a table's parts
};

}}}  // namespace tessera::v0::detail
