// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns the seconds until all ranks of a node are done, which have so much work each and share
/// `cores` fairly: while more ranks work than there are cores, each gets its share of them; the last
/// ones run alone. Changes the order of the work. `cores` 0: a core for each.
constexpr double shared_seconds(std::vector<double>& work, int cores) {
  const double longest = *std::max_element(work.begin(), work.end());
  if (cores == 0 || static_cast<std::size_t>(cores) >= work.size()) return longest;
  std::nth_element(work.begin(), work.begin() + cores, work.end(), std::greater<>());
  double waiting = 0;
  for (std::size_t i = static_cast<std::size_t>(cores); i < work.size(); ++i) waiting += work[i];
  return longest + waiting / cores;
}

}}}  // namespace tessera::v0::detail
