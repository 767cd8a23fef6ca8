// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tessera { inline namespace v0 {

/// Where the rows of tables OnFile are, and how many are in memory.
struct TableFiles {
  /// made if it is missing; every rank may give the same one
  std::string folder{};
  /// of this rank, for all its tables OnFile that say no number of rows (Cached)
  std::int64_t cache_bytes = 0;
  /// transfers under way at a time
  int queue_depth = 64;
};

}}  // namespace tessera::v0
