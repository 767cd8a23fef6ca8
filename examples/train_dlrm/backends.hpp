// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "rank_model.hpp"
#include "ranks.hpp"

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dlrm {

/// What the trainer needs of a backend. Those that need a library put themselves into backends(): optional_cuda.cu.
struct BackendParts {
  /// Collective. `max_batch`: samples of a rank at most.
  std::unique_ptr<RankModel> (*make_model)(Communicators&, const Options&, const std::vector<std::int64_t>& rows, std::int64_t max_batch);
  /// Calls `rank` with a communicator that moves the backend's memory, made from that of a thread rank; null: there is one rank.
  void (*with_communicator)(tessera::ThreadCommunicator*, const std::function<void(tessera::AnyCommunicator)>& rank);
};

std::map<std::string, BackendParts>& backends();

/// Throws tessera::InvalidArgument if this program was built without the backend of the options.
const BackendParts& backend_of(const Options& options);

}  // namespace dlrm
