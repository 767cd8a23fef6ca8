// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/lookup.hpp>
#include <tessera/stage/served_groups.hpp>
#include <tessera/stage/step.hpp>
#include <tessera/tables/arena_kernels.hpp>
#include <tessera/tables/rank_tables.hpp>

#include <cstddef>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Looks up all that this rank serves: what travels goes to its place on the wire, what this rank's
/// own samples need straight to `output` (see NarrowValues). `timing` counts rows. `narrow`: the kernel
/// of outputs of 16 bits.
template <IdType Id, class Backend, Element T, class Timing>
void look_up(Step<Id, Backend>& step, MatrixView<T> output, const Backend& backend,
             const RankTables<Backend>& tables, const Timing& timing,
             LookUpArena<Id, float, Backend> kernel,
             [[maybe_unused]] LookUpArena<Id, T, Backend> narrow) {
  if constexpr (!std::is_same_v<T, float>) {
    const WireOrder& order = step.in_flight.order();
    const bool complete = order.requested().pieces().empty() &&
                          tables.routing().summed_columns().empty() && !step.distinct.pools();
    step.narrow.set(complete, order.served().pieces().empty() && !step.distinct.any_active());
  }
  const MatrixView<float> floats = step.narrow.floats(backend, output);
  for (std::size_t a = 0; a < tables.arenas().size(); ++a) {
    const auto run = [&]<Element Out>(const std::vector<op::LookupGroup<Id, Out>>& lookups,
                                      LookUpArena<Id, Out, Backend> look_up_arena) {
      if (lookups.empty()) return;
      timing.read_rows(lookups);
      look_up_arena(backend, tables, a, lookups);
    };
    run(lookups_of(step, a, floats), kernel);
    if constexpr (!std::is_same_v<T, float>) run(narrow_lookups_of(step, a, output), narrow);
  }
}

}}}  // namespace tessera::v0::detail
