// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/row_observer.hpp>
#include <tessera/stage/agreement.hpp>
#include <tessera/stage/mean_square_exchange.hpp>
#include <tessera/stage/optional_collectives.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/marked_rows.hpp>
#include <tessera/tables/table_store.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera::inline v0 {

/// Stage `update` on one rank's arenas. Most arenas are updated by one fused operation. Replicated
/// ones first gather all ranks' merged gradients; those whose columns are cut, under a row-wise
/// optimizer, first exchange parts of the mean squares.
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
        weight_mean_squares_(backend, communicator, store.layout(), store.routing()),
        merged_(arenas_.size()),
        merged_rows_(arenas_.size()),
        merged_gradients_(arenas_.size()),
        replicas_(arenas_.size()) {}

  /// Who is told of rows before they change.
  std::vector<RowObserver*>& observers() { return observers_; }
  /// Who remembers which rows change.
  std::vector<MarkedRows<Backend>*>& marks() { return marks_; }

  /// Whether ranks must talk about arena `a` before its rows can be updated.
  bool shared(std::size_t a) const {
    return routing_.arenas()[a].replicated || routing_.arenas()[a].columns_split;
  }

  /// Merges the gradients of a shared arena; of a replicated one over all ranks. Collective for
  /// replicated arenas. No table changes. `fixed_sizes`: every rank's groups have as much room (see
  /// Step). Else throws InvalidArgument where ranks' learning rates differ: their copies would.
  template <IdType Id>
  void gather(std::size_t a, const std::vector<op::GradientGroup<Id>>& groups, bool fixed_sizes,
              float learning_rate) {
    const bool replicated = routing_.arenas()[a].replicated;
    if constexpr (Store::copies)
      if (replicated) gather_replicas<Id>(a, groups, fixed_sizes, learning_rate);
    if constexpr (splits)
      if (routing_.arenas()[a].columns_split)
        merged_[a] =
            replicated ? merge(a, replicas_[a].groups, fixed_sizes) : merge(a, groups, fixed_sizes);
  }

  /// After `gather` of every shared arena. Collective. No table changes. `most_entries`: as
  /// MeanSquareExchange's; `step` and `functor` as for `apply`.
  void exchange(std::span<const std::int64_t> most_entries, std::int64_t step,
                const typename O::Step& functor) {
    if constexpr (splits && op::measures_rows<O>) {
      measure(step, functor);
      row_mean_squares_ =
          mean_squares_.run_stage(MeasuresUpdates<O> ? measured_.rows : merged_, most_entries);
      if constexpr (MeasuresWeights<O>)
        row_weight_mean_squares_ = weight_mean_squares_.run_stage(weights_.rows, most_entries);
    } else if constexpr (splits) {
      row_mean_squares_ = mean_squares_.run_stage(merged_, most_entries);
    }
  }

  /// Applies the optimizer to arena `a`; `groups` are for arenas that are not shared. `now`: as in
  /// op::ArenaState. Asks no other rank.
  template <IdType Id>
  void apply(std::size_t a, std::int64_t step, const typename O::Step& functor,
             const op::StepValues<O>* now, const std::vector<op::GradientGroup<Id>>& groups) {
    if (!observers_.empty() || !marks_.empty()) tell(a, groups);
    Store::with_width(arenas_[a].width(), [&]<int Width>(std::integral_constant<int, Width>) {
      if constexpr (splits)
        if (routing_.arenas()[a].columns_split) return apply_split<Width>(a, step, functor, now);
      if constexpr (Store::copies)
        if (routing_.arenas()[a].replicated)
          return op::run<op::Update<T, std::int64_t, Width, O>>(
              backend_, {store_.state(a, step, now), functor, replicas_[a].groups});
      op::run<op::Update<T, Id, Width, O>>(backend_, {store_.state(a, step, now), functor, groups});
    });
  }

  // ---- for gradients that are merged already (Accumulator), over all ranks where rows are
  // replicated, in place of `gather` and `apply` ----

  static std::vector<op::GradientGroup<std::int64_t>> group_of(const op::MergedGradients& merged,
                                                               std::int64_t width) {
    if (merged.count == 0) return {};
    op::Bags<std::int64_t> bags;
    bags.ids = merged.rows;
    bags.bags = bags.entry_bound = merged.count;
    return {{bags, merged.gradients, width}};
  }

  /// A replicated arena's, of all ranks; lives until the next call. Collective.
  op::MergedGradients merge_over_ranks(std::size_t a, const op::MergedGradients& own,
                                       float learning_rate) {
    gather_replicas<std::int64_t>(a, group_of(own, arenas_[a].width()), false, learning_rate);
    return merge(a, replicas_[a].groups, false);
  }
  void take(std::size_t a, const op::MergedGradients& merged) { merged_[a] = merged; }

  /// After `exchange`.
  void apply_merged(std::size_t a, std::int64_t step, const typename O::Step& functor,
                    const op::StepValues<O>* now) {
    const auto groups = group_of(merged_[a], arenas_[a].width());
    if (!observers_.empty() || !marks_.empty()) tell_bags<std::int64_t>(a, bags_of(groups));
    Store::with_width(arenas_[a].width(), [&]<int Width>(std::integral_constant<int, Width>) {
      if constexpr (splits)
        if (routing_.arenas()[a].columns_split) return apply_split<Width>(a, step, functor, now);
      op::run<op::Update<T, std::int64_t, Width, O>>(backend_,
                                                     {store_.state(a, step, now), functor, groups});
    });
  }

 private:
  /// Whether an optimizer that needs whole rows may meet cut ones.
  static constexpr bool splits = O::needs_mean_square && Store::cuts_columns;

  /// What a rank tells before its merged gradients of a replicated arena.
  struct Gathered {
    std::int64_t count = 0;  ///< rows
    float learning_rate = 0;
    std::uint32_t padding = 0;
  };
  /// All ranks' merged gradients of a replicated arena.
  struct Replicas {
    Buffer<std::int64_t, Backend> rows;
    Buffer<float, Backend> gradients;
    std::vector<op::GradientGroup<std::int64_t>> groups;
  };

  /// What an optimizer measures of the rows of arenas with cut columns: as merged gradients, which
  /// the exchange of mean squares takes.
  struct Measured {
    std::vector<op::MergedGradients> rows;  // by arena
    std::vector<Buffer<float, Backend>> values;

    float* resize(const Backend& backend, const op::MergedGradients& merged, std::size_t a,
                  std::size_t arenas, int width) {
      rows.resize(arenas);
      values.resize(arenas);
      rows[a] = merged;
      rows[a].gradients = values[a]
                              .resize(backend, static_cast<std::size_t>(merged.count) *
                                                   static_cast<std::size_t>(width))
                              .data();
      return rows[a].gradients;
    }
  };

  void measure(std::int64_t step, const typename O::Step& functor) {
    for (std::size_t a = 0; a < arenas_.size(); ++a) {
      const auto room = [&](Measured& to) {
        return to.resize(backend_, merged_[a], a, arenas_.size(), arenas_[a].width());
      };
      if (!routing_.arenas()[a].columns_split) continue;
      op::run<op::Measure<T, O>>(backend_, {store_.state(a, step), functor, merged_[a],
                                            MeasuresUpdates<O> ? room(measured_) : nullptr,
                                            MeasuresWeights<O> ? room(weights_) : nullptr});
    }
    measured_.rows.resize(arenas_.size());
    weights_.rows.resize(arenas_.size());
  }

  template <int Width>
  void apply_split(std::size_t a, std::int64_t step, const typename O::Step& functor,
                   const op::StepValues<O>* now) {
    op::run<op::Apply<T, Width, O>>(
        backend_, {store_.state(a, step, now), functor, merged_[a], row_mean_squares_[a],
                   MeasuresWeights<O> ? row_weight_mean_squares_[a] : nullptr});
  }

  static std::size_t total(const std::vector<std::size_t>& counts) {
    std::size_t sum = 0;
    for (const std::size_t n : counts) sum += n;
    return sum;
  }

  template <IdType Id>
  static std::int64_t entries_of(const std::vector<op::GradientGroup<Id>>& groups) {
    std::int64_t entries = 0;
    for (const op::GradientGroup<Id>& group : groups) entries += group.bags.entry_bound;
    return entries;
  }

  /// Merges into this collection's buffers of the arena.
  template <IdType Id>
  op::MergedGradients merge(std::size_t a, const std::vector<op::GradientGroup<Id>>& groups,
                            bool padded) {
    const std::size_t room =
        static_cast<std::size_t>(std::min(entries_of(groups), arenas_[a].rows()));
    op::MergedGradients merged{
        0, merged_rows_[a].resize(backend_, room).data(),
        merged_gradients_[a]
            .resize(backend_, room * static_cast<std::size_t>(arenas_[a].width()))
            .data()};
    // room that is left over travels, too
    if (padded) backend_.fill_zero(merged.gradients, merged_gradients_[a].size() * sizeof(float));
    Store::with_width(arenas_[a].width(), [&]<int Width>(std::integral_constant<int, Width>) {
      op::run<op::Merge<Id, Width>>(
          backend_, {arenas_[a].rows(), arenas_[a].width(), groups, &merged, padded});
    });
    return merged;
  }

  template <IdType Id>
  void tell(std::size_t a, const std::vector<op::GradientGroup<Id>>& groups) {
    if (routing_.arenas()[a].columns_split) {
      op::Bags<std::int64_t> rows;
      rows.ids = merged_[a].rows;
      rows.bags = rows.entry_bound = merged_[a].count;
      tell_bags<std::int64_t>(a, {&rows, 1});
    } else if (routing_.arenas()[a].replicated) {
      tell_bags<std::int64_t>(a, bags_of(replicas_[a].groups));
    } else {
      tell_bags<Id>(a, bags_of(groups));
    }
  }

  template <IdType Id>
  static std::vector<op::Bags<Id>> bags_of(const std::vector<op::GradientGroup<Id>>& groups) {
    std::vector<op::Bags<Id>> bags;
    for (const op::GradientGroup<Id>& group : groups) bags.push_back(group.bags);
    return bags;
  }

  template <IdType Id>
  void tell_bags(std::size_t a, std::span<const op::Bags<Id>> all) {
    for (MarkedRows<Backend>* marks : marks_) marks->template mark<Id>(a, all);
    if (observers_.empty()) return;
    for (const op::Bags<Id>& bags : all) tell_observers(a, bags);
  }

  template <IdType Id>
  void tell_observers(std::size_t a, const op::Bags<Id>& bags) {
    if (bags.bags == 0) return;
    for (std::int64_t i = bags.begin(0), end = bags.end(bags.bags - 1); i < end;) {
      touched_.clear();
      for (const std::int64_t last = std::min<std::int64_t>(end, i + 4096); i < last; ++i)
        touched_.push_back(bags.ids[i] + bags.row_bias);
      for (RowObserver* observer : observers_) observer->touch(static_cast<int>(a), touched_);
    }
  }

  /// Replicated tables: every rank merges its own gradients; all get all, as one group per rank, so
  /// that they are added in rank order.
  template <IdType Id>
  void gather_replicas(std::size_t a, const std::vector<op::GradientGroup<Id>>& groups,
                       bool fixed_sizes, float learning_rate) {
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks()),
                      width = static_cast<std::size_t>(arenas_[a].width());
    const op::MergedGradients own = merge(a, groups, fixed_sizes);
    std::vector<std::size_t> counts(ranks, 1), row_counts(ranks), float_counts(ranks);
    const Gathered mine{own.count, learning_rate};
    std::vector<Gathered> gathered(ranks, mine);
    if (!fixed_sizes)
      detail::all_gather<Gathered>(communicator_, std::span<const Gathered>(&mine, 1), gathered,
                                   counts);
    for (std::size_t r = 0; r < ranks; ++r) {
      detail::require_same_rate("update", routing_.rank(), learning_rate, static_cast<int>(r),
                                gathered[r].learning_rate);
      row_counts[r] = static_cast<std::size_t>(gathered[r].count);
      float_counts[r] = row_counts[r] * width;
    }
    Replicas& all = replicas_[a];
    all.rows.resize(backend_, total(row_counts));
    all.gradients.resize(backend_, total(float_counts));
    detail::all_gather<std::int64_t>(communicator_, {own.rows, row_counts[routing_.rank()]},
                                     all.rows.span(), row_counts);
    detail::all_gather<float>(communicator_, {own.gradients, float_counts[routing_.rank()]},
                              all.gradients.span(), float_counts);
    all.groups.clear();
    const std::int64_t* rows = all.rows.data();
    const float* gradients = all.gradients.data();
    for (std::size_t r = 0; r < ranks; ++r) {
      op::Bags<std::int64_t> bags;
      bags.ids = rows;
      bags.bags = bags.entry_bound = gathered[r].count;
      if (bags.bags != 0) all.groups.push_back({bags, gradients, static_cast<std::int64_t>(width)});
      rows += row_counts[r];
      gradients += float_counts[r];
    }
  }

  const Backend& backend_;
  Comm& communicator_;
  const Store& store_;
  const RankLayout& routing_;
  const std::vector<Arena<T, O, Backend>>& arenas_;
  MeanSquareExchange<Backend, Comm> mean_squares_, weight_mean_squares_;
  Measured measured_, weights_;
  std::vector<op::MergedGradients> merged_;  // by arena, as what follows
  std::vector<Buffer<std::int64_t, Backend>> merged_rows_;
  std::vector<Buffer<float, Backend>> merged_gradients_;
  std::vector<Replicas> replicas_;
  std::span<const float* const> row_mean_squares_, row_weight_mean_squares_;
  std::vector<RowObserver*> observers_;
  std::vector<MarkedRows<Backend>*> marks_;
  std::vector<std::int64_t> touched_;
};

}  // namespace tessera::inline v0
