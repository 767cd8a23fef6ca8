// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns a name beside a file, for what becomes the file when it is complete: no other process,
/// also of another container or machine, and no other call, gets the same.
inline std::filesystem::path partial_path(std::filesystem::path file) {
  static std::atomic<int> calls{0};
  static const std::uint64_t drawn = [] {
    std::uint64_t word = 0;
    return ::getrandom(&word, sizeof(word), 0) == ssize_t{sizeof(word)} ? word : 0;
  }();
  file += formatted(".partial-{}-{:x}-{}", ::getpid(), drawn, ++calls);
  return file;
}

/// A file without a name in a folder: gone when it is destroyed, or the process ends, however that
/// ends. Bytes are added at the end and read anywhere. Throws DataError, naming the folder, if
/// it can't be made, written or read, as on a full disk.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::string name = (folder_ / "tessera-XXXXXX").string();
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail("make");
    ::unlink(name.c_str());
  }
  TemporaryFile(TemporaryFile&& other) noexcept
      : folder_(std::move(other.folder_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        size_(std::exchange(other.size_, 0)),
        mapped_(std::exchange(other.mapped_, nullptr)) {}
  TemporaryFile& operator=(TemporaryFile&& other) noexcept {
    std::swap(folder_, other.folder_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }
  ~TemporaryFile() {
    if (mapped_ != nullptr) ::munmap(mapped_, size_);
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  std::size_t size() const { return size_; }

  void append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count =
          ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail("write");
      size_ += static_cast<std::size_t>(count);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }

  /// Fills `to` from byte `offset` on; there must be as many.
  void read(std::span<std::byte> to, std::size_t offset) const {
    while (!to.empty()) {
      const ssize_t count = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count == 0) errno = EIO;
      if (count <= 0) fail("read");
      offset += static_cast<std::size_t>(count);
      to = to.subspan(static_cast<std::size_t>(count));
    }
  }

  /// Returns all bytes in memory, as they are touched. Nothing may be added after it.
  std::span<const std::byte> map() {
    if (mapped_ == nullptr && size_ > 0) {
      void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
      if (data == MAP_FAILED) fail("map");
      mapped_ = data;
    }
    return {static_cast<const std::byte*>(mapped_), size_};
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw DataError(formatted("cannot {} a temporary file in '{}' ({} bytes so far): {}", what,
                              folder_.string(), size_, std::strerror(errno)));
  }

  std::filesystem::path folder_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
  void* mapped_ = nullptr;
};

}}}  // namespace tessera::v0::detail
