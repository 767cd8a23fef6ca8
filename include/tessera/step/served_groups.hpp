// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/wire_order.hpp>
#include <tessera/op/lookup.hpp>
#include <tessera/op/update.hpp>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace detail {

/// Whether ids of gradients are rows of the arena, or where its memory has them: slots, of an arena
/// that is behind a cache.
enum class IdsAre : std::uint8_t { rows, places };

/// Returns the arena's rows that the ids of a piece are among, if `bags` has them unmerged.
template <IdType Id>
op::RowRange rows_of(const Piece& piece, const op::Bags<Id>& bags) {
  return {piece.slot->row_begin + bags.row_bias, piece.slot->row_end + bags.row_bias};
}

/// What this rank serves of one arena. What a call returns is valid until the next one for the same
/// element type. `State`: the Step that this is a part of.
template <IdType Id>
class ServedGroups {
 public:
  /// Returns what this rank looks up. Where the caller's output has 16 bits, its vectors that are
  /// complete at once go there (NarrowValues), and all others into the floats: one call for each.
  template <class State, Element T>
  const PodVector<op::LookupGroup<Id, T>>& lookups(const State& step, std::size_t arena,
                                                   MatrixView<T> output) {
    auto& groups = std::get<PodVector<op::LookupGroup<Id, T>>>(lookups_);
    groups.clear();
    for (const Piece& piece : step.in_flight.order().sums(arena)) {
      constexpr bool narrow = !std::is_same_v<T, float>;
      const bool complete =
          step.narrow.stored() && !piece.travels && !step.distinct.active(piece.slot->feature);
      if (complete != narrow) continue;
      const MatrixView<T> to = [&] {
        const SlotPart& part = piece.columns();
        if constexpr (narrow)
          return output.column_range(part.column, part.width);
        else
          return piece.travels ? step.in_flight.at_owner(piece) : step.output_of(piece, output);
      }();
      groups.push_back(
          {step.resident.placed(step.bags_of(piece), piece.index, piece.part), to.data, to.stride});
    }
    return groups;
  }

  /// Returns what this rank updates.
  template <class State, Element G>
  const PodVector<op::GradientGroup<Id, G>>& gradients(const State& step, std::size_t arena,
                                                       MatrixView<const G> gradient,
                                                       IdsAre ids = IdsAre::rows) {
    auto& groups = std::get<PodVector<op::GradientGroup<Id, G>>>(gradients_);
    groups.clear();
    for (const Piece& piece : step.in_flight.order().sums(arena)) {
      const MatrixView<const G> from = step.gradient_at_owner(piece, gradient);
      const op::Bags<Id> bags = step.bags_of(piece),
                         placed = ids == IdsAre::rows
                                      ? bags
                                      : step.resident.placed(bags, piece.index, piece.part);
      op::RowRange rows{};  // slots are any
      if (placed.ids == bags.ids) rows = rows_of(piece, bags);
      groups.push_back({placed, from.data, from.stride, rows});
    }
    return groups;
  }

  /// Returns the same without gradients, before there are any: what an update sorts. Null if the
  /// ids will be others: gradients of distinct ids are made of others first.
  template <class State>
  const PodVector<op::GradientGroup<Id>>* to_sort(const State& step, std::size_t arena) {
    auto& groups = std::get<PodVector<op::GradientGroup<Id>>>(gradients_);
    groups.clear();
    for (const Piece& piece : step.in_flight.order().sums(arena)) {
      if (step.distinct.active(piece.slot->feature)) return nullptr;
      const op::Bags<Id> bags = step.bags_of(piece);
      groups.push_back({bags, nullptr, 0, rows_of(piece, bags)});
    }
    return &groups;
  }

  /// Returns whether some update of the step might have too many ids or bags (require_countable),
  /// at a glance.
  template <class State>
  static bool may_be_too_large(const State& step, std::size_t arenas) {
    std::int64_t most = 0;
    for (std::size_t a = 0; a < arenas; ++a)
      for (const Piece& piece : step.in_flight.order().sums(a)) {
        const op::Bags<Id>& bags = step.routed.received()[piece.index];
        most += bags.bags + bags.entry_bound + op::update_bag_run;
      }
    return most >= std::int64_t{1} << 31;
  }

 private:
  std::tuple<PodVector<op::LookupGroup<Id>>, PodVector<op::LookupGroup<Id, Half>>,
             PodVector<op::LookupGroup<Id, BFloat16>>>
      lookups_;
  std::tuple<PodVector<op::GradientGroup<Id>>, PodVector<op::GradientGroup<Id, Half>>,
             PodVector<op::GradientGroup<Id, BFloat16>>>
      gradients_;
};

}}}  // namespace tessera::v0::detail
