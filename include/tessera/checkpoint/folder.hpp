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
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

// A directory of checkpoints: step-N for each complete one. What is being written or removed has a
// name that begins with a dot.

namespace detail {

inline std::string checkpoint_name(std::int64_t step) {
  require(step >= 0, "checkpoint: the step is {}", step);
  return formatted("step-{:012}", step);
}

/// Returns the step in a folder's name; nothing if checkpoint_name does not make that name.
inline std::optional<std::int64_t> checkpoint_step(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  std::int64_t step = 0;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto [last, fault] =
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  const bool good = fault == std::errc{} && last == name.data() + name.size() && step >= 0 &&
                    name == checkpoint_name(step);
  return good ? std::optional(step) : std::nullopt;
}

inline constexpr std::string_view kPartialPrefix = ".partial-",
                                  kRemovedPrefix = ".partial-removed-";
inline std::string partial_checkpoint_name(std::int64_t step) {
  return std::string(kPartialPrefix) + checkpoint_name(step);
}

/// Steps of the complete checkpoints in a directory, ascending; empty if there is no such
/// directory.
inline std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& directory) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error))
    if (const auto step = checkpoint_step(at->path().filename().string())) steps.push_back(*step);
  require<DataError>(!error || error == std::errc::no_such_file_or_directory,
                     "cannot read the folder '{}': {}", directory.string(), error.message());
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace detail

/// Returns the folder of the highest step, if there is one.
inline std::optional<std::filesystem::path> latest_checkpoint(
    const std::filesystem::path& directory) {
  const std::vector<std::int64_t> steps = detail::checkpoint_steps(directory);
  if (steps.empty()) return std::nullopt;
  return directory / detail::checkpoint_name(steps.back());
}

namespace detail {

/// Returns the manifest of a checkpoint's folder, and the checksum of its text. Throws DataError,
/// naming the file, for one that cannot be read, is damaged, or is of another step than the
/// folder's name says.
inline std::pair<Manifest, std::uint32_t> read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / Manifest::kFile;
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown))
    if (const auto latest = latest_checkpoint(folder))
      throw DataError(
          formatted("'{}' holds checkpoints and is none itself: load one of them; "
                    "latest_checkpoint gives '{}'",
                    folder.string(), latest->string()));
  const File file(path, File::Mode::read);
  require<DataError>(file.size() <= Manifest::kMaxBytes,
                     "file '{}' has {} bytes: a manifest has at most {}", path.string(),
                     file.size(), Manifest::kMaxBytes);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  Manifest manifest = parse_manifest(text, path.string());
  const auto named =
      checkpoint_step((folder.has_filename() ? folder : folder.parent_path()).filename().string());
  require<DataError>(!named || *named == manifest.step,
                     "file '{}' is of step {}, which is not that of its folder", path.string(),
                     manifest.step);
  return {std::move(manifest), crc32(text)};
}

}  // namespace detail

/// Keeps other programs, and other saves of this one, from writing to a directory as long as it
/// exists. It ends with the process, however that ends. Does nothing on file systems without locks
/// (NFS; Lustre that is mounted without them).
class FolderLock {
 public:
  /// Throws DataError if somebody else has the lock and keeps it for 2 s: a program that was just
  /// killed may still have it for a moment.
  explicit FolderLock(const std::filesystem::path& directory)
      : folder_(directory, detail::File::Mode::read) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::seconds(2);
    while (!folder_.try_lock()) {
      require<DataError>(Clock::now() < end,
                         "another program or save writes to '{}': wait for it, or give another "
                         "folder",
                         directory.string());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

 private:
  detail::File folder_;
};

namespace detail {

/// Throws DataError, in the name of `what`, if something is at a path that must be new.
inline void require_new(std::string_view what, const std::filesystem::path& path) {
  require<DataError>(!std::filesystem::exists(path), "{}: '{}' is there already", what,
                     path.string());
}

/// Makes, empty, the folder `partial` that gets the name `folder` when it is complete. Throws
/// DataError if another program makes it, while the result lives, or something has the name.
inline FolderLock begin_folder(std::string_view what, const std::filesystem::path& folder,
                               const std::filesystem::path& partial) {
  require_new(what, folder);
  std::filesystem::create_directory(partial);
  FolderLock lock(partial);
  require_new(what, folder);  // another program may have completed it meanwhile
  for (const auto& entry : std::filesystem::directory_iterator(partial))
    std::filesystem::remove_all(entry.path());
  return lock;
}

/// Removes what saves and removals left behind that did not end. The caller has the FolderLock.
inline void remove_partial_checkpoints(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> partial;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    for (const std::string_view prefix : {kPartialPrefix, kRemovedPrefix})
      if (name.starts_with(prefix) && checkpoint_step(std::string_view(name).substr(prefix.size())))
        partial.push_back(entry.path());
  }
  for (const std::filesystem::path& path : partial) std::filesystem::remove_all(path);
}

/// Returns the name of a checkpoint in a directory that is an increment of the one of that name;
/// empty if none that can be read is.
inline std::string increment_of(const std::filesystem::path& directory, std::string_view base) {
  for (const std::int64_t step : checkpoint_steps(directory)) {
    try {
      if (read_manifest(directory / checkpoint_name(step)).first.base == base)
        return checkpoint_name(step);
    } catch (const DataError&) {
    }
  }
  return {};
}

/// Gives a folder its name; one that had it before is removed. It has the name at once, but on file
/// systems that exchange no names, as Lustre: there a folder that is replaced loses its name first.
inline void replace_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  const auto rename = [](const std::filesystem::path& a, const std::filesystem::path& b,
                         unsigned flags) {
    return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), flags) == 0;
  };
  std::filesystem::path old = from;
  bool renamed = rename(from, to, RENAME_NOREPLACE);
  if (renamed) return;
  if (errno == EEXIST) renamed = rename(from, to, RENAME_EXCHANGE);
  if (!renamed && (errno == EINVAL || errno == ENOSYS)) {
    old = to.parent_path() / (std::string(kRemovedPrefix) + to.filename().string());
    renamed = (rename(to, old, 0) || errno == ENOENT) && rename(from, to, 0);
    if (const int why = errno; !renamed) {
      rename(old, to, 0);
      errno = why;
    }
  }
  require<DataError>(renamed, "cannot rename '{}' to '{}': {}", from.string(), to.string(),
                     std::strerror(errno));
  std::filesystem::remove_all(old);
}

/// Removes a checkpoint. It loses its name first: what is half removed is not seen.
inline void remove_checkpoint(const std::filesystem::path& directory, const std::string& name) {
  const std::filesystem::path removed = directory / (std::string(kRemovedPrefix) + name);
  std::filesystem::rename(directory / name, removed);
  std::filesystem::remove_all(removed);
}

/// Keeps, of the checkpoints up to step `newest`, the one just saved, the `keep` highest steps.
/// Later ones, of another training, stay, and so does what increments among these all need. Throws
/// DataError, with nothing removed, where the manifest of one that stays cannot be read: what it
/// needs is not known.
inline void remove_old_checkpoints(const std::filesystem::path& directory, int keep,
                                   std::int64_t newest) {
  const std::vector<std::int64_t> steps = checkpoint_steps(directory);
  const auto later = std::upper_bound(steps.begin(), steps.end(), newest);
  const std::ptrdiff_t old = std::max<std::ptrdiff_t>(0, later - steps.begin() - keep);
  std::vector<std::string> needed;
  for (std::size_t i = static_cast<std::size_t>(old); i < steps.size(); ++i)
    needed.push_back(read_manifest(directory / checkpoint_name(steps[i])).first.base);
  // increments before their base: a process that dies between leaves none that cannot be loaded
  for (std::size_t i = static_cast<std::size_t>(old); i-- > 0;) {
    const std::string name = checkpoint_name(steps[i]);
    if (std::find(needed.begin(), needed.end(), name) != needed.end()) continue;
    remove_checkpoint(directory, name);
  }
}

}  // namespace detail

}}  // namespace tessera::v0
