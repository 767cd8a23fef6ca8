// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/backend.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace tessera { inline namespace v0 {

namespace detail {

/// A communicator whose waits another thread can end.
template <class C>
concept Interruptible = requires(C& c, const std::string& text) { c.interrupt(text); };

}  // namespace detail

/// Routes the next batch on a thread of its own while this one is in its dense layers. The thread
/// has a communicator of the same ranks, used by nothing else (`communicator.split(0)`), and a
/// backend of its own: on a GPU, one with another stream. Results are those of routing in turn, bit
/// for bit. Over a communicator whose calls go to a stream (`queues_calls`, NCCL's) there is no
/// thread: `start` makes them on the other stream, so that all ranks make all calls in one order,
/// and waits for sizes only if batches are not promised to be equal.
///
///   RouteAhead<Embeddings, std::int32_t, Comm, Host> ahead(embeddings, second, Host{});
///   ahead.start(first batch);
///   for each batch:
///     auto pooled = embeddings.forward_routed(ahead.take(), output);
///     ahead.start(next batch);
///     ... dense layers ...
///     embeddings.backward(pooled, gradient);
template <class Embeddings, IdType Id, detail::Interruptible Comm, class Backend>
class RouteAhead {
 public:
  using StepState = typename Embeddings::template StepState<Id>;

  RouteAhead(Embeddings& embeddings, Comm& second, Backend backend)
      : embeddings_(embeddings), communicator_(second), backend_(std::move(backend)) {
    if (!detail::queues_calls(second))
      thread_ =
          std::jthread([this, setup = detail::thread_setup(backend_)](const std::stop_token& stop) {
            setup();
            work(stop);
          });
  }
  RouteAhead(const RouteAhead&) = delete;
  RouteAhead& operator=(const RouteAhead&) = delete;
  /// Gives up a batch that was started and not taken, on all ranks.
  ~RouteAhead() {
    bool busy = false;
    {
      const std::lock_guard lock(mutex_);
      busy = state_ == State::routing;
    }
    thread_.request_stop();
    if (busy) communicator_.interrupt("a batch that was being routed ahead was given up");
    if (thread_.joinable()) thread_.join();
    backend_.wait_for(embeddings_.backend());  // which still may use what is freed now
    embeddings_.backend().wait_for(backend_);  // which may work on a batch that is not taken
  }

  /// Begins to route a batch and returns. The batch's memory stays in use until the end of its
  /// step, or of this object if the batch is never taken: declare batches before it. Every rank
  /// starts the same batches in the same order. Between `start` and `take` nothing else may route,
  /// nor ask for bad_ids.
  void start(const KeyedJagged<Id>& ids) {
    {
      const std::lock_guard lock(mutex_);
      require(state_ == State::idle,
              "RouteAhead: take the batch that was started before you start another");
      // which fills the ids, and uses the memory of the step before the last
      backend_.wait_for(embeddings_.backend());
      ids_ = ids;
      state_ = State::routing;
    }
    if (!thread_.joinable()) return route();
    changed_.notify_all();
  }

  /// Waits for the batch that was started. The step is valid until the next but one `start`. Throws
  /// what routing it threw.
  StepState& take() {
    std::unique_lock lock(mutex_);
    require(state_ != State::idle, "RouteAhead: no batch was started");
    changed_.wait(lock, [&] { return state_ == State::routed; });
    state_ = State::idle;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    embeddings_.backend().wait_for(backend_);
    return steps_[std::exchange(next_, 1 - next_)];
  }

 private:
  enum class State { idle, routing, routed };

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, stop, [&] { return state_ == State::routing; });
      if (stop.stop_requested()) return;
      lock.unlock();
      route();
      lock.lock();
    }
  }
  void route() {
    std::exception_ptr error;
    try {
      embeddings_.route(steps_[next_], ids_, communicator_, backend_);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      error_ = error;
      state_ = State::routed;
    }
    changed_.notify_all();
  }

  Embeddings& embeddings_;
  Comm& communicator_;
  Backend backend_;
  std::array<StepState, 2> steps_;
  std::size_t next_ = 0;  // step that is being routed, or will be
  std::mutex mutex_;      // guards what follows
  std::condition_variable_any changed_;
  State state_ = State::idle;
  KeyedJagged<Id> ids_;
  std::exception_ptr error_;
  std::jthread thread_;  // last: it uses the others
};

}}  // namespace tessera::v0
