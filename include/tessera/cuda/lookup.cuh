// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/any_width.cuh>
#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/op/lookup.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int lookup_threads = 256;

/// Whether all features write a sample's rows at about the same time, but for long bags. Wide rows
/// would lose by it: a table's popular ones are read again while they are near (docs/gpu/h100.md).
template <int Width, class Out>
inline constexpr bool takes_turns = Width * sizeof(Out) <= 32;

/// Loads the rows of `ids`; zeros for negative ones. No row waits for another: the condition is a
/// predicate of the load, not a branch around it.
template <class T, int Width, class Id, int Flight>
__device__ __forceinline__ void load_flight(const T* __restrict__ arena, std::int64_t row_bias,
                                            const Id (&ids)[Flight], int lane,
                                            RawRow<T, RowLanes<T, Width>> (&rows)[Flight]) {
  using Lanes = RowLanes<T, Width>;
  for (int r = 0; r < Flight; ++r) {
    rows[r] = {};
    if (ids[r] >= 0)
      rows[r] = load_raw_row<Lanes>(
          arena + (static_cast<std::int64_t>(ids[r]) + row_bias) * Width + Lanes::column(0, lane),
          lane);
  }
}

/// Copies rows: they go from table to output unchanged: a group of lanes copies rows_in_flight rows
/// at a time, all loaded before the first is stored. Neighbouring groups take neighbouring bags, so
/// a warp writes one piece of memory:
///
///     warp      rows base + [0, groups)          group g copies rows base + g, base + groups + g, ...
///               rows base + groups + [0, groups)
template <Element T, IdType Id, int Width, Element Out = float>
__global__ void __launch_bounds__(lookup_threads)
    copy_rows(const T* __restrict__ arena,
              const GroupBatch<op::LookupGroup<Id, Out>> __grid_constant__ batch) {
  using Lanes = RowLanes<T, Width>;
  constexpr int flight = Lanes::rows_in_flight;
  const auto place = batch.template place<takes_turns<Width, Out>>(blockIdx.x);
  const op::LookupGroup<Id, Out> group = batch.groups[place.group];
  const int lane = static_cast<int>(threadIdx.x) % Lanes::lanes;
  const std::int64_t warp = place.block * (lookup_threads / 32) + threadIdx.x / 32;
  const std::int64_t first =
      warp * (Lanes::groups * flight) + static_cast<int>(threadIdx.x) % 32 / Lanes::lanes;
  const bool aligned = rows_aligned_for(group.output, group.output_stride, Lanes::vector);
  Id ids[flight];
  for (int r = 0; r < flight; ++r) {
    const std::int64_t bag = first + r * Lanes::groups;
    ids[r] = bag < group.bags.bags ? group.bags.ids[bag] : Id{-1};
  }
  RawRow<T, Lanes> rows[flight];
  load_flight<T, Width>(arena, group.bags.row_bias, ids, lane, rows);
  for (int r = 0; r < flight; ++r) {
    const std::int64_t bag = first + r * Lanes::groups;
    if (bag >= group.bags.bags) continue;
    Out* const to = group.output + bag * group.output_stride;
    if constexpr (std::is_same_v<T, Out>)
      store_raw_row(to, aligned, lane, rows[r]);
    else
      store_any_row(to, aligned, lane, widen(rows[r]));
  }
}

/// Sums the rows of entries [begin, begin + count) in their order, `flight` loaded before the first
/// is added; the next ids are asked for while rows are on their way. Rows that are read again come
/// from near caches: then instructions count, and a whole flight takes an id, an address, a load
/// and additions by row. `Row` counts the rows; of 32 bits, as an arena of a GPU has fewer. `Bags`:
/// op::Bags, or what has its ids, weights and row_bias.
template <class T, int Width, bool Weighted, std::unsigned_integral Row = std::uint32_t, class Bags>
__device__ __forceinline__ RowPart<RowLanes<T, Width>> sum_bag(const T* __restrict__ arena,
                                                               const Bags& bags, std::int64_t begin,
                                                               int count, int lane) {
  using Lanes = RowLanes<T, Width>;
  // wide row numbers take registers, too
  constexpr int most = Lanes::most_raw_in_flight,
                flight = sizeof(Row) == 8 && most > 1 ? most / 2 : most;
  constexpr auto absent = static_cast<Row>(~Row{0});
  // Ids of 64 bits may be beyond 2^32 in a table that is cut by rows: they become the arena's rows.
  constexpr bool wide = sizeof(*bags.ids) == 8;
  const T* const of_lane =
      as_base(arena + (wide ? 0 : bags.row_bias * Width) + lane * Lanes::vector);
  const auto* const ids = as_base(bags.ids + begin);
  const auto* const weights = Weighted ? bags.weights + begin : nullptr;
  const auto load = [&](Row id) {
    return load_raw_row<Lanes>(of_lane + static_cast<std::int64_t>(id) * Width, lane);
  };
  const auto id_at = [&](int k) {
    const auto id = ids[k];
    const auto bias = wide ? static_cast<Row>(bags.row_bias) : Row{0};
    return id < 0 ? absent : static_cast<Row>(id) + bias;
  };
  Row next[flight];
  const auto read_ids = [&](int k) {
    if (k + flight <= count)
      for (int r = 0; r < flight; ++r) next[r] = id_at(k + r);
    else
      for (int r = 0; r < flight; ++r) next[r] = k + r < count ? id_at(k + r) : absent;
  };
  RowPart<Lanes> sum = zero_row<Lanes>();
  const auto add = [&](int k, const RawRow<T, Lanes>& row) {
    if constexpr (Weighted)
      multiply_add_row(sum, to_float(weights[k]), widen(row));
    else
      add_row(sum, widen(row));
  };
  read_ids(0);
  for (int k = 0; k < count; k += flight) {
    RawRow<T, Lanes> rows[flight];
    bool whole = true;
    for (int r = 0; r < flight; ++r) whole = whole && next[r] != absent;
    if (whole) {
      for (int r = 0; r < flight; ++r) rows[r] = load(next[r]);
      read_ids(k + flight);
      for (int r = 0; r < flight; ++r) add(k + r, rows[r]);
    } else {
      for (int r = 0; r < flight; ++r)
        if (next[r] != absent) rows[r] = load(next[r]);
      for (int r = 0; r < flight; ++r)
        if (next[r] != absent) add(k + r, rows[r]);
      read_ids(k + flight);
    }
  }
  return sum;
}

/// Pools bags: a group of lanes sums a bag. Lanes do not talk to each other.
template <Element T, IdType Id, int Width, Element Out = float>
__global__ void __launch_bounds__(lookup_threads, RowLanes<T, Width>::words <= 4 ? 4 : 3)
    pool_bags(const T* __restrict__ arena,
              const GroupBatch<op::LookupGroup<Id, Out>> __grid_constant__ batch) {
  using Lanes = RowLanes<T, Width>;
  const int g = batch.find(blockIdx.x), lane = static_cast<int>(threadIdx.x) % Lanes::lanes;
  const op::LookupGroup<Id, Out>& group = batch.groups[g];
  const op::Bags<Id>& bags = group.bags;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g],
                     bag = block * (lookup_threads / Lanes::lanes) + threadIdx.x / Lanes::lanes;
  if (bag >= bags.bags) return;
  const std::int64_t begin = bags.begin(bag);
  const auto count = static_cast<int>(bags.end(bag) - begin);
  RowPart<Lanes> sum;
  if (bags.weights != nullptr) {
    sum = sum_bag<T, Width, true>(arena, bags, begin, count, lane);
  } else {
    sum = sum_bag<T, Width, false>(arena, bags, begin, count, lane);
    if (bags.bag_scale != nullptr) scale_row(sum, bags.bag_scale[bag]);
  }
  store_any_row(group.output + bag * group.output_stride,
                rows_aligned_for(group.output, group.output_stride, Lanes::vector), lane, sum);
}

/// Pools bags: a group of lanes sums rows_in_flight neighbouring bags, each in its order; as many
/// rows are loaded before the first is added, of the next bags, too. For short bags.
///
///     bags      0        | 1   | 2 (empty) | 3               |
///     rows      a b c d  | e f |           | g h i j k       |      of four in flight: a b c d, e f g h, i j k
template <Element T, IdType Id, int Width, Element Out = float>
__global__ void __launch_bounds__(lookup_threads)
    pool_rows(const T* __restrict__ arena,
              const GroupBatch<op::LookupGroup<Id, Out>> __grid_constant__ batch) {
  using Lanes = RowLanes<T, Width>;
  constexpr int flight = Lanes::rows_in_flight;
  const auto place = batch.template place<takes_turns<Width, Out>>(blockIdx.x);
  const op::LookupGroup<Id, Out> group = batch.groups[place.group];
  const op::Bags<Id>& bags = group.bags;
  const int lane = static_cast<int>(threadIdx.x) % Lanes::lanes;
  std::int64_t bag =
      (place.block * (lookup_threads / Lanes::lanes) + threadIdx.x / Lanes::lanes) * flight;
  if (bag >= bags.bags) return;
  const std::int64_t last = bag + flight < bags.bags ? bag + flight : bags.bags,
                     end = bags.end(last - 1);
  std::int64_t bag_end = bags.end(bag);
  RowPart<Lanes> sum = zero_row<Lanes>();
  const auto finish_bag = [&] {
    if (bags.weights == nullptr && bags.bag_scale != nullptr) scale_row(sum, bags.bag_scale[bag]);
    store_any_row(group.output + bag * group.output_stride,
                  rows_aligned_for(group.output, group.output_stride, Lanes::vector), lane, sum);
    sum = zero_row<Lanes>();
    if (++bag < last) bag_end = bags.end(bag);
  };
  Id ids[flight];
  const auto read_ids = [&](std::int64_t i) {
    for (int r = 0; r < flight; ++r) ids[r] = i + r < end ? bags.ids[i + r] : Id{-1};
  };
  std::int64_t i = bags.begin(bag);
  read_ids(i);
  for (; i < end; i += flight) {
    RawRow<T, Lanes> rows[flight];
    load_flight<T, Width>(arena, bags.row_bias, ids, lane, rows);
    bool there[flight];
    for (int r = 0; r < flight; ++r) there[r] = ids[r] >= 0;
    read_ids(i + flight);  // while the rows are on their way
    for (int r = 0; r < flight; ++r) {
      if (i + r >= end) break;
      while (bag_end <= i + r) finish_bag();  // NOLINT(bugprone-infinite-loop): it moves bag_end
      if (bags.weights != nullptr)            // one of a negative id may be infinite or NaN
        multiply_add_row(sum, there[r] ? bags.weights[i + r] : 0.0f, widen(rows[r]));
      else
        add_row(sum, widen(rows[r]));
    }
  }
  while (bag < last) finish_bag();  // NOLINT(bugprone-infinite-loop): it moves bag
}

}  // namespace gpu::detail

/// Three launches for all groups: rows that are copied, short bags, and long ones.
template <Element T, IdType Id, int Width, Element Out>
struct op::Kernel<op::Lookup<T, Id, Width, Out>, Cuda> {
  using Parameters = typename op::Lookup<T, Id, Width, Out>::Parameters;
  using Group = op::LookupGroup<Id, Out>;

  static void run(const Cuda& backend, const Parameters& p) {
    if constexpr (gpu::fits_lanes(Width))
      serve_all(backend, p);
    else
      gpu::lookup_any_width<T, Id, Out>(backend, p.arena, p.width, p.groups);
  }

 private:
  static void serve_all(const Cuda& backend, const Parameters& p) {
    using Lanes = gpu::RowLanes<T, Width>;
    constexpr int groups_per_block = gpu::detail::lookup_threads / Lanes::lanes;
    const auto serve = [&](const char* name, auto belongs, int bags_per_block, auto kernel) {
      const auto blocks_of = [&](const Group& group) {
        return belongs(group.bags) ? gpu::ceil_divide(group.bags.bags, bags_per_block) : 0;
      };
      gpu::launch_by_group<Group>(
          backend, name, {gpu::detail::lookup_threads, 0, gpu::detail::takes_turns<Width, Out>},
          p.groups, blocks_of, kernel, p.arena);
    };
    constexpr int flight = Lanes::rows_in_flight;
    const auto parts = std::count_if(p.groups.begin(), p.groups.end(),
                                     [](const Group& group) { return group.bags.of_batch(); });
    const auto is_short = [&](const op::Bags<Id>& bags) {
      const std::int64_t entries = bags.offsets == nullptr ? bags.bags
                                   : bags.of_batch()       ? bags.entry_bound / parts
                                                           : bags.entry_bound;
      return flight > 1 && entries < flight * bags.bags;
    };
    serve(
        "copy_rows", [](const op::Bags<Id>& bags) { return is_copy(bags); },
        groups_per_block * flight, gpu::detail::copy_rows<T, Id, Width, Out>);
    serve(
        "pool_rows", [&](const op::Bags<Id>& bags) { return !is_copy(bags) && is_short(bags); },
        groups_per_block * flight, gpu::detail::pool_rows<T, Id, Width, Out>);
    serve(
        "pool_bags", [&](const op::Bags<Id>& bags) { return !is_copy(bags) && !is_short(bags); },
        groups_per_block, gpu::detail::pool_bags<T, Id, Width, Out>);
  }

  static bool is_copy(const op::Bags<Id>& bags) {
    return bags.offsets == nullptr && bags.weights == nullptr && bags.bag_scale == nullptr;
  }
};

}}  // namespace tessera::v0
