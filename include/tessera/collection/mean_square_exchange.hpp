// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/routing.hpp>
#include <tessera/op/mean_square.hpp>
#include <tessera/table/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

namespace tessera::inline v0 {

/// Row-wise optimizers need the mean square of a whole row's gradient. Where a table's columns are cut, every shard knows a part: the
/// shards of the same rows exchange partial sums (a float per 16 columns) in one all-to-all, and each puts the same number together,
/// bit for bit that of an uncut table. The shards saw the same ids, so they know each other's rows without asking.
template <class Backend, class Communicator>
class MeanSquareExchange {
 public:
  MeanSquareExchange(const Backend& backend, Communicator& communicator, const Layout& layout, const Routing& routing)
      : backend_(backend), communicator_(communicator), layout_(layout), routing_(routing) {
    for (std::size_t a = 0; a < routing.arenas().size(); ++a)
      if (routing.arenas()[a].columns_split)
        for (std::size_t i = 0; i < routing.arenas()[a].shards.size(); ++i) add_pairs(a, i);
    // Both ends of a message list its pairs by (sender's shard, receiver's shard).
    std::sort(sends_.begin(), sends_.end(), [](const Pair& x, const Pair& y) {
      return std::tuple(x.rank, x.own_shard, x.other_shard) < std::tuple(y.rank, y.own_shard, y.other_shard);
    });
    std::sort(receives_.begin(), receives_.end(), [](const Pair& x, const Pair& y) {
      return std::tuple(x.rank, x.other_shard, x.own_shard) < std::tuple(y.rank, y.other_shard, y.own_shard);
    });
  }

  /// `merged[a]`: merged gradients of arena a. Answers, per arena with cut columns, one mean square per merged row. Collective.
  std::vector<std::span<const float>> run_stage(std::span<const MergedGradients> merged) {
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks());
    counts_out_.assign(ranks, 0);
    counts_in_.assign(ranks, 0);
    std::size_t out = 0, in = 0;
    for (Pair& pair : sends_) {
      pair.at = out;
      pair.rows = rows_between(merged[pair.arena], pair.row_begin, pair.row_end);
      const std::size_t floats = static_cast<std::size_t>(pair.rows.count) * partials(pair.own_shard);
      counts_out_[pair.rank] += floats;
      out += floats;
    }
    for (Pair& pair : receives_) {
      pair.at = in;
      pair.rows = rows_between(merged[pair.arena], pair.row_begin, pair.row_end);
      const std::size_t floats = static_cast<std::size_t>(pair.rows.count) * partials(pair.other_shard);
      counts_in_[pair.rank] += floats;
      in += floats;
    }
    send_.resize(backend_, out);
    receive_.resize(backend_, in);
    for (const Pair& pair : sends_) write(pair, merged);
    communicator_.all_to_all(std::span<const float>(send_.span()), counts_out_, receive_.span(), counts_in_);
    return combine(merged);
  }

 private:
  struct Range {
    std::int64_t first, count;  // of merged rows
  };
  /// Two shards of one table with rows in common: one of this rank's, and one that needs its partial sums (and the other way round).
  struct Pair {
    int rank;
    int own_shard, other_shard;
    std::size_t arena, segment;
    std::int64_t row_begin, row_end;  // arena rows of the common part
    std::size_t at = 0;               // first float in the message
    Range rows{};
  };

  const Rectangle& rectangle(int shard) const { return layout_.shards[shard].rectangle; }
  std::size_t partials(int shard) const {
    const Rectangle& r = rectangle(shard);
    return static_cast<std::size_t>(mean_square_partials(r.column_begin, r.column_end, table_width(shard)));
  }
  int table_width(int shard) const { return layout_.tables[layout_.shards[shard].table].width; }

  void add_pairs(std::size_t arena, std::size_t segment) {
    const ArenaPlan& plan = routing_.arenas()[arena];
    const int own = plan.shards[segment];
    const Rectangle& mine = rectangle(own);
    for (std::size_t s = 0; s < layout_.shards.size(); ++s) {
      const Shard& other = layout_.shards[s];
      if (other.table != layout_.shards[own].table || static_cast<int>(s) == own) continue;
      const std::int64_t begin = std::max(mine.row_begin, other.rectangle.row_begin), end = std::min(mine.row_end, other.rectangle.row_end);
      if (begin >= end) continue;
      const std::int64_t bias = plan.segments[segment].row_offset - mine.row_begin;
      const Pair pair{other.rank, own, static_cast<int>(s), arena, segment, begin + bias, end + bias};
      // Every rank has a copy of a replicated shard: it takes from whoever holds the other one, and gives to its own rank alone.
      const bool own_replicated = layout_.shards[own].rank == every_rank, other_replicated = other.rank == every_rank;
      for (int rank = 0; rank < routing_.ranks(); ++rank) {
        const bool self = rank == routing_.rank();
        const bool holds_other = other_replicated || other.rank == rank;
        if (holds_other && (!own_replicated || self)) add(sends_, pair, rank);
        if (other_replicated ? self : other.rank == rank) add(receives_, pair, rank);
      }
    }
  }

  static void add(std::vector<Pair>& pairs, Pair pair, int rank) {
    pair.rank = rank;
    pairs.push_back(pair);
  }

  static Range rows_between(const MergedGradients& m, std::int64_t begin, std::int64_t end) {
    const std::int64_t first = std::lower_bound(m.rows, m.rows + m.count, begin) - m.rows;
    const std::int64_t last = std::lower_bound(m.rows + first, m.rows + m.count, end) - m.rows;
    return {first, last - first};
  }

  void write(const Pair& pair, std::span<const MergedGradients> merged) {
    const Rectangle& r = rectangle(pair.own_shard);
    const std::size_t step = partials(pair.own_shard);
    float* to = send_.data() + pair.at;
    for (std::int64_t i = 0; i < pair.rows.count; ++i, to += step)
      write_mean_square_partials(merged[pair.arena].gradients + (pair.rows.first + i) * r.width(), r.column_begin, r.column_end,
                                 table_width(pair.own_shard), to);
  }

  std::vector<std::span<const float>> combine(std::span<const MergedGradients> merged) {
    std::size_t total = 0;
    for (std::size_t a = 0; a < merged.size(); ++a)
      if (routing_.arenas()[a].columns_split) total += static_cast<std::size_t>(merged[a].count);
    float* next = result_.resize(backend_, total).data();
    std::vector<std::span<const float>> results(merged.size());
    std::vector<float> own_partials;
    std::vector<const Pair*> others;
    for (std::size_t a = 0; a < merged.size(); ++a) {
      const ArenaPlan& plan = routing_.arenas()[a];
      if (!plan.columns_split) continue;
      results[a] = {next, static_cast<std::size_t>(merged[a].count)};
      for (std::size_t segment = 0; segment < plan.shards.size(); ++segment) {
        const int own = plan.shards[segment];
        others.clear();
        for (const Pair& pair : receives_)
          if (pair.arena == a && pair.segment == segment) others.push_back(&pair);
        std::sort(others.begin(), others.end(), [&](const Pair* x, const Pair* y) {
          return rectangle(x->other_shard).column_begin < rectangle(y->other_shard).column_begin;
        });
        own_partials.resize(partials(own));
        const ArenaSegment& rows = plan.segments[segment];
        const Range range = rows_between(merged[a], rows.row_offset, rows.row_offset + rows.rows);
        for (std::int64_t i = range.first; i < range.first + range.count; ++i)
          *next++ = mean_of_row(merged[a], i, own, others, own_partials);
      }
    }
    return results;
  }

  /// Adds the row's parts in column order: the other shards' from the message, this shard's own where its columns come.
  float mean_of_row(const MergedGradients& m, std::int64_t i, int own, const std::vector<const Pair*>& others,
                    std::vector<float>& own_partials) {
    const Rectangle& mine = rectangle(own);
    const int width = table_width(own);
    MeanSquareSum sum;
    bool own_added = false;
    const auto add_own = [&] {
      write_mean_square_partials(m.gradients + i * mine.width(), mine.column_begin, mine.column_end, width, own_partials.data());
      sum.add(own_partials.data(), mine.column_begin, mine.column_end, width);
      own_added = true;
    };
    for (const Pair* pair : others) {
      if (m.rows[i] < pair->row_begin || m.rows[i] >= pair->row_end) continue;
      const Rectangle& r = rectangle(pair->other_shard);
      if (!own_added && r.column_begin > mine.column_begin) add_own();
      const std::size_t index = static_cast<std::size_t>(i - pair->rows.first);
      sum.add(receive_.data() + pair->at + index * partials(pair->other_shard), r.column_begin, r.column_end, width);
    }
    if (!own_added) add_own();
    return sum.mean(width);
  }

  const Backend& backend_;
  Communicator& communicator_;
  const Layout& layout_;
  const Routing& routing_;
  std::vector<Pair> sends_, receives_;
  std::vector<std::size_t> counts_out_, counts_in_;
  Buffer<float, Backend> send_, receive_, result_;
};

}  // namespace tessera::inline v0
