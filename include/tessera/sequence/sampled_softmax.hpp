// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/matmul.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/sequence/hstu_attention.hpp>
#include <tessera/sequence/sigmoid.hpp>
#include <tessera/sequence/softmax_options.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {

/// The loss on the host. Results do not depend on the backend's threads.
template <>
class SampledSoftmax<Host> {
 public:
  /// Makes the loss. Throws InvalidArgument for a scale that is not positive.
  explicit SampledSoftmax(const Host& backend, SampledSoftmaxOptions options = {})
      : threads_(backend.threads()), options_(options) {
    detail::check_softmax_options(options);
  }
  explicit SampledSoftmax(SampledSoftmaxOptions options = {}) : SampledSoftmax(Host(), options) {}

  /// Sets what the loss is divided by from now on; 0: the rows given.
  void set_normalizer(std::int64_t normalizer) {
    SampledSoftmaxOptions options = options_;
    options.normalizer = normalizer;
    detail::check_softmax_options(options);
    options_ = options;
  }

  /// Returns the loss of these rows, divided by `normalizer`: its share, on one of several ranks.
  /// The gradients, of the shapes of the vectors, are overwritten. Throws InvalidArgument for
  /// shapes that do not fit.
  template <IdType Id>
  double forward_backward(const SampledSoftmaxBatch<Id>& batch, MatrixView<float> d_queries,
                          MatrixView<float> d_positives, MatrixView<float> d_negatives) {
    detail::check_softmax(batch, d_queries, d_positives, d_negatives);
    const std::int64_t n = batch.queries.rows, m = batch.negatives.rows,
                       width = batch.queries.columns;
    for (std::int64_t j = 0; j < m; ++j) std::fill_n(d_negatives.row(j), width, 0.0f);
    if (n == 0) return 0;
    const double share = !batch.shares.empty()     ? 1.0
                         : options_.normalizer > 0 ? 1.0 / static_cast<double>(options_.normalizer)
                                                   : 1.0 / static_cast<double>(n);
    const int workers = threads_;
    logits_.resize(
        static_cast<std::size_t>(std::min(n, block_rows) * std::max<std::int64_t>(m, 1)));
    losses_.assign(static_cast<std::size_t>((n + chunk_rows - 1) / chunk_rows), 0.0);
    for (std::int64_t begin = 0; begin < n; begin += block_rows) {
      const std::int64_t end = std::min(n, begin + block_rows);
      detail::for_each_worker(workers, [&](int worker) {
        for (std::int64_t first = begin + worker * chunk_rows; first < end;
             first += workers * chunk_rows)
          losses_[static_cast<std::size_t>(first / chunk_rows)] =
              chunk(batch, first, std::min(chunk_rows, end - first), begin, share, d_queries,
                    d_positives);
      });
      // logits are their gradients by now; a slice of negatives is one sum over the block's rows
      detail::for_each_worker(workers, [&](int worker) {
        for (std::int64_t j = worker * slice; j < m; j += workers * slice)
          detail::gemm(true, false, std::min(slice, m - j), width, end - begin, options_.scale,
                       logits_.data() + j, m, batch.queries.row(begin), batch.queries.stride, 1,
                       d_negatives.row(j), d_negatives.stride);
      });
    }
    double loss = 0;
    for (const double of_chunk : losses_) loss += of_chunk;
    return loss * share;
  }
  /// Does the same, and adds the loss to `loss`: as every backend does.
  template <IdType Id>
  void forward_backward(const SampledSoftmaxBatch<Id>& batch, MatrixView<float> d_queries,
                        MatrixView<float> d_positives, MatrixView<float> d_negatives,
                        double* loss) {
    *loss += forward_backward(batch, d_queries, d_positives, d_negatives);
  }

 private:
  // fixed, so that sums do not depend on threads
  static constexpr std::int64_t chunk_rows = 64, block_rows = detail::softmax_block_rows,
                                slice = 64;

  /// Computes rows [first, first + count): logits, their softmax, the gradients but those of
  /// negatives. Returns the sum of the losses.
  template <IdType Id>
  double chunk(const SampledSoftmaxBatch<Id>& batch, std::int64_t first, std::int64_t count,
               std::int64_t block, double share, MatrixView<float> d_queries,
               MatrixView<float> d_positives) {
    const std::int64_t m = batch.negatives.rows, width = batch.queries.columns;
    float* const logits = logits_.data() + (first - block) * m;
    detail::gemm(false, true, count, m, width, options_.scale, batch.queries.row(first),
                 batch.queries.stride, batch.negatives.data, batch.negatives.stride, 0, logits, m);
    double loss = 0;
    std::vector<float> d_own(static_cast<std::size_t>(count));
    for (std::int64_t r = 0; r < count; ++r) {
      const auto i = static_cast<std::size_t>(first + r);
      float* const row = logits + r * m;
      const float *const q = batch.queries.row(first + r), *const p =
                                                               batch.positives.row(first + r);
      float own = 0;
      for (std::int64_t c = 0; c < width; ++c) own += q[c] * p[c];
      own *= options_.scale;
      if (!batch.positive_log_q.empty()) own -= batch.positive_log_q[i];
      if (!batch.negative_log_q.empty())
        for (std::int64_t j = 0; j < m; ++j)
          row[j] -= batch.negative_log_q[static_cast<std::size_t>(j)];
      for (std::int64_t j = 0; j < m; ++j)
        if (batch.negative_ids[static_cast<std::size_t>(j)] == batch.positive_ids[i])
          row[j] = -std::numeric_limits<float>::infinity();
      float top = own;
      for (std::int64_t j = 0; j < m; ++j) top = row[j] > top ? row[j] : top;
      // NaN goes through, so that the loss shows it
      const auto weight = [top](float logit) {
        const float below = logit - top;
        return below < -87.0f ? 0.0f : detail::exp_near(below);
      };
      double sum = 0;
      for (std::int64_t j = 0; j < m; j += 64) {  // floats' sums of a few at a time
        float part = 0;
        for (std::int64_t k = j; k < std::min(m, j + 64); ++k) part += row[k] = weight(row[k]);
        sum += part;
      }
      const float own_weight = weight(own);
      sum += own_weight;
      const double own_loss = std::log(sum) + static_cast<double>(top) - static_cast<double>(own),
                   of_row = batch.shares.empty() ? share : batch.shares[i];
      loss += batch.shares.empty() ? own_loss : own_loss * of_row;
      const float factor = static_cast<float>(of_row / sum);
      for (std::int64_t j = 0; j < m; ++j) row[j] *= factor;
      // of the softmax's own share the negatives' sum: exact where it is near 1
      d_own[static_cast<std::size_t>(r)] = static_cast<float>(-of_row * ((sum - own_weight) / sum));
    }
    if (m > 0)
      detail::gemm(false, false, count, width, m, options_.scale, logits, m, batch.negatives.data,
                   batch.negatives.stride, 0, d_queries.row(first), d_queries.stride);
    for (std::int64_t r = 0; r < count; ++r) {
      const float d = options_.scale * d_own[static_cast<std::size_t>(r)];
      const float *const q = batch.queries.row(first + r), *const p =
                                                               batch.positives.row(first + r);
      float *const dq = d_queries.row(first + r), *const dp = d_positives.row(first + r);
      if (m == 0) std::fill_n(dq, width, 0.0f);
      for (std::int64_t c = 0; c < width; ++c) {
        dq[c] += d * p[c];
        dp[c] = d * q[c];
      }
    }
    return loss;
  }

  int threads_;
  SampledSoftmaxOptions options_;
  std::vector<float> logits_;
  std::vector<double> losses_;
};

}}  // namespace tessera::v0
