// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/op/kernel.hpp>

#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace op {

/// The distinct ids of arrays, each array for itself, in an order that the ids alone decide: ids[i]
/// == distinct[index[i]]. Negative ids are not among them; their index is -1. The host waits for
/// `found`, unless the room is filled.
template <IdType Id>
struct DistinctIds {
  struct Job {
    const Id* ids = nullptr;
    std::int64_t count = 0;
    Id* distinct = nullptr;         ///< room for `count`
    std::int32_t* index = nullptr;  ///< [count]
    std::int64_t found = 0;         ///< out: distinct ids
    std::int64_t rows = 0;          ///< all ids are below; 0: not known, on the host
    /// of `bags` bags, or null: the ids are those from ids[offsets[0]] to ids[offsets[bags]], of
    /// which the first `count` count
    const std::int64_t* offsets = nullptr;
    std::int64_t bags = 0;
  };
  struct Parameters {
    std::span<Job> jobs;
    /// Room that is left over becomes -1, in `distinct` and `index`, and `found` is `count`: no one
    /// waits. For backends whose memory the host cannot read, as are offsets.
    bool fills_room = false;
  };
};

}}}  // namespace tessera::v0::op
