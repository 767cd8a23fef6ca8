// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/dense_kernels.cuh>
#include <tessera/dense/gemm.cuh>
#include <tessera/sequence/softmax_options.hpp>
#include <tessera/tables/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 {

namespace gpu::detail {

inline constexpr int softmax_threads = 128;  ///< of a row

/// What a row of the softmax reads and writes. log_q: null if nothing is corrected.
template <IdType Id>
struct SoftmaxRows {
  MatrixView<const float> queries, positives;
  const Id *positive_ids, *negative_ids;
  const float *positive_log_q, *negative_log_q;
  std::int64_t negatives;
  float scale;
  const double* shares;  ///< of rows; null: `share`, of each
  double share;
  float* products;  ///< [rows, negatives]: queries times negatives; become their gradients
  float* d_own;     ///< [rows]: gradients of the queries' products with their positives
  double* losses;   ///< [rows]
};

/// Returns the sum, or if `Most` the largest, of the values of the block's threads, for all of
/// them; in a fixed order.
template <bool Most>
__device__ double of_block(double value) {
  auto& values = block_shared<double[softmax_threads]>();
  values[threadIdx.x] = value;
  __syncthreads();
  for (int half = softmax_threads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      double& mine = values[threadIdx.x];
      const double other = values[threadIdx.x + half];
      mine = Most ? (other > mine ? other : mine) : mine + other;
    }
    __syncthreads();
  }
  const double result = values[0];
  __syncthreads();  // before the next call writes
  return result;
}

/// Makes the gradients of a row's products from the products: a block per row.
template <IdType Id>
__global__ void __launch_bounds__(softmax_threads) softmax_rows(const SoftmaxRows<Id> p) {
  const std::int64_t row = blockIdx.x;
  const auto thread = static_cast<std::int64_t>(threadIdx.x);
  float* const products = p.products + row * p.negatives;
  float part = 0;
  for (std::int64_t c = thread; c < p.queries.columns; c += softmax_threads)
    part += p.queries(row, c) * p.positives(row, c);
  float own = p.scale * static_cast<float>(of_block<false>(part));
  if (p.positive_log_q != nullptr) own -= p.positive_log_q[row];

  const Id right = p.positive_ids[row];
  const float none = __uint_as_float(0xff800000u);  // minus infinity
  float most = none;
  for (std::int64_t j = thread; j < p.negatives; j += softmax_threads) {
    float logit = p.scale * products[j];
    if (p.negative_log_q != nullptr) logit -= p.negative_log_q[j];
    if (p.negative_ids[j] == right) logit = none;
    products[j] = logit;
    most = logit > most ? logit : most;
  }
  most = static_cast<float>(of_block<true>(most));
  most = own >= most ? own : most;
  // NaN goes through, so that the loss shows it.
  const auto weight = [most](float logit) {
    const float below = logit - most;
    return below < -87.0f ? 0.0f : expf(below);
  };
  double sum = 0;
  for (std::int64_t j = thread; j < p.negatives; j += softmax_threads) {
    products[j] = weight(products[j]);
    sum += static_cast<double>(products[j]);
  }
  const float own_weight = weight(own);
  const double of_negatives = of_block<false>(sum), all = of_negatives + own_weight;
  const double share = p.shares == nullptr ? p.share : p.shares[row];
  const float factor = p.scale * static_cast<float>(share / all);
  for (std::int64_t j = thread; j < p.negatives; j += softmax_threads) products[j] *= factor;
  if (thread != 0) return;
  const double loss = log(all) + static_cast<double>(most) - static_cast<double>(own);
  p.losses[row] = p.shares == nullptr ? loss : loss * share;
  p.d_own[row] = p.scale * static_cast<float>(-share * (of_negatives / all));
}

/// Adds what the positives give to the gradients of queries (writes it if there are no
/// negatives), and writes those of the positives: a thread per element.
template <int = 0>
__global__ void __launch_bounds__(softmax_threads)
    add_positives(const MatrixView<const float> queries, const MatrixView<const float> positives,
                  const float* d_own, const bool adds, const MatrixView<float> d_queries,
                  const MatrixView<float> d_positives) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * softmax_threads + threadIdx.x,
                     row = i / queries.columns, c = i % queries.columns;
  if (row >= queries.rows) return;
  const float d = d_own[row], before = adds ? d_queries(row, c) : 0.0f;
  d_queries(row, c) = before + d * positives(row, c);
  d_positives(row, c) = d * queries(row, c);
}

}  // namespace gpu::detail

/// The loss on a GPU: vectors, ids, probabilities and the loss are in device memory, and nothing
/// waits for them. Sums are always added in the same order: the same bits in every run.
template <>
class SampledSoftmax<Cuda> {
 public:
  /// Makes the loss. Throws InvalidArgument for a scale that is not positive.
  explicit SampledSoftmax(const Cuda& backend, SampledSoftmaxOptions options = {})
      : backend_(backend), gemm_(backend), options_(options) {
    detail::check_softmax_options(options);
  }

  /// Sets what the loss is divided by from now on; 0: the rows given.
  void set_normalizer(std::int64_t normalizer) {
    SampledSoftmaxOptions options = options_;
    options.normalizer = normalizer;
    detail::check_softmax_options(options);
    options_ = options;
  }

  /// Adds the loss of these rows, divided by `normalizer`, to `loss`: its share, on one of several
  /// ranks. The gradients, of the shapes of the vectors, are overwritten. Throws InvalidArgument for
  /// shapes that do not fit.
  template <IdType Id>
  void forward_backward(const SampledSoftmaxBatch<Id>& batch, MatrixView<float> d_queries,
                        MatrixView<float> d_positives, MatrixView<float> d_negatives,
                        double* loss) {
    detail::check_softmax(batch, d_queries, d_positives, d_negatives);
    const std::int64_t n = batch.queries.rows, m = batch.negatives.rows,
                       width = batch.queries.columns;
    if (n == 0) {
      for (std::int64_t j = 0; j < m; ++j)
        backend_.fill_zero(d_negatives.row(j),
                           static_cast<std::size_t>(d_negatives.columns) * sizeof(float));
      return;
    }
    const bool shared = !batch.shares.empty();
    const double share =
        shared ? 1.0 : 1.0 / static_cast<double>(options_.normalizer > 0 ? options_.normalizer : n);
    const std::int64_t most = std::min(n, detail::softmax_block_rows);
    products_.resize(backend_, static_cast<std::size_t>(most * m));
    d_own_.resize(backend_, static_cast<std::size_t>(most));
    losses_.resize(backend_, static_cast<std::size_t>(most));
    for (std::int64_t first = 0; first < n; first += most) {
      const std::int64_t count = std::min(most, n - first);
      const auto rows = [&](const auto& matrix) { return matrix.row_range(first, count); };
      const MatrixView<const float> queries = rows(batch.queries),
                                    positives = rows(batch.positives);
      gemm_.run({.rows = count,
                 .columns = m,
                 .inner = width,
                 .a_stride = queries.stride,
                 .b_stride = batch.negatives.stride,
                 .c_stride = m,
                 .b_transposed = true},
                queries.data, batch.negatives.data, nullptr, products_.data());
      const auto behind = [&](const float* log_q) {
        return log_q == nullptr ? log_q : log_q + first;
      };
      backend_.launch(
          "softmax_rows", count, gpu::detail::softmax_threads, gpu::detail::softmax_rows<Id>,
          gpu::detail::SoftmaxRows<Id>{.queries = queries,
                                       .positives = positives,
                                       .positive_ids = batch.positive_ids.data() + first,
                                       .negative_ids = batch.negative_ids.data(),
                                       .positive_log_q = behind(log_q_of(batch.positive_log_q)),
                                       .negative_log_q = log_q_of(batch.negative_log_q),
                                       .negatives = m,
                                       .scale = options_.scale,
                                       .shares = shared ? batch.shares.data() + first : nullptr,
                                       .share = share,
                                       .products = products_.data(),
                                       .d_own = d_own_.data(),
                                       .losses = losses_.data()});
      backend_.launch("add_losses", 1, gpu::dense_threads, gpu::add_losses<>,
                      static_cast<const double*>(losses_.data()), static_cast<int>(count), share,
                      loss);
      if (m > 0)
        gemm_.run({.rows = count,
                   .columns = width,
                   .inner = m,
                   .a_stride = m,
                   .b_stride = batch.negatives.stride,
                   .c_stride = d_queries.stride},
                  static_cast<const float*>(products_.data()), batch.negatives.data, nullptr,
                  d_queries.row(first));
      gemm_.run({.rows = m,
                 .columns = width,
                 .inner = count,
                 .a_stride = m,
                 .b_stride = queries.stride,
                 .c_stride = d_negatives.stride,
                 .a_transposed = true,
                 .addend_stride = first > 0 ? d_negatives.stride : 0},
                static_cast<const float*>(products_.data()), queries.data, nullptr,
                d_negatives.data);
      backend_.launch(
          "add_positives", gpu::ceil_divide(count * width, gpu::detail::softmax_threads),
          gpu::detail::softmax_threads, gpu::detail::add_positives<>, queries, positives,
          static_cast<const float*>(d_own_.data()), m > 0, rows(d_queries), rows(d_positives));
    }
  }

 private:
  static const float* log_q_of(std::span<const float> all) {
    return all.empty() ? nullptr : all.data();
  }

  Cuda backend_;
  gpu::Gemm gemm_;
  SampledSoftmaxOptions options_;
  Buffer<float, Cuda> products_, d_own_;
  Buffer<double, Cuda> losses_;
};

}}  // namespace tessera::v0
