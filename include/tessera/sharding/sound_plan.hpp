// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/fixed_string.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/policies.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

// What a compiler prints of a plan that cannot work: names and numbers, as the arguments of a
// template, and then a sentence.

namespace tessera { inline namespace v0 {

namespace detail {

template <class E>
concept HasTables = requires {
  E::tables::specs;
  E::tables::fused_with;
};

/// One line of a plan: a sharding policy and the tables it cuts.
template <class E>
concept PlanEntry = ShardingPolicy<E> && HasTables<E>;

template <class E>
concept FeatureList = requires {
  { E::features[0] } -> std::convertible_to<const FeatureSpec&>;
};

/// One argument of a plan; says which member a policy lacks.
template <class E>
struct CheckedEntry {
  static constexpr bool features = FeatureList<E>;
  static constexpr bool policy = HasTables<E> || HasShardCount<E> || HasShardRequest<E>;
  static_assert(features || policy,
                "Plan: each argument is a sharding policy with tables, as in RowWise<Query>, or "
                "one Features<...> (docs/concepts/plan.md)");
  static constexpr bool tables = features || !policy || HasTables<E>;
  static_assert(tables,
                "ShardingPolicy: need using tables = TableList<Sources...> to be in a Plan "
                "(docs/concepts/sharding_policy.md)");
  static constexpr bool sound = [] {
    if constexpr (policy && !features)
      return explain_sharding_policy<E>();
    else
      return features;
  }();
  static constexpr bool value = sound || true;  // what is wrong has been said
};

// How the compiler is to print a name: g++ as a string; of one, clang 14 prints numbers and nvcc
// refuses the expression.
#if defined(__clang__) || defined(__NVCC__)
template <char... Name>
struct TableNamed;
template <char... Name>
struct FeatureNamed;

template <PlanFault Fault, std::size_t... I>
TableNamed<Fault.name[I]...> table_named(std::index_sequence<I...>);
template <PlanFault Fault, std::size_t... I>
FeatureNamed<Fault.name[I]...> feature_named(std::index_sequence<I...>);
template <PlanFault Fault, std::size_t... I>
FeatureNamed<Fault.feature[I]...> reader_named(std::index_sequence<I...>);
#else
template <FixedString Name>
struct TableNamed;
template <FixedString Name>
struct FeatureNamed;

template <PlanFault Fault, std::size_t... I>
TableNamed<FixedString<sizeof...(I) + 1>({Fault.name[I]..., '\0'})> table_named(
    std::index_sequence<I...>);
template <PlanFault Fault, std::size_t... I>
FeatureNamed<FixedString<sizeof...(I) + 1>({Fault.name[I]..., '\0'})> feature_named(
    std::index_sequence<I...>);
template <PlanFault Fault, std::size_t... I>
FeatureNamed<FixedString<sizeof...(I) + 1>({Fault.feature[I]..., '\0'})> reader_named(
    std::index_sequence<I...>);
#endif

template <std::int64_t>
struct Parts;
template <std::int64_t>
struct Width;
template <std::int64_t>
struct Found;
template <std::int64_t>
struct Limit;
template <std::int64_t>
struct BytesNeeded;
template <std::int64_t>
struct BytesOfRank;
template <PlanFault::Remedy, std::int64_t>
struct RemedyIs;

/// Defined for no fault alone: of a base that is not defined the compiler's first line prints the
/// arguments, the table's name among them. It prints none beside a sentence.
template <PlanFault::Kind, class... Facts>
struct PlanFaultIs;
template <>
struct PlanFaultIs<PlanFault::Kind::none> {};

/// Stops the compilation unless there is no fault. `Facts`: what the sentence is about.
template <PlanFault::Kind Kind, class... Facts>
struct PlanIsSound : PlanFaultIs<Kind, Facts...> {
  template <PlanFault::Kind K>
  static constexpr bool is = K == Kind;
  using enum PlanFault::Kind;

  static_assert(
      !is<duplicate_table>,
      "Plan: a table is placed twice; give each table exactly one policy (docs/errors.md)");
  static_assert(!is<duplicate_feature>,
                "Plan: a feature is listed twice; rename one (docs/errors.md)");
  static_assert(!is<unknown_table>,
                "Plan: a feature reads a table that the plan does not hold (docs/errors.md)");
  static_assert(!is<unknown_pin>,
                "AutoPlan: a pin names a table that the plan does not hold (docs/errors.md)");
  static_assert(!is<unknown_in_group>,
                "Plan: a training group names a table that the plan does not hold "
                "(docs/errors.md)");
  static_assert(!is<no_rows> && !is<no_width>,
                "Plan: the rows and the width of a table must be positive (docs/errors.md)");
  static_assert(!is<too_large>,
                "Plan: the tables have more elements than can be numbered (docs/errors.md)");
  static_assert(!is<outside>,
                "Plan: a policy's rectangle reaches outside its table, or ends before it begins "
                "(docs/errors.md)");
  static_assert(!is<overlap>,
                "Plan: two of a policy's rectangles of a table overlap (docs/errors.md)");
  static_assert(!is<gap>,
                "Plan: a policy's rectangles cover fewer elements than the table has: Found of "
                "Limit (docs/errors.md)");
  static_assert(!is<bad_rank>,
                "Plan: a policy places a rectangle on a rank that does not exist: Found of Limit "
                "ranks (docs/errors.md)");
  static_assert(!is<uneven_columns>,
                "Plan: the policy's parts do not divide the width of its table (docs/errors.md)");
  static_assert(!is<node_too_small>,
                "Plan: a policy needs a rank that no node has: Found of Limit ranks of a node "
                "(docs/errors.md)");
  static_assert(!is<does_not_fit>,
                "Plan: the tables of a rank do not fit into its memory; this is the largest "
                "(docs/errors.md)");
  static_assert(!is<does_not_fit_host>,
                "Plan: the tables that a rank keeps OnHost do not fit into the host's memory; this "
                "is the largest (docs/errors.md)");
  static_assert(!is<no_plan_fits>,
                "AutoPlan: no plan fits into the memory of the ranks; this is the largest table, "
                "and what would help (docs/errors.md)");
  static_assert(!is<no_group>,
                "EmbeddingCollection: a table is in no training group; name it in a Train<O, ...> "
                "or Frozen<...>, or add a Train<O> without tables, for all others "
                "(docs/errors.md)");
  static_assert(!is<two_groups>,
                "EmbeddingCollection: a table is in two training groups; name it in one "
                "(docs/errors.md)");
  static_assert(!is<unknown_rows> && !is<rows_twice> && !is<no_ranks> && !is<bad_table>,
                "Plan: see the kind of fault (docs/errors.md)");
  static constexpr bool value = true;
};

template <class E>
constexpr bool holds_table(std::string_view name) {
  if constexpr (HasTables<E>)
    for (const TableSpec& table : E::tables::specs)
      if (table.name == name) return true;
  return false;
}

/// Returns the first policy that cuts the faulty table, as a list of one; empty for faults that are
/// no policy's.
template <PlanFault Fault>
auto policy_of_table() -> std::type_identity<void>;
template <PlanFault Fault, class First, class... Rest>
auto policy_of_table() {
  if constexpr (holds_table<First>(Fault.name))
    return std::type_identity<First>{};
  else
    return policy_of_table<Fault, Rest...>();
}

constexpr std::size_t length(const char (&text)[64]) { return std::string_view(text).size(); }

template <PlanFault F, class... Entries>
auto in_words() {
  using enum PlanFault::Kind;
  constexpr auto kind = F.kind;
  if constexpr (F.ok()) {
    return std::type_identity<PlanIsSound<none>>{};
  } else if constexpr (kind == duplicate_feature) {
    return std::type_identity<PlanIsSound<
        kind, decltype(feature_named<F>(std::make_index_sequence<length(F.name)>{}))>>{};
  } else {
    using Table = decltype(table_named<F>(std::make_index_sequence<length(F.name)>{}));
    using Reader = decltype(reader_named<F>(std::make_index_sequence<length(F.feature)>{}));
    using Policy = typename decltype(policy_of_table<F, Entries...>())::type;
    if constexpr (kind == unknown_table)
      return std::type_identity<PlanIsSound<kind, Table, Reader>>{};
    else if constexpr (kind == does_not_fit || kind == does_not_fit_host)
      return std::type_identity<
          PlanIsSound<kind, Table, BytesNeeded<F.found>, BytesOfRank<F.limit>>>{};
    else if constexpr (kind == no_plan_fits)
      return std::type_identity<PlanIsSound<kind, Table, BytesNeeded<F.found>, BytesOfRank<F.limit>,
                                            RemedyIs<F.remedy, F.remedy_amount>>>{};
    else if constexpr (std::is_void_v<Policy>)
      return std::type_identity<PlanIsSound<kind, Table>>{};
    else if constexpr (kind == uneven_columns)
      return std::type_identity<PlanIsSound<kind, Table, Parts<F.found>, Width<F.limit>, Policy>>{};
    else
      return std::type_identity<PlanIsSound<kind, Table, Found<F.found>, Limit<F.limit>, Policy>>{};
  }
}

/// A class, as g++ 12 crashes on a call here.
template <PlanFault Fault, class... Entries>
struct InWords : decltype(in_words<Fault, Entries...>()) {};

}  // namespace detail

/// `value` is true only for a plan without a fault. A plan with one stops here: the compiler prints
/// what is wrong, and the names of the table, the feature and the policy among `Entries`. An alias,
/// as clang would print the characters of the fault as numbers.
template <PlanFault Fault, class... Entries>
using SoundPlan = typename detail::InWords<Fault, Entries...>::type;

}}  // namespace tessera::v0
