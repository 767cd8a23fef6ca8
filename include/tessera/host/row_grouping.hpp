// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/host/bag_parts.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/update.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace tessera::inline v0 {

namespace detail {

/// Slots of the backend's scratch memory that the operations use.
struct ScratchSlot {
  static constexpr std::size_t bag_costs = 0, sources = 1, counts = 2, entries = 3, buckets = 4, workers = 5, merge = 6;
};

/// Cuts one block of scratch memory into arrays. The first walk, from a null base, measures.
class ScratchCutter {
 public:
  explicit ScratchCutter(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <class T>
  T* array(std::int64_t count) {
    T* result = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return result;
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

/// One id of a batch: the low bits of its arena row, and the bag whose gradient it adds.
struct RowEntry {
  std::uint32_t row;
  std::uint32_t source;
};

/// The entries of a batch whose rows lie in a range of the arena, in their order (group, bag, position).
struct RowBucket {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t begin = 0;  ///< in the partition's entries
  std::int64_t end = 0;

  std::int64_t entries() const { return end - begin; }
  /// Most distinct rows it can hold.
  std::int64_t capacity() const { return std::min(entries(), row_end - row_begin); }
};

/// Sorts the entries of a batch into buckets by ranges of rows: a stable counting partition in two parallel passes over the ids.
/// Ranges are fine first, then neighbours are joined until a bucket is worth its start, so that dense and sparse parts of the arena
/// (small and large tables) give buckets of like size. A row is in one bucket, a bucket is worked on by one thread: no races, and no
/// influence of the number of threads.
template <IdType Id>
class RowPartition {
 public:
  using Group = GradientGroup<Id>;

  RowPartition(const Host& backend, std::span<const Group> groups, std::int64_t arena_rows)
      : backend_(backend), groups_(groups), split_(backend, ScratchSlot::bag_costs, groups, 2, 1) {
    std::int64_t entries = 0;
    for (const Group& group : groups) {
      entries += group.bags.bags == 0 ? 0 : group.bags.entries();
      scaled_ = scaled_ || group.bags.weights != nullptr || group.bags.bag_scale != nullptr;
    }
    require(entries <= std::numeric_limits<std::uint32_t>::max(), "update: {} ids in one batch on one rank; at most 2^32 - 1, split it",
            entries);
    entries_count_ = entries;
    if (entries == 0) return;
    number_sources();
    count(arena_rows);
    make_buckets(arena_rows);
    scatter();
  }

  int threads() const { return threads_; }
  bool scaled() const { return scaled_; }
  std::int64_t entries() const { return entries_count_; }
  std::span<const RowBucket> buckets() const { return {buckets_, static_cast<std::size_t>(bucket_count_)}; }
  /// The index of the bucket to be worked on as `i`-th: the largest come first, so that threads end together.
  std::int64_t by_size(std::int64_t i) const { return order_[i]; }
  RowEntry* entry(std::int64_t i) const { return entries_ + i; }
  const float* coefficient(std::int64_t i) const { return coefficients_ + i; }

  /// The gradient of a bag.
  [[gnu::always_inline]] const float* gradient(std::uint32_t source) const {
    const Source& from = sources_[source >> source_shift_];
    return from.gradient + static_cast<std::int64_t>(source & source_mask_) * from.stride;
  }

 private:
  /// A run of 2^source_shift bags of one group.
  struct Source {
    const float* gradient;
    std::int64_t stride;
  };

  static constexpr std::int64_t entries_per_bucket = 4096;

  /// Bags get numbers of 32 bits; runs of 2^shift numbers belong to one group.
  void number_sources() {
    std::int64_t largest = 1;
    for (const Group& group : groups_) largest = std::max(largest, group.bags.bags);
    source_shift_ = std::min<int>(std::bit_width(static_cast<std::uint64_t>(largest - 1)), 16);
    source_mask_ = (std::uint32_t{1} << source_shift_) - 1;
    std::int64_t runs = 0;
    for (const Group& group : groups_) runs += runs_of(group);
    require(runs <= std::int64_t{1} << (32 - source_shift_), "update: more than 2^32 bags in one batch on one rank; split it");
    ScratchCutter sizes(nullptr);
    sizes.array<Source>(runs);
    sizes.array<std::uint32_t>(static_cast<std::int64_t>(groups_.size()));
    ScratchCutter cut(backend_.scratch(ScratchSlot::sources, sizes.used()));
    sources_ = cut.template array<Source>(runs);
    first_run_ = cut.template array<std::uint32_t>(static_cast<std::int64_t>(groups_.size()));
    std::uint32_t run = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      first_run_[g] = run;
      for (std::int64_t i = 0; i < runs_of(groups_[g]); ++i)
        sources_[run++] = {groups_[g].gradient + (i << source_shift_) * groups_[g].gradient_stride, groups_[g].gradient_stride};
    }
  }
  std::int64_t runs_of(const Group& group) const { return (group.bags.bags + source_mask_) >> source_shift_; }

  /// How many entries each part of the batch has in each fine range of rows.
  void count(std::int64_t arena_rows) {
    threads_ = worthwhile_threads(backend_.threads(), entries_count_ * 64);
    parts_ = threads_;
    const std::int64_t wanted = std::clamp<std::int64_t>(entries_count_ / 4, 64, 65536);
    range_shift_ = 0;
    while ((arena_rows >> range_shift_) >= wanted) ++range_shift_;
    ranges_ = (arena_rows >> range_shift_) + 1;
    ScratchCutter sizes(nullptr);
    cut_counts(sizes);
    ScratchCutter cut(backend_.scratch(ScratchSlot::counts, sizes.used()));
    cut_counts(cut);
    parallel_for(threads_, parts_, [&](std::int64_t part, int) {
      std::uint32_t* counts = counts_ + part * ranges_;
      std::fill_n(counts, ranges_, 0u);
      split_.for_part(part, parts_, [&](std::size_t g, std::int64_t first, std::int64_t last) {
        const Bags<Id>& bags = groups_[g].bags;
        for (std::int64_t i = bags.begin(first), end = bags.end(last - 1); i < end; ++i)
          ++counts[(bags.ids[i] + bags.row_bias) >> range_shift_];
      });
    });
  }
  void cut_counts(ScratchCutter& cut) {
    counts_ = cut.array<std::uint32_t>(parts_ * ranges_);
    bucket_of_ = cut.array<std::uint32_t>(ranges_);
  }

  /// Joins fine ranges to buckets and gives every part its place in each.
  void make_buckets(std::int64_t arena_rows) {
    const std::int64_t most = entries_count_ / (wanted_entries() / 2) + (arena_rows >> 31) + 2;
    ScratchCutter sizes(nullptr);
    cut_buckets(sizes, most);
    ScratchCutter cut(backend_.scratch(ScratchSlot::buckets, sizes.used()));
    cut_buckets(cut, most);
    std::int64_t begin = 0, end = 0, first_range = 0;
    bucket_count_ = 0;
    const auto close = [&](std::int64_t past_range) {
      buckets_[bucket_count_++] = {first_range << range_shift_, std::min(past_range << range_shift_, arena_rows), begin, end};
      begin = end;
      first_range = past_range;
    };
    for (std::int64_t range = 0; range < ranges_; ++range) {
      std::int64_t here = 0;
      for (std::int64_t part = 0; part < parts_; ++part) here += counts_[part * ranges_ + range];
      // A heavy range stays alone, unless what waits before it is little. Rows within a bucket are numbers of 32 bits.
      const bool full = end - begin >= wanted_entries() / 2 && end - begin + here > wanted_entries();
      if (full || (range + 1 - first_range) << range_shift_ > std::int64_t{1} << 32) close(range);
      bucket_of_[range] = static_cast<std::uint32_t>(bucket_count_);
      end += here;
    }
    close(ranges_);

    for (std::int64_t i = 0; i < bucket_count_; ++i) order_[i] = i;
    std::sort(order_, order_ + bucket_count_, [&](std::int64_t a, std::int64_t b) {
      return buckets_[a].entries() != buckets_[b].entries() ? buckets_[a].entries() > buckets_[b].entries() : a < b;
    });
    std::fill_n(places_, parts_ * bucket_count_, 0);
    for (std::int64_t part = 0; part < parts_; ++part)
      for (std::int64_t range = 0; range < ranges_; ++range)
        places_[part * bucket_count_ + bucket_of_[range]] += counts_[part * ranges_ + range];
    for (std::int64_t bucket = 0; bucket < bucket_count_; ++bucket) {
      std::int64_t place = buckets_[bucket].begin;
      for (std::int64_t part = 0; part < parts_; ++part) {
        const std::int64_t here = places_[part * bucket_count_ + bucket];
        places_[part * bucket_count_ + bucket] = place;
        place += here;
      }
    }
  }
  std::int64_t wanted_entries() const {
    return std::clamp<std::int64_t>(entries_count_ / (threads_ == 1 ? 1 : 4 * threads_), 64, entries_per_bucket);
  }
  void cut_buckets(ScratchCutter& cut, std::int64_t most) {
    buckets_ = cut.array<RowBucket>(most);
    order_ = cut.array<std::int64_t>(most);
    places_ = cut.array<std::int64_t>(parts_ * most);
  }

  void scatter() {
    ScratchCutter sizes(nullptr);
    cut_entries(sizes);
    ScratchCutter cut(backend_.scratch(ScratchSlot::entries, sizes.used()));
    cut_entries(cut);
    parallel_for(threads_, parts_, [&](std::int64_t part, int) {
      std::int64_t* places = places_ + part * bucket_count_;
      split_.for_part(part, parts_, [&](std::size_t g, std::int64_t first, std::int64_t last) {
        const Bags<Id>& bags = groups_[g].bags;
        const std::uint32_t first_source = first_run_[g] << source_shift_;
        std::int64_t i = bags.begin(first);
        for (std::int64_t bag = first; bag < last; ++bag) {
          for (const std::int64_t end = bags.end(bag); i < end; ++i) {
            const std::int64_t row = bags.ids[i] + bags.row_bias;
            const std::int64_t place = places[bucket_of_[row >> range_shift_]]++;
            entries_[place] = {static_cast<std::uint32_t>(row), first_source + static_cast<std::uint32_t>(bag)};
            if (scaled_) coefficients_[place] = bags.coefficient(bag, i);
          }
        }
      });
    });
  }
  void cut_entries(ScratchCutter& cut) {
    entries_ = cut.array<RowEntry>(entries_count_);
    coefficients_ = cut.array<float>(scaled_ ? entries_count_ : 0);
  }

  const Host& backend_;
  std::span<const Group> groups_;
  BagParts<Group> split_;
  std::int64_t entries_count_ = 0;
  bool scaled_ = false;
  int threads_ = 1;
  std::int64_t parts_ = 1;
  int source_shift_ = 0;
  std::uint32_t source_mask_ = 0;
  Source* sources_ = nullptr;
  std::uint32_t* first_run_ = nullptr;
  int range_shift_ = 0;
  std::int64_t ranges_ = 0;
  std::uint32_t* counts_ = nullptr;
  std::uint32_t* bucket_of_ = nullptr;
  std::int64_t bucket_count_ = 0;
  RowBucket* buckets_ = nullptr;
  std::int64_t* order_ = nullptr;
  std::int64_t* places_ = nullptr;
  RowEntry* entries_ = nullptr;
  float* coefficients_ = nullptr;
};

/// The distinct rows of a bucket and the sources of each, in the order of the batch. Arrays in scratch memory, filled by `group`.
struct GroupedRows {
  std::int64_t count = 0;
  std::uint32_t* rows = nullptr;       ///< relative to the bucket's first row
  std::uint32_t* begins = nullptr;     ///< count + 1 places in sources
  std::uint32_t* sources = nullptr;    ///< bags, row by row
  float* coefficients = nullptr;       ///< parallel to sources, where the batch is scaled
  std::uint64_t* table = nullptr;      ///< for hashing: hash_size
  std::uint64_t* sort_keys = nullptr;  ///< one per distinct row, where rows are wanted in ascending order

  static std::int64_t hash_size(std::int64_t distinct) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * distinct)));
  }

  /// Groups the bucket's entries by row, rows in the order of their first entry or (Sorted) ascending. Overwrites the entries' rows.
  template <bool Sorted, IdType Id>
  void group(const RowPartition<Id>& partition, const RowBucket& bucket) {
    RowEntry* const entries = partition.entry(bucket.begin);
    const auto total = static_cast<std::uint32_t>(bucket.entries());
    const std::int64_t size = hash_size(bucket.capacity());
    const auto mask = static_cast<std::uint32_t>(size - 1);
    // Where the table has a place for every row of the range the row is its own hash.
    const bool direct = bucket.row_end - bucket.row_begin <= size;
    const std::uint32_t factor = direct ? 1u : 0x9e3779b1u;
    const int shift = direct ? 0 : 32 - std::countr_zero(static_cast<std::uint64_t>(size));
    const auto row_begin = static_cast<std::uint32_t>(bucket.row_begin);
    std::fill_n(table, size, std::uint64_t{0});
    std::uint32_t distinct = 0;
    for (std::uint32_t i = 0; i < total; ++i) {
      const std::uint32_t row = entries[i].row - row_begin;
      std::uint32_t place = (row * factor) >> shift;
      // A place holds the row and its number + 1.
      std::uint64_t held;
      while ((held = table[place & mask]) != 0 && static_cast<std::uint32_t>(held >> 32) != row) ++place;
      if (held == 0) {
        rows[distinct] = row;
        begins[distinct] = 0;
        held = ++distinct;
        table[place & mask] = static_cast<std::uint64_t>(row) << 32 | held;
      }
      const std::uint32_t number = static_cast<std::uint32_t>(held) - 1;
      entries[i].row = number;
      ++begins[number];
    }
    count = distinct;

    if constexpr (Sorted) {
      for (std::uint32_t k = 0; k < distinct; ++k) sort_keys[k] = static_cast<std::uint64_t>(rows[k]) << 32 | k;
      std::sort(sort_keys, sort_keys + distinct);
      std::uint32_t begin = 0;
      for (std::uint32_t k = 0; k < distinct; ++k) {
        rows[k] = static_cast<std::uint32_t>(sort_keys[k] >> 32);
        const auto number = static_cast<std::uint32_t>(sort_keys[k]);
        const std::uint32_t of_row = begins[number];
        begins[number] = begin;  // still in the order of numbers: where the row's next source goes
        sort_keys[k] = static_cast<std::uint64_t>(begin) + of_row;
        begin += of_row;
      }
    } else {
      std::uint32_t begin = 0;
      for (std::uint32_t k = 0; k < distinct; ++k) {
        const std::uint32_t of_row = begins[k];
        begins[k] = begin;
        begin += of_row;
      }
    }
    for (std::uint32_t i = 0; i < total; ++i) {
      const std::uint32_t place = begins[entries[i].row]++;
      sources[place] = entries[i].source;
      if (partition.scaled()) coefficients[place] = partition.coefficient(bucket.begin)[i];
    }
    // Each begin has moved to its row's end: shift them by one.
    if constexpr (Sorted) {
      for (std::uint32_t k = 0; k < distinct; ++k) begins[k + 1] = static_cast<std::uint32_t>(sort_keys[k]);
    } else {
      for (std::uint32_t k = distinct; k > 0; --k) begins[k] = begins[k - 1];
    }
    begins[0] = 0;
  }
};

}  // namespace detail

}  // namespace tessera::inline v0
