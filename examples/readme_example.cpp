// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The README's program: two tables, cut over four ranks, and three steps. Film 7 is in every
// rank's sample: it moves by the sum of four gradients.
// clang-format off
// [readme]
#include <tessera/tessera.hpp>
#include <cstdio>
namespace ts = tessera;
using Plan = ts::Plan<ts::RowWise<ts::Table<"user", 1'000'000, 16>>, ts::ColumnWise<2, ts::Table<"film", 20'000, 16>>>;
void train(ts::ThreadCommunicator& rank) {
  ts::EmbeddingCollection<Plan, ts::Sgd, ts::Host, ts::ThreadCommunicator> tables(rank, ts::Host(), {.learning_rate = 0.1f});
  const int ids[] = {250'000 * rank.rank(), 7};  // this rank's batch, one sample: a user and a film
  const std::vector<float> gradient(32, -1.0f);  // your model and loss compute it from `pooled`
  for (int step = 0; step < 3; ++step) {
    const auto pooled = tables.forward(ts::KeyedJagged<int>{2, 1, ids, {}, {}});  // [1, 32], from the ranks that hold the rows
    if (rank.rank() == 0) std::printf("step %d: user %.4f, film %.4f\n", step, pooled.values(0, 0), pooled.values(0, 16));
    tables.backward(pooled, {gradient.data(), 1, 32});  // each rank sums its rows' gradients, and updates a row once
  }
}
int main() { return ts::run_thread_ranks(4, train); }
// [readme end]
// clang-format on
