// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// AUC against counting every pair, log loss against long double arithmetic.
#include <tessera_data/binned_auc.hpp>
#include <tessera_data/metrics.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace tessera;

namespace {

double auc_by_pairs(const std::vector<float>& scores, const std::vector<float>& labels) {
  double good = 0, pairs = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] != 1.0f || labels[j] != 0.0f) continue;
      pairs += 1;
      good += scores[i] > scores[j] ? 1.0 : scores[i] == scores[j] ? 0.5 : 0.0;
    }
  }
  return good / pairs;
}

}  // namespace

TEST_CASE("AUC equals the share of ordered pairs, with many and with few ties, however it is fed") {
  std::mt19937_64 random(1);
  for (const int distinct : {1, 2, 5, 100, 1 << 20}) {
    for (const std::size_t n : {2, 3, 17, 400}) {
      std::vector<float> scores(n), labels(n);
      for (std::size_t i = 0; i < n; ++i) {
        scores[i] =
            static_cast<float>(static_cast<int>(random() % static_cast<unsigned>(distinct)) -
                               distinct / 2) *
            0.37f;
        labels[i] = i == 0 ? 1.0f : i == 1 ? 0.0f : static_cast<float>(random() % 3 == 0);
        scores[i] += labels[i] * static_cast<float>(distinct / 10);
      }
      const double expected = auc_by_pairs(scores, labels);
      Auc whole;
      whole.add(scores, labels);
      CHECK(whole.value() == doctest::Approx(expected).epsilon(1e-14));
      // Three ranks with interleaved samples, merged in another order.
      Auc ranks[3];
      for (std::size_t i = 0; i < n; ++i)
        ranks[i % 3].add(std::span(scores).subspan(i, 1), std::span(labels).subspan(i, 1));
      Auc merged;
      for (const int r : {2, 0, 1}) merged.merge(ranks[r]);
      CHECK(merged.value() == whole.value());
      Auc received;  // as from a process: scores come as numbers
      received.add(whole.positive_scores(), std::vector<float>(whole.positive_scores().size(), 1));
      received.add(whole.negative_scores(), std::vector<float>(whole.negative_scores().size(), 0));
      CHECK(received.value() == whole.value());
      CHECK(merged.positives() + merged.negatives() == static_cast<std::int64_t>(n));
    }
  }
}

TEST_CASE("AUC of separated, reversed and infinite scores") {
  const std::vector<float> labels{0, 0, 1, 1};
  const auto auc = [&](std::vector<float> scores) {
    Auc a;
    a.add(scores, labels);
    return a.value();
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CHECK(auc({1, 2, 3, 4}) == 1.0);
  CHECK(auc({4, 3, 2, 1}) == 0.0);
  CHECK(auc({0.0f, -0.0f, 0.0f, -0.0f}) == 0.5);
  CHECK(auc({-kInfinity, kInfinity, kInfinity, kInfinity}) == 0.75);
}

TEST_CASE("AUC that has no value, input that has no order") {
  Auc auc;
  CHECK(std::isnan(auc.value()));
  const std::vector<float> one{1.0f}, two{1.0f, 2.0f}, nan{std::nanf("")};
  auc.add(one, one);
  CHECK(std::isnan(auc.value()));
  CHECK_THROWS_WITH_AS(auc.add(two, one), "Auc: 2 scores for 1 labels", InvalidArgument);
  CHECK_THROWS_AS(auc.add(nan, one), InvalidArgument);
}

TEST_CASE("log loss equals its definition and stays finite and exact at extreme logits") {
  std::mt19937_64 random(2);
  std::vector<float> logits(1000), labels(1000);
  long double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = std::uniform_real_distribution<float>(-20, 20)(random);
    labels[i] = static_cast<float>(random() % 2);
    const long double p = 1 / (1 + std::exp(-static_cast<long double>(logits[i])));
    sum -= labels[i] == 1.0f ? std::log(p) : std::log1p(-p);
  }
  LogLoss whole, first, second;
  whole.add(logits, labels);
  CHECK(whole.value() == doctest::Approx(static_cast<double>(sum / 1000)).epsilon(1e-9));
  first.add(std::span(logits).first(300), std::span(labels).first(300));
  second.add(std::span(logits).subspan(300), std::span(labels).subspan(300));
  second.merge(first);
  CHECK(second.count() == 1000);
  CHECK(second.value() == doctest::Approx(whole.value()).epsilon(1e-13));

  const auto loss = [](float logit, float label) {
    LogLoss l;
    l.add({&logit, 1}, {&label, 1});
    return l.value();
  };
  CHECK(loss(0, 0) == doctest::Approx(std::log(2.0)));
  CHECK(loss(1e30f, 1) == 0.0);
  CHECK(loss(1e30f, 0) == doctest::Approx(1e30));
  CHECK(loss(-1e30f, 1) == doctest::Approx(1e30));
  CHECK(loss(50, 1) == doctest::Approx(std::exp(-50.0)).epsilon(1e-12));
  CHECK(std::isnan(LogLoss().value()));
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {infinity, -infinity})
    for (const float label : {0.0f, 0.25f, 1.0f}) {
      LogLoss l;
      l.add(std::vector<float>{x}, std::vector<float>{label});
      CHECK(l.value() == (label == (x > 0 ? 1.0f : 0.0f) ? 0.0 : infinity));
    }
  CHECK_THROWS_AS(whole.add(std::span(logits).first(2), std::span(labels).first(1)),
                  InvalidArgument);
}

TEST_CASE(
    "binned AUC counts samples above each threshold, as its definition says, however it is fed") {
  std::mt19937_64 random(3);
  for (const int thresholds : {2, 3, 11, 8000}) {
    std::vector<float> scores(500), labels(scores.size());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      labels[i] = static_cast<float>(random() % 3 == 0);
      // Exact thresholds, both ends, and values between.
      scores[i] = i % 2 == 0 ? static_cast<float>(random() % 11) / 10.0f
                             : static_cast<float>(static_cast<double>(random()) * 0x1p-64);
    }
    const auto share_above = [&](double threshold, float of) {
      double above = 0, all = 0;
      for (std::size_t i = 0; i < scores.size(); ++i) {
        all += labels[i] == of;
        above += labels[i] == of && double{scores[i]} > threshold;
      }
      return above / all;
    };
    double expected = 0, last_true = 1, last_false = 1;
    for (int k = 1; k < thresholds; ++k) {
      const double threshold =
          k == thresholds - 1 ? 1 + 1e-7 : static_cast<double>(k) / (thresholds - 1);
      const double true_rate = share_above(threshold, 1), false_rate = share_above(threshold, 0);
      expected += (last_false - false_rate) * (last_true + true_rate) / 2;
      last_true = true_rate, last_false = false_rate;
    }
    BinnedAuc whole(thresholds), first(thresholds), second(thresholds);
    whole.add(scores, labels);
    first.add(std::span(scores).first(123), std::span(labels).first(123));
    second.add(std::span(scores).subspan(123), std::span(labels).subspan(123));
    second.merge(first);
    CHECK(whole.value() == doctest::Approx(expected).epsilon(1e-12));
    CHECK(second.value() == whole.value());
    BinnedAuc sum(thresholds);  // as over processes: counts are added up as numbers
    const auto add = [](std::span<std::int64_t> to, std::span<const std::int64_t> from) {
      std::transform(to.begin(), to.end(), from.begin(), to.begin(), std::plus<>());
    };
    add(sum.positive_counts(), whole.positive_counts());
    add(sum.negative_counts(), whole.negative_counts());
    CHECK(sum.value() == whole.value());
    CHECK_THROWS_AS(whole.merge(BinnedAuc(thresholds + 1)), InvalidArgument);
  }
  CHECK_THROWS_AS(BinnedAuc(1), InvalidArgument);
  CHECK_THROWS_AS(BinnedAuc(-1), InvalidArgument);
  BinnedAuc auc;
  CHECK(std::isnan(auc.value()));
  for (const float bad : {-0.1f, 1.1f, std::numeric_limits<float>::quiet_NaN()})
    CHECK_THROWS_AS(auc.add(std::vector{0.5f, bad}, std::vector{1.0f, 0.0f}), InvalidArgument);
  CHECK(std::isnan(auc.value()));
  CHECK_THROWS_AS(auc.add(std::vector{0.5f}, std::vector{1.0f, 0.0f}), InvalidArgument);
}

TEST_CASE("normalized entropy is 1 for the mean label, calibration the ratio of means") {
  const std::vector<float> labels{1, 0, 0, 0, 0, 1, 0, 0};
  const std::vector<float> mean(8, std::log(0.25f / 0.75f));
  NormalizedEntropy entropy;
  Calibration calibration;
  CHECK(std::isnan(entropy.value()));
  CHECK(std::isnan(calibration.value()));
  entropy.add(mean, labels);
  calibration.add(mean, labels);
  CHECK(entropy.value() == doctest::Approx(1).epsilon(1e-6));
  CHECK(calibration.value() == doctest::Approx(1).epsilon(1e-6));
  NormalizedEntropy more;
  Calibration twice;
  more.add(std::vector(8, 0.0f), labels);  // a half for everyone: a loss of ln 2
  twice.add(std::vector(8, 0.0f), labels);
  CHECK(more.value() ==
        doctest::Approx(std::log(2.0) / -(0.25 * std::log(0.25) + 0.75 * std::log(0.75)))
            .epsilon(1e-12));
  CHECK(twice.value() == doctest::Approx(2).epsilon(1e-12));
  twice.merge(calibration);
  CHECK(twice.value() == doctest::Approx(1.5).epsilon(1e-6));
  NormalizedEntropy one_class;
  one_class.add(std::vector{1.0f, 2.0f}, std::vector{1.0f, 1.0f});
  CHECK(std::isnan(one_class.value()));
  CHECK_THROWS_AS(more.add(mean, std::vector{1.0f}), InvalidArgument);
  CHECK_THROWS_AS(twice.add(mean, std::vector{1.0f}), InvalidArgument);
}

TEST_CASE(
    "labels outside [0, 1] and scores of NaN are refused by every metric, and nothing is added") {
  Auc auc;
  BinnedAuc binned;
  LogLoss loss;
  NormalizedEntropy entropy;
  Calibration calibration;
  const auto add = [&](auto& metric, float label) {
    metric.add(std::vector{0.25f, 0.5f}, std::vector{1.0f, label});
  };
  const auto add_all = [&](const auto& check) {
    check(auc, "Auc"), check(binned, "BinnedAuc"), check(loss, "LogLoss");
    check(entropy, "NormalizedEntropy"), check(calibration, "Calibration");
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float label :
       {-1.0f, 2.0f, 1.0001f, -1e-9f, kInfinity, std::numeric_limits<float>::quiet_NaN()})
    add_all([&](auto& metric, const char* name) {
      CAPTURE(label);
      CHECK_THROWS_WITH_AS(add(metric, label),
                           doctest::Contains((name + std::string(": label 1 is")).c_str()),
                           InvalidArgument);
    });
  add_all([&](auto& metric, const char*) {
    CHECK_THROWS_WITH_AS(metric.add(std::vector{0.5f, std::nanf("")}, std::vector{1.0f, 0.0f}),
                         doctest::Contains("score 1 is"), InvalidArgument);
    CHECK(std::isnan(metric.value()));
  });
  add_all([&](auto& metric, const char*) { add(metric, 0.0f), add(metric, 0.75f); });
  CHECK(loss.count() == 4);
  CHECK(auc.positives() == 3);
}
