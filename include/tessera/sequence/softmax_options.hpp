// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 {

class Host;

/// The scale of a SampledSoftmax's products, and what its loss is divided by.
struct SampledSoftmaxOptions {
  float scale = 1;              ///< of the products: 1 / temperature
  std::int64_t normalizer = 0;  ///< that the loss is divided by; 0: the rows given
};

/// What one softmax is taken over: for each of n queries its positive and the m negatives that all
/// share. Views.
template <IdType Id>
struct SampledSoftmaxBatch {
  MatrixView<const float> queries, positives;  ///< [n, width]
  MatrixView<const float> negatives;           ///< [m, width]
  std::span<const Id> positive_ids;            ///< [n]
  std::span<const Id> negative_ids;            ///< [m]
  /// subtracted from the products: log of the probability that a negative is drawn, and log(1 / m)
  /// for positives, which are not. So the sum over the negatives is that over all items in the
  /// mean, and gradients tend to those of the whole softmax as m grows (Bengio and Senecal 2008).
  /// As many as ids, or none.
  std::span<const float> positive_log_q{}, negative_log_q{};
  /// [n]: what each row's loss is multiplied by, in place of dividing by the normalizer; a row of
  /// share 0 counts for nothing if its numbers are finite. None: all count alike.
  std::span<const double> shares{};
};

/// Mean over queries of -log(exp(s+) / (exp(s+) + sum_j exp(s_j))), s = scale q.v - log q. A
/// negative that is a query's positive is left out of that query. With every item once among the
/// negatives this is the whole softmax. In float; sums of the loss in double. sequence/sampled_softmax.hpp
/// has that of Host, sequence/sampled_softmax.cuh that of Cuda.
///
///     SampledSoftmax softmax(host, {.scale = 1, .normalizer = targets});
template <class Backend = Host>
class SampledSoftmax;

template <class Backend>
explicit SampledSoftmax(const Backend&, SampledSoftmaxOptions = {}) -> SampledSoftmax<Backend>;
explicit SampledSoftmax(SampledSoftmaxOptions = {}) -> SampledSoftmax<Host>;

namespace detail {

inline void check_softmax_options(const SampledSoftmaxOptions& options) {
  require(std::isfinite(options.scale) && options.scale > 0,
          "SampledSoftmax: scale is {}; must be positive", options.scale);
  require(options.normalizer >= 0, "SampledSoftmax: normalizer is {}; must not be negative",
          options.normalizer);
}

template <IdType Id>
void check_softmax(const SampledSoftmaxBatch<Id>& batch, MatrixView<float> d_queries,
                   MatrixView<float> d_positives, MatrixView<float> d_negatives) {
  const std::int64_t n = batch.queries.rows, m = batch.negatives.rows,
                     width = batch.queries.columns;
  const auto shape = [&](const char* what, const auto& matrix, std::int64_t rows) {
    require(matrix.rows == rows && (matrix.columns == width || rows == 0),
            "SampledSoftmax: {} are {} x {}, must be {} x {}", what, matrix.rows, matrix.columns,
            rows, width);
    require(matrix.sound(), "SampledSoftmax: {} have no memory, or a stride below their columns",
            what);
  };
  shape("queries", batch.queries, n);
  shape("positives", batch.positives, n);
  shape("negatives", batch.negatives, m);
  shape("gradients of queries", d_queries, n);
  shape("gradients of positives", d_positives, n);
  shape("gradients of negatives", d_negatives, m);
  const auto count = [&](const char* what, std::size_t got, std::int64_t rows, bool may_lack) {
    require(static_cast<std::int64_t>(got) == rows || (may_lack && got == 0),
            "SampledSoftmax: {} {} for {} rows", got, what, rows);
  };
  count("positive ids", batch.positive_ids.size(), n, false);
  count("negative ids", batch.negative_ids.size(), m, false);
  const bool corrected = !batch.positive_log_q.empty() || !batch.negative_log_q.empty();
  count("log probabilities of positives", batch.positive_log_q.size(), n, !corrected);
  count("log probabilities of negatives", batch.negative_log_q.size(), m, !corrected);
  count("shares", batch.shares.size(), n, true);
}

// Fixed, so that sums do not depend on threads: rows of logits that are in memory at a time.
inline constexpr std::int64_t softmax_block_rows = 4096;

}  // namespace detail

}}  // namespace tessera::v0
