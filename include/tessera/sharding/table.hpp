// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/table_spec.hpp>
#include <tessera/sharding/fixed_string.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 {

/// Pooling by short names: arguments of `Table` and `Feature`, and `TableSpec::pooling`.
inline constexpr Pooling Sum = Pooling::sum, Mean = Pooling::mean, Sqrtn = Pooling::sqrtn,
                         Max = Pooling::max;
/// No pooling: a vector per id.
///
///     using P = Plan<Features<Feature<"history", "query", Sequence>>, RowWise<Query>>;
///     EmbeddingCollection<P, Sgd, Host, Comm> embeddings(communicator, host, {});
///     const auto found = embeddings.forward(ids);
///     found.sequence<"history">().materialize(x);  // [ids, width]
inline constexpr Pooling Sequence = Pooling::none;

/// One table as a type: name, rows (or `dynamic_rows`), width, pooling of the feature of the same
/// name.
///
///     using User = Table<"user", 50'000, 16>;  // name, rows, width; pooled by Sum
template <FixedString Name, std::int64_t Rows, std::int32_t Width, Pooling P = Sum>
struct Table {
  static_assert(Rows > 0 || Rows == dynamic_rows, "Table: rows must be positive, or dynamic_rows");
  static_assert(Width > 0, "Table: width must be positive");

  static constexpr auto name = Name;
  static constexpr std::array<TableSpec, 1> specs{TableSpec{name.view(), Rows, Width, P}};
};

/// Many tables from a `constexpr` array (or std::array) of TableSpec with static storage.
///
///     static constexpr TableSpec specs[] = {{"a", 1'000, 16}, {"b", 2'000, 16}};
///     using P = Plan<TableWise<Tables<specs>>>;
template <const auto& Specs>
struct Tables {
  static constexpr auto& specs = Specs;
};

/// Anything that lists tables: `Table`, `Tables`, `Fused`, or a user's own type with a static
/// constexpr range `specs` of TableSpec.
template <class T>
concept TableSource = requires {
  { T::specs[0] } -> std::convertible_to<const TableSpec&>;
};

namespace detail {

template <class T>
inline constexpr std::size_t table_count = std::size(T::specs);

}  // namespace detail

/// Several table sources side by side.
///
///     using All = TableList<Query, User, Country>;
template <TableSource... Sources>
struct TableList {
  static constexpr std::size_t count = (std::size_t{0} + ... + detail::table_count<Sources>);
  static constexpr std::array<TableSpec, count> specs = [] {
    std::array<TableSpec, count> all{};
    std::size_t n = 0;
    [[maybe_unused]] const auto append = [&](const auto& source) {
      for (const TableSpec& spec : source) all[n++] = spec;
    };
    (append(Sources::specs), ...);
    return all;
  }();

  /// fused_with[i]: the first table of the list that table i must share a rank with (itself where
  /// there is none).
  static constexpr std::array<std::size_t, count> fused_with = [] {
    std::array<std::size_t, count> leader{};
    std::size_t n = 0;
    [[maybe_unused]] const auto append = [&]<class Source>(std::type_identity<Source>) {
      const std::size_t first = n;
      for (std::size_t i = 0; i < detail::table_count<Source>; ++i, ++n)
        leader[n] = requires { Source::is_fused; } ? first : n;
    };
    (append(std::type_identity<Sources>{}), ...);
    return leader;
  }();
};

/// Tables that stay together on a rank, in one row space.
///
///     using P = Plan<RowWise<Query>, TableWise<Fused<User, Country>>>;  // both on one rank
template <TableSource... Sources>
struct Fused {
  static constexpr bool is_fused = true;
  static constexpr auto specs = TableList<Sources...>::specs;
};

namespace detail {

struct Unweighted {};

}  // namespace detail

/// The last argument of a Feature whose ids have weights.
struct Weighted {};
/// One feature as a type: its name, the table it reads, pooling, `Weighted` if it reads per-id
/// weights.
///
///     using Clicked = Feature<"clicked", "query">;  // reads table "query"
template <FixedString Name, FixedString TableName, Pooling P = Sum,
          class Weights = detail::Unweighted>
struct Feature {
  static constexpr auto name = Name;
  static constexpr auto table = TableName;
  static constexpr std::array<FeatureSpec, 1> features{
      FeatureSpec{name.view(), table.view(), P, std::is_same_v<Weights, Weighted>}};
};

/// Many features from a constexpr array of FeatureSpec.
template <const auto& Specs>
struct FeatureArray {
  static constexpr auto& features = Specs;
};

/// The plan's features in output order. Without it every table has one feature of its own name.
///
///     using P = Plan<Features<Feature<"history", "query", Sequence>, Feature<"shown", "query">>,
///                    RowWise<Query>>;
template <class... Sources>
struct Features {
  static constexpr std::size_t count = (std::size_t{0} + ... + std::size(Sources::features));
  static constexpr std::array<FeatureSpec, count> features = [] {
    std::array<FeatureSpec, count> all{};
    std::size_t n = 0;
    [[maybe_unused]] const auto append = [&](const auto& source) {
      for (const FeatureSpec& spec : source) all[n++] = spec;
    };
    (append(Sources::features), ...);
    return all;
  }();
};

static_assert(TableSource<Table<"user", 10, 4>> &&
              TableSource<Fused<Table<"a", 1, 1>, Table<"b", dynamic_rows, 1, Mean>>>);
static_assert(
    TableList<Table<"a", 1, 1>, Fused<Table<"b", 1, 1>, Table<"c", 1, 1>>>::fused_with[2] == 1);

}}  // namespace tessera::v0
