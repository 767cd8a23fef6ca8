// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include "backends.hpp"

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

namespace dlrm {
namespace {

using namespace tessera;

class Threads final : public Ranks {
 public:
  Threads(const Options& options, const DeviceRanksFactory& device)
      : size_(options.ranks),
        waiting_{.timeout = timeout_of(options)},
        make_backend_(backend_of(options)),
        make_device_(device) {}
  int size() const override { return size_; }
  bool first_is_here() const override { return true; }
  void run(const std::function<void(Communicators&)>& rank) override {
    if (size_ == 1) {
      SelfCommunicator self;
      const std::unique_ptr<RankBackend> backend = make_backend_({});
      Communicators communicators{backend->main(), backend->gradients(), AnyCommunicator(self),
                                  backend->routing(), *backend};
      return rank(communicators);
    }
    ThreadGroup gradient_group(size_, waiting_), data_group(size_, waiting_),
        routing_group(size_, waiting_);
    std::mutex mutex;
    std::exception_ptr first;  // what made the others fail
    const auto run_rank = [&](ThreadCommunicator& threads) {
      const int r = threads.rank();
      ThreadCommunicator gradients(gradient_group, r), data(data_group, r),
          routing(routing_group, r);
      try {
        RankLinks links{&threads, &gradients, &routing,
                        make_device_ ? make_device_(data) : nullptr};
        const std::unique_ptr<RankBackend> backend = make_backend_(links);
        DeviceRanks* const device = std::exchange(links.device, nullptr).get();  // the backend's
        Communicators communicators{backend->main(), backend->gradients(), AnyCommunicator(data),
                                    backend->routing(), *backend};
        try {
          rank(communicators);
        } catch (const std::exception& error) {
          {
            const std::lock_guard lock(mutex);
            if (!first) first = std::current_exception();
          }
          if (device != nullptr) device->fail(error.what());
          throw;
        }
      } catch (const std::exception& error) {
        for (ThreadGroup* group : {&gradient_group, &data_group, &routing_group})
          group->fail(r, error.what());
        throw;
      }
    };
    try {
      run_ranks(size_, run_rank, waiting_);
    } catch (...) {
      if (first) std::rethrow_exception(first);
      throw;
    }
  }

 private:
  int size_;
  ThreadGroupOptions waiting_;
  RankBackendFactory& make_backend_;
  const DeviceRanksFactory& make_device_;
};

int launch_threads(const Options& options, const std::function<void(Ranks&)>& job) {
  return run_threads(options, nullptr, job);
}

}  // namespace

int run_threads(const Options& options, const DeviceRanksFactory& device,
                const std::function<void(Ranks&)>& job) {
  require_threads(options.ranks * options.threads_per_rank);
  Threads threads(options, device);
  job(threads);
  return 0;
}

void require_same(AnyCommunicator& communicator,
                  const std::vector<std::pair<std::string, std::string>>& facts) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::string own;  // no option can hold a zero byte
  for (const auto& [name, value] : facts) own += name + '\0' + value + '\0';
  const std::size_t size = own.size();
  std::vector<std::size_t> sizes(ranks);
  communicator.all_gather(std::span<const std::size_t>(&size, 1), std::span(sizes),
                          std::vector<std::size_t>(ranks, 1));
  std::string all(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), ' ');
  communicator.all_gather(std::span<const char>(own), std::span(all), sizes);
  const auto texts_of = [&](std::size_t rank) {
    std::istringstream text(
        all.substr(std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(rank),
                                   std::size_t{0}),
                   sizes[rank]));
    std::vector<std::string> texts;
    for (std::string next; std::getline(text, next, '\0');) texts.push_back(next);
    return texts;
  };
  const std::vector<std::string> first = texts_of(0);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    const std::vector<std::string> other = texts_of(rank);
    std::string differences;
    for (std::size_t i = 0; i + 1 < std::min(first.size(), other.size()); i += 2)
      if (first[i + 1] != other[i + 1])
        differences += fmt::format("; {} is {} on rank 0 and {} on rank {}", first[i], first[i + 1],
                                   other[i + 1], rank);
    if (first.size() != other.size())
      differences +=
          fmt::format("; rank {} runs another version of this program than rank 0", rank);
    require(differences.empty(), "all ranks must have the same options and data{}", differences);
  }
}

void require_threads(int count) {
  std::latch done(1);
  std::vector<std::jthread> threads;
  try {
    while (std::ssize(threads) < count) threads.emplace_back([&done] { done.wait(); });
    done.count_down();
  } catch (const std::system_error& error) {
    done.count_down();
    throw Error(
        fmt::format("this process may start {} threads, but --ranks and --threads-per-rank need {} "
                    "({}): lower them, or raise the "
                    "system's limit",
                    threads.size(), count, error.what()));
  }
}

std::chrono::nanoseconds timeout_of(const Options& options) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(options.timeout));
}

ProcessLauncher*& process_launcher() {
  static ProcessLauncher* launcher = nullptr;
  return launcher;
}

std::map<std::string, Launcher*>& launchers() {
  static std::map<std::string, Launcher*> all{{"threads", &launch_threads}};
  return all;
}

int launch(const Options& options, const std::function<void(Ranks&)>& job) {
  const auto found = launchers().find(options.communicator);
  require(found != launchers().end(),
          "--communicator {}: this program was built without it; install its library "
          "(docs/clusters.md) and configure and build again",
          options.communicator);
  return found->second(options, job);
}

}  // namespace dlrm
