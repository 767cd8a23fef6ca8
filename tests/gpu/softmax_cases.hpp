// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sequence/sampled_softmax.cuh>

#include <doctest/doctest.h>
#include <gpu/device.hpp>
#include <support/softmax_reference.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// The sampled softmax on a GPU against its definition and the definition's derivatives in double.

namespace softmax_cases {

using namespace tessera;
using softmax_reference::Case;

inline Case::Result on_gpu(const Case& c) {
  const Cuda backend;
  const auto as_large = [&](const std::vector<float>& x) {
    return std::vector<float>(x.size(), 9);
  };
  const OnGpu<float> q(backend, c.q), p(backend, c.p), v(backend, c.v), p_log(backend, c.p_log),
      v_log(backend, c.v_log), dq(backend, as_large(c.q)), dp(backend, as_large(c.p)),
      dv(backend, as_large(c.v));
  const OnGpu<std::int32_t> p_ids(backend, c.p_ids), v_ids(backend, c.v_ids);
  const OnGpu<double> shares(backend, c.shares), loss(backend, {1.0});  // the loss is added
  SampledSoftmax softmax(backend, {.scale = c.scale, .normalizer = 1});
  softmax.set_normalizer(c.normalizer);
  softmax.forward_backward(
      c.batch(q.data(), p.data(), v.data(), {p_ids.data(), c.p_ids.size()},
              {v_ids.data(), c.v_ids.size()}, {p_log.data(), c.p_log.size()},
              {v_log.data(), c.v_log.size()}, {shares.data(), c.shares.size()}),
      {dq.data(), c.n, c.width}, {dp.data(), c.n, c.width}, {dv.data(), c.m, c.width}, loss.data());
  return {loss.read()[0] - 1, dq.read(), dp.read(), dv.read()};
}

inline void check(const Case& c) {
  const Case::Result expected = c.expected(), found = on_gpu(c);
  CHECK(std::abs(found.loss - expected.loss) <= 1e-6 * (1 + std::abs(expected.loss)));
  const auto near = [](const std::vector<float>& x, const std::vector<float>& y) {
    REQUIRE(x.size() == y.size());
    float largest = 0, worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(y[i]));
      worst = std::max(worst, std::abs(x[i] - y[i]));
    }
    CHECK(worst <= 2e-6f * largest);
  };
  near(found.dq, expected.dq);
  near(found.dp, expected.dp);
  near(found.dv, expected.dv);
  CHECK(on_gpu(c) == found);
}

}  // namespace softmax_cases

TEST_CASE(
    "sampled softmax: the definition's loss and gradients, corrected or not, hits left out; the "
    "same "
    "bits again") {
  in_every_order([] {
    for (const bool corrected : {false, true}) {
      softmax_cases::Case some(9, 12, 5, corrected);
      some.scale = 1.7f, some.normalizer = 11;
      if (corrected) some.shares = {0.5, 0, 0.01, 2, 0.3, 0, 0.1, 0.1, 0.2};
      softmax_cases::check(some);
    }
    softmax_cases::check({3, 300, 2, true});  // more negatives than a block has threads
    softmax_cases::check({4, 1, 3});
  });
  // more rows than are in memory at a time: the negatives' gradients are added
  if (!slow_run) softmax_cases::check({4'200, 3, 2});
}

TEST_CASE("sampled softmax: no rows, no negatives, all of them hits, logits beyond any exponent") {
  using softmax_cases::Case, softmax_cases::on_gpu;
  const Case::Result none = on_gpu({0, 4, 3});
  CHECK(none.loss == 0);
  CHECK(none.dv == std::vector<float>(12, 0.0f));
  const Case::Result alone = on_gpu({3, 0, 2});
  CHECK(alone.loss == 0);
  CHECK(alone.dq == std::vector<float>(6, 0.0f));
  CHECK(alone.dp == std::vector<float>(6, 0.0f));
  Case hits(2, 2, 2);
  hits.p_ids = {4, 4}, hits.v_ids = {4, 4};
  CHECK(on_gpu(hits).loss == 0);
  CHECK(on_gpu(hits).dv == std::vector<float>(4, 0.0f));
  Case far(5, 6, 3);
  far.scale = 1e4f;
  const Case::Result result = on_gpu(far);
  CHECK(std::isfinite(result.loss));
  for (const float g : result.dq) CHECK(std::isfinite(g));
  far.q[4] = NAN;
  CHECK(std::isnan(on_gpu(far).loss));
  far = Case(5, 6, 3);
  far.p[4] = NAN;
  CHECK(std::isnan(on_gpu(far).loss));
  softmax_cases::Case wrong(2, 3, 2);
  wrong.v_ids.pop_back();
  CHECK_THROWS_WITH_AS(on_gpu(wrong), "SampledSoftmax: 2 negative ids for 3 rows",
                       tessera::InvalidArgument);
}
