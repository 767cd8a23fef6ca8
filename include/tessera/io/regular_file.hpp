// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// A regular file, open for reading. Move-only: closes when destroyed. Throws DataError, naming the
/// file, if it can't be opened, and for pipes, devices and folders: those may block, never end,
/// or give their bytes only once.
class RegularFile {
 public:
  explicit RegularFile(const std::filesystem::path& path) : name_(path.string()) {
    // Without O_NONBLOCK, open waits until somebody writes into a pipe.
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    require<DataError>(descriptor_ >= 0, "cannot open '{}': {}", name_, std::strerror(errno));
    struct stat status = {};
    const bool known = ::fstat(descriptor_, &status) == 0;
    if (known && S_ISREG(status.st_mode)) {
      size_ = static_cast<std::size_t>(status.st_size);
      return;
    }
    const std::string reason =
        !known                    ? std::strerror(errno)
        : S_ISDIR(status.st_mode) ? "it is a directory, not a regular file"
        : S_ISFIFO(status.st_mode)
            ? "it is a pipe, which can be read only once; write its content to a file first"
            : "it is not a regular file; write its content to a file first";
    ::close(descriptor_);
    throw DataError(formatted("cannot read '{}': {}", name_, reason));
  }

  RegularFile(RegularFile&& other) noexcept
      : name_(std::move(other.name_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        size_(other.size_) {}
  RegularFile& operator=(RegularFile&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~RegularFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  const std::string& name() const { return name_; }
  int descriptor() const { return descriptor_; }
  /// Returns the size in bytes, when it was opened.
  std::size_t size() const { return size_; }

  /// Reads up to `bytes` bytes from `offset` on; returns how many, 0 only at the end.
  std::size_t read(void* to, std::size_t bytes, std::int64_t offset) const {
    ssize_t count = 0;
    do count = ::pread(descriptor_, to, bytes, offset);
    while (count < 0 && errno == EINTR);
    require<DataError>(count >= 0, "cannot read '{}': {}", name_, std::strerror(errno));
    return static_cast<std::size_t>(count);
  }

  /// Returns the whole content, of at most `most` bytes. Throws DataError for a file that is
  /// larger, or becomes shorter meanwhile.
  std::string text(std::size_t most = std::size_t{256} << 20) const {
    require<DataError>(size_ <= most, "file '{}' has {} bytes; {} are the most", name_, size_,
                       most);
    std::string content(size_, '\0');
    for (std::size_t done = 0, count; done < size_; done += count) {
      count = read(content.data() + done, size_ - done, static_cast<std::int64_t>(done));
      require<DataError>(count > 0, "file '{}' became shorter while it was read", name_);
    }
    return content;
  }

 private:
  std::string name_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
};

}}}  // namespace tessera::v0::detail
