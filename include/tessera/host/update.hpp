// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/bucket_rows.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/host/row_grouping.hpp>
#include <tessera/host/row_sums.hpp>
#include <tessera/host/row_update.hpp>
#include <tessera/op/update.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 {

namespace detail {

/// Entries of a bucket that is sorted.
inline constexpr std::int64_t sorted_bucket_entries = 4096;

/// Rows of a sorted bucket that are updated by one call: their mean squares are independent work
/// for a processor to overlap.
inline constexpr int sorted_rows_at_once = 4;

/// Walks over the rows of a bucket whose entries are sorted: merges their gradients, and hands some
/// at a time to f(first, count, gradients, ask): gradients[k] is that of the row found.rows[first +
/// k]. f calls ask(k) once for each, and that prefetch_row(row) for a row some way ahead. A row of
/// a single entry whose coefficient is 1 is handed the bag's own gradient, if that is of floats:
/// wide rows wait for the memory, and a copy costs them a tenth. `sums`: null, or by row its sum so
/// far, or null.
template <int Width, Element G, class Prefetch, class F>
[[gnu::always_inline]] inline void for_merged_rows(const RowEntry* entries,
                                                   const float* coefficients,
                                                   const GradientSources<G>& gradients,
                                                   const RowBucket& bucket, const BucketRows& found,
                                                   int width, float* buffer, std::int64_t row_bytes,
                                                   const Prefetch& prefetch_row, const F& f,
                                                   float* const* sums = nullptr) {
  const GradientSources<G> gradient_of = gradients;  // a local one: its members stay in registers
  const std::int64_t gradient_bytes =
      (Width != op::dynamic_width ? Width : width) * static_cast<std::int64_t>(sizeof(G));
  const std::int64_t total = bucket.entries(), count = found.count;
  const std::uint32_t *const rows = found.rows, *const begins = found.begins;
  const std::int64_t row_distance = prefetch_distance(row_bytes);
  const std::int64_t source_distance = prefetch_distance(gradient_bytes);
  for (std::int64_t k = 0; k < std::min(row_distance, count); ++k)
    prefetch_row(bucket.row_begin + rows[k]);
  for (std::int64_t i = 0; i < std::min(source_distance, total); ++i)
    prefetch(gradient_of(entries[i].source), gradient_bytes);

  const auto goes_on = [&](std::int64_t k) { return sums != nullptr && sums[k] != nullptr; };
  const auto takes_gradient = [&](std::int64_t k) {
    return std::is_same_v<G, float> && begins[k + 1] - begins[k] == 1 && coefficients == nullptr &&
           !goes_on(k);
  };
  const auto ask_gradient = [&](std::int64_t i) __attribute__((always_inline)) {
    if (i + source_distance < total)
      prefetch(gradient_of(entries[i + source_distance].source), gradient_bytes);
  };
  for (std::int64_t first = 0; first < count; first += sorted_rows_at_once) {
    const std::int64_t last = std::min(first + sorted_rows_at_once, count);
    const float* merged[sorted_rows_at_once];
    float* to = buffer;
    for (std::int64_t k = first; k < last; ++k, to += width) {
      const std::int64_t begin = begins[k], end = begins[k + 1];
      merged[k - first] = to;
      if constexpr (std::is_same_v<G, float>)
        if (takes_gradient(k)) {
          merged[k - first] = gradient_of(entries[begin].source);
          continue;
        }
      for_column_chunks<Width>(width, [&]<int C>(int column) {
        RowSum<C> sum;
        sum.start();
        if (goes_on(k)) sum.add(sums[k] + column);
        for (std::int64_t i = begin; i < end; ++i) {
          if (column == 0) ask_gradient(i);
          const G* gradient = gradient_of(entries[i].source) + column;
          if (coefficients != nullptr) {
            sum.add(gradient, coefficients[i]);
          } else {
            sum.add(gradient);
          }
        }
        sum.store(to + column);
      });
    }
    f(first, static_cast<int>(last - first), merged, [&](int k) {
      if (first + k + row_distance < count)
        prefetch_row(bucket.row_begin + rows[first + k + row_distance]);
      if (takes_gradient(first + k)) ask_gradient(begins[first + k]);
    });
  }
}

/// Updates the rows of a bucket that is summed, some at a time, while the next bucket is summed:
/// the one waits for rows from memory, the other works in the caches.
template <Element T, int Width, Optimizer O>
class SummedRows {
 public:
  /// `buffer`: of the worker, for means.
  explicit SummedRows(RowUpdate<T, Width, O>& update, std::int64_t row_bytes, float* buffer)
      : update_(update), distance_(prefetch_distance(row_bytes)), buffer_(buffer) {}

  void start(std::int64_t row_begin, const RowSums& summed, std::int64_t count) {
    row_begin_ = row_begin;
    summed_ = summed;
    next_ = ahead_ = 0;
    count_ = count;
  }
  /// Asks the memory for a row. To be called at an even pace: more than a core has room for at once
  /// would make it wait.
  [[gnu::always_inline]] void prefetch() {
    if (ahead_ < count_) update_.prefetch(row_begin_ + summed_.rows[ahead_++]);
  }
  /// Updates some rows that have been asked for long enough.
  [[gnu::always_inline]] void step() {
    if (ahead_ - next_ >= distance_ || ahead_ == count_)
      update(std::min<std::int64_t>(next_ + rows_at_once, count_));
  }
  void finish() {
    while (next_ != count_) {
      for (int i = 0; i < rows_at_once; ++i) prefetch();
      step();
    }
  }

 private:
  void update(std::int64_t last) {
    if (next_ == last) return;
    const float* const sums = summed_.sums + next_ * Width;
    const std::uint32_t* const rows = summed_.rows + next_;
    const auto sum_of = [sums](int k) { return sums + k * std::int64_t{Width}; };
    update_.template apply<rows_at_once>(
        static_cast<int>(last - next_), [&](int k) { return row_begin_ + rows[k]; }, sum_of,
        [&](int k) { return update_.means(row_begin_ + rows[k], sum_of(k), buffer_); }, [](int) {});
    next_ = last;
  }

  RowUpdate<T, Width, O>& update_;
  std::int64_t distance_;
  float* buffer_;
  std::int64_t row_begin_ = 0;
  RowSums summed_;
  std::int64_t ahead_ = 0, next_ = 0, count_ = 0;
};

/// Whether few entries share a row with another, by a sample of 2 sqrt(n) of them: it has 2 n p
/// pairs of one row, where p is the chance that two entries meet, and an entry shares its row with
/// n p others.
template <IdType Id>
bool mostly_single(const Host& backend, std::span<const op::GradientGroup<Id>> groups,
                   std::int64_t entries) {
  const auto step = static_cast<std::int64_t>(std::sqrt(static_cast<double>(entries)) / 2) + 1;
  const std::size_t bytes = static_cast<std::size_t>(entries / step + 1) * sizeof(std::int64_t);
  auto* const rows = static_cast<std::int64_t*>(backend.scratch(ScratchSlot::mean_squares, bytes));
  std::int64_t* rows_end = rows;
  std::int64_t at = 0;  // the next of the sample, counted from the group's first entry
  for (const op::GradientGroup<Id>& group : groups) {
    const op::Bags<Id>& bags = group.bags;
    const std::int64_t count = bags.bags == 0 ? 0 : bags.entries();
    for (; at < count; at += step) *rows_end++ = bags.ids[bags.begin(0) + at] + bags.row_bias;
    at -= count;
  }
  std::sort(rows, rows_end);
  return std::adjacent_find(rows, rows_end) == rows_end;
}

/// The mean squares of the bags' own gradients, by the bag's number, or null where that does not
/// pay: rows of a single entry share them, and need not wait for their gradient before they are
/// read. It pays where bags have several ids, and where most rows have one entry.
template <IdType Id>
const float* bag_mean_squares(const Host& backend, std::span<const op::GradientGroup<Id>> groups,
                              const RowPartition<Id>& partition, int width) {
  const std::int64_t entries = partition.entries(), bags = partition.sources();
  if (partition.scaled() || entries < bags ||
      (entries < 2 * bags && !mostly_single(backend, groups, entries)))
    return nullptr;
  auto* const means = static_cast<float*>(
      backend.scratch(ScratchSlot::mean_squares, static_cast<std::size_t>(bags) * sizeof(float)));
  partition.for_bags([&](const op::GradientGroup<Id>& group, std::int64_t number,
                         std::int64_t first, std::int64_t last) {
    for (std::int64_t bag = first; bag < last; ++bag)
      means[number + bag] = fast_mean_square(group.gradient + bag * group.gradient_stride, width);
  });
  return means;
}

/// What every thread needs to work on buckets.
template <IdType Id, Element G>
class BucketWorkers {
 public:
  struct Arrays {
    BucketRows sorted;
    float* buffer = nullptr;  ///< gradients of rows_at_once rows
    float* means = nullptr;   ///< for RowUpdate::means
    RowSums summed[2];
  };

  /// `sums`: buckets that suit RowSums are summed there; the others are sorted. `means`: floats
  /// that RowUpdate::means needs.
  BucketWorkers(const Host& backend, const RowPartition<Id, G>& partition, int width, bool sums,
                std::int64_t means = 0)
      : scaled_(partition.scaled()), width_(width), means_(means) {
    for (const RowBucket& bucket : partition.buckets()) {
      if (sums && RowSums::suits(bucket)) {
        summed_span_ = std::max(summed_span_, bucket.row_end - bucket.row_begin);
        summed_rows_ = std::max(summed_rows_, bucket.capacity());
      } else {
        sorted_entries_ = std::max(sorted_entries_, bucket.entries());
        sorted_rows_ = std::max(sorted_rows_, bucket.capacity());
      }
    }
    ScratchCutter sizes(nullptr);
    cut(sizes);
    bytes_ = sizes.used();
    scratch_ = static_cast<std::byte*>(backend.scratch(
        ScratchSlot::workers, bytes_ * static_cast<std::size_t>(partition.threads())));
  }
  Arrays operator[](int worker) const {
    ScratchCutter cutter(scratch_ + bytes_ * static_cast<std::size_t>(worker));
    return cut(cutter);
  }

 private:
  Arrays cut(ScratchCutter& cutter) const {
    Arrays arrays;
    arrays.sorted = BucketRows::cut(cutter, sorted_entries_, sorted_rows_, scaled_);
    arrays.buffer = cutter.array<float>(rows_at_once * std::int64_t{width_});
    arrays.means = cutter.array<float>(means_);
    auto* const place_of = cutter.array<std::uint16_t>(summed_span_);
    for (RowSums& summed : arrays.summed)
      summed = {place_of, cutter.array<std::uint32_t>(summed_rows_ + 1),
                cutter.array<float>(summed_rows_ * width_)};
    return arrays;
  }
  bool scaled_;
  int width_;
  std::int64_t means_;
  std::int64_t sorted_entries_ = 0, sorted_rows_ = 0, summed_span_ = 0, summed_rows_ = 0;
  std::size_t bytes_ = 0;
  std::byte* scratch_ = nullptr;
};

}  // namespace detail

/// Entries are partitioned by ranges of rows (RowPartition) into buckets that fit into a core's
/// cache. Narrow rows, where a bucket has few for its entries, are summed one entry after the other
/// (sum_rows); elsewhere entries are sorted by row first (BucketRows).
template <Element T, IdType Id, int Width, Optimizer O, Element G>
struct op::Kernel<op::Update<T, Id, Width, O, G>, Host> {
  static void run(const Host& backend,
                  const typename op::Update<T, Id, Width, O, G>::Parameters& p) {
    using namespace detail;
    constexpr bool narrow = Width != op::dynamic_width && Width <= RowSums::widest;
    const int width = Width != op::dynamic_width ? Width : p.state.width;
    const RowPartition<Id, G> partition(backend, p.groups, p.state.rows,
                                        narrow ? RowSums::bucket_entries : sorted_bucket_entries);
    if (partition.entries() == 0) return;
    const BucketWorkers<Id, G> workers(backend, partition, width, narrow,
                                       RowUpdate<T, Width, O>::means_buffer(width));
    const std::int64_t row_bytes =
        width * static_cast<std::int64_t>(sizeof(T)) + state_bytes<O> * width + O::row_states * 64;
    const float* bag_means = nullptr;
    if constexpr (O::needs_mean_square && !op::measures_rows<O> && !narrow &&
                  std::is_same_v<G, float>)
      bag_means = bag_mean_squares(backend, p.groups, partition, width);
    std::atomic<std::int64_t> next_bucket = 0, merged_rows = 0;
    detail::parallel_for(partition.threads(), partition.threads(), [&](std::int64_t, int worker) {
      RowUpdate<T, Width, O> update(p.state, p.step);
      std::int64_t merged = 0;
      const auto arrays = workers[worker];
      const GradientSources<G>& gradients = partition.gradients();
      SummedRows<T, Width, O> pending(update, row_bytes, arrays.means);
      int turn = 0;
      for (std::int64_t i = next_bucket++; i < std::ssize(partition.buckets()); i = next_bucket++) {
        const RowBucket& bucket =
            partition.buckets()[static_cast<std::size_t>(partition.by_size(i))];
        const RowEntry* const entries = partition.entry(bucket.begin);
        const float* const coefficients = partition.coefficient(bucket.begin);
        if constexpr (narrow) {
          if (RowSums::suits(bucket)) {
            const RowSums& into = arrays.summed[turn ^= 1];
            const auto ahead = [&] { pending.prefetch(); };
            const auto between = [&] { pending.step(); };
            const std::int64_t count =
                coefficients != nullptr
                    ? sum_rows<Width, true, G>(entries, coefficients, gradients, bucket, into,
                                               ahead, between)
                    : sum_rows<Width, false, G>(entries, coefficients, gradients, bucket, into,
                                                ahead, between);
            pending.finish();
            pending.start(bucket.row_begin, into, count);
            merged += count;
            continue;
          }
        }
        BucketRows found = arrays.sorted;
        found.sort(partition, bucket);
        found.find(entries, bucket);
        merged += found.count;
        for_merged_rows<Width, G>(
            entries, coefficients, gradients, bucket, found, width, arrays.buffer, row_bytes,
            [&](std::int64_t row) { update.prefetch(row); },
            [&](std::int64_t first, int count, const float* const* merged, const auto& ask) {
              update.template apply<sorted_rows_at_once>(
                  count, [&](int k) { return bucket.row_begin + found.rows[first + k]; },
                  [&](int k) { return merged[k]; },
                  [&](int k) {
                    const std::uint32_t begin = found.begins[first + k];
                    const bool single = found.begins[first + k + 1] - begin == 1;
                    return single && bag_means != nullptr
                               ? op::RowMeans{bag_means[entries[begin].source]}
                               : update.means(bucket.row_begin + found.rows[first + k], merged[k],
                                              arrays.means);
                  },
                  ask);
            });
      }
      pending.finish();
      merged_rows += merged;
    });
    if (p.merged_rows != nullptr) *p.merged_rows += merged_rows;
  }
};

/// As Update, in two walks over the buckets: the first sorts and counts, and so learns where each
/// bucket's rows go.
template <IdType Id, int Width, Element G>
struct op::Kernel<op::Merge<Id, Width, G>, Host> {
  static void run(const Host& backend, const typename op::Merge<Id, Width, G>::Parameters& p) {
    using namespace detail;
    const RowPartition<Id, G> partition(backend, p.groups, p.arena_rows, sorted_bucket_entries);
    p.merged->count = 0;
    if (partition.entries() == 0) return;
    const std::span<const RowBucket> buckets = partition.buckets();
    const int width = Width != op::dynamic_width ? Width : p.width;
    const BucketWorkers<Id, G> workers(backend, partition, width, false);
    const Places places(backend, buckets, !p.sums.empty());
    std::int64_t* const first = places.first;
    detail::parallel_for(partition.threads(), std::ssize(buckets), [&](std::int64_t i, int worker) {
      const std::int64_t b = partition.by_size(i);
      const RowBucket& bucket = buckets[static_cast<std::size_t>(b)];
      BucketRows found = workers[worker].sorted;
      found.sort(partition, bucket);
      found.find(partition.entry(bucket.begin), bucket);
      first[b + 1] =
          p.sums.empty() ? found.count : found.find_sums(bucket, p.sums, width, places.sums(b));
    });
    first[0] = 0;
    for (std::size_t b = 0; b < buckets.size(); ++b) first[b + 1] += first[b];
    if (p.room != nullptr) *p.merged = p.room->make(first[buckets.size()]);
    detail::parallel_for(partition.threads(), std::ssize(buckets), [&](std::int64_t i, int worker) {
      const std::int64_t b = partition.by_size(i);
      const RowBucket& bucket = buckets[static_cast<std::size_t>(b)];
      const auto arrays = workers[worker];
      BucketRows found = arrays.sorted;  // clang 14 captures no structured binding
      const RowEntry* const entries = partition.entry(bucket.begin);
      found.find(entries, bucket);
      std::int64_t* rows = p.merged->rows + first[b];
      float* gradients = p.merged->gradients + first[b] * width;
      const auto merge = [&](float* const* sums, const auto& ask_sum) {
        for_merged_rows<Width, G>(
            entries, partition.coefficient(bucket.begin), partition.gradients(), bucket, found,
            width, arrays.buffer, width * std::int64_t{4}, [](std::int64_t) {},
            [&](std::int64_t begin, int count, const float* const* merged, const auto& ask) {
              for (int k = 0; k < count; ++k) {
                ask(k);
                ask_sum(begin + k);
                if (sums != nullptr && sums[begin + k] != nullptr) {
                  std::copy_n(merged[k], width, sums[begin + k]);
                  continue;
                }
                *rows++ = bucket.row_begin + found.rows[begin + k];
                gradients = std::copy_n(merged[k], width, gradients);
              }
            },
            sums);
      };
      if (p.sums.empty()) return merge(nullptr, [](std::int64_t) {});
      const std::int64_t row_bytes = width * std::int64_t{4}, ahead = prefetch_distance(row_bytes);
      float* const* const sums = places.sums(b);
      merge(sums, [&](std::int64_t k) {
        if (k + ahead < found.count && sums[k + ahead] != nullptr)
          prefetch(sums[k + ahead], row_bytes);
      });
    });
    p.merged->count = first[buckets.size()];
  }

 private:
  /// In scratch memory: where each bucket's rows go, and, where there are sums so far, by row its
  /// own.
  struct Places {
    std::int64_t* first = nullptr;  ///< by bucket
    std::int64_t* rows_before = nullptr;
    float** of_rows = nullptr;

    Places(const Host& backend, std::span<const detail::RowBucket> buckets, bool has_sums) {
      const auto count = has_sums ? std::ssize(buckets) : 0;
      std::int64_t rows = 0;
      for (std::int64_t b = 0; b < count; ++b)
        rows += buckets[static_cast<std::size_t>(b)].capacity();
      const auto cut = [&](detail::ScratchCutter& cutter) {
        first = cutter.array<std::int64_t>(std::ssize(buckets) + 1);
        rows_before = cutter.array<std::int64_t>(count);
        of_rows = cutter.array<float*>(rows);
        return cutter.used();
      };
      detail::ScratchCutter sizes(nullptr);
      detail::ScratchCutter cutter(backend.scratch(detail::ScratchSlot::merge, cut(sizes)));
      cut(cutter);
      rows = 0;
      for (std::int64_t b = 0; b < count; ++b) {
        rows_before[b] = rows;
        rows += buckets[static_cast<std::size_t>(b)].capacity();
      }
    }
    float** sums(std::int64_t bucket) const { return of_rows + rows_before[bucket]; }
  };
};

/// Runs of merged rows, one after the other.
template <Element T, int Width, Optimizer O>
struct op::Kernel<op::Apply<T, Width, O>, Host> {
  static void run(const Host& backend, const typename op::Apply<T, Width, O>::Parameters& p) {
    const int width = Width != op::dynamic_width ? Width : p.state.width;
    const std::int64_t row_bytes =
        width * static_cast<std::int64_t>(sizeof(T)) + state_bytes<O> * width + O::row_states * 64;
    const int threads = detail::worthwhile_threads(backend.threads(), p.merged.count * row_bytes);
    const std::int64_t parts = threads == 1 ? 1 : 4 * threads;
    const std::int64_t distance = detail::prefetch_distance(row_bytes);
    detail::parallel_for(threads, parts, [&](std::int64_t part, int) {
      const std::int64_t begin = p.merged.count * part / parts,
                         end = p.merged.count * (part + 1) / parts;
      detail::RowUpdate<T, Width, O> update(p.state, p.step);
      for (std::int64_t k = begin; k < std::min(begin + distance, end); ++k)
        update.prefetch(p.merged.rows[k]);
      for (std::int64_t first = begin; first < end; first += detail::rows_at_once) {
        const std::int64_t last = std::min(first + detail::rows_at_once, end);
        update.template apply<detail::rows_at_once>(
            static_cast<int>(last - first), [&](int k) { return p.merged.rows[first + k]; },
            [&](int k) { return p.merged.gradients + (first + k) * width; },
            [&](int k) {
              return op::RowMeans{p.mean_square[first + k],
                                  MeasuresWeights<O> ? p.weight_mean_square[first + k] : 0.0f};
            },
            [&](int k) {
              if (first + k + distance < end) update.prefetch(p.merged.rows[first + k + distance]);
            });
      }
    });
  }
};

template <Element T, Optimizer O>
struct op::Kernel<op::Measure<T, O>, Host> {
  static void run(const Host& backend, const typename op::Measure<T, O>::Parameters& p) {
    const std::int64_t width = p.state.width;
    const detail::RowUpdate<T, op::dynamic_width, O> rows(p.state, p.step);
    const int threads = detail::worthwhile_threads(backend.threads(), p.merged.count * width * 4);
    detail::parallel_for(threads, threads, [&](std::int64_t part, int) {
      for (std::int64_t k = p.merged.count * part / threads;
           k < p.merged.count * (part + 1) / threads; ++k) {
        const auto at = [&](float* to) { return to != nullptr ? to + k * width : nullptr; };
        rows.measure(p.merged.rows[k], p.merged.gradients + k * width, at(p.measured),
                     at(p.weights));
      }
    });
  }
};

}}  // namespace tessera::v0
