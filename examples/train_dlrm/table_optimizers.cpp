// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "table_optimizers.hpp"

#include <tessera/core/error.hpp>
#include <tessera/planner/cost.hpp>

#include <fmt/ranges.h>

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace dlrm {

namespace {

/// The value of a constant, or nothing.
template <class T>
std::optional<double> value_of(std::string_view text) {
  if constexpr (std::is_same_v<T, bool>) {
    if (text == "true") return 1;
    return text == "false" ? std::optional<double>(0) : std::nullopt;
  } else if constexpr (std::is_enum_v<T>) {
    using enum tessera::detail::CountedRate;
    if (text == "faster") return static_cast<double>(faster);
    if (text == "slower") return static_cast<double>(slower);
    return text == "by-count" ? std::optional(static_cast<double>(by_count)) : std::nullopt;
  } else {
    T value{};
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end) return {};
    return static_cast<double>(value);
  }
}

/// Whether a constant may have a value, and which ones it may have.
template <class T>
std::pair<bool, std::string_view> allowed(std::string_view name, double value) {
  if (std::is_same_v<T, bool>) return {true, "true or false"};
  if (std::is_enum_v<T>) return {true, "faster, slower or by-count"};
  if (name == "beta1" || name == "beta2" || name == "momentum")
    return {value >= 0 && value < 1, "a number from 0 to below 1"};
  if (name == "half_life")
    return {value == -1 || (value >= 0 && value <= 1e30), "a number from 0 on, or -1 for none"};
  if (name == "first_step") return {value >= 0 && value <= 1e15, "a whole number from 0 on"};
  return {value >= 0 && value <= 1e30, "a number from 0 on"};
}

/// One "name=value" of an optimizer.
OptimizerConstant parse_constant(int optimizer, std::string_view text) {
  const std::string_view of = kOptimizers[static_cast<std::size_t>(optimizer)];
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string_view name = text.substr(0, equals),
                         value = text.substr(std::min(equals + 1, text.size()));
  std::vector<std::string_view> names;
  std::optional<OptimizerConstant> found;
  const auto read = [&]<class O>(O constants) {
    for_each_constant(constants, [&]<class T>(std::string_view known, const T&) {
      names.push_back(known);
      if (known != name) return;
      const std::optional<double> number = value_of<T>(value);
      const auto [good, range] = allowed<T>(name, number.value_or(-2));
      tessera::require(number && good, "optimizer {}: {} is '{}'; give {}", of, name, value, range);
      found = OptimizerConstant{std::string(name), *number};
    });
  };
  [&]<class... Groups>(tessera::TrainingGroups<Groups...>*) {
    int i = 0;
    ((i++ == optimizer ? read(typename Groups::optimizer{}) : void()), ...);
  }(static_cast<TableOptimizers*>(nullptr));
  tessera::require(!names.empty(), "optimizer {} has no constants; '{}' is given", of, text);
  tessera::require(found.has_value(), "optimizer {} has no constant '{}'; it has {}", of, name,
                   fmt::join(names, ", "));
  return *found;
}

/// Parts between commas, but not between those in parentheses.
std::vector<std::string_view> split_outside(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += (text[i] == '(') - (text[i] == ')');
    if (text[i] != ',' || depth > 0) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<OptimizerConstant> parse_constants(int optimizer, std::string_view text) {
  std::vector<OptimizerConstant> constants;
  for (const std::string_view part : split_outside(text)) {
    constants.push_back(parse_constant(optimizer, part));
    const std::string& name = constants.back().name;
    tessera::require(std::ranges::count(constants, name, &OptimizerConstant::name) == 1,
                     "optimizer {}: {} is given twice",
                     kOptimizers[static_cast<std::size_t>(optimizer)], name);
  }
  std::ranges::sort(constants, {}, &OptimizerConstant::name);
  return constants;
}

OptimizerOfTables parse_pair(std::string_view pair) {
  const std::size_t named = std::min(pair.find_first_of("(:"), pair.size());
  const std::string_view name = pair.substr(0, named);
  const auto found = std::find(kOptimizers.begin(), kOptimizers.end(), name);
  tessera::require(found != kOptimizers.end(),
                   "there is no optimizer '{}'; give one of {}, with constants as "
                   "NAME(KEY=VALUE,...), or pairs NAME:PATTERN",
                   name, fmt::join(kOptimizers, ", "));
  OptimizerOfTables result{static_cast<int>(found - kOptimizers.begin()), "*"};
  std::string_view rest = pair.substr(named);
  if (rest.starts_with('(')) {
    const std::size_t close = rest.find(')');
    tessera::require(close != rest.npos, "'{}' has no ')' behind its constants", pair);
    result.constants = parse_constants(result.optimizer, rest.substr(1, close - 1));
    rest.remove_prefix(close + 1);
    tessera::require(rest.empty() || rest.starts_with(':'),
                     "'{}' goes on behind its constants; give NAME(KEY=VALUE,...):PATTERN", pair);
  }
  if (rest.empty()) return result;
  result.pattern = rest.substr(1);
  tessera::require(!result.pattern.empty(), "'{}' has no pattern; give NAME:PATTERN, such as {}:*",
                   pair, name);
  return result;
}

}  // namespace

std::vector<OptimizerOfTables> parse_optimizers(std::string_view text) {
  std::vector<OptimizerOfTables> pairs;
  for (const std::string_view part : split_outside(text)) {
    pairs.push_back(parse_pair(part));
    for (const OptimizerOfTables& other : pairs)
      tessera::require(
          other.optimizer != pairs.back().optimizer || other.constants == pairs.back().constants,
          "optimizer {} has two sets of constants; all its tables have one: give all its pairs the "
          "same",
          kOptimizers[static_cast<std::size_t>(other.optimizer)]);
  }
  tessera::require(std::any_of(pairs.begin(), pairs.end(),
                               [](const auto& pair) { return pair.optimizer != kFrozen; }),
                   "all tables are frozen; give an optimizer for some");
  return pairs;
}

OptimizerOfTables parse_optimizer(std::string_view text) {
  const std::vector<OptimizerOfTables> pairs = parse_optimizers(text);
  tessera::require(pairs.size() == 1 && pairs[0].pattern == "*",
                   "'{}' is for several patterns of tables; give one optimizer", text);
  return pairs[0];
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

std::array<float, kOptimizers.size()> standard_rates(std::string_view text) {
  std::array<float, kOptimizers.size()> rates{10,   0.04f,  0.04f, 0.01f, 0.1f, 2,     0.01f, 0.01f,
                                              0.1f, 0.003f, 0.04f, 0.04f, 10,   0.01f, 0};
  // rates of rows by their counts: as Sgd's, or factors of row-wise Adagrad's
  for (const OptimizerOfTables& pair : parse_optimizers(text))
    if (tessera::CountedRowWiseAdagrad counted; pair.optimizer == kCounted) {
      set_constants(counted, pair.constants);
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
