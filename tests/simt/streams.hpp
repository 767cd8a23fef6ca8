// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/graphs.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Streams. They do their work at once, or, while a DeferredStreams lives, only when somebody waits,
// in an order that a program which lacks a wait does not expect.

namespace simt {

/// Some GPUs, of one memory. A thread begins with the first.
inline constexpr int device_count = 4;
inline int& current_device() {
  static thread_local int device = 0;
  return device;
}

struct Queue;
/// A point in a stream's work.
struct Mark {
  std::weak_ptr<Queue> queue;
  std::atomic<bool> done = false;
};
/// What a stream has been given and has not done.
struct Queue {
  struct Entry {
    Work work;
    std::shared_ptr<Mark> awaits{}, reaches{};
  };
  std::deque<Entry> entries;
};

/// In which order the streams work when somebody waits for one of them. What a program orders comes
/// out the same under each.
struct Deferral {
  enum class First {
    awaited,  ///< nothing but what the wait needs: the others are as late as they can be
    /// all that does not depend on the awaited stream, and that stream last: the others are as
    /// early as they can be
    others,
    any  ///< one after another at random; some work is done without a wait, too
  };
  First first = First::awaited;
  std::uint64_t seed = 1;
  /// An allocation may take memory that another stream will free; it then waits for it, as CUDA's
  /// pools do.
  bool reuse_ahead = false;
};

/// All streams of the process.
class Streams {
 public:
  static Streams& instance() {
    static Streams streams;
    return streams;
  }

  bool deferred() const { return deferred_; }
  Deferral deferral() {
    const std::lock_guard lock(mutex_);
    return deferral_;
  }

  /// From here on, work waits. Nothing may be under way.
  void defer(const Deferral& deferral) {
    const std::lock_guard lock(mutex_);
    deferral_ = deferral;
    random_ = scrambled(deferral.seed) | 1u;
    deferred_ = true;
  }
  /// Does what is left, and from here on all at once. After a failure what is left is dropped.
  void end_deferral(bool drop) {
    std::unique_lock lock(mutex_);
    while (!drop) {
      const std::vector<Queue*> able = able_queues();
      if (able.empty()) break;
      run_head(*able[random() % able.size()]);
    }
    std::size_t left = 0;
    for (const auto& queue : queues_) left += queue->entries.size(), queue->entries.clear();
    queues_.clear();
    deferred_ = false;
    if (left == 0 || drop) return;
    std::fprintf(stderr, "simt: streams hold work that can never start\n");
    std::abort();
  }

  /// Gives work to a queue.
  void add(const std::shared_ptr<Queue>& queue, Queue::Entry entry) {
    std::unique_lock lock(mutex_);
    if (!deferred_) {
      wait_for(lock, [&] { return !entry.work.ready || entry.work.ready(); });
      lock.unlock();  // it may wait for what another rank's thread gives
      if (entry.work.run) entry.work.run();
      changed_.notify_all();
      return;
    }
    if (std::find(queues_.begin(), queues_.end(), queue) == queues_.end()) queues_.push_back(queue);
    queue->entries.push_back(std::move(entry));
    changed_.notify_all();
    if (deferral_.first != Deferral::First::any || random() % 4 != 0) return;
    for (auto count = random() % 4; count > 0; --count) {
      const std::vector<Queue*> able = able_queues();
      if (able.empty()) return;
      run_head(*able[random() % able.size()]);
    }
  }

  /// The point that a queue has now been filled to.
  std::shared_ptr<Mark> mark(const std::shared_ptr<Queue>& queue) {
    auto mark = std::make_shared<Mark>();
    mark->queue = queue;
    mark->done = !deferred_;
    if (!mark->done) add(queue, {.work = {}, .reaches = mark});
    return mark;
  }

  /// Works until `mark` is reached.
  void wait(const std::shared_ptr<Mark>& mark) {
    std::unique_lock lock(mutex_);
    while (!mark->done) {
      const std::shared_ptr<Queue> awaited = mark->queue.lock();
      Queue* const next = choose(awaited.get());
      if (next != nullptr)
        run_head(*next);
      else
        wait_for(lock, [&] { return mark->done || choose(awaited.get()) != nullptr; });
    }
  }

  /// Whether some work waits for other ranks.
  bool meetings_pending() {
    const std::lock_guard lock(mutex_);
    for (const auto& queue : queues_)
      for (const Queue::Entry& entry : queue->entries)
        if (entry.work.ready) return true;
    return false;
  }

  /// The order in which a graph's branches are done.
  std::vector<std::size_t> order(const CUgraph_st& graph) {
    const Deferral now = deferral();
    if (!deferred_ || now.first == Deferral::First::others) {
      std::vector<std::size_t> as_captured(graph.nodes.size());
      std::iota(as_captured.begin(), as_captured.end(), std::size_t{0});
      return as_captured;
    }
    if (now.first == Deferral::First::awaited)
      return order_of(graph, [](std::size_t n) { return n - 1; });
    // The same on all ranks: their collectives must meet.
    return order_of(graph, [seed = now.seed](std::size_t n) mutable {
      return (seed = scrambled(seed + 1)) % n;
    });
  }

 private:
  Streams() {
    const char* const name = std::getenv("TESSERA_SIMT_STREAMS");
    if (name == nullptr) return;
    const std::string_view text = name;
    if (text == "awaited")
      defer({});
    else if (text == "others")
      defer({.first = Deferral::First::others});
    else
      defer({.first = Deferral::First::any,
             .seed = std::strtoull(name, nullptr, 10),
             .reuse_ahead = true});
  }

  std::uint64_t random() { return random_ = scrambled(random_ + 0x9e3779b97f4a7c15u); }

  static bool able(const Queue& queue) {
    if (queue.entries.empty()) return false;
    const Queue::Entry& next = queue.entries.front();
    return (!next.awaits || next.awaits->done) && (!next.work.ready || next.work.ready());
  }
  std::vector<Queue*> able_queues() {
    std::erase_if(queues_, [](const auto& queue) { return queue->entries.empty(); });
    std::vector<Queue*> found;
    for (const auto& queue : queues_)
      if (able(*queue)) found.push_back(queue.get());
    return found;
  }

  /// What is to work next while somebody waits for `awaited`; null: nothing can.
  Queue* choose(Queue* awaited) {
    std::vector<Queue*> found = able_queues();
    if (found.empty()) return nullptr;
    if (deferral_.first == Deferral::First::others && found.size() > 1) std::erase(found, awaited);
    if (deferral_.first == Deferral::First::awaited) {
      // The queue that the awaited one waits for, and so on. A meeting of ranks may need any.
      Queue* needed = awaited;
      while (needed != nullptr && !able(*needed)) {
        const auto& awaits = needed->entries.empty() ? nullptr : needed->entries.front().awaits;
        const std::shared_ptr<Queue> next =
            awaits && !awaits->done ? awaits->queue.lock() : nullptr;
        needed = next.get();
      }
      if (needed != nullptr) return needed;
    }
    return found[random() % found.size()];
  }

  void run_head(Queue& queue) {
    const Queue::Entry entry = std::move(queue.entries.front());
    queue.entries.pop_front();
    if (entry.reaches) entry.reaches->done = true;
    if (entry.work.run) entry.work.run();
    changed_.notify_all();
  }

  template <class Condition>
  void wait_for(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    if (changed_.wait_for(lock, std::chrono::minutes(2), condition)) return;
    throw std::runtime_error("simt: a stream waits for work that nobody gives");
  }

  std::atomic<bool> deferred_ = false;
  std::mutex mutex_;  // guards what follows, and is held while deferred work is done
  std::condition_variable changed_;
  Deferral deferral_;
  std::uint64_t random_ = 1;
  std::vector<std::shared_ptr<Queue>> queues_;  // that may have entries
};

}  // namespace simt

struct CUstream_st {
  int device = simt::current_device();
  std::shared_ptr<simt::Queue> queue = std::make_shared<simt::Queue>();
  std::shared_ptr<simt::Capture> capture{};
  std::vector<std::size_t> last{};  ///< nodes of the capture that its next one comes after
};
using cudaStream_t = CUstream_st*;

namespace simt {

/// Whether a stream is one of a device's. The default stream is that of any.
inline bool is_of(cudaStream_t stream, int device) {
  return stream == nullptr || stream->device == device;
}
inline bool capturing(cudaStream_t stream) {
  return stream != nullptr && stream->capture != nullptr && !stream->capture->ended;
}

inline const std::shared_ptr<Queue>& queue_of(cudaStream_t stream) {
  static const auto of_default = [] {
    std::array<std::shared_ptr<Queue>, device_count> queues;
    for (auto& queue : queues) queue = std::make_shared<Queue>();
    return queues;
  }();
  return stream != nullptr ? stream->queue : of_default[static_cast<std::size_t>(current_device())];
}

/// Gives work to a stream that waits until `ready` answers true. It must not block: streams share a
/// thread.
inline void enqueue_when(cudaStream_t stream, std::function<bool()> ready,
                         std::function<void()> run) {
  if (capturing(stream))
    stream->last = {stream->capture->add({std::move(run), std::move(ready)}, stream->last)};
  else
    Streams::instance().add(queue_of(stream), {.work = {std::move(run), std::move(ready)}});
}
/// Gives work to a stream: it is done at once, or later, or goes into the graph that is being
/// captured.
template <class Run>
void enqueue(cudaStream_t stream, Run run) {
  if (capturing(stream) || Streams::instance().deferred())
    enqueue_when(stream, {}, std::move(run));
  else
    run();
}

/// While it lives, streams do their work late. For a thread that starts and joins all others that
/// use streams meanwhile.
class DeferredStreams {
 public:
  explicit DeferredStreams(const Deferral& deferral) { Streams::instance().defer(deferral); }
  DeferredStreams(const DeferredStreams&) = delete;
  DeferredStreams& operator=(const DeferredStreams&) = delete;
  ~DeferredStreams();
};

}  // namespace simt
