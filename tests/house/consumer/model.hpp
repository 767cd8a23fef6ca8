// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What a trainer's files share: the model's tables, compiled in model.cpp alone.
#pragma once

#include <tessera/tessera.hpp>

namespace model {

namespace ts = tessera;
using Item = ts::Table<"item", 100, 4>;
using Tables =
    ts::EmbeddingCollection<ts::Plan<ts::TableWise<Item>>, ts::Sgd, ts::Host, ts::SelfCommunicator>;
using Embeddings = ts::CompiledOnce<Tables>;

}  // namespace model

extern template class tessera::CompiledOnce<model::Tables>;
