// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A small DLRM trained on four ranks, each a thread: the steps of docs/tutorial.md.
// clang-format off
// [headers]
#include <tessera_data/synthetic.hpp>  // made-up clicks, in a ClickBatch
#include <tessera/dense.hpp>
#include <tessera/tessera.hpp>
// [headers end]

#include <cstdio>
#include <span>

// [tables]
namespace ts = tessera;
using Query = ts::Table<"query", 200'000, 16>;  // name, rows, width
using User = ts::Table<"user", 50'000, 16>;
using Country = ts::Table<"country", 250, 16>;
// checked as it compiles
using Plan = ts::Plan<ts::RowWise<Query>, ts::ColumnWise<2, User>, ts::Replicated<Country>>;
using Embeddings = ts::EmbeddingCollection<Plan, ts::RowWiseAdagrad, ts::Host, ts::ThreadCommunicator>;

void step(Embeddings& embeddings, const ts::KeyedJagged<int>& ids, const auto& model) {
  // [batch, 48], looked up on whatever ranks hold the rows
  const auto pooled = embeddings.forward(ids);
  // the model returns the gradient; rows are updated here
  embeddings.backward(pooled, model(pooled.values));
}
// [tables end]

// [model]
using Dot = ts::DotFor<Plan>;  // the dot products of three vectors of 16

// n: samples of each rank per step
void train(ts::ThreadCommunicator& comm, const ts::SyntheticClicks& clicks, int n) {
  const ts::Host host;
  Embeddings embeddings(comm, host, {.learning_rate = 0.1f, .seed = 42});
  ts::Mlp<ts::Host, Dot::columns(), 64, 1> top(host);
  ts::DenseParameters parameters(host, 42, top);
  ts::DenseOptimizer sgd(host, ts::Sgd{});
  // [model end]
  // [buffers]
  ts::Matrix<float> z(n, Dot::columns()), dz(n, Dot::columns()), y(n, 1), dy(n, 1), gradient(n, 48);
  ts::ClickBatch<int> batch;
  double loss = 0;
  // [buffers end]
  // [dense]
  const auto model = [&](ts::MatrixView<const float> pooled) -> ts::MatrixView<const float> {
    Dot::forward(host, pooled, z);
    top.forward(z, y);
    loss = ts::BinaryCrossEntropyWithLogits{n * comm.size()}.forward_backward(y, batch.labels, dy);
    top.backward(dy, dz);
    Dot::backward(host, pooled, dz, gradient);
    comm.all_reduce(parameters.gradients());
    sgd.step(parameters, 0.1f);
    return gradient;
  };
  // [dense end]
  // [loop]
  for (int s = 0; s < 1000; ++s) {
    // this rank's samples of the global batch
    clicks.generate((s * comm.size() + comm.rank()) * n, n, batch);
    step(embeddings, batch.keyed(), model);
    // each rank has its share of the mean: their sum is the loss
    comm.all_reduce(std::span(&loss, 1));
    if (comm.rank() == 0 && s % 250 == 249) std::printf("step %d: loss %.3f\n", s + 1, loss);
  }
}
// [loop end]

// [main]
int main() {
  const ts::SyntheticClicks clicks({{.rows = 200'000}, {.rows = 50'000}, {.rows = 250}});
  return ts::run_thread_ranks(4, [&](ts::ThreadCommunicator& comm) { train(comm, clicks, 256); });
}
// [main end]
// clang-format on
