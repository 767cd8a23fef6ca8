// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/optimizer/adamw.hpp>
#include <tessera/optimizer/ftrl.hpp>
#include <tessera/optimizer/lion.hpp>
#include <tessera/optimizer/momentum.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/optimizer/rowwise_adagrad.hpp>
#include <tessera/settings/policies.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/training_groups.hpp>

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Optimizers that a program's user names at run time: all of them as training groups of one
// collection, of which each table has one.
namespace tessera { inline namespace v0 { namespace detail {

/// Optimizers of tables by name: the training groups that are compiled in.
inline constexpr std::array<std::string_view, 15> kOptimizers{"sgd",
                                                              "adagrad",
                                                              "rowwise-adagrad",
                                                              "adam",
                                                              "ftrl",
                                                              "momentum",
                                                              "adamw",
                                                              "partial-rowwise-adam",
                                                              "lamb",
                                                              "lion",
                                                              "rowwise-adagrad-l2",
                                                              "rowwise-adagrad-decoupled",
                                                              "rowwise-adagrad-counted",
                                                              "adam-counted",
                                                              "frozen"};
using TableOptimizers =
    TrainingGroups<Train<Sgd>, Train<Adagrad>, Train<RowWiseAdagrad>, Train<Adam>, Train<Ftrl>,
                   Train<Momentum>, Train<AdamW>, Train<PartialRowWiseAdam>, Train<Lamb>,
                   Train<Lion>, Train<RowWiseAdagradL2>, Train<RowWiseAdagradDecoupled>,
                   Train<CountedRowWiseAdagrad>, Train<CountedAdam>, Frozen<>>;
inline constexpr int kFrozen = 14;

/// Calls f(name, constant) for each constant of an optimizer that a text may give.
template <class O, class F>
void for_each_constant(O& o, F&& f) {
  if constexpr (requires { o.beta1; }) f("beta1", o.beta1), f("beta2", o.beta2);
  if constexpr (requires { o.momentum; }) f("momentum", o.momentum), f("nesterov", o.nesterov);
  if constexpr (requires { o.l1; }) f("beta", o.beta), f("l1", o.l1), f("l2", o.l2);
  if constexpr (requires { o.epsilon; }) f("epsilon", o.epsilon);
  if constexpr (requires { o.initial_accumulator; })
    f("initial_accumulator", o.initial_accumulator);
  if constexpr (requires { o.weight_decay; }) f("weight_decay", o.weight_decay);
  if constexpr (requires { o.half_life; }) {
    f("rate", o.rate), f("half_life", o.half_life), f("power", o.power), f("most", o.most);
    f("threshold", o.threshold), f("threshold_is_share", o.threshold_is_share);
    f("first_step", o.first_step);
  }
}

/// What tables are stored in.
inline constexpr std::array<std::string_view, 3> kTablePrecisions{"fp32", "bf16", "fp16"};

/// A constant's value: as a text says it, or a number in its place.
struct OptimizerConstant {
  std::string name;
  double value = 0;  ///< of flags 0 or 1; of `rate` a CountedRate

  bool operator==(const OptimizerConstant&) const = default;
};

/// The tables whose names a pattern matches ('*' matches any text) and their optimizer.
struct OptimizerOfTables {
  int optimizer = 0;  ///< index into kOptimizers
  std::string pattern;
  std::vector<OptimizerConstant> constants{};  ///< those that are given, by name
};

/// The training groups in each of kTablePrecisions, of one collection: more collections would be
/// compiled as often.
template <class Groups>
struct InEachPrecision;
template <class... Groups>
struct InEachPrecision<TrainingGroups<Groups...>> {
  using type = TrainingGroups<Groups..., typename Groups::template with<Storage<BFloat16>>...,
                              typename Groups::template with<Storage<Half>>...>;
};
using NamedOptimizers = InEachPrecision<TableOptimizers>::type;

/// Gives an optimizer the constants that the command line gives it.
template <class O>
void set_constants(O& optimizer, const std::vector<OptimizerConstant>& constants) {
  for_each_constant(optimizer, [&]<class T>(std::string_view name, T& constant) {
    for (const OptimizerConstant& given : constants)
      if (given.name == name) constant = static_cast<T>(given.value);
  });
}

/// Returns names with commas between them.
template <class Names>
std::string listed(const Names& names) {
  std::string text;
  for (const std::string_view name : names) (text += text.empty() ? "" : ", ") += name;
  return text;
}

/// Returns the value of a constant, or nothing.
template <class T>
std::optional<double> value_of(std::string_view text) {
  if constexpr (std::is_same_v<T, bool>) {
    if (text == "true") return 1;
    return text == "false" ? std::optional<double>(0) : std::nullopt;
  } else if constexpr (std::is_same_v<T, CountedRate>) {
    using enum detail::CountedRate;
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

/// Returns whether a constant may have a value, and which ones it may have.
template <class T>
std::pair<bool, std::string_view> allowed(std::string_view name, double value) {
  if (std::is_same_v<T, bool>) return {true, "true or false"};
  if (std::is_same_v<T, CountedRate>) return {true, "faster, slower or by-count"};
  if (name == "beta1" || name == "beta2" || name == "momentum")
    return {value >= 0 && value < 1, "a number from 0 to below 1"};
  if (name == "half_life")
    return {value == -1 || (value >= 0 && value <= 1e30), "a number from 0 on, or -1 for none"};
  if (name == "first_step") return {value >= 0 && value <= 1e15, "a whole number from 0 on"};
  return {value >= 0 && value <= 1e30, "a number from 0 on"};
}

/// Reads one "name=value" of an optimizer.
inline OptimizerConstant parse_constant(int optimizer, std::string_view text) {
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
      require(number && good, "optimizer {}: {} is '{}'; give {}", of, name, value, range);
      found = OptimizerConstant{std::string(name), *number};
    });
  };
  [&]<class... Groups>(TrainingGroups<Groups...>*) {
    int i = 0;
    ((i++ == optimizer ? read(typename Groups::optimizer{}) : void()), ...);
  }(static_cast<TableOptimizers*>(nullptr));
  require(!names.empty(), "optimizer {} has no constants; '{}' is given", of, text);
  require(found.has_value(), "optimizer {} has no constant '{}'; it has {}", of, name,
          listed(names));
  return *found;
}

/// Returns the parts between commas, but not between those in parentheses.
inline std::vector<std::string_view> split_outside(std::string_view text) {
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

inline std::vector<OptimizerConstant> parse_constants(int optimizer, std::string_view text) {
  std::vector<OptimizerConstant> constants;
  for (const std::string_view part : split_outside(text)) {
    constants.push_back(parse_constant(optimizer, part));
    const std::string& name = constants.back().name;
    require(std::count_if(constants.begin(), constants.end(),
                          [&](const OptimizerConstant& other) { return other.name == name; }) == 1,
            "optimizer {}: {} is given twice", kOptimizers[static_cast<std::size_t>(optimizer)],
            name);
  }
  std::ranges::sort(constants, {}, &OptimizerConstant::name);
  return constants;
}

inline OptimizerOfTables parse_pair(std::string_view pair) {
  const std::size_t named = std::min(pair.find_first_of("(:"), pair.size());
  const std::string_view name = pair.substr(0, named);
  const auto found = std::find(kOptimizers.begin(), kOptimizers.end(), name);
  require(found != kOptimizers.end(),
          "there is no optimizer '{}'; give one of {}, with constants as "
          "NAME(KEY=VALUE,...), or pairs NAME:PATTERN",
          name, listed(kOptimizers));
  OptimizerOfTables result{static_cast<int>(found - kOptimizers.begin()), "*"};
  std::string_view rest = pair.substr(named);
  if (rest.starts_with('(')) {
    const std::size_t close = rest.find(')');
    require(close != rest.npos, "'{}' has no ')' behind its constants", pair);
    result.constants = parse_constants(result.optimizer, rest.substr(1, close - 1));
    rest.remove_prefix(close + 1);
    require(rest.empty() || rest.starts_with(':'),
            "'{}' goes on behind its constants; give NAME(KEY=VALUE,...):PATTERN", pair);
  }
  if (rest.empty()) return result;
  result.pattern = rest.substr(1);
  require(!result.pattern.empty(), "'{}' has no pattern; give NAME:PATTERN, such as {}:*", pair,
          name);
  return result;
}

/// Returns the pairs of "adam", or of "ftrl(l1=0.1):wide_*,rowwise-adagrad:*", of which the first
/// that matches a table counts. Throws InvalidArgument for names, constants and values that are not
/// known, for what is no pair, and for an optimizer that is given two sets of constants.
inline std::vector<OptimizerOfTables> parse_optimizers(std::string_view text) {
  std::vector<OptimizerOfTables> pairs;
  for (const std::string_view part : split_outside(text)) {
    pairs.push_back(parse_pair(part));
    for (const OptimizerOfTables& other : pairs)
      require(
          other.optimizer != pairs.back().optimizer || other.constants == pairs.back().constants,
          "optimizer {} has two sets of constants; all its tables have one: give all its pairs the "
          "same",
          kOptimizers[static_cast<std::size_t>(other.optimizer)]);
  }
  require(std::any_of(pairs.begin(), pairs.end(),
                      [](const auto& pair) { return pair.optimizer != kFrozen; }),
          "all tables are frozen; give an optimizer for some");
  return pairs;
}

/// Returns the optimizer of each table, an index into kOptimizers. Throws InvalidArgument for a
/// table that no pattern matches, and for a pattern that matches none.
inline std::vector<int> optimizers_of(std::string_view text, const Layout& layout) {
  const std::vector<OptimizerOfTables> pairs = parse_optimizers(text);
  require(!layout.tables.empty(), "a collection without tables; give one at least");
  std::vector<bool> used(pairs.size());
  std::vector<int> optimizers;
  for (const TableSpec& table : layout.tables) {
    int optimizer = -1;
    for (std::size_t p = 0; p < pairs.size(); ++p)
      if (::fnmatch(pairs[p].pattern.c_str(), std::string(table.name).c_str(), 0) == 0) {
        if (optimizer < 0) optimizer = pairs[p].optimizer;
        used[p] = true;
      }
    require(optimizer >= 0,
            "optimizer {}: no pattern matches table '{}'; add a pair for all others, "
            "such as rowwise-adagrad:*, at the end",
            text, table.name);
    optimizers.push_back(optimizer);
  }
  for (std::size_t p = 0; p < pairs.size(); ++p)
    require(used[p], "optimizer {}: no table matches '{}'; tables are '{}' to '{}'", text,
            pairs[p].pattern, layout.tables.front().name, layout.tables.back().name);
  return optimizers;
}

/// Returns the groups of a layout's tables, with the constants that a text gives, in one of
/// kTablePrecisions. Throws as optimizers_of.
inline NamedOptimizers named_optimizers(std::string_view text, std::string_view precision,
                                        const Layout& layout) {
  const auto* const found = std::find(kTablePrecisions.begin(), kTablePrecisions.end(), precision);
  require(found != kTablePrecisions.end(), "there is no precision '{}' of tables; give one of {}",
          precision, listed(kTablePrecisions));
  const int first = static_cast<int>((found - kTablePrecisions.begin()) * std::ssize(kOptimizers));
  NamedOptimizers groups;
  groups.group_of_table = optimizers_of(text, layout);
  for (int& group : groups.group_of_table) group += first;
  for (const OptimizerOfTables& pair : parse_optimizers(text))
    std::apply(
        [&, i = 0](auto&... group) mutable {
          ((i++ == first + pair.optimizer ? set_constants(group.optimizer, pair.constants)
                                          : void()),
           ...);
        },
        groups.groups);
  return groups;
}

}}}  // namespace tessera::v0::detail
