// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/primitives.cuh>
#include <tessera/op/update.hpp>

#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace gpu {

/// A group, without its gradients, and where its bags and entries begin among those of all groups.
template <IdType Id>
struct EntryGroup {
  op::GradientGroup<Id> source;
  std::int64_t first_bag;
  std::int64_t first_entry;
};

/// Where kernels find the gradients of a group's bags; bags of all groups are numbered through.
template <Element G = float>
struct GradientSource {
  const G* gradient;
  std::int64_t stride;
  const float* bag_scale;
  std::int64_t first_bag;
};

/// Where an entry's gradient is and what it is multiplied by.
template <Element G = float>
struct GradientEntry {
  const G* gradient;
  float coefficient;
};

/// A sorted entry names its bag; if ids have weights it carries the weight, too, so that nothing
/// is looked up by entry.
using BagPayload = std::uint32_t;
using WeightedPayload = std::uint64_t;
__device__ __forceinline__ std::uint32_t bag_of(BagPayload payload) { return payload; }
__device__ __forceinline__ std::uint32_t bag_of(WeightedPayload payload) {
  return static_cast<std::uint32_t>(payload);
}
__device__ __forceinline__ float weight_of(BagPayload) { return 1.0f; }
__device__ __forceinline__ float weight_of(WeightedPayload payload) {
  return __uint_as_float(static_cast<std::uint32_t>(payload >> 32));
}
template <class Payload>
__device__ __forceinline__ Payload make_payload(std::uint32_t bag, float weight) {
  if constexpr (std::is_same_v<Payload, WeightedPayload>)
    return static_cast<WeightedPayload>(__float_as_uint(weight)) << 32 | bag;
  else
    return bag;
}

/// The key of places that hold no entry; it sorts behind every row.
inline constexpr std::uint32_t no_row = 0xffffffffu;

/// Entries sorted by row, stably: the order within a row is (group, bag, position). Kernels take it
/// by value.
template <class Payload, Element G = float>
struct SortedEntries {
  const std::uint32_t* rows;
  const Payload* payloads;
  std::uint32_t count;  ///< places; those that no entry takes hold no_row
  const GradientSource<G>* sources;
  int source_count;
  std::uint32_t bags_per_source;  ///< if all have equally many, else 0
  bool aligned;                   ///< every bag's gradient (rows_aligned_for)
  int column;                     ///< of the gradients that is wanted first

  __device__ bool is_row(std::uint64_t place, std::uint32_t row) const {
    return place < count && rows[place] == row;
  }

  /// Returns their rows alone.
  SortedEntries<Payload> without_gradients() const {
    return {rows, payloads, count, nullptr, 0, 0, false, 0};
  }

  /// Returns the entry of a place that holds one.
  __device__ GradientEntry<G> entry(Payload payload) const {
    const std::uint32_t bag = bag_of(payload);
    const GradientSource<G>& source = sources[source_of(bag)];
    const std::int64_t local = bag - source.first_bag;
    return {source.gradient + local * source.stride + column,
            source.bag_scale == nullptr ? weight_of(payload) : source.bag_scale[local]};
  }

 private:
  __device__ int source_of(std::uint32_t bag) const {
    if (bags_per_source != 0) return static_cast<int>(bag / bags_per_source);
    int low = 0, high = source_count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (sources[middle].first_bag <= bag)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }
};

}}}  // namespace tessera::v0::gpu
