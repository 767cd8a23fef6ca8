// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/op/update.hpp>
#include <tessera/stage/step.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::inline v0 {

/// Visits what this rank serves from arena `arena`, in the order in which a row's gradients are
/// summed: feature, source rank. visit(bags, slot, part, index into step.received, packed);
/// `packed`: the vectors' place in owner_vectors (by source, slot, part), or null where they are in
/// the caller's matrix. `way`: what owner_vectors hold; gradients after VectorExchange::split, of
/// slots that have some.
template <IdType Id, class Backend, class Visit>
void for_each_group(Step<Id, Backend>& step, const RankLayout& routing, int arena, Way way,
                    Visit&& visit) {
  const std::size_t ranks = static_cast<std::size_t>(routing.ranks());
  std::vector<std::size_t>& at = step.next_vector;
  at.assign(ranks, 0);
  for (std::size_t r = 1; r < ranks; ++r) at[r] = at[r - 1] + step.owner_counts[r - 1];
  for (std::size_t k = 0; k < routing.slots_of(routing.rank()); ++k) {
    const Slot& slot = routing.own_slot(k);
    if (!slot.goes(way)) continue;
    for (std::size_t r = 0; r < ranks; ++r) {
      const bool direct = slot.whole && static_cast<int>(r) == routing.rank();
      op::Bags<Id> bags = step.received[k * ranks + r];
      for (std::size_t p = 0; p < slot.parts.size(); ++p) {
        const SlotPart& part = slot.parts[p];
        float* packed = direct ? nullptr : step.owner_vectors.data() + at[r];
        if (!direct)
          at[r] += static_cast<std::size_t>(bags.bags) * static_cast<std::size_t>(part.width);
        if (part.arena != arena || bags.bags == 0) continue;
        bags.row_bias = part.row_bias;
        visit(bags, slot, p, k * ranks + r, packed);
      }
    }
  }
}

/// What this rank looks up in an arena, in step.lookups.
template <IdType Id, class Backend>
void list_lookups(Step<Id, Backend>& step, const RankLayout& routing, std::size_t arena,
                  MatrixView<float> output) {
  step.lookups.clear();
  for_each_group(step, routing, static_cast<int>(arena), Way::vectors,
                 [&](const op::Bags<Id>& bags, const Slot& slot, std::size_t p,
                     std::size_t received, float* packed) {
                   const SlotPart& part = slot.parts[p];
                   const MatrixView<float> own = step.output_of(slot, part, output);
                   step.lookups.push_back({step.resident.placed(bags, received, p),
                                           packed == nullptr ? own.data : packed,
                                           packed == nullptr ? own.stride : part.width});
                 });
}

/// Whether ids of gradients are rows of the arena, or where its memory has them: slots, of an arena
/// that is behind a cache.
enum class IdsAre : std::uint8_t { rows, places };

/// What this rank updates in an arena; valid until the next call with this step.
template <IdType Id, class Backend>
const std::vector<op::GradientGroup<Id>>& gradients_of(Step<Id, Backend>& step,
                                                       const RankLayout& routing, std::size_t arena,
                                                       MatrixView<const float> gradient,
                                                       IdsAre ids = IdsAre::rows) {
  step.gradients.clear();
  for_each_group(step, routing, static_cast<int>(arena), Way::gradients,
                 [&](const op::Bags<Id>& bags, const Slot& slot, std::size_t p,
                     std::size_t received, float* packed) {
                   const SlotPart& part = slot.parts[p];
                   const MatrixView<const float> own = step.gradient_of(slot, part, gradient);
                   const op::Bags<Id> placed =
                       ids == IdsAre::rows ? bags : step.resident.placed(bags, received, p);
                   op::RowRange rows{};  // slots are any
                   if (placed.ids == bags.ids)
                     rows = {slot.row_begin + part.row_bias, slot.row_end + part.row_bias};
                   step.gradients.push_back({placed, packed == nullptr ? own.data : packed,
                                             packed == nullptr ? own.stride : part.width, rows});
                 });
  return step.gradients;
}

/// Whether some update of this step might have too many ids or bags (require_countable), at a
/// glance.
template <IdType Id, class Backend>
bool may_be_too_large(const Step<Id, Backend>& step, const RankLayout& routing) {
  const std::size_t ranks = static_cast<std::size_t>(routing.ranks());
  std::int64_t most = 0;
  for (std::size_t k = 0; k < routing.slots_of(routing.rank()); ++k)
    for (std::size_t r = 0; r < ranks; ++r) {
      const op::Bags<Id>& bags = step.received[k * ranks + r];
      most += (bags.bags + bags.entry_bound + op::update_bag_run) *
              std::ssize(routing.own_slot(k).parts);
    }
  return most >= std::int64_t{1} << 31;
}

}  // namespace tessera::inline v0
