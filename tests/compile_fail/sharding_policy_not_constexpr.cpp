// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's sharding policy can't be asked while the trainer is compiled.
// expect: ShardingPolicy: count must be constexpr (docs/concepts/sharding_policy.md)
#include <tessera/concepts/sharding_policy.hpp>

using namespace tessera;

struct FirstRank {
#ifdef ALLOWED_TWIN
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
#else
  static int count(const TableSpec&, const Topology&) { return 1; }
#endif
  static constexpr ShardRequest shard(const TableSpec& table, const Topology&, int) {
    return {{0, table.rows, 0, table.width}, {.kind = Place::Kind::rank, .index = 0}};
  }
};
static_assert(explain_sharding_policy<FirstRank>());
