// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cases.hpp"
#include "ids.hpp"

#include <tessera/measure/measure_steps.hpp>
#include <tessera/tables/cache_counters.hpp>

#include <functional>
#include <vector>

namespace lab {

/// When to look at the process's memory: before the tables of the case are there, when they are, and
/// before each step of a ghost.
struct Watch {
  std::function<void()> begins, built, steps;
};

/// What a case took, by rank. Of ghosts only those that were run have steps.
struct Recorded {
  std::vector<tessera::detail::RecordedSteps> ranks;
  std::vector<double> link_seconds;                    ///< of a step on ghosts' links, modelled
  std::vector<tessera::detail::CacheCounters> caches;  ///< of all steps; no rows: there is no cache
};

Recorded record_case(const Case&, const Batches&, int steps, const Watch&);

/// The same rectangles with the fewest columns that keep different widths different: what ids travel
/// does not depend on the columns, and the tables take a fraction of the memory. The layout itself
/// where its shards are not cut at the same columns in all rows of a table.
tessera::Layout narrowed(const tessera::Layout& layout);

}  // namespace lab
