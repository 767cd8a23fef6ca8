// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/stage/served_groups.hpp>
#include <tessera/stage/step.hpp>
#include <tessera/stage/training_steps.hpp>
#include <tessera/stage/updater.hpp>

#include <cstddef>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// One optimizer step with the gradients of a batch that have come to the owners; `steps` counts
/// it. All that may fail for another rank's sake, or for a batch that is too large, comes first:
/// where it throws, no table of this rank has changed. Collective.
template <IdType Id, class Backend, Element G, Shared Shares, class Comm>
void apply_step(Step<Id, Backend>& step, MatrixView<const G> gradient,
                const RankTables<Backend>& tables, Updater<Shares, Backend, Comm>& updater,
                AnyTrainingSteps& steps, MergeRows<Id, G, Backend> merge,
                UpdateArena<Id, G, Backend> update) {
  step.sorted.join(updater.backend());
  tables.refresh();
  const std::size_t arenas = tables.arenas().size();
  if (may_be_too_large(step, arenas))
    for (std::size_t a = 0; a < arenas; ++a)
      op::require_countable<Backend, Id, G>(gradients_of(step, a, gradient));
  for (std::size_t a = 0; a < arenas; ++a)
    if (updater.shared(a))
      updater.merge_own(a, gradients_of(step, a, gradient), step.batch.fixed_sizes(), merge);
  updater.gather(step.batch.fixed_sizes(), steps.rates());
  const AnyUpdateStep& now = steps.next();
  updater.exchange(step.batch.most_entries(), now);
  steps.advance(tables.seed());
  const std::vector<op::GradientGroup<Id, G>> none;
  updater.update([&](std::size_t a, const Backend& backend) {
    const auto groups = [&](IdsAre ids) -> const auto& {
      return updater.shared(a) ? none : gradients_of(step, a, gradient, ids);
    };
    if (updater.tells()) updater.tell(a, groups(IdsAre::rows));
    step.resident.mark_changed(a);
    updater.apply(a, now, groups(IdsAre::places), step.sorted.of(a), backend, update);
  });
  step.resident.release(false);
}

}  // namespace detail

}}  // namespace tessera::v0
