// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/clock.hpp>
#include <tessera/core/error.hpp>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Makes a folder, and those that it is in, unless they are there. Returns errno, or 0.
int make_folders(const std::string& folder);

/// A DirectFile as it was at some moment, as memory.
class FileClone {
 public:
  /// Makes a clone. `view`: of the file; `memory`: a map of as many bytes, which is given back in
  /// the end.
  FileClone(const std::byte* view, std::byte* memory, std::size_t bytes)
      : view_(view), memory_(memory), bytes_(bytes) {}
  FileClone(const FileClone&) = delete;
  FileClone& operator=(const FileClone&) = delete;
  ~FileClone() { ::munmap(memory_, bytes_); }

  /// Returns where the byte is that has this place in the file's view.
  const std::byte* at(const std::byte* in_view) const { return memory_ + (in_view - view_); }

 private:
  const std::byte* view_;
  std::byte* memory_;
  std::size_t bytes_;
};

/// Makes a file of another's blocks, which do not change here when they are changed there. Not
/// 0: the file system cannot do that. Tests put another way in its place.
inline int (*share_blocks)(int to, int from) = [](int to, int from) {
  return ::ioctl(to, FICLONE, from);
};
/// A new file of a fixed size, past the page cache if the file system can do that. All its bytes
/// have a place on the disk from the start, so that no later write finds the disk full. It belongs
/// to this process alone and is removed when it is closed. Move-only.
class DirectFile {
 public:
  /// Offsets, sizes and memory of transfers are multiples of this.
  static constexpr std::size_t block = 4096;

  /// Throws DataError, naming the file, if it cannot be created, is another process's, or finds no
  /// room.
  DirectFile(const std::string& path, std::size_t bytes);
  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&&) = delete;
  ~DirectFile() { close(); }

  const std::string& name() const { return name_; }
  std::size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }
  /// Returns whether transfers pass by the page cache.
  bool direct() const { return direct_; }

  /// Returns the file as memory, by way of the page cache, until it is closed. Throws DataError
  /// where the process may have no address space of that size.
  std::byte* view();
  /// Puts what was written to the view into the file, for transfers to read.
  void write_view();

  /// Returns the file's bytes while it is not written: no bytes are copied, later writes do not
  /// change it, and it needs room on the disk only for what they do change. Null if the file
  /// system cannot do that (XFS and Btrfs can).
  std::shared_ptr<const FileClone> clone();

 private:
  /// Opens the file and locks it. What a killed process had locked may stay so for a moment after
  /// it: the kernel ends its io_uring, which holds the file, in the background.
  void take();
  void reserve();

  void close() noexcept;

  std::string name_;
  std::size_t bytes_;
  int descriptor_ = -1;
  bool owned_ = false, direct_ = false;
  std::byte* view_ = nullptr;
};

/// Memory for transfers of a DirectFile. Growing discards the contents. Move-only.
class BlockBuffer {
 public:
  BlockBuffer() = default;
  BlockBuffer(const BlockBuffer&) = delete;
  BlockBuffer& operator=(const BlockBuffer&) = delete;
  ~BlockBuffer() { release(); }

  std::byte* resize(std::size_t bytes);

 private:
  void release() noexcept;

  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
};

#ifdef TESSERA_INLINE
TESSERA_INLINE int make_folders(const std::string& folder) {
  for (std::size_t end = 0; end != std::string::npos;) {
    end = folder.find('/', end + 1);
    if (::mkdir(folder.substr(0, end).c_str(), 0777) != 0 && errno != EEXIST) return errno;
  }
  struct stat found{};
  return ::stat(folder.c_str(), &found) != 0 ? errno : S_ISDIR(found.st_mode) ? 0 : ENOTDIR;
}

TESSERA_INLINE DirectFile::DirectFile(const std::string& path, std::size_t bytes)
    : name_(path), bytes_((bytes + block - 1) / block * block) {
  take();
  try {
    owned_ = true;
    reserve();
  } catch (...) {
    close();
    throw;
  }
  // a refusal costs memory of the page cache, no more
  const int flags = ::fcntl(descriptor_, F_GETFL);
  direct_ = flags >= 0 && ::fcntl(descriptor_, F_SETFL, flags | O_DIRECT) == 0;
}

TESSERA_INLINE DirectFile::DirectFile(DirectFile&& other) noexcept
    : name_(std::move(other.name_)),
      bytes_(other.bytes_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      owned_(other.owned_),
      direct_(other.direct_),
      view_(std::exchange(other.view_, nullptr)) {}

TESSERA_INLINE std::byte* DirectFile::view() {
  if (view_ == nullptr) {
    void* const memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    require<DataError>(memory != MAP_FAILED, "cannot map the table file '{}' ({} bytes): {}", name_,
                       bytes_, std::strerror(errno));
    view_ = static_cast<std::byte*>(memory);
  }
  return view_;
}

TESSERA_INLINE void DirectFile::write_view() {
  if (view_ == nullptr) return;
  const bool written = ::msync(view_, bytes_, MS_SYNC) == 0;  // before errno is read
  require<DataError>(written, "cannot write '{}': {}", name_, std::strerror(errno));
  // pages that stay would be invalidated one by one by later transfers
  ::madvise(view_, bytes_, MADV_DONTNEED);
  ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
}

TESSERA_INLINE std::shared_ptr<const FileClone> DirectFile::clone() {
  const std::string folder = name_.substr(0, name_.rfind('/') + 1);
  // has no name, and so is gone with its last use, whatever ends the process
  const int copy =
      ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (copy < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (share_blocks(copy, descriptor_) == 0)
    memory = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, copy, 0);
  ::close(copy);
  if (memory == MAP_FAILED) return nullptr;
  return std::make_shared<const FileClone>(view(), static_cast<std::byte*>(memory), bytes_);
}

TESSERA_INLINE void DirectFile::take() {
  for (int turn = 0;; ++turn) {
    descriptor_ = ::open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    require<DataError>(descriptor_ >= 0, "cannot create the table file '{}': {}", name_,
                       std::strerror(errno));
    struct stat here = {}, named = {};
    // its owner may have removed it since it was opened
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 && ::fstat(descriptor_, &here) == 0 &&
        ::stat(name_.c_str(), &named) == 0 && here.st_dev == named.st_dev &&
        here.st_ino == named.st_ino)
      return;
    ::close(std::exchange(descriptor_, -1));
    require<DataError>(turn < 100,
                       "the table file '{}' is in use by another process or collection; give "
                       "each its own folder",
                       name_);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TESSERA_INLINE void DirectFile::reserve() {
  const bool emptied = ::ftruncate(descriptor_, 0) == 0;  // before errno is read
  require<DataError>(emptied, "cannot empty '{}': {}", name_, std::strerror(errno));
  // asked first: an attempt might fill the disk before it fails
  struct statvfs disk = {};
  const bool known = ::fstatvfs(descriptor_, &disk) == 0;
  const std::uint64_t free = known ? std::uint64_t{disk.f_bavail} * disk.f_frsize : 0;
  int error = known && free < bytes_ ? ENOSPC : 0;
  if (error == 0) error = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes_));
  require<DataError>(error == 0,
                     "no room for the table file '{}': it needs {} bytes, {} are free: {}; give "
                     "a folder on a disk with more room, or use more ranks",
                     name_, bytes_, free, std::strerror(error));
}

TESSERA_INLINE void DirectFile::close() noexcept {
  if (view_ != nullptr) ::munmap(view_, bytes_);
  if (descriptor_ < 0) return;
  if (owned_) ::unlink(name_.c_str());
  ::close(descriptor_);
}

TESSERA_INLINE std::byte* BlockBuffer::resize(std::size_t bytes) {
  if (bytes > capacity_) {
    release();
    data_ = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{DirectFile::block}));
    capacity_ = bytes;
  }
  return data_;
}

TESSERA_INLINE void BlockBuffer::release() noexcept {
  if (data_ != nullptr) ::operator delete(data_, std::align_val_t{DirectFile::block});
  data_ = nullptr;
  capacity_ = 0;
}
#endif

}}}  // namespace tessera::v0::detail
