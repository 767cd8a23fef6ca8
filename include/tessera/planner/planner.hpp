// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>
#include <tessera/planner/strategies.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

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
        balance_(constraints.memory_balance) {
    const std::int64_t memory = model.cluster().memory_per_rank;
    capacity_ = memory == 0 ? std::int64_t{1} << 62
                            : std::max<std::int64_t>(memory - constraints.reserve, 0);
    for (std::size_t t = 0; t < layout_.tables.size(); ++t) {
      const TableSpec& table = layout_.tables[t];
      even_bytes_ +=
          static_cast<double>(model.workload().memory.of({0, table.rows, 0, table.width})) / ranks_;
      first_option_.push_back(options_.size());
      append_cut_options(layout_, static_cast<int>(t), model_, constraints_, options_);
    }
    seconds_.assign(static_cast<std::size_t>(ranks_), 0.0);
    loads_.assign(static_cast<std::size_t>(ranks_), Load());
    bytes_.assign(static_cast<std::size_t>(ranks_), 0);
    taken_by_.assign(static_cast<std::size_t>(ranks_), -1);
  }

  /// The best plan found; `fits` is false where none fits.
  constexpr PlanChoice search() {
    if (constraints_.memory_share <= 0) return search_within();
    const std::int64_t memory = capacity_;
    capacity_ =
        std::min(memory, static_cast<std::int64_t>(constraints_.memory_share * even_bytes_));
    PlanChoice level = search_within();
    if (level.fits) return level;
    capacity_ = memory;
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
      const std::int64_t memory = capacity_;  // even memory from the start leads elsewhere
      capacity_ = std::min(memory, static_cast<std::int64_t>(kLevel * even_bytes_));
      search_once(0, constraints_.effort / 4, found);
      capacity_ = memory;
    }
    balance_ = constraints_.memory_balance;
    return select(found);
  }

  using Load = StageLoad;
  using Option = CutOption;
  static constexpr double kOverflow = 1e9;
  static constexpr double kLevel = 1.05;  // even shares that no one minds
  // searches with less effort, while compiling, take fewer ways
  static constexpr std::int64_t kThorough = 1'000'000;

  constexpr void search_once(double balance, std::int64_t effort, std::vector<PlanChoice>& found) {
    balance_ = balance;
    effort_ = effort;
    best_.clear();
    try_limits();
    improve();
    const double score = place(best_);
    found.push_back(choice_of(best_));
    found.back().fits = score < kOverflow;
    if (constraints_.effort < kThorough || ranks_ == 1) return;
    exchange_places(best_);
    const double exchanged = finish_score();
    if (exchanged >= score) return;
    found.back() = choice_of(best_);
    found.back().fits = exchanged < kOverflow;
  }

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
    for (const double time_share : {1e9, 1.0, 0.3, 0.1, 0.5, 0.2})
      for (const double byte_share : {1e9, 1.0, 0.3, 0.1, 0.02, 0.5, 0.05}) {
        if (constraints_.effort < kThorough &&
            (time_share == 0.5 || time_share == 0.2 || byte_share == 0.5 || byte_share == 0.05))
          continue;
        choose(mean_seconds * time_share,
               std::min(even_bytes_ * byte_share, static_cast<double>(capacity_)), choice);
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
            std::max(options_[o].seconds / seconds, static_cast<double>(options_[o].bytes) / bytes);
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

  // ---- placing ----

  /// Places the parts of a plan. Returns its time with the penalty for uneven memory; above
  /// kOverflow: it does not fit.
  constexpr double place(const std::vector<int>& choice) {
    double base_seconds = 0, sum_seconds = 1e-30, sum_bytes = 1;
    std::int64_t base_bytes = 0;
    order_.clear();
    places_.assign(choice.size(), {});
    std::fill(seconds_.begin(), seconds_.end(), 0.0);
    std::fill(loads_.begin(), loads_.end(), Load());
    std::fill(bytes_.begin(), bytes_.end(), 0);
    std::fill(taken_by_.begin(), taken_by_.end(), -1);
    for (std::size_t t = 0; t < choice.size(); ++t) {
      const Option& o = options_[choice[t]];
      base_seconds += o.shared;
      if (!o.pieces.empty()) {
        bool open = false;
        for (const PartCost& piece : o.pieces) {
          if (piece.place.kind == Place::Kind::every)
            base_bytes += piece.bytes, base_seconds += piece.seconds;
          else if (piece.place.kind == Place::Kind::rank)
            hold(static_cast<int>(t), piece, piece.place.index);
          else
            open = true;
          sum_bytes += static_cast<double>(piece.bytes);
        }
        if (open) order_.push_back({0, static_cast<int>(t)});
      } else if (o.cut == Cut::replicated || o.cut == Cut::row_wise) {
        base_bytes += o.bytes;
        base_seconds += o.seconds;
      } else if (o.rank >= 0) {
        put(static_cast<int>(t), o.part(), o.rank);
      } else {
        order_.push_back({0, static_cast<int>(t)});
      }
      sum_seconds += o.total;
      if (o.pieces.empty())
        sum_bytes += static_cast<double>(o.bytes) * (o.cut == Cut::column_wise ? o.parts : 1);
    }
    const double seconds_unit = ranks_ / sum_seconds, bytes_unit = ranks_ / sum_bytes;
    for (auto& [key, t] : order_)
      key = -(options_[choice[t]].seconds * seconds_unit +
              static_cast<double>(options_[choice[t]].bytes) * bytes_unit);
    std::sort(order_.begin(), order_.end());
    for (const auto& [key, t] : order_) {
      const Option& o = options_[choice[t]];
      const Scale scale{base_bytes, seconds_unit, bytes_unit};
      if (!o.pieces.empty()) put_pieces(t, o.pieces, scale);
      for (int part = 0; part < o.parts && o.pieces.empty(); ++part)
        o.cut == Cut::grid ? put_on_node(t, o.part(), scale)
                           : put(t, o.part(), lightest(t, o.part(), scale));
      effort_ -= (o.parts + static_cast<std::int64_t>(o.pieces.size())) * ranks_;
    }
    effort_ -= static_cast<std::int64_t>(choice.size()) * 4;
    base_seconds_ = base_seconds;
    base_bytes_ = base_bytes;
    return finish_score();
  }

  /// Of what lies on the ranks now.
  constexpr double finish_score() const {
    Load most, sum;
    double most_bytes = 0;
    for (std::size_t r = 0; r < loads_.size(); ++r) {
      most.raise(loads_[r]);
      sum.add(loads_[r]);
      most_bytes = std::max(most_bytes, static_cast<double>(bytes_[r] + base_bytes_));
    }
    const int cores = model_.cluster().concurrent_ranks * layout_.topology.nodes();
    Load waiting;  // where ranks share too few cores
    if (cores > 0) waiting.add(sum, 1.0 / cores);
    most.raise(waiting);
    const double time =
        base_seconds_ * (cores > 0 ? std::max(1.0, static_cast<double>(ranks_) / cores) : 1.0) +
        most.total();
    return most_bytes > static_cast<double>(capacity_)
               ? kOverflow * (most_bytes / static_cast<double>(capacity_))
               : time * memory_penalty(most_bytes);
  }

  /// Against an even share of the tables without copies.
  constexpr double memory_penalty(double most_bytes) const {
    return 1 + balance_ * std::max(0.0, most_bytes / even_bytes_ - kLevel);
  }

  constexpr void hold(int t, const PartCost& part, int rank) {
    add_load(rank, part.load, 1);
    bytes_[rank] += part.bytes;
    taken_by_[rank] = t;
  }
  constexpr void put(int t, const PartCost& part, int rank) {
    hold(t, part, rank);
    places_[t].push_back(rank);
  }

  constexpr void add_load(int rank, const Load& load, double times) {
    loads_[rank].add(load, times);
    seconds_[rank] += times * load.total();
  }

  /// What every rank holds already, and shares of a mean rank per second and byte.
  struct Scale {
    std::int64_t base_bytes = 0;
    double second = 0, byte = 0;
  };

  /// How much a rank would carry; ranks that hold a part of the table, or have no room, come last.
  constexpr double load_with(int rank, int t, const PartCost& part, const Scale& scale) const {
    const std::int64_t bytes = bytes_[rank] + part.bytes;
    return (bytes + scale.base_bytes > capacity_ ? 1e6 : 0) + (taken_by_[rank] == t ? 1e3 : 0) +
           (seconds_[rank] + part.seconds) * scale.second + static_cast<double>(bytes) * scale.byte;
  }

  constexpr int lightest(int t, const PartCost& part, const Scale& scale) const {
    int best = 0;
    double least = 1e300;
    for (int r = 0; r < ranks_; ++r)
      if (const double load = load_with(r, t, part, scale); load < least) best = (least = load, r);
    return best;
  }

  /// The node that carries least, of those that have the members.
  template <class Members>  // calls its argument with each (member of the node, its cost)
  constexpr int lightest_node(int t, const Members& members, const Scale& scale) const {
    const int size = layout_.topology.node_size();
    int best = 0;
    double least = 1e300;
    for (int node = 0; node < layout_.topology.nodes(); ++node) {
      double load = 0;
      bool whole = true;
      members([&](int member, const PartCost& part) {
        const int rank = node * size + member;
        whole = whole && rank < ranks_;
        if (whole) load = std::max(load, load_with(rank, t, part, scale));
      });
      if (whole && load < least) best = (least = load, node);
    }
    return best;
  }

  constexpr void put_on_node(int t, const PartCost& part, const Scale& scale) {
    const int size = layout_.topology.node_size();
    const auto members = [&](const auto& visit) {
      for (int m = 0; m < size; ++m) visit(m, part);
    };
    const int node = lightest_node(t, members, scale);
    for (int m = 0; m < size; ++m) hold(t, part, node * size + m);
    places_[t].push_back(node);
  }

  /// Rectangles that differ, whose policy leaves ranks or nodes open.
  constexpr void put_pieces(int t, const std::vector<PartCost>& pieces, const Scale& scale) {
    const int size = layout_.topology.node_size();
    PlaceNumbers numbers;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Place& place = pieces[i].place;
      const int number = numbers.next(place);
      if (number < static_cast<int>(places_[t].size()))
        continue;  // fixed, or of a group put before
      if (place.kind == Place::Kind::any) {
        put(t, pieces[i], lightest(t, pieces[i], scale));
        continue;
      }
      const auto members = [&](const auto& visit) {
        for (std::size_t k = i; k < pieces.size(); ++k)
          if (pieces[k].place.kind == place.kind && pieces[k].place.group == place.group)
            visit(pieces[k].place.index, pieces[k]);
      };
      const int node = lightest_node(t, members, scale);
      members([&](int member, const PartCost& part) { hold(t, part, node * size + member); });
      places_[t].push_back(node);
    }
  }

  /// Moves parts, and exchanges two, while that lowers the sum over the ranks of the squares of
  /// time and memory.
  constexpr void exchange_places(const std::vector<int>& choice) {
    struct Part {
      int table = 0, index = 0;
      double seconds = 0, bytes = 0;  // as shares of a mean rank
      std::int64_t whole_bytes = 0;
    };
    double all_seconds = 1e-30, all_bytes = 1;
    for (std::size_t r = 0; r < seconds_.size(); ++r) {
      all_seconds += seconds_[r] + base_seconds_;
      all_bytes += static_cast<double>(bytes_[r] + base_bytes_);
    }
    const double second = ranks_ / all_seconds, byte = ranks_ / all_bytes;
    std::vector<Part> parts;
    for (const auto& [key, t] : order_)
      if (const Option& o = options_[choice[t]]; o.cut != Cut::grid && o.pieces.empty())
        for (int k = 0; k < o.parts; ++k)
          parts.push_back({t, k, o.seconds * second, static_cast<double>(o.bytes) * byte, o.bytes});
    const auto holds = [&](int t, int rank) {
      return std::find(places_[t].begin(), places_[t].end(), rank) != places_[t].end();
    };
    // `more` comes to rank b from a; what it changes of the squares.
    const auto change = [&](double more_seconds, double more_bytes, int a, int b) {
      return more_seconds * (more_seconds + (seconds_[b] - seconds_[a]) * second) +
             more_bytes * (more_bytes + static_cast<double>(bytes_[b] - bytes_[a]) * byte);
    };
    const auto shift = [&](const Part& p, int to) {
      int& place = places_[p.table][p.index];
      add_load(place, options_[choice[p.table]].load, -1);
      bytes_[place] -= p.whole_bytes;
      add_load(to, options_[choice[p.table]].load, 1);
      bytes_[to] += p.whole_bytes;
      place = to;
    };
    const auto room = [&](int rank, std::int64_t more) {
      return bytes_[rank] + base_bytes_ + more <= capacity_;
    };
    bool better = true;
    for (std::int64_t budget = 40 * kThorough; better && budget > 0;) {
      better = false;
      for (const Part& p : parts) {
        for (int to = 0; to < ranks_; ++to)
          if (const int from = places_[p.table][p.index];
              change(p.seconds, p.bytes, from, to) < -1e-9 && !holds(p.table, to) &&
              room(to, p.whole_bytes)) {
            shift(p, to);
            better = true;
          }
        for (const Part& q : parts) {
          const int a = places_[p.table][p.index], b = places_[q.table][q.index];
          if (a == b || change(p.seconds - q.seconds, p.bytes - q.bytes, a, b) > -1e-9 ||
              holds(p.table, b) || holds(q.table, a))
            continue;
          const std::int64_t more = p.whole_bytes - q.whole_bytes;
          if (!room(b, more) || !room(a, -more)) continue;
          shift(p, b);
          shift(q, a);
          better = true;
        }
        budget -= ranks_ + static_cast<std::int64_t>(parts.size());
      }
    }
  }

  // ---- the answer ----

  /// After `place(best)`.
  constexpr PlanChoice choice_of(const std::vector<int>& best) const {
    PlanChoice choice;
    for (std::size_t t = 0; t < best.size(); ++t)
      choice.tables.push_back(
          {options_[best[t]].cut, options_[best[t]].parts, places_[t], options_[best[t]].policy});
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
        if (constraints_.allows(cut_of(s))) candidates.push_back(strategy_choice(s, layout_));
    std::vector<double> seconds, scores;
    double fastest = 1e300;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      layout_.shards = shards_of(candidates[i], layout_);
      const Prediction p = predict(layout_, model_);
      const bool room = p.most_bytes() <= capacity_;
      fits |= room;
      seconds.push_back(room ? p.step_seconds : 1e300);
      scores.push_back(p.step_seconds * memory_penalty(static_cast<double>(p.most_bytes())));
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
  double balance_;
  std::int64_t capacity_ = 0;
  std::vector<Option> options_;
  std::vector<std::size_t> first_option_;  // by table
  std::vector<int> best_;                  // option of each table
  double best_score_ = 0;
  double even_bytes_ = 1;
  // of the plan being placed
  double base_seconds_ = 0;  // on every rank
  std::int64_t base_bytes_ = 0;
  std::vector<double> seconds_;
  std::vector<Load> loads_;
  std::vector<std::int64_t> bytes_;
  std::vector<int> taken_by_;
  std::vector<std::pair<double, int>> order_;
  std::vector<std::vector<int>> places_;
};

}  // namespace tessera::inline v0
