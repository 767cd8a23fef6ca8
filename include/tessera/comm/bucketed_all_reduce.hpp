// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/backend.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

namespace tessera { inline namespace v0 {

/// Sums a buffer of gradients over all ranks while its first part is still being computed. Backward
/// fills the buffer from its end; what is final is announced, and goes in buckets of at least
/// `bucket_bytes` to a thread that all-reduces one after the other. Sums are those of one
/// all-reduce of the whole buffer, to the bit. `communicator` is used by that thread alone: give it
/// one of its own. Every rank announces the same parts in the same order. One step is: ready,
/// ready, ..., wait. A communicator whose calls go to a stream and return (`queues_calls`, NCCL's)
/// is called by the announcing thread instead, in the announced order.
///
///     BucketedAllReduce buckets(second, parameters.gradients(), 512 * 1024);
///     top.backward(dy, dx, [&](std::span<const float> part) { buckets.ready(part); });
///     buckets.wait();
template <Communicator<Collective::all_reduce> C>
class BucketedAllReduce {
 public:
  BucketedAllReduce(C& communicator, std::span<float> gradients, std::size_t bucket_bytes)
      : BucketedAllReduce([] {}, communicator, gradients, bucket_bytes) {}
  /// Works on gradients in the memory of a backend that computes in the order of a stream. Buckets
  /// include work queued before `ready`; work queued after `wait` sees the sums. `computing` works
  /// on the gradients; `communicating` on the stream that the communicator uses, an object of its
  /// own.
  template <class Backend>
  BucketedAllReduce(C& communicator, std::span<float> gradients, std::size_t bucket_bytes,
                    const Backend& computing, const Backend& communicating)
      : BucketedAllReduce(detail::queues_calls(communicator) ? std::function<void()>()
                                                             : detail::thread_setup(communicating),
                          communicator, gradients, bucket_bytes) {
    detail::require_memory<Backend>(communicator);
    await_gradients_ = [computing, communicating] { communicating.wait_for(computing); };
    await_sums_ = [computing, communicating] { computing.wait_for(communicating); };
  }
  BucketedAllReduce(const BucketedAllReduce&) = delete;
  BucketedAllReduce& operator=(const BucketedAllReduce&) = delete;
  /// Waits for a bucket under way: end the communicator first if peers may not come.
  ~BucketedAllReduce() = default;

  /// Tells that `part` is final: it ends where the last one began, or at the end of the buffer.
  void ready(std::span<const float> part) {
    require(part.data() + part.size() == gradients_.data() + begin_ && part.size() <= begin_,
            "BucketedAllReduce: a part of {} gradients does not end at {}, where the last one "
            "began; announce them from the end",
            part.size(), begin_);
    begin_ -= part.size();
    if (end_ - begin_ >= least_ || begin_ == 0) send();
  }

  /// Returns when all gradients are sums. Throws what an all-reduce threw, after which nothing more
  /// can be done here.
  void wait() {
    require(begin_ == 0, "BucketedAllReduce: the first {} gradients have not been announced",
            begin_);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return buckets_.empty() || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    if (await_sums_) await_sums_();
    begin_ = end_ = gradients_.size();
  }

 private:
  BucketedAllReduce(std::function<void()> setup, C& communicator, std::span<float> gradients,
                    std::size_t bucket_bytes)
      : communicator_(communicator),
        gradients_(gradients),
        least_(bucket_bytes / sizeof(float)),
        begin_(gradients.size()),
        end_(begin_) {
    if (!setup) return;
    worker_ = std::jthread([this, setup = std::move(setup)](std::stop_token stop) {
      setup();
      work(stop);
    });
  }

  void send() {
    if (begin_ == end_) return;
    if (await_gradients_) await_gradients_();
    if (!worker_.joinable()) {
      // behind the buckets before it and the gradients before it: nothing later holds it up
      const std::span<float> bucket = gradients_.subspan(begin_, end_ - begin_);
      end_ = begin_;
      try {
        if (!failure_) communicator_.all_reduce(bucket);
      } catch (...) {
        failure_ = std::current_exception();
      }
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      buckets_.push_back(gradients_.subspan(begin_, end_ - begin_));
    }
    end_ = begin_;
    changed_.notify_all();
  }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, stop, [&] { return !buckets_.empty() && !failure_; });
      if (stop.stop_requested()) return;
      const std::span<float> bucket = buckets_.front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        communicator_.all_reduce(bucket);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failure_ = failure;
      buckets_.pop_front();
      changed_.notify_all();
    }
  }

  C& communicator_;
  std::span<float> gradients_;
  std::size_t least_;
  std::size_t begin_, end_;  // of the bucket that is being filled
  std::function<void()> await_gradients_, await_sums_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::span<float>> buckets_;
  std::exception_ptr failure_;
  std::jthread worker_;  // last: it uses the others
};

}}  // namespace tessera::v0
