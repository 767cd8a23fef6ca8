// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <functional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Threads that do the same work until `stop` tells them to end. A member declared last: they use
/// the others. Throws Error if one cannot be started, when those before it have ended.
class RunningThreads {
 public:
  template <class Work>
  RunningThreads(int count, const Work& work, std::function<void()> stop) : stop_(std::move(stop)) {
    try {
      for (int t = 0; t < count; ++t) threads_.emplace_back(work);
    } catch (const std::system_error& error) {
      end();
      throw Error(
          formatted("only {} of {} threads can be started ({}); ask for fewer, or raise "
                    "the limits of processes and memory",
                    threads_.size(), count, error.what()));
    }
  }
  RunningThreads(const RunningThreads&) = delete;
  RunningThreads& operator=(const RunningThreads&) = delete;
  ~RunningThreads() { end(); }

 private:
  void end() {
    stop_();
    for (std::thread& thread : threads_) thread.join();
  }

  std::function<void()> stop_;
  std::vector<std::thread> threads_;
};

}}}  // namespace tessera::v0::detail
