// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

/// A folder for one test's files, removed at the end. In memory where that can be: tests that wait
/// for a disk wait long.
struct TemporaryFolder {
  std::filesystem::path path;
  TemporaryFolder() {
    for (const std::filesystem::path& parent :
         {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()}) {
      std::string name = (parent / "tessera_test_XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) continue;
      path = name;
      return;
    }
    throw std::runtime_error("no temporary folder");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  /// A file of the folder as a shell reads it.
  std::string quoted(const std::string& name) const { return "'" + (path / name).string() + "'"; }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
};
