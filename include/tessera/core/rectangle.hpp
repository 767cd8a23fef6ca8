// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera { inline namespace v0 {

/// A part of a table: rows [row_begin, row_end), columns [column_begin, column_end).
struct Rectangle {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int32_t column_begin = 0;
  std::int32_t column_end = 0;

  constexpr std::int64_t rows() const { return row_end - row_begin; }
  constexpr std::int32_t width() const { return column_end - column_begin; }
  constexpr std::int64_t elements() const { return rows() * width(); }
  constexpr bool empty() const { return rows() <= 0 || width() <= 0; }
  friend constexpr bool operator==(const Rectangle&, const Rectangle&) = default;
};

/// The ranks of a job and how they sit on nodes.
struct Topology {
  int ranks = 1;
  int ranks_per_node = 0;  ///< 0: all ranks on one node

  constexpr int node_size() const {
    return ranks_per_node > 0 && ranks_per_node < ranks ? ranks_per_node : ranks;
  }
  constexpr int nodes() const { return 1 + (ranks - 1) / node_size(); }
  friend constexpr bool operator==(const Topology&, const Topology&) = default;
};

/// Where a policy wants a rectangle. `any`: the plan balances; `every`: a copy on every rank;
/// `rank`: on rank `index`; `node_member`: on rank `index` of one node, the same node for every
/// rectangle of the table with the same `group`.
struct Place {
  enum class Kind : std::uint8_t { any, every, rank, node_member };
  Kind kind = Kind::any;
  int index = 0;
  int group = 0;

  friend constexpr bool operator==(const Place&, const Place&) = default;
};

/// Whose memory holds the rows and the optimizer state of a rectangle: the device's that works with
/// them, or its host's, which the device's kernels read and write over the bus (one memory where
/// the host itself works), or a file's.
enum class Tier : std::uint8_t { device, host, file };

namespace detail {

inline constexpr std::array<Tier, 3> all_tiers{Tier::device, Tier::host, Tier::file};

}  // namespace detail

/// Returns a value's name, as files and messages have it.
constexpr std::string_view to_string(Tier tier) {
  constexpr std::array<std::string_view, 3> names{"device", "host", "file"};
  return names[static_cast<std::size_t>(tier)];
}

/// What a sharding policy answers: a rectangle, its place and its memory.
struct ShardRequest {
  Rectangle rectangle;
  Place place;
  Tier tier = Tier::device;
  std::int64_t cache_rows = 0;  ///< behind a cache of so many rows; 0: of no size of its own
};

}}  // namespace tessera::v0
