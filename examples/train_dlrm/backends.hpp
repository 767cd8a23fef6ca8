// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model_shape.hpp"
#include "options.hpp"
#include "rank_model.hpp"
#include "ranks.hpp"

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dlrm {

/// One rank's side of a backend: how its memory moves between ranks, and the model in it. Outlives
/// both.
class RankBackend {
 public:
  virtual ~RankBackend() = default;
  /// The communicators that the backend was made with, for its memory.
  virtual tessera::AnyCommunicator main() = 0;
  virtual tessera::AnyCommunicator gradients() = 0;
  virtual tessera::AnyCommunicator routing() = 0;
  /// Collective. `max_batch`: samples of a rank at most.
  virtual std::unique_ptr<RankModel> make_model(Communicators& communicators,
                                                const Options& options, const ModelShape& shape,
                                                std::int64_t max_batch) = 0;
};

/// What moves the memory of ranks' GPUs between them, in the order of a stream each: NCCL.
class DeviceRanks {
 public:
  virtual ~DeviceRanks() = default;
  /// Collective. A communicator of all ranks for a stream (cudaStream_t), which must outlive this.
  virtual tessera::AnyCommunicator on(void* stream) = 0;
  /// Ends the waits of this process's ranks in such communicators.
  virtual void fail(const std::string& text) = 0;
};

/// What a backend may make a rank's communicators of: those of thread ranks, for the rank itself
/// and for threads that sum gradients and route ahead (null: there is one rank, or ranks are no
/// threads), and, in their place if there is one, DeviceRanks.
struct RankLinks {
  tessera::ThreadCommunicator *main = nullptr, *gradients = nullptr, *routing = nullptr;
  std::shared_ptr<DeviceRanks> device = nullptr;
};
using RankBackendFactory = std::unique_ptr<RankBackend>(const RankLinks& links);

/// What --backend names. Those that need a library put themselves here: optional_cuda.cu.
std::map<std::string, RankBackendFactory*>& backends();

/// Throws tessera::InvalidArgument if this program was built without the backend of the options, or
/// this processor lacks what they need.
RankBackendFactory& backend_of(const Options& options);

}  // namespace dlrm
