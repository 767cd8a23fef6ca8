// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera_serving/frozen_model.hpp>
#include <tessera_serving/model_inputs.hpp>
#include <tessera_serving/running_threads.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// How many samples a BatchingScorer joins, how long it waits, and how many may wait.
struct BatchingOptions {
  /// Requests are joined up to so many samples; one that has more goes alone.
  std::int64_t max_samples = 256;
  /// How long the first of them waits for others, where a thread is free.
  std::chrono::microseconds max_delay{0};
  int threads = 1;
  /// Samples that may wait; beyond them submit returns false.
  std::int64_t max_waiting = 1 << 16;
};

/// Scores requests of many callers together, on threads of its own: one product of many samples is
/// faster than many of a few. Requests are scored in the order in which they come.
class BatchingScorer {
 public:
  /// What is to be scored, and where the scores go. It and its samples stay in place until
  /// `done` has been called, on a thread of the scorer: without an error, or with what scoring
  /// threw.
  struct Request {
    const EncodedSamples* samples = nullptr;
    std::span<float> scores{};
    std::function<void(std::exception_ptr)> done{};
    std::chrono::steady_clock::time_point since{};
    Request* next = nullptr;
  };

  /// Scores all that has been submitted before it ends. Throws InvalidArgument for options that are
  /// not positive, and Error if a thread cannot be started.
  explicit BatchingScorer(const FrozenModel& model, BatchingOptions options = {})
      : model_(model),
        options_(checked(options)),
        threads_(options.threads, [this] { work(); }, [this] { stop(); }) {}
  BatchingScorer(const BatchingScorer&) = delete;
  BatchingScorer& operator=(const BatchingScorer&) = delete;

  const FrozenModel& model() const { return model_; }

  /// Returns at once: false, with nothing done, if too many samples wait already.
  bool submit(Request& request) {
    {
      const std::lock_guard lock(mutex_);
      const std::int64_t samples = request.samples->samples;
      if (first_ != nullptr && waiting_ + samples > options_.max_waiting) return false;
      request.next = nullptr;
      request.since = std::chrono::steady_clock::now();
      (first_ == nullptr ? first_ : last_->next) = &request;
      last_ = &request;
      waiting_ += samples;
    }
    changed_.notify_one();
    return true;
  }

  /// Waits for the scores. Throws what scoring throws, and Error if too many samples wait.
  void score(const EncodedSamples& samples, std::span<float> scores) {
    struct {
      std::mutex mutex;
      std::condition_variable over;
      bool done = false;
      std::exception_ptr error;
    } wait;
    Request request{.samples = &samples, .scores = scores, .done = [&wait](std::exception_ptr e) {
                      const std::lock_guard lock(wait.mutex);
                      wait.error = std::move(e);
                      wait.done = true;
                      wait.over.notify_one();
                    }};
    require<Error>(submit(request), "BatchingScorer: {} samples wait already; try again later",
                   options_.max_waiting);
    std::unique_lock lock(wait.mutex);
    wait.over.wait(lock, [&] { return wait.done; });
    if (wait.error) std::rethrow_exception(wait.error);
  }

 private:
  static const BatchingOptions& checked(const BatchingOptions& options) {
    require(options.max_samples >= 1 && options.threads >= 1 && options.max_waiting >= 1 &&
                options.max_delay.count() >= 0,
            "BatchingScorer: max_samples ({}), threads ({}) and max_waiting ({}) must be at least "
            "1, max_delay ({} us) not negative",
            options.max_samples, options.threads, options.max_waiting, options.max_delay.count());
    return options;
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }

  void work() {
    EncodedSamples joined;
    std::vector<float> scores;
    for (;;) {
      Request* const requests = take();
      if (requests == nullptr) return;
      if (requests->next == nullptr) {
        finish(*requests, guarded([&] { model_.score(*requests->samples, requests->scores); }));
        continue;
      }
      std::exception_ptr error = guarded([&] {
        join(requests, joined);
        scores.resize(static_cast<std::size_t>(joined.samples));
        model_.score(joined, scores);
      });
      std::size_t begin = 0;
      for (Request* r = requests; r != nullptr;) {
        Request* const next = r->next;  // done may end the request
        const std::size_t count = r->scores.size();
        // what is wrong with one must not fail the others
        if (error) {
          finish(*r, guarded([&] { model_.score(*r->samples, r->scores); }));
        } else {
          std::copy_n(scores.data() + begin, count, r->scores.data());
          finish(*r, nullptr);
        }
        begin += count;
        r = next;
      }
    }
  }

  /// Returns requests that go together, as a list; null: there will be no more.
  Request* take() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return first_ != nullptr || stopping_; });
      if (first_ == nullptr) return nullptr;
      const auto until = first_->since + options_.max_delay;
      if (waiting_ >= options_.max_samples || stopping_ ||
          std::chrono::steady_clock::now() >= until)
        break;
      changed_.wait_until(lock, until);
    }
    Request* const requests = first_;
    std::int64_t samples = 0;
    for (Request* last = nullptr; first_ != nullptr; last = std::exchange(first_, first_->next)) {
      const std::int64_t more = first_->samples->samples;
      if (last != nullptr && samples + more > options_.max_samples) {
        last->next = nullptr;
        break;
      }
      samples += more;
    }
    waiting_ -= samples;
    if (first_ != nullptr) changed_.notify_one();
    return requests;
  }

  template <class F>
  static std::exception_ptr guarded(const F& f) {
    try {
      f();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }
  static void finish(Request& request, std::exception_ptr error) {
    const auto done = std::move(request.done);
    done(std::move(error));
  }

  /// Joins the samples of all requests one after another, column by column.
  static void join(const Request* requests, EncodedSamples& to) {
    const EncodedSamples& first = *requests->samples;
    to.samples = 0;
    to.numbers.clear(), to.event_numbers.clear(), to.rows.clear();
    to.offsets.assign(1, 0);
    to.number_given = first.number_given;
    to.feature_given = first.feature_given;
    for (const Request* r = requests; r != nullptr; r = r->next) {
      const EncodedSamples& samples = *r->samples;
      require(samples.number_given == to.number_given &&
                  samples.feature_given == to.feature_given &&
                  std::ssize(r->scores) == samples.samples,
              "BatchingScorer: requests of other columns");
      to.samples += samples.samples;
      to.numbers.insert(to.numbers.end(), samples.numbers.begin(), samples.numbers.end());
      to.event_numbers.insert(to.event_numbers.end(), samples.event_numbers.begin(),
                              samples.event_numbers.end());
    }
    for (std::size_t f = 0; f < to.feature_given.size(); ++f)
      for (const Request* r = requests; r != nullptr; r = r->next) {
        const EncodedSamples& samples = *r->samples;
        const auto n = static_cast<std::size_t>(samples.samples);
        const std::int64_t* const offsets = samples.offsets.data() + f * n;
        const std::int64_t shift = std::ssize(to.rows) - offsets[0];
        for (std::size_t s = 1; s <= n; ++s) to.offsets.push_back(offsets[s] + shift);
        to.rows.insert(to.rows.end(), samples.rows.begin() + offsets[0],
                       samples.rows.begin() + offsets[n]);
      }
  }

  const FrozenModel& model_;
  BatchingOptions options_;
  std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  Request *first_ = nullptr, *last_ = nullptr;
  std::int64_t waiting_ = 0;  ///< samples
  bool stopping_ = false;
  detail::RunningThreads threads_;
};

}}  // namespace tessera::v0
