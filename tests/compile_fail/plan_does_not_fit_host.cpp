// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables OnHost do not fit into the memory of a cluster's hosts.
// expect: Plan: the tables that a rank keeps OnHost do not fit into the host's memory; this is the largest (docs/errors.md)
// first error g++: TableNamed<tessera::v0::FixedString<6>{"query"}>, tessera::v0::detail::BytesNeeded<516000000>
// first error g++: tessera::v0::detail::BytesOfRank<268435456>
// first error clang++: TableNamed<'q', 'u', 'e', 'r', 'y'>, tessera::detail::BytesNeeded<516000000>
#include <tessera/tessera.hpp>

namespace ts = tessera;
using namespace ts::literals;

using Query = ts::Table<"query", 1'000'000, 128>;
using Embeddings = ts::EmbeddingCollection<ts::Plan<ts::OnHost<ts::TableWise<Query>>>,
                                           ts::RowWiseAdagrad, ts::Host, ts::SelfCommunicator>;
#ifdef ALLOWED_TWIN
static_assert(
    ts::fits<Embeddings,
             ts::Cluster{.ranks = 4, .memory_per_rank = 1_MiB, .host_memory_per_rank = 1_GiB}>);
#else
static_assert(
    ts::fits<Embeddings,
             ts::Cluster{.ranks = 4, .memory_per_rank = 1_MiB, .host_memory_per_rank = 256_MiB}>);
#endif
