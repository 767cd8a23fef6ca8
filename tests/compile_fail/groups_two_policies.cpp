// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A training group is given two element types.
// expect: a training group has two policies of one kind; give one InitializeWith<F>, one Storage<T>
#include <tessera/tessera.hpp>

namespace ts = tessera;

using Item = ts::Table<"item", 1000, 16>;
using Model = ts::Plan<ts::TableWise<Item>>;
#ifdef ALLOWED_TWIN
using Group = ts::Train<ts::Sgd>::with<ts::Storage<ts::Half>, ts::InitializeWith<ts::Uniform>>;
#else
using Group = ts::Train<ts::Sgd>::with<ts::Storage<ts::Half>, ts::Storage<ts::Half>>;
#endif
static_assert(sizeof(ts::EmbeddingCollection<Model, Group, ts::Host, ts::SelfCommunicator>) > 0);
