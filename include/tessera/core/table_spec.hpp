// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera { inline namespace v0 {

/// How the rows of a bag become one vector. `mean` divides by the number of ids, weighted or not,
/// `sqrtn` by its square root (TensorFlow's combiner of that name, for ids without weights), `max`
/// takes each column's largest value, whose gradient goes to the first id that has it; an empty bag
/// is a zero vector. `none`: they do not; the feature is a sequence, with a vector per id.
enum class Pooling : std::uint8_t { sum, mean, sqrtn, max, none };

constexpr std::string_view to_string(Pooling pooling) {
  constexpr std::string_view names[] = {"sum", "mean", "sqrtn", "max", "none"};
  return names[static_cast<int>(pooling)];
}

namespace detail {

/// Returns the pooling of that name; none: there is no such.
constexpr std::optional<Pooling> find_pooling(std::string_view name) {
  for (const Pooling pooling :
       {Pooling::sum, Pooling::mean, Pooling::sqrtn, Pooling::max, Pooling::none})
    if (to_string(pooling) == name) return pooling;
  return std::nullopt;
}

/// Returns whether the rows of a feature come to the rank that asks unpooled, each distinct one
/// once.
constexpr bool keeps_rows(Pooling pooling) {
  return pooling == Pooling::max || pooling == Pooling::none;
}

}  // namespace detail

namespace detail {

/// How often a table's rows are drawn, as measured: groups of rows that are drawn alike, the most
/// frequent first. `share`: of all ids.
struct RowFrequencies {
  struct Group {
    double rows = 0, share = 0;
  };
  std::vector<Group> groups{};
};

}  // namespace detail

/// Rows of a table that are only known when the collection is constructed.
inline constexpr std::int64_t dynamic_rows = -1;

/// One embedding table: `rows x width` values.
struct TableSpec {
  std::string_view name;
  std::int64_t rows = 0;  ///< or `dynamic_rows`
  std::int32_t width = 0;
  /// of the feature of the same name, where the plan lists no features
  Pooling pooling = Pooling::sum;
  /// ids per sample expected of each feature; only weighs placement and predicted times
  double hotness = 1;
  /// exponent of the ids' power law, for predicted times; negative: the workload's
  double skew = -1;
  /// bytes of an element, and of a row besides, with optimizer state, for planning; negative: the
  /// workload's
  std::int32_t bytes_per_element = -1, bytes_per_row = -1;
  /// in place of `skew`: measured; must outlive what is predicted
  const detail::RowFrequencies* frequencies = nullptr;
};

/// One input column: which table it reads, and how its bags are pooled.
struct FeatureSpec {
  std::string_view name;
  std::string_view table;
  Pooling pooling = Pooling::sum;
  bool weighted = false;  ///< reads the batch's per-id weights (and gets their gradient)
  double hotness = 0;     ///< ids per sample expected; 0: the table's
};

}}  // namespace tessera::v0
