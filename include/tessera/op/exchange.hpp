// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/bags.hpp>
#include <tessera/op/kernel.hpp>

#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace op {

/// Looks for ids outside [0, rows).
template <IdType Id>
struct CheckIds {
  struct Result {
    std::int64_t bad = 0;     ///< how many
    std::int64_t first = -1;  ///< index of the first of them
  };
  struct Parameters {
    const Id* ids = nullptr;
    std::int64_t count = 0;
    std::int64_t rows = 0;
    Result* result = nullptr;
  };
};

/// Splits bags by blocks of rows, feature by feature. Each block gets the bags that have ids in it,
/// with those ids alone, in order. `whole`: a block of all rows takes every bag unchanged, empty
/// ones too. Sizes are for the host, which waits for them unless all jobs are whole. Where the host
/// cannot read ids, a whole job may have several blocks: each takes every bag, with -1 in place of
/// ids outside its rows, and bags are cut if they do not fit into `entries`.
template <IdType Id>
struct PackBags {
  struct Block {
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
    std::int64_t bags = 0;              ///< out of a call that counts, in to one that does not
    std::int64_t entries = 0;           ///< likewise
    std::int32_t* samples = nullptr;    ///< [bags] which bag of the input; or null
    std::uint32_t* lengths = nullptr;   ///< [bags]; or null
    Id* ids = nullptr;                  ///< [entries]
    float* weights = nullptr;           ///< [entries]; or null
    float* bag_scale = nullptr;         ///< [bags]; or null
    std::int64_t* positions = nullptr;  ///< [entries] index into the input's ids; or null
  };
  struct Job {
    Bags<Id> bags;            ///< with exact entry_bound and first_entry
    std::span<Block> blocks;  ///< disjoint, ascending
    bool whole = false;
  };
  struct Parameters {
    std::span<const Job> jobs;
    bool count_only = false;  ///< sets bags and entries of each block and writes nothing else
    /// The backend's last call counted these jobs, and what it counted from is as it was.
    bool counted = false;
  };
};

/// offsets[0] = 0, offsets[i+1] = offsets[i] + lengths[i], for several arrays.
struct OffsetsFromLengths {
  struct Job {
    const std::uint32_t* lengths = nullptr;
    std::int64_t* offsets = nullptr;
    std::int64_t count = 0;
  };
  struct Parameters {
    std::span<const Job> jobs;
  };
};

/// Sets rows x width of a strided matrix to zero.
struct ZeroRows {
  struct Parameters {
    float* target = nullptr;
    std::int64_t target_stride = 0;
    std::int64_t rows = 0;
    int width = 0;
  };
};

}}}  // namespace tessera::v0::op
