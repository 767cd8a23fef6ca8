// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A collection's optimizer misspells a member: it is named, and nothing else is said of the program.
// expect: Optimizer: Step needs float element(float weight, float gradient, float* state, const Row&) const (docs/concepts/optimizer.md)
// at most g++: 14 lines
// at most nvcc: 14 lines
#include <tessera/tessera.hpp>

namespace ts = tessera;

struct SignDescent {
  static constexpr int element_states = 0, row_states = 0;
  static constexpr bool needs_mean_square = false;
  static constexpr std::array<std::string_view, 0> state_names{};
  struct Step {
    struct Row {};
    float learning_rate;
    Row row(float*, float) const { return {}; }
#ifdef ALLOWED_TWIN
    float element(float weight, float gradient, float*, const Row&) const {
#else
    float elements(float weight, float gradient, float*, const Row&) const {
#endif
        return weight - (gradient > 0 ? learning_rate : -learning_rate);
  }
};
float initial_state(int) const { return 0; }
Step at(float learning_rate, std::int64_t) const { return {learning_rate}; }
}
;

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
using Embeddings = ts::EmbeddingCollection<Model, SignDescent, ts::Host, ts::SelfCommunicator>;

float first(ts::SelfCommunicator& comm, const ts::KeyedJagged<int>& ids) {
  Embeddings embeddings(comm, ts::Host(), {.learning_rate = 0.1f});
  return embeddings.forward(ids).values(0, 0);
}
