// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// An open file that is read and written at places, by many ranks at once. Move-only. What fails
/// throws DataError with the file's name.
class File {
 public:
  enum class Mode : std::uint8_t { read, write, create };

  /// Opens a file. `create`: there must be no such file yet. `read`: a regular file, or a folder,
  /// to lock or to sync it.
  File(const std::filesystem::path& path, Mode mode) : name_(path.string()) {
    // O_NONBLOCK: to open a FIFO would wait for somebody who writes to it.
    const int flags = mode == Mode::read    ? O_RDONLY | O_NONBLOCK
                      : mode == Mode::write ? O_RDWR
                                            : O_RDWR | O_CREAT | O_EXCL;
    file_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    check(file_ >= 0, mode == Mode::create ? "create" : "open");
    struct stat status = {};
    if (mode != Mode::read || ::fstat(file_, &status) != 0 || S_ISREG(status.st_mode) ||
        S_ISDIR(status.st_mode))
      return;
    ::close(file_);
    throw DataError(formatted("cannot read '{}': it is not a regular file", name_));
  }
  File(File&& other) noexcept
      : name_(std::move(other.name_)), file_(std::exchange(other.file_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(file_, other.file_);
    return *this;
  }
  ~File() {
    if (file_ >= 0) ::close(file_);
  }

  const std::string& name() const { return name_; }

  std::uint64_t size() const {
    struct stat status = {};
    check(::fstat(file_, &status) == 0, "read");
    return static_cast<std::uint64_t>(status.st_size);
  }

  /// Returns the file's stamp: another one once the file has been written to.
  std::array<std::int64_t, 4> stamp() const {
    struct stat status = {};
    check(::fstat(file_, &status) == 0, "read");
    return {static_cast<std::int64_t>(status.st_ino), status.st_size, status.st_mtim.tv_sec,
            status.st_mtim.tv_nsec};
  }

  /// Makes the file so large and takes the space for it on the disk, so that a full disk shows
  /// before anything is written.
  void reserve(std::uint64_t bytes) {
    const SizeLimitSignal blocked;
    int error = 0;
    do error = ::posix_fallocate(file_, 0, static_cast<off_t>(bytes));
    while (error == EINTR);
    errno = error;
    check(error == 0, "reserve space for");
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      check(count > 0, "write");
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
  }

  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      check(count >= 0, "read");
      require<DataError>(count > 0, "file '{}' ends at offset {}, {} bytes too early", name_,
                         offset, bytes.size());
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
  }

  /// Returns false if another open file, of this process or another, has the lock. It is released
  /// when the file is closed, at the latest when the process ends. Always true if the file
  /// system has no locks.
  bool try_lock() { return ::flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

  /// Returns when the file's bytes are on the disk.
  void sync() { check(::fsync(file_) == 0, "sync"); }

  /// A part of the file in memory; what is written there is written to the file, which must be that
  /// large.
  class Window {
   public:
    Window(const File& file, std::uint64_t begin, std::uint64_t bytes) {
      const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
      skipped_ = begin % page;
      size_ = bytes + skipped_;
      memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.file_,
                       static_cast<off_t>(begin - skipped_));
      file.check(memory_ != MAP_FAILED, "map");
    }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;
    ~Window() { ::munmap(memory_, size_); }
    std::byte* data() const { return static_cast<std::byte*>(memory_) + skipped_; }

   private:
    void* memory_ = nullptr;
    std::uint64_t skipped_ = 0, size_ = 0;
  };

 private:
  /// Beyond the process's limit of file sizes (ulimit -f) the system sends SIGXFSZ, which would end
  /// the process without a word; blocked, the call fails with EFBIG. Takes back what this thread
  /// was sent meanwhile.
  class SizeLimitSignal {
   public:
    SizeLimitSignal() {
      ::sigemptyset(&signal_);
      ::sigaddset(&signal_, SIGXFSZ);
      ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
    }
    SizeLimitSignal(const SizeLimitSignal&) = delete;
    SizeLimitSignal& operator=(const SizeLimitSignal&) = delete;
    ~SizeLimitSignal() {
      const timespec now{};
      if (::sigismember(&before_, SIGXFSZ) == 0) ::sigtimedwait(&signal_, nullptr, &now);
      ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

   private:
    sigset_t signal_, before_;
  };

  void check(bool good, const char* what) const {
    if (!good) throw DataError(formatted("cannot {} '{}': {}", what, name_, std::strerror(errno)));
  }

  std::string name_;
  int file_ = -1;
};

/// Returns when the names in a folder are on the disk.
inline void sync_folder(const std::filesystem::path& path) {
  File folder(path, File::Mode::read);
  folder.sync();
}

}}}  // namespace tessera::v0::detail
