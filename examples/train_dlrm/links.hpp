// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "rank_model.hpp"
#include "ranks.hpp"

namespace dlrm {

/// Sends the messages of a step over the communicators that will carry them: ids, vectors and
/// gradients as the plan has them from rank to rank, and the sum of the dense layers' gradients,
/// which become zeros. The first rank prints their GB/s beside what the planner assumes, and keeps
/// the links' speed in this machine's file, for later plans. Collective.
void check_links(const Options& options, Communicators& communicators, RankModel& model);

}  // namespace dlrm
