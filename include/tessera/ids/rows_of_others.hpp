// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/optional_collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/distinct_rows.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Who holds ids with model-parallel input: of each rank, the features whose rows are not pooled
/// and of which it holds ids that not all ranks hold; the same on every rank.
class IdHolders {
 public:
  IdHolders(const Layout& layout, const RankLayout& routing)
      : held_(static_cast<std::size_t>(routing.ranks())), on_all_(layout.features.size()) {
    for (const Slot& slot : routing.slots())
      if (slot.replicated) on_all_[static_cast<std::size_t>(slot.feature)] = true;
    for (const Slot& slot : routing.slots()) {
      std::vector<int>& held = held_[static_cast<std::size_t>(slot.rank)];
      if (!slot.replicated && keeps_rows(layout.features[slot.feature].pooling) &&
          (held.empty() || held.back() != slot.feature))  // slots are sorted by feature
        held.push_back(slot.feature);
    }
  }

  std::size_t ranks() const { return held_.size(); }
  const std::vector<int>& of(std::size_t rank) const { return held_[rank]; }
  /// Returns whether any rank holds ids that not all hold.
  bool any() const {
    return std::ranges::any_of(held_, [](const auto& held) { return !held.empty(); });
  }
  /// Calls f(feature) for all that rank `from` tells rank `to`: the first that holds a feature tells
  /// those that do not.
  template <class F>
  void for_each_told(std::size_t from, std::size_t to, F&& f) const {
    for (const int feature : held_[from])
      if (tells(from, to, feature)) f(feature);
  }
  /// Returns whether any rank tells another.
  bool any_told() const {
    for (const std::vector<int>& held : held_)
      for (const int f : held)
        for (std::size_t r = 0; r < held_.size(); ++r)
          if (!holds(r, f)) return true;
    return false;
  }

 private:
  bool holds(std::size_t rank, int feature) const {
    return on_all_[static_cast<std::size_t>(feature)] ||
           std::binary_search(held_[rank].begin(), held_[rank].end(), feature);
  }
  bool tells(std::size_t from, std::size_t to, int feature) const {
    const auto teller = std::find_if(held_.begin(), held_.end(), [&](const std::vector<int>& held) {
      return std::binary_search(held.begin(), held.end(), feature);
    });
    return static_cast<std::size_t>(teller - held_.begin()) == from && !holds(to, feature);
  }

  std::vector<std::vector<int>> held_;  // by rank, ascending
  std::vector<bool> on_all_;            // by feature
};

/// Sequences and max pooling with model-parallel input: rows of the samples of the other ranks, and
/// what ranks without a feature's ids are told of them. Every rank that holds ids finds the
/// distinct ones of each rank's samples: these are what RoutedIds::cut cuts, as batches of their
/// own. No id travels. The first rank that holds ids of a feature tells one that holds none where
/// among the distinct ones its samples' ids are, and its offsets. `State`: the Step that this is a
/// part of.
template <IdType Id, class Backend>
class RowsOfOthers {
  using Rows = DistinctRows<Id, Backend>;
  using Found = typename Rows::Found;

 public:
  const Rows& operator[](std::size_t rank) const { return rows_[rank]; }

  /// Finds distinct rows: step.batch holds all ranks' samples of the local features. Throws
  /// InvalidArgument if another rank has other samples or ids than this one. Collective.
  template <class State, class Comm>
  void find(const Backend& backend, Comm& communicator, const Layout& layout,
            const RankLayout& routing, State& step, BadIds bad_ids, std::int64_t blocks) {
    const std::size_t ranks = static_cast<std::size_t>(routing.ranks());
    own_ = static_cast<std::size_t>(routing.rank());
    if (rows_.size() != ranks) rows_ = std::vector<Rows>(ranks);
    PodVector<typename Rows::Job> jobs;
    std::vector<std::size_t> ends;
    for (std::size_t r = 0; r < ranks; ++r) {
      rows_of(step, r).list_jobs(backend, layout, routing, step.batch, r,
                                 {.bad_ids = bad_ids, .blocks = blocks, .local = true}, jobs);
      ends.push_back(jobs.size());
    }
    op::run<op::DistinctIds<Id>>(backend, {jobs});
    for (std::size_t r = 0, begin = 0; r < ranks; begin = ends[r++])
      rows_of(step, r).take_found(backend, std::span(jobs).subspan(begin, ends[r] - begin));
    const IdHolders holders(layout, routing);
    if (ranks > 1 && holders.any()) {
      const PodVector<Found> found = compare(communicator, layout, routing, holders, step);
      if (holders.any_told()) tell(backend, communicator, holders, found, step);
    }
    for (const SequenceVectors& asked : std::exchange(step.vectors, {}))
      step.distinct.set_target(asked);
    step.distinct.make_room(backend);
  }

 private:
  template <class State>
  Rows& rows_of(State& step, std::size_t rank) {
    return rank == own_ ? step.distinct : rows_[rank];
  }

  /// Compares: all holders tell each rank what they found of its samples: they must agree. Returns
  /// what was found of this rank's, by feature.
  template <class State, class Comm>
  PodVector<Found> compare(Comm& communicator, const Layout& layout, const RankLayout& routing,
                           const IdHolders& holders, State& step) {
    const std::size_t ranks = holders.ranks();
    PodVector<Found> out, in;
    std::vector<std::size_t> counts_out(ranks), counts_in(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == own_) continue;
      counts_out[r] = holders.of(own_).size();
      counts_in[r] = holders.of(r).size();
      for (const int f : holders.of(own_)) out.push_back(rows_of(step, r).found(f));
      in.resize(in.size() + counts_in[r]);
    }
    all_to_all<Found>(communicator, out, counts_out, in, counts_in);
    PodVector<Found> of_own(layout.features.size());
    std::vector<std::size_t> by(layout.features.size(), ranks);
    for (const int f : routing.local_features())
      if (step.distinct.active(f)) of_own[f] = step.distinct.found(f), by[f] = own_;
    auto next = in.begin();
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == own_) continue;
      for (const int f : holders.of(r)) {
        const Found& found = *next++;
        require(
            found.samples == step.batch.samples(),
            "forward_model_parallel on rank {}: rank {} has {} samples for this rank, this rank "
            "says {}; give all ranks the same global batch and the same sample_begin",
            own_, r, found.samples, step.batch.samples());
        if (by[f] == ranks) of_own[f] = found, by[f] = r;
        require(
            of_own[f] == found,
            "forward_model_parallel on rank {}: of feature '{}' rank {} has {} ids ({} distinct) "
            "for this rank's samples, rank {} {} ({}); give every rank that holds a part of the "
            "table the same ids",
            own_, layout.features[f].name, by[f], of_own[f].ids, of_own[f].rows, r, found.ids,
            found.rows);
      }
    }
    return of_own;
  }

  template <class State, class Comm>
  void tell(const Backend& backend, Comm& communicator, const IdHolders& holders,
            const PodVector<Found>& found, State& step) {
    const std::size_t ranks = holders.ranks();
    const BlockAlignment blocks = block_alignment(communicator);
    Counts out(ranks), in(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      holders.for_each_told(own_, r, [&](int f) { out.add(r, rows_of(step, r).found(f)); });
      holders.for_each_told(r, own_, [&](int f) { in.add(r, found[f]); });
      out.pad(r, blocks);
      in.pad(r, blocks);
    }
    auto [index, offsets] = out.resize(backend, index_out_, offsets_out_);
    for (std::size_t r = 0; r < ranks; index += out.ids[r], offsets += out.offsets[r++]) {
      std::int32_t* next_index = index;
      std::int64_t* next_offsets = offsets;
      holders.for_each_told(own_, r, [&](int f) {
        const Rows& rows = rows_of(step, r);
        copy(backend, next_index, rows.index(f), rows.found(f).ids);
        copy(backend, next_offsets, rows.offsets(f), rows.found(f).samples + 1);
      });
    }
    auto [index_in, offsets_in] = in.resize(backend, index_in_, offsets_in_);
    all_to_all<std::int32_t>(communicator, index_out_.span(), out.ids, index_in_.span(), in.ids);
    all_to_all<std::int64_t>(communicator, offsets_out_.span(), out.offsets, offsets_in_.span(),
                             in.offsets);
    for (std::size_t r = 0; r < ranks; index_in += in.ids[r], offsets_in += in.offsets[r++]) {
      std::int32_t* next_index = index_in;
      std::int64_t* next_offsets = offsets_in;
      holders.for_each_told(r, own_, [&](int f) {
        step.distinct.set_found(f, found[f], next_index, next_offsets);
        next_index += found[f].ids;
        next_offsets += found[f].samples + 1;
      });
    }
  }

  /// How many numbers travel to or from each rank.
  struct Counts {
    std::vector<std::size_t> ids, offsets;

    explicit Counts(std::size_t ranks) : ids(ranks), offsets(ranks) {}
    void add(std::size_t rank, const Found& found) {
      ids[rank] += static_cast<std::size_t>(found.ids);
      offsets[rank] += static_cast<std::size_t>(found.samples) + 1;
    }
    void pad(std::size_t rank, const BlockAlignment& blocks) {
      ids[rank] = blocks.padded<std::int32_t>(ids[rank]);
      offsets[rank] = blocks.padded<std::int64_t>(offsets[rank]);
    }
    struct Places {
      std::int32_t* index;
      std::int64_t* offsets;
    };
    Places resize(const Backend& backend, Buffer<std::int32_t, Backend>& index,
                  Buffer<std::int64_t, Backend>& of_samples) const {
      const auto sum = [](const std::vector<std::size_t>& counts) {
        std::size_t all = 0;
        for (const std::size_t count : counts) all += count;
        return all;
      };
      return {index.resize(backend, sum(ids)).data(),
              of_samples.resize(backend, sum(offsets)).data()};
    }
  };

  template <class T>
  static void copy(const Backend& backend, T*& to, const T* from, std::int64_t count) {
    if (count != 0) backend.copy(to, from, static_cast<std::size_t>(count) * sizeof(T));
    to += count;
  }

  std::vector<Rows> rows_;  // by rank
  std::size_t own_ = 0;     // this rank
  Buffer<std::int32_t, Backend> index_out_, index_in_;
  Buffer<std::int64_t, Backend> offsets_out_, offsets_in_;
};

}}}  // namespace tessera::v0::detail
