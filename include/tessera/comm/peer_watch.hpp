// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Watches the ranks of a job on a thread of its own, while they wait for something that cannot
/// tell of deaths: NCCL's calls. They exchange a word now and then over `Comm`, which can, and if
/// that throws, the error's text goes to `failed`, which ends the waits. Made and ended by all
/// ranks.
template <Communicator<Collective::all_reduce> Comm>
class PeerWatch {
 public:
  PeerWatch(Comm communicator, std::function<void(const std::string&)> failed,
            std::chrono::milliseconds period = std::chrono::milliseconds(50))
      : communicator_(std::move(communicator)),
        failed_(std::move(failed)),
        period_(period),
        thread_([this] { run(); }) {}
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  /// Ends the watch: without `finish` this rank has failed, and says so.
  ~PeerWatch() {
    if (!thread_.joinable()) return;
    end("it ends before the others");
  }

  /// Returns when all ranks are done, or one of them has failed.
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  /// Ends the watch of this rank, and that of its peers by the text.
  void end(const std::string& text) {
    communicator_.interrupt(text);
    finish();
  }

 private:
  void run() {
    try {
      for (;;) {
        int at_work = 1;
        {
          std::unique_lock lock(mutex_);
          changed_.wait_for(lock, period_, [&] { return done_; });
          at_work = done_ ? 0 : 1;
        }
        communicator_.all_reduce(std::span(&at_work, 1));
        if (at_work == 0) return;
        // a rank that is done waits for the others no faster than they come
        if (done()) std::this_thread::sleep_for(period_);
      }
    } catch (const std::exception& error) {
      failed_(error.what());
    }
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }

  Comm communicator_;
  std::function<void(const std::string&)> failed_;
  std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;  // the last: it uses the others
};

}}}  // namespace tessera::v0::detail
