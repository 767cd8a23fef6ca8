// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/distinct_ids.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera::inline v0 {

/// Distinct ids in the order of their first appearance, by a hash table of indices into them, at
/// most half full. Threads take whole jobs.
template <IdType Id>
struct op::Kernel<op::DistinctIds<Id>, Host> {
  using Job = typename op::DistinctIds<Id>::Job;

  static void run(const Host& backend, const typename op::DistinctIds<Id>::Parameters& p) {
    std::int64_t most = 0;
    for (const Job& job : p.jobs) most = std::max(most, job.count);
    const std::size_t room = table_size(most);
    auto* const tables = static_cast<std::int32_t*>(backend.scratch(
        0, room * sizeof(std::int32_t) * static_cast<std::size_t>(backend.threads())));
    parallel_for(backend.threads(), static_cast<std::int64_t>(p.jobs.size()),
                 [&](std::int64_t job, int worker) {
                   find(p.jobs[static_cast<std::size_t>(job)],
                        tables + static_cast<std::size_t>(worker) * room);
                 });
  }

 private:
  static std::size_t table_size(std::int64_t count) {
    return std::bit_ceil(static_cast<std::size_t>(2 * count + 1));
  }

  /// One product: its high bits tell neighbours apart, its low ones what lies at even distances.
  static std::size_t place(Id id) {
    const std::uint64_t product = static_cast<std::uint64_t>(id) * 0x9e3779b97f4a7c15;
    return static_cast<std::size_t>(product ^ (product >> 32));
  }

  static void find(Job& job, std::int32_t* table) {
    const std::size_t size = table_size(job.count), mask = size - 1;
    std::memset(table, 0xff, size * sizeof(*table));  // -1: free
    std::int32_t found = 0;
    for (std::int64_t i = 0; i < job.count; ++i) {
      const Id id = job.ids[i];
      if (id < 0) {
        job.index[i] = -1;
        continue;
      }
      std::size_t at = place(id) & mask;
      while (table[at] >= 0 && job.distinct[table[at]] != id) at = (at + 1) & mask;
      if (table[at] < 0) {
        table[at] = found;
        job.distinct[found++] = id;
      }
      job.index[i] = table[at];
    }
    job.found = found;
  }
};

}  // namespace tessera::inline v0
