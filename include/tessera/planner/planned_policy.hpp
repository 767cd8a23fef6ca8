// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/sharding_policy.hpp>
#include <tessera/core/rectangle.hpp>
#include <tessera/core/table_spec.hpp>

#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// A sharding policy as a value, so that a planner can ask it for a table's rectangles.
struct PlannedPolicy {
  std::string_view name{};  ///< in explanations; must outlive the plan
  int (*count)(const TableSpec&, const Topology&) = nullptr;
  ShardRequest (*shard)(const TableSpec&, const Topology&, int) = nullptr;

  constexpr bool given() const { return shard != nullptr; }
};

}  // namespace detail

/// Returns a policy without tables, `planned_policy<HotRowsReplicated<1000>>("hot rows")`, which
/// the planner may use for any table.
template <class P>
  requires(ShardingPolicy<P> || explain_sharding_policy<P>())
constexpr detail::PlannedPolicy planned_policy(std::string_view name) {
  return {.name = name,
          .count = [](const TableSpec& table, const Topology& topology) -> int {
            return P::count(table, topology);
          },
          .shard = [](const TableSpec& table, const Topology& topology, int i) -> ShardRequest {
            return P::shard(table, topology, i);
          }};
}

namespace detail {

/// Numbers the places of one table that a plan must choose, in the order of its rectangles: each
/// rectangle that may be on any rank, each group of node members.
class PlaceNumbers {
 public:
  /// Returns the number of the rectangle's place; -1: the policy names the rank.
  constexpr int next(const Place& place) {
    if (place.kind != Place::Kind::any && place.kind != Place::Kind::node_member) return -1;
    if (place.kind == Place::Kind::any) return count_++;
    for (const auto& [group, number] : groups_)
      if (group == place.group) return number;
    groups_.push_back({place.group, count_});
    return count_++;
  }

 private:
  std::vector<std::pair<int, int>> groups_;  // of node members, and their numbers
  int count_ = 0;
};

}  // namespace detail

}}  // namespace tessera::v0
