// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A history of items, weighted by its likeness to the item that is shown:
// docs/first_day/sequences.md.
#include <tessera/optimizers.hpp>
#include <tessera/tessera.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <vector>

namespace ts = tessera;

// [tables]
constexpr int kWidth = 8;
using Plan = ts::Plan<ts::Features<ts::Feature<"shown", "item">,  // pooled: a vector per sample
                                   ts::Feature<"history", "item", ts::Sequence>>,  // one per id
                      ts::RowWise<ts::Table<"item", 400, kWidth>>>;
using Items = ts::EmbeddingCollection<Plan, ts::Adagrad, ts::Host, ts::ThreadCommunicator,
                                      ts::InitializeWith<ts::Normal>>;
// [tables end]

/// Samples of two tastes: a history is of even items or of odd ones, and a click follows where the
/// shown item is of the same kind.
struct Batch {
  /// the shown item of each sample, then all histories, one after another
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets;  ///< of the bags: one id each, then the histories
  std::vector<float> labels;

  void draw(int samples, std::mt19937& random) {
    ids.clear(), labels.clear(), offsets.clear();
    for (int s = 0; s <= samples; ++s) offsets.push_back(s);
    std::vector<std::int32_t> histories;
    for (int s = 0; s < samples; ++s) {
      const auto item = [&](unsigned kind) {
        return static_cast<std::int32_t>(2 * (random() % 200) + kind);
      };
      const unsigned taste = random() % 2, shown = random() % 2, length = 1 + random() % 10;
      ids.push_back(item(shown));
      labels.push_back(taste == shown ? 1.0f : 0.0f);
      for (unsigned i = 0; i < length; ++i) histories.push_back(item(taste));
      offsets.push_back(offsets.back() + length);
    }
    ids.insert(ids.end(), histories.begin(), histories.end());
  }
};

// [attention]
float dot(const float* a, const float* b) {
  float sum = 0;
  for (int i = 0; i < kWidth; ++i) sum += a[i] * b[i];
  return sum;
}

/// score_j = target . history_j, p = softmax(score), logit = target . sum_j p_j history_j = sum_j
/// p_j score_j.
float attend(const float* target, ts::MatrixView<const float> history, std::vector<float>& score,
             std::vector<float>& p) {
  score.resize(history.rows), p.resize(history.rows);
  for (std::int64_t j = 0; j < history.rows; ++j) score[j] = dot(target, history.row(j));
  const float most = *std::max_element(score.begin(), score.end());
  float sum = 0, logit = 0;
  for (std::int64_t j = 0; j < history.rows; ++j) sum += p[j] = std::exp(score[j] - most);
  for (std::int64_t j = 0; j < history.rows; ++j) logit += (p[j] /= sum) * score[j];
  return logit;
}

/// Adds the gradients of target and history, from that of the logit: d logit / d score_j = p_j (1 +
/// score_j - logit).
void attend_backward(const float* target, ts::MatrixView<const float> history,
                     std::span<const float> score, std::span<const float> p, float logit,
                     float logit_gradient, float* target_gradient,
                     ts::MatrixView<float> history_gradient) {
  for (std::int64_t j = 0; j < history.rows; ++j) {
    const float g = logit_gradient * p[j] * (1 + score[j] - logit);
    for (int i = 0; i < kWidth; ++i) {
      target_gradient[i] += g * history(j, i);
      history_gradient(j, i) += g * target[i];
    }
  }
}
// [attention end]

/// Returns the loss over the global batch before each step.
std::vector<double> train(ts::ThreadCommunicator& rank, int steps) {
  constexpr int kSamples = 64;
  Items items(rank, ts::Host(),
              {.learning_rate = 0.1f, .seed = 3, .initialize = {.standard_deviation = 0.3f}});
  std::mt19937 random(static_cast<unsigned>(rank.rank()));
  Batch batch;
  std::vector<double> losses;
  ts::Matrix<float> logits(kSamples, 1), dlogits(kSamples, 1);
  std::vector<std::vector<float>> scores(kSamples), p(kSamples);
  for (int step = 0; step < steps; ++step) {
    batch.draw(kSamples, random);
    // [step]
    const auto found =
        items.forward(ts::KeyedJagged<std::int32_t>{2, kSamples, batch.ids, batch.offsets, {}});
    const auto history = found.sequence<"history">();
    ts::Matrix<float> x(history.ids(), kWidth), dx(history.ids(), kWidth),
        dshown(kSamples, kWidth);  // zeros at first
    const ts::MatrixView<float> vectors = x, d = dx, y = logits;
    history.materialize(vectors);  // [ids, width]; rows() and index() are the same, packed
    const auto of = [&](auto matrix, int s) {
      const auto offsets = history.offsets();
      return matrix.row_range(offsets[s], offsets[s + 1] - offsets[s]);
    };

    for (int s = 0; s < kSamples; ++s)
      y(s, 0) = attend(found.values.row(s), of(vectors, s), scores[s], p[s]);
    double loss = ts::BinaryCrossEntropyWithLogits{kSamples * rank.size()}.forward_backward(
        y, batch.labels, dlogits);
    for (int s = 0; s < kSamples; ++s)
      attend_backward(found.values.row(s), of(vectors, s), scores[s], p[s], y(s, 0),
                      dlogits.view()(s, 0), dshown.view().row(s), of(d, s));
    // one update per row: of the shown items' gradients and those of all positions of a history
    items.backward(found, dshown, {history.per_id(d)});
    // [step end]
    rank.all_reduce(std::span(&loss, 1));
    losses.push_back(loss);
  }
  return losses;
}

int main() {
  std::vector<double> losses;
  ts::run_ranks(2, [&](ts::ThreadCommunicator& rank) {
    const std::vector<double> of_rank = train(rank, 150);
    if (rank.rank() == 0) losses = of_rank;
  });
  for (const int step : {0, 50, 149}) fmt::print("step {:>3}: loss {:.3f}\n", step, losses[step]);
  return losses.back() < 0.3 * losses.front() ? 0 : 1;
}
