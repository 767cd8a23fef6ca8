// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's policy forgets the last rows of its tables: table, policy and elements are named.
// expect: Plan: a policy's rectangles cover fewer elements than the table has: Found of Limit (docs/errors.md)
// first error g++: TableNamed<tessera::v0::FixedString<5>{"user"}>, tessera::v0::detail::Found<9990>, tessera::v0::detail::Limit<10000>, AllRows<
// first error clang++: TableNamed<'u', 's', 'e', 'r'>, tessera::detail::Found<9990>, tessera::detail::Limit<10000>, AllRows<
// at most: 18 lines
#include <tessera/sharding/plan.hpp>

using namespace tessera;

template <class... Sources>
struct AllRows {
  using tables = TableList<Sources...>;
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology&, int) {
#ifdef ALLOWED_TWIN
    return {{0, table.rows, 0, table.width}, {}};
#else
    return {{0, table.rows - 1, 0, table.width}, {}};
#endif
  }
};
static_assert(Plan<AllRows<Table<"user", 1000, 10>>>::table_count == 1);
