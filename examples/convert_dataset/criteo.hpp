// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>

namespace convert {

struct Options {
  std::string from, to, schema;
  double test_fraction = 0.1;
  std::int64_t max_rows = 1'000'000, min_count = 10;
  bool skip_bad_lines = false;
  int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 256);
};

/// A Criteo click file to the binary layout, and a folder of Criteo's shape to such a file.
void criteo_to_binary(const Options& options);
void binary_to_criteo(const Options& options);

}  // namespace convert
