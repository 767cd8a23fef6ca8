// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Wide & Deep (Cheng et al. 2016) on two ranks: docs/first_day/wide_and_deep.md.
#include <tessera/data/synthetic.hpp>
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/tessera.hpp>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

namespace ts = tessera;

// [optimizer]
/// FTRL-Proximal (McMahan et al. 2013). A weight is a function of z and n; it is exactly 0 while
/// |z| <= l1.
struct Ftrl {
  float l1 = 0.01f, l2 = 0.01f, beta = 1;
  static constexpr int element_states = 2, row_states = 0;
  static constexpr bool needs_mean_square = false;
  static constexpr std::array<std::string_view, 2> state_names{"z", "n"};
  using initializer = ts::Constant;  // of 0: z and n say what a weight is

  struct Step {
    float alpha, l1, l2, beta;
    struct Row {};
    Row row(float*, float) const { return {}; }
    float element(float weight, float gradient, float* state, const Row&) const {
      float &z = state[0], &n = state[1];
      const float sum = n + gradient * gradient;
      z += gradient - (std::sqrt(sum) - std::sqrt(n)) / alpha * weight;
      n = sum;
      if (std::abs(z) <= l1) return 0;
      return (std::copysign(l1, z) - z) / ((beta + std::sqrt(n)) / alpha + l2);
    }
  };
  float initial_state(int) const { return 0; }
  Step at(float learning_rate, std::int64_t) const { return {learning_rate, l1, l2, beta}; }
};
static_assert(ts::Optimizer<Ftrl>);
// [optimizer end]

// [tables]
// The same three features twice: one weight per id for the wide part, a vector of 8 for the deep
// part.
using WidePlan = ts::Plan<ts::RowWise<ts::Table<"user", 2000, 1>, ts::Table<"item", 1000, 1>>,
                          ts::TableWise<ts::Table<"city", 20, 1>>>;
using DeepPlan = ts::Plan<ts::RowWise<ts::Table<"user", 2000, 8>, ts::Table<"item", 1000, 8>>,
                          ts::TableWise<ts::Table<"city", 20, 8>>>;
using Wide = ts::EmbeddingCollection<WidePlan, Ftrl, ts::Host, ts::ThreadCommunicator>;
using Deep =
    ts::EmbeddingCollection<DeepPlan, ts::RowWiseAdagrad, ts::Host, ts::ThreadCommunicator>;
// [tables end]

/// Returns the loss over the global batch before each step, the same on every rank.
std::vector<double> train(ts::ThreadCommunicator& rank, const ts::SyntheticClicks& clicks,
                          int steps) {
  constexpr int kSamples = 128;  // of each rank
  // [model]
  Wide wide(rank, ts::Host(), {.learning_rate = 0.1f});
  Deep deep(rank, ts::Host(), {.learning_rate = 0.05f, .seed = 1});
  ts::Mlp<24, 16, 1> mlp;
  ts::DenseParameters parameters(2, mlp);
  ts::DenseAdagrad dense;
  // [model end]
  std::vector<float> logits(kSamples), logit_gradients(kSamples), wide_gradients(3 * kSamples),
      deep_gradients(24 * kSamples);
  const ts::MatrixView<float> y(logits.data(), kSamples, 1),
      dy(logit_gradients.data(), kSamples, 1);
  std::vector<double> losses;
  ts::ClickBatch<std::int32_t> batch;
  for (int step = 0; step < steps; ++step) {
    clicks.generate((step * rank.size() + rank.rank()) * kSamples, kSamples, batch);
    // [step]
    // [samples, 3]: their sum is the wide logit
    const auto wide_part = wide.forward(batch.keyed());
    const auto deep_part = deep.forward(batch.keyed());  // [samples, 24]
    mlp.forward(deep_part.values, y);
    for (int s = 0; s < kSamples; ++s)
      for (int f = 0; f < 3; ++f) logits[s] += wide_part.values(s, f);

    // The share of this rank in the mean over the global batch: the ranks' sum is the loss.
    double loss = ts::BinaryCrossEntropyWithLogits{kSamples * rank.size()}.forward_backward(
        y, batch.labels, dy);
    rank.all_reduce(std::span(&loss, 1));
    losses.push_back(loss);

    for (int s = 0; s < kSamples; ++s)
      for (int f = 0; f < 3; ++f)
        wide_gradients[3 * s + f] = logit_gradients[s];  // each weight was added to the logit
    mlp.backward(dy, {deep_gradients.data(), kSamples, 24});
    rank.all_reduce(parameters.gradients());
    dense.step(parameters, 0.05f);
    wide.backward(wide_part, {wide_gradients.data(), kSamples, 3});
    deep.backward(deep_part, {deep_gradients.data(), kSamples, 24});
    // [step end]
  }
  return losses;
}

int main() {
  const ts::SyntheticClicks clicks({{.rows = 2000}, {.rows = 1000}, {.rows = 20}},
                                   {.dense_columns = 0});
  constexpr int kSteps = 200;
  std::vector<double> losses;
  ts::run_ranks(2, [&](ts::ThreadCommunicator& rank) {
    const std::vector<double> of_rank = train(rank, clicks, kSteps);
    if (rank.rank() == 0) losses = of_rank;
  });
  const auto mean_of_20 = [&](int first) {
    double sum = 0;
    for (int i = 0; i < 20; ++i) sum += losses[first + i];
    return sum / 20;
  };
  for (const int first : {0, 80, kSteps - 20})
    fmt::print("steps {:>3} to {:>3}: loss {:.3f}\n", first, first + 19, mean_of_20(first));
  return mean_of_20(kSteps - 20) < mean_of_20(0) - 0.03 ? 0 : 1;
}
