// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The loss against its definition in double, gradients against the definition's differences.
#include <tessera/sequence/sampled_softmax.hpp>

#include <doctest/doctest.h>
#include <support/softmax_reference.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

using namespace tessera;

struct Case : softmax_reference::Case {
  using softmax_reference::Case::Case;

  Result run(int threads = 1) const {
    Result r{0, std::vector<float>(q.size(), 9.0f), std::vector<float>(p.size(), 9.0f),
             std::vector<float>(v.size(), 9.0f)};
    SampledSoftmax softmax(Host({.threads = threads}), {.scale = scale, .normalizer = normalizer});
    r.loss = softmax.forward_backward(
        batch(q.data(), p.data(), v.data(), p_ids, v_ids, p_log, v_log, shares),
        {r.dq.data(), n, width}, {r.dp.data(), n, width}, {r.dv.data(), m, width});
    return r;
  }
};

}  // namespace

TEST_CASE("loss and gradients, with and without the correction, accidental hits left out") {
  for (const bool corrected : {false, true}) {
    Case test(9, 12, 5, corrected);
    test.scale = 1.7f;
    test.normalizer = 11;
    if (corrected) test.shares = {0.5, 0, 0.01, 2, 0.3, 0, 0.1, 0.1, 0.2};
    const Case::Result result = test.run();
    CHECK(result.loss == doctest::Approx(test.loss()).epsilon(1e-6));
    const auto check = [&](std::vector<float>& x, const std::vector<float>& gradient) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float before = x[i], up = before + 0x1p-9f, down = before - 0x1p-9f;
        x[i] = up;
        const double high = test.loss();
        x[i] = down;
        const double low = test.loss();
        x[i] = before;
        CHECK(gradient[i] == doctest::Approx((high - low) / (double{up} - down)).epsilon(1e-4));
      }
    };
    check(test.q, result.dq);
    check(test.p, result.dp);
    check(test.v, result.dv);
    const Case::Result expected = test.expected();  // what the GPU's kernels are compared with
    for (std::size_t i = 0; i < expected.dv.size(); ++i)
      CHECK(result.dv[i] == doctest::Approx(expected.dv[i]).epsilon(1e-5));
    for (std::size_t i = 0; i < expected.dq.size(); ++i)
      CHECK(result.dq[i] == doctest::Approx(expected.dq[i]).epsilon(1e-5));
  }
}

TEST_CASE("more rows than a block and more negatives than a slice; the same bits by any threads") {
  const Case large(4'200, 3, 2), wide(150, 130, 3, true);
  for (const Case* test : {&large, &wide}) {
    const Case::Result one = test->run(1);
    CHECK(one.loss == doctest::Approx(test->loss()).epsilon(1e-6));
    CHECK(one == test->run(3));
    CHECK(one == test->run(1));
  }
  // all rows push the negatives: of a sum over rows in two blocks
  Case last = large;
  last.q.erase(last.q.begin(), last.q.begin() + 4'096 * 2);
  last.p.erase(last.p.begin(), last.p.begin() + 4'096 * 2);
  last.p_ids.erase(last.p_ids.begin(), last.p_ids.begin() + 4'096);
  last.n = 104, last.normalizer = 4'200;
  Case first = large;
  first.q.resize(4'096 * 2), first.p.resize(4'096 * 2), first.p_ids.resize(4'096);
  first.n = 4'096, first.normalizer = 4'200;
  const auto whole = large.run(), a = first.run(), b = last.run();
  for (std::size_t i = 0; i < whole.dv.size(); ++i)
    CHECK(whole.dv[i] == doctest::Approx(a.dv[i] + b.dv[i]).epsilon(1e-5));
}

TEST_CASE("no rows, no negatives, negatives that are all hits, logits beyond any exponent") {
  CHECK(Case(0, 4, 3).run().loss == 0);
  CHECK(Case(0, 4, 3).run().dv == std::vector<float>(12, 0.0f));
  const Case::Result alone = Case(3, 0, 2).run();
  CHECK(alone.loss == 0);
  CHECK(alone.dq == std::vector<float>(6, 0.0f));
  Case hits(2, 2, 2);
  hits.p_ids = {4, 4}, hits.v_ids = {4, 4};
  CHECK(hits.run().loss == 0);
  CHECK(hits.run().dv == std::vector<float>(4, 0.0f));
  Case far(5, 6, 3);
  far.scale = 1e4f;
  const Case::Result result = far.run();
  CHECK(std::isfinite(result.loss));
  for (const float g : result.dq) CHECK(std::isfinite(g));
  far.q[4] = NAN;
  CHECK(std::isnan(far.run().loss));
}

TEST_CASE("shapes that do not fit are named") {
  SampledSoftmax softmax;
  std::vector<float> x(12);
  const std::vector<std::int32_t> two{1, 2}, three{1, 2, 3};
  const MatrixView<float> m23(x.data(), 2, 3), m33(x.data(), 3, 3), m22(x.data(), 2, 2);
  using B = SampledSoftmaxBatch<std::int32_t>;
  CHECK_NOTHROW(softmax.forward_backward(B{m23, m23, m33, two, three}, m23, m23, m33));
  CHECK_THROWS_AS(softmax.forward_backward(B{m23, m33, m33, two, three}, m23, m23, m33),
                  InvalidArgument);
  CHECK_THROWS_AS(softmax.forward_backward(B{m23, m23, m22, two, two}, m23, m23, m22),
                  InvalidArgument);
  CHECK_THROWS_AS(softmax.forward_backward(B{m23, m23, m33, three, three}, m23, m23, m33),
                  InvalidArgument);
  CHECK_THROWS_AS(softmax.forward_backward(B{m23, m23, m33, two, two}, m23, m23, m33),
                  InvalidArgument);
  CHECK_THROWS_AS(softmax.forward_backward(B{m23, m23, m33, two, three}, m23, m23, m23),
                  InvalidArgument);
  CHECK_THROWS_AS(
      softmax.forward_backward(B{m23, m23, m33, two, three, std::span(x).first(2)}, m23, m23, m33),
      InvalidArgument);
  CHECK_THROWS_AS(SampledSoftmax({.scale = 0}), InvalidArgument);
  CHECK_THROWS_AS(SampledSoftmax({.scale = NAN}), InvalidArgument);
  CHECK_THROWS_AS(SampledSoftmax({.normalizer = -1}), InvalidArgument);
  const auto loss = [&] {
    return softmax.forward_backward(B{m23, m23, m33, two, three}, m23, m23, m33);
  };
  const std::vector<float> same = x;
  const double before = loss();
  CHECK_THROWS_AS(softmax.set_normalizer(-1), InvalidArgument);
  x = same;
  CHECK(loss() == before);
}
