// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Optimizer and backend of a collection of a layout are exchanged.
// expect: LayoutCollection: behind the widths comes the optimizer, or TrainingGroups<...>; the arguments are Widths, Optimizer, Backend, Communicator, in this order
// first error: LayoutCollection: behind the widths comes the optimizer, or TrainingGroups<...>; the arguments are Widths, Optimizer, Backend, Communicator, in this order
// at most g++: 26 lines
#include <tessera/tessera.hpp>

namespace ts = tessera;

#ifdef ALLOWED_TWIN
using Embeddings = ts::LayoutCollection<ts::Widths<16>, ts::Sgd, ts::Host, ts::SelfCommunicator>;
#else
using Embeddings = ts::LayoutCollection<ts::Widths<16>, ts::Host, ts::Sgd, ts::SelfCommunicator>;
#endif
static_assert(sizeof(Embeddings) > 0);
