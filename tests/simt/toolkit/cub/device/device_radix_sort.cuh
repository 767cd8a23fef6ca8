// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/runtime.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

namespace cub {

/// Two buffers, one of which holds the data.
template <class T>
struct DoubleBuffer {
  T* d_buffers[2] = {nullptr, nullptr};
  int selector = 0;
  DoubleBuffer() = default;
  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() const { return d_buffers[selector]; }
  T* Alternate() const { return d_buffers[selector ^ 1]; }
};

/// The interface of CUB's device-wide sort, by std::stable_sort on the bits asked for. As CUB's,
/// which takes 8 bits at a time and each time from one buffer into the other, it leaves the data
/// where it was if that makes an even number of times.
struct DeviceRadixSort {
  template <class Key, class Value, class Count>
  static cudaError_t SortPairs(void* temporary, std::size_t& temporary_bytes,
                               DoubleBuffer<Key>& keys, DoubleBuffer<Value>& values, Count count,
                               int begin_bit, int end_bit, cudaStream_t stream) {
    if (temporary == nullptr) {
      temporary_bytes = 256 + static_cast<std::size_t>(count);
      return cudaSuccess;
    }
    simt::enqueue(stream, [=, bytes = temporary_bytes] {
      const simt::DeviceAccess access;
      std::memset(temporary, 0x5a, bytes);
      sort(keys, values, count, begin_bit, end_bit);
    });
    keys.selector ^= flips(begin_bit, end_bit);
    values.selector ^= flips(begin_bit, end_bit);
    return cudaPeekAtLastError();  // as CUB does after its launches
  }
  template <class Key, class Value, class Count>
  static cudaError_t SortPairs(void* temporary, std::size_t& temporary_bytes, const Key* keys,
                               Key* sorted_keys, const Value* values, Value* sorted_values,
                               Count count, int begin_bit, int end_bit, cudaStream_t stream) {
    if (temporary == nullptr) {
      temporary_bytes = 256 + static_cast<std::size_t>(count) * (1 + sizeof(Key) + sizeof(Value));
      return cudaSuccess;
    }
    simt::enqueue(stream, [=, bytes = temporary_bytes] {
      const simt::DeviceAccess access;
      std::memset(temporary, 0x5a, bytes);
      std::vector<Key> key_copy(keys, keys + count);
      std::vector<Value> value_copy(values, values + count);
      sort(DoubleBuffer<Key>(key_copy.data(), sorted_keys),
           DoubleBuffer<Value>(value_copy.data(), sorted_values), count, begin_bit, end_bit);
      if (flips(begin_bit, end_bit) != 0) return;
      std::copy(key_copy.begin(), key_copy.end(), sorted_keys);
      std::copy(value_copy.begin(), value_copy.end(), sorted_values);
    });
    return cudaPeekAtLastError();
  }

 private:
  static int flips(int begin_bit, int end_bit) { return (end_bit - begin_bit + 7) / 8 % 2; }

  template <class Key, class Value, class Count>
  static void sort(const DoubleBuffer<Key>& keys, const DoubleBuffer<Value>& values, Count count,
                   int begin_bit, int end_bit) {
    using Bits = std::make_unsigned_t<Key>;
    const int bits = end_bit - begin_bit;
    const Bits mask = bits >= static_cast<int>(8 * sizeof(Key))
                          ? ~Bits{0}
                          : static_cast<Bits>((Bits{1} << bits) - 1);
    const auto digits = [&](Key key) {
      return static_cast<Bits>(static_cast<Bits>(key) >> begin_bit) & mask;
    };
    std::vector<std::size_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return digits(keys.Current()[a]) < digits(keys.Current()[b]);
    });
    for (std::size_t i = 0; i < order.size(); ++i) {
      keys.Alternate()[i] = keys.Current()[order[i]];
      values.Alternate()[i] = values.Current()[order[i]];
    }
    if (flips(begin_bit, end_bit) != 0) return;
    std::swap_ranges(keys.Current(), keys.Current() + count, keys.Alternate());
    std::swap_ranges(values.Current(), values.Current() + count, values.Alternate());
  }
};

}  // namespace cub
