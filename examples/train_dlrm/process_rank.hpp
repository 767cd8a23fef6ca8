// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends.hpp"

#include <tessera/core/error.hpp>

#include <functional>
#include <memory>
#include <string>

namespace dlrm {

/// The one rank of a process, whose communicator is `C`.
template <class C>
class ProcessRank final : public Ranks {
 public:
  ProcessRank(C& all, RankBackendFactory& make_backend) : all_(all), backend_(make_backend({})) {}
  int size() const override { return all_.size(); }
  bool first_is_here() const override { return all_.rank() == 0; }
  void run(const std::function<void(Communicators&)>& rank) override {
    C gradients = all_.split(0), data = all_.split(0), routing = all_.split(0);
    Communicators communicators{tessera::AnyCommunicator(all_), tessera::AnyCommunicator(gradients),
                                tessera::AnyCommunicator(data), tessera::AnyCommunicator(routing),
                                *backend_};
    rank(communicators);
  }

 private:
  C& all_;
  std::unique_ptr<RankBackend> backend_;
};

/// Runs the job as the rank of this process, which `launcher` has started.
template <class C>
void run_process(C& all, const Options& options, const std::string& launcher,
                 const std::function<void(Ranks&)>& job) {
  tessera::require(options.ranks == 0 || options.ranks == all.size(),
                   "--ranks {}: {} started {}; leave --ranks out", options.ranks, launcher,
                   all.size());
  tessera::AnyCommunicator any(all);
  require_same(any, options.shared);
  require_threads(options.threads_per_rank);
  ProcessRank<C> rank(all, backend_of(options));
  job(rank);
}

}  // namespace dlrm
