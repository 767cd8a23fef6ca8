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
#include <span>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

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

/// The entries of a batch whose rows are in a range of the arena, in their order (group, bag,
/// position).
struct RowBucket {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t begin = 0;  ///< in the partition's entries
  std::int64_t end = 0;
  std::int64_t spare = 0;  ///< of a heavy bucket: room for as many entries

  std::int64_t entries() const { return end - begin; }
  /// Returns the most distinct rows it can hold.
  std::int64_t capacity() const { return std::min(entries(), row_end - row_begin); }
};

/// Where the gradients of bags are, by the bag's number.
template <Element G = float>
class GradientSources {
 public:
  /// A run of 2^shift bags of one group.
  struct Run {
    const G* gradient;
    std::int64_t stride;
  };
  GradientSources() = default;
  GradientSources(const Run* runs, int shift)
      : runs_(runs), shift_(shift), mask_((std::uint32_t{1} << shift) - 1) {}

  [[gnu::always_inline]] const G* operator()(std::uint32_t source) const {
    const Run& run = runs_[source >> shift_];
    return run.gradient + static_cast<std::int64_t>(source & mask_) * run.stride;
  }

 private:
  const Run* runs_ = nullptr;
  int shift_ = 0;
  std::uint32_t mask_ = 0;
};

/// The entries of a batch in buckets by ranges of rows. A row is in one bucket, a bucket is worked on
/// by one thread: no races, and no influence of the number of threads.
class RowBuckets {
 public:
  int threads() const { return threads_; }
  bool scaled() const { return scaled_; }
  std::int64_t entries() const { return entries_count_; }
  std::span<const RowBucket> buckets() const {
    return {buckets_, static_cast<std::size_t>(bucket_count_)};
  }
  /// Returns the index of the bucket to be worked on as `i`-th: the largest come first, so that
  /// threads end together.
  std::int64_t by_size(std::int64_t i) const { return order_[i]; }
  RowEntry* entry(std::int64_t i) const { return entries_ + i; }
  /// Returns what is parallel to the entries; null if all are 1.
  float* coefficient(std::int64_t i) const { return scaled_ ? coefficients_ + i : nullptr; }

 protected:
  /// Rows that some groups share with no other, cut into ranges of 2^shift.
  struct Strip {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t entries;
    std::int64_t first_range;
    int shift;

    std::int64_t ranges() const { return ((end - begin - 1) >> shift) + 1; }
  };

  explicit RowBuckets(const Host& backend) : backend_(backend) {}

  /// Joins ranges to buckets and gives every part its place in each.
  void make_buckets(std::int64_t arena_rows) {
    const std::int64_t most =
        entries_count_ / (wanted_ / 2) + (arena_rows >> 31) + 6 * threads_ + 2;
    cut_scratch(ScratchSlot::buckets, [&](ScratchCutter& cut) {
      buckets_ = cut.array<RowBucket>(most);
      unsplit_ = cut.array<RowBucket>(most);
      order_ = cut.array<std::int64_t>(most);
      places_ = cut.array<std::uint32_t>(parts_ * most);
    });
    buckets_[0] = {};
    std::int64_t range = 0;
    for (const Strip& strip : std::span(strips_, static_cast<std::size_t>(strip_count_)))
      for (std::int64_t row = strip.begin; row < strip.end;
           row += std::int64_t{1} << strip.shift, ++range)
        join_range(row, std::min(row + (std::int64_t{1} << strip.shift), strip.end), range,
                   ranges_);
    ++bucket_count_;
    share_places(ranges_, 0);
    spare_count_ = 0;
    for (RowBucket& bucket : std::span(buckets_, static_cast<std::size_t>(bucket_count_))) {
      if (!heavy(bucket)) continue;
      bucket.spare = entries_count_ + spare_count_;
      spare_count_ += bucket.entries();
    }
  }

  /// Puts the next of `ranges` into the open bucket, the last one, or opens another.
  void join_range(std::int64_t row, std::int64_t row_end, std::int64_t range, std::int64_t ranges) {
    std::int64_t here = 0;
    for (std::int64_t part = 0; part < parts_; ++part) here += counts_[part * ranges + range];
    RowBucket* open = buckets_ + bucket_count_;
    if (here != 0) {
      // A full range stays alone, unless what waits before it is little; a heavy bucket is one
      // range, so that splitting comes to an end.
      const bool full = open->entries() >= wanted_ / 2 && open->entries() + here > wanted_;
      if (open->entries() != 0 && (full || heavy(open->entries() + here) ||
                                   row_end - open->row_begin > std::int64_t{1} << 32)) {
        const RowBucket next{0, 0, open->end, open->end, open->spare + open->entries()};
        ++bucket_count_;
        *++open = next;
      }
      if (open->entries() == 0) open->row_begin = row;
      open->row_end = row_end;
      open->end += here;
    }
    bucket_of_[range] = static_cast<std::uint32_t>(bucket_count_);
  }

  /// Gives every part its place in each bucket from `first_bucket` on. Places, and bucket_of_ from
  /// now on, count from that one.
  void share_places(std::int64_t ranges, std::int64_t first_bucket) {
    const std::int64_t buckets = bucket_count_ - first_bucket;
    std::fill_n(places_, parts_ * buckets, 0u);
    for (std::int64_t range = 0; range < ranges; ++range)
      bucket_of_[range] -= static_cast<std::uint32_t>(first_bucket);
    for (std::int64_t part = 0; part < parts_; ++part)
      for (std::int64_t range = 0; range < ranges; ++range)
        places_[part * buckets + bucket_of_[range]] += counts_[part * ranges + range];
    for (std::int64_t b = 0; b < buckets; ++b) {
      auto place = static_cast<std::uint32_t>(buckets_[first_bucket + b].begin -
                                              buckets_[first_bucket].begin);
      for (std::int64_t part = 0; part < parts_; ++part)
        place += std::exchange(places_[part * buckets + b], place);
    }
  }

  /// Returns whether one thread would still work on so many entries when the others have nothing
  /// left to do. Popular rows' entries cost a third to two thirds of the average: their gradients
  /// are read in the order of the batch, their rows seldom.
  bool heavy(std::int64_t entries) const {
    return threads_ > 1 && 2 * threads_ * entries > 3 * entries_count_;
  }
  bool heavy(const RowBucket& bucket) const {
    return heavy(bucket.entries()) && bucket.row_end - bucket.row_begin > 1;
  }

  void split_heavy_buckets() {
    const auto any = [&] {
      return std::any_of(buckets_, buckets_ + bucket_count_,
                         [&](const RowBucket& b) { return heavy(b); });
    };
    while (any()) {
      std::swap(buckets_, unsplit_);
      for (const RowBucket& bucket :
           std::span(unsplit_, static_cast<std::size_t>(std::exchange(bucket_count_, 0)))) {
        if (!heavy(bucket)) {
          buckets_[bucket_count_++] = bucket;
        } else if (scaled_) {
          split<true>(bucket);
        } else {
          split<false>(bucket);
        }
      }
    }
  }

  /// Does the partition once more, of one bucket into its spare room; what it leaves is the spare
  /// room of its parts.
  template <bool Scaled>
  void split(const RowBucket& bucket) {
    const std::int64_t rows = bucket.row_end - bucket.row_begin;
    const int shift =
        std::max<int>(0, std::bit_width(static_cast<std::uint64_t>(rows - 1)) - split_bits);
    const std::int64_t ranges = ((rows - 1) >> shift) + 1;
    cut_scratch(ScratchSlot::counts, [&](ScratchCutter& cut) {  // the partition's own have served
      counts_ = cut.array<std::uint32_t>(parts_ * ranges);
      bucket_of_ = cut.array<std::uint32_t>(ranges);
    });
    const RowEntry* const from = entry(bucket.begin);
    const float* const from_coefficients = coefficient(bucket.begin);
    const auto row_begin = static_cast<std::uint32_t>(bucket.row_begin);
    const auto part_begin = [&](std::int64_t part) { return bucket.entries() * part / parts_; };
    parallel_for(threads_, parts_, [&](std::int64_t part, int) {
      std::uint32_t* const counts = counts_ + part * ranges;
      std::fill_n(counts, ranges, 0u);
      for (std::int64_t i = part_begin(part), end = part_begin(part + 1); i < end; ++i)
        ++counts[(from[i].row - row_begin) >> shift];
    });
    const std::int64_t first_bucket = bucket_count_;
    buckets_[first_bucket] = {0, 0, bucket.spare, bucket.spare, bucket.begin};
    for (std::int64_t range = 0; range < ranges; ++range) {
      const std::int64_t row = bucket.row_begin + (range << shift);
      join_range(row, std::min(row + (std::int64_t{1} << shift), bucket.row_end), range, ranges);
    }
    ++bucket_count_;
    share_places(ranges, first_bucket);
    RowEntry* const to = entry(bucket.spare);
    float* const to_coefficients = coefficient(bucket.spare);
    parallel_for(threads_, parts_, [&](std::int64_t part, int) {
      const std::uint32_t* const bucket_of = bucket_of_;
      std::uint32_t* const places = places_ + part * (bucket_count_ - first_bucket);
      for (std::int64_t i = part_begin(part), end = part_begin(part + 1); i < end; ++i) {
        const std::uint32_t place = places[bucket_of[(from[i].row - row_begin) >> shift]]++;
        to[place] = from[i];
        if (Scaled) to_coefficients[place] = from_coefficients[i];
      }
    });
  }

  void sort_by_size() {
    for (std::int64_t b = 0; b < bucket_count_; ++b) order_[b] = b;
    std::sort(order_, order_ + bucket_count_, [&](std::int64_t a, std::int64_t b) {
      return buckets_[a].entries() != buckets_[b].entries()
                 ? buckets_[a].entries() > buckets_[b].entries()
                 : a < b;
    });
  }

  template <class Cut>
  void cut_scratch(std::size_t slot, const Cut& arrays) const {
    ScratchCutter sizes(nullptr);
    arrays(sizes);
    ScratchCutter cut(backend_.scratch(slot, sizes.used()));
    arrays(cut);
  }

  static constexpr std::int64_t least_range_entries = 256, most_ranges = 16384;
  static constexpr int split_bits = 11;

  const Host& backend_;
  std::int64_t entries_count_ = 0;
  bool scaled_ = false;
  int threads_ = 1;
  std::int64_t parts_ = 1;
  std::int64_t wanted_ = 0;
  Strip* strips_ = nullptr;
  std::int64_t strip_count_ = 0;
  std::int64_t ranges_ = 0;
  std::uint32_t* counts_ = nullptr;
  std::uint32_t* bucket_of_ = nullptr;
  std::int64_t bucket_count_ = 0;
  RowBucket* buckets_ = nullptr;
  RowBucket* unsplit_ = nullptr;
  std::int64_t spare_count_ = 0;
  std::int64_t* order_ = nullptr;
  std::uint32_t* places_ = nullptr;
  RowEntry* entries_ = nullptr;
  float* coefficients_ = nullptr;
};

/// The same, with the gradients of their bags: what rows' kernels work on, whatever type ids have.
template <Element G = float>
class GroupedRows : public RowBuckets {
 public:
  const GradientSources<G>& gradients() const { return gradients_; }
  /// Returns one more than the highest number of a bag.
  std::int64_t sources() const { return sources_; }

 protected:
  using RowBuckets::RowBuckets;
  GradientSources<G> gradients_;
  std::int64_t sources_ = 0;
};

/// Sorts the entries of a batch into buckets by ranges of rows: a stable counting partition in two
/// parallel passes over the ids. Every table's rows are cut into ranges of about as many entries,
/// neighbours are joined until a bucket is worth its start, so that small tables and large ones
/// give buckets of like size. Where a table's popular rows are neighbours (ids by frequency), a
/// range may hold most of a batch: such buckets are split once more.
template <IdType Id, Element G = float>
class RowPartition : public GroupedRows<G> {
  using Base = GroupedRows<G>;
  using Base::backend_, Base::entries_count_, Base::scaled_, Base::threads_, Base::parts_,
      Base::wanted_, Base::gradients_, Base::sources_, Base::strips_, Base::strip_count_,
      Base::ranges_, Base::counts_, Base::bucket_of_, Base::bucket_count_, Base::spare_count_,
      Base::places_, Base::entries_, Base::coefficients_, Base::cut_scratch;
  using typename Base::Strip;

 public:
  using Group = op::GradientGroup<Id, G>;
  using Sources = GradientSources<G>;

  /// Makes a partition. `bucket_entries`: how many a bucket should have, for the sake of the
  /// caches.
  RowPartition(const Host& backend, std::span<const Group> groups, std::int64_t arena_rows,
               std::int64_t bucket_entries);

  /// Calls f(group, number of its first bag, first bag, last bag) for runs of bags, on all threads.
  template <class F>
  void for_bags(const F& f) const {
    parallel_for(threads_, parts_, [&](std::int64_t part, int) {
      split_.for_part(part, parts_, [&](std::size_t g, std::int64_t first, std::int64_t last) {
        f(groups_[g], std::int64_t{first_run_[g]} << source_shift_, first, last);
      });
    });
  }

 private:
  /// Gives bags numbers of 32 bits; runs of 2^shift numbers belong to one group.
  void number_sources() {
    source_shift_ = op::update_bag_shift<Id, G>(groups_);
    std::int64_t runs = 0;
    for (const Group& group : groups_) runs += runs_of(group);
    typename Sources::Run* sources = nullptr;
    cut_scratch(ScratchSlot::sources, [&](ScratchCutter& cut) {
      sources = cut.array<typename Sources::Run>(runs);
      first_run_ = cut.array<std::uint32_t>(std::ssize(groups_));
    });
    gradients_ = Sources(sources, source_shift_);
    sources_ = runs << source_shift_;
    std::uint32_t run = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      first_run_[g] = run;
      for (std::int64_t i = 0; i < runs_of(groups_[g]); ++i)
        sources[run++] = {groups_[g].gradient + (i << source_shift_) * groups_[g].gradient_stride,
                          groups_[g].gradient_stride};
    }
  }
  std::int64_t runs_of(const Group& group) const {
    return (group.bags.bags + (std::int64_t{1} << source_shift_) - 1) >> source_shift_;
  }

  /// Makes the union of the groups' rows as disjoint strips, and their ranges.
  void make_strips(std::int64_t arena_rows) {
    cut_scratch(ScratchSlot::strips, [&](ScratchCutter& cut) {
      strips_ = cut.array<Strip>(std::ssize(groups_));
      strip_of_ = cut.array<std::uint32_t>(std::ssize(groups_));
    });
    strip_count_ = 0;
    const auto rows_of = [&](const Group& group) {
      return group.rows.empty() ? op::RowRange{0, arena_rows} : group.rows;
    };
    for (const Group& group : groups_) {
      if (group.bags.bags == 0) continue;
      const op::RowRange rows = rows_of(group);
      // Groups come table by table: most are of the same strip as the one before.
      if (strip_count_ == 0 || strips_[strip_count_ - 1].begin != rows.begin ||
          strips_[strip_count_ - 1].end != rows.end)
        strips_[strip_count_++] = {rows.begin, rows.end, 0, 0, 0};
    }
    const auto before = [](const Strip& a, const Strip& b) { return a.begin < b.begin; };
    if (!std::is_sorted(strips_, strips_ + strip_count_, before))
      std::sort(strips_, strips_ + strip_count_, before);
    std::int64_t last = 0;
    for (std::int64_t i = 1; i < strip_count_; ++i) {
      if (strips_[i].begin < strips_[last].end) {
        strips_[last].end = std::max(strips_[last].end, strips_[i].end);
      } else {
        strips_[++last] = strips_[i];
      }
    }
    strip_count_ = last + 1;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].bags.bags == 0) continue;
      const std::int64_t begin = rows_of(groups_[g]).begin;
      const Strip* const after =
          std::upper_bound(strips_, strips_ + strip_count_, begin,
                           [](std::int64_t row, const Strip& strip) { return row < strip.begin; });
      strip_of_[g] = static_cast<std::uint32_t>(after - strips_ - 1);
      strips_[strip_of_[g]].entries += groups_[g].bags.entries();
    }
    const std::int64_t range_entries =
        std::max(Base::least_range_entries, entries_count_ / Base::most_ranges);
    ranges_ = 0;
    for (Strip& strip : std::span(strips_, static_cast<std::size_t>(strip_count_))) {
      strip.first_range = ranges_;
      const std::int64_t most = std::max<std::int64_t>(1, strip.entries / range_entries);
      // rows within a bucket are numbers of 32 bits
      while (strip.ranges() > most && strip.shift < 32) ++strip.shift;
      ranges_ += strip.ranges();
    }
  }

  /// Counts how many entries each part of the batch has in each range.
  void count() {
    cut_scratch(ScratchSlot::counts, [&](ScratchCutter& cut) {
      counts_ = cut.array<std::uint32_t>(parts_ * ranges_);
      bucket_of_ = cut.array<std::uint32_t>(ranges_);
    });
    parallel_for(threads_, parts_, [&](std::int64_t part, int) {
      std::uint32_t* counts = counts_ + part * ranges_;
      std::fill_n(counts, ranges_, 0u);
      split_.for_part(part, parts_, [&](std::size_t g, std::int64_t first, std::int64_t last) {
        const op::Bags<Id> bags = groups_[g].bags;
        const Strip strip = strips_[strip_of_[g]];
        const std::int64_t bias = bags.row_bias - strip.begin;
        std::uint32_t* const of_strip = counts + strip.first_range;
        for (std::int64_t i = bags.begin(first), end = bags.end(last - 1); i < end; ++i)
          ++of_strip[(bags.ids[i] + bias) >> strip.shift];
      });
    });
  }

  void scatter() {
    cut_scratch(ScratchSlot::entries, [&](ScratchCutter& cut) {
      entries_ = cut.array<RowEntry>(entries_count_ + spare_count_);
      coefficients_ = cut.array<float>(scaled_ ? entries_count_ + spare_count_ : 0);
    });
    parallel_for(threads_, parts_, [&](std::int64_t part, int) {
      split_.for_part(part, parts_, [&](std::size_t g, std::int64_t first, std::int64_t last) {
        if (scaled_) {
          scatter_bags<true>(g, first, last, places_ + part * bucket_count_);
        } else {
          scatter_bags<false>(g, first, last, places_ + part * bucket_count_);
        }
      });
    });
  }
  template <bool Scaled>
  void scatter_bags(std::size_t g, std::int64_t first, std::int64_t last,
                    std::uint32_t* places) const {
    // Local copies: stores to the entries could change members, for all the compiler knows.
    const op::Bags<Id> bags = groups_[g].bags;
    const Strip strip = strips_[strip_of_[g]];
    const std::uint32_t* const bucket_of = bucket_of_ + strip.first_range;
    RowEntry* const entries = entries_;
    float* const coefficients = coefficients_;
    const std::uint32_t first_source = first_run_[g] << source_shift_;
    const auto place_entry = [&](std::int64_t bag, std::int64_t i) {
      const std::int64_t row = bags.ids[i] + bags.row_bias;
      const std::uint32_t place = places[bucket_of[(row - strip.begin) >> strip.shift]]++;
      entries[place] = {static_cast<std::uint32_t>(row),
                        first_source + static_cast<std::uint32_t>(bag)};
      if (Scaled) coefficients[place] = bags.coefficient(bag, i);
    };
    if (bags.offsets == nullptr) {
      for (std::int64_t bag = first; bag < last; ++bag) place_entry(bag, bag);
    } else {
      for (std::int64_t bag = first, i = bags.offsets[first]; bag < last; ++bag)
        for (const std::int64_t end = bags.offsets[bag + 1]; i < end; ++i) place_entry(bag, i);
    }
  }

  std::span<const Group> groups_;
  BagParts<Group> split_;
  int source_shift_ = 0;
  std::uint32_t* first_run_ = nullptr;
  std::uint32_t* strip_of_ = nullptr;
};

// Not inline: else a caller compiled it again in spite of `extern template`.
template <IdType Id, Element G>
RowPartition<Id, G>::RowPartition(const Host& backend, std::span<const Group> groups,
                                  std::int64_t arena_rows, std::int64_t bucket_entries)
    : Base(backend), groups_(groups), split_(backend, groups, 2, 1) {
  std::int64_t entries = 0;
  for (const Group& group : groups) {
    entries += group.bags.bags == 0 ? 0 : group.bags.entries();
    scaled_ = scaled_ || group.bags.weights != nullptr || group.bags.bag_scale != nullptr;
  }
  op::require_countable<Host, Id, G>(groups);
  entries_count_ = entries;
  if (entries == 0) return;
  threads_ = worthwhile_threads(backend_.threads(), entries * 64);
  parts_ = threads_;
  wanted_ =
      std::clamp<std::int64_t>(entries / (threads_ == 1 ? 1 : 4 * threads_), 64, bucket_entries);
  number_sources();
  make_strips(arena_rows);
  count();
  this->make_buckets(arena_rows);
  scatter();
  this->split_heavy_buckets();
  this->sort_by_size();
}

}  // namespace detail

}}  // namespace tessera::v0
