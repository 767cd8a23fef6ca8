// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/mean_square_exchange.hpp>
#include <tessera/collection/table_store.hpp>
#include <tessera/table/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera::inline v0 {

/// Stage `update` on one rank's arenas. Most arenas are updated by one fused operation. Replicated ones first gather all ranks' merged
/// gradients; those whose columns are cut, under a row-wise optimizer, first exchange parts of the mean squares.
template <class Store, Optimizer O, class Backend, class Comm>
class Updater {
  using T = typename Store::element;

 public:
  Updater(const Backend& backend, Comm& communicator, const Store& store)
      : backend_(backend),
        communicator_(communicator),
        store_(store),
        routing_(store.routing()),
        arenas_(store.arenas()),
        mean_squares_(backend, communicator, store.layout(), store.routing()),
        merged_(arenas_.size()),
        merged_rows_(arenas_.size()),
        merged_gradients_(arenas_.size()) {}

  /// Merges the gradients of arena `a` and applies the optimizer, or leaves that to `finish`. Collective for replicated arenas.
  template <IdType Id>
  void update(std::size_t a, std::int64_t step, const typename O::Step& functor, const std::vector<GradientGroup<Id>>& groups) {
    if (routing_.arenas()[a].replicated)
      merge_or_update<std::int64_t>(a, step, functor, gather_replicas<Id>(a, groups));
    else
      merge_or_update<Id>(a, step, functor, groups);
  }

  /// The rest, after `update` of every arena. Collective.
  void finish(std::int64_t step, const typename O::Step& functor) {
    if constexpr (O::needs_mean_square) apply_split_arenas(step, functor);
  }

 private:
  static std::size_t total(const std::vector<std::size_t>& counts) {
    std::size_t sum = 0;
    for (const std::size_t n : counts) sum += n;
    return sum;
  }

  template <IdType Id>
  static std::int64_t entries_of(const std::vector<GradientGroup<Id>>& groups) {
    std::int64_t entries = 0;
    for (const GradientGroup<Id>& group : groups) entries += group.bags.entry_bound;
    return entries;
  }

  /// Merges into this collection's buffers of the arena.
  template <IdType Id>
  MergedGradients merge(std::size_t a, const std::vector<GradientGroup<Id>>& groups) {
    const std::size_t room = static_cast<std::size_t>(std::min(entries_of(groups), arenas_[a].rows()));
    MergedGradients merged{0, merged_rows_[a].resize(backend_, room).data(),
                           merged_gradients_[a].resize(backend_, room * static_cast<std::size_t>(arenas_[a].width())).data()};
    Store::with_width(arenas_[a].width(), [&]<int Width>(std::integral_constant<int, Width>) {
      run<Merge<Id, Width>>(backend_, {arenas_[a].rows(), arenas_[a].width(), groups, &merged});
    });
    return merged;
  }

  template <IdType Id>
  void merge_or_update(std::size_t a, std::int64_t step, const typename O::Step& functor, const std::vector<GradientGroup<Id>>& groups) {
    if (routing_.arenas()[a].columns_split) {
      merged_[a] = merge(a, groups);
      return;
    }
    Store::with_width(arenas_[a].width(), [&]<int Width>(std::integral_constant<int, Width>) {
      run<Update<T, Id, Width, O>>(backend_, {store_.state(a, step), functor, groups});
    });
  }

  /// Replicated tables: every rank merges its own gradients; all get all, as one group per rank, so that they are added in rank order.
  template <IdType Id>
  const std::vector<GradientGroup<std::int64_t>>& gather_replicas(std::size_t a, const std::vector<GradientGroup<Id>>& groups) {
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks()), width = static_cast<std::size_t>(arenas_[a].width());
    const MergedGradients own = merge(a, groups);
    std::vector<std::size_t> counts(ranks, 1), row_counts(ranks), float_counts(ranks);
    const std::int64_t own_count = own.count;
    std::vector<std::int64_t> all_counts(ranks);
    communicator_.all_gather(std::span<const std::int64_t>(&own_count, 1), std::span<std::int64_t>(all_counts), counts);
    for (std::size_t r = 0; r < ranks; ++r) {
      row_counts[r] = static_cast<std::size_t>(all_counts[r]);
      float_counts[r] = row_counts[r] * width;
    }
    replica_rows_.resize(backend_, total(row_counts));
    replica_gradients_.resize(backend_, total(float_counts));
    communicator_.all_gather(std::span<const std::int64_t>(own.rows, row_counts[routing_.rank()]), replica_rows_.span(), row_counts);
    communicator_.all_gather(std::span<const float>(own.gradients, float_counts[routing_.rank()]), replica_gradients_.span(), float_counts);
    replica_groups_.clear();
    const std::int64_t* rows = replica_rows_.data();
    const float* gradients = replica_gradients_.data();
    for (std::size_t r = 0; r < ranks; ++r) {
      Bags<std::int64_t> bags;
      bags.ids = rows;
      bags.bags = bags.entry_bound = all_counts[r];
      if (bags.bags != 0) replica_groups_.push_back({bags, gradients, static_cast<std::int64_t>(width)});
      rows += row_counts[r];
      gradients += float_counts[r];
    }
    return replica_groups_;
  }

  void apply_split_arenas(std::int64_t step, const typename O::Step& functor) {
    const std::vector<const float*> mean_squares = mean_squares_.run_stage(merged_);
    for (std::size_t a = 0; a < arenas_.size(); ++a)
      if (routing_.arenas()[a].columns_split)
        Store::with_width(arenas_[a].width(), [&]<int Width>(std::integral_constant<int, Width>) {
          run<Apply<T, Width, O>>(backend_, {store_.state(a, step), functor, merged_[a], mean_squares[a]});
        });
  }

  const Backend& backend_;
  Comm& communicator_;
  const Store& store_;
  const Routing& routing_;
  const std::vector<Arena<T, O, Backend>>& arenas_;
  MeanSquareExchange<Backend, Comm> mean_squares_;
  std::vector<MergedGradients> merged_;  // by arena, as the next two
  std::vector<Buffer<std::int64_t, Backend>> merged_rows_;
  std::vector<Buffer<float, Backend>> merged_gradients_;
  Buffer<std::int64_t, Backend> replica_rows_;
  Buffer<float, Backend> replica_gradients_;
  std::vector<GradientGroup<std::int64_t>> replica_groups_;
};

}  // namespace tessera::inline v0
