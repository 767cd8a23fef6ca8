// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/op/kernel.hpp>
#include <tessera/op/mean_square.hpp>
#include <tessera/op/step_counter.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace op {

/// The rows [begin, end) of an arena.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  constexpr bool empty() const { return begin == end; }
};

/// What an optimizer's `row` is told of a row, where it asks: mean squares over the whole table
/// row, of what it measures and of the weights.
struct RowMeans {
  float square = 0;
  float weight_square = 0;
};

/// Whether the means depend on weights or states, and so cannot be told from gradients alone.
template <Optimizer O>
inline constexpr bool measures_rows = detail::MeasuresUpdates<O> || detail::MeasuresWeights<O>;

TESSERA_SIDE_OF_ARGUMENTS
template <Optimizer O>
TESSERA_HOST_DEVICE typename O::Step::Row shared_by_row(const typename O::Step& step,
                                                        float* row_state, const RowMeans& means) {
  if constexpr (detail::MeasuresWeights<O>)
    return step.row(row_state, means.square, means.weight_square);
  else
    return step.row(row_state, means.square);
}

/// Bags and the gradients of their pooled vectors: bag b's at gradient + b * gradient_stride,
/// `width` elements, which operations read as floats.
template <IdType Id, Element G = float>
struct GradientGroup {
  Bags<Id> bags;
  const G* gradient = nullptr;
  std::int64_t gradient_stride = 0;
  /// All the bags' arena rows are in it: a backend shares the work better if it knows each table's
  /// rows. Empty: anywhere.
  RowRange rows{};
};

/// Bags of one update are numbered by 32 bits; each group's begin at a multiple of this, or of a
/// lower power of two that holds every group's.
inline constexpr std::int64_t update_bag_run = std::int64_t{1} << 16;

/// Returns the logarithm of the power of two.
template <IdType Id, Element G>
int update_bag_shift(std::span<const GradientGroup<Id, G>> groups) {
  std::int64_t largest = 1;
  for (const GradientGroup<Id, G>& group : groups) largest = std::max(largest, group.bags.bags);
  return std::min(std::bit_width(static_cast<std::uint64_t>(largest - 1)),
                  std::bit_width(static_cast<std::uint64_t>(update_bag_run - 1)));
}

/// Throws InvalidArgument if one update has more ids or bags than the backend can number: 2^32 -
/// 1 on the host, 2^31 - 1 on others.
template <class Backend, IdType Id, Element G>
void require_countable(std::span<const GradientGroup<Id, G>> groups) {
  constexpr std::int64_t most = (std::int64_t{1} << (Backend::host_readable ? 32 : 31)) - 1;
  const int shift = Backend::host_readable ? update_bag_shift(groups) : 0;
  std::int64_t entries = 0, bags = 0;
  for (const GradientGroup<Id, G>& group : groups) {
    entries += group.bags.bags == 0     ? 0
               : Backend::host_readable ? group.bags.entries()
                                        : group.bags.entry_bound;
    bags += (group.bags.bags + (std::int64_t{1} << shift) - 1) >> shift << shift;
  }
  require(entries <= most && bags <= most + 1,
          "update: {} ids in {} bags in one batch on one rank; at most {}, split it", entries, bags,
          most);
}

/// The rows of one shard in an arena, and where they come from: arena row r is row (r - row_offset
/// + row_begin) of table `table_key` (name_key of its name), from column column_begin on. Ascending
/// row_offset.
struct ArenaSegment {
  std::int64_t row_offset = 0;
  std::int64_t rows = 0;
  std::uint64_t table_key = 0;
  std::int64_t row_begin = 0;
  std::int32_t column_begin = 0;
};

/// An arena as updates see it: weights, and one array per optimizer state.
template <Element T, Optimizer O>
struct ArenaState {
  T* arena = nullptr;  ///< rows x width, row-major, 64-byte aligned
  std::int64_t rows = 0;
  int width = 0;
  std::array<detail::StateElement<O>*, O::element_states> element_state{};  ///< each rows x width
  std::array<float*, O::row_states> row_state{};                            ///< each rows
  std::span<const ArenaSegment> segments{};  ///< for stochastic rounding (rounds)
  std::uint64_t rounding_seed = 0;           ///< of this step
  /// of a cache's slots: the arena row in each, by which segments know it; else null
  const std::int64_t* table_rows = nullptr;
  /// Where it is given, in the backend's memory: the step's functor and seed, in place of those
  /// that the host gives. For backends that CountsSteps.
  const StepValues<O>* now = nullptr;

  /// Whether anything is stored in 16 bits.
  static constexpr bool rounds =
      !std::is_same_v<T, float> || !std::is_same_v<detail::StateElement<O>, float>;
};

/// The entries of an update in the order of their rows, found before their gradients are known
/// (SortEntries), in memory of the backend. Their order there is the backend's.
struct SortedBatch {
  void* memory = nullptr;
  std::int64_t places = 0;  ///< 0: nothing is sorted
  std::int64_t bags = 0;    ///< of all groups
  bool in_second_half = false;
};

/// The first part of Update, which needs no gradients, for backends that sort.
template <IdType Id>
struct SortEntries {
  /// Memory of the backend for a SortedBatch, made when its size is known.
  struct Room {
    virtual ~Room() = default;
    virtual void* make(std::size_t bytes) const = 0;
  };
  struct Parameters {
    std::int64_t arena_rows = 0;
    /// those of the update, but for their gradients, which are not looked at
    std::span<const GradientGroup<Id>> groups{};
    const Room* room = nullptr;
    SortedBatch* sorted = nullptr;
  };
};

/// The optimizer's update, fused with the merging of gradients. For every distinct arena row among
/// the entries of all groups: its gradient is the sum of coefficient * gradient of the bag, entry
/// by entry in the order of (group, bag, position), each step one multiply-add in float (a
/// coefficient of 1 adds, the first to a zero of negative sign, so that a single gradient stays
/// what it is); then the optimizer is applied once. Rows without an entry do not change, nor does
/// their state. The result does not depend on the number of threads, nor on which other rows are
/// present. Where O::needs_mean_square, `width` must be the whole row (else: Merge, exchange,
/// Apply).
template <Element T, IdType Id, int Width, Optimizer O, Element G = float>
struct Update {
  struct Parameters {
    ArenaState<T, O> state;
    typename O::Step step;
    std::span<const GradientGroup<Id, G>> groups{};
    /// null, or in the backend's memory: the number of distinct rows is added to it
    std::int64_t* merged_rows = nullptr;
    SortedBatch sorted{};  ///< of these groups, if SortEntries has run
  };
};

/// Distinct rows and their merged gradients, `width` floats each, in ascending order of arena rows.
struct MergedGradients {
  std::int64_t count = 0;
  std::int64_t* rows = nullptr;
  float* gradients = nullptr;
};

/// Makes room for merged gradients when their number is known.
struct MergedRoom {
  virtual ~MergedRoom() = default;
  /// Makes memory of the backend for this many rows, and gradients of the merge's width.
  virtual MergedGradients make(std::int64_t count) const = 0;
};

template <IdType Id, Element G = float>
struct MergeParameters {
  std::int64_t arena_rows = 0;
  int width = 0;  ///< equals Width, or is not read, unless that is dynamic_width
  std::span<const GradientGroup<Id, G>> groups{};
  /// Out: room for min(entries of all groups, arena_rows) rows; `count` is set.
  MergedGradients* merged = nullptr;
  /// `count` becomes that room, and places that no row takes have row -1: so the host need
  /// not wait. For backends whose memory the host cannot read.
  bool padded = false;
  /// null, or who gives room for as many rows as there are; not of padded results
  const MergedRoom* room = nullptr;
  /// Sums so far, in any number of lists that have no row in common: entries of their rows are added
  /// to them there, and `merged` has the other rows alone. Not of padded results.
  std::span<const MergedGradients> sums{};
};

/// The first half of Update alone: merges gradients by row, in the same order and with the same
/// bits. A row whose sum so far is given goes on from it, in its place.
template <IdType Id, int Width, Element G = float>
struct Merge {
  using Parameters = MergeParameters<Id, G>;
};

/// The second half of Update alone: applies the optimizer to distinct rows with given gradients,
/// but those of row -1.
template <Element T, int Width, Optimizer O>
struct Apply {
  struct Parameters {
    ArenaState<T, O> state;
    typename O::Step step;
    MergedGradients merged;
    /// RowMeans of the merged rows if O asks for them, else null.
    const float* mean_square = nullptr;
    const float* weight_mean_square = nullptr;
  };
};

/// What O measures of distinct rows, and their weights, before Apply: where a table's columns are
/// cut, ranks exchange the mean squares of these. Changes nothing. Rows of -1 are left out.
template <Element T, Optimizer O>
struct Measure {
  struct Parameters {
    ArenaState<T, O> state;
    typename O::Step step;
    MergedGradients merged;
    float* measured = nullptr;  ///< [merged.count, width]; null: not needed, as for the next
    float* weights = nullptr;
  };
};

}}}  // namespace tessera::v0::op
