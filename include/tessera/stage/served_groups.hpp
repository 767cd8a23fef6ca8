// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/op/update.hpp>
#include <tessera/stage/step.hpp>
#include <tessera/stage/wire_order.hpp>
#include <tessera/tables/rank_tables.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// Whether a piece goes straight to the caller's 16-bit output.
template <IdType Id, class Backend>
bool stored_narrow(const Step<Id, Backend>& step, const Piece& piece) {
  return step.narrow.stored() && !piece.travels && !step.distinct.active(piece.slot->feature);
}

/// What lookups_of leaves out, where `output` has 16 bits.
template <Element T, IdType Id, class Backend>
const std::vector<op::LookupGroup<Id, T>>& narrow_lookups_of(Step<Id, Backend>& step,
                                                             std::size_t arena,
                                                             MatrixView<T> output) {
  auto& lookups = step.groups.template lookups<T>();
  lookups.clear();
  for (const Piece& piece : step.in_flight.order().sums(arena)) {
    if (!stored_narrow(step, piece)) continue;
    const SlotPart& part = piece.columns();
    const MatrixView<T> to = output.column_range(part.column, part.width);
    lookups.push_back(
        {step.resident.placed(step.bags_of(piece), piece.index, piece.part), to.data, to.stride});
  }
  return lookups;
}

/// What this rank looks up in an arena, as floats; valid until the next call with this step.
template <IdType Id, class Backend>
const std::vector<op::LookupGroup<Id>>& lookups_of(Step<Id, Backend>& step, std::size_t arena,
                                                   MatrixView<float> output) {
  auto& lookups = step.groups.lookups();
  lookups.clear();
  for (const Piece& piece : step.in_flight.order().sums(arena)) {
    if (stored_narrow(step, piece)) continue;
    const MatrixView<float> to =
        piece.travels ? step.in_flight.at_owner(piece) : step.output_of(piece, output);
    lookups.push_back(
        {step.resident.placed(step.bags_of(piece), piece.index, piece.part), to.data, to.stride});
  }
  return lookups;
}

/// Whether ids of gradients are rows of the arena, or where its memory has them: slots, of an arena
/// that is behind a cache.
enum class IdsAre : std::uint8_t { rows, places };

/// The gradients of a piece that this rank serves, after VectorExchange::split: as the owner got
/// them, or where the caller has them.
template <IdType Id, class Backend>
MatrixView<const float> gradient_at_owner(const Step<Id, Backend>& step, const Piece& piece,
                                          MatrixView<const float> gradient) {
  return piece.travels ? step.in_flight.at_owner(piece) : step.gradient_of(piece, gradient);
}
/// Those of 16 bits are read where the caller has them.
template <IdType Id, class Backend, Element G>
MatrixView<const G> gradient_at_owner(const Step<Id, Backend>&, const Piece& piece,
                                      MatrixView<const G> gradient) {
  return gradient.column_range(piece.columns().column, piece.columns().width);
}

/// The arena's rows that the ids of a piece are among, if `bags` has them unmerged.
template <IdType Id>
op::RowRange rows_of(const Piece& piece, const op::Bags<Id>& bags) {
  return {piece.slot->row_begin + bags.row_bias, piece.slot->row_end + bags.row_bias};
}

/// Whether some update of this step might have too many ids or bags (require_countable), at a
/// glance.
template <IdType Id, class Backend>
bool may_be_too_large(const Step<Id, Backend>& step, std::size_t arenas) {
  std::int64_t most = 0;
  for (std::size_t a = 0; a < arenas; ++a)
    for (const Piece& piece : step.in_flight.order().sums(a)) {
      const op::Bags<Id>& bags = step.routed.received()[piece.index];
      most += bags.bags + bags.entry_bound + op::update_bag_run;
    }
  return most >= std::int64_t{1} << 31;
}

}  // namespace detail

/// Begins to sort what the step's update will add up, behind `backend`'s work so far, of arenas
/// that are updated by what this rank has been sent, without asking others. A batch that the update
/// may refuse is left to it: a lookup alone may be as large.
template <IdType Id, class Backend, class Updater>
void sort_ahead(Step<Id, Backend>& step, const Backend& backend,
                const detail::RankTables<Backend>& tables, const Updater& updater) {
  if constexpr (detail::HasStreams<Backend>) {
    const std::size_t arenas = tables.arenas().size();
    if (detail::may_be_too_large(step, arenas) || !step.sorted.start(backend, arenas)) return;
    std::vector<op::GradientGroup<Id>>& groups = step.groups.gradients();
    for (std::size_t a = 0; a < arenas; ++a) {
      const detail::ArenaPlan& arena = tables.routing().arenas()[a];
      if (!arena.trains || updater.shared(a) || tables.cache(a) != nullptr) continue;
      groups.clear();
      bool known = true;  // gradients of distinct ids are made of others first
      for (const detail::Piece& piece : step.in_flight.order().sums(a)) {
        const op::Bags<Id> bags = step.bags_of(piece);
        known = known && !step.distinct.active(piece.slot->feature);
        groups.push_back({bags, nullptr, 0, detail::rows_of(piece, bags)});
      }
      if (known) step.sorted.sort(a, arena.rows, groups);
    }
  }
}

namespace detail {

/// What this rank updates in an arena; valid until the next call with this step.
template <IdType Id, class Backend, Element G>
const std::vector<op::GradientGroup<Id, G>>& gradients_of(Step<Id, Backend>& step,
                                                          std::size_t arena,
                                                          MatrixView<const G> gradient,
                                                          IdsAre ids = IdsAre::rows) {
  auto& gradients = step.groups.template gradients<G>();
  gradients.clear();
  for (const Piece& piece : step.in_flight.order().sums(arena)) {
    const MatrixView<const G> from = gradient_at_owner(step, piece, gradient);
    const op::Bags<Id> bags = step.bags_of(piece),
                       placed = ids == IdsAre::rows
                                    ? bags
                                    : step.resident.placed(bags, piece.index, piece.part);
    op::RowRange rows{};  // slots are any
    if (placed.ids == bags.ids) rows = rows_of(piece, bags);
    gradients.push_back({placed, from.data, from.stride, rows});
  }
  return gradients;
}

}  // namespace detail

}}  // namespace tessera::v0
