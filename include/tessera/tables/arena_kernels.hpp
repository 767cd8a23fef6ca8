// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/lookup.hpp>
#include <tessera/op/update.hpp>
#include <tessera/op/weight_gradients.hpp>
#include <tessera/tables/training_groups.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace detail {

template <class Backend>
class RankTables;

// Kernels of the arenas of one collection, for its widths, element types and optimizers. Steps call
// them by pointer: so a step is compiled once for a backend and a communicator, whatever its tables
// are. KernelsOf has the functions. The tables are those that the kernels were made for.

/// An optimizer step as those see it that know no optimizer; it is an UpdateStep.
struct AnyUpdateStep {
  std::int64_t number = 0;  ///< counted from 1
};
/// What updates of one step go by, of each training group: its functor, and where its values are in
/// the backend's memory, or null (op::ArenaState::now).
template <class Trained>
struct UpdateStep : AnyUpdateStep {
  typename GroupsOf<Trained>::steps functors;
  typename GroupsOf<Trained>::step_values on_backend{};
};

/// op::Lookup on an arena.
template <IdType Id, Element Out, class Backend>
using LookUpArena = void (*)(const Backend&, const RankTables<Backend>&, std::size_t arena,
                             std::span<const op::LookupGroup<Id, Out>>);

/// op::Update on an arena that trains.
template <IdType Id, Element G, class Backend>
using UpdateArena = void (*)(const Backend&, const RankTables<Backend>&, std::size_t arena,
                             const AnyUpdateStep&, std::span<const op::GradientGroup<Id, G>>,
                             std::int64_t* merged_rows, const op::SortedBatch&);

/// op::Merge, by its `width`.
template <IdType Id, Element G, class Backend>
using MergeRows = void (*)(const Backend&, const op::MergeParameters<Id, G>&);

/// op::WeightGradients on an arena.
template <IdType Id, Element G, class Backend>
using DotArena = void (*)(const Backend&, const RankTables<Backend>&, std::size_t arena,
                          std::span<const op::WeightGradientGroup<Id, G>>);

/// What ranks share of tables, and steps are compiled for: nothing; copies; and also rows that are
/// cut if an optimizer needs them whole.
enum class Shared : std::uint8_t { nothing, copies, rows };

/// On rows that were merged before.
template <class Backend>
struct MergedRowKernels {
  UpdateArena<std::int64_t, float, Backend> update;
  MergeRows<std::int64_t, float, Backend> merge;
  /// Runs op::Apply
  void (*apply)(const Backend&, const RankTables<Backend>&, std::size_t arena, const AnyUpdateStep&,
                const op::MergedGradients&, const float* mean_square,
                const float* weight_mean_square);
  /// Runs op::Measure, for a training group that measures anything
  void (*measure)(const Backend&, const RankTables<Backend>&, std::size_t arena,
                  const AnyUpdateStep&, const op::MergedGradients&, float* measured,
                  float* weights);
  /// What the optimizer of a training group measures before `apply`.
  struct Measures {
    bool updates = false, weights = false;
  };
  Measures (*measures)(int group);
};

/// On whole rows of tables that came to this rank, floats one after another.
template <class Backend>
struct WholeRowKernels {
  void (*look_up)(const Backend&, const float* rows, int width,
                  const op::LookupGroup<std::int32_t>&);
  MergeRows<std::int32_t, float, Backend> merge;
};
template <class Backend>
using DotWholeRows = void (*)(const Backend&, const float* rows, int width,
                              const op::WeightGradientGroup<std::int32_t>&);

}}}  // namespace tessera::v0::detail
