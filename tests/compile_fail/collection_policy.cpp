// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A collection is given a policy that it does not know.
// expect: EmbeddingCollection: a policy is Storage<T>, InitializeWith<F>, EncodeWith<F, B>, EncodeWithOneOf<C...>
#include <tessera/tessera.hpp>

namespace ts = tessera;

#ifdef ALLOWED_TWIN
using Policy = ts::ReportSteps;
#else
struct Policy {};
#endif
using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
static_assert(
    sizeof(ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::SelfCommunicator, Policy>) > 0);
