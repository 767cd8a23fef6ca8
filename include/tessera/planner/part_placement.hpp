// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>
#include <tessera/planner/placed_before.hpp>
#include <tessera/planner/shared_cores.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A plan on its ranks, which changes table by table: parts come, each to the rank where the step
/// grows least, and go. What the Planner compares plans by is the step, as `predict` has it.
class PartPlacement {
 public:
  /// In bytes of a rank.
  struct Limits {
    TierBytes room;
    double even = 1;     ///< of all tables, without copies
    double balance = 0;  ///< see PlanConstraints::memory_balance
  };
  static constexpr double overflow = 20;  ///< what a memory that is twice too full costs
  static constexpr std::int64_t no_limit = std::int64_t{1} << 62;  ///< of room
  static constexpr double level = 1.05;      ///< even shares that cost nothing
  static constexpr double tie_price = 2e-3;  ///< the most that level memory costs where there is
                                             ///< plenty

  /// What plans are compared by.
  struct Value {
    double step = 1e300;    ///< seconds, with the price of uneven and of too full memory
    double spread = 1e300;  ///< of time and memory over the ranks; decides between equal steps
    bool fits = false;
    double even = 1e300;  ///< see weigh_even: like `step`, less if few ranks are at the peaks
    constexpr bool shorter_than(const Value& other) const {
      return step < other.step * (1 - 1e-9) ||
             (step <= other.step * (1 + 1e-12) && spread < other.spread * (1 - 1e-6));
    }
    constexpr bool better_than(const Value& other) const {
      return fits != other.fits ? fits : shorter_than(other);
    }
  };

  constexpr PartPlacement(const Layout& layout, const CostModel& model,
                          const std::vector<CutOption>& options)
      : topology_(layout.topology),
        options_(options),
        ranks_(layout.ranks()),
        cores_(model.cluster().concurrent_ranks),
        launch_(model.cluster().launch_seconds),
        copies_fee_(3 * model.collective_seconds()),
        overlap_route_(model.workload().overlap_route) {
    Layout empty{.topology = layout.topology};
    const Prediction alone = predict(empty, model);
    start_ = StageLoad(alone.ranks.front());
    dense_ = alone.stages.dense;
    rest_ = alone.stages.dense + alone.stages.all_reduce;
    choice_.assign(layout.tables.size(), -1);
    places_.assign(layout.tables.size(), {});
    taken_by_.assign(static_cast<std::size_t>(ranks_), -1);
    clear();
  }

  /// Begins anew beside what is there already; it must outlive the plan.
  constexpr void begin_beside(const PlacedBefore& before) {
    before_ = &before;
    clear();
  }
  /// Returns what is there now, for the next round.
  constexpr PlacedBefore placed() const {
    PlacedBefore all{.loads = loads_,
                     .seconds = seconds_,
                     .bytes = bytes_,
                     .base = base_,
                     .base_bytes = base_bytes_};
    for (const auto& [width, users] : widths_)
      if (users > 0) all.fees.push_back({width});
    if (copies_ > 0) all.fees.push_back({});
    if (before_ != nullptr) all.level = before_->level;
    return all;
  }

  constexpr Limits& limits() { return limits_; }
  constexpr const Limits& limits() const { return limits_; }
  /// Returns the option of each table; negative: it is not there.
  constexpr const std::vector<int>& choice() const { return choice_; }
  /// Returns the ranks, or nodes, of a table's parts.
  constexpr const std::vector<int>& places(std::size_t table) const { return places_[table]; }
  /// Returns what the first option to pay a fee adds to the step.
  constexpr double price(const Fee& fee) const {
    return fee.width == 0 ? copies_fee_ : 2 * launch_;
  }
  constexpr bool in_use(const Fee& fee) const { return users_of(fee) > 0; }
  /// Counts a fee as paid, `times` 1, whatever uses it; -1 ends that.
  constexpr void pay(const Fee& fee, int times) { users(fee) += times; }

  /// Sets how much the growth of the step and memory count, beside what a rank carries already,
  /// when a part's rank is chosen.
  constexpr void weigh(double growth, double bytes) {
    growth_weight_ = growth;
    byte_weight_ = bytes;
  }

  /// Sets how much of what peaks exceed other ranks by Value::even leaves out.
  constexpr void weigh_even(double weight) { even_weight_ = weight; }

  /// Places a whole plan, largest parts first.
  constexpr void place(const std::vector<int>& choice) {
    clear();
    double sum_seconds = 1e-30;
    for (const int o : choice) sum_seconds += options_[o].total;
    second_unit_ = ranks_ / sum_seconds;
    byte_unit_ = 1 / std::max(1.0, limits_.even);
    std::vector<std::pair<double, int>> order;
    for (std::size_t t = 0; t < choice.size(); ++t) order.push_back({-size_of(choice[t]), t});
    std::sort(order.begin(), order.end());
    for (const auto& [size, t] : order) put(t, choice[t]);
  }
  /// Returns a part's share of a mean rank.
  constexpr double size_of(int option) const {
    const CutOption& o = options_[option];
    return o.seconds * second_unit_ + o.part().device_bytes() * byte_unit_;
  }

  constexpr void put(int t, int option) {
    choose_places(t, options_[option], most_load(), places_[t]);
    choice_[t] = option;
    apply(t, 1);
  }
  constexpr void put(int t, int option, const std::vector<int>& places) {
    places_[t] = places;
    choice_[t] = option;
    apply(t, 1);
  }
  constexpr void take(int t) {
    apply(t, -1);
    choice_[t] = -1;
  }

  /// Calls `on_rank` with the rank and the cost of each part of an option, and `everywhere` with
  /// what all ranks have.
  template <class OnRank, class Everywhere>
  constexpr void visit(const CutOption& o, const std::vector<int>& places, OnRank on_rank,
                       Everywhere everywhere) const {
    if (!o.pieces.empty()) {
      PlaceNumbers numbers;
      for (const PartCost& piece : o.pieces) {
        const int number = numbers.next(piece.place);
        if (piece.place.kind == Place::Kind::every)
          everywhere(piece);
        else
          on_rank(number < 0 ? piece.place.index
                  : piece.place.kind == Place::Kind::any
                      ? places[number]
                      : places[number] * topology_.node_size() + piece.place.index,
                  piece);
      }
      return;
    }
    const PartCost part = o.part();
    if (o.cut == Cut::replicated || o.cut == Cut::row_wise) {
      everywhere(part);
    } else if (o.cut == Cut::grid) {
      const int size = topology_.node_size();
      for (const int node : places)
        for (int m = 0; m < size; ++m) on_rank(node * size + m, part);
    } else {
      for (const int rank : places) on_rank(rank, part);
    }
  }

  /// What ranks carry: the most of each stage and memory, and how evenly.
  struct Peaks {
    StageLoad load{};
    TierBytes bytes{};
    double spread = 0;
    int least_spared = 0;  ///< ranks that have the most of `assemble`, whose parts are less than 0
    double over = 0;       ///< seconds by which the peaks exceed what most ranks carry
  };
  constexpr Peaks peaks() const {
    Peaks p{.load = loads_.front()};
    for (std::size_t r = 0; r < loads_.size(); ++r) {
      p.least_spared = loads_[r].assemble > p.load.assemble
                           ? 1
                           : p.least_spared + (loads_[r].assemble == p.load.assemble ? 1 : 0);
      p.load.raise(loads_[r]);
      p.bytes.raise(bytes_[r]);
      p.spread += spread_of(seconds_[r], bytes_[r].device);
    }
    raise_to_level(p.load);
    if (even_weight_ > 0 && cores_ == 0)
      for (const auto stage :
           {&StageLoad::route, &StageLoad::lookup, &StageLoad::exchange, &StageLoad::update})
        p.over += p.load.*stage - upper_mean(stage, p.load.*stage);
    return p;
  }
  /// Moves part `k` of a table, of an option of equal parts, to another rank.
  constexpr void move(std::size_t t, std::size_t k, int rank) {
    const PartCost part = options_[choice_[t]].part();
    int& place = places_[t][k];
    hold(place, part, -1);
    hold(rank, part, 1);
    place = rank;
  }
  constexpr bool movable(std::size_t t) const {
    const CutOption& o = options_[choice_[t]];
    return o.pieces.empty() && o.rank < 0 &&
           (o.cut == Cut::table_wise || o.cut == Cut::column_wise);
  }
  constexpr Value value() const { return value_of(peaks(), base_, base_bytes_, nullptr); }

  /// Returns the value with a table's option in the plan, which has not the table, and the option's
  /// places; `rest`: peaks() of the plan.
  constexpr Value value_with(int t, int option, const Peaks& rest, std::vector<int>& places) {
    const CutOption& o = options_[option];
    choose_places(t, o, rest.load, places);
    const bool once = o.cut != Cut::own && o.cut != Cut::hot_rows &&  // a rank has a part at most
                      o.parts <= (o.cut == Cut::grid ? topology_.nodes() : ranks_);
    if (cores_ == 0 && once) {
      Peaks p = rest;
      TierBytes base_bytes = base_bytes_;
      visit(
          o, places,
          [&](int rank, const PartCost& part) {
            StageLoad load = loads_[rank];
            p.least_spared -= part.load.assemble < 0 && load.assemble == rest.load.assemble ? 1 : 0;
            load.add(part.load);
            p.load.raise(load);
            TierBytes bytes = bytes_[rank];
            bytes.add(part);
            p.bytes.raise(bytes);
            p.spread += spread_of(seconds_[rank] + part.seconds, bytes.device) -
                        spread_of(seconds_[rank], bytes_[rank].device);
          },
          [&](const PartCost& part) { base_bytes.add(part); });
      StageLoad base = base_;
      base.add(o.base);
      if (p.least_spared > 0) return value_of(p, base, base_bytes, &o);
    }
    choice_[t] = option;
    places_[t] = places;
    apply(t, 1);
    const Value value = this->value();
    take(t);
    return value;
  }

  /// Returns a factor of the step. Bytes beyond an even share cost what they take of a rank's
  /// memory; without a limit, of four even shares.
  constexpr double memory_price(double most_bytes) const {
    const double excess = std::max(0.0, most_bytes - level * limits_.even),
                 room = limits_.room.device < no_limit ? static_cast<double>(limits_.room.device)
                                                       : 4 * limits_.even;
    return 1 + limits_.balance * excess / std::max(room, 1.0) +
           tie_price * std::min({1.0, limits_.balance, excess / std::max(limits_.even, 1.0)});
  }

  /// Returns the rank whose parts take longest, or least long, in a stage; `stage` 4: in all.
  constexpr int extreme_rank(int stage, bool longest) const {
    // an array of the standard library: nvcc puts parentheses that g++ warns of into a plain one's
    constexpr std::array<double StageLoad::*, 4> stages{&StageLoad::route, &StageLoad::lookup,
                                                        &StageLoad::exchange, &StageLoad::update};
    const auto load = [&](int r) {
      return (longest ? 1 : -1) *
             (stage < 4 ? loads_[r].*stages[static_cast<std::size_t>(stage)] : seconds_[r]);
    };
    int found = 0;
    for (int r = 1; r < ranks_; ++r)
      if (load(r) > load(found)) found = r;
    return found;
  }
  constexpr bool holds(int t, int rank) const {
    const CutOption& o = options_[choice_[t]];
    const bool node = o.cut == Cut::grid;
    for (const int place : places_[t])
      if ((node ? rank / topology_.node_size() : rank) == place) return true;
    return false;
  }

 private:
  /// Returns a mean of what ranks carry in a stage, in which the most loaded ones count by far
  /// most.
  constexpr double upper_mean(double StageLoad::* stage, double most) const {
    if (most <= 0) return 0;
    double seventh = 1e-300, eighth = 0;
    for (const StageLoad& load : loads_) {
      const double x = load.*stage / most, x2 = x * x, x4 = x2 * x2, x7 = x4 * x2 * x;
      seventh += x7, eighth += x7 * x;
    }
    return most * eighth / seventh;
  }
  constexpr double spread_of(double seconds, std::int64_t bytes) const {
    const double time = seconds * second_unit_, memory = static_cast<double>(bytes) * byte_unit_;
    return time * time + memory * memory;
  }

  /// Returns the value of a plan. `base`, `base_bytes`: of every rank. `more`: an option that pays
  /// fees besides.
  constexpr Value value_of(const Peaks& p, const StageLoad& base, const TierBytes& base_bytes,
                           const CutOption* more) const {
    int widths = 0;
    bool copies = copies_ > 0;
    for (const auto& [width, users] : widths_) widths += users > 0 ? 1 : 0;
    if (more != nullptr)
      for (const Fee& fee : more->fees) {
        copies |= fee.width == 0;
        widths += fee.width != 0 && !in_use(fee) ? 1 : 0;
      }
    StageLoad most = p.load, all = base;
    all.lookup += launch_ * widths;
    all.update += launch_ * widths + (copies ? copies_fee_ : 0);
    if (cores_ == 0)
      most.add(all);
    else
      most = on_shared_cores(all);
    const double time =
        most.total() + rest_ - (overlap_route_ ? std::min(most.route, dense_) : 0.0);
    TierBytes most_bytes = p.bytes;
    most_bytes.add(base_bytes);
    const double full = most_bytes.share_of(limits_.room);
    const double price = memory_price(static_cast<double>(most_bytes.device)) *
                         (1 + overflow * std::max(0.0, full - 1));
    return {time * price, p.spread, full <= 1, (time - even_weight_ * p.over) * price};
  }

  constexpr void clear() {
    loads_.assign(static_cast<std::size_t>(ranks_), {});
    seconds_.assign(static_cast<std::size_t>(ranks_), 0.0);
    bytes_.assign(static_cast<std::size_t>(ranks_), {});
    base_ = start_;
    base_bytes_ = {};
    copies_ = 0;
    widths_.clear();
    for (int& o : choice_) o = -1;
    for (std::vector<int>& places : places_) places.clear();
    if (before_ == nullptr || before_->loads.empty()) return;
    loads_ = before_->loads;
    seconds_ = before_->seconds;
    bytes_ = before_->bytes;
    base_ = before_->base;
    base_bytes_ = before_->base_bytes;
    for (const Fee& fee : before_->fees) users(fee) += 1;
  }
  constexpr void raise_to_level(StageLoad& most) const {
    if (before_ == nullptr) return;
    const double assemble = most.assemble;  // of parts less than 0
    most.raise(before_->level);
    most.assemble = assemble;
  }

  /// Returns the stages where ranks of a node wait for a core; `all`: what each has besides its
  /// parts.
  constexpr StageLoad on_shared_cores(const StageLoad& all) const {
    StageLoad most;
    std::vector<double> node;
    const std::size_t size = static_cast<std::size_t>(topology_.node_size());
    for (const auto stage : {&StageLoad::route, &StageLoad::lookup, &StageLoad::exchange,
                             &StageLoad::assemble, &StageLoad::update})
      for (std::size_t r = 0; r < loads_.size(); ++r) {
        node.push_back(loads_[r].*stage + all.*stage);
        if ((r + 1) % size != 0 && r + 1 < loads_.size()) continue;
        most.*stage = std::max(most.*stage, shared_seconds(node, cores_));
        node.clear();
      }
    return most;
  }

  constexpr int& users(const Fee& fee) {
    if (fee.width == 0) return copies_;
    for (auto& [width, users] : widths_)
      if (width == fee.width) return users;
    widths_.push_back({fee.width, 0});
    return widths_.back().second;
  }
  constexpr int users_of(const Fee& fee) const {
    if (fee.width == 0) return copies_;
    for (const auto& [width, users] : widths_)
      if (width == fee.width) return users;
    return 0;
  }

  /// Adds a table's parts to what ranks carry, or takes them away.
  constexpr void apply(int t, int times) {
    const CutOption& o = options_[choice_[t]];
    base_.add(o.base, times);
    for (const Fee& fee : o.fees) users(fee) += times;
    visit(
        o, places_[t], [&](int rank, const PartCost& part) { hold(rank, part, times); },
        [&](const PartCost& part) { base_bytes_.add(part, times); });
  }

  constexpr void hold(int rank, const PartCost& part, int times) {
    loads_[rank].add(part.load, times);
    seconds_[rank] += times * part.seconds;
    bytes_[rank].add(part, times);
  }

  // ---- where parts go ----

  /// Returns what a rank's stages may take without making the step longer.
  constexpr StageLoad most_load() const {
    StageLoad most = loads_.front();
    for (const StageLoad& load : loads_) most.raise(load);
    raise_to_level(most);
    return most;
  }

  /// Returns how bad a rank is for a part: no room, then the growth of the step, then what it
  /// carries.
  constexpr double burden(int rank, const PartCost& part, const StageLoad& most) const {
    const TierBytes& held = bytes_[rank];
    const std::int64_t device = held.device + base_bytes_.device + part.bytes_in(Tier::device);
    const bool full =
        device > limits_.room.device ||
        (part.tier == Tier::host &&
         held.host + base_bytes_.host + part.bytes > limits_.room.host) ||
        (part.tier == Tier::file && held.file + base_bytes_.file + part.bytes > limits_.room.file);
    return (full ? 1e6 : 0) +
           (growth_weight_ * loads_[rank].growth(part.load, most) + seconds_[rank] + part.seconds) *
               second_unit_ +
           byte_weight_ * static_cast<double>(device) * byte_unit_;
  }

  constexpr void choose_places(int t, const CutOption& o, const StageLoad& most,
                               std::vector<int>& places) {
    places.clear();
    if (!o.pieces.empty()) return choose_for_pieces(t, o.pieces, most, places);
    if (o.cut == Cut::replicated || o.cut == Cut::row_wise) return;
    if (o.rank >= 0) return places.push_back(o.rank);
    const PartCost part = o.part();
    if (o.cut == Cut::grid) return choose_nodes(o, part, most, places);
    if (o.parts == 1) {
      int best = 0;
      double least = 1e300;
      for (int r = 0; r < ranks_; ++r)
        if (const double b = burden(r, part, most); b < least) best = (least = b, r);
      return places.push_back(best);
    }
    order_.clear();
    for (int r = 0; r < ranks_; ++r) order_.push_back({burden(r, part, most), r});
    take_first(o.parts, places);
  }

  /// Takes the `count` places of least burden.
  constexpr void take_first(int count, std::vector<int>& places) {
    std::partial_sort(order_.begin(),
                      order_.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order_)),
                      order_.end());
    for (int k = 0; k < count; ++k)
      places.push_back(order_[static_cast<std::size_t>(k) % order_.size()].second);
  }

  constexpr void choose_nodes(const CutOption& o, const PartCost& part, const StageLoad& most,
                              std::vector<int>& places) {
    const int size = topology_.node_size();
    order_.clear();
    for (int node = 0; node < ranks_ / size; ++node) {
      double worst = 0;
      for (int m = 0; m < size; ++m) worst = std::max(worst, burden(node * size + m, part, most));
      order_.push_back({worst, node});
    }
    take_first(o.parts, places);
  }

  /// Chooses for rectangles that differ, whose policy leaves ranks or nodes open.
  constexpr void choose_for_pieces(int t, const std::vector<PartCost>& pieces,
                                   const StageLoad& most, std::vector<int>& places) {
    PlaceNumbers numbers;
    const int size = topology_.node_size();
    std::fill(taken_by_.begin(), taken_by_.end(), -1);
    const auto note = [&](int rank) { taken_by_[rank] = t; };
    for (const PartCost& piece : pieces)
      if (piece.place.kind == Place::Kind::rank) note(piece.place.index);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Place& place = pieces[i].place;
      if (numbers.next(place) < static_cast<int>(places.size()))
        continue;  // fixed, or of a group put before
      const bool any = place.kind == Place::Kind::any;
      int best = 0;
      double least = 1e300;
      for (int p = 0; p < (any ? ranks_ : ranks_ / size); ++p) {
        double worst = 0;
        for (std::size_t k = i; k < (any ? i + 1 : pieces.size()); ++k) {
          if (!any && (pieces[k].place.kind != place.kind || pieces[k].place.group != place.group))
            continue;
          const int rank = any ? p : p * size + pieces[k].place.index;
          worst = std::max(worst, burden(rank, pieces[k], most) + (taken_by_[rank] == t ? 1e3 : 0));
        }
        if (worst < least) best = (least = worst, p);
      }
      places.push_back(best);
      for (std::size_t k = i; k < (any ? i + 1 : pieces.size()); ++k)
        if (any || (pieces[k].place.kind == place.kind && pieces[k].place.group == place.group))
          note(any ? best : best * size + pieces[k].place.index);
    }
  }

  const Topology topology_;
  const std::vector<CutOption>& options_;
  int ranks_, cores_;
  double launch_, copies_fee_, dense_ = 0, rest_ = 0;
  bool overlap_route_;
  const PlacedBefore* before_ = nullptr;
  Limits limits_;
  StageLoad start_, base_;  // on every rank: of a step without tables, and of this one
  TierBytes base_bytes_;
  int copies_ = 0;                           // options that have copies
  std::vector<std::pair<int, int>> widths_;  // of rectangles, and the options that have them
  std::vector<StageLoad> loads_;
  std::vector<double> seconds_;
  std::vector<TierBytes> bytes_;
  std::vector<int> taken_by_, choice_;
  std::vector<std::vector<int>> places_;
  std::vector<std::pair<double, int>> order_;
  double second_unit_ = 1, byte_unit_ = 0;  // shares of a mean rank
  double growth_weight_ = 4, byte_weight_ = 1, even_weight_ = 0;
};

}}}  // namespace tessera::v0::detail
