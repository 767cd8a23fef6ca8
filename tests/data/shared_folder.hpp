// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

/// A folder handed out beside the repository. Where it is absent the whole test binary ends as skipped (exit code 77).
inline std::filesystem::path shared_folder(const char* name) {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  const auto folder = (root / ".." / "shared" / name).lexically_normal();
  if (!std::filesystem::is_directory(folder)) {
    std::printf("skipped: there is no folder %s\n", folder.c_str());
    std::exit(77);
  }
  return folder;
}

/// A file name for one test of one process, removed on both ends of its life.
struct TemporaryFile {
  explicit TemporaryFile(const char* name) : path(std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()))) {
    std::filesystem::remove(path);
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::filesystem::path path;
};
