// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The README's listing: a small model trained on four ranks, each a thread. Names without a prefix are those of namespace tessera.
// clang-format off
// [readme]
#include <tessera/data/synthetic.hpp>  // made-up clicks, in a ClickBatch
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/tessera.hpp>

#include <cstdio>
#include <span>
#include <vector>

namespace ts = tessera;
using Query = ts::Table<"query", 200'000, 16>;  // name, rows, width
using User = ts::Table<"user", 50'000, 16>;
using Country = ts::Table<"country", 250, 16>;
using Plan = ts::Plan<ts::RowWise<Query>, ts::ColumnWise<2, User>, ts::Replicated<Country>>;  // checked as it compiles
using Embeddings = ts::EmbeddingCollection<Plan, ts::RowWiseAdagrad, ts::Host, ts::ThreadCommunicator>;
using Dot = ts::DotInteraction<3, 16>;

void train(ts::ThreadCommunicator& comm, const ts::SyntheticClicks& clicks, int n) {  // n: samples of each rank per step
  Embeddings embeddings(comm, ts::Host(), {.learning_rate = 0.1f, .seed = 42});
  ts::Mlp<Dot::columns(), 64, 1> top;
  ts::DenseParameters parameters(42, top);
  std::vector<float> z(n * Dot::columns()), dz(z), y(n), dy(n), gradient(n * 48);
  ts::ClickBatch<int> batch;
  for (int step = 0; step < 1000; ++step) {
    clicks.generate((step * comm.size() + comm.rank()) * n, n, batch);  // this rank's samples of the global batch
    const auto pooled = embeddings.forward(batch.keyed());  // [n, 48], looked up on whatever ranks hold the rows
    Dot::forward(pooled.values, {z.data(), n, Dot::columns()});
    top.forward({z.data(), n, Dot::columns()}, {y.data(), n, 1});
    double loss = ts::BinaryCrossEntropyWithLogits{n * comm.size()}.forward_backward({y.data(), n, 1}, batch.labels, {dy.data(), n, 1});
    top.backward({dy.data(), n, 1}, {dz.data(), n, Dot::columns()});
    Dot::backward(pooled.values, {dz.data(), n, Dot::columns()}, {gradient.data(), n, 48});
    comm.all_reduce(parameters.gradients());
    ts::DenseSgd().step(parameters, 0.1f);
    embeddings.backward(pooled, {gradient.data(), n, 48});  // rows are updated here
    comm.all_reduce(std::span(&loss, 1));  // each rank has its share of the mean: their sum is the loss
    if (comm.rank() == 0 && step % 250 == 249) std::printf("step %d: loss %.3f\n", step + 1, loss);
  }
}

int main() {
  const ts::SyntheticClicks clicks({{.rows = 200'000}, {.rows = 50'000}, {.rows = 250}});
  ts::run_ranks(4, [&](ts::ThreadCommunicator& comm) { train(comm, clicks, 256); });  // four ranks, each a thread
}
// [readme end]
// clang-format on
