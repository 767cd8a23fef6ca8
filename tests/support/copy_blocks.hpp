// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/io/direct_file.hpp>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <utility>

/// While it lives, DirectFile::clone copies bytes in place of sharing blocks: for file systems that
/// cannot share them.
class CopiedBlocks {
 public:
  CopiedBlocks() { calls = 0; }
  CopiedBlocks(const CopiedBlocks&) = delete;
  CopiedBlocks& operator=(const CopiedBlocks&) = delete;
  ~CopiedBlocks() { tessera::detail::share_blocks = before_; }

  static inline std::atomic<int> calls = 0;

 private:
  static int copy(int to, int from) {
    ++calls;
    struct stat about = {};
    if (::fstat(from, &about) != 0) return -1;
    const auto bytes = static_cast<std::size_t>(about.st_size);
    void* const all = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, from, 0);
    if (all == MAP_FAILED) return -1;
    const bool whole = ::pwrite(to, all, bytes, 0) == static_cast<ssize_t>(bytes);
    ::munmap(all, bytes);
    return whole ? 0 : -1;
  }

  int (*before_)(int, int) = std::exchange(tessera::detail::share_blocks, copy);
};
