// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Trains: consumers.sh looks whether this file's object is without the code of tessera::compiled.
#include <tessera/tessera.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace ts = tessera;

using Item = ts::Table<"item", 100, 4>;
using Embeddings =
    ts::EmbeddingCollection<ts::Plan<ts::TableWise<Item>>, ts::Sgd, ts::Host, ts::SelfCommunicator>;

int main() {
  ts::SelfCommunicator ranks;
  Embeddings embeddings(ranks, ts::Host(), {.learning_rate = 0.5f});
  const std::vector<std::int32_t> ids{7, 9, 7};
  const std::vector<float> gradient(12, 1.0f);
  float before = 0, after = 0;
  for (float* value : {&before, &after}) {
    const auto pooled = embeddings.forward(ts::KeyedJagged<std::int32_t>{1, 3, ids, {}, {}});
    *value = pooled.values(0, 0);
    embeddings.backward(pooled, {gradient.data(), 3, 4});
  }
  std::printf("%.3f\n", before - after);  // row 7 was there twice: 0.5 * (1 + 1)
  return before - after > 0.999f && before - after < 1.001f && embeddings.steps() == 2 ? 0 : 1;
}
