// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tables/arena_kernels.hpp>
#include <tessera/tables/table_store.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// The functions behind arena_kernels.hpp for one TableStore: each finds an arena's width, element
/// type and training group, and runs the kernel for them.
template <class Store>
class KernelsOf;

template <class WidthList, Element E, class Trained, class Backend>
class KernelsOf<TableStore<WidthList, E, Trained, Backend>> {
  using Store = TableStore<WidthList, E, Trained, Backend>;
  using Tables = RankTables<Backend>;
  using Groups = typename Store::Groups;
  // Operations are named by std::decay_t: nvcc writes the way to a type into the names of kernels,
  // and cannot where it leads over names of tables (Train<O, Table<"name">>).
  template <int I>
  using T = std::decay_t<typename Store::Elements::template of<I>>;
  template <int I>
  using O = std::decay_t<typename Groups::template optimizer<I>>;

 public:
  template <IdType Id, Element Out>
  static void look_up(const Backend& backend, const Tables& tables, std::size_t a,
                      std::span<const op::LookupGroup<Id, Out>> groups) {
    of(tables).with_weights(a, [&]<int Width, class Weight>(const Weight* weights) {
      op::run<op::Lookup<Weight, Id, Width, Out>>(backend,
                                                  {weights, tables.arenas()[a].width(), groups});
    });
  }

  template <IdType Id, Element G>
  static void update(const Backend& backend, const Tables& tables, std::size_t a,
                     const AnyUpdateStep& now, std::span<const op::GradientGroup<Id, G>> groups,
                     std::int64_t* merged_rows, const op::SortedBatch& sorted) {
    with_trained(tables, a, [&]<int I, int Width>() {
      op::run<op::Update<T<I>, Id, Width, O<I>, G>>(
          backend, {state<I>(tables, a, now), std::get<I>(typed(now).functors), groups, merged_rows,
                    sorted});
    });
  }

  template <IdType Id, Element G>
  static void merge(const Backend& backend, const op::MergeParameters<Id, G>& call) {
    WidthList::dispatch(call.width, [&]<int Width>(std::integral_constant<int, Width>) {
      op::run<op::Merge<Id, Width, G>>(backend, call);
    });
  }

  template <IdType Id, Element G>
  static void dot(const Backend& backend, const Tables& tables, std::size_t a,
                  std::span<const op::WeightGradientGroup<Id, G>> groups) {
    of(tables).with_weights(a, [&]<int Width, class Weight>(const Weight* weights) {
      op::run<op::WeightGradients<Weight, Id, Width, G>>(
          backend, {weights, tables.arenas()[a].width(), groups});
    });
  }
  static void dot_whole_rows(const Backend& backend, const float* rows, int width,
                             const op::WeightGradientGroup<std::int32_t>& group) {
    WidthList::dispatch_whole(width, [&]<int Width>(std::integral_constant<int, Width>) {
      op::run<op::WeightGradients<float, std::int32_t, Width>>(backend, {rows, width, {&group, 1}});
    });
  }

  static constexpr WholeRowKernels<Backend> whole_rows() {
    return {look_up_whole_rows, merge_whole_rows};
  }
  static constexpr MergedRowKernels<Backend> merged_rows() {
    return {update<std::int64_t, float>, merge<std::int64_t, float>, apply, measure, measures};
  }

 private:
  template <int... I>
  static constexpr bool any_splits(std::integer_sequence<int, I...>) {
    return Store::cuts_columns && (O<I>::needs_mean_square || ...);
  }
  using EveryGroup = std::make_integer_sequence<int, Groups::count>;

 public:
  static constexpr Shared shared = any_splits(EveryGroup()) ? Shared::rows
                                   : Store::copies          ? Shared::copies
                                                            : Shared::nothing;
  /// Returns what a step needs of shared tables.
  static constexpr MergedRowKernels<Backend> shared_rows() {
    if constexpr (shared != Shared::nothing)
      return merged_rows();
    else
      return {};
  }
  /// Returns what merges a rank's own gradients of shared tables; null: there are none.
  template <IdType Id, Element G>
  static constexpr MergeRows<Id, G, Backend> shared_merge() {
    if constexpr (shared != Shared::nothing)
      return merge<Id, G>;
    else
      return nullptr;
  }

 private:
  static const Store& of(const Tables& tables) { return static_cast<const Store&>(tables); }
  static const UpdateStep<Trained>& typed(const AnyUpdateStep& now) {
    return static_cast<const UpdateStep<Trained>&>(now);
  }
  template <int I>
  static auto state(const Tables& tables, std::size_t a, const AnyUpdateStep& now) {
    return of(tables).template state<I>(a, now.number, std::get<I>(typed(now).on_backend));
  }

  /// Calls f.operator()<group, width>() for an arena that trains.
  template <class F>
  static void with_trained(const Tables& tables, std::size_t a, F&& f) {
    Store::with_group(tables.routing().arenas()[a].group, [&](auto group) {
      if constexpr (Groups::trains[static_cast<std::size_t>(group())])
        WidthList::template of<T<group()>, O<group()>>::dispatch(
            tables.arenas()[a].width(), [&]<int Width>(std::integral_constant<int, Width>) {
              f.template operator()<group(), Width>();
            });
    });
  }

  static void look_up_whole_rows(const Backend& backend, const float* rows, int width,
                                 const op::LookupGroup<std::int32_t>& group) {
    WidthList::dispatch_whole(width, [&]<int Width>(std::integral_constant<int, Width>) {
      op::run<op::Lookup<float, std::int32_t, Width>>(backend, {rows, width, {&group, 1}});
    });
  }
  static void merge_whole_rows(const Backend& backend,
                               const op::MergeParameters<std::int32_t>& call) {
    WidthList::dispatch_whole(call.width, [&]<int Width>(std::integral_constant<int, Width>) {
      op::run<op::Merge<std::int32_t, Width>>(backend, call);
    });
  }

  static void apply(const Backend& backend, const Tables& tables, std::size_t a,
                    const AnyUpdateStep& now, const op::MergedGradients& merged,
                    const float* mean_square, const float* weight_mean_square) {
    with_trained(tables, a, [&]<int I, int Width>() {
      if constexpr (O<I>::needs_mean_square && Store::cuts_columns)
        op::run<op::Apply<T<I>, Width, O<I>>>(
            backend, {state<I>(tables, a, now), std::get<I>(typed(now).functors), merged,
                      mean_square, weight_mean_square});
    });
  }
  static void measure(const Backend& backend, const Tables& tables, std::size_t a,
                      const AnyUpdateStep& now, const op::MergedGradients& merged, float* measured,
                      float* weights) {
    Store::with_group(tables.routing().arenas()[a].group, [&](auto group) {
      if constexpr (op::measures_rows<O<group()>> && Store::cuts_columns)
        op::run<op::Measure<T<group()>, O<group()>>>(
            backend, {of(tables).template state<group()>(a, now.number),
                      std::get<group()>(typed(now).functors), merged, measured, weights});
    });
  }
  static typename MergedRowKernels<Backend>::Measures measures(int group) {
    typename MergedRowKernels<Backend>::Measures found;
    Store::with_group(group,
                      [&](auto i) { found = {MeasuresUpdates<O<i()>>, MeasuresWeights<O<i()>>}; });
    return found;
  }
};

}}}  // namespace tessera::v0::detail
