// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/deadline.hpp>
#include <tessera/core/format.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Whether a call of a blocking communicator can be ended from outside without freeing what the
/// call uses: ncclCommRevoke (NCCL 2.28.7). ncclCommAbort frees it at once.
inline constexpr bool nccl_can_revoke = NCCL_VERSION_CODE >= 22807;

inline std::string late_text(std::chrono::nanoseconds timeout, std::string_view why) {
  return formatted("late: waited {} ms; {}",
                   std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(), why);
}
inline std::string nccl_text(ncclResult_t result, ncclComm_t comm) {
  return formatted("NCCL says: {} ({})", ncclGetErrorString(result), ncclGetLastError(comm));
}

/// Watches one blocking NCCL communicator from a thread of its own: revokes it, which ends the call
/// under way and NCCL's kernels, where a call takes longer than `timeout` (zero: for ever), is
/// interrupted, or NCCL has an asynchronous error. The communicator is still there afterwards, to
/// be aborted by its own thread.
class NcclWatchdog {
 public:
  NcclWatchdog(ncclComm_t comm, std::chrono::nanoseconds timeout, std::string_view late)
      : comm_(comm),
        timeout_(timeout),
        late_(late),
        thread_([this](const std::stop_token& stop) { work(stop); }) {}
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  /// While it lives, a call is inside NCCL. A revocation that has begun ends before it does.
  class Call {
   public:
    explicit Call(NcclWatchdog* watchdog)
        : Call(watchdog, watchdog ? watchdog->timeout_ : Span{}) {}
    Call(NcclWatchdog* watchdog, std::chrono::nanoseconds limit) : watchdog_(watchdog) {
      if (watchdog_ == nullptr) return;
      watchdog_->set_deadline(limit.count() == 0 ? Clock::time_point::max()
                                                 : deadline_after(limit));
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
      if (watchdog_ != nullptr) watchdog_->set_deadline({});
    }

   private:
    using Span = std::chrono::nanoseconds;
    NcclWatchdog* watchdog_;
  };

  /// Ends the call under way; from any thread.
  void interrupt(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      interruption_ = why;
    }
    changed_.notify_all();
  }
  /// Returns why it has revoked the communicator; empty: it has not.
  std::string fault() {
    const std::lock_guard lock(mutex_);
    return fault_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void set_deadline(Clock::time_point deadline) {
    const std::lock_guard lock(mutex_);
    deadline_ = deadline;
  }

  void work(const std::stop_token& stop) {
    using namespace std::chrono_literals;
    const std::chrono::nanoseconds longest = 50ms;
    const std::chrono::nanoseconds period =
        timeout_.count() == 0 ? longest
                              : std::clamp<std::chrono::nanoseconds>(timeout_ / 8, 1ms, longest);
    std::unique_lock lock(mutex_);
    while (fault_.empty()) {
      changed_.wait_for(lock, stop, period,
                        [&] { return !interruption_.empty() && deadline_ != Clock::time_point{}; });
      if (stop.stop_requested()) return;
      fault_ = find_fault();
      // The lock is held: who ends a call, or asks, waits until the communicator is at rest.
      if (!fault_.empty()) revoke();
    }
  }
  std::string find_fault() const {
    if (deadline_ != Clock::time_point{}) {
      if (!interruption_.empty()) return interruption_;
      if (Clock::now() > deadline_) return late_text(timeout_, late_);
    }
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    if (asked != ncclSuccess) state = asked;
    return state == ncclSuccess || state == ncclInProgress ? "" : nccl_text(state, comm_);
  }
  void revoke() {
#if NCCL_VERSION_CODE >= 22807
    static_cast<void>(ncclCommRevoke(comm_, NCCL_REVOKE_DEFAULT));
#endif
  }

  const ncclComm_t comm_;
  const std::chrono::nanoseconds timeout_;
  const std::string_view late_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  Clock::time_point deadline_{};  // of the call under way, if one is
  std::string interruption_, fault_;
  std::jthread thread_;  // last: it uses the others
};

/// A call of NCCL that may never return and cannot be ended from outside (joining, ending), made on
/// a thread of its own, with the caller's GPU. Who stops waiting leaves that thread behind, and
/// with it what the call works on.
class AbandonableCall {
 public:
  template <class Call>
  explicit AbandonableCall(Call call) : state_(std::make_shared<State>()) {
    int device = 0;
    static_cast<void>(cudaGetDevice(&device));
    std::thread([state = state_, call = std::move(call), device]() mutable {
      static_cast<void>(cudaSetDevice(device));
      state->result = call(state->comm);
      state->done.store(true, std::memory_order_release);
    }).detach();
  }

  bool done() const { return state_->done.load(std::memory_order_acquire); }
  /// Return NCCL's answer once it is done, and the communicator that the call left.
  ncclResult_t result() const { return state_->result; }
  ncclComm_t comm() const { return state_->comm; }

 private:
  struct State {
    std::atomic<bool> done{false};
    ncclResult_t result = ncclInProgress;
    ncclComm_t comm = nullptr;
  };
  std::shared_ptr<State> state_;
};

}}}  // namespace tessera::v0::detail
