// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ids against the distribution function, samples against random access, labels against the true
// logit, and whether the planted signal can be learned and is lost with its feature.
#include <tessera_data/metrics.hpp>
#include <tessera_data/synthetic.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <vector>

using namespace tessera;

namespace {

using Features = std::vector<SyntheticFeature>;

struct Made {
  ClickBatch<std::int64_t> batch;
  std::vector<float> logits;
};

Made make(const SyntheticClicks& clicks, std::int64_t first, std::int64_t count) {
  Made made;
  clicks.generate(first, count, made.batch, &made.logits);
  return made;
}

std::vector<std::int64_t> bag(const ClickBatch<std::int64_t>& batch, std::int64_t feature,
                              std::int64_t sample) {
  const auto view = batch.keyed();
  return {batch.ids.begin() + view.bag_begin(feature, sample),
          batch.ids.begin() + view.bag_end(feature, sample)};
}

/// Test AUC of logistic regression on ids (features marked in `used` only), trained by Adagrad over
/// one pass.
double learned_auc(const SyntheticClicks& clicks, std::int64_t train, std::int64_t test,
                   const std::vector<bool>& used) {
  std::vector<std::vector<float>> weights, sums;
  for (const auto& feature : clicks.features()) {
    weights.emplace_back(static_cast<std::size_t>(feature.rows));
    sums.emplace_back(static_cast<std::size_t>(feature.rows), 1e-6f);
  }
  float bias = 0;
  Auc auc;
  ClickBatch<std::int32_t> batch;
  constexpr std::int64_t kBatch = 1000;
  for (std::int64_t first = 0; first < train + test; first += kBatch) {
    clicks.generate(first, kBatch, batch);
    std::vector<float> logits(kBatch);
    for (std::int64_t s = 0; s < kBatch; ++s) {
      float logit = bias;
      for (std::size_t f = 0; f < used.size(); ++f)
        if (used[f])
          logit += weights[f][static_cast<std::size_t>(
              batch.ids[f * kBatch + static_cast<std::size_t>(s)])];
      logits[static_cast<std::size_t>(s)] = logit;
      if (first >= train) continue;
      const float gradient = 1 / (1 + std::exp(-logit)) - batch.labels[static_cast<std::size_t>(s)];
      bias -= 0.01f * gradient;
      for (std::size_t f = 0; f < used.size(); ++f) {
        const auto id =
            static_cast<std::size_t>(batch.ids[f * kBatch + static_cast<std::size_t>(s)]);
        sums[f][id] += gradient * gradient;
        weights[f][id] -= 0.1f * gradient / std::sqrt(sums[f][id]);
      }
    }
    if (first >= train) auc.add(logits, batch.labels);
  }
  return auc.value();
}

}  // namespace

TEST_CASE("logarithm and power: close to the library's") {
  for (double x = 1e-9; x < 1e12; x *= 1.0371)
    CHECK(detail::fast_log2(x) == doctest::Approx(std::log2(x)).epsilon(1e-11));
  for (double x = -100; x < 100; x += 0.0371)
    CHECK(detail::fast_exp2(x) / std::exp2(x) == doctest::Approx(1.0).epsilon(1e-11));
}

TEST_CASE("power law: every id as often as the distribution says") {
  for (const double alpha : {0.0, 0.5, 1.0, 1.05, 2.0}) {
    for (const std::int64_t rows : {1, 2, 7, 1000}) {
      CAPTURE(alpha);
      CAPTURE(rows);
      const PowerLaw law(rows, alpha);
      constexpr int kDraws = 1 << 18;
      std::vector<double> counts(static_cast<std::size_t>(rows));
      for (int i = 0; i < kDraws; ++i) {
        // evenly spaced: counts are exact to one or two
        const std::int64_t id = law((i + 0.5) / kDraws);
        if (id < 0 || id >= rows) FAIL("id ", id);
        ++counts[static_cast<std::size_t>(id)];
      }
      const auto cumulative = [&](double x) {
        return alpha == 1.0 ? std::log(x) : (std::pow(x, 1 - alpha) - 1) / (1 - alpha);
      };
      const double total = cumulative(static_cast<double>(rows) + 1);
      for (std::int64_t id = 0; id < rows; ++id) {
        const double k = static_cast<double>(id);
        const double expected = kDraws * (cumulative(k + 2) - cumulative(k + 1)) / total;
        CHECK(std::abs(counts[static_cast<std::size_t>(id)] - expected) <= 2.0);
      }
    }
  }
  CHECK(PowerLaw(std::int64_t{1} << 32, 0.0)(0x1.fffffffffffffp-1) == (std::int64_t{1} << 32) - 1);
  CHECK(PowerLaw(1'000'000, 1.05)(0.0) == 0);
  CHECK(PowerLaw(1'000'000, 1.05)(0x1.fffffffffffffp-1) == 999'999);
  CHECK_THROWS_AS(PowerLaw(0, 1.0), InvalidArgument);
  CHECK_THROWS_AS(PowerLaw(10, -0.1), InvalidArgument);
}

TEST_CASE("any range of samples is the same, whoever makes it") {
  for (const bool ragged : {false, true}) {
    std::vector<SyntheticFeature> features(5);
    features[1] = {.rows = 3, .alpha = 0.0};
    features[4] = {.rows = 1};
    if (ragged) {
      features[0].max_hotness = 4;
      features[2] = {.rows = 50, .alpha = 0.5, .min_hotness = 0, .max_hotness = 7};
      features[3] = {.rows = 9, .alpha = 2.0, .min_hotness = 3, .max_hotness = 3};
    }
    const SyntheticClicks clicks(features, {.seed = 5, .dense_columns = 3});
    CHECK(clicks.one_hot() == !ragged);
    const Made whole = make(clicks, 1'000'000'007, 1500);
    CHECK(whole.batch.offsets.empty() == !ragged);
    CHECK_NOTHROW(whole.batch.keyed().validate());
    const Made threaded =
        make(SyntheticClicks(features, {.seed = 5, .dense_columns = 3, .threads = 3}),
             1'000'000'007, 1500);
    CHECK(threaded.batch.ids == whole.batch.ids);
    CHECK(threaded.batch.offsets == whole.batch.offsets);
    CHECK(threaded.batch.dense == whole.batch.dense);
    CHECK(threaded.batch.labels == whole.batch.labels);
    CHECK(threaded.logits == whole.logits);
    for (const auto& [first, count] :
         {std::pair{0, 1500}, {0, 1}, {255, 3}, {256, 512}, {700, 800}, {3, 0}}) {
      const Made part = make(clicks, 1'000'000'007 + first, count);
      REQUIRE(part.batch.size == count);
      for (std::int64_t s = 0; s < count; ++s) {
        CHECK(part.batch.labels[static_cast<std::size_t>(s)] ==
              whole.batch.labels[static_cast<std::size_t>(first + s)]);
        CHECK(part.logits[static_cast<std::size_t>(s)] ==
              whole.logits[static_cast<std::size_t>(first + s)]);
        for (std::int64_t c = 0; c < 3; ++c)
          CHECK(part.batch.dense_view()(s, c) == whole.batch.dense_view()(first + s, c));
        for (std::int64_t f = 0; f < 5; ++f) {
          const auto ids = bag(part.batch, f, s);
          CHECK(ids == bag(whole.batch, f, first + s));
          const auto& feature = features[static_cast<std::size_t>(f)];
          const auto length = static_cast<std::int32_t>(ids.size());
          if (length < feature.min_hotness || length > feature.max_hotness) FAIL("bag of ", length);
          for (const std::int64_t id : ids)
            if (id < 0 || id >= feature.rows) FAIL("id ", id);
        }
      }
    }
  }
}

TEST_CASE("seeds differ; scattering is a permutation of the ids") {
  const std::vector<SyntheticFeature> features{{.rows = 1000}, {.rows = 1000}};
  const Made a = make(SyntheticClicks(features, {.seed = 1, .scatter_ids = false}), 0, 50'000);
  const Made b = make(SyntheticClicks(features, {.seed = 2, .scatter_ids = false}), 0, 50'000);
  const Made scattered = make(SyntheticClicks(features, {.seed = 1}), 0, 50'000);
  CHECK(a.batch.ids != b.batch.ids);
  for (std::size_t f = 0; f < 2; ++f) {
    std::vector<std::int64_t> map(1000, -1);
    std::set<std::int64_t> images, sources;
    for (std::size_t s = 0; s < 50'000; ++s) {
      const std::int64_t from = a.batch.ids[f * 50'000 + s],
                         to = scattered.batch.ids[f * 50'000 + s];
      auto& image = map[static_cast<std::size_t>(from)];
      if (image >= 0 && image != to) FAIL("id ", from, " goes two ways");
      image = to;
      images.insert(to);
      sources.insert(from);
    }
    CHECK(images.size() == sources.size());
    CHECK(images.size() > 900);
  }
  // Also where products need all 64 bits.
  for (const std::int64_t rows : {std::int64_t{1} << 32, (std::int64_t{1} << 32) - 5,
                                  std::int64_t{3'000'000'017}, std::int64_t{1}}) {
    const Made uniform = make(SyntheticClicks(Features{{.rows = rows, .alpha = 0.0}}), 0, 10'000);
    double mean = 0;
    for (const std::int64_t id : uniform.batch.ids) {
      if (id < 0 || id >= rows) FAIL("id ", id);
      mean += static_cast<double>(id) / 10'000;
    }
    if (rows > 1) CHECK(std::abs(mean / static_cast<double>(rows) - 0.5) < 0.015);
  }
  // The ids of two features, and those of neighbouring samples, are unrelated: equal as often as
  // chance says.
  double squares = 0, equal = 0;
  std::vector<double> share(1000);
  for (const std::int64_t id : a.batch.ids) share[static_cast<std::size_t>(id)] += 1e-5;
  for (const double p : share) squares += p * p;
  for (std::size_t s = 0; s < 50'000; ++s) equal += a.batch.ids[s] == a.batch.ids[50'000 + s];
  CHECK(std::abs(equal / 50'000 - squares) < 5 * std::sqrt(squares / 50'000));
}

TEST_CASE("labels are drawn from the true logit") {
  const SyntheticClicks clicks(criteo_like_features(10'000));
  constexpr std::int64_t kCount = 200'000;
  const Made made = make(clicks, 0, kCount);
  // Calibration: in every bin of the logit, the share of positives is the mean probability.
  constexpr int kBins = 20;
  std::vector<double> expected(kBins), ones(kBins), variance(kBins);
  for (std::size_t s = 0; s < kCount; ++s) {
    const double p = 1 / (1 + std::exp(-made.logits[s]));
    const auto bin = static_cast<std::size_t>(p * kBins);
    expected[bin] += p;
    variance[bin] += p * (1 - p);
    ones[bin] += made.batch.labels[s];
  }
  for (std::size_t bin = 0; bin < kBins; ++bin)
    CHECK(std::abs(ones[bin] - expected[bin]) < 4.5 * std::sqrt(variance[bin]));
  Auc auc;
  auc.add(made.logits, made.batch.labels);
  CHECK(auc.value() > 0.82);
  CHECK(auc.value() < 0.90);
}

TEST_CASE("each part of the true logit has about the deviation that was asked for") {
  const std::vector<SyntheticFeature> features(20, {.rows = 10'000, .alpha = 0.0});
  const auto deviation = [&](SyntheticOptions options) {
    const Made made = make(SyntheticClicks(features, options), 0, 20'000);
    double sum = 0, squares = 0;
    for (const float x : made.logits) sum += x / 20'000.0;
    for (const float x : made.logits) squares += (x - sum) * (x - sum) / 20'000.0;
    return std::sqrt(squares);
  };
  CHECK(deviation({.main_effect = 1.5, .interaction = 0, .dense_effect = 0}) ==
        doctest::Approx(1.5).epsilon(0.05));
  CHECK(deviation({.main_effect = 0, .interaction = 0.7, .dense_effect = 0}) ==
        doctest::Approx(0.7).epsilon(0.05));
  const double dense = deviation({.main_effect = 0, .interaction = 0, .dense_effect = 0.8});
  CHECK(dense > 0.4);
  CHECK(dense < 1.2);
}

TEST_CASE("dense columns have unit size and are unrelated; neighbouring bags share no ids") {
  const Made made =
      make(SyntheticClicks(
               Features{{.rows = 1'000'000'000, .alpha = 0.0, .min_hotness = 3, .max_hotness = 3}}),
           0, 20'000);
  const auto dense = made.batch.dense_view();
  for (std::int64_t a = 0; a < dense.columns; ++a) {
    for (std::int64_t b = 0; b <= a; ++b) {
      double product = 0;
      for (std::int64_t s = 0; s < dense.rows; ++s) product += dense(s, a) * dense(s, b) / 20'000.0;
      CHECK(std::abs(product - (a == b)) < 0.04);
    }
  }
  const std::set<std::int64_t> distinct(made.batch.ids.begin(), made.batch.ids.end());
  CHECK(distinct.size() > made.batch.ids.size() - 20);
}

TEST_CASE("one feature alone: its effect is learned; without it nothing is") {
  const SyntheticClicks clicks(Features{{.rows = 1000}}, {.dense_effect = 0.0});
  const double learned = learned_auc(clicks, 200'000, 50'000, {true});
  CHECK(learned > 0.75);
  CHECK(std::abs(learned_auc(clicks, 200'000, 50'000, {false}) - 0.5) < 0.001);
}

TEST_CASE("six features: each one's loss shows") {
  const SyntheticClicks clicks(std::vector<SyntheticFeature>(6, {.rows = 2000}), {.seed = 3});
  const double all = learned_auc(clicks, 200'000, 50'000, std::vector<bool>(6, true));
  CHECK(all > 0.72);
  for (std::size_t dead = 0; dead < 6; ++dead) {
    std::vector<bool> used(6, true);
    used[dead] = false;
    CHECK(learned_auc(clicks, 200'000, 50'000, used) < all - 0.008);
  }
}

TEST_CASE("options that can't work") {
  CHECK_THROWS_AS(SyntheticClicks(Features{{.rows = 0}}), InvalidArgument);
  CHECK_THROWS_AS(SyntheticClicks(Features{{.min_hotness = 3, .max_hotness = 2}}), InvalidArgument);
  CHECK_THROWS_AS(SyntheticClicks(Features{{.min_hotness = 0, .max_hotness = 0}}), InvalidArgument);
  CHECK_THROWS_AS(SyntheticClicks(Features{}, {.dense_columns = -1}), InvalidArgument);
  ClickBatch<std::int32_t> batch;
  CHECK_THROWS_AS(SyntheticClicks(Features{{.rows = std::int64_t{1} << 32}}).generate(0, 1, batch),
                  InvalidArgument);
  CHECK_THROWS_AS(SyntheticClicks(Features{{}}).generate(-1, 1, batch), InvalidArgument);
  CHECK_THROWS_AS(SyntheticClicks(Features{{}}, {.threads = 0}), InvalidArgument);
  SyntheticClicks(Features{}, {.dense_columns = 0}).generate(0, 3, batch);
  CHECK(batch.size == 3);
  CHECK(batch.ids.empty());
}
