// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <span>

// Where golden vectors are, and when numbers are theirs.

namespace {

bool golden_close(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!(std::fabs(found[i] - expected[i]) <= 1e-5f + 1e-4f * std::fabs(expected[i])))
      return false;
  return true;
}

/// Runs every file of the folder that TESSERA_GOLDEN names.
void run_golden_folder(void (*run)(const std::filesystem::path&)) {
  const char* const folder = std::getenv("TESSERA_GOLDEN");
  if (folder == nullptr) {
    MESSAGE("skipped: TESSERA_GOLDEN names no folder of golden vectors");
    return;
  }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") {
      ++files;
      run(entry.path());
    }
  CHECK(files > 0);
}

}  // namespace
