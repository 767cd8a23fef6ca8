// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/table_spec.hpp>
#include <tessera/planner/cost.hpp>

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace plan {

/// What a file says in place of an option of the command line.
struct Setting {
  std::string option, value;
  std::string place;  ///< file, line and path, for errors
};

/// Tables, features and dense layers, as read from a file. Specs point to the names that it keeps.
struct Model {
  std::string name;
  std::vector<tessera::TableSpec> tables;
  std::vector<tessera::FeatureSpec> features;
  tessera::Workload workload{};   ///< what the file says of it: skew, sorted ids, dense layers
  std::vector<Setting> settings;  ///< cluster, optimizer, pins and the like
  std::string data;               ///< the file of "from data"; empty: none
  std::string statistics;         ///< the file that take_statistics read; empty: none
  std::deque<std::string> names;
  std::deque<tessera::detail::RowFrequencies> frequencies;  ///< of tables that have some

  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  Model(Model&&) = default;
  Model& operator=(Model&&) = default;
  std::string_view keep(std::string text) { return names.emplace_back(std::move(text)); }
};

/// Reads a model from a JSON file (docs/cost_model.md lists the formats) or a feature specification
/// in YAML. `which`: its name, in a file of several. `width`: of tables for which the file names
/// none. Throws tessera::DataError with the file, the line and the place.
Model read_model(const std::string& path, const std::string& which, int width);

/// Takes hotness, exponents, how often rows are drawn, and whether frequent ones come first, from
/// the text of a file of statistics (id_statistics.hpp) of these tables and features. Throws
/// tessera::DataError with the file and the place.
void take_statistics(Model& model, const std::string& path, const std::string& text);

}  // namespace plan
