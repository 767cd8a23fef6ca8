// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>
#include <tessera/planner/part_placement.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The options of every table, one table after the other, and which may not be taken now. Chooses
/// an option per table by what it costs alone, whatever the ranks.
class TableOptions {
 public:
  constexpr TableOptions(const Layout& layout, const CostModel& model,
                         const PlanConstraints& constraints)
      : layout_(layout), model_(model), ranks_(layout.ranks()) {
    for (std::size_t t = 0; t < layout.tables.size(); ++t) {
      first_.push_back(all_.size());
      append_cut_options(layout, static_cast<int>(t), model, constraints, all_);
    }
  }

  constexpr const std::vector<CutOption>& all() const { return all_; }
  constexpr const CutOption& operator[](std::size_t option) const { return all_[option]; }
  constexpr std::size_t tables() const { return first_.size(); }
  constexpr std::size_t begin(std::size_t t) const { return first_[t]; }
  constexpr std::size_t end(std::size_t t) const {
    return t + 1 < first_.size() ? first_[t + 1] : all_.size();
  }
  constexpr std::size_t count(std::size_t t) const { return end(t) - begin(t); }
  constexpr bool has(Tier tier) const { return memory_of(model_.cluster(), tier) > 0; }

  /// Forbids a kind of cut, until all are allowed.
  constexpr void ban(Cut cut) { cut_ = static_cast<int>(cut), allow(); }
  constexpr void allow_cuts() { cut_ = -1, allow(); }
  /// Forbids what pays any of these fees, or those for which `is_banned(option)` holds, besides the
  /// kind of cut; until allow().
  constexpr void ban(const std::vector<Fee>& fees) {
    if (fees.empty()) return allow();
    ban_if([&](const CutOption& o) { return pays(o, fees); });
  }
  template <class IsBanned>
  constexpr void ban_if(const IsBanned& is_banned) {
    banned_.clear();
    for (const CutOption& o : all_)
      banned_.push_back(static_cast<int>(o.cut) == cut_ || is_banned(o) ? 1 : 0);
    for (std::size_t t = 0; t < tables(); ++t) {
      const auto first = banned_.begin() + static_cast<std::ptrdiff_t>(begin(t)),
                 last = banned_.begin() + static_cast<std::ptrdiff_t>(end(t));
      if (std::find(first, last, 0) == last) std::fill(first, last, char{0});
    }
  }
  constexpr void allow() {
    banned_.clear();
    if (cut_ >= 0) ban_if([](const CutOption&) { return false; });
  }
  /// Returns whether an option of a table may not be taken now. A table's options are allowed where
  /// all would be forbidden.
  constexpr bool banned(std::size_t option) const {
    return !banned_.empty() && banned_[option] != 0;
  }

  /// Returns the seconds of a mean rank with every table's cheapest option.
  constexpr double least_seconds() const {
    double sum = 0;
    for (std::size_t t = 0; t < tables(); ++t) {
      double least = 1e300;
      for (std::size_t o = begin(t); o < end(t); ++o) least = std::min(least, all_[o].total);
      sum += least / ranks_;
    }
    return sum;
  }

  /// Returns what a mean rank carries of the parts of every table's cheapest option.
  constexpr StageLoad least_load() const {
    StageLoad sum;
    for (std::size_t t = 0; t < tables(); ++t) {
      std::size_t best = begin(t);
      for (std::size_t o = begin(t); o < end(t); ++o)
        if (all_[o].total < all_[best].total) best = o;
      const CutOption& o = all_[best];
      if (o.cut != Cut::replicated && o.cut != Cut::row_wise)
        sum.add(o.load, static_cast<double>(o.rectangles) / ranks_);
    }
    return sum;
  }

  /// Chooses every table's cheapest option whose parts keep both limits, or that exceeds them
  /// least.
  constexpr void choose(double seconds, double bytes, std::vector<int>& choice) const {
    choice.clear();
    for (std::size_t t = 0; t < tables(); ++t) {
      double least = 1e300;
      int best = 0;
      for (std::size_t o = begin(t); o < end(t); ++o) {
        if (banned(o)) continue;
        const double excess =
            std::max(all_[o].seconds / seconds, all_[o].part().device_bytes() / bytes);
        const double score = excess <= 1 ? all_[o].total : 1e100 * excess;
        if (score < least) {
          least = score;
          best = static_cast<int>(o);
        }
      }
      choice.push_back(best);
    }
  }

  /// Puts the tables that gain most per byte on the devices, up to a share of their memory; the
  /// others on the hosts, behind caches if those pay and `caches` are allowed, or in files.
  /// Parts are small beside a rank's memory, if a table has such.
  constexpr void fill_devices(const TierBytes& room, double share, bool caches,
                              std::vector<int>& choice) const {
    const Tier farther = has(Tier::host) ? Tier::host : Tier::file;
    const auto cheapest = [&](std::size_t t, Tier tier) {
      int best = -1;
      double least = 1e300;
      for (std::size_t o = begin(t); o < end(t); ++o) {
        if (all_[o].tier != tier || banned(o) ||
            (tier == Tier::host && all_[o].cache_rows != 0 && !caches))
          continue;
        const double excess =
            8 * static_cast<double>(all_[o].bytes) / static_cast<double>(room[tier]);
        const double score = excess <= 1 ? all_[o].total : 1e100 * excess;
        if (score < least) best = (least = score, static_cast<int>(o));
      }
      return best;
    };
    // of all ranks
    const auto bytes_of = [&](const CutOption& o, std::int64_t part) {
      return static_cast<double>(part) *
             (o.cut == Cut::replicated || by_rows(o.cut) ? ranks_ : o.parts) *
             (o.cut == Cut::grid ? layout_.topology.node_size() : 1);
    };
    std::vector<std::pair<double, int>> order;
    double left = share * static_cast<double>(room.device) * ranks_;
    choice.clear();
    for (std::size_t t = 0; t < tables(); ++t) {
      const int near = cheapest(t, Tier::device), far = cheapest(t, farther);
      choice.push_back(far >= 0 ? far : near);
      if (far >= 0) left -= bytes_of(all_[far], all_[far].cache_bytes);
      if (near < 0 || far < 0) continue;
      const TableSpec& table = layout_.tables[t];
      const double bytes = static_cast<double>(
          model_.memory(static_cast<int>(t)).of({0, table.rows, 0, table.width}));
      order.push_back({(all_[near].total - all_[far].total) / bytes, static_cast<int>(t)});
    }
    std::sort(order.begin(), order.end());
    for (const auto& [gain, t] : order) {
      const int near = cheapest(static_cast<std::size_t>(t), Tier::device);
      const CutOption &o = all_[near], &cached = all_[choice[t]];
      const double bytes = bytes_of(o, o.bytes) - bytes_of(cached, cached.cache_bytes);
      if (bytes > left) continue;
      left -= bytes;
      choice[t] = near;
    }
  }

  /// Returns groups of at least two tables of one shape, load and set of options, in the order of
  /// their first tables.
  constexpr std::vector<std::vector<int>> equal_tables() const {
    std::vector<std::vector<int>> groups;
    const auto key = [&](int t) {
      const TableSpec& table = layout_.tables[t];
      return std::tuple(table.rows, table.width, table.skew, table.frequencies, count(t),
                        model_.ids_of(t));
    };
    std::vector<int> order(tables());
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

  /// Sets of fees to do without, the best first: one after the other is given up, the one whose
  /// end costs the mean rank least, without parts that take longer than `limit` if possible.
  /// `price`: what a fee costs once.
  template <class Price>
  constexpr std::vector<std::vector<Fee>> fees_to_spare(double limit, const Price& price) const {
    const std::vector<Fee> all = fees();
    std::vector<std::pair<double, std::vector<Fee>>> found;
    std::vector<Fee> spared, paid;
    const auto seconds = [&](const std::vector<Fee>& without) {
      double sum = 0;
      paid.clear();
      for (std::size_t t = 0; t < tables(); ++t) {
        double least = 1e300;
        std::size_t best = begin(t);
        for (std::size_t o = begin(t); o < end(t); ++o) {
          const double cost = all_[o].total / ranks_ + 1e3 * std::max(0.0, all_[o].seconds - limit);
          if (cost < least && !pays(all_[o], without)) best = o, least = cost;
        }
        sum += least;
        for (const Fee& fee : all_[best].fees)
          if (std::find(paid.begin(), paid.end(), fee) == paid.end()) paid.push_back(fee);
      }
      for (const Fee& fee : paid) sum += price(fee);
      return sum;
    };
    for (double before = 0;;) {
      double least = 1e300;
      Fee best;
      for (const Fee& fee : all) {
        if (std::find(spared.begin(), spared.end(), fee) != spared.end()) continue;
        spared.push_back(fee);
        if (const double s = seconds(spared); s < least) least = s, best = fee;
        spared.pop_back();
      }
      if (least > 1e100) break;
      spared.push_back(best);
      if (least == before) found.pop_back();
      found.push_back({before = least, spared});
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::vector<Fee>> sets;
    for (auto& [cost, set] : found) sets.push_back(std::move(set));
    return sets;
  }

  /// Returns the fees of all options, each once.
  constexpr std::vector<Fee> fees() const {
    std::vector<Fee> found;
    for (const CutOption& o : all_)
      for (const Fee& fee : o.fees)
        if (std::find(found.begin(), found.end(), fee) == found.end()) found.push_back(fee);
    return found;
  }

 private:
  constexpr bool pays(const CutOption& o, const std::vector<Fee>& fees) const {
    return std::any_of(o.fees.begin(), o.fees.end(), [&](const Fee& fee) {
      return std::find(fees.begin(), fees.end(), fee) != fees.end();
    });
  }
  const Layout& layout_;
  const CostModel& model_;
  int ranks_;
  std::vector<CutOption> all_;
  std::vector<std::size_t> first_;  // by table
  int cut_ = -1;
  std::vector<char> banned_;  // by option; empty: none
};

}}}  // namespace tessera::v0::detail
