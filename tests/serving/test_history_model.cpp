// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A model that ranks candidates for a history, from its checkpoint, against HSTU in double; users
// with candidates, requests joined, long and empty histories; what does not fit.
#include <tessera_serving/batching_scorer.hpp>
#include <tessera_serving/frozen_model.hpp>

#include <support/message_of.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <serving/saved_history.hpp>

using namespace saved_history;

namespace {

std::vector<float> logits_of(const FrozenModel& model, const Samples& samples,
                             bool numbers = true) {
  EncodedSamples encoded;
  model.inputs().encode(samples.columns(numbers), encoded);
  std::vector<float> logits(samples.candidates.size());
  model.logits(encoded, logits);
  return logits;
}

}  // namespace

TEST_CASE("logits are those of the definitions in double, whatever is joined") {
  for (const bool numbers : {true, false}) {
    const Saved saved(description(numbers));
    for (const bool pad : {true, false}) {
      const FrozenModel model(saved.checkpoint, {.pad_batches = pad});
      for (const auto& [count, repeat] : {std::pair(7, 3), std::pair(150, 1), std::pair(1, 1)}) {
        const Samples samples(static_cast<unsigned>(count), count, repeat);
        const std::vector<float> logits = logits_of(model, samples, numbers);
        for (std::size_t s = 0; s < logits.size(); ++s) {
          std::vector<double> labels = samples.labels[s];
          if (!numbers) std::fill(labels.begin(), labels.end(), 1.0);
          CHECK(logits[s] ==
                doctest::Approx(saved.logit(samples.histories[s], labels, samples.candidates[s]))
                    .epsilon(2e-5));
        }
      }
    }
  }
}

TEST_CASE(
    "a user's history with candidates: the scores of whole samples, for more than one piece") {
  const Saved saved(description(true));
  const FrozenModel model(saved.checkpoint);
  constexpr std::int64_t n = 2500;
  const Samples samples(3, n, n), one(3, 1, 1);
  REQUIRE(one.histories[0] == samples.histories[0]);
  const std::vector<float> whole = logits_of(model, samples);
  ModelColumns user = one.columns(), candidates = samples.columns();
  user.categories[1] = {}, candidates.categories[0] = {};
  candidates.numbers = {{}}, candidates.number_lengths = {};
  EncodedSamples user_samples, candidate_samples;
  model.inputs().encode(user, user_samples, true);
  model.inputs().encode(candidates, candidate_samples, true);
  std::vector<float> logits(n);
  model.logits(user_samples, candidate_samples, logits);
  CHECK(logits == whole);
  CHECK_THROWS_WITH_AS(model.logits(candidate_samples, user_samples, std::span(logits).first(1)),
                       doctest::Contains("a user is one sample"), InvalidArgument);
  candidates = one.columns();
  candidates.categories[0] = {}, candidates.numbers = {{}}, candidates.number_lengths = {};
  model.inputs().encode(candidates, candidate_samples, true);
  CHECK_THROWS_WITH_AS(model.logits(candidate_samples, user_samples, std::span(logits).first(1)),
                       doctest::Contains("column 'candidate' is the candidates'"), InvalidArgument);
}

TEST_CASE("requests that threads join get the scores of their own") {
  const Saved saved(description(true));
  const FrozenModel model(saved.checkpoint);
  BatchingScorer scorer(model, {.max_samples = 64, .threads = 2});
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 10; ++i) {
        const Samples samples(10 * t + i, 1 + static_cast<int>(i), 2);
        EncodedSamples encoded;
        model.inputs().encode(samples.columns(), encoded);
        std::vector<float> scores(samples.candidates.size());
        scorer.score(encoded, scores);
        const std::vector<float> logits = logits_of(model, samples);
        for (std::size_t s = 0; s < scores.size(); ++s)
          CHECK(scores[s] == doctest::Approx(1 / (1 + std::exp(-double{logits[s]}))));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("what does not fit is said, and int8 rows are near") {
  const Saved saved(description(true));
  const FrozenModel model(saved.checkpoint), small(saved.checkpoint, {.format = RowFormat::int8});
  const Samples samples(4, 40, 2);
  const std::vector<float> logits = logits_of(model, samples), near = logits_of(small, samples);
  for (std::size_t s = 0; s < logits.size(); ++s)
    CHECK(near[s] == doctest::Approx(logits[s]).epsilon(0.05));

  EncodedSamples encoded;
  const auto fault = [&](const auto& change) {
    ModelColumns columns = samples.columns();
    change(columns);
    return message_of([&] {
      model.inputs().encode(columns, encoded);
      std::vector<float> scores(samples.candidates.size());
      model.score(encoded, scores);
    });
  };
  std::vector<std::int64_t> others = samples.lengths;
  ++others[0], --others[1];
  std::vector<std::string_view> unknown = samples.candidate_views;
  unknown[3] = "nothing";
  CHECK(fault([&](ModelColumns& c) { c.number_lengths = others; }).find("'stars'") !=
        std::string::npos);
  CHECK(fault([&](ModelColumns& c) {
          c.numbers[0] = c.numbers[0].first(3);
        }).find("as many as column 'history'") != std::string::npos);
  CHECK(fault([&](ModelColumns& c) { c.numbers[0] = {}; }).find("'stars'") != std::string::npos);
  CHECK(fault([&](ModelColumns& c) {
          c.categories[1].texts = unknown;
        }).find("column 'candidate', sample 3: 'nothing'") != std::string::npos);
  std::vector<std::string_view> events = samples.views;
  std::vector<float> stars = samples.stars;
  events[7] = "nothing", stars[6] = INFINITY;
  CHECK(fault([&](ModelColumns& c) {
          c.categories[0].texts = events;
        }).find("column 'history', entry 7: 'nothing'") != std::string::npos);
  CHECK(fault([&](ModelColumns& c) {
          c.numbers[0] = stars;
        }).find("column 'stars', entry 6: inf") != std::string::npos);
  CHECK(fault([&](ModelColumns& c) { c.categories[0].given = false; }).find("'history'") !=
        std::string::npos);
  CHECK(fault([](ModelColumns&) {}) == "");

  const Saved longer(description(true), 1);
  CHECK_THROWS_WITH_AS(FrozenModel(longer.checkpoint), doctest::Contains("'dense' has"), DataError);
  ModelDescription more = description(true);
  ++more.history->blocks;
  const Saved shorter(more);
  CHECK_THROWS_WITH_AS(FrozenModel(shorter.checkpoint), doctest::Contains("'dense' has"),
                       DataError);
}
