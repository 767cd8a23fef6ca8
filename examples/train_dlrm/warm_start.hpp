// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "clicks.hpp"
#include "options.hpp"
#include "rank_model.hpp"

#include <tessera/comm/any_communicator.hpp>
#include <tessera/vocabulary/vocabulary.hpp>

#include <optional>

namespace dlrm {

/// Begins a model with what the checkpoint of --start-from has of it, and says what begins anew.
/// Rows of tables are those of the same keys; layers begin anew whose inputs mean something else.
/// Collective.
void start_from(const Options& options, const Clicks& clicks,
                tessera::AnyCommunicator& communicator, RankModel& model,
                std::optional<tessera::Vocabulary<tessera::AnyCommunicator>>& vocabulary);

}  // namespace dlrm
