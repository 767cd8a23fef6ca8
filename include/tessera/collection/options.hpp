// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera/table/initializers.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tessera::inline v0 {

// Further template arguments of EmbeddingCollection, in any order: Storage<T>, a bad-id policy, InitializeWith<F>.

/// Element type of the tables: float, Half or BFloat16. Arithmetic is in float; 16-bit tables are stored with stochastic rounding.
template <Element T>
struct Storage {
  using element = T;
};

/// Throws BadId that names feature, sample, id and rows, before anything is looked up or sent. Where the host cannot see ids and has
/// nothing to wait for (IdReport), the error comes later, and until then bad ids are treated as by ZeroVector.
struct Throw {
  static constexpr BadIds bad_ids = BadIds::throw_error;
};
/// A bad id gives a zero vector and gets no gradient. It still counts in the divisor of a mean.
struct ZeroVector {
  static constexpr BadIds bad_ids = BadIds::zero_vector;
};
/// Negative ids become 0, too large ones the last row.
struct Clamp {
  static constexpr BadIds bad_ids = BadIds::clamp;
};
/// The id modulo rows, never negative.
struct Wrap {
  static constexpr BadIds bad_ids = BadIds::wrap;
};

/// First values of the tables.
template <Initializer F>
struct InitializeWith {
  using initializer = F;
};

namespace detail {

template <class P>
concept StoragePolicy = requires {
  typename P::element;
};
template <class P>
concept BadIdPolicy = requires {
  { P::bad_ids } -> std::convertible_to<BadIds>;
};
template <class P>
concept InitializerPolicy = requires {
  typename P::initializer;
};

template <class... Policies>
struct CollectionPolicies {
  using element = float;
  static constexpr BadIds bad_ids = BadIds::throw_error;
  using initializer = UniformByRows;
};
template <class First, class... Rest>
struct CollectionPolicies<First, Rest...> : CollectionPolicies<Rest...> {
  static_assert(StoragePolicy<First> || BadIdPolicy<First> || InitializerPolicy<First>,
                "EmbeddingCollection: a policy is Storage<T>, Throw, ZeroVector, Clamp, Wrap or InitializeWith<F>");
};
template <StoragePolicy First, class... Rest>
struct CollectionPolicies<First, Rest...> : CollectionPolicies<Rest...> {
  using element = typename First::element;
};
template <BadIdPolicy First, class... Rest>
struct CollectionPolicies<First, Rest...> : CollectionPolicies<Rest...> {
  static constexpr BadIds bad_ids = First::bad_ids;
};
template <InitializerPolicy First, class... Rest>
struct CollectionPolicies<First, Rest...> : CollectionPolicies<Rest...> {
  using initializer = typename First::initializer;
};

}  // namespace detail
}  // namespace tessera::inline v0
