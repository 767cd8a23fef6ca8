// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The README's listing: a small model trained on four ranks, each a thread. Names without a prefix are those of namespace tessera.
#include <tessera/data/synthetic.hpp>
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/tessera.hpp>

#include <fmt/format.h>

// clang-format off
// [readme]
namespace ts = tessera;
using Query = ts::Table<"query", 200'000, 16>;  // name, rows, width
using User = ts::Table<"user", 50'000, 16>;
using Country = ts::Table<"country", 250, 16>;
using Plan = ts::Plan<ts::RowWise<Query>, ts::ColumnWise<2, User>, ts::Replicated<Country>>;  // checked as it compiles
using Embeddings = ts::EmbeddingCollection<Plan, ts::RowWiseAdagrad, ts::Host, ts::ThreadCommunicator>;
using Dot = ts::DotInteraction<3, 16>;
void train(ts::ThreadCommunicator& comm, int n, const auto& next_batch) {  // n: samples of each rank per step
  Embeddings embeddings(comm, ts::Host(), {.learning_rate = 0.1f, .seed = 42});
  ts::Mlp<Dot::columns(), 64, 1> top;
  ts::DenseParameters parameters(42, top);
  std::vector<float> z(n * Dot::columns()), dz(z), y(n), dy(n), gradient(n * 48);
  for (int step = 0; step < 1000; ++step) {
    const ts::ClickBatch<int>& batch = next_batch(step);
    const auto pooled = embeddings.forward(batch.keyed());  // [n, 48], looked up on whatever ranks hold the rows
    Dot::forward(pooled.values, {z.data(), n, Dot::columns()});
    top.forward({z.data(), n, Dot::columns()}, {y.data(), n, 1});
    ts::BinaryCrossEntropyWithLogits{n * comm.size()}.forward_backward({y.data(), n, 1}, batch.labels, {dy.data(), n, 1});
    top.backward({dy.data(), n, 1}, {dz.data(), n, Dot::columns()});
    Dot::backward(pooled.values, {dz.data(), n, Dot::columns()}, {gradient.data(), n, 48});
    comm.all_reduce(parameters.gradients());
    ts::DenseSgd().step(parameters, 0.1f);
    embeddings.backward(pooled, {gradient.data(), n, 48});  // rows are updated here
  }
}
// [readme end]
// clang-format on

int main() {
  const ts::SyntheticClicks clicks({{.rows = 200'000}, {.rows = 50'000}, {.rows = 250}});
  ts::run_ranks(4, [&](ts::ThreadCommunicator& comm) {
    constexpr int kSamples = 256;
    ts::ClickBatch<int> batch;
    train(comm, kSamples, [&](int step) -> const ts::ClickBatch<int>& {
      clicks.generate((step * comm.size() + comm.rank()) * kSamples, kSamples, batch);
      return batch;
    });
  });
  fmt::print("trained\n");
}
