// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/stage/optional_collectives.hpp>
#include <tessera/stage/step.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Sequences and max pooling with model-parallel input. Every rank that holds ids finds the
/// distinct ones of each rank's samples: these are what LocalIdExchange cuts, as batches of their
/// own. No id travels. The first rank that holds ids of a feature tells one that holds none where
/// among the distinct ones its samples' ids are, and its offsets.
template <IdType Id, class Backend, class Communicator>
class LocalDistinctRows {
  using StepState = Step<Id, Backend>;
  using Rows = DistinctRows<Id, Backend>;
  using Found = typename Rows::Found;

 public:
  LocalDistinctRows(const Backend& backend, Communicator& communicator, const Layout& layout,
                    const RankLayout& routing)
      : backend_(backend), communicator_(communicator), layout_(layout), routing_(routing) {}

  /// step.batch holds all ranks' samples of the local features. Throws InvalidArgument where
  /// another rank has other samples or ids than this one. Collective.
  void find(StepState& step, BadIds bad_ids, std::int64_t blocks) {
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks());
    std::vector<Rows>& others = step.distinct_of_others.rows_;
    if (others.size() != ranks) others = std::vector<Rows>(ranks);
    std::vector<typename Rows::Job> jobs;
    std::vector<std::size_t> ends;
    for (std::size_t r = 0; r < ranks; ++r) {
      rows_of(step, r).list_jobs(backend_, layout_, routing_, step.batch, r,
                                 {.bad_ids = bad_ids, .blocks = blocks, .local = true}, jobs);
      ends.push_back(jobs.size());
    }
    op::run<op::DistinctIds<Id>>(backend_, {jobs});
    for (std::size_t r = 0, begin = 0; r < ranks; begin = ends[r++])
      rows_of(step, r).take_found(backend_, std::span(jobs).subspan(begin, ends[r] - begin));
    list_holders();
    const bool travels = std::ranges::any_of(held_, [](const auto& held) { return !held.empty(); });
    if (ranks > 1 && travels) {
      compare(step);
      tell(step);
    }
    for (const SequenceVectors& asked : std::exchange(step.vectors, {}))
      step.distinct.set_target(asked);
    step.distinct.make_room(backend_);
  }

 private:
  Rows& rows_of(StepState& step, std::size_t rank) const {
    return rank == own() ? step.distinct : step.distinct_of_others.rows_[rank];
  }
  std::size_t own() const { return static_cast<std::size_t>(routing_.rank()); }

  /// Of each rank, the features whose rows are not pooled and of which it holds ids that not all
  /// ranks hold; the same on every rank.
  void list_holders() {
    held_.assign(static_cast<std::size_t>(routing_.ranks()), {});
    on_all_.assign(layout_.features.size(), false);
    for (const Slot& slot : routing_.slots())
      if (slot.replicated) on_all_[static_cast<std::size_t>(slot.feature)] = true;
    for (const Slot& slot : routing_.slots()) {
      std::vector<int>& held = held_[static_cast<std::size_t>(slot.rank)];
      if (!slot.replicated && keeps_rows(layout_.features[slot.feature].pooling) &&
          (held.empty() || held.back() != slot.feature))  // slots are sorted by feature
        held.push_back(slot.feature);
    }
  }
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

  /// All holders tell each rank what they found of its samples: they must agree.
  void compare(StepState& step) {
    const std::size_t ranks = held_.size();
    std::vector<Found> out, in;
    std::vector<std::size_t> counts_out(ranks), counts_in(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == own()) continue;
      counts_out[r] = held_[own()].size();
      counts_in[r] = held_[r].size();
      for (const int f : held_[own()]) out.push_back(rows_of(step, r).found(f));
      in.resize(in.size() + counts_in[r]);
    }
    all_to_all<Found>(communicator_, out, counts_out, in, counts_in);
    found_.assign(layout_.features.size(), {});
    std::vector<std::size_t> by(layout_.features.size(), ranks);
    for (const int f : routing_.local_features())
      if (step.distinct.active(f)) found_[f] = step.distinct.found(f), by[f] = own();
    auto next = in.begin();
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == own()) continue;
      for (const int f : held_[r]) {
        const Found& found = *next++;
        require(
            found.samples == step.batch.samples(),
            "forward_model_parallel on rank {}: rank {} has {} samples for this rank, this rank "
            "says {}; give all ranks the same global batch and the same sample_begin",
            own(), r, found.samples, step.batch.samples());
        if (by[f] == ranks) found_[f] = found, by[f] = r;
        require(
            found_[f] == found,
            "forward_model_parallel on rank {}: of feature '{}' rank {} has {} ids ({} distinct) "
            "for this rank's samples, rank {} {} ({}); give every rank that holds a part of the "
            "table the same ids",
            own(), layout_.features[f].name, by[f], found_[f].ids, found_[f].rows, r, found.ids,
            found.rows);
      }
    }
  }

  /// f(feature) for all that rank `from` tells rank `to`.
  template <class F>
  void for_each_told(std::size_t from, std::size_t to, F&& f) const {
    for (const int feature : held_[from])
      if (tells(from, to, feature)) f(feature);
  }
  bool nobody_tells() const {
    for (const std::vector<int>& held : held_)
      for (const int f : held)
        for (std::size_t r = 0; r < held_.size(); ++r)
          if (!holds(r, f)) return false;
    return true;
  }

  void tell(StepState& step) {
    if (nobody_tells()) return;
    const std::size_t ranks = held_.size();
    const BlockAlignment blocks = block_alignment(communicator_);
    Counts out(ranks), in(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      for_each_told(own(), r, [&](int f) { out.add(r, rows_of(step, r).found(f)); });
      for_each_told(r, own(), [&](int f) { in.add(r, found_[f]); });
      out.pad(r, blocks);
      in.pad(r, blocks);
    }
    auto [index, offsets] = out.resize(backend_, step.distinct_of_others.index_out_,
                                       step.distinct_of_others.offsets_out_);
    for (std::size_t r = 0; r < ranks; index += out.ids[r], offsets += out.offsets[r++]) {
      std::int32_t* next_index = index;
      std::int64_t* next_offsets = offsets;
      for_each_told(own(), r, [&](int f) {
        const Rows& rows = rows_of(step, r);
        const Found found = rows.found(f);
        copy(next_index, rows.index(f), found.ids);
        copy(next_offsets, rows.offsets(f), found.samples + 1);
      });
    }
    auto [index_in, offsets_in] =
        in.resize(backend_, step.distinct_of_others.index_in_, step.distinct_of_others.offsets_in_);
    all_to_all<std::int32_t>(communicator_, step.distinct_of_others.index_out_.span(), out.ids,
                             step.distinct_of_others.index_in_.span(), in.ids);
    all_to_all<std::int64_t>(communicator_, step.distinct_of_others.offsets_out_.span(),
                             out.offsets, step.distinct_of_others.offsets_in_.span(), in.offsets);
    for (std::size_t r = 0; r < ranks; index_in += in.ids[r], offsets_in += in.offsets[r++]) {
      std::int32_t* next_index = index_in;
      std::int64_t* next_offsets = offsets_in;
      for_each_told(r, own(), [&](int f) {
        step.distinct.set_found(f, found_[f], next_index, next_offsets);
        next_index += found_[f].ids;
        next_offsets += found_[f].samples + 1;
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
  void copy(T*& to, const T* from, std::int64_t count) const {
    if (count != 0) backend_.copy(to, from, static_cast<std::size_t>(count) * sizeof(T));
    to += count;
  }

  const Backend& backend_;
  Communicator& communicator_;
  const Layout& layout_;
  const RankLayout& routing_;
  std::vector<std::vector<int>> held_;  // by rank, ascending
  std::vector<bool> on_all_;            // by feature
  std::vector<Found> found_;            // of this rank's samples, by feature
};

}}}  // namespace tessera::v0::detail
