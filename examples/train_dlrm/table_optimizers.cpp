// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "table_optimizers.hpp"

#include <tessera/core/error.hpp>
#include <tessera/planner/cost.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace dlrm {

OptimizerOfTables parse_optimizer(std::string_view text) {
  const std::vector<OptimizerOfTables> pairs = parse_optimizers(text);
  tessera::require(pairs.size() == 1 && pairs[0].pattern == "*",
                   "'{}' is for several patterns of tables; give one optimizer", text);
  return pairs[0];
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

std::array<float, kOptimizers.size()> standard_rates(std::string_view text) {
  std::array<float, kOptimizers.size()> rates{10,   0.04f,  0.04f, 0.01f, 0.1f, 2,     0.01f, 0.01f,
                                              0.1f, 0.003f, 0.04f, 0.04f, 10,   0.01f, 0};
  // rates of rows by their counts: as Sgd's, or factors of row-wise Adagrad's
  for (const OptimizerOfTables& pair : parse_optimizers(text))
    if (tessera::CountedRowWiseAdagrad counted; pair.optimizer == kCounted) {
      tessera::detail::set_constants(counted, pair.constants);
      if (counted.rate != tessera::detail::CountedRate::by_count) rates[kCounted] = 0.04f;
    }
  return rates;
}

float standard_rate(std::string_view text) {
  for (const OptimizerOfTables& pair : parse_optimizers(text))
    if (pair.optimizer != kFrozen)
      return standard_rates(text)[static_cast<std::size_t>(pair.optimizer)];
  return 0;
}

tessera::detail::MemoryCost memory_cost(int optimizer, std::string_view precision) {
  using namespace tessera;
  constexpr std::array<detail::MemoryCost, kOptimizers.size()> costs{
      memory_cost_of<Sgd>,
      memory_cost_of<Adagrad>,
      memory_cost_of<RowWiseAdagrad>,
      memory_cost_of<Adam>,
      memory_cost_of<Ftrl>,
      memory_cost_of<Momentum>,
      memory_cost_of<AdamW>,
      memory_cost_of<PartialRowWiseAdam>,
      memory_cost_of<Lamb>,
      memory_cost_of<Lion>,
      memory_cost_of<RowWiseAdagradL2>,
      memory_cost_of<RowWiseAdagradDecoupled>,
      memory_cost_of<CountedRowWiseAdagrad>,
      memory_cost_of<Sgd>};
  detail::MemoryCost cost = costs[static_cast<std::size_t>(optimizer)];
  if (precision != "fp32") cost.per_element -= 2;
  return cost;
}

}  // namespace dlrm
