// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>

namespace dlrm {
namespace {

using namespace tessera;

class Threads final : public Ranks {
 public:
  explicit Threads(int size) : size_(size) {}
  int size() const override { return size_; }
  bool first_is_here() const override { return true; }
  void run(const std::function<void(Communicators&)>& rank) override {
    if (size_ == 1) {
      SelfCommunicator self;
      Communicators communicators{AnyCommunicator(self), AnyCommunicator(self), AnyCommunicator(self)};
      return rank(communicators);
    }
    ThreadGroup gradient_group(size_), data_group(size_);
    run_ranks(size_, [&](ThreadCommunicator& threads) {
      ThreadCommunicator gradients(gradient_group, threads.rank()), data(data_group, threads.rank());
      Communicators communicators{AnyCommunicator(threads), AnyCommunicator(gradients), AnyCommunicator(data)};
      try {
        rank(communicators);
      } catch (const std::exception& error) {
        gradient_group.fail(threads.rank(), error.what());
        data_group.fail(threads.rank(), error.what());
        throw;
      }
    });
  }

 private:
  int size_;
};

int launch_threads(const Options& options, const std::function<void(Ranks&)>& job) {
  Threads threads(options.ranks);
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
