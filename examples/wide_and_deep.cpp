// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Wide & Deep (Cheng et al. 2016) on two ranks: docs/first_day/wide_and_deep.md.
#include <tessera/dense.hpp>
#include <tessera/tessera.hpp>
#include <tessera_data/synthetic.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <vector>

namespace ts = tessera;

// [tables]
// The same three features twice: one weight per id for the wide part, a vector of 8 for the deep
// part.
using WideUser = ts::Table<"wide.user", 2000, 1>;
using WideItem = ts::Table<"wide.item", 1000, 1>;
using WideCity = ts::Table<"wide.city", 20, 1>;
using Plan = ts::Plan<ts::RowWise<WideUser, WideItem>, ts::TableWise<WideCity>,
                      ts::RowWise<ts::Table<"user", 2000, 8>, ts::Table<"item", 1000, 8>>,
                      ts::TableWise<ts::Table<"city", 20, 8>>>;

using Wide = ts::Train<ts::Ftrl, WideUser, WideItem, WideCity>;
using Deep = ts::Train<ts::RowWiseAdagrad>;  // all other tables
using Embeddings = ts::EmbeddingCollection<Plan, Wide, Deep, ts::Host, ts::ThreadCommunicator>;
// [tables end]

/// Returns the loss over the global batch before each step, the same on every rank.
std::vector<double> train(ts::ThreadCommunicator& rank, const ts::SyntheticClicks& clicks,
                          int steps) {
  constexpr int kSamples = 128;  // of each rank
  // [model]
  Embeddings::Options options{.learning_rate = 0.05f, .seed = 1};
  Embeddings::of<Wide>(options) = {ts::Ftrl{.l1 = 0.01f, .l2 = 0.01f}, 0.1f};
  Embeddings embeddings(rank, ts::Host(), options);
  ts::Mlp<ts::Host, 24, 16, 1> mlp;
  ts::DenseParameters parameters(2, mlp);
  ts::DenseOptimizer dense(ts::Adagrad{});
  // [model end]
  ts::Matrix<float> logits(kSamples, 1), logit_gradients(kSamples, 1), gradients(kSamples, 27);
  const ts::MatrixView<float> y = logits, dy = logit_gradients, dx = gradients;
  std::vector<double> losses;
  ts::ClickBatch<std::int32_t> batch;
  for (int step = 0; step < steps; ++step) {
    clicks.generate((step * rank.size() + rank.rank()) * kSamples, kSamples, batch);
    // [step]
    std::vector<std::int32_t> ids(batch.ids);  // of the wide features, then of the deep ones
    ids.insert(ids.end(), batch.ids.begin(), batch.ids.end());
    const auto x = embeddings.forward(ts::KeyedJagged<std::int32_t>{6, kSamples, ids, {}, {}});
    mlp.forward(x.values.column_range(3, 24), y);
    for (int s = 0; s < kSamples; ++s)
      for (int f = 0; f < 3; ++f) y(s, 0) += x.values(s, f);  // the wide logit

    // The share of this rank in the mean over the global batch: the ranks' sum is the loss.
    double loss = ts::BinaryCrossEntropyWithLogits{kSamples * rank.size()}.forward_backward(
        y, batch.labels, dy);
    rank.all_reduce(std::span(&loss, 1));
    losses.push_back(loss);

    for (int s = 0; s < kSamples; ++s)
      for (int f = 0; f < 3; ++f) dx(s, f) = dy(s, 0);  // each was added to the logit
    mlp.backward(dy, dx.column_range(3, 24));
    rank.all_reduce(parameters.gradients());
    dense.step(parameters, 0.05f);
    embeddings.backward(x, dx);
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
