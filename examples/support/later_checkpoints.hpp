// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/folder.hpp>

#include <cstdint>
#include <filesystem>
#include <string>

namespace support {

/// Removes a folder's checkpoints of later steps than this one: in that of the best model, what a
/// training left that was resumed from before them. They would count as the folder's last one.
inline void remove_later_checkpoints(const std::filesystem::path& directory, std::int64_t step) {
  namespace detail = tessera::detail;
  for (const std::int64_t later : detail::checkpoint_steps(directory)) {
    if (later <= step) continue;
    const std::string name = detail::checkpoint_name(later);
    const std::filesystem::path removed = directory / (std::string(detail::kRemovedPrefix) + name);
    std::filesystem::rename(directory / name, removed);  // what is half removed is not seen
    std::filesystem::remove_all(removed);
  }
}

}  // namespace support
