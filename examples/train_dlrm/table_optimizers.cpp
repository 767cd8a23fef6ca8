// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "table_optimizers.hpp"

#include <tessera/core/error.hpp>
#include <tessera/planner/cost.hpp>

#include <fmt/ranges.h>

#include <fnmatch.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace dlrm {

std::vector<OptimizerOfTables> parse_optimizers(std::string_view text) {
  std::vector<OptimizerOfTables> pairs;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view pair = text.substr(begin, end - begin);
    const std::size_t colon = std::min(pair.find(':'), pair.size());
    const std::string_view name = pair.substr(0, colon);
    const auto found = std::find(kOptimizers.begin(), kOptimizers.end(), name);
    tessera::require(found != kOptimizers.end(),
                     "there is no optimizer '{}'; give one of {}, or pairs NAME:PATTERN", name,
                     fmt::join(kOptimizers, ", "));
    const std::string_view pattern = colon == pair.size() ? "*" : pair.substr(colon + 1);
    tessera::require(!pattern.empty(), "'{}' has no pattern; give NAME:PATTERN, such as {}:*", pair,
                     name);
    pairs.push_back({static_cast<int>(found - kOptimizers.begin()), std::string(pattern)});
    begin = end + 1;
  }
  tessera::require(std::any_of(pairs.begin(), pairs.end(),
                               [](const auto& pair) { return pair.optimizer != kFrozen; }),
                   "all tables are frozen; give an optimizer for some");
  return pairs;
}

std::vector<int> optimizers_of(std::string_view text, const tessera::Layout& layout) {
  const std::vector<OptimizerOfTables> pairs = parse_optimizers(text);
  std::vector<bool> used(pairs.size());
  std::vector<int> optimizers;
  for (const tessera::TableSpec& table : layout.tables) {
    int optimizer = -1;
    for (std::size_t p = 0; p < pairs.size(); ++p)
      if (::fnmatch(pairs[p].pattern.c_str(), std::string(table.name).c_str(), 0) == 0) {
        if (optimizer < 0) optimizer = pairs[p].optimizer;
        used[p] = true;
      }
    tessera::require(optimizer >= 0,
                     "--optimizer {}: no pattern matches table '{}'; add a pair for all others, "
                     "such as rowwise-adagrad:*, at the end",
                     text, table.name);
    optimizers.push_back(optimizer);
  }
  for (std::size_t p = 0; p < pairs.size(); ++p)
    tessera::require(used[p], "--optimizer {}: no table matches '{}'; tables are '{}' to '{}'",
                     text, pairs[p].pattern, layout.tables.front().name, layout.tables.back().name);
  return optimizers;
}

std::vector<std::string> optimizer_changes(std::string_view before, std::string_view now,
                                           const tessera::Layout& layout,
                                           const std::vector<std::string>& tables) {
  const std::vector<int> given = optimizers_of(now, layout);
  std::vector<int> old;
  try {
    if (!before.empty()) old = optimizers_of(before, layout);
  } catch (const tessera::InvalidArgument&) {  // another version's: it has no name here
  }
  std::map<std::pair<std::string_view, std::string_view>, std::vector<std::string>> changes;
  for (std::size_t t = 0; t < layout.tables.size(); ++t) {
    const std::string name(layout.tables[t].name);
    if (std::ranges::find(tables, name) == tables.end()) continue;
    const std::string_view from =
        old.empty() ? "another" : kOptimizers[static_cast<std::size_t>(old[t])];
    changes[{from, kOptimizers[static_cast<std::size_t>(given[t])]}].push_back(name);
  }
  std::vector<std::string> lines;
  for (const auto& [names, of_change] : changes) {
    constexpr std::ptrdiff_t most = 8;
    const std::ptrdiff_t shown = std::min(std::ssize(of_change), most);
    lines.push_back(fmt::format(
        "optimizer {} -> {}, weights kept, state begun anew: {}{}", names.first, names.second,
        fmt::join(of_change.begin(), of_change.begin() + shown, ", "),
        shown < std::ssize(of_change) ? fmt::format(" and {} more", std::ssize(of_change) - shown)
                                      : ""));
  }
  return lines;
}

float standard_rate(int optimizer) {
  constexpr std::array<float, kOptimizers.size()> rates{10,    0.04f, 0.04f, 0.01f,  0.1f, 2,
                                                        0.01f, 0.01f, 0.1f,  0.003f, 0};
  return rates[static_cast<std::size_t>(optimizer)];
}

float standard_rate(std::string_view text) {
  for (const OptimizerOfTables& pair : parse_optimizers(text))
    if (pair.optimizer != kFrozen) return standard_rate(pair.optimizer);
  return 0;
}

tessera::MemoryCost memory_cost(int optimizer, std::string_view precision) {
  using namespace tessera;
  constexpr std::array<MemoryCost, kOptimizers.size()> costs{memory_cost_of<Sgd>,
                                                             memory_cost_of<Adagrad>,
                                                             memory_cost_of<RowWiseAdagrad>,
                                                             memory_cost_of<Adam>,
                                                             memory_cost_of<Ftrl>,
                                                             memory_cost_of<Momentum>,
                                                             memory_cost_of<AdamW>,
                                                             memory_cost_of<PartialRowWiseAdam>,
                                                             memory_cost_of<Lamb>,
                                                             memory_cost_of<Lion>,
                                                             memory_cost_of<Sgd>};
  MemoryCost cost = costs[static_cast<std::size_t>(optimizer)];
  if (precision != "fp32") cost.per_element -= 2;
  return cost;
}

}  // namespace dlrm
