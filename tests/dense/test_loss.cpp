// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/dense/loss.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/random_matrix.hpp"

using namespace tessera;
using test::Matrix;

TEST_CASE("loss and gradient by their definition") {
  Matrix<float> logits(50, 1, 2, 1), gradient(50, 1, 1);
  std::vector<float> labels;
  for (std::int64_t i = 0; i < 50; ++i) {
    logits(i, 0) *= 8.0f;
    labels.push_back(i % 5 == 4 ? 0.25f : static_cast<float>(i % 2));
  }
  const double loss =
      BinaryCrossEntropyWithLogits{}.forward_backward(logits.view(), labels, gradient.view());
  double expected = 0.0;
  for (std::int64_t i = 0; i < 50; ++i) {
    const double p = 1.0 / (1.0 + std::exp(-static_cast<double>(logits(i, 0)))),
                 y = labels[static_cast<std::size_t>(i)];
    expected -= (y * std::log(p) + (1.0 - y) * std::log(1.0 - p)) / 50.0;
    CHECK(gradient(i, 0) == doctest::Approx((p - y) / 50.0).epsilon(1e-5));
  }
  CHECK(loss == doctest::Approx(expected).epsilon(1e-9));
  CHECK(BinaryCrossEntropyWithLogits{}.forward(logits.view(), labels) == loss);
  CHECK(gradient.margin_untouched());
}

TEST_CASE("rows of shares: a part of share 0 counts for nothing") {
  const Matrix<float> logits(5, 1, 0, 4);
  Matrix<float> gradient(5, 1, 0), alone(3, 1, 0);
  const std::vector<float> labels{1, 0, 1, 0, 1};
  const std::vector<double> shares{0.125, 0.125, 0.125, 0, 0};
  const double loss = BinaryCrossEntropyWithLogits{.shares = shares}.forward_backward(
                   logits.view(), labels, gradient.view()),
               expected = BinaryCrossEntropyWithLogits{.normalizer = 8}.forward_backward(
                   logits.view().row_range(0, 3), std::span(labels).first(3), alone.view());
  CHECK(loss == expected);  // eighths are exact
  for (std::int64_t i = 0; i < 5; ++i) CHECK(gradient(i, 0) == (i < 3 ? alone(i, 0) : 0.0f));
  Matrix<float> padded(5, 1, 0);
  for (std::int64_t i = 0; i < 5; ++i) padded(i, 0) = i < 3 ? logits(i, 0) : NAN;
  const std::vector<float> none{1, 0, 1, -1, NAN};
  CHECK(BinaryCrossEntropyWithLogits{.shares = shares}.forward_backward(
            padded.view(), none, gradient.view()) == expected);
  for (std::int64_t i = 0; i < 5; ++i) CHECK(gradient(i, 0) == (i < 3 ? alone(i, 0) : 0.0f));
  CHECK_THROWS_WITH_AS((BinaryCrossEntropyWithLogits{.shares = std::span(shares).first(4)}.forward(
                           logits.view(), labels)),
                       "BinaryCrossEntropyWithLogits: 4 shares for 5 logits", InvalidArgument);
}

TEST_CASE("no overflow at any logit") {
  const float huge = std::numeric_limits<float>::max();
  Matrix<float> logits(4, 1, 0), gradient(4, 1, 0);
  logits(0, 0) = huge, logits(1, 0) = -huge, logits(2, 0) = 100.0f, logits(3, 0) = -100.0f;
  const std::vector<float> right{1, 0, 1, 0}, wrong{1, 0, 0, 1};
  CHECK(BinaryCrossEntropyWithLogits{}.forward_backward(logits.view(), right, gradient.view()) <
        1e-40);
  for (std::int64_t i = 0; i < 4; ++i) CHECK(std::abs(gradient(i, 0)) < 1e-40);
  CHECK(BinaryCrossEntropyWithLogits{}.forward_backward(logits.view(), wrong, gradient.view()) ==
        doctest::Approx(50.0));
  CHECK(gradient(2, 0) == doctest::Approx(0.25));
  CHECK(gradient(3, 0) == doctest::Approx(-0.25));
}

TEST_CASE("parts of a global batch add up to it") {
  const Matrix<float> logits(10, 1, 0, 3);
  const std::vector<float> labels{0, 1, 0, 0, 1, 1, 0, 1, 0, 1};
  const double whole = BinaryCrossEntropyWithLogits{}.forward(logits.view(), labels);
  const BinaryCrossEntropyWithLogits part{.normalizer = 10};
  const std::span<const float> all(labels);
  const double sum = part.forward(logits.view().row_range(0, 3), all.first(3)) +
                     part.forward(logits.view().row_range(3, 7), all.last(7)) +
                     part.forward(logits.view().row_range(0, 0), {});
  CHECK(sum == doctest::Approx(whole).epsilon(1e-12));
}

TEST_CASE("views of the wrong shape; labels that are none") {
  const Matrix<float> logits(3, 1, 0, 1), wide(3, 2, 0, 1);
  Matrix<float> gradient(2, 1, 0);
  const std::vector<float> labels(3), few(2);
  CHECK_THROWS_WITH_AS(BinaryCrossEntropyWithLogits{}.forward(wide.view(), labels),
                       "BinaryCrossEntropyWithLogits: logits have 2 columns, need 1",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(BinaryCrossEntropyWithLogits{-1}.forward(logits.view(), labels),
                       "BinaryCrossEntropyWithLogits: normalizer is -1; give the global batch, or "
                       "0 for the rows given",
                       InvalidArgument);
  for (const float label : {-0.5f, 2.0f, std::numeric_limits<float>::quiet_NaN()})
    CHECK_THROWS_WITH_AS(
        BinaryCrossEntropyWithLogits{}.forward(logits.view(), std::vector<float>{0, 1, label}),
        doctest::Contains("the label of sample 2 is "), InvalidArgument);
  CHECK_THROWS_WITH_AS(BinaryCrossEntropyWithLogits{}.forward(logits.view(), few),
                       "BinaryCrossEntropyWithLogits: 2 labels for 3 logits", InvalidArgument);
  CHECK_THROWS_WITH_AS(
      BinaryCrossEntropyWithLogits{}.forward_backward(logits.view(), labels, gradient.view()),
      "BinaryCrossEntropyWithLogits: gradient is 2 x 1, needs 3 x 1", InvalidArgument);
  CHECK_THROWS_WITH_AS(
      BinaryCrossEntropyWithLogits{}.forward({nullptr, 3, 1}, labels),
      "BinaryCrossEntropyWithLogits: logits have no memory, or a stride below their columns",
      InvalidArgument);
  CHECK_THROWS_WITH_AS(
      BinaryCrossEntropyWithLogits{}.forward_backward(logits.view(), labels, {nullptr, 3, 1}),
      "BinaryCrossEntropyWithLogits: gradient has no memory, or a stride below its columns",
      InvalidArgument);
}
