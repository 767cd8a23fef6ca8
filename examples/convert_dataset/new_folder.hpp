// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/dataset_files.hpp"

#include <tessera/checkpoint/folder.hpp>
#include <tessera/core/error.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace convert {

/// The files of a dataset, which take their places in a folder when all are complete. Until then what
/// was there stays. One process at a time writes into a folder: a second one is refused.
class NewFolder {
 public:
  explicit NewFolder(std::filesystem::path folder)
      : folder_(std::move(folder)), unfinished_(folder_ / ".unfinished") {
    std::error_code error;
    made_ = std::filesystem::create_directories(folder_, error);
    check(error, folder_);
    lock_.emplace(folder_);
    std::filesystem::remove_all(unfinished_, error);  // of a run that was killed
    std::filesystem::create_directory(unfinished_, error);
    check(error, folder_);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(unfinished_, ignored);
    if (made_) std::filesystem::remove(folder_, ignored);  // if nothing came into it
  }

  /// Where to write.
  const std::filesystem::path& path() const { return unfinished_; }

  /// Puts the files in place. The specification is the first to go and the last to come: a folder
  /// that has one is complete. What tells of the dataset that was there goes, too.
  void finish() {
    std::error_code error;
    std::vector<std::filesystem::path> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(unfinished_))
      if (entry.is_regular_file() && entry.path() != unfinished_ / kSpecification)
        names.push_back(std::filesystem::relative(entry.path(), unfinished_));
    names.emplace_back(kSpecification);
    std::filesystem::remove(folder_ / kSpecification, error);
    for (const char* file : support::kDatasetFiles) std::filesystem::remove(folder_ / file, error);
    for (const std::filesystem::path& name : names) {
      std::filesystem::create_directories((folder_ / name).parent_path(), error);
      check(error, folder_ / name);
      std::filesystem::rename(unfinished_ / name, folder_ / name, error);
      check(error, folder_ / name);
    }
  }

 private:
  static constexpr const char* kSpecification = "feature_spec.yaml";

  static void check(const std::error_code& error, const std::filesystem::path& path) {
    tessera::require<tessera::DataError>(!error, "cannot write '{}': {}", path.string(),
                                         error.message());
  }

  std::filesystem::path folder_, unfinished_;
  bool made_ = false;
  std::optional<tessera::FolderLock> lock_;
};

}  // namespace convert
