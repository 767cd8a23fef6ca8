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

/// Walks over grouped rows: sums the gradients of each and hands it to f(k, gradient), having called prefetch(k) some rows before.
template <int Width, IdType Id, class Prefetch, class F>
[[gnu::always_inline]] inline void for_each_merged_row(const RowPartition<Id>& partition, const GroupedRows& grouped, int width,
                                                       float* buffer, std::int64_t row_bytes, const Prefetch& prefetch_row, const F& f) {
  const std::int64_t gradient_bytes = (Width != dynamic_width ? Width : width) * std::int64_t{4};
  const auto total = grouped.begins[grouped.count];
  const std::int64_t row_distance = prefetch_distance(row_bytes);
  const auto source_distance = static_cast<std::uint32_t>(prefetch_distance(gradient_bytes));
  for (std::int64_t k = 0; k < std::min(row_distance, grouped.count); ++k) prefetch_row(k);
  for (std::uint32_t i = 0; i < std::min(source_distance, total); ++i) prefetch(partition.gradient(grouped.sources[i]), gradient_bytes);

  for (std::int64_t k = 0; k < grouped.count; ++k) {
    if (k + row_distance < grouped.count) prefetch_row(k + row_distance);
    const std::uint32_t begin = grouped.begins[k], end = grouped.begins[k + 1];
    for_column_chunks<Width>(width, [&]<int C>(int column) {
      RowSum<C> sum;
      sum.clear();
      for (std::uint32_t i = begin; i < end; ++i) {
        if (column == 0 && i + source_distance < total) prefetch(partition.gradient(grouped.sources[i + source_distance]), gradient_bytes);
        const float* gradient = partition.gradient(grouped.sources[i]) + column;
        if (partition.scaled()) {
          sum.add(gradient, grouped.coefficients[i]);
        } else {
          sum.add(gradient);
        }
      }
      sum.store(buffer + column);
    });
    f(k, buffer);
  }
}

}  // namespace detail

/// Entries are partitioned by ranges of rows (RowPartition), grouped by row bucket by bucket (GroupedRows), and every row's gradient
/// is summed in registers and applied at once. Buckets are small enough for a core's cache.
template <Element T, IdType Id, int Width, Optimizer O>
struct Kernel<Update<T, Id, Width, O>, Host> {
  static void run(const Host& backend, const typename Update<T, Id, Width, O>::Parameters& p) {
    using namespace detail;
    const RowPartition<Id> partition(backend, p.groups, p.state.rows);
    if (partition.entries() == 0) return;
    std::int64_t entries = 0, distinct = 0;
    for (const RowBucket& bucket : partition.buckets()) {
      entries = std::max(entries, bucket.entries());
      distinct = std::max(distinct, bucket.capacity());
    }
    const int width = Width != dynamic_width ? Width : p.state.width;
    const auto cut_worker = [&](ScratchCutter& cut) {
      GroupedRows grouped;
      grouped.rows = cut.array<std::uint32_t>(distinct);
      grouped.begins = cut.array<std::uint32_t>(distinct + 1);
      grouped.sources = cut.array<std::uint32_t>(entries);
      grouped.coefficients = cut.array<float>(partition.scaled() ? entries : 0);
      grouped.table = cut.array<std::uint64_t>(GroupedRows::hash_size(distinct));
      return std::pair(grouped, cut.array<float>(width));
    };
    ScratchCutter sizes(nullptr);
    cut_worker(sizes);
    auto* const scratch =
        static_cast<std::byte*>(backend.scratch(ScratchSlot::workers, sizes.used() * static_cast<std::size_t>(partition.threads())));

    const std::int64_t row_bytes = width * static_cast<std::int64_t>(sizeof(T)) + O::element_states * width * 4 + O::row_states * 64;
    parallel_for(partition.threads(), std::ssize(partition.buckets()), [&](std::int64_t i, int worker) {
      const RowBucket& bucket = partition.buckets()[static_cast<std::size_t>(partition.by_size(i))];
      ScratchCutter cut(scratch + sizes.used() * static_cast<std::size_t>(worker));
      auto [grouped, buffer] = cut_worker(cut);
      grouped.template group<false>(partition, bucket);
      RowUpdate<T, Width, O> update(p.state, p.step);
      for_each_merged_row<Width>(
          partition, grouped, width, buffer, row_bytes,
          [&, rows = grouped.rows](std::int64_t k) { update.prefetch(bucket.row_begin + rows[k]); },
          [&, rows = grouped.rows](std::int64_t k, const float* gradient) {
            float mean = 0;
            if constexpr (O::needs_mean_square) mean = mean_square(gradient, width);
            update.apply(bucket.row_begin + rows[k], gradient, mean);
          });
    });
  }
};

/// As Update, in two walks over the buckets: the first groups rows in ascending order and so learns where each bucket's rows go.
template <IdType Id, int Width>
struct Kernel<Merge<Id, Width>, Host> {
  static void run(const Host& backend, const typename Merge<Id, Width>::Parameters& p) {
    using namespace detail;
    const RowPartition<Id> partition(backend, p.groups, p.arena_rows);
    p.merged->count = 0;
    if (partition.entries() == 0) return;
    const std::span<const RowBucket> buckets = partition.buckets();
    const std::int64_t bucket_count = std::ssize(buckets);
    const int width = Width != dynamic_width ? Width : p.width;
    std::int64_t table_size = 0;
    for (const RowBucket& bucket : buckets) table_size = std::max(table_size, GroupedRows::hash_size(bucket.capacity()));
    std::uint32_t *rows = nullptr, *begins = nullptr, *sources = nullptr;
    float *coefficients = nullptr, *sums = nullptr;
    std::uint64_t *sort_keys = nullptr, *tables = nullptr;
    std::int64_t* first = nullptr;  // of each bucket's distinct rows among all
    const auto cut_all = [&](ScratchCutter cut) {
      rows = cut.array<std::uint32_t>(partition.entries());
      begins = cut.array<std::uint32_t>(partition.entries() + bucket_count);
      sources = cut.array<std::uint32_t>(partition.entries());
      coefficients = cut.array<float>(partition.scaled() ? partition.entries() : 0);
      sort_keys = cut.array<std::uint64_t>(partition.entries());
      tables = cut.array<std::uint64_t>(table_size * partition.threads());
      sums = cut.array<float>(width * std::int64_t{partition.threads()});
      first = cut.array<std::int64_t>(bucket_count + 1);
      return cut.used();
    };
    cut_all(ScratchCutter(backend.scratch(ScratchSlot::merge, cut_all(ScratchCutter(nullptr)))));
    const auto grouped_rows = [&](std::int64_t b, int worker) {
      const std::int64_t begin = buckets[static_cast<std::size_t>(b)].begin;
      return GroupedRows{.count = 0,
                         .rows = rows + begin,
                         .begins = begins + begin + b,
                         .sources = sources + begin,
                         .coefficients = partition.scaled() ? coefficients + begin : nullptr,
                         .table = tables + table_size * worker,
                         .sort_keys = sort_keys + begin};
    };
    parallel_for(partition.threads(), bucket_count, [&](std::int64_t i, int worker) {
      const std::int64_t b = partition.by_size(i);
      GroupedRows grouped = grouped_rows(b, worker);
      grouped.template group<true>(partition, buckets[static_cast<std::size_t>(b)]);
      first[b + 1] = grouped.count;
    });
    first[0] = 0;
    for (std::int64_t b = 0; b < bucket_count; ++b) first[b + 1] += first[b];
    parallel_for(partition.threads(), bucket_count, [&](std::int64_t i, int worker) {
      const std::int64_t b = partition.by_size(i);
      GroupedRows grouped = grouped_rows(b, worker);
      grouped.count = first[b + 1] - first[b];
      const std::int64_t row_begin = buckets[static_cast<std::size_t>(b)].row_begin;
      for_each_merged_row<Width>(
          partition, grouped, width, sums + width * std::int64_t{worker}, width * std::int64_t{4}, [](std::int64_t) {},
          [&](std::int64_t k, const float* gradient) {
            p.merged->rows[first[b] + k] = row_begin + grouped.rows[k];
            std::copy_n(gradient, width, p.merged->gradients + (first[b] + k) * width);
          });
    });
    p.merged->count = first[bucket_count];
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
