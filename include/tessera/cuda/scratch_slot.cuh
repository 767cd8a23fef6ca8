// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace tessera { inline namespace v0 { namespace gpu {

/// The blocks of a backend's scratch memory, by what an operation keeps there while it runs. An
/// operation that calls another one and goes on with its own blocks must not share them with it.
enum class ScratchSlot : std::size_t {
  entries,           ///< entries or keys to sort, losses, decoded rows
  places,            ///< what belongs to them: places of keys
  pack_counts,       ///< of tiles and of jobs, from the call that counts to the one that packs
  cub,               ///< CUB's temporary memory
  sources,           ///< where gradients or arrays begin, for kernels
  windows,           ///< a number or two per window of sorted entries
  sums,              ///< partial sums of windows, or of keys
  row_marks,         ///< which sorted entries begin a row
  sums_so_far,       ///< of rows that are merged, by sorted entry; and their lists
  parts,             ///< segments of an arena, parts of a row, for kernels
  merged_rows,       ///< of rows that are merged in memory
  merged_gradients,  ///< likewise
  products,          ///< cuBLASLt's workspace
  column_sums,       ///< of dense layers' blocks of rows
  clip_segments,     ///< of an arena whose rows' gradients are clipped
  count
};

}}}  // namespace tessera::v0::gpu
