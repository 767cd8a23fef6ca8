// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace gpu {

/// Device memory for pairs that are sorted from one half into the other; `keys` and `values` are
/// where they are now.
template <class Value, class Key = std::uint32_t>
struct SortBuffers {
  Key* keys = nullptr;
  Value* values = nullptr;
  Key* other_keys = nullptr;
  Value* other_values = nullptr;
};

/// Returns temporary memory that sort_pairs takes.
template <class Value, class Key = std::uint32_t>
std::size_t sort_bytes(const Cuda& backend, int count, int bits) {
  cub::DoubleBuffer<Key> keys;
  cub::DoubleBuffer<Value> values;
  std::size_t bytes = 0;
  check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, values, count, 0, bits,
                                        backend.stream()),
        "measuring a sort of {} pairs", count);
  return bytes;
}

/// Sorts pairs by the lowest `bits` bits of their keys, stably (CUB's radix sort).
template <class Value, class Key = std::uint32_t>
SortBuffers<Value, Key> sort_pairs(const Cuda& backend, SortBuffers<Value, Key> buffers, int count,
                                   int bits) {
  cub::DoubleBuffer<Key> keys(buffers.keys, buffers.other_keys);
  cub::DoubleBuffer<Value> values(buffers.values, buffers.other_values);
  std::size_t bytes = sort_bytes<Value, Key>(backend, count, bits);
  void* temporary = backend.scratch(ScratchSlot::cub, bytes);
  check(cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, values, count, 0, bits,
                                        backend.stream()),
        "sorting {} pairs", count);
  return {keys.Current(), values.Current(), keys.Alternate(), values.Alternate()};
}

/// Sorts pairs by all bits of their unsigned keys, stably, into other memory. Without `temporary` it
/// only says how many bytes that needs.
template <class Key, class Value>
void sort_pairs_into(cudaStream_t stream, void* temporary, std::size_t& bytes, const Key* keys,
                     Key* sorted_keys, const Value* values, Value* sorted_values, int count) {
  check(cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, sorted_keys, values, sorted_values,
                                        count, 0, static_cast<int>(8 * sizeof(Key)), stream),
        "sorting {} pairs", count);
}

/// Replaces each value by the sum of those before it, as exclusive_sum. Without `temporary` it only
/// says how many bytes that needs.
template <class Value>
void exclusive_sum_in(cudaStream_t stream, void* temporary, std::size_t& bytes, Value* values,
                      int count) {
  check(cub::DeviceScan::ExclusiveSum(temporary, bytes, values, values, count, stream),
        "summing {} values", count);
}

/// Returns temporary memory that exclusive_sum takes.
template <class Value>
std::size_t sum_bytes(const Cuda& backend, int count) {
  std::size_t bytes = 0;
  exclusive_sum_in<Value>(backend.stream(), nullptr, bytes, nullptr, count);
  return bytes;
}

/// Replaces each value by the sum of those before it. A template, so that only who uses it waits
/// for CUB's scan to be compiled.
template <class Value>
void exclusive_sum(const Cuda& backend, Value* values, int count) {
  std::size_t bytes = sum_bytes<Value>(backend, count);
  void* temporary = backend.scratch(ScratchSlot::cub, bytes);
  exclusive_sum_in(backend.stream(), temporary, bytes, values, count);
}

}}}  // namespace tessera::v0::gpu
