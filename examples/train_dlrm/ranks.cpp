// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include "backends.hpp"

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>

#include <memory>

namespace dlrm {
namespace {

using namespace tessera;

class Threads final : public Ranks {
 public:
  Threads(int size, RankBackendFactory& backend) : size_(size), make_backend_(backend) {}
  int size() const override { return size_; }
  bool first_is_here() const override { return true; }
  void run(const std::function<void(Communicators&)>& rank) override {
    if (size_ == 1) {
      SelfCommunicator self;
      const std::unique_ptr<RankBackend> backend = make_backend_(nullptr, nullptr, nullptr);
      Communicators communicators{backend->main(), backend->gradients(), AnyCommunicator(self), backend->routing(), *backend};
      return rank(communicators);
    }
    ThreadGroup gradient_group(size_), data_group(size_), routing_group(size_);
    run_ranks(size_, [&](ThreadCommunicator& threads) {
      const int r = threads.rank();
      ThreadCommunicator gradients(gradient_group, r), data(data_group, r), routing(routing_group, r);
      try {
        const std::unique_ptr<RankBackend> backend = make_backend_(&threads, &gradients, &routing);
        Communicators communicators{backend->main(), backend->gradients(), AnyCommunicator(data), backend->routing(), *backend};
        rank(communicators);
      } catch (const std::exception& error) {
        for (ThreadGroup* group : {&gradient_group, &data_group, &routing_group}) group->fail(r, error.what());
        throw;
      }
    });
  }

 private:
  int size_;
  RankBackendFactory& make_backend_;
};

int launch_threads(const Options& options, const std::function<void(Ranks&)>& job) {
  Threads threads(options.ranks, backend_of(options));
  job(threads);
  return 0;
}

}  // namespace

std::map<std::string, Launcher*>& launchers() {
  static std::map<std::string, Launcher*> all{{"threads", &launch_threads}};
  return all;
}

int launch(const Options& options, const std::function<void(Ranks&)>& job) {
  const auto found = launchers().find(options.communicator);
  require(found != launchers().end(),
          "--communicator {}: this program was built without it; install its library (docs/clusters.md) and configure and build again",
          options.communicator);
  return found->second(options, job);
}

}  // namespace dlrm
