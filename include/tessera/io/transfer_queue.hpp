// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/direct_file.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#ifdef TESSERA_HAS_LIBURING
#include <liburing.h>
#endif

namespace tessera { inline namespace v0 { namespace detail {

/// Blocks between memory and a file.
struct FileTransfer {
  const DirectFile* file = nullptr;
  std::uint64_t offset = 0;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

/// Carries out transfers, up to `depth` at a time by io_uring. Where the library was compiled
/// without liburing (target tessera::uring), or the kernel refuses a ring, one after another by
/// pread and pwrite. Used by one thread at a time.
class TransferQueue {
 public:
  explicit TransferQueue([[maybe_unused]] unsigned depth = 64) {
#ifdef TESSERA_HAS_LIBURING
    ring_ = depth > 0 && ::io_uring_queue_init(depth, &queue_, 0) == 0;
    depth_ = depth;
#endif
  }
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;
  ~TransferQueue() {
#ifdef TESSERA_HAS_LIBURING
    if (ring_) ::io_uring_queue_exit(&queue_);
#endif
  }

  /// Returns when all are done. Throws DataError, naming the file, for one that failed; none is
  /// under way then.
  void read(std::span<const FileTransfer> transfers) { run(transfers, false); }
  void write(std::span<const FileTransfer> transfers) { run(transfers, true); }

 private:
  [[noreturn]] static void fail(const FileTransfer& transfer, bool write, int error) {
    throw DataError(formatted("cannot {} {} bytes at offset {} of the table file '{}': {}",
                              write ? "write" : "read", transfer.bytes, transfer.offset,
                              transfer.file->name(),
                              error == 0 ? "the file has become shorter" : std::strerror(error)));
  }

  void run(std::span<const FileTransfer> transfers, bool write) {
#ifdef TESSERA_HAS_LIBURING
    if (ring_) return run_in_ring(transfers, write);
#endif
    for (const FileTransfer& transfer : transfers) finish(transfer, 0, write);
  }

  /// Transfers the bytes from `done` on.
  static void finish(const FileTransfer& transfer, std::size_t done, bool write) {
    while (done != transfer.bytes) {
      const int descriptor = transfer.file->descriptor();
      const auto at = static_cast<off_t>(transfer.offset + done);
      const ssize_t count =
          write ? ::pwrite(descriptor, transfer.memory + done, transfer.bytes - done, at)
                : ::pread(descriptor, transfer.memory + done, transfer.bytes - done, at);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(transfer, write, count < 0 ? errno : 0);
      done += static_cast<std::size_t>(count);
    }
  }

#ifdef TESSERA_HAS_LIBURING
  void run_in_ring(std::span<const FileTransfer> transfers, bool write) {
    std::size_t next = 0, waiting = 0;
    int error = 0;
    const FileTransfer* failed = nullptr;
    again_.clear();
    while (waiting != 0 || (next != transfers.size() && failed == nullptr)) {
      for (; waiting < depth_ && next != transfers.size() && failed == nullptr; ++next, ++waiting) {
        ::io_uring_sqe* const entry = ::io_uring_get_sqe(&queue_);
        if (entry == nullptr) break;
        const FileTransfer& t = transfers[next];
        const auto bytes = static_cast<unsigned>(t.bytes);
        write ? ::io_uring_prep_write(entry, t.file->descriptor(), t.memory, bytes, t.offset)
              : ::io_uring_prep_read(entry, t.file->descriptor(), t.memory, bytes, t.offset);
        ::io_uring_sqe_set_data64(entry, next);
      }
      const int submitted = ::io_uring_submit_and_wait(&queue_, 1);
      if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) {
        ::io_uring_queue_exit(&queue_);  // the ring itself is broken: no transfer will come back
        ring_ = false;
        fail(transfers[next - 1], write, -submitted);
      }
      ::io_uring_cqe* done = nullptr;
      while (::io_uring_peek_cqe(&queue_, &done) == 0) {
        const std::size_t i = ::io_uring_cqe_get_data64(done);
        const int result = done->res;
        ::io_uring_cqe_seen(&queue_, done);
        --waiting;
        if (result < 0 && result != -EINTR && result != -EAGAIN) {
          if (failed == nullptr) failed = &transfers[i], error = -result;
        } else if (const std::size_t bytes = result < 0 ? 0 : static_cast<std::size_t>(result);
                   bytes != transfers[i].bytes) {
          again_.emplace_back(i, bytes);
        }
      }
    }
    if (failed != nullptr) fail(*failed, write, error);
    for (const auto& [i, bytes] : again_) finish(transfers[i], bytes, write);
  }

  ::io_uring queue_{};
  unsigned depth_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>> again_;  // which, and bytes done
  bool ring_ = false;
#endif
};

}}}  // namespace tessera::v0::detail
