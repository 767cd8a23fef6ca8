// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dlrm {

class DeviceRanks;
class RankBackend;

/// A rank's communicators: those of its background threads run beside `main`, which is why they are
/// its own. All but `data` move the backend's memory.
struct Communicators {
  tessera::AnyCommunicator main, gradients, data, routing;
  RankBackend& backend;
};

/// The ranks of a job that this process runs: all of them where ranks are threads, one where they
/// are processes.
class Ranks {
 public:
  virtual ~Ranks() = default;
  /// Of the whole job.
  virtual int size() const = 0;
  /// Whether rank 0, the one that reports, is in this process.
  virtual bool first_is_here() const = 0;
  /// Runs `rank` once for each rank here, at the same time. Throws what the first one that failed
  /// threw.
  virtual void run(const std::function<void(Communicators&)>& rank) = 0;
};

/// Throws tessera::InvalidArgument, on every rank, unless all have the same facts: option and
/// value. Names those that differ, and the values. Collective.
void require_same(tessera::AnyCommunicator& communicator,
                  const std::vector<std::pair<std::string, std::string>>& facts);

/// Throws tessera::Error if this process may not start so many threads: OpenMP would end it.
void require_threads(int count);

/// What --timeout says, for a communicator.
std::chrono::nanoseconds timeout_of(const Options& options);

/// Makes what moves the memory of a rank's device: a collective call of the thread ranks given.
using DeviceRanksFactory =
    std::function<std::shared_ptr<DeviceRanks>(tessera::ThreadCommunicator& threads)>;

/// Runs `job` with ranks that are `options.ranks` threads. `device`: as the backend has it, if none
/// is given. Returns the program's exit code.
int run_threads(const Options& options, const DeviceRanksFactory& device,
                const std::function<void(Ranks&)>& job);

/// Makes what moves the memory of a process's device. Collective over the processes' communicator.
using DeviceOfProcess =
    std::function<std::shared_ptr<DeviceRanks>(tessera::AnyCommunicator& control)>;
/// Runs `job` as one of the processes that a launcher has started, under --communicator gloo or, with
/// a device, nccl. Null in a program that was built without Gloo.
using ProcessLauncher = int(const Options& options, const DeviceOfProcess& device,
                            const std::function<void(Ranks&)>& job);
ProcessLauncher*& process_launcher();

/// Starts the ranks' engine, runs `job` once in this process, and returns the program's exit code.
using Launcher = int(const Options& options, const std::function<void(Ranks&)>& job);

/// What --communicator names. Files that need a library add theirs when the program starts; without
/// the library they are not there.
std::map<std::string, Launcher*>& launchers();

/// Throws tessera::InvalidArgument where `options.communicator` is not compiled in.
int launch(const Options& options, const std::function<void(Ranks&)>& job);

}  // namespace dlrm
