// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A communicator lacks an exchange that the plan's policies need.
// expect: EmbeddingCollection: the communicator lacks a collective that the plan needs; explain_communicator<Comm, needs>() lists them
// (docs/concepts/communicator.md)
#include <tessera/tessera.hpp>

namespace ts = tessera;

#ifdef ALLOWED_TWIN
using Comm = ts::SelfCommunicator;
#else
struct Comm {
  int rank() const { return 0; }
  int size() const { return 1; }
};
#endif
using Model = ts::Plan<ts::RowWise<ts::Table<"user", 1000, 16>>>;
static_assert(sizeof(ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, Comm>) > 0);
