// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tessera { inline namespace v0 { namespace detail {

/// What caches of tables have done so far.
struct CacheCounters {
  std::int64_t rows = 0;          ///< distinct rows that batches asked for, batch by batch
  std::int64_t fetched_rows = 0;  ///< of them, those that were not in the cache
  std::int64_t written_rows = 0;  ///< that went back to make room, or to be read as a table
  std::int64_t read_bytes = 0;    ///< from the files' disk; of memory, those of the rows
  std::int64_t written_bytes = 0;
  double seconds = 0;  ///< in which a thread waited for rows

  /// Returns the part of the rows that were there.
  double hit_rate() const {
    return rows == 0 ? 1 : 1 - static_cast<double>(fetched_rows) / static_cast<double>(rows);
  }
  CacheCounters& operator+=(const CacheCounters& other) {
    rows += other.rows;
    fetched_rows += other.fetched_rows;
    written_rows += other.written_rows;
    read_bytes += other.read_bytes;
    written_bytes += other.written_bytes;
    seconds += other.seconds;
    return *this;
  }
};

}}}  // namespace tessera::v0::detail
