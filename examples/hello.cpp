// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Learns which films users like, as products of their vectors: two tables and a loss, with no other
// library than fmt. Prints the same losses, to the last bit, on 1, 2 and 4 ranks.
// [program]
#include <fmt/format.h>
#include <tessera/tessera.hpp>

#include <numeric>
#include <vector>

namespace ts = tessera;
using User = ts::Table<"user", 1000, 16>;  // name, rows, width
using Film = ts::Table<"film", 200, 16>;
using Plan = ts::Plan<ts::RowWise<User>, ts::ColumnWise<2, Film>>;  // checked as it compiles
using Tables = ts::EmbeddingCollection<Plan, ts::RowWiseAdagrad, ts::Host, ts::ThreadCommunicator>;

void train(ts::ThreadCommunicator& rank) {
  const int batch = 1024, mine = batch / rank.size(), first = mine * rank.rank();  // samples
  Tables tables(rank, ts::Host(), {.learning_rate = 0.1f, .seed = 42});
  std::vector<int> ids(2 * mine);  // the samples' users, then their films
  ts::Matrix<float> gradient(mine, 32);
  for (int step = 0; step < 30; ++step) {
    for (int s = 0; s < mine; ++s) ids[s] = (step * batch + first + s) * 7 % 1000;
    for (int s = 0; s < mine; ++s) ids[mine + s] = (step * batch + first + s) / 3 % 200;
    const auto pooled = tables.forward(ts::KeyedJagged<int>{2, mine, ids, {}, {}});
    std::vector<float> errors(batch);  // of all ranks' samples
    for (int s = 0; s < mine; ++s) {
      float miss = ids[s] % 4 == ids[mine + s] % 4 ? -1 : 0;  // users like every fourth film
      for (int c = 0; c < 16; ++c) miss += pooled.values(s, c) * pooled.values(s, c + 16);
      for (int c = 0; c < 32; ++c) gradient.view()(s, c) = miss * pooled.values(s, (c + 16) % 32);
      errors[first + s] = miss * miss;
    }
    tables.backward(pooled, gradient);  // each row is updated on the rank that holds it
    rank.all_reduce(std::span(errors));
    if (rank.rank() == 0 && step % 10 == 9)
      fmt::print("{} ranks, step {}: loss {}\n", rank.size(), step + 1,
                 std::accumulate(errors.begin(), errors.end(), 0.0f) / batch);
  }
}

int main() {
  for (const int ranks : {1, 2, 4})
    if (ts::run_thread_ranks(ranks, train) != 0) return 1;
}
// [program end]
