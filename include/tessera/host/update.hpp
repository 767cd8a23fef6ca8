// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/lanes.hpp>
#include <tessera/host/row_grouping.hpp>
#include <tessera/host/row_update.hpp>
#include <tessera/op/update.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tessera::inline v0 {

namespace detail {

/// Walks over the rows of a bucket: sums the gradients of each and hands it to f(row, gradient), having called prefetch_row(row) some
/// rows before.
template <int Width, IdType Id, class Prefetch, class F>
[[gnu::always_inline]] inline void for_each_merged_row(const RowPartition<Id>& partition, const RowBucket& bucket, const BucketRows& found,
                                                       int width, float* buffer, std::int64_t row_bytes, const Prefetch& prefetch_row,
                                                       const F& f) {
  const std::int64_t gradient_bytes = (Width != dynamic_width ? Width : width) * std::int64_t{4};
  const RowEntry* const entries = partition.entry(bucket.begin);
  const float* const coefficients = partition.scaled() ? partition.coefficient(bucket.begin) : nullptr;
  const std::int64_t total = bucket.entries();
  const std::int64_t row_distance = prefetch_distance(row_bytes);
  const std::int64_t source_distance = prefetch_distance(gradient_bytes);
  const auto row = [&](std::int64_t k) { return bucket.row_begin + found.rows[k]; };
  for (std::int64_t k = 0; k < std::min(row_distance, found.count); ++k) prefetch_row(row(k));
  for (std::int64_t i = 0; i < std::min(source_distance, total); ++i) prefetch(partition.gradient(entries[i].source), gradient_bytes);

  for (std::int64_t k = 0; k < found.count; ++k) {
    if (k + row_distance < found.count) prefetch_row(row(k + row_distance));
    const std::int64_t begin = found.begins[k], end = found.begins[k + 1];
    for_column_chunks<Width>(width, [&]<int C>(int column) {
      RowSum<C> sum;
      sum.clear();
      for (std::int64_t i = begin; i < end; ++i) {
        if (column == 0 && i + source_distance < total) prefetch(partition.gradient(entries[i + source_distance].source), gradient_bytes);
        const float* gradient = partition.gradient(entries[i].source) + column;
        if (coefficients != nullptr) {
          sum.add(gradient, coefficients[i]);
        } else {
          sum.add(gradient);
        }
      }
      sum.store(buffer + column);
    });
    f(row(k), buffer);
  }
}

/// What every thread needs to work on buckets: BucketRows, and a row's gradient.
template <IdType Id>
class BucketWorkers {
 public:
  BucketWorkers(const Host& backend, const RowPartition<Id>& partition, int width) : scaled_(partition.scaled()), width_(width) {
    for (const RowBucket& bucket : partition.buckets()) {
      entries_ = std::max(entries_, bucket.entries());
      distinct_ = std::max(distinct_, bucket.capacity());
    }
    ScratchCutter sizes(nullptr);
    cut(sizes);
    bytes_ = sizes.used();
    scratch_ = static_cast<std::byte*>(backend.scratch(ScratchSlot::workers, bytes_ * static_cast<std::size_t>(partition.threads())));
  }
  std::pair<BucketRows, float*> operator[](int worker) const {
    ScratchCutter cutter(scratch_ + bytes_ * static_cast<std::size_t>(worker));
    return cut(cutter);
  }

 private:
  std::pair<BucketRows, float*> cut(ScratchCutter& cutter) const {
    const BucketRows rows = BucketRows::cut(cutter, entries_, distinct_, scaled_);
    return {rows, cutter.array<float>(width_)};
  }
  bool scaled_;
  int width_;
  std::int64_t entries_ = 0;
  std::int64_t distinct_ = 0;
  std::size_t bytes_ = 0;
  std::byte* scratch_ = nullptr;
};

}  // namespace detail

/// Entries are partitioned by ranges of rows (RowPartition), sorted by row bucket by bucket (BucketRows), and every row's gradient is
/// summed in registers and applied at once. A bucket fits into a core's cache.
template <Element T, IdType Id, int Width, Optimizer O>
struct Kernel<Update<T, Id, Width, O>, Host> {
  static void run(const Host& backend, const typename Update<T, Id, Width, O>::Parameters& p) {
    using namespace detail;
    const RowPartition<Id> partition(backend, p.groups, p.state.rows);
    if (partition.entries() == 0) return;
    const int width = Width != dynamic_width ? Width : p.state.width;
    const BucketWorkers<Id> workers(backend, partition, width);
    const std::int64_t row_bytes = width * static_cast<std::int64_t>(sizeof(T)) + O::element_states * width * 4 + O::row_states * 64;
    parallel_for(partition.threads(), std::ssize(partition.buckets()), [&](std::int64_t i, int worker) {
      const RowBucket& bucket = partition.buckets()[static_cast<std::size_t>(partition.by_size(i))];
      auto [found, buffer] = workers[worker];
      found.sort(partition, bucket);
      found.find(partition.entry(bucket.begin), bucket);
      RowUpdate<T, Width, O> update(p.state, p.step);
      for_each_merged_row<Width>(
          partition, bucket, found, width, buffer, row_bytes, [&](std::int64_t row) { update.prefetch(row); },
          [&](std::int64_t row, const float* gradient) {
            float mean = 0;
            if constexpr (O::needs_mean_square) mean = fast_mean_square(gradient, width);
            update.apply(row, gradient, mean);
          });
    });
  }
};

/// As Update, in two walks over the buckets: the first sorts and counts, and so learns where each bucket's rows go.
template <IdType Id, int Width>
struct Kernel<Merge<Id, Width>, Host> {
  static void run(const Host& backend, const typename Merge<Id, Width>::Parameters& p) {
    using namespace detail;
    const RowPartition<Id> partition(backend, p.groups, p.arena_rows);
    p.merged->count = 0;
    if (partition.entries() == 0) return;
    const std::span<const RowBucket> buckets = partition.buckets();
    const int width = Width != dynamic_width ? Width : p.width;
    const BucketWorkers<Id> workers(backend, partition, width);
    auto* const first = static_cast<std::int64_t*>(backend.scratch(ScratchSlot::merge, (buckets.size() + 1) * sizeof(std::int64_t)));
    parallel_for(partition.threads(), std::ssize(buckets), [&](std::int64_t i, int worker) {
      const std::int64_t b = partition.by_size(i);
      const RowBucket& bucket = buckets[static_cast<std::size_t>(b)];
      BucketRows found = workers[worker].first;
      found.sort(partition, bucket);
      found.find(partition.entry(bucket.begin), bucket);
      first[b + 1] = found.count;
    });
    first[0] = 0;
    for (std::size_t b = 0; b < buckets.size(); ++b) first[b + 1] += first[b];
    parallel_for(partition.threads(), std::ssize(buckets), [&](std::int64_t i, int worker) {
      const std::int64_t b = partition.by_size(i);
      const RowBucket& bucket = buckets[static_cast<std::size_t>(b)];
      auto [found, buffer] = workers[worker];
      found.find(partition.entry(bucket.begin), bucket);
      std::int64_t* rows = p.merged->rows + first[b];
      float* gradients = p.merged->gradients + first[b] * width;
      for_each_merged_row<Width>(
          partition, bucket, found, width, buffer, width * std::int64_t{4}, [](std::int64_t) {},
          [&](std::int64_t row, const float* gradient) {
            *rows++ = row;
            gradients = std::copy_n(gradient, width, gradients);
          });
    });
    p.merged->count = first[buckets.size()];
  }
};

/// Runs of merged rows, one after the other.
template <Element T, int Width, Optimizer O>
struct Kernel<Apply<T, Width, O>, Host> {
  static void run(const Host& backend, const typename Apply<T, Width, O>::Parameters& p) {
    const int width = Width != dynamic_width ? Width : p.state.width;
    const std::int64_t row_bytes = width * static_cast<std::int64_t>(sizeof(T)) + O::element_states * width * 4 + O::row_states * 64;
    const int threads = worthwhile_threads(backend.threads(), p.merged.count * row_bytes);
    const std::int64_t parts = threads == 1 ? 1 : 4 * threads;
    const std::int64_t distance = detail::prefetch_distance(row_bytes);
    parallel_for(threads, parts, [&](std::int64_t part, int) {
      const std::int64_t begin = p.merged.count * part / parts, end = p.merged.count * (part + 1) / parts;
      detail::RowUpdate<T, Width, O> update(p.state, p.step);
      for (std::int64_t k = begin; k < std::min(begin + distance, end); ++k) update.prefetch(p.merged.rows[k]);
      for (std::int64_t k = begin; k < end; ++k) {
        if (k + distance < end) update.prefetch(p.merged.rows[k + distance]);
        update.apply(p.merged.rows[k], p.merged.gradients + k * width, p.mean_square != nullptr ? p.mean_square[k] : 0.0f);
      }
    });
  }
};

}  // namespace tessera::inline v0
