// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/op/update.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace detail {

/// Merged gradients of an arena, in lists that have no row in common.
using MergedLists = PodVector<op::MergedGradients>;

inline std::int64_t count_of(const MergedLists& merged) {
  std::int64_t rows = 0;
  for (const op::MergedGradients& list : merged) rows += list.count;
  return rows;
}

/// Returns rows as bags of one id each.
inline op::Bags<std::int64_t> rows_of(const op::MergedGradients& list) {
  op::Bags<std::int64_t> bags;
  bags.ids = list.rows;
  bags.bags = bags.entry_bound = list.count;
  return bags;
}
inline PodVector<op::Bags<std::int64_t>> rows_of(const MergedLists& merged) {
  PodVector<op::Bags<std::int64_t>> rows;
  for (const op::MergedGradients& list : merged)
    if (list.count != 0) rows.push_back(rows_of(list));
  return rows;
}

/// Returns the same with their gradients, of `width` columns.
inline PodVector<op::GradientGroup<std::int64_t>> groups_of(const MergedLists& merged,
                                                            std::int64_t width) {
  PodVector<op::GradientGroup<std::int64_t>> groups;
  for (const op::MergedGradients& list : merged)
    if (list.count != 0) groups.push_back({rows_of(list), list.gradients, width});
  return groups;
}

}}}  // namespace tessera::v0::detail
