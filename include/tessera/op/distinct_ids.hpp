// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/op/kernel.hpp>

#include <cstdint>
#include <span>

namespace tessera::inline v0::op {

/// The distinct ids of arrays, each array for itself, in an order that the ids alone decide: ids[i]
/// == distinct[index[i]]. Negative ids are not among them; their index is -1. The host waits for
/// `found`.
template <IdType Id>
struct DistinctIds {
  struct Job {
    const Id* ids = nullptr;
    std::int64_t count = 0;
    Id* distinct = nullptr;         ///< room for `count`
    std::int32_t* index = nullptr;  ///< [count]
    std::int64_t found = 0;         ///< out: distinct ids
    std::int64_t rows = 0;          ///< all ids are below; 0: not known, on the host
  };
  struct Parameters {
    std::span<Job> jobs;
  };
};

}  // namespace tessera::inline v0::op
