// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A plan has a user's policy that lacks a member: it is named.
// expect: ShardingPolicy: need static constexpr ShardRequest shard(TableSpec, Topology, int i) (docs/concepts/sharding_policy.md)
// at most nvcc: 14 lines
// at most g++: 14 lines
#include <tessera/sharding/plan.hpp>

using namespace tessera;

template <class... Sources>
struct Whole {
  using tables = TableList<Sources...>;
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
#ifdef ALLOWED_TWIN
  static constexpr ShardRequest shard(const TableSpec& table, const Topology&, int) {
    return {{0, table.rows, 0, table.width}, {}};
  }
#endif
};
static_assert(sizeof(Plan<Whole<Table<"user", 1000, 16>>>) > 0);
