// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/core/rectangle.hpp>
#include <tessera/core/table_spec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Rank of a shard that every rank holds.
inline constexpr int every_rank = -1;

namespace detail {

/// Rank of a shard whose place is still to be chosen.
inline constexpr int unplaced_rank = -2;

}  // namespace detail

/// One rectangle of one table, and the rank that holds it (`every_rank`: a copy on each).
struct Shard {
  int table = 0;
  Rectangle rectangle;
  int rank = 0;
  Tier tier = Tier::device;
  /// of the tiers host and file: rows in the cache that it is behind; 0: none, or of a file a share
  /// of TableFiles::cache_bytes
  std::int64_t cache_rows = 0;

  constexpr bool held_by(int r) const { return rank == r || rank == every_rank; }
  /// Returns whether some backend keeps it behind a cache.
  constexpr bool behind_cache() const { return tier == Tier::file || cache_rows != 0; }
  /// Returns as much of it as a tier's memory has room for; a cache is in the device's.
  constexpr Rectangle rows_in(Tier memory) const {
    Rectangle r = rectangle;
    if (tier != memory)
      r.row_end = r.row_begin + (memory == Tier::device ? std::min(cache_rows, r.rows()) : 0);
    return r;
  }
};

/// The first thing that is wrong with a plan. Structural, so that the compiler prints it when a
/// plan is rejected.
struct PlanFault {
  enum class Kind : std::uint8_t {
    none,
    duplicate_table,
    duplicate_feature,
    unknown_table,
    unknown_pin,
    unknown_in_group,
    unknown_rows,
    rows_twice,
    no_rows,
    no_width,
    too_large,
    no_ranks,
    bad_table,
    outside,
    overlap,
    gap,
    bad_rank,
    node_too_small,
    does_not_fit,
    does_not_fit_host,
    no_plan_fits,
    uneven_columns,
    no_policy,
    no_group,
    two_groups
  };
  /// The cheapest change that would make a plan fit.
  enum class Remedy : std::uint8_t {
    none,
    lift_constraints,
    free_reserve,
    store_16_bit,
    more_ranks
  };
  Kind kind = Kind::none;
  char name[64]{};         ///< table at fault; of `duplicate_feature`, the feature
  std::int64_t found = 0;  ///< what was found (meaning depends on the kind)
  std::int64_t limit = 0;  ///< what was allowed
  Remedy remedy = Remedy::none;
  std::int64_t remedy_amount = 0;  ///< bytes of the reserve, or ranks
  char feature[64]{};              ///< of `unknown_table`: the feature that reads it

  constexpr bool ok() const { return kind == Kind::none; }
  static constexpr PlanFault of(Kind kind, std::string_view name, std::int64_t found = 0,
                                std::int64_t limit = 0) {
    PlanFault fault{.kind = kind, .found = found, .limit = limit};
    copy(name, fault.name);
    return fault;
  }
  static constexpr PlanFault unknown(std::string_view table, std::string_view feature) {
    PlanFault fault = of(Kind::unknown_table, table);
    copy(feature, fault.feature);
    return fault;
  }

 private:
  static constexpr void copy(std::string_view from, char (&to)[64]) {
    for (std::size_t i = 0; i < from.size() && i + 1 < sizeof(to); ++i) to[i] = from[i];
  }
};

namespace detail {

/// Returns "402.3 GiB": bytes for people.
std::string bytes_text(std::int64_t bytes);

/// Returns what would make it fit, in words.
std::string describe_remedy(const PlanFault& fault);

#ifdef TESSERA_INLINE
TESSERA_INLINE std::string bytes_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return formatted("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

TESSERA_INLINE std::string describe_remedy(const PlanFault& fault) {
  switch (fault.remedy) {
    case PlanFault::Remedy::lift_constraints:
      return "without the pins and forbidden policies it would fit";
    case PlanFault::Remedy::free_reserve:
      return formatted("without the reserve of {} it would fit", bytes_text(fault.remedy_amount));
    case PlanFault::Remedy::store_16_bit:
      return "with tables of 16-bit elements it would fit";
    case PlanFault::Remedy::more_ranks:
      return formatted("with {} ranks it would fit", fault.remedy_amount);
    case PlanFault::Remedy::none:
      break;
  }
  return "no number of ranks would help: give each more memory";
}
#endif

}  // namespace detail

/// Returns the fault in words.
std::string describe(const PlanFault& fault);

namespace detail {

/// Looks names up by hash; also finds duplicates. Both in O(n log n), which keeps plans of hundreds
/// of tables cheap to compile.
class NameIndex {
 public:
  template <class Specs>
  constexpr explicit NameIndex(const Specs& specs) {
    keys_.reserve(specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i)
      keys_.push_back({name_key(specs[i].name), static_cast<int>(i)});
    std::sort(keys_.begin(), keys_.end());
  }
  /// Returns the index of `name`, or -1. `specs` are those of the constructor.
  template <class Specs>
  constexpr int find(const Specs& specs, std::string_view name) const {
    const std::uint64_t key = name_key(name);
    for (auto at = std::lower_bound(keys_.begin(), keys_.end(), std::pair{key, 0});
         at != keys_.end() && at->first == key; ++at)
      if (specs[at->second].name == name) return at->second;
    return -1;
  }
  /// Returns the index of a name that is there twice, or -1.
  template <class Specs>
  constexpr int duplicate(const Specs& specs) const {
    for (std::size_t i = 1; i < keys_.size(); ++i)
      if (keys_[i - 1].first == keys_[i].first &&
          specs[keys_[i - 1].second].name == specs[keys_[i].second].name)
        return keys_[i].second;
    return -1;
  }

 private:
  std::vector<std::pair<std::uint64_t, int>> keys_;
};

}  // namespace detail

/// A plan worked out for a number of ranks: every rectangle and the rank that holds it. Everything
/// else is derived from it.
struct Layout {
  Topology topology;
  std::vector<TableSpec> tables{};
  std::vector<FeatureSpec> features{};  ///< in output order
  std::vector<int> feature_table{};     ///< index into tables
  /// first output column of each feature (sequences have none); one more: the total
  std::vector<std::int64_t> feature_column{};
  std::vector<Shard> shards{};  ///< table by table
  PlanFault fault{};

  constexpr std::int64_t columns() const { return feature_column.back(); }
  constexpr int ranks() const { return topology.ranks; }

  /// Returns the elements (not bytes) that `rank` holds.
  constexpr std::int64_t elements(int rank) const {
    std::int64_t n = 0;
    for (const Shard& shard : shards)
      if (shard.held_by(rank)) n += shard.rectangle.elements();
    return n;
  }
  /// Returns rows that `rank` holds, counted once per shard (row-wise optimizer state is kept per
  /// shard row).
  constexpr std::int64_t rows(int rank) const {
    std::int64_t n = 0;
    for (const Shard& shard : shards)
      if (shard.held_by(rank)) n += shard.rectangle.rows();
    return n;
  }
};

namespace detail {

/// Elements that all tables may have, so that counting those of a rank in bytes does not overflow.
inline constexpr std::int64_t max_elements = std::int64_t{1} << 56;

/// Returns no fault if there is a rank.
constexpr PlanFault check_ranks(const Topology& topology) {
  return topology.ranks > 0 ? PlanFault{}
                            : PlanFault::of(PlanFault::Kind::no_ranks, "", topology.ranks);
}

/// Returns whether rectangles with elements have some in common. Sweeps down the rows and keeps, of
/// each run of columns between two cuts, the last row that is taken: O(n log n) if no shard
/// spans many runs, for 1,024 shards within what compilers calculate by default.
constexpr bool overlap(std::vector<Rectangle>& rectangles) {
  std::vector<std::int32_t> cuts;
  for (const Rectangle& r : rectangles)
    if (cuts.empty() || cuts.back() != r.column_begin) cuts.push_back(r.column_begin);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  const auto by_row = [](const Rectangle& a, const Rectangle& b) {
    return a.row_begin < b.row_begin;
  };
  if (!std::is_sorted(rectangles.begin(), rectangles.end(), by_row))
    std::sort(rectangles.begin(), rectangles.end(), by_row);
  std::vector<std::int64_t> taken;                                   // rows of a run of columns
  for (std::size_t c = 0; c < cuts.size(); ++c) taken.push_back(0);  // clang 14: not by (size)
  for (const Rectangle& r : rectangles)
    for (auto c = static_cast<std::size_t>(
             std::lower_bound(cuts.begin(), cuts.end(), r.column_begin) - cuts.begin());
         c < cuts.size() && cuts[c] < r.column_end; ++c) {
      if (taken[c] > r.row_begin) return true;
      taken[c] = r.row_end;
    }
  return false;
}

/// Checks that the shards of every table cover it exactly once and sit on ranks that exist.
constexpr PlanFault check_cover(const Layout& layout) {
  if (const PlanFault fault = detail::check_ranks(layout.topology); !fault.ok()) return fault;
  for (const Shard& shard : layout.shards)
    if (shard.table < 0 || shard.table >= static_cast<int>(layout.tables.size()))
      return PlanFault::of(PlanFault::Kind::bad_table, "", shard.table,
                           static_cast<std::int64_t>(layout.tables.size()));
  std::size_t at = 0;
  std::vector<Rectangle> rectangles;
  for (std::size_t t = 0; t < layout.tables.size(); ++t) {
    const TableSpec& table = layout.tables[t];
    std::int64_t covered = 0;
    rectangles.clear();
    for (; at < layout.shards.size() && layout.shards[at].table == static_cast<int>(t); ++at) {
      const Shard& shard = layout.shards[at];
      const Rectangle& r = shard.rectangle;
      if (r.row_begin < 0 || r.row_end > table.rows || r.column_begin < 0 ||
          r.column_end > table.width || r.row_begin > r.row_end || r.column_begin > r.column_end)
        return PlanFault::of(PlanFault::Kind::outside, table.name);
      if (shard.rank != every_rank && (shard.rank < 0 || shard.rank >= layout.topology.ranks))
        return PlanFault::of(PlanFault::Kind::bad_rank, table.name, shard.rank,
                             layout.topology.ranks);
      if (!r.empty()) rectangles.push_back(r);
      covered += r.elements();
    }
    if (rectangles.size() > 1 && detail::overlap(rectangles))
      return PlanFault::of(PlanFault::Kind::overlap, table.name);
    if (covered != table.rows * table.width)
      return PlanFault::of(PlanFault::Kind::gap, table.name, covered, table.rows * table.width);
  }
  return {};
}

/// Resolves every feature's table and output columns; finds names that are missing or there twice,
/// and tables without rows or width, or too large. A fault that is there already stays.
/// `names_checked`: tables' names are known to be distinct, which is dear to find while compiling.
constexpr void resolve_features(Layout& layout, bool one_feature_per_table,
                                bool names_checked = false) {
  const auto blame = [&](PlanFault::Kind kind, std::string_view name, std::int64_t found = 0,
                         std::int64_t limit = 0) {
    if (layout.fault.ok()) layout.fault = PlanFault::of(kind, name, found, limit);
  };
  const NameIndex tables(one_feature_per_table && names_checked ? std::span<const TableSpec>()
                                                                : layout.tables);
  if (const int i = tables.duplicate(layout.tables); i >= 0)
    blame(PlanFault::Kind::duplicate_table, layout.tables[i].name);
  std::int64_t room = max_elements;
  for (const TableSpec& table : layout.tables) {
    if (table.rows <= 0) blame(PlanFault::Kind::no_rows, table.name, table.rows);
    if (table.width <= 0)
      blame(PlanFault::Kind::no_width, table.name, table.width);
    else if (table.rows > room / table.width)
      blame(PlanFault::Kind::too_large, table.name, table.rows, room / table.width);
    else if (table.rows > 0)
      room -= table.rows * table.width;
  }
  if (!one_feature_per_table)
    if (const int i = NameIndex(layout.features).duplicate(layout.features); i >= 0)
      blame(PlanFault::Kind::duplicate_feature, layout.features[i].name);
  layout.feature_table.reserve(layout.features.size());
  layout.feature_column.reserve(layout.features.size() + 1);
  layout.feature_column.push_back(0);
  for (std::size_t f = 0; f < layout.features.size(); ++f) {
    const int table = one_feature_per_table ? static_cast<int>(f)
                                            : tables.find(layout.tables, layout.features[f].table);
    if (table < 0 && layout.fault.ok())
      layout.fault = PlanFault::unknown(layout.features[f].table, layout.features[f].name);
    const bool columns = table >= 0 && layout.features[f].pooling != Pooling::none;
    layout.feature_table.push_back(table);
    layout.feature_column.push_back(layout.feature_column.back() +
                                    (columns ? layout.tables[table].width : 0));
  }
}

/// How many vectors a sample has, one for each feature that is pooled, and the width that all of
/// them have; 0 if widths differ.
struct FeatureShape {
  int count = 0;
  int width = 0;
};

/// Returns whether the rows of some feature come to the rank that asks unpooled.
constexpr bool keeps_rows(const Layout& layout) {
  for (const FeatureSpec& feature : layout.features)
    if (keeps_rows(feature.pooling)) return true;
  return false;
}

/// Returns the shape. `layout`: one whose features are resolved.
constexpr FeatureShape shape_of_features(const Layout& layout) {
  FeatureShape shape;
  bool same = true;
  for (std::size_t f = 0; f < layout.features.size(); ++f) {
    if (layout.features[f].pooling == Pooling::none) continue;
    const int table = layout.feature_table[f], width = table < 0 ? 0 : layout.tables[table].width;
    same = same && table >= 0 && (shape.count == 0 || width == shape.width);
    shape = FeatureShape{.count = shape.count + 1, .width = width};
  }
  if (!same) shape.width = 0;
  return shape;
}

}  // namespace detail

/// Returns tables and features on some ranks, before anything is cut. `features` empty: one per
/// table. Its `fault` says what is wrong with them.
constexpr Layout uncut_layout(const Topology& topology, std::vector<TableSpec> tables,
                              std::vector<FeatureSpec> features = {}) {
  Layout layout{.topology = topology, .tables = std::move(tables), .features = std::move(features)};
  const bool one_feature_per_table = layout.features.empty();
  if (one_feature_per_table)
    for (const TableSpec& table : layout.tables)
      layout.features.push_back({table.name, table.name, table.pooling});
  detail::resolve_features(layout, one_feature_per_table);
  return layout;
}

/// Returns a layout from rectangles and ranks that somebody else chose: a planner, a file, a test.
/// `features` empty: one per table. Its `fault` says what is wrong with it, if anything.
constexpr Layout make_layout(const Topology& topology, std::vector<TableSpec> tables,
                             std::vector<FeatureSpec> features, std::vector<Shard> shards) {
  Layout layout = uncut_layout(topology, std::move(tables), std::move(features));
  std::sort(shards.begin(), shards.end(), [](const Shard& a, const Shard& b) {
    const auto key = [](const Shard& s) {
      return std::tuple(s.table, s.rectangle.row_begin, s.rectangle.column_begin);
    };
    return key(a) < key(b);
  });
  layout.shards = std::move(shards);
  if (layout.fault.ok()) layout.fault = detail::check_cover(layout);
  return layout;
}

#ifdef TESSERA_INLINE
TESSERA_INLINE std::string describe(const PlanFault& fault) {
  const char* name = fault.name;
  switch (fault.kind) {
    case PlanFault::Kind::none:
      return "no fault";
    case PlanFault::Kind::duplicate_table:
      return detail::formatted(
          "Plan: table '{}' is placed twice; give each table exactly one policy", name);
    case PlanFault::Kind::duplicate_feature:
      return detail::formatted("Plan: feature '{}' is listed twice", name);
    case PlanFault::Kind::unknown_table:
      return detail::formatted("Plan: feature '{}' reads table '{}', which the plan does not hold",
                               fault.feature, name);
    case PlanFault::Kind::unknown_pin:
      return detail::formatted("AutoPlan: a pin names table '{}', which the plan does not hold",
                               name);
    case PlanFault::Kind::unknown_in_group:
      return detail::formatted(
          "Plan: a training group names table '{}', which the plan does not hold", name);
    case PlanFault::Kind::unknown_rows:
      return detail::formatted(
          "Plan: rows are given for a table '{}', which the plan does not hold", name);
    case PlanFault::Kind::rows_twice:
      return detail::formatted("Plan: rows are given twice for table '{}'", name);
    case PlanFault::Kind::no_rows:
      return detail::formatted(
          "Plan: table '{}' has {} rows; give a positive number (dynamic_rows: when the collection "
          "is constructed)",
          name, fault.found);
    case PlanFault::Kind::no_width:
      return detail::formatted("Plan: table '{}' has width {}; it must be positive", name,
                               fault.found);
    case PlanFault::Kind::too_large:
      return detail::formatted(
          "Plan: table '{}' has {} rows, but with its width, and the tables before it, no more "
          "than "
          "{} can be numbered",
          name, fault.found, fault.limit);
    case PlanFault::Kind::no_ranks:
      return detail::formatted("Plan: a layout for {} ranks; give at least one", fault.found);
    case PlanFault::Kind::bad_table:
      return detail::formatted(
          "Plan: a shard is of table {}, but there are {} tables, counted from 0", fault.found,
          fault.limit);
    case PlanFault::Kind::outside:
      return detail::formatted(
          "Plan: a shard of table '{}' reaches outside the table, or ends before it begins", name);
    case PlanFault::Kind::overlap:
      return detail::formatted("Plan: two shards of table '{}' overlap", name);
    case PlanFault::Kind::gap:
      return detail::formatted(
          "Plan: the shards of table '{}' cover {} of its {} elements; a column policy's parts "
          "must divide the width",
          name, fault.found, fault.limit);
    case PlanFault::Kind::bad_rank:
      return detail::formatted(
          "Plan: a shard of table '{}' is placed on rank {}, but there are {} ranks", name,
          fault.found, fault.limit);
    case PlanFault::Kind::node_too_small:
      return detail::formatted(
          "Plan: table '{}' needs rank {} of a node, but no node has more than {} ranks", name,
          fault.found, fault.limit);
    case PlanFault::Kind::does_not_fit:
      return detail::formatted(
          "Plan: with table '{}' a rank needs {} bytes, but has {}; cut the table into more parts "
          "or use more ranks",
          name, fault.found, fault.limit);
    case PlanFault::Kind::does_not_fit_host:
      return detail::formatted(
          "Plan: with table '{}' a rank needs {} bytes of host memory, but has {}; use more ranks "
          "or keep fewer tables OnHost",
          name, fault.found, fault.limit);
    case PlanFault::Kind::no_plan_fits:
      return detail::formatted(
          "AutoPlan: no plan fits: table '{}' has {}, and with the others it exceeds ranks of {}; "
          "{}",
          name, detail::bytes_text(fault.found), detail::bytes_text(fault.limit),
          detail::describe_remedy(fault));
    case PlanFault::Kind::uneven_columns:
      return detail::formatted(
          "Plan: table '{}' is cut into {} parts side by side, which do not divide its width {}",
          name, fault.found, fault.limit);
    case PlanFault::Kind::no_policy:
      return detail::formatted(
          "AutoPlan: table '{}' is pinned to Cut::own without a policy; give one as "
          "`policy` of its pin (planned_policy<P>(name))",
          name);
    case PlanFault::Kind::no_group:
      return detail::formatted("EmbeddingCollection: table '{}' is in no training group", name);
    case PlanFault::Kind::two_groups:
      return detail::formatted("EmbeddingCollection: table '{}' is in two training groups", name);
  }
  return "unknown fault";
}
#endif

}}  // namespace tessera::v0
