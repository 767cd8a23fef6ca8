// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/sort.cuh>
#include <tessera/op/distinct_ids.hpp>

#include <bit>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int distinct_threads = 256;

/// An array of ids for kernels. Entries of all arrays are numbered through, and so are their ids:
/// key = first_key + id.
template <IdType Id>
struct DistinctArray {
  const Id* ids;
  Id* distinct;
  std::int32_t* index;
  std::int64_t first_entry;
  std::int64_t first_key;
  const std::int64_t* offsets;
  std::int64_t bags;

  /// Returns id i; -1 behind the last.
  __device__ std::int64_t id(std::int64_t i) const {
    if (offsets == nullptr) return ids[i];
    const std::int64_t place = offsets[0] + i;
    return place < offsets[bags] ? ids[place] : -1;
  }
};

template <IdType Id>
__device__ const DistinctArray<Id>& array_of(const DistinctArray<Id>* arrays, int count,
                                             std::int64_t entry) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (arrays[middle].first_entry <= entry)
      low = middle;
    else
      high = middle - 1;
  }
  return arrays[low];
}

/// The key of a negative id; it sorts behind all others.
template <class Key>
inline constexpr Key no_key = static_cast<Key>(~Key{0});

template <IdType Id, class Key>
__global__ void __launch_bounds__(distinct_threads)
    list_keys(const DistinctArray<Id>* arrays, const int count, const std::uint32_t entries,
              Key* keys, std::uint32_t* places) {
  const std::uint32_t i = blockIdx.x * distinct_threads + threadIdx.x;
  if (i >= entries) return;
  const DistinctArray<Id>& array = array_of(arrays, count, i);
  const std::int64_t id = array.id(i - array.first_entry);
  keys[i] = id < 0 ? no_key<Key> : static_cast<Key>(array.first_key + id);
  places[i] = i;
}

/// Returns whether a sorted key is the first of its kind.
template <class Key>
__device__ bool begins(const Key* keys, std::uint32_t i) {
  return keys[i] != no_key<Key> && (i == 0 || keys[i - 1] != keys[i]);
}

/// Writes 1 where a key is the first of its kind, and a 0 behind the last.
template <class Key>
__global__ void __launch_bounds__(distinct_threads)
    mark_first_keys(const Key* keys, const std::uint32_t entries, std::uint32_t* marks) {
  const std::uint32_t i = blockIdx.x * distinct_threads + threadIdx.x;
  if (i <= entries) marks[i] = i < entries && begins(keys, i);
}

/// Counts distinct keys before those of each array, and of all: from the sums of marks.
template <IdType Id, class Key>
__global__ void __launch_bounds__(distinct_threads)
    count_distinct(const DistinctArray<Id>* arrays, const int count, const Key* keys,
                   const std::uint32_t entries, const std::uint32_t* before,
                   std::uint32_t* first_distinct) {
  const int a = static_cast<int>(blockIdx.x * distinct_threads + threadIdx.x);
  if (a > count) return;
  const Key key = a == count ? no_key<Key> : static_cast<Key>(arrays[a].first_key);
  std::uint32_t low = 0, high = entries;  // the first place whose key is not below
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (keys[middle] < key)
      low = middle + 1;
    else
      high = middle;
  }
  first_distinct[a] = before[low];
}

/// Writes the distinct ids: entry i of the sorted ones tells its place where its id is among the
/// distinct ones; the first of its kind writes it there. `fills_room`: place i gets -1 if no
/// distinct id comes there.
template <IdType Id, class Key>
__global__ void __launch_bounds__(distinct_threads)
    write_distinct(const DistinctArray<Id>* arrays, const int count, const Key* keys,
                   const std::uint32_t* places, const std::uint32_t entries,
                   const std::uint32_t* before, const std::uint32_t* first_distinct,
                   const bool fills_room) {
  const std::uint32_t i = blockIdx.x * distinct_threads + threadIdx.x;
  if (i >= entries) return;
  if (fills_room) {
    const DistinctArray<Id>& own = array_of(arrays, count, i);
    const std::int64_t of_own = i - own.first_entry, a = &own - arrays;
    if (of_own >= first_distinct[a + 1] - first_distinct[a]) own.distinct[of_own] = Id{-1};
  }
  const std::uint32_t place = places[i];
  const DistinctArray<Id>& array = array_of(arrays, count, place);
  std::int32_t index = -1;
  if (keys[i] != no_key<Key>) {
    const bool first = begins(keys, i);
    index =
        static_cast<std::int32_t>(before[i] - (first ? 0 : 1) - first_distinct[&array - arrays]);
    if (first)
      array.distinct[index] = static_cast<Id>(static_cast<std::int64_t>(keys[i]) - array.first_key);
  }
  array.index[place - array.first_entry] = index;
}

}  // namespace gpu::detail

/// Distinct ids in ascending order: one sort of all arrays' ids, by as many bits as they need, and
/// one wait.
template <IdType Id>
struct op::Kernel<op::DistinctIds<Id>, Cuda> {
  using Job = typename op::DistinctIds<Id>::Job;

  static void run(const Cuda& backend, const typename op::DistinctIds<Id>::Parameters& p) {
    if (!p.fills_room) gpu::refuse_wait_of_capture(backend.stream(), "the numbers of distinct ids");
    std::vector<gpu::detail::DistinctArray<Id>> arrays;
    std::int64_t entries = 0, keys = 0;
    for (const Job& job : p.jobs) {
      require(job.rows > 0 || job.count == 0, "DistinctIds: a GPU must know a bound of the ids");
      arrays.push_back({job.ids, job.distinct, job.index, entries, keys, job.offsets, job.bags});
      entries += job.count;
      keys += job.rows;
    }
    require(entries < INT32_MAX, "distinct ids: {} ids on one rank; a GPU takes less than 2^31 - 1",
            entries);
    std::vector<std::uint32_t> first_distinct(p.fills_room ? 0 : arrays.size() + 1);
    if (entries > 0 && keys < UINT32_MAX)
      find<std::uint32_t>(backend, arrays, static_cast<std::uint32_t>(entries), keys,
                          first_distinct);
    else if (entries > 0)
      find<std::uint64_t>(backend, arrays, static_cast<std::uint32_t>(entries), keys,
                          first_distinct);
    if (p.fills_room) {
      for (Job& job : p.jobs) job.found = job.count;
      return;
    }
    for (std::size_t a = 0; a < arrays.size(); ++a)
      p.jobs[a].found = first_distinct[a + 1] - first_distinct[a];
  }

 private:
  /// Finds distinct ids. `first_distinct`: empty if the room is filled.
  template <class Key>
  static void find(const Cuda& backend, const std::vector<gpu::detail::DistinctArray<Id>>& arrays,
                   std::uint32_t entries, std::int64_t key_bound,
                   std::vector<std::uint32_t>& first_distinct) {
    const auto count = static_cast<int>(arrays.size());
    const auto blocks = [](std::int64_t threads) {
      return gpu::ceil_divide(threads, gpu::detail::distinct_threads);
    };
    auto* keys = backend.scratch_for<Key>(gpu::ScratchSlot::entries, std::int64_t{2} * entries);
    auto* places =
        backend.scratch_for<std::uint32_t>(gpu::ScratchSlot::places, std::int64_t{2} * entries);
    auto* device_arrays =
        backend.scratch_for<gpu::detail::DistinctArray<Id>>(gpu::ScratchSlot::sources, count);
    auto* before =
        backend.scratch_for<std::uint32_t>(gpu::ScratchSlot::windows, std::int64_t{entries} + 1);
    auto* device_first = backend.scratch_for<std::uint32_t>(gpu::ScratchSlot::sums, count + 1);
    gpu::upload<gpu::detail::DistinctArray<Id>>(backend, arrays, device_arrays);
    const gpu::detail::DistinctArray<Id>* const a = device_arrays;
    backend.launch("list_keys", blocks(entries), gpu::detail::distinct_threads,
                   gpu::detail::list_keys<Id, Key>, a, count, entries, keys, places);
    // no_key is above every key in these, too
    const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(key_bound)));
    const auto sorted = gpu::sort_pairs<std::uint32_t, Key>(
        backend, {keys, places, keys + entries, places + entries}, static_cast<int>(entries), bits);
    const Key* const sorted_keys = sorted.keys;
    const std::uint32_t* const sorted_places = sorted.values;
    backend.launch("mark_first_keys", blocks(std::int64_t{entries} + 1),
                   gpu::detail::distinct_threads, gpu::detail::mark_first_keys<Key>, sorted_keys,
                   entries, before);
    gpu::exclusive_sum(backend, before, static_cast<int>(entries) + 1);
    const std::uint32_t* const sums = before;
    backend.launch("count_distinct", blocks(count + 1), gpu::detail::distinct_threads,
                   gpu::detail::count_distinct<Id, Key>, a, count, sorted_keys, entries, sums,
                   device_first);
    backend.launch("write_distinct", blocks(entries), gpu::detail::distinct_threads,
                   gpu::detail::write_distinct<Id, Key>, a, count, sorted_keys, sorted_places,
                   entries, sums, static_cast<const std::uint32_t*>(device_first),
                   first_distinct.empty());
    if (first_distinct.empty()) return;
    backend.copy(first_distinct.data(), device_first,
                 first_distinct.size() * sizeof(std::uint32_t));
    backend.synchronize();
  }
};

}}  // namespace tessera::v0
