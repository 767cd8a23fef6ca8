// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

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
