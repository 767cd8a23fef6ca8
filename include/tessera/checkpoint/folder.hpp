// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/manifest.hpp>
#include <tessera/core/error.hpp>

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

// A directory of checkpoints: step-N for each complete one. What is being written or removed has a name that begins with a dot.

inline std::string checkpoint_name(std::int64_t step) {
  require(step >= 0, "checkpoint: the step is {}", step);
  return fmt::format("step-{:012}", step);
}

inline constexpr std::string_view kPartialPrefix = ".partial-";
inline std::string partial_checkpoint_name(std::int64_t step) { return std::string(kPartialPrefix) + checkpoint_name(step); }

/// Steps of the complete checkpoints in a directory, ascending; empty if there is no such directory.
inline std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& directory) {
  constexpr std::string_view kPrefix = "step-";
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::int64_t step = 0;
    if (!name.starts_with(kPrefix)) continue;
    const auto [last, fault] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    if (fault == std::errc{} && last == name.data() + name.size() && name == checkpoint_name(step)) steps.push_back(step);
  }
  require<DataError>(!error || error == std::errc::no_such_file_or_directory, "cannot read the folder '{}': {}", directory.string(),
                     error.message());
  std::sort(steps.begin(), steps.end());
  return steps;
}

/// The folder of the highest step, if there is one.
inline std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& directory) {
  const std::vector<std::int64_t> steps = checkpoint_steps(directory);
  if (steps.empty()) return std::nullopt;
  return directory / checkpoint_name(steps.back());
}

/// The manifest of a checkpoint's folder, and the checksum of its text.
inline std::pair<Manifest, std::uint32_t> read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / Manifest::kFile;
  const File file(path, File::Mode::read);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return {parse_manifest(text, path.string()), crc32(text)};
}

/// What saves left behind that did not end.
inline void remove_partial_checkpoints(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> partial;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().filename().string().starts_with(kPartialPrefix)) partial.push_back(entry.path());
  for (const std::filesystem::path& path : partial) std::filesystem::remove_all(path);
}

/// Gives a folder its name at once; one that had it before is removed.
inline void replace_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  const bool exchanged = errno == EEXIST && ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0;
  require<DataError>(exchanged, "cannot rename '{}' to '{}': {}", from.string(), to.string(), std::strerror(errno));
  std::filesystem::remove_all(from);
}

/// Keeps the `keep` highest steps and what increments among them need. A folder loses its name first: what is half removed is not seen.
inline void remove_old_checkpoints(const std::filesystem::path& directory, int keep) {
  const std::vector<std::int64_t> steps = checkpoint_steps(directory);
  const std::size_t kept = std::min(steps.size(), static_cast<std::size_t>(keep));
  std::vector<std::string> needed;
  for (std::size_t i = steps.size() - kept; i < steps.size(); ++i)
    needed.push_back(read_manifest(directory / checkpoint_name(steps[i])).first.base);
  for (std::size_t i = 0; i + kept < steps.size(); ++i) {
    const std::string name = checkpoint_name(steps[i]);
    if (std::find(needed.begin(), needed.end(), name) != needed.end()) continue;
    const std::filesystem::path removed = directory / (std::string(kPartialPrefix) + "removed-" + name);
    std::filesystem::rename(directory / name, removed);
    std::filesystem::remove_all(removed);
  }
}

}  // namespace tessera::inline v0
