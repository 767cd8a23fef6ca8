// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The tables of a first program, without dense layers: what budget.sh compiles and weighs.
#include <tessera/tessera.hpp>
namespace ts = tessera;
using Query = ts::Table<"query", 200'000, 16>;
using User = ts::Table<"user", 50'000, 16>;
using Country = ts::Table<"country", 250, 16>;
using Plan = ts::Plan<ts::RowWise<Query>, ts::ColumnWise<2, User>, ts::Replicated<Country>>;
using Embeddings =
    ts::EmbeddingCollection<Plan, ts::RowWiseAdagrad, ts::Host, ts::ThreadCommunicator>;
void step(Embeddings& embeddings, const ts::KeyedJagged<int>& ids, ts::MatrixView<const float> g) {
  const auto pooled = embeddings.forward(ids);
  embeddings.backward(pooled, g);
}
void train(ts::ThreadCommunicator& comm, const ts::KeyedJagged<int>& ids,
           ts::MatrixView<const float> g) {
  const ts::Host host;
  Embeddings embeddings(comm, host, {.learning_rate = 0.1f, .seed = 42});
  step(embeddings, ids, g);
}
