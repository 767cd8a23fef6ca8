// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/random.hpp>
#include <tessera/sequence/softmax_options.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// Made-up rows of a sampled softmax, and the loss by its definition in double.

namespace softmax_reference {

using namespace tessera;

inline float number(std::uint64_t stream, std::int64_t i) {
  return static_cast<float>(random_word(3, stream, i) >> 40) * 0x1p-23f - 1.0f;
}

struct Case {
  std::int64_t n, m, width;
  float scale = 1;
  bool corrected = false;
  std::vector<float> q, p, v, p_log, v_log;
  std::vector<std::int32_t> p_ids, v_ids;
  std::int64_t normalizer = 0;
  std::vector<double> shares{};  ///< of rows, in place of 1 / normalizer

  Case(std::int64_t rows, std::int64_t negatives, std::int64_t columns, bool correct = false)
      : n(rows), m(negatives), width(columns), corrected(correct) {
    const auto fill = [](std::vector<float>& x, std::int64_t count, std::uint64_t stream) {
      for (std::int64_t i = 0; i < count; ++i) x.push_back(number(stream, i));
    };
    fill(q, n * width, 1), fill(p, n * width, 2), fill(v, m * width, 3);
    for (std::int64_t i = 0; i < n; ++i) p_ids.push_back(static_cast<std::int32_t>(i % 7));
    for (std::int64_t j = 0; j < m; ++j) v_ids.push_back(static_cast<std::int32_t>(3 * j % 20));
    if (corrected) fill(p_log, n, 4), fill(v_log, m, 5);
  }

  /// The definition, in double.
  double loss() const { return definition(nullptr); }

  struct Result {
    double loss;
    std::vector<float> dq, dp, dv;
    friend bool operator==(const Result&, const Result&) = default;
  };
  /// The loss and its gradients, by the definition's derivatives in double.
  Result expected() const {
    Result r{0, std::vector<float>(q.size()), std::vector<float>(p.size()),
             std::vector<float>(v.size())};
    r.loss = definition(&r);
    return r;
  }
  /// Views of the vectors at these places, with the ids that are there.
  SampledSoftmaxBatch<std::int32_t> batch(const float* queries, const float* positives,
                                          const float* negatives,
                                          std::span<const std::int32_t> positive_ids,
                                          std::span<const std::int32_t> negative_ids,
                                          std::span<const float> positive_log_q,
                                          std::span<const float> negative_log_q,
                                          std::span<const double> shares_of_rows) const {
    return {{queries, n, width}, {positives, n, width}, {negatives, m, width}, positive_ids,
            negative_ids,        positive_log_q,        negative_log_q,        shares_of_rows};
  }

 private:
  double definition(Result* gradients) const {
    const double alike = n == 0 ? 0 : 1.0 / static_cast<double>(normalizer > 0 ? normalizer : n);
    double sum = 0;
    std::vector<double> weights(static_cast<std::size_t>(m)), dq(q.size()), dp(p.size()),
        dv(v.size());
    for (std::int64_t i = 0; i < n; ++i) {
      const auto product = [&](const std::vector<float>& x, std::int64_t row) {
        double s = 0;
        for (std::int64_t c = 0; c < width; ++c)
          s += static_cast<double>(q[i * width + c]) * x[row * width + c];
        return s * scale;
      };
      const double own = product(p, i) - (corrected ? p_log[i] : 0.0f);
      double all = std::exp(own);
      for (std::int64_t j = 0; j < m; ++j) {
        weights[j] =
            v_ids[j] == p_ids[i] ? 0.0 : std::exp(product(v, j) - (corrected ? v_log[j] : 0.0f));
        all += weights[j];
      }
      const double share = shares.empty() ? alike : shares[i];
      sum += (std::log(all) - own) * share;
      const double factor = share * scale, d_own = factor * (std::exp(own) / all - 1);
      for (std::int64_t c = 0; c < width; ++c) {
        dq[i * width + c] = d_own * p[i * width + c];
        dp[i * width + c] = d_own * q[i * width + c];
        for (std::int64_t j = 0; j < m; ++j) {
          dq[i * width + c] += factor * weights[j] / all * v[j * width + c];
          dv[j * width + c] += factor * weights[j] / all * q[i * width + c];
        }
      }
    }
    if (gradients != nullptr) {
      gradients->dq.assign(dq.begin(), dq.end());
      gradients->dp.assign(dp.begin(), dp.end());
      gradients->dv.assign(dv.begin(), dv.end());
    }
    return sum;
  }
};

}  // namespace softmax_reference
