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

/// Whether rows are narrow enough for RowSums.
template <int Width>
inline constexpr bool narrow_rows = Width != op::dynamic_width && Width <= RowSums::widest;

/// Rows of a sorted bucket that are updated by one call: their mean squares are independent work
/// for a processor to overlap.
inline constexpr int sorted_rows_at_once = 4;

/// Merges the gradients of the rows of a bucket whose entries are sorted, some rows at a time. What it
/// does depends on no optimizer, and so is compiled once for all. A row of a single entry whose
/// coefficient is 1 has the bag's own gradient, if that is of floats: wide rows wait for the memory,
/// and a copy costs them a tenth.
template <int Width, Element G>
class SortedRows {
 public:
  /// Takes entries. `buffer`: for sorted_rows_at_once rows. `sums`: null, or by row its sum so far,
  /// or null.
  SortedRows(const RowEntry* entries, const float* coefficients,
             const GradientSources<G>& gradients, const RowBucket& bucket, const BucketRows& found,
             int width, float* buffer, float* const* sums = nullptr)
      : entries_(entries),
        coefficients_(coefficients),
        gradient_of_(gradients),
        begins_(found.begins),
        sums_(sums),
        buffer_(buffer),
        total_(bucket.entries()),
        width_(width),
        ahead_(prefetch_distance(gradient_bytes())) {
    for (std::int64_t i = 0; i < std::min(ahead_, total_); ++i)
      prefetch(gradient_of_(entries_[i].source), gradient_bytes());
  }

  /// Puts the gradients of the rows [first, first + count) into merged[0], merged[1], ...; valid
  /// until the next call.
  [[gnu::noinline]] void merge(std::int64_t first, int count, const float** merged) const {
    const GradientSources<G> gradient_of = gradient_of_;  // its members stay in registers
    const RowEntry* const entries = entries_;
    const float* const coefficients = coefficients_;
    float* to = buffer_;
    for (std::int64_t k = first; k < first + count; ++k, to += width_) {
      const std::int64_t begin = begins_[k], end = begins_[k + 1];
      merged[k - first] = to;
      if constexpr (std::is_same_v<G, float>)
        if (takes_gradient(k)) {
          merged[k - first] = gradient_of(entries[begin].source);
          continue;
        }
      for_column_chunks<Width>(width_, [&]<int C>(int column) {
        RowSum<C> sum;
        sum.start();
        if (goes_on(k)) sum.add(sums_[k] + column);
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
  }

  /// Asks the memory for a gradient that will be needed, where `merge` has not: once for each row.
  [[gnu::always_inline]] void prefetch_behind(std::int64_t k) const {
    if (takes_gradient(k)) ask_gradient(begins_[k]);
  }

 private:
  std::int64_t gradient_bytes() const {
    return (Width != op::dynamic_width ? Width : width_) * static_cast<std::int64_t>(sizeof(G));
  }
  bool goes_on(std::int64_t k) const { return sums_ != nullptr && sums_[k] != nullptr; }
  bool takes_gradient(std::int64_t k) const {
    return std::is_same_v<G, float> && begins_[k + 1] - begins_[k] == 1 &&
           coefficients_ == nullptr && !goes_on(k);
  }
  [[gnu::always_inline]] void ask_gradient(std::int64_t i) const {
    if (i + ahead_ < total_) prefetch(gradient_of_(entries_[i + ahead_].source), gradient_bytes());
  }

  const RowEntry* entries_;
  const float* coefficients_;
  GradientSources<G> gradient_of_;
  const std::uint32_t* begins_;
  float* const* sums_;
  float* buffer_;
  std::int64_t total_;
  int width_;
  std::int64_t ahead_;
};

/// Updates the rows of a bucket that is summed, some at a time, while the next bucket is summed:
/// the one waits for rows from memory, the other works in the caches.
template <Element T, int Width, Optimizer O>
class SummedRows {
 public:
  /// Takes an update. `buffer`: of the worker, for means.
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

/// Returns whether few entries share a row with another, by a sample of 2 sqrt(n) of them: it has 2
/// n p pairs of one row, where p is the chance that two entries meet, and an entry shares its row
/// with n p others.
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

/// Returns the mean squares of the bags' own gradients, by the bag's number, or null if that
/// does not pay: rows of a single entry share them, and need not wait for their gradient before
/// they are read. It pays if bags have several ids, and if most rows have one entry.
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
class BucketWorkers {
 public:
  struct Arrays {
    BucketRows sorted;
    float* buffer = nullptr;  ///< gradients of rows_at_once rows
    float* means = nullptr;   ///< for RowUpdate::means
    RowSums summed[2];
  };

  /// Makes workers. `sums`: buckets that suit RowSums are summed there; the others are sorted.
  /// `means`: floats that RowUpdate::means needs.
  BucketWorkers(const Host& backend, const RowBuckets& partition, int width, bool sums,
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

/// Updates the rows of a batch. Narrow rows, if a bucket has few for its entries, are summed one
/// entry after the other (sum_rows); elsewhere entries are sorted by row first (BucketRows).
/// `bag_means`: bag_mean_squares. Returns the number of rows.
template <Element T, int Width, Optimizer O, Element G>
std::int64_t update_rows(const Host& backend, const GroupedRows<G>& partition,
                         const op::ArenaState<T, O>& state, const typename O::Step& step,
                         const float* bag_means) {
  constexpr bool narrow = narrow_rows<Width>;
  const int width = Width != op::dynamic_width ? Width : state.width;
  const BucketWorkers workers(backend, partition, width, narrow,
                              RowUpdate<T, Width, O>::means_buffer(width));
  const std::int64_t row_bytes =
      width * static_cast<std::int64_t>(sizeof(T)) + state_bytes<O> * width + O::row_states * 64;
  std::atomic<std::int64_t> next_bucket = 0, merged_rows = 0;
  parallel_for(partition.threads(), partition.threads(), [&](std::int64_t, int worker) {
    RowUpdate<T, Width, O> update(state, step);
    std::int64_t merged = 0;
    const auto arrays = workers[worker];
    const GradientSources<G>& gradients = partition.gradients();
    SummedRows<T, Width, O> pending(update, row_bytes, arrays.means);
    int turn = 0;
    for (std::int64_t i = next_bucket++; i < std::ssize(partition.buckets()); i = next_bucket++) {
      const RowBucket& bucket = partition.buckets()[static_cast<std::size_t>(partition.by_size(i))];
      const RowEntry* const entries = partition.entry(bucket.begin);
      const float* const coefficients = partition.coefficient(bucket.begin);
      if constexpr (narrow) {
        if (RowSums::suits(bucket)) {
          const RowSums& into = arrays.summed[turn ^= 1];
          const auto ahead = [&] { pending.prefetch(); };
          const auto between = [&] { pending.step(); };
          const std::int64_t count =
              coefficients != nullptr ? sum_rows<Width, true, G>(entries, coefficients, gradients,
                                                                 bucket, into, ahead, between)
                                      : sum_rows<Width, false, G>(entries, coefficients, gradients,
                                                                  bucket, into, ahead, between);
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
      const SortedRows<Width, G> rows(entries, coefficients, gradients, bucket, found, width,
                                      arrays.buffer);
      const std::int64_t distance = prefetch_distance(row_bytes);
      for (std::int64_t k = 0; k < std::min(distance, found.count); ++k)
        update.prefetch(bucket.row_begin + found.rows[k]);
      for (std::int64_t first = 0; first < found.count; first += sorted_rows_at_once) {
        const float* sums[sorted_rows_at_once];
        const int count =
            static_cast<int>(std::min<std::int64_t>(sorted_rows_at_once, found.count - first));
        rows.merge(first, count, sums);
        update.template apply<sorted_rows_at_once>(
            count, [&](int k) { return bucket.row_begin + found.rows[first + k]; },
            [&](int k) { return sums[k]; },
            [&](int k) {
              const std::uint32_t begin = found.begins[first + k];
              const bool single = found.begins[first + k + 1] - begin == 1;
              return single && bag_means != nullptr
                         ? op::RowMeans{bag_means[entries[begin].source]}
                         : update.means(bucket.row_begin + found.rows[first + k], sums[k],
                                        arrays.means);
            },
            [&](int k) {
              if (first + k + distance < found.count)
                update.prefetch(bucket.row_begin + found.rows[first + k + distance]);
              rows.prefetch_behind(first + k);
            });
      }
    }
    pending.finish();
    merged_rows += merged;
  });
  return merged_rows;
}

/// In scratch memory: where each bucket's rows go, and, if there are sums so far, by row its own.
struct MergePlaces {
  std::int64_t* first = nullptr;  ///< by bucket
  std::int64_t* rows_before = nullptr;
  float** of_rows = nullptr;

  MergePlaces(const Host& backend, std::span<const RowBucket> buckets, bool has_sums) {
    const auto count = has_sums ? std::ssize(buckets) : 0;
    std::int64_t rows = 0;
    for (std::int64_t b = 0; b < count; ++b)
      rows += buckets[static_cast<std::size_t>(b)].capacity();
    const auto cut = [&](ScratchCutter& cutter) {
      first = cutter.array<std::int64_t>(std::ssize(buckets) + 1);
      rows_before = cutter.array<std::int64_t>(count);
      of_rows = cutter.array<float*>(rows);
      return cutter.used();
    };
    ScratchCutter sizes(nullptr);
    ScratchCutter cutter(backend.scratch(ScratchSlot::merge, cut(sizes)));
    cut(cutter);
    rows = 0;
    for (std::int64_t b = 0; b < count; ++b) {
      rows_before[b] = rows;
      rows += buckets[static_cast<std::size_t>(b)].capacity();
    }
  }
  float** sums(std::int64_t bucket) const { return of_rows + rows_before[bucket]; }
};

/// Merges the gradients of a batch by row, in two walks over the buckets: the first sorts and counts,
/// and so learns where each bucket's rows go. Parameters: as op::Merge's.
template <int Width, Element G>
void merge_rows(const Host& backend, const GroupedRows<G>& partition, int width,
                op::MergedGradients* merged, const op::MergedRoom* room,
                std::span<const op::MergedGradients> so_far) {
  const std::span<const RowBucket> buckets = partition.buckets();
  const BucketWorkers workers(backend, partition, width, false);
  const MergePlaces places(backend, buckets, !so_far.empty());
  std::int64_t* const first = places.first;
  parallel_for(partition.threads(), std::ssize(buckets), [&](std::int64_t i, int worker) {
    const std::int64_t b = partition.by_size(i);
    const RowBucket& bucket = buckets[static_cast<std::size_t>(b)];
    BucketRows found = workers[worker].sorted;
    found.sort(partition, bucket);
    found.find(partition.entry(bucket.begin), bucket);
    first[b + 1] =
        so_far.empty() ? found.count : found.find_sums(bucket, so_far, width, places.sums(b));
  });
  first[0] = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) first[b + 1] += first[b];
  if (room != nullptr) *merged = room->make(first[buckets.size()]);
  parallel_for(partition.threads(), std::ssize(buckets), [&](std::int64_t i, int worker) {
    const std::int64_t b = partition.by_size(i);
    const RowBucket& bucket = buckets[static_cast<std::size_t>(b)];
    const auto arrays = workers[worker];
    BucketRows found = arrays.sorted;  // clang 14 captures no structured binding
    const RowEntry* const entries = partition.entry(bucket.begin);
    found.find(entries, bucket);
    std::int64_t* rows = merged->rows + first[b];
    float* gradients = merged->gradients + first[b] * width;
    float* const* const sums = so_far.empty() ? nullptr : places.sums(b);
    const SortedRows<Width, G> sorted(entries, partition.coefficient(bucket.begin),
                                      partition.gradients(), bucket, found, width, arrays.buffer,
                                      sums);
    const std::int64_t row_bytes = width * std::int64_t{4}, ahead = prefetch_distance(row_bytes);
    for (std::int64_t begin = 0; begin < found.count; begin += sorted_rows_at_once) {
      const float* of_rows[sorted_rows_at_once];
      const int count =
          static_cast<int>(std::min<std::int64_t>(sorted_rows_at_once, found.count - begin));
      sorted.merge(begin, count, of_rows);
      for (int k = 0; k < count; ++k) {
        sorted.prefetch_behind(begin + k);
        if (sums != nullptr) {
          if (begin + k + ahead < found.count && sums[begin + k + ahead] != nullptr)
            prefetch(sums[begin + k + ahead], row_bytes);
          if (float* const sum = sums[begin + k]; sum != nullptr) {
            std::copy_n(of_rows[k], width, sum);
            continue;
          }
        }
        *rows++ = bucket.row_begin + found.rows[begin + k];
        gradients = std::copy_n(of_rows[k], width, gradients);
      }
    }
  });
  merged->count = first[buckets.size()];
}

}  // namespace detail

/// Entries are partitioned by ranges of rows (RowPartition) into buckets that fit into a core's
/// cache; from there on no kernel knows the type of ids.
template <Element T, IdType Id, int Width, Optimizer O, Element G>
struct op::Kernel<op::Update<T, Id, Width, O, G>, Host> {
  static void run(const Host& backend,
                  const typename op::Update<T, Id, Width, O, G>::Parameters& p) {
    using namespace detail;
    const RowPartition<Id, G> partition(
        backend, p.groups, p.state.rows,
        narrow_rows<Width> ? RowSums::bucket_entries : sorted_bucket_entries);
    if (partition.entries() == 0) return;
    const float* bag_means = nullptr;
    if constexpr (O::needs_mean_square && !op::measures_rows<O> && !narrow_rows<Width> &&
                  std::is_same_v<G, float>)
      bag_means = bag_mean_squares(backend, p.groups, partition,
                                   Width != op::dynamic_width ? Width : p.state.width);
    const std::int64_t rows =
        update_rows<T, Width, O, G>(backend, partition, p.state, p.step, bag_means);
    if (p.merged_rows != nullptr) *p.merged_rows += rows;
  }
};

template <IdType Id, int Width, Element G>
struct op::Kernel<op::Merge<Id, Width, G>, Host> {
  static void run(const Host& backend, const typename op::Merge<Id, Width, G>::Parameters& p) {
    const detail::RowPartition<Id, G> partition(backend, p.groups, p.arena_rows,
                                                detail::sorted_bucket_entries);
    p.merged->count = 0;
    if (partition.entries() == 0) return;
    detail::merge_rows<Width, G>(backend, partition, Width != op::dynamic_width ? Width : p.width,
                                 p.merged, p.room, p.sums);
  }
};

/// Runs of merged rows, one after the other. It and Measure are not inline: else a caller compiled
/// them again in spite of `extern template`.
template <Element T, int Width, Optimizer O>
struct op::Kernel<op::Apply<T, Width, O>, Host> {
  static void run(const Host& backend, const typename op::Apply<T, Width, O>::Parameters& p);
};

template <Element T, int Width, Optimizer O>
[[gnu::noinline]] void op::Kernel<op::Apply<T, Width, O>, Host>::run(
    const Host& backend, const typename op::Apply<T, Width, O>::Parameters& p) {
  const int width = Width != op::dynamic_width ? Width : p.state.width;
  const std::int64_t row_bytes = width * static_cast<std::int64_t>(sizeof(T)) +
                                 detail::state_bytes<O> * width + O::row_states * 64;
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
            return op::RowMeans{p.mean_square[first + k], detail::MeasuresWeights<O>
                                                              ? p.weight_mean_square[first + k]
                                                              : 0.0f};
          },
          [&](int k) {
            if (first + k + distance < end) update.prefetch(p.merged.rows[first + k + distance]);
          });
    }
  });
}

template <Element T, Optimizer O>
struct op::Kernel<op::Measure<T, O>, Host> {
  static void run(const Host& backend, const typename op::Measure<T, O>::Parameters& p);
};

template <Element T, Optimizer O>
[[gnu::noinline]] void op::Kernel<op::Measure<T, O>, Host>::run(
    const Host& backend, const typename op::Measure<T, O>::Parameters& p) {
  const std::int64_t width = p.state.width, count = p.merged.count;
  const detail::RowUpdate<T, op::dynamic_width, O> rows(p.state, p.step);
  const int threads = detail::worthwhile_threads(backend.threads(), count * width * 4);
  detail::parallel_for(threads, threads, [&](std::int64_t part, int) {
    for (std::int64_t k = count * part / threads; k < count * (part + 1) / threads; ++k) {
      const auto at = [&](float* to) { return to != nullptr ? to + k * width : nullptr; };
      rows.measure(p.merged.rows[k], p.merged.gradients + k * width, at(p.measured), at(p.weights));
    }
  });
}

}}  // namespace tessera::v0
