// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns the number of characters to insert, remove or replace that turn one text into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the names most like `name`, and how many more there are.
std::string nearest_names(std::string_view name, std::vector<std::string_view> names);

#ifdef TESSERA_INLINE
TESSERA_INLINE std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

TESSERA_INLINE std::string nearest_names(std::string_view name,
                                         std::vector<std::string_view> names) {
  constexpr int most = 5;
  std::string text;
  for (int i = 0; i < most && !names.empty(); ++i) {
    const auto nearest = std::min_element(names.begin(), names.end(),
                                          [name](std::string_view a, std::string_view b) {
                                            return edit_distance(name, a) < edit_distance(name, b);
                                          });
    text += formatted("{}'{}'", i == 0 ? "" : ", ", *nearest);
    names.erase(nearest);
  }
  if (!names.empty()) text += formatted(" and {} more", names.size());
  return text.empty() ? "none" : text;
}
#endif

}}}  // namespace tessera::v0::detail
