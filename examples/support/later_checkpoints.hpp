// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/folder.hpp>

#include <cstdint>
#include <filesystem>

namespace support {

/// Removes a folder's checkpoints of later steps than this one: in that of the best model, what a
/// training left that was resumed from before them. They would count as the folder's last one.
inline void remove_later_checkpoints(const std::filesystem::path& directory, std::int64_t step) {
  for (const std::int64_t later : tessera::detail::checkpoint_steps(directory))
    if (later > step)
      tessera::detail::remove_checkpoint(directory, tessera::detail::checkpoint_name(later));
}

}  // namespace support
