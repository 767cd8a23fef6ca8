// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/laws/faults.hpp>
#include <tessera/sharding/plan.hpp>

#include <string>
#include <vector>

namespace tessera { inline namespace v0 { namespace laws {

namespace detail {

/// Returns whether `P` copies some rows to every rank.
template <class P>
bool copies_rows(const TableSpec& table, const Topology& topology) {
  for (int i = 0; i < P::count(table, topology); ++i)
    if (const ShardRequest request = P::shard(table, topology, i);
        !request.rectangle.empty() && request.place.kind == Place::Kind::every)
      return true;
  return false;
}

/// Returns how many parts side by side the policy says that it cuts; 0: it says nothing.
template <class P>
constexpr int parts_told() {
  if constexpr (requires { P::column_parts; }) return P::column_parts;
  if constexpr (requires { P::whole_rows; }) return P::whole_rows ? 1 : 0;
  return 0;
}

}  // namespace detail

/// Returns what laws `P` breaks for tables of awkward sizes on 1 to 9 ranks, repeated faults
/// counted; needs no test framework. `columns`: a number that divides the widths which the policy
/// can cut.
///   cover      every element of the table is in exactly one rectangle, on a rank that exists
///   pure       asked again, it answers the same
///   cache      cache_rows is not negative
///   placeable  every request for a place can be met
///   columns    if it says whole_rows or column_parts, rectangles are as wide as that says, and there are copies on any number of ranks or on none
template <class P>
std::vector<std::string> sharding_policy_laws(int columns = 1) {
  static_assert(explain_sharding_policy<P>());
  detail::Faults faults;
  for (const std::int64_t rows : {1, 2, 7, 64, 1000})
    for (const int width : {columns, 2 * columns, 3 * columns, 16 * columns})
      for (int ranks = 1; ranks <= 9; ++ranks)
        for (int per_node = 0; per_node <= ranks; ++per_node) {
          const TableSpec table{"t", rows, width};
          const Topology topology{ranks, per_node};
          Layout layout{.topology = topology, .tables = {table}, .features = {{"t", "t"}}};
          tessera::detail::resolve_features(layout, true);
          std::vector<tessera::detail::PlacementRequest> requests;
          for (int i = 0; i < P::count(table, topology); ++i) {
            const ShardRequest request = P::shard(table, topology, i),
                               again = P::shard(table, topology, i);
            faults.expect(request.rectangle == again.rectangle && request.place == again.place &&
                              request.tier == again.tier && request.cache_rows == again.cache_rows,
                          "pure: shard {} of {} x {} differs when asked again", i, rows, width);
            faults.expect(request.cache_rows >= 0, "cache: shard {} of {} x {} has cache_rows {}",
                          i, rows, width, request.cache_rows);
            if (request.rectangle.empty()) continue;
            const int unit =
                request.place.kind == Place::Kind::node_member ? request.place.group : i;
            requests.push_back({0, request, unit});
            layout.shards.push_back({0, request.rectangle, tessera::detail::unplaced_rank});
          }
          if constexpr (detail::parts_told<P>() > 0) {
            for (const tessera::detail::PlacementRequest& r : requests)
              faults.expect(r.request.rectangle.width() * detail::parts_told<P>() == width,
                            "columns: {} of {} x {} are in one rectangle; the policy tells of {} "
                            "parts (whole_rows or column_parts)",
                            r.request.rectangle.width(), rows, width, detail::parts_told<P>());
            faults.expect(detail::copies_rows<P>(table, topology) ==
                              detail::copies_rows<P>(table, Topology{2}),
                          "columns: {} x {} has copies on {} or on two ranks, not on both, against "
                          "whole_rows or column_parts",
                          rows, width, ranks);
          }
          const tessera::detail::Placement placement(layout, requests);
          const PlanFault fault =
              layout.fault.ok() ? tessera::detail::check_cover(layout) : layout.fault;
          faults.expect(fault.ok(), "{} x {} on {} ranks, {} per node: {}", rows, width, ranks,
                        per_node, describe(fault));
        }
  return faults.take();
}

}}}  // namespace tessera::v0::laws
