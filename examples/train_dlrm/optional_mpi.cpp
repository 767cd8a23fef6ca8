// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "backends.hpp"

#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/core/error.hpp>

#include <memory>

namespace dlrm { namespace {

using namespace tessera;

class MpiRank final : public Ranks {
 public:
  MpiRank(MpiCommunicator& mpi, RankBackendFactory& make_backend)
      : mpi_(mpi), backend_(make_backend({})) {}
  int size() const override { return mpi_.size(); }
  bool first_is_here() const override { return mpi_.rank() == 0; }
  void run(const std::function<void(Communicators&)>& rank) override {
    MpiCommunicator gradients = mpi_.split(0), data = mpi_.split(0), routing = mpi_.split(0);
    Communicators communicators{AnyCommunicator(mpi_), AnyCommunicator(gradients),
                                AnyCommunicator(data), AnyCommunicator(routing), *backend_};
    rank(communicators);
  }

 private:
  MpiCommunicator& mpi_;
  std::unique_ptr<RankBackend> backend_;
};

int launch_mpi(const Options& options, const std::function<void(Ranks&)>& job) {
  const auto run = [&](MpiCommunicator& mpi) {
    require(options.ranks == 0 || options.ranks == mpi.size(),
            "--ranks {}: mpirun started {}; leave --ranks out", options.ranks, mpi.size());
    AnyCommunicator any(mpi);
    require_same(any, options.shared);
    require_threads(options.threads_per_rank);
    MpiRank rank(mpi, backend_of(options));
    job(rank);
  };
  return run_mpi_rank(run, {.timeout = timeout_of(options)});
}

[[maybe_unused]] const bool added = launchers().emplace("mpi", &launch_mpi).second;

}  // namespace
}  // namespace dlrm
