// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

/// A folder handed out beside the repository, found above this source or above the program (ccache
/// may make the source's path relative). Where it is absent the whole test binary ends as skipped
/// (exit code 77).
inline std::filesystem::path shared_folder(const char* name) {
  for (std::filesystem::path folder :
       {std::filesystem::path(__FILE__), std::filesystem::read_symlink("/proc/self/exe")})
    while (folder = folder.parent_path(), folder.has_relative_path())
      if (const auto found = folder / "shared" / name; std::filesystem::is_directory(found))
        return found;
  std::printf("skipped: there is no folder shared/%s beside the repository\n", name);
  std::exit(77);
}

/// A file name for one test of one process, removed on both ends of its life.
struct TestFile {
  explicit TestFile(const char* name)
      : path(std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()))) {
    std::filesystem::remove(path);
  }
  ~TestFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  std::filesystem::path path;
};
