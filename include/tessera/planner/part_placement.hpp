// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// By where rows live. Members and not an array, for a plan that is made while compiling: compilers
/// count each call of an operator[] against their limit.
struct TierBytes {
  std::int64_t device = 0, host = 0, file = 0;

  constexpr std::int64_t& operator[](Tier tier) {
    return tier == Tier::device ? device : tier == Tier::host ? host : file;
  }
  constexpr std::int64_t operator[](Tier tier) const {
    return tier == Tier::device ? device : tier == Tier::host ? host : file;
  }
  constexpr void add(const PartCost& part) {
    if (part.tier != Tier::device) device += part.cache_bytes;
    (*this)[part.tier] += part.bytes;
  }
  constexpr void add(const TierBytes& other) {
    device += other.device, host += other.host, file += other.file;
  }
  constexpr void raise(const TierBytes& other) {
    device = std::max(device, other.device);
    host = std::max(host, other.host);
    file = std::max(file, other.file);
  }
  /// Of the fullest memory.
  constexpr double share_of(const TierBytes& room) const {
    const auto share = [](std::int64_t bytes, std::int64_t of) {
      return static_cast<double>(bytes) / std::max(static_cast<double>(of), 1.0);
    };
    return std::max({share(device, room.device), share(host, room.host), share(file, room.file)});
  }
};

/// Puts the parts of a plan on ranks: largest first, each where least is carried; then exchanges
/// some. What the Planner compares plans by is the time of what lies there.
class PartPlacement {
 public:
  /// In bytes of a rank.
  struct Limits {
    TierBytes room;
    double even = 1;     ///< of all tables, without copies
    double balance = 0;  ///< see PlanConstraints::memory_balance
  };
  static constexpr double overflow = 1e9;  ///< scores beyond it are of plans that do not fit
  static constexpr double level = 1.05;    ///< even shares that no one minds

  /// `options` may still grow.
  constexpr PartPlacement(const Layout& layout, const CostModel& model,
                          const std::vector<CutOption>& options)
      : topology_(layout.topology), model_(model), options_(options), ranks_(layout.ranks()) {
    seconds_.assign(static_cast<std::size_t>(ranks_), 0.0);
    loads_.assign(static_cast<std::size_t>(ranks_), Load());
    bytes_.assign(static_cast<std::size_t>(ranks_), {});
    taken_by_.assign(static_cast<std::size_t>(ranks_), -1);
  }

  constexpr Limits& limits() { return limits_; }
  constexpr const Limits& limits() const { return limits_; }
  /// The ranks, or nodes, of a table's parts.
  constexpr const std::vector<int>& places(std::size_t table) const { return places_[table]; }

  /// Places the parts of a plan. Returns its time with the penalty for uneven memory; above
  /// `overflow`: it does not fit. `effort` falls by the places tried.
  constexpr double place(const std::vector<int>& choice, std::int64_t& effort) {
    double base_seconds = 0, sum_seconds = 1e-30, sum_bytes = 1;
    TierBytes base_bytes;
    order_.clear();
    places_.assign(choice.size(), {});
    std::fill(seconds_.begin(), seconds_.end(), 0.0);
    std::fill(loads_.begin(), loads_.end(), Load());
    std::fill(bytes_.begin(), bytes_.end(), TierBytes());
    std::fill(taken_by_.begin(), taken_by_.end(), -1);
    for (std::size_t t = 0; t < choice.size(); ++t) {
      const Option& o = options_[choice[t]];
      base_seconds += o.shared;
      if (!o.pieces.empty()) {
        bool open = false;
        for (const PartCost& piece : o.pieces) {
          if (piece.place.kind == Place::Kind::every)
            base_bytes.add(piece), base_seconds += piece.seconds;
          else if (piece.place.kind == Place::Kind::rank)
            hold(static_cast<int>(t), piece, piece.place.index);
          else
            open = true;
          sum_bytes += piece.device_bytes();
        }
        if (open) order_.push_back({0, static_cast<int>(t)});
      } else if (o.cut == Cut::replicated || o.cut == Cut::row_wise) {
        base_bytes.add(o.part());
        base_seconds += o.seconds;
      } else if (o.rank >= 0) {
        put(static_cast<int>(t), o.part(), o.rank);
      } else {
        order_.push_back({0, static_cast<int>(t)});
      }
      sum_seconds += o.total;
      if (o.pieces.empty())
        sum_bytes += o.part().device_bytes() * (o.cut == Cut::column_wise ? o.parts : 1);
    }
    const double seconds_unit = ranks_ / sum_seconds, bytes_unit = ranks_ / sum_bytes;
    for (auto& [key, t] : order_)
      key = -(options_[choice[t]].seconds * seconds_unit +
              options_[choice[t]].part().device_bytes() * bytes_unit);
    std::sort(order_.begin(), order_.end());
    for (const auto& [key, t] : order_) {
      const Option& o = options_[choice[t]];
      const Scale scale{base_bytes, seconds_unit, bytes_unit};
      if (!o.pieces.empty()) put_pieces(t, o.pieces, scale);
      for (int part = 0; part < o.parts && o.pieces.empty(); ++part)
        o.cut == Cut::grid ? put_on_node(t, o.part(), scale)
                           : put(t, o.part(), lightest(t, o.part(), scale));
      effort -= (o.parts + static_cast<std::int64_t>(o.pieces.size())) * ranks_;
    }
    effort -= static_cast<std::int64_t>(choice.size()) * 4;
    base_seconds_ = base_seconds;
    base_bytes_ = base_bytes;
    return score();
  }

  /// Of what lies on the ranks now.
  constexpr double score() const {
    Load most, sum;
    TierBytes most_bytes;
    for (std::size_t r = 0; r < loads_.size(); ++r) {
      most.raise(loads_[r]);
      sum.add(loads_[r]);
      most_bytes.raise(bytes_[r]);
    }
    const int cores = model_.cluster().concurrent_ranks * topology_.nodes();
    Load waiting;  // where ranks share too few cores
    if (cores > 0) waiting.add(sum, 1.0 / cores);
    most.raise(waiting);
    const double time =
        base_seconds_ * (cores > 0 ? std::max(1.0, static_cast<double>(ranks_) / cores) : 1.0) +
        most.total();
    most_bytes.add(base_bytes_);
    const double full = most_bytes.share_of(limits_.room);
    return full > 1 ? overflow * full
                    : time * memory_penalty(static_cast<double>(most_bytes.device));
  }

  /// Against an even share of the tables without copies.
  constexpr double memory_penalty(double most_bytes) const {
    return 1 + limits_.balance * std::max(0.0, most_bytes / limits_.even - level);
  }

  /// Moves parts, and exchanges two, while that lowers the sum over the ranks of the squares of
  /// time and memory.
  constexpr void exchange(const std::vector<int>& choice) {
    struct Part {
      int table = 0, index = 0;
      double seconds = 0, bytes = 0;  // as shares of a mean rank
      std::int64_t whole_bytes = 0;
    };
    double all_seconds = 1e-30, all_bytes = 1;
    for (std::size_t r = 0; r < seconds_.size(); ++r) {
      all_seconds += seconds_[r] + base_seconds_;
      all_bytes += static_cast<double>(bytes_[r].device + base_bytes_.device);
    }
    const double second = ranks_ / all_seconds, byte = ranks_ / all_bytes;
    std::vector<Part> parts;
    for (const auto& [key, t] : order_)
      if (const Option& o = options_[choice[t]];
          o.cut != Cut::grid && o.pieces.empty() && o.tier == Tier::device)
        for (int k = 0; k < o.parts; ++k)
          parts.push_back({t, k, o.seconds * second, static_cast<double>(o.bytes) * byte, o.bytes});
    const auto holds = [&](int t, int rank) {
      return std::find(places_[t].begin(), places_[t].end(), rank) != places_[t].end();
    };
    // `more` comes to rank b from a; what it changes of the squares.
    const auto change = [&](double more_seconds, double more_bytes, int a, int b) {
      return more_seconds * (more_seconds + (seconds_[b] - seconds_[a]) * second) +
             more_bytes *
                 (more_bytes + static_cast<double>(bytes_[b].device - bytes_[a].device) * byte);
    };
    const auto shift = [&](const Part& p, int to) {
      int& place = places_[p.table][p.index];
      add_load(place, options_[choice[p.table]].load, -1);
      bytes_[place].device -= p.whole_bytes;
      add_load(to, options_[choice[p.table]].load, 1);
      bytes_[to].device += p.whole_bytes;
      place = to;
    };
    const auto room = [&](int rank, std::int64_t more) {
      return bytes_[rank].device + base_bytes_.device + more <= limits_.room.device;
    };
    bool better = true;
    for (std::int64_t budget = 40'000'000; better && budget > 0;) {
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

 private:
  using Load = StageLoad;
  using Option = CutOption;

  constexpr void hold(int t, const PartCost& part, int rank) {
    add_load(rank, part.load, 1);
    bytes_[rank].add(part);
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
    TierBytes base_bytes;
    double second = 0, byte = 0;
  };

  /// How much a rank would carry; ranks that hold a part of the table, or have no room, come last.
  constexpr double load_with(int rank, int t, const PartCost& part, const Scale& scale) const {
    TierBytes bytes = bytes_[rank];
    bytes.add(part);
    const bool full = bytes.device + scale.base_bytes.device > limits_.room.device ||
                      bytes.host + scale.base_bytes.host > limits_.room.host ||
                      bytes.file + scale.base_bytes.file > limits_.room.file;
    return (full ? 1e6 : 0) + (taken_by_[rank] == t ? 1e3 : 0) +
           (seconds_[rank] + part.seconds) * scale.second +
           static_cast<double>(bytes.device) * scale.byte;
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
    const int size = topology_.node_size();
    int best = 0;
    double least = 1e300;
    for (int node = 0; node < topology_.nodes(); ++node) {
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
    const int size = topology_.node_size();
    const auto members = [&](const auto& visit) {
      for (int m = 0; m < size; ++m) visit(m, part);
    };
    const int node = lightest_node(t, members, scale);
    for (int m = 0; m < size; ++m) hold(t, part, node * size + m);
    places_[t].push_back(node);
  }

  /// Rectangles that differ, whose policy leaves ranks or nodes open.
  constexpr void put_pieces(int t, const std::vector<PartCost>& pieces, const Scale& scale) {
    const int size = topology_.node_size();
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

  const Topology topology_;
  const CostModel& model_;
  const std::vector<CutOption>& options_;
  int ranks_;
  Limits limits_;
  double base_seconds_ = 0;  // on every rank
  TierBytes base_bytes_;
  std::vector<double> seconds_;
  std::vector<Load> loads_;
  std::vector<TierBytes> bytes_;
  std::vector<int> taken_by_;
  std::vector<std::pair<double, int>> order_;
  std::vector<std::vector<int>> places_;
};

}}}  // namespace tessera::v0::detail
