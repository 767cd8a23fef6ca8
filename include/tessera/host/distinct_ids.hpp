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

namespace tessera { inline namespace v0 {

/// Distinct ids in the order of their first appearance. Where a table has not many more rows than
/// there are ids: by an index for each of its rows, which is never cleared, as an entry counts only
/// where it leads to the row's own id (Briggs and Torczon 1993). Else by a hash table of indices,
/// which grows with what is found. Threads take whole jobs.
template <IdType Id>
struct op::Kernel<op::DistinctIds<Id>, Host> {
  using Job = typename op::DistinctIds<Id>::Job;

  static void run(const Host& backend, const typename op::DistinctIds<Id>::Parameters& p) {
    std::size_t room = 0;
    for (const Job& job : p.jobs)
      room = std::max(room, by_row(job) ? static_cast<std::size_t>(job.rows) : most_slots(job));
    auto* const tables = static_cast<std::int32_t*>(
        backend.scratch(detail::ScratchSlot::rows_of_ids,
                        room * sizeof(std::int32_t) * static_cast<std::size_t>(backend.threads())));
    detail::parallel_for(backend.threads(), static_cast<std::int64_t>(p.jobs.size()),
                         [&](std::int64_t job, int worker) {
                           Job& of = p.jobs[static_cast<std::size_t>(job)];
                           std::int32_t* const table =
                               tables + static_cast<std::size_t>(worker) * room;
                           by_row(of) ? find_by_row(of, table) : find_by_hash(of, table);
                         });
  }

 private:
  static bool by_row(const Job& job) { return job.rows > 0 && job.rows / 16 <= job.count; }

  static void find_by_row(Job& job, std::int32_t* index_of_row) {
    std::int32_t found = 0;
    for (std::int64_t i = 0; i < job.count; ++i) {
      const Id id = job.ids[i];
      if (id < 0) {
        job.index[i] = -1;
        continue;
      }
      std::int32_t at = index_of_row[id];  // what was here before, perhaps
      if (static_cast<std::uint32_t>(at) >= static_cast<std::uint32_t>(found) ||
          job.distinct[at] != id) {
        index_of_row[id] = at = found;
        job.distinct[found++] = id;
      }
      job.index[i] = at;
    }
    job.found = found;
  }

  /// Returns a power of two, so that a hash table is at most half full at the end.
  static std::size_t most_slots(const Job& job) {
    return std::bit_ceil(static_cast<std::size_t>(2 * job.count + 1));
  }

  /// Returns a product: its high bits tell neighbours apart, its low ones ids at even distances.
  static std::size_t place(Id id) {
    const std::uint64_t product = static_cast<std::uint64_t>(id) * 0x9e3779b97f4a7c15;
    return static_cast<std::size_t>(product ^ (product >> 32));
  }

  static void find_by_hash(Job& job, std::int32_t* table) {
    const std::size_t most = most_slots(job);
    std::size_t size = std::min<std::size_t>(most, first_size);
    clear(table, size);
    std::int32_t found = 0;
    for (std::int64_t i = 0; i < job.count; ++i) {
      const Id id = job.ids[i];
      if (id < 0) {
        job.index[i] = -1;
        continue;
      }
      std::size_t at = slot_of(id, job.distinct, table, size);
      if (table[at] < 0) {
        if (8 * static_cast<std::size_t>(found) >= size && size < most) {
          size = std::min(most, 4 * size);
          clear(table, size);
          for (std::int32_t k = 0; k < found; ++k)
            table[slot_of(job.distinct[k], job.distinct, table, size)] = k;
          at = slot_of(id, job.distinct, table, size);
        }
        table[at] = found;
        job.distinct[found++] = id;
      }
      job.index[i] = table[at];
    }
    job.found = found;
  }

  static constexpr std::size_t first_size = 1024;
  static void clear(std::int32_t* table, std::size_t size) {
    std::memset(table, 0xff, size * sizeof(*table));  // -1: free
  }
  /// Returns where an id's index is, or would be.
  static std::size_t slot_of(Id id, const Id* distinct, const std::int32_t* table,
                             std::size_t size) {
    std::size_t at = place(id) & (size - 1);
    while (table[at] >= 0 && distinct[table[at]] != id) at = (at + 1) & (size - 1);
    return at;
  }
};

}}  // namespace tessera::v0
