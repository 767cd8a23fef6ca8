// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Cuts, pins and optimizers as the command line and model files name them.
#pragma once

#include "model.hpp"

#include <tessera/core/error.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace plan {

inline constexpr std::array<tessera::Cut, 7> kCuts{
    tessera::Cut::replicated, tessera::Cut::table_wise, tessera::Cut::column_wise,
    tessera::Cut::row_wise,   tessera::Cut::grid,       tessera::Cut::interleaved,
    tessera::Cut::hot_rows};

inline constexpr const char* kCutNames =
    "replicated, table-wise, column-wise, row-wise, grid, interleaved, hot-rows";

inline std::optional<tessera::Cut> find_cut(const std::string& name) {
  for (const tessera::Cut cut : kCuts)
    if (to_string(cut) == name) return cut;
  return std::nullopt;
}

/// Returns the cuts of such names. Throws CLI::ValidationError if no table could be cut.
inline std::vector<tessera::Cut> forbidden_cuts(const std::vector<std::string>& names) {
  using tessera::Cut;
  std::vector<Cut> cuts;
  for (const std::string& name : names) cuts.push_back(*find_cut(name));
  const auto forbidden = [&](Cut cut) {
    return std::find(cuts.begin(), cuts.end(), cut) != cuts.end();
  };
  tessera::require<CLI::ValidationError>(
      !(forbidden(Cut::table_wise) && forbidden(Cut::column_wise) && forbidden(Cut::row_wise) &&
        forbidden(Cut::grid) && forbidden(Cut::replicated)),
      "--forbid: table-wise, column-wise, row-wise, grid and replicated are all forbidden; leave "
      "one of them, as the others do not suit every table");
  return cuts;
}

inline int number(const std::string& text, int least, int most, const std::string& place) {
  const bool digits =
      !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == text.npos;
  tessera::require<CLI::ValidationError>(
      digits && std::stoi(text) >= least && std::stoi(text) <= most,
      "{}: '{}' is not a number from {} to {}", place, text, least, most);
  return std::stoi(text);
}

/// Rows that `hot-rows` copies where it does not say.
inline constexpr int kHotRows = 1000, kMostHotRows = 999'999'999;

/// hot-rows or hot-rows:N. No value: another policy.
inline std::optional<int> hot_rows(const std::string& text, const std::string& place) {
  if (text == "hot-rows") return kHotRows;
  if (!text.starts_with("hot-rows:")) return std::nullopt;
  return number(text.substr(9), 1, kMostHotRows, place);
}

/// TABLE=POLICY, POLICY:PARTS or POLICY@RANK
inline tessera::detail::TablePin parse_pin(const std::string& text, const std::string& place,
                                           Model& model, int ranks) {
  const auto equals = text.rfind('=');
  tessera::require<CLI::ValidationError>(
      equals != text.npos, "{}: write TABLE=POLICY, TABLE=column-wise:4 or TABLE=table-wise@3",
      place);
  std::string how = text.substr(equals + 1);
  tessera::detail::TablePin pin{.table = model.keep(text.substr(0, equals))};
  if (const auto at = how.find('@'); at != how.npos) {
    pin.rank = number(how.substr(at + 1), 0, ranks - 1, place);
    how.resize(at);
  }
  if (const auto colon = how.find(':'); colon != how.npos) {
    pin.parts = number(how.substr(colon + 1), 1,
                       how.starts_with("hot-rows:") ? kMostHotRows : ranks, place);
    how.resize(colon);
  }
  const std::optional<tessera::Cut> cut = find_cut(how);
  tessera::require<CLI::ValidationError>(cut.has_value(), "{}: there is no policy '{}': {}", place,
                                         how, kCutNames);
  pin.cut = *cut;
  using tessera::Cut;
  const bool parts =
      pin.cut == Cut::column_wise || pin.cut == Cut::grid || pin.cut == Cut::hot_rows;
  tessera::require<CLI::ValidationError>(pin.parts == 0 || parts, "{}: {} takes no :PARTS", place,
                                         how);
  tessera::require<CLI::ValidationError>(pin.rank < 0 || pin.cut == Cut::table_wise,
                                         "{}: {} takes no @RANK; table-wise does", place, how);
  const auto table = std::find_if(model.tables.begin(), model.tables.end(),
                                  [&](const tessera::TableSpec& t) { return t.name == pin.table; });
  tessera::require(table != model.tables.end(), "{}: '{}' has no table '{}'", place, model.name,
                   pin.table);
  tessera::require(
      pin.parts == 0 || pin.cut == tessera::Cut::hot_rows || table->width % pin.parts == 0,
      "{}: {} parts do not divide the {} columns of '{}'", place, pin.parts, table->width,
      pin.table);
  return pin;
}

struct OptimizerName {
  const char *option, *type;
  tessera::detail::MemoryCost memory;
};
inline constexpr std::array<OptimizerName, 4> kOptimizers{
    {{"sgd", "Sgd", tessera::memory_cost_of<tessera::Sgd>},
     {"adagrad", "Adagrad", tessera::memory_cost_of<tessera::Adagrad>},
     {"rowwise-adagrad", "RowWiseAdagrad", tessera::memory_cost_of<tessera::RowWiseAdagrad>},
     {"adam", "Adam", tessera::memory_cost_of<tessera::Adam>}}};

inline const OptimizerName& optimizer_named(const std::string& name) {
  return *std::find_if(kOptimizers.begin(), kOptimizers.end(),
                       [&](const OptimizerName& o) { return o.option == name; });
}

}  // namespace plan
