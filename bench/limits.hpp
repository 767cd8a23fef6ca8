// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What this machine can do with the traffic of an operation and nothing else: gather rows, gather
// and write out, gather, modify and write back. The same ids, the same tables, the same threads,
// the best of several prefetch distances; run in turn with the operation. And with the arithmetic
// of one: multiplications and additions of registers.
#pragma once

#include <tessera/core/random.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/bag_parts.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/host/parallel.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "times.hpp"

namespace tessera::bench {

/// Memory on huge pages, touched, so that no page fault is timed.
template <class T>
class HugeArray {
 public:
  explicit HugeArray(std::int64_t count)
      : count_(count), data_(static_cast<T*>(Host::allocate(bytes()))) {
    std::fill_n(reinterpret_cast<char*>(data_), bytes(), '\0');
  }
  HugeArray(const HugeArray&) = delete;
  HugeArray& operator=(const HugeArray&) = delete;
  ~HugeArray() { Host::deallocate(data_, bytes()); }
  T* data() const { return data_; }
  std::int64_t size() const { return count_; }
  std::span<T> span() const { return {data_, static_cast<std::size_t>(count_)}; }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }
  std::int64_t count_;
  T* data_;
};

/// Ids of a table: uniform, or Zipf-distributed with exponent `skew` (inverted by its integral),
/// hot rows anywhere in the table or, with `by_frequency`, at its beginning.
inline std::int64_t draw_id(std::uint64_t seed, std::uint64_t counter, std::int64_t rows,
                            double skew, bool by_frequency = false) {
  const std::uint64_t word = random_word(seed, counter);
  if (skew == 0) return static_cast<std::int64_t>(word % static_cast<std::uint64_t>(rows));
  const double u = static_cast<double>(word >> 11) * 0x1p-53;
  const double rank =
      std::pow(1 + u * (std::pow(static_cast<double>(rows) + 1, 1 - skew) - 1), 1 / (1 - skew)) - 1;
  if (by_frequency) return std::min(static_cast<std::int64_t>(rank), rows - 1);
  return static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(rank)) %
                                   static_cast<std::uint64_t>(rows));
}

/// Rows of RowBytes at table + id * RowBytes, every `bag` of them summed into an output row of
/// OutputFloats floats.
template <int RowBytes, int OutputFloats, class Id>
void gather(int threads, const char* table, std::span<const Id> ids, std::int64_t bag,
            float* output, int distance) {
  const std::int64_t bags = std::ssize(ids) / bag;
  const std::int64_t parts = threads == 1 ? 1 : threads * 4;
  constexpr int row_floats = RowBytes / 4;
  detail::parallel_for(threads, parts, [&](std::int64_t part, int) {
    const std::int64_t first = bags * part / parts, last = bags * (part + 1) / parts;
    const std::int64_t stop = std::ssize(ids);
    for (std::int64_t i = first * bag; i < std::min(first * bag + distance, stop); ++i)
      detail::prefetch(table + static_cast<std::int64_t>(ids[i]) * RowBytes, RowBytes);
    for (std::int64_t b = first; b < last; ++b) {
      detail::RowSum<row_floats> sum;
      sum.clear();
      for (std::int64_t i = b * bag; i < (b + 1) * bag; ++i) {
        const std::int64_t ahead = std::min(i + distance, stop - 1);
        detail::prefetch(table + static_cast<std::int64_t>(ids[ahead]) * RowBytes, RowBytes);
        sum.add(
            reinterpret_cast<const float*>(table + static_cast<std::int64_t>(ids[i]) * RowBytes));
      }
      for (int c = 0; c < OutputFloats; c += row_floats) sum.store(output + b * OutputFloats + c);
    }
  });
}

/// Rows of RowBytes read and written back, `ElementArrays` tables of them (weights and element
/// states), and a float per row in each of `RowArrays` arrays. The ids must be distinct.
template <int RowBytes, int ElementArrays, int RowArrays, class Id>
void gather_modify_write(int threads, const std::array<char*, ElementArrays>& tables,
                         const std::array<float*, RowArrays>& row_arrays, std::span<const Id> ids,
                         int distance) {
  const std::int64_t parts = threads == 1 ? 1 : threads * 4;
  detail::parallel_for(threads, parts, [&](std::int64_t part, int) {
    const std::int64_t first = std::ssize(ids) * part / parts,
                       last = std::ssize(ids) * (part + 1) / parts;
    const auto ask = [&](std::int64_t i) {
      const auto id = static_cast<std::int64_t>(ids[i]);
      for (char* table : tables) detail::prefetch<true>(table + id * RowBytes, RowBytes);
      for (float* array : row_arrays) detail::prefetch<true>(array + id, 4);
    };
    for (std::int64_t i = first; i < std::min(first + distance, last); ++i) ask(i);
    for (std::int64_t i = first; i < last; ++i) {
      if (i + distance < last) ask(i + distance);
      const auto id = static_cast<std::int64_t>(ids[i]);
      for (char* table : tables) {
        float* row = reinterpret_cast<float*>(table + id * RowBytes);
        detail::RowSum<RowBytes / 4> sum;
        sum.clear();
        sum.add(row);
        sum.scale(0.5f);
        sum.store(row);
      }
      for (float* array : row_arrays) array[id] += 1;
    }
  });
}

/// A stream of floats read once.
inline float read_stream(int threads, std::span<const float> values) {
  const std::int64_t parts = threads == 1 ? 1 : threads * 4;
  std::array<float, 256> sums{};
  detail::parallel_for(threads, parts, [&](std::int64_t part, int) {
    const std::int64_t first = std::ssize(values) / 64 * part / parts * 64,
                       last = std::ssize(values) / 64 * (part + 1) / parts * 64;
    detail::RowSum<64> sum;
    sum.clear();
    for (std::int64_t i = first; i < last; i += 64) sum.add(values.data() + i);
    float result[64];
    sum.store(result);
    sums[static_cast<std::size_t>(part)] = result[0];
  });
  return sums[0];
}

/// At least so many floating-point operations, multiplications and additions of whole registers:
/// what bounds matrix products.
inline void multiply_add(int threads, double operations) {
  // independent ones: a processor has 8 or more under way
  constexpr int lanes = detail::native_lanes, chains = 12;
  const auto rounds = static_cast<std::int64_t>(operations / (2.0 * lanes * chains * threads)) + 1;
  std::array<float, 256> results{};
  detail::parallel_for(threads, threads, [&](std::int64_t part, int) {
    const auto factor = detail::broadcast<lanes>(0.999f), term = detail::broadcast<lanes>(0.001f);
    std::array<detail::Vector<float, lanes>, chains> sums;
    detail::unrolled<chains>(
        [&](auto i) { sums[i()] = detail::broadcast<lanes>(0.1f * static_cast<float>(i())); });
    for (std::int64_t round = 0; round < rounds; ++round)
      detail::unrolled<chains>(
          [&](auto i) { sums[i()] = detail::multiply_add<lanes>(sums[i()], factor, term); });
    detail::unrolled<chains>(
        [&](auto i) { results[static_cast<std::size_t>(part) % results.size()] += sums[i()][0]; });
  });
  volatile float kept = results[0];  // else nobody would need the sums
  static_cast<void>(kept);
}

/// The ids without repetition, in the order of their first places. `rows`: more than any of them.
template <class Id>
std::vector<Id> distinct_ids(std::span<const Id> ids, std::int64_t rows) {
  std::vector<bool> seen(static_cast<std::size_t>(rows));
  std::vector<Id> distinct;
  for (const Id id : ids) {
    if (!seen[static_cast<std::size_t>(id)]) distinct.push_back(id);
    seen[static_cast<std::size_t>(id)] = true;
  }
  return distinct;
}

/// The distance for which f(distance) takes least, each tried a few times in turn.
template <class F>
int best_distance(const F& f) {
  constexpr std::array<int, 5> distances{8, 16, 32, 64, 128};
  std::array<double, distances.size()> best;
  best.fill(std::numeric_limits<double>::infinity());
  for (int round = 0; round < 5; ++round)
    for (std::size_t i = 0; i < distances.size(); ++i)
      best[i] = std::min(best[i], seconds([&] { f(distances[i]); }));
  return distances[static_cast<std::size_t>(std::ranges::min_element(best) - best.begin())];
}

/// Runs ours(batch) and limit(batch, distance) in turn. Different batches: neither finds its rows in
/// a cache because the other just read them.
template <class State, class Ours, class Limit>
void run_beside_limit(State& state, std::int64_t batches, std::int64_t entries, std::int64_t bytes,
                      const Ours& ours, const Limit& limit) {
  std::int64_t turn = 0;
  const int distance = best_distance([&](int d) { limit(turn++ % batches, d); });
  ours(turn++ % batches);
  std::vector<double> limit_times, times;
  for ([[maybe_unused]] const auto _ : state) {
    limit_times.push_back(seconds([&] { limit(turn++ % batches, distance); }));
    times.push_back(seconds([&] { ours(turn++ % batches); }));
    state.SetIterationTime(times.back());
  }
  const double time = median(times);
  state.counters["limit_ms"] = median(limit_times) * 1e3;
  state.counters["ms"] = time * 1e3;
  state.counters["limit_share"] = median(limit_times) / time;
  // where other work disturbs the medians
  state.counters["best_share"] = std::ranges::min(limit_times) / std::ranges::min(times);
  state.counters["ids/s"] = static_cast<double>(entries) / time;
  state.counters["bytes/s"] = static_cast<double>(bytes) / time;
}

}  // namespace tessera::bench
