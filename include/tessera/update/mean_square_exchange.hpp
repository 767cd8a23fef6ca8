// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/optional_collectives.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/wire_order.hpp>
#include <tessera/op/row_statistics.hpp>
#include <tessera/op/update.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_tables.hpp>
#include <tessera/update/merged_lists.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Row-wise optimizers need the mean square of a whole row's gradient. Where a table's columns are
/// cut, every shard knows a part: the shards of the same rows exchange partial sums (a float per 16
/// columns) in one all-to-all, and each puts the same number together, bit for bit that of an uncut
/// table. The shards saw the same ids, so they know each other's rows without asking; where an
/// arena has its rows in several lists, those of other shards of its tables have the same rows in
/// each.
template <class Backend, class Communicator>
class MeanSquareExchange {
 public:
  /// Makes an exchange. `takes_part(arena)`: whether an ArenaPlan does.
  template <class TakesPart>
  MeanSquareExchange(const Backend& backend, Communicator& communicator,
                     const RankTables<Backend>& tables, TakesPart&& takes_part)
      : backend_(backend),
        communicator_(communicator),
        layout_(tables.layout()),
        routing_(tables.routing()) {
    for (const ArenaPlan& arena : routing_.arenas()) takes_part_.push_back(takes_part(arena));
    for (std::size_t a = 0; a < routing_.arenas().size(); ++a)
      if (takes_part_[a])
        for (std::size_t i = 0; i < routing_.arenas()[a].shards.size(); ++i) add_pairs(a, i);
    // Both ends of a message list its pairs by (sender's shard, receiver's shard).
    sort_pairs(sends_, &Pair::own_shard, &Pair::other_shard);
    sort_pairs(receives_, &Pair::other_shard, &Pair::own_shard);
  }

  /// Runs: `write`, `exchange`, `combine`.
  std::span<const float* const> run_stage(std::span<const MergedLists> merged,
                                          std::span<const std::int64_t> most_entries) {
    write(merged, most_entries);
    exchange();
    return combine(merged);
  }

  /// Writes what travels. `merged[a]`: merged gradients of arena a. `most_entries`: so many of each
  /// table at most, of all ranks, where messages have room for as many rows; else none, and the
  /// host waits to know how many there are.
  void write(std::span<const MergedLists> merged, std::span<const std::int64_t> most_entries) {
    list_pairs(sends_, merged, sent_);
    list_pairs(receives_, merged, received_);
    find_rows(merged, most_entries);
    const std::size_t out =
        place(sent_, counts_out_, [](const Pair& pair) { return pair.own_shard; });
    const std::size_t in =
        place(received_, counts_in_, [](const Pair& pair) { return pair.other_shard; });
    send_.resize(backend_, out);
    receive_.resize(backend_, in);
    // room that is left over travels, too
    if (!most_entries.empty()) backend_.fill_zero(send_.data(), out * sizeof(float));
    writes_.clear();
    for (const Pair& pair : sent_)
      if (pair.rows.room != 0)
        writes_.push_back({merged[pair.arena][pair.list].gradients, pair.rows.which, pair.rows.room,
                           columns(pair.own_shard), send_.data() + pair.at});
    if (!writes_.empty()) op::run<op::WriteMeanSquares>(backend_, {writes_});
  }

  /// Sends it. Collective.
  void exchange() {
    if (routing_.exchanges())
      all_to_all<float>(communicator_, send_.span(), counts_out_, receive_.span(), counts_in_);
    else
      std::swap(
          send_,
          receive_);  // all shards are replicated: every pair is of this rank, and both orders are one
  }

  /// Returns, per arena with cut columns, one mean square per merged row, one list after another;
  /// valid until the next call.
  std::span<const float* const> combine(std::span<const MergedLists> merged) {
    std::size_t total = 0;
    for (std::size_t a = 0; a < merged.size(); ++a)
      if (takes_part_[a]) total += static_cast<std::size_t>(count_of(merged[a]));
    float* next = result_.resize(backend_, total).data();
    results_.assign(merged.size(), nullptr);
    parts_.clear();
    jobs_.clear();
    parts_end_.clear();
    std::size_t segment = 0, arena = merged.size();
    float* means_begin = nullptr;  // of the arena
    for_each_segment([&](std::size_t a, std::size_t i, const op::ArenaSegment& rows) {
      if (a != arena) {
        arena = a;
        results_[a] = means_begin = next;
        next += count_of(merged[a]);
      }
      float* means = means_begin;
      for (std::size_t l = 0; l < merged[a].size(); means += merged[a][l++].count) {
        const Rows found = segment_rows_[segment++];
        if (found.room == 0) continue;
        add_parts(a, i, rows, l);
        parts_end_.push_back(parts_.size());
        jobs_.push_back(
            {merged[a][l].rows, merged[a][l].gradients, found.which, found.room, {}, means});
      }
    });
    for (std::size_t j = 0, begin = 0; j < jobs_.size(); begin = parts_end_[j++])
      jobs_[j].parts = std::span<const op::CombineMeanSquares::Part>(parts_).subspan(
          begin, parts_end_[j] - begin);
    if (!jobs_.empty()) op::run<op::CombineMeanSquares>(backend_, {jobs_});
    return results_;
  }

 private:
  /// Some of an arena's merged rows.
  struct Rows {
    const op::PlaceRange* which = nullptr;  // in the backend's memory
    std::int64_t room = 0;                  // at least as many
  };
  /// Two shards of one table with rows in common: one of this rank's, and one that needs its
  /// partial sums (and the other way round).
  struct Pair {
    int rank;
    int own_shard, other_shard;
    std::size_t arena, segment;
    std::int64_t row_begin, row_end;  // arena rows of the common part
    std::size_t list = 0;             // of the arena's
    std::size_t at = 0;               // first float in the message
    Rows rows{};
  };

  static void sort_pairs(PodVector<Pair>& pairs, int Pair::* sender, int Pair::* receiver) {
    std::sort(pairs.begin(), pairs.end(), [=](const Pair& x, const Pair& y) {
      return std::tuple(x.rank, x.*sender, x.*receiver) <
             std::tuple(y.rank, y.*sender, y.*receiver);
    });
  }

  const Rectangle& rectangle(int shard) const { return layout_.shards[shard].rectangle; }
  op::ColumnRange columns(int shard) const {
    return {rectangle(shard).column_begin, rectangle(shard).column_end,
            layout_.tables[layout_.shards[shard].table].width};
  }

  void add_pairs(std::size_t arena, std::size_t segment) {
    const ArenaPlan& plan = routing_.arenas()[arena];
    const int own = plan.shards[segment];
    const Rectangle& mine = rectangle(own);
    for (std::size_t s = 0; s < layout_.shards.size(); ++s) {
      const Shard& other = layout_.shards[s];
      if (other.table != layout_.shards[own].table || static_cast<int>(s) == own) continue;
      const std::int64_t begin = std::max(mine.row_begin, other.rectangle.row_begin),
                         end = std::min(mine.row_end, other.rectangle.row_end);
      if (begin >= end) continue;
      const std::int64_t bias = plan.segments[segment].row_offset - mine.row_begin;
      const Pair pair{other.rank, own,          static_cast<int>(s), arena,
                      segment,    begin + bias, end + bias};
      // Every rank has a copy of a replicated shard: it takes from the holder of the other, and
      // gives to its own rank alone.
      const bool own_replicated = layout_.shards[own].rank == every_rank,
                 other_replicated = other.rank == every_rank;
      for (int rank = 0; rank < routing_.ranks(); ++rank) {
        const bool self = rank == routing_.rank();
        const bool holds_other = other_replicated || other.rank == rank;
        if (holds_other && (!own_replicated || self)) add(sends_, pair, rank);
        if (other_replicated ? self : other.rank == rank) add(receives_, pair, rank);
      }
    }
  }

  static void add(PodVector<Pair>& pairs, Pair pair, int rank) {
    pair.rank = rank;
    pairs.push_back(pair);
  }

  /// Lists every pair once for each list of its arena.
  static void list_pairs(const PodVector<Pair>& pairs, std::span<const MergedLists> merged,
                         PodVector<Pair>& listed) {
    listed.clear();
    for (const Pair& pair : pairs)
      for (std::size_t list = 0; list < merged[pair.arena].size(); ++list) {
        listed.push_back(pair);
        listed.back().list = list;
      }
  }

  /// Finds merged rows of every pair and of every segment of cut arenas, in each list.
  void find_rows(std::span<const MergedLists> merged, std::span<const std::int64_t> most_entries) {
    searches_.clear();
    const auto search = [&](const op::MergedGradients& list, std::int64_t begin, std::int64_t end) {
      searches_.push_back({list.rows, list.count, begin, end});
    };
    for (const auto* pairs : {&sent_, &received_})
      for (const Pair& pair : *pairs)
        search(merged[pair.arena][pair.list], pair.row_begin, pair.row_end);
    for_each_segment([&](std::size_t arena, std::size_t, const op::ArenaSegment& rows) {
      for (const op::MergedGradients& list : merged[arena])
        search(list, rows.row_offset, rows.row_offset + rows.rows);
    });
    if (searches_.empty()) return;
    const op::PlaceRange* which = found_.resize(backend_, searches_.size()).data();
    op::run<op::FindRows>(backend_, {searches_, found_.data()});
    counted_.resize(most_entries.empty() ? searches_.size() : 0);
    if (most_entries.empty()) {
      backend_.copy(counted_.data(), which, counted_.size() * sizeof(op::PlaceRange));
      backend_.synchronize();
    }
    auto next = counted_.begin();
    const auto answer = [&](std::int64_t most) {
      return Rows{which++, most_entries.empty() ? (next++)->size() : most};
    };
    // Both ends of a message come to the same room.
    const auto most = [&](const Pair& pair) {
      return most_entries.empty() ? 0
                                  : std::min(pair.row_end - pair.row_begin,
                                             most_entries[layout_.shards[pair.own_shard].table]);
    };
    for (Pair& pair : sent_) pair.rows = answer(most(pair));
    for (Pair& pair : received_) pair.rows = answer(most(pair));
    segment_rows_.clear();
    for_each_segment([&](std::size_t arena, std::size_t, const op::ArenaSegment& rows) {
      for (const op::MergedGradients& list : merged[arena])
        segment_rows_.push_back(answer(std::min(rows.rows, list.count)));
    });
  }

  template <class Visit>
  void for_each_segment(Visit&& visit) const {
    for (std::size_t a = 0; a < routing_.arenas().size(); ++a)
      if (takes_part_[a])
        for (std::size_t i = 0; i < routing_.arenas()[a].segments.size(); ++i)
          visit(a, i, routing_.arenas()[a].segments[i]);
  }

  /// Finds where each pair's floats begin in the message; how many go to each rank. Returns their
  /// sum.
  template <class ShardOf>
  std::size_t place(PodVector<Pair>& pairs, std::vector<std::size_t>& counts,
                    ShardOf shard_of) const {
    BlockPlaces<float> places(block_alignment(communicator_), counts, routing_.ranks());
    for (Pair& pair : pairs)
      pair.at = places.take(
          pair.rank, static_cast<std::size_t>(pair.rows.room * columns(shard_of(pair)).partials()));
    return places.end();
  }

  /// Adds what is known of the rows of a segment: this shard's own part, and the others' from the
  /// message, by columns.
  void add_parts(std::size_t arena, std::size_t segment, const op::ArenaSegment& rows,
                 std::size_t list) {
    const int own = routing_.arenas()[arena].shards[segment];
    const std::ptrdiff_t first = std::ssize(parts_);
    parts_.push_back(
        {rows.row_offset, rows.row_offset + rows.rows, nullptr, nullptr, columns(own)});
    for (const Pair& pair : received_)
      if (pair.arena == arena && pair.segment == segment && pair.list == list &&
          pair.rows.room != 0)
        parts_.push_back({pair.row_begin, pair.row_end, pair.rows.which, receive_.data() + pair.at,
                          columns(pair.other_shard)});
    std::sort(parts_.begin() + first, parts_.end(), [](const auto& x, const auto& y) {
      return std::tuple(x.columns.begin, x.row_begin) < std::tuple(y.columns.begin, y.row_begin);
    });
  }

  const Backend& backend_;
  Communicator& communicator_;
  const Layout& layout_;
  const RankLayout& routing_;
  std::vector<bool> takes_part_;  // by arena
  PodVector<Pair> sends_, receives_;
  PodVector<Pair> sent_, received_;  // the same by list
  std::vector<std::size_t> counts_out_, counts_in_;
  PodVector<op::FindRows::Job> searches_;
  Buffer<op::PlaceRange, Backend> found_;  // by search
  PodVector<op::PlaceRange> counted_;      // the same for the host, where it must know
  std::vector<Rows> segment_rows_;         // by list, too
  PodVector<op::WriteMeanSquares::Job> writes_;
  PodVector<op::CombineMeanSquares::Job> jobs_;
  PodVector<op::CombineMeanSquares::Part> parts_;  // of all jobs, one after the other
  std::vector<std::size_t> parts_end_;             // by job
  PodVector<const float*> results_;                // by arena
  Buffer<float, Backend> send_, receive_, result_;
};

}  // namespace detail

}}  // namespace tessera::v0
