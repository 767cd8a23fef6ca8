// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends.hpp"

#include <tessera/comm/peer_watch.hpp>
#include <tessera/core/error.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace dlrm {

/// The one rank of a process, whose communicator is `C`. With a device communicator (NCCL) that one
/// carries all but `data`; C then carries options and errors, and tells of deaths.
template <class C>
class ProcessRank final : public Ranks {
 public:
  ProcessRank(C& all, RankBackendFactory& make_backend, std::shared_ptr<DeviceRanks> device)
      : all_(all), device_(device.get()), backend_(make_backend({.device = std::move(device)})) {}
  int size() const override { return all_.size(); }
  bool first_is_here() const override { return all_.rank() == 0; }
  void run(const std::function<void(Communicators&)>& rank) override {
    if (device_ != nullptr) return run_watched(rank);
    C gradients = all_.split(0), data = all_.split(0), routing = all_.split(0);
    Communicators communicators{tessera::AnyCommunicator(all_), tessera::AnyCommunicator(gradients),
                                tessera::AnyCommunicator(data), tessera::AnyCommunicator(routing),
                                *backend_};
    rank(communicators);
  }

 private:
  void run_watched(const std::function<void(Communicators&)>& rank) {
    C data = all_.split(0);
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    // Who joins NCCL hears nothing until all have come: that process is ended.
    const auto peer_failed = [&](const std::string& text) {
      device_->fail(text);
      std::unique_lock lock(mutex);
      if (changed.wait_for(lock, std::chrono::seconds(3), [&] { return over; })) return;
      std::fprintf(stderr, "rank %d: %s\n", all_.rank(), text.c_str());
      std::_Exit(1);
    };
    const auto ends = [&] {
      const std::lock_guard lock(mutex);
      over = true;
      changed.notify_all();
    };
    tessera::detail::PeerWatch<C> watch(all_.split(0), peer_failed);
    try {
      Communicators communicators{backend_->main(), backend_->gradients(),
                                  tessera::AnyCommunicator(data), backend_->routing(), *backend_};
      rank(communicators);
    } catch (const std::exception& error) {
      ends();
      device_->fail(error.what());  // what this rank's other threads wait for
      watch.end(error.what());
      throw;
    }
    ends();
    watch.finish();
  }

  C& all_;
  DeviceRanks* device_;  // the backend's, or null
  std::unique_ptr<RankBackend> backend_;
};

/// Runs the job as the rank of this process, which `launcher` has started. `make_device`, if given:
/// what moves the memory of its device.
template <class C>
void run_process(C& all, const Options& options, const std::string& launcher,
                 const DeviceOfProcess& make_device, const std::function<void(Ranks&)>& job) {
  tessera::require(options.ranks == 0 || options.ranks == all.size(),
                   "--ranks {}: {} started {}; leave --ranks out", options.ranks, launcher,
                   all.size());
  tessera::AnyCommunicator any(all);
  require_same(any, options.shared);
  require_threads(options.threads_per_rank);
  ProcessRank<C> rank(all, backend_of(options), make_device ? make_device(any) : nullptr);
  job(rank);
}

}  // namespace dlrm
