// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/rectangle.hpp>
#include <tessera/core/table_spec.hpp>

#include <concepts>
#include <type_traits>

namespace tessera { inline namespace v0 {

namespace detail {

// The contract is explained in docs/concepts/sharding_policy.md; its laws are in
// tessera/laws/sharding_policy_laws.hpp.

template <class P>
concept HasShardCount = requires(TableSpec table, Topology topology) {
  { P::count(table, topology) } -> std::convertible_to<int>;
};

template <class P>
concept HasShardRequest = requires(TableSpec table, Topology topology, int i) {
  { P::shard(table, topology, i) } -> std::same_as<ShardRequest>;
};

/// The result must be usable in a constant expression: plans are checked while the trainer
/// compiles.
template <class P>
concept HasConstexprShards = requires {
  typename std::bool_constant<(P::count(TableSpec{"table", 4096, 64}, Topology{1}), true)>;
};

}  // namespace detail

/// Cuts a table into rectangles and says where each belongs. Stateless.
template <class P>
concept ShardingPolicy =
    detail::HasShardCount<P> && detail::HasShardRequest<P> && detail::HasConstexprShards<P>;

/// Lists every requirement that `P` misses, one error each.
template <class P>
consteval bool explain_sharding_policy() {
  // Variables, as g++ would add seven lines about each concept.
  constexpr bool has_count = detail::HasShardCount<P>, has_shard = detail::HasShardRequest<P>,
                 is_constexpr = !has_count || detail::HasConstexprShards<P>;
  static_assert(has_count,
                "ShardingPolicy: need static constexpr int count(TableSpec, Topology) "
                "(docs/concepts/sharding_policy.md)");
  static_assert(has_shard,
                "ShardingPolicy: need static constexpr ShardRequest shard(TableSpec, Topology, int "
                "i) (docs/concepts/sharding_policy.md)");
  static_assert(is_constexpr,
                "ShardingPolicy: count must be constexpr (docs/concepts/sharding_policy.md)");
  return ShardingPolicy<P>;
}

}}  // namespace tessera::v0
