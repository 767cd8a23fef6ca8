// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "rank_model.hpp"

#include <tessera/comm/thread_communicator.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace sequence {

/// Makes one rank's model of so many items in a backend's memory. Collective.
using ModelFactory = std::unique_ptr<RankModel>(tessera::ThreadCommunicator& ranks,
                                                const Options& options, std::int64_t items);

/// What --backend names. Those that need a library put themselves here: optional_cuda.cu.
std::map<std::string, ModelFactory*>& backends();

/// Throws tessera::InvalidArgument if this program was built without the backend of the options.
ModelFactory& backend_of(const Options& options);

}  // namespace sequence
