// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A trainer for any model: tables, cuts, optimizer, ranks and batch are what tessera_generate_plan
// made of a file. Each row learns to add the parity of its id.
// [program]
#include "plan.hpp"

#include <tessera/collection.hpp>
#include <tessera/comm.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <vector>

namespace ts = tessera;
using Tables =
    ts::EmbeddingCollection<planned::Plan, planned::Optimizer, ts::Host, ts::ThreadCommunicator>;

void train(ts::ThreadCommunicator& rank) {
  Tables tables(rank, ts::Host(), {.learning_rate = 0.05f, .seed = 1});
  const ts::Layout& layout = tables.layout();
  const int features = static_cast<int>(layout.features.size()), columns = layout.columns();
  const int mine = static_cast<int>(planned::kBatch) / rank.size();
  float first = 0, loss = 0;
  for (int step = 0; step < 60; ++step) {
    std::vector<int> ids;
    std::vector<std::int64_t> offsets{0};
    std::vector<float> wanted(mine, 0.0f);
    for (int f = 0; f < features; ++f) {
      const std::int64_t rows = layout.tables[layout.feature_table[f]].rows;
      const int bag = static_cast<int>(layout.features[f].hotness + 0.5);
      for (int s = 0; s < mine; ++s) {
        const std::int64_t sample = (step * planned::kBatch + rank.rank() * mine + s) * 31 + f;
        for (int i = 0; i < bag || i == 0; ++i) ids.push_back((sample + i * 7) % rows % 40);
        offsets.push_back(static_cast<std::int64_t>(ids.size()));
        wanted[s] += static_cast<float>(ids.back() % 2);
      }
    }
    const auto pooled = tables.forward(ts::KeyedJagged<int>{features, mine, ids, offsets, {}});
    ts::Matrix<float> gradient(mine, columns);
    std::vector<float> errors(1);
    for (int s = 0; s < mine; ++s) {
      float miss = -wanted[s];
      for (int c = 0; c < columns; ++c) miss += pooled.values(s, c);
      for (int c = 0; c < columns; ++c) gradient.view()(s, c) = miss;
      errors[0] += miss * miss / static_cast<float>(mine * rank.size());
    }
    tables.backward(pooled, gradient);
    rank.all_reduce(std::span(errors));
    loss = errors[0];
    if (step == 0) first = loss;
  }
  if (rank.rank() == 0)
    fmt::print("{} tables on {} ranks: loss {:.3f}, then {:.3f}\n", layout.tables.size(),
               rank.size(), first, loss);
  if (!(loss < first / 2)) throw ts::Error("the model has not learned");
}

int main() { return ts::run_thread_ranks(planned::kCluster.ranks, train); }
// [program end]
