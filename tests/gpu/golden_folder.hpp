// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/safetensors.hpp>

#include <doctest/doctest.h>
#include <golden/known_keys.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string>

// Where golden vectors are, and when numbers are theirs.

namespace {

bool golden_close(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!(std::fabs(found[i] - expected[i]) <= 1e-5f + 1e-4f * std::fabs(expected[i])))
      return false;
  return true;
}

/// Throws InvalidArgument if an object of a case, or one below it, says what its type in kKnownKeys
/// does not have: its numbers would be compared with those of another case.
inline void golden_known(const std::string& what, const nlohmann::json& given,
                         const std::string& type = "case") {
  static const auto types = nlohmann::json::parse(golden::kKnownKeys);
  const nlohmann::json& kinds = types[type];
  const std::string kind = kinds.contains("") ? "" : given.at("kind").get<std::string>();
  tessera::require(kinds.contains(kind), "{}: the kind '{}' is not known here", what, kind);
  for (const auto& [key, value] : given.items()) {
    if (key == "kind" && !kind.empty()) continue;
    tessera::require(kinds[kind].contains(key), "{} has '{}', which is not known here", what, key);
    const nlohmann::json& below = kinds[kind][key];
    if (below.is_null() || value.is_null()) continue;
    for (const auto& one : value.is_array() ? value : nlohmann::json::array({value}))
      golden_known(what + ", " + below.get<std::string>(), one, below);
  }
}

/// Returns what the case of a file says. Throws InvalidArgument for what is not known here.
inline nlohmann::json read_golden_case(const std::filesystem::path& file) {
  auto said = nlohmann::json::parse(tessera::SafetensorsReader(file).metadata().at("case"));
  golden_known("the case " + file.stem().string(), said);
  return said;
}

/// Runs the cases of `kinds` in the folder that TESSERA_GOLDEN names, and prints how many there were
/// of each: a kind is what a file's name begins with, up to `_`. One without a case is a failure.
void run_golden_folder(std::initializer_list<const char*> kinds,
                       void (*run)(const std::filesystem::path&)) {
  const char* const folder = std::getenv("TESSERA_GOLDEN");
  if (folder == nullptr) {
    MESSAGE("skipped: TESSERA_GOLDEN names no folder of golden vectors");
    return;
  }
  std::map<std::string, int> cases;
  for (const char* const kind : kinds) cases[kind] = 0;
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.insert(entry.path());
  for (const std::filesystem::path& file : files) {
    const std::string name = file.stem().string();
    const auto found = cases.find(name.substr(0, name.find('_')));
    if (found == cases.end()) continue;
    run(file);
    ++found->second;
  }
  std::string line;
  for (const auto& kind : cases) {
    INFO("golden cases of kind ", kind.first);
    CHECK(kind.second > 0);
    line += (line.empty() ? "" : ", ") + kind.first + " " + std::to_string(kind.second);
  }
  std::printf("golden: %s\n", line.c_str());
}

}  // namespace
