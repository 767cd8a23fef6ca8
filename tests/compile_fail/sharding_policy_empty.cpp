// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's sharding policy lacks every function: all faults are listed at once.
// expect: ShardingPolicy: need static constexpr int count(TableSpec, Topology) (docs/concepts/sharding_policy.md)
// expect: ShardingPolicy: need static constexpr ShardRequest shard(TableSpec, Topology, int i) (docs/concepts/sharding_policy.md)
#include <tessera/concepts/sharding_policy.hpp>

using namespace tessera;

struct FirstRank {
#ifdef ALLOWED_TWIN
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology&, int) {
    return {{0, table.rows, 0, table.width}, {.kind = Place::Kind::rank, .index = 0}};
  }
#endif
};
static_assert(explain_sharding_policy<FirstRank>());
