// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/regular_file.hpp>

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// A whole file mapped into memory for reading; pages come in as they are touched. Move-only:
/// unmaps when destroyed. Throws DataError, naming the file, when it can't be opened or mapped, or
/// is no regular file. The file must not shrink while mapped.
class MappedFile {
 public:
  MappedFile() = default;

  explicit MappedFile(const std::filesystem::path& path) {
    const RegularFile file(path);
    size_ = file.size();
    if (size_ == 0) return;
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    if (data_ == MAP_FAILED) {
      data_ = nullptr;
      throw DataError(
          formatted("cannot map '{}' ({} bytes): {}", file.name(), size_, std::strerror(errno)));
    }
  }

  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}}}  // namespace tessera::v0::detail
