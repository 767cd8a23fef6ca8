// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A plan does not fit into the memory of a cluster's ranks.
// expect: Plan: see PlanFault in this error for the kind of fault and the table or feature (docs/errors.md)
// expect g++: PlanFault::Kind::does_not_fit, "query"
#include <tessera/tessera.hpp>

namespace ts = tessera;
using namespace ts::literals;

using Query = ts::Table<"query", 1'000'000, 128>;
using Embeddings = ts::EmbeddingCollection<ts::Plan<ts::TableWise<Query>>, ts::RowWiseAdagrad, ts::Host, ts::SelfCommunicator>;
#ifdef ALLOWED_TWIN
static_assert(ts::fits<Embeddings, ts::Cluster{.ranks = 4, .memory_per_rank = 1_GiB}>);
#else
static_assert(ts::fits<Embeddings, ts::Cluster{.ranks = 4, .memory_per_rank = 256_MiB}>);
#endif
