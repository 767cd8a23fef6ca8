// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/collective_checks.hpp>
#include <tessera/comm/deadline.hpp>
#include <tessera/comm/nccl_memory.hpp>
#include <tessera/comm/nccl_watchdog.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// The stream and memory of a rank, how long it waits, and what it checks.
struct NcclOptions {
  cudaStream_t stream = nullptr;
  /// How long a wait may take before the communicator is aborted; zero: for ever.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  /// How long the end of the communicator may take before it is aborted, with a line on the
  /// standard error; zero: as `timeout`. NCCL waits there for CUDA graphs that captured the
  /// communicator.
  std::chrono::nanoseconds end_timeout = std::chrono::seconds(10);
  /// Before each call outside a group, ranks tell each other what it is and throw if they
  /// disagree, which NCCL itself does not notice. Costs a small all-gather and a wait per call, and
  /// cannot be captured in a graph: for debugging.
  bool check_calls = false;
  /// Of what comes from host memory, and of what ranks tell each other to check calls.
  NcclMemory memory{};
  /// NCCL's calls return when they are given to the stream, and a watchdog ends those that are
  /// late. False, or NCCL below 2.28.7: NCCL makes a thread for every group of calls, some 20 to 60
  /// us of host time that a replayed CUDA graph does not need, and nothing blocks inside NCCL.
  bool blocking = detail::nccl_can_revoke;
  /// Of the communicator that is made; `blocking` is set by the option above.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
};

namespace detail {

/// Returns the version of the NCCL library that runs, which may be newer or older than its header:
/// 22809 for 2.28.9.
inline int nccl_library_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

}  // namespace detail

namespace detail {
inline ncclUniqueId new_nccl_id() {
  ncclUniqueId id{};
  if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess)
    throw CommunicatorError(-1, "ncclGetUniqueId",
                            formatted("ncclGetUniqueId: {} ({})", ncclGetErrorString(result),
                                      ncclGetLastError(nullptr)));
  return id;
}
}  // namespace detail

/// Returns the id of a new NCCL communicator of the ranks of `other`, which any host communicator
/// tells them: MPI's, or threads'.
template <class C>
  requires detail::HasRank<C> && detail::HasBroadcast<C>
ncclUniqueId share_nccl_id(C& other) {
  ncclUniqueId id{};
  if (other.rank() == 0) id = detail::new_nccl_id();
  other.broadcast(std::span(&id, 1), 0);
  return id;
}

/// Does the same through a file that all ranks see. Rank 0 makes it and must find none. The others
/// wait until it is there.
inline ncclUniqueId share_nccl_id(const std::filesystem::path& file, int rank,
                                  std::chrono::nanoseconds timeout) {
  ncclUniqueId id{};
  if (rank == 0) {
    require(
        !std::filesystem::exists(file),
        "share_nccl_id: '{}' exists, from another job or an earlier one; remove it or name another",
        file.string());
    id = detail::new_nccl_id();
    const std::filesystem::path part = file.string() + ".part";
    std::ofstream out(part, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&id), sizeof(id));
    out.close();
    require<Error>(out.good(), "share_nccl_id: cannot write '{}'", part.string());
    std::filesystem::rename(part, file);  // at once: no reader sees half of it
    return id;
  }
  const auto deadline = detail::deadline_after(timeout);
  for (;;) {
    std::ifstream in(file, std::ios::binary);
    if (in.read(reinterpret_cast<char*>(&id), sizeof(id))) return id;
    if (timeout.count() != 0 && std::chrono::steady_clock::now() > deadline)
      throw CommunicatorError(
          0, "share_nccl_id",
          detail::formatted("share_nccl_id: rank {} waited {} ms for rank 0 to write '{}'", rank,
                            std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(),
                            file.string()));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

namespace detail {

/// The life of one NCCL communicator: joining, calls and groups, waits that end, abort. What
/// NcclCommunicator is made of.
class NcclSession {
 public:
  NcclSession(const ncclUniqueId& id, int rank, int size, NcclOptions options)
      : options_(options), owner_(true), rank_(rank), size_(size) {
    require(size >= 1 && rank >= 0 && rank < size, "NcclCommunicator: rank {} is not in 0..{}",
            rank, size - 1);
    options_.blocking &= detail::nccl_can_revoke;
    options_.config.blocking = options_.blocking ? 1 : 0;
    doing_ = "joining";
    begin_clock();
    if (options_.blocking) {
      const ncclConfig_t config = options_.config;
      nccl_ = settle_beside("ncclCommInitRankConfig", [id, rank, size, config](ncclComm_t& comm) {
        ncclConfig_t mine = config;
        return ncclCommInitRankConfig(&comm, size, id, rank, &mine);
      });
      watch();
    } else {
      settle("ncclCommInitRankConfig",
             ncclCommInitRankConfig(&nccl_, size, id, rank, &options_.config));
    }
    doing_ = "nothing";
  }
  NcclSession(ncclComm_t user, NcclOptions options) : options_(options), nccl_(user) {
    doing_ = "joining";
    begin_clock();
    settle("ncclCommGetAsyncError", ncclInProgress);  // until it is ready
    check("ncclCommUserRank", ncclCommUserRank(user, &rank_));
    check("ncclCommCount", ncclCommCount(user, &size_));
  }
  /// Returns a session of the ranks that give the same `color`, in the order of their ranks here. A
  /// collective call.
  std::unique_ptr<NcclSession> split(int color) {
    throw_if_failed();
    require(color >= 0, "NcclCommunicator: split by color {} on rank {}: colors are not negative",
            color, rank_);
    require(depth_ == 0, "NcclCommunicator: split on rank {}: not within a group", rank_);
    NcclOptions options = options_;
    options.config.blocking = watchdog_ ? 1 : 0;
    collective_ = "ncclCommSplit";
    doing_ = formatted("splitting by color {}", color);
    ncclComm_t part = nullptr;
    call(collective_, [&] { return ncclCommSplit(nccl_, color, rank_, &part, &options.config); });
    auto session = std::make_unique<NcclSession>(part, options);
    session->owner_ = true;
    if (watchdog_) session->watch();
    return session;
  }
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;
  /// Ends the session. While an exception flies, peers may never come to what is under way here: an
  /// abort does not wait for them.
  ~NcclSession() {
    if (failed()) return;
    release_scratch();
    if (!owner_) return;
    const bool blocking = watchdog_ != nullptr;
    const bool told = blocking && !watchdog_->fault().empty();
    watchdog_.reset();
    if (told || std::uncaught_exceptions() > exceptions_) {
      ncclCommAbort(nccl_);
      return;
    }
    try {
      begin_clock();
      doing_ = "ending";
      if (options_.end_timeout.count() != 0) options_.timeout = options_.end_timeout;
      late_ =
          "a CUDA graph that captured the communicator lives (destroy graphs first), or a peer "
          "does not end its own";
      if (blocking) {
        // What is late here is left to the thread that waits for it: an abort would free it.
        nccl_ = settle_beside("ncclCommFinalize",
                              [mine = std::exchange(nccl_, nullptr)](ncclComm_t& comm) {
                                comm = mine;
                                return ncclCommFinalize(mine);
                              });
      } else {
        settle("ncclCommFinalize", ncclCommFinalize(nccl_));
      }
      ncclCommDestroy(nccl_);
    } catch (const CommunicatorError& error) {  // it has been aborted
      std::fprintf(stderr, "tessera: %s\n", error.what());
    }
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  ncclComm_t get() const { return nccl_; }
  bool failed() const { return !failure_.empty(); }
  cudaStream_t stream() const { return options_.stream; }
  void set_stream(cudaStream_t stream) { options_.stream = stream; }

  /// Makes the wait under way, or the next call, abort and throw `text`; from any thread.
  void interrupt(const std::string& text) {
    const std::lock_guard lock(interrupting_);
    if (interrupted_.load()) return;
    interruption_ = text;
    interrupted_.store(true);
    if (watchdog_) watchdog_->interrupt(interrupted_text());
  }

  void begin_group() {
    throw_if_failed();
    check("ncclGroupStart", ncclGroupStart());
    ++depth_;
  }
  void end_group() {
    --depth_;
    if (depth_ > 0) return check("ncclGroupEnd", ncclGroupEnd());
    call("ncclGroupEnd", [] { return ncclGroupEnd(); });
  }
  /// Abandons a group after an exception inside it: what it holds is not what the peers expect.
  void abandon_group() noexcept {
    if (!failed()) abort("an exception left a group of calls");
  }

  /// Runs one collective: `issue(send, receive)` makes NCCL's calls on pointers to device memory.
  /// What each peer gets from, and gives to, this rank is told if counts differ between ranks.
  template <class Issue>
  void run(CallHeader header, std::span<const std::size_t> to_peers,
           std::span<const std::size_t> from_peers, std::span<const std::byte> send,
           std::span<std::byte> receive, Issue issue) {
    throw_if_failed();
    fail_if_interrupted();
    header.call = ++calls_;
    collective_ = name_of(header.collective);
    doing_ = formatted("{} (call {}), {} bytes to send and {} to receive", collective_, calls_,
                       send.size(), receive.size());
    if (options_.check_calls && depth_ == 0) agree(header, to_peers, from_peers);
    const bool in_place = static_cast<const void*>(send.data()) == receive.data();
    if (!on_host(send.empty() ? receive.data() : send.data())) {
      begin_group();
      issue(send.data(), receive.data());
      return end_group();
    }
    require(depth_ == 0, "{} on rank {}: buffers in host memory cannot be part of a group",
            collective_, rank_);
    require(!capturing(), "{} on rank {}: buffers in host memory cannot be part of a CUDA graph",
            collective_, rank_);
    // Copies of pageable memory can block behind the stream's work, out of a timeout's reach: they
    // find it done.
    wait();
    const std::size_t begin = in_place ? 0 : (send.size() + 255) / 256 * 256;
    std::byte* const scratch = reserve(begin + receive.size());
    copy(scratch, send.data(), send.size());
    begin_group();
    issue(static_cast<const std::byte*>(scratch), scratch + begin);
    end_group();
    wait();
    copy(receive.data(), scratch + begin, receive.size());
    wait();
  }

  void wait() {
    throw_if_failed();
    require(!capturing(),
            "NcclCommunicator on rank {}: the stream is captured, there is nothing to wait for",
            rank_);
    begin_clock();
    for (std::uint64_t turn = 0;; ++turn) {
      const cudaError_t query = cudaStreamQuery(options_.stream);
      if (!cuda_succeeds(query) && query != cudaErrorNotReady)
        fail(formatted("CUDA says: {} ({})", cudaGetErrorString(query), cudaGetErrorName(query)));
      ncclResult_t state = ncclSuccess;
      check("ncclCommGetAsyncError", ncclCommGetAsyncError(nccl_, &state));
      if (state != ncclSuccess && state != ncclInProgress) check("waiting", state);
      fail_if_told();  // a stream whose kernels the watchdog has ended is idle, too
      if (query == cudaSuccess && state == ncclSuccess) return;
      pause(turn);
    }
  }

  /// Aborts and throws unless NCCL's answer is good.
  void check(std::string_view call, ncclResult_t result) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    fail_if_told();
    fail(formatted("{}: {}", call, detail::nccl_text(result, nccl_)));
  }

 private:
  using Clock = std::chrono::steady_clock;

  void throw_if_failed() {
    if (failed()) throw CommunicatorError(-1, collective_, failure_);
    fail_if_told();
  }
  /// Watches a blocking communicator that this session owns.
  void watch() {
    const std::lock_guard lock(interrupting_);
    watchdog_ = std::make_unique<detail::NcclWatchdog>(nccl_, options_.timeout, late_);
  }
  void fail_if_told() {
    if (!watchdog_ || failed()) return;
    if (const std::string fault = watchdog_->fault(); !fault.empty()) fail(fault);
  }

  /// Makes a call that may wait for peers: inside NCCL, where a watchdog sees it, or behind it.
  template <class Issue>
  void call(std::string_view name, Issue issue) {
    begin_clock();
    ncclResult_t result = ncclSuccess;
    {
      const detail::NcclWatchdog::Call watched(watchdog_.get());
      result = issue();
    }
    fail_if_told();
    settle(name, result);
  }
  /// Makes a call of a blocking communicator that nothing can end.
  template <class Issue>
  ncclComm_t settle_beside(std::string_view name, Issue issue) {
    const detail::AbandonableCall beside(std::move(issue));
    for (std::uint64_t turn = 0; !beside.done(); ++turn) pause(turn);
    check(name, beside.result());
    return beside.comm();
  }

  /// Waits until NCCL has taken a call of a non-blocking communicator.
  void settle(std::string_view call, ncclResult_t result) {
    check(call, result);
    for (std::uint64_t turn = 0; result == ncclInProgress; ++turn) {
      check("ncclCommGetAsyncError", ncclCommGetAsyncError(nccl_, &result));
      check(call, result);
      if (result == ncclInProgress) pause(turn);
    }
  }

  void begin_clock() { begin_ = Clock::now(); }
  /// Takes one turn of a wait. The longer it lasts, the more of the core it leaves to others.
  void pause(std::uint64_t turn) {
    fail_if_interrupted();
    if (turn < 64) return;
    const auto waited = Clock::now() - begin_;
    if (options_.timeout.count() != 0 && waited > options_.timeout)
      fail(detail::late_text(options_.timeout, late_));
    if (waited < std::chrono::milliseconds(2)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  void fail_if_interrupted() {
    if (interrupted_.load()) fail(interrupted_text());
  }
  std::string interrupted_text() const { return "it was interrupted: " + interruption_; }
  [[noreturn]] void fail(const std::string& why) {
    abort(why);
    throw CommunicatorError(-1, collective_, failure_);
  }
  /// Ends NCCL's kernels and threads here; NCCL tells the peers where its transport can.
  void abort(std::string_view why) noexcept {
    failure_ = formatted("rank {} of {}: {}: {}", rank_, size_, doing_, why);
    {
      // gives the calls of an open group to NCCL, which may wait for peers
      const detail::NcclWatchdog::Call watched(watchdog_.get(), std::chrono::milliseconds(200));
      for (; depth_ > 0; --depth_) ncclGroupEnd();
    }
    {
      const std::lock_guard lock(interrupting_);
      watchdog_.reset();
    }
    if (nccl_ != nullptr) ncclCommAbort(nccl_);
    release_scratch();
  }

  bool capturing() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cuda_succeeds(cudaStreamIsCapturing(options_.stream, &status)) &&
           status != cudaStreamCaptureStatusNone;
  }
  static bool on_host(const void* p) {
    cudaPointerAttributes attributes{};
    if (p == nullptr || !cuda_succeeds(cudaPointerGetAttributes(&attributes, p))) return false;
    return attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
  }

  void check_cuda(cudaError_t result, std::string_view call) {
    if (!cuda_succeeds(result))
      fail(formatted("{}: CUDA says: {} ({})", call, cudaGetErrorString(result),
                     cudaGetErrorName(result)));
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0)
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, options_.stream),
                 "cudaMemcpyAsync");
  }
  std::byte* reserve(std::size_t bytes) {
    if (bytes > scratch_bytes_) {
      release_scratch();
      const std::size_t wanted = bytes + bytes / 4;
      try {
        scratch_ = static_cast<std::byte*>(options_.memory.allocate(wanted, options_.stream));
      } catch (const std::exception& error) {
        fail(formatted("{} bytes of device memory: {}", wanted, error.what()));
      }
      if (scratch_ == nullptr)
        fail(formatted("{} bytes of device memory: the driver has none", wanted));
      scratch_bytes_ = wanted;
    }
    return scratch_;
  }
  void release_scratch() noexcept {
    if (scratch_ != nullptr) options_.memory.deallocate(scratch_, scratch_bytes_, options_.stream);
    scratch_ = nullptr;
    scratch_bytes_ = 0;
  }

  /// Tells all ranks what this one is about to do. All find the same fault, throw it, and may go
  /// on.
  void agree(const CallHeader& header, std::span<const std::size_t> to_peers,
             std::span<const std::size_t> from_peers) {
    const auto ranks = static_cast<std::size_t>(size_);
    const std::size_t words = 2 * ranks, bytes = sizeof(CallHeader) + words * sizeof(std::size_t);
    std::vector<std::byte> mine(bytes), all(bytes * ranks);
    std::memcpy(mine.data(), &header, sizeof(header));
    copy_bytes(mine.data() + sizeof(header), to_peers.data(), to_peers.size_bytes());
    copy_bytes(mine.data() + sizeof(header) + ranks * sizeof(std::size_t), from_peers.data(),
               from_peers.size_bytes());
    wait();
    std::byte* const scratch = reserve(bytes * (ranks + 1));
    copy(scratch, mine.data(), bytes);
    call("ncclAllGather", [&] {
      return ncclAllGather(scratch, scratch + bytes, bytes, ncclInt8, nccl_, options_.stream);
    });
    wait();
    copy(all.data(), scratch + bytes, all.size());
    wait();

    std::vector<CallHeader> headers(ranks);
    for (std::size_t r = 0; r < ranks; ++r)
      std::memcpy(&headers[r], all.data() + r * bytes, sizeof(CallHeader));
    const auto word = [&](int of, std::size_t i) {
      std::size_t value = 0;
      std::memcpy(&value,
                  all.data() + static_cast<std::size_t>(of) * bytes + sizeof(CallHeader) +
                      i * sizeof(value),
                  sizeof(value));
      return value;
    };
    Disagreement fault = disagreement_of_calls(
        header.collective, size_,
        [&](int r) -> const CallHeader& { return headers[static_cast<std::size_t>(r)]; });
    for (int to = 0; to < size_ && fault.text.empty() && !to_peers.empty(); ++to)
      fault = disagreement_of_counts(
          header, to, size_, [&](int from) { return word(from, static_cast<std::size_t>(to)); },
          [&](int from) { return word(to, ranks + static_cast<std::size_t>(from)); });
    if (!fault.text.empty()) throw CommunicatorError(fault.rank, collective_, fault.text);
  }

  NcclOptions options_;
  ncclComm_t nccl_ = nullptr;
  bool owner_ = false;
  int rank_ = 0;
  int size_ = 1;
  int exceptions_ = std::uncaught_exceptions();
  int depth_ = 0;  // of open groups
  std::uint64_t calls_ = 0;
  std::string_view collective_ = "ncclCommInitRankConfig";
  std::string doing_, failure_;
  std::string_view late_ = "a peer has failed, or makes other calls, or raise NcclOptions::timeout";
  Clock::time_point begin_;
  std::mutex interrupting_;                         // guards what follows
  std::unique_ptr<detail::NcclWatchdog> watchdog_;  // of a blocking communicator
  std::string interruption_;                        // complete once this is true:
  std::atomic<bool> interrupted_{false};
  std::byte* scratch_ = nullptr;  // device memory for buffers of the host
  std::size_t scratch_bytes_ = 0;
};

}  // namespace detail

}}  // namespace tessera::v0
