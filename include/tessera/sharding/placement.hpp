// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A rectangle that waits for a rank, in the order of layout.shards: table by table. Requests of
/// one `unit` go to the same rank (fused tables) or node (members of a grid's column).
struct PlacementRequest {
  int table = 0;
  ShardRequest request;
  int unit = 0;
};

/// Chooses ranks for requests. Fixed places first; then units in order of falling load, each to the
/// rank (or node) that carries least, where load = share of all bytes + share of all lookups
/// (largest first, Graham 1969). Parts of one table avoid each other while there are ranks without
/// one. Deterministic: ties go to the lowest rank, equal units keep their order.
class Placement {
 public:
  constexpr Placement(Layout& layout, const std::vector<PlacementRequest>& requests)
      : layout_(layout),
        requests_(requests),
        load_(static_cast<std::size_t>(layout.topology.ranks), 0.0),
        marks_(static_cast<std::size_t>(layout.topology.ranks), 0) {
    measure();
    place_fixed();
    place_units();
  }

 private:
  struct Unit {
    double load = 0;
    std::vector<std::size_t> members;  // requests
  };

  constexpr double load_of(const PlacementRequest& r) const {
    const double bytes = static_cast<double>(r.request.rectangle.elements());
    const double lookups =
        lookups_[r.table] * static_cast<double>(r.request.rectangle.elements()) /
        static_cast<double>(std::max<std::int64_t>(1, layout_.tables[r.table].rows));
    return bytes / total_bytes_ + lookups / total_lookups_;
  }

  constexpr void measure() {
    lookups_.assign(layout_.tables.size(), 0.0);  // ids per sample of each table
    for (std::size_t f = 0; f < layout_.feature_table.size(); ++f)
      if (const int table = layout_.feature_table[f]; table >= 0)
        lookups_[table] += layout_.features[f].hotness > 0 ? layout_.features[f].hotness
                                                           : layout_.tables[table].hotness;
    for (std::size_t t = 0; t < layout_.tables.size(); ++t) {
      total_bytes_ += static_cast<double>(layout_.tables[t].rows) * layout_.tables[t].width;
      total_lookups_ += lookups_[t] * layout_.tables[t].width;
    }
    first_request_.assign(layout_.tables.size() + 1, requests_.size());
    for (std::size_t i = requests_.size(); i-- > 0;) first_request_[requests_[i].table] = i;
    for (std::size_t t = layout_.tables.size(); t-- > 0;)
      first_request_[t] = std::min(first_request_[t], first_request_[t + 1]);
    total_bytes_ = std::max(total_bytes_, 1.0);
    total_lookups_ = std::max(total_lookups_, 1.0);
  }

  constexpr void put(std::size_t request, int rank) {
    layout_.shards[request].rank = rank;
    if (rank >= 0 && rank < layout_.topology.ranks) load_[rank] += load_of(requests_[request]);
  }

  constexpr void place_fixed() {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const Place& place = requests_[i].request.place;
      if (place.kind == Place::Kind::every) layout_.shards[i].rank = every_rank;
      if (place.kind == Place::Kind::rank) put(i, place.index);
    }
  }

  constexpr void place_units() {
    int most = -1;
    for (const PlacementRequest& request : requests_) most = std::max(most, request.unit);
    std::vector<int> unit_of;  // by PlacementRequest::unit
    unit_of.resize(static_cast<std::size_t>(most + 1), -1);
    std::vector<Unit> units;
    units.reserve(unit_of.size());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const Place::Kind kind = requests_[i].request.place.kind;
      if (kind != Place::Kind::any && kind != Place::Kind::node_member) continue;
      int& at = unit_of[static_cast<std::size_t>(requests_[i].unit)];
      if (at < 0) {
        at = static_cast<int>(units.size());
        units.emplace_back();
      }
      units[at].load += load_of(requests_[i]);
      units[at].members.push_back(i);
    }
    std::vector<std::size_t> order;
    order.reserve(units.size());
    for (std::size_t i = 0; i < units.size(); ++i) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return units[a].load != units[b].load ? units[a].load > units[b].load : a < b;
    });
    for (const std::size_t u : order) {
      const PlacementRequest& first = requests_[units[u].members.front()];
      first.request.place.kind == Place::Kind::any ? place_on_rank(units[u])
                                                   : place_on_node(units[u]);
    }
  }

  /// Marks the ranks that hold a part of the table, for `holds_part`.
  constexpr void mark_holders(int table) {
    ++mark_;
    for (std::size_t i = first_request_[table]; i < first_request_[table + 1]; ++i)
      if (const int rank = layout_.shards[i].rank; rank >= 0 && rank < layout_.topology.ranks)
        marks_[static_cast<std::size_t>(rank)] = mark_;
  }
  constexpr bool holds_part(int rank) const {
    return marks_[static_cast<std::size_t>(rank)] == mark_;
  }

  constexpr void place_on_rank(const Unit& unit) {
    mark_holders(requests_[unit.members.front()].table);
    int best = 0;
    bool best_shares = true;
    for (int rank = 0; rank < layout_.topology.ranks; ++rank) {
      const bool shares = holds_part(rank);
      if (rank == 0 || (best_shares && !shares) ||
          (best_shares == shares && load_[rank] < load_[best])) {
        best = rank;
        best_shares = shares;
      }
    }
    for (const std::size_t member : unit.members) put(member, best);
  }

  constexpr void place_on_node(const Unit& unit) {
    const Topology& topology = layout_.topology;
    const int size = topology.node_size();
    const int table = requests_[unit.members.front()].table;
    mark_holders(table);
    int most = 0;
    for (const std::size_t member : unit.members)
      most = std::max(most, requests_[member].request.place.index);
    int best = -1;
    double best_load = 0;
    bool best_shares = true;
    for (int node = 0; node < topology.nodes(); ++node) {
      if (node * size + most >= topology.ranks || most >= size) continue;
      double load = 0;
      bool shares = false;
      for (int rank = node * size; rank < std::min((node + 1) * size, topology.ranks); ++rank) {
        load += load_[static_cast<std::size_t>(rank)];
        shares = shares || holds_part(rank);
      }
      if (best < 0 || (best_shares && !shares) || (best_shares == shares && load < best_load)) {
        best = node;
        best_load = load;
        best_shares = shares;
      }
    }
    if (best < 0) {
      layout_.fault =
          PlanFault::of(PlanFault::Kind::node_too_small, layout_.tables[table].name, most, size);
      return;
    }
    for (const std::size_t member : unit.members)
      put(member, best * size + requests_[member].request.place.index);
  }

  Layout& layout_;
  const std::vector<PlacementRequest>& requests_;
  std::vector<double> load_;  // of each rank
  std::vector<int> marks_;    // of each rank: the last mark_ that it got
  int mark_ = 0;
  std::vector<double> lookups_;             // of each table
  std::vector<std::size_t> first_request_;  // of each table, and the end
  double total_bytes_ = 0;
  double total_lookups_ = 0;
};

}}}  // namespace tessera::v0::detail
