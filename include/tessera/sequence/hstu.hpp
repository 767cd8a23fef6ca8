// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/sequence_batch.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/sequence/hstu_attention.hpp>
#include <tessera/sequence/hstu_parameters.hpp>
#include <tessera/sequence/layer_norm.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {

/// One HSTU block (Zhai et al. 2024, "Actions Speak Louder than Words"), as
/// generative-recommenders computes it, without dropout, relative bias or group norm:
///
///   U, V, Q, K = silu(LN(x) W_uvqk^T + b)            heads side by side
///   attention  = silu(alpha Q K^T) / max_length V    of positions that the mask allows
///   y          = x + (U * LN(attention)) W_out^T     or [U, attention, U * LN(attention)]
///
/// Parameters in this order: norm weight and bias [width], uvqk weight [2 Heads (HiddenDim +
/// AttentionDim), width] and bias, output norm weight and bias [Heads HiddenDim], output weight
/// [width, Heads HiddenDim, or 3 times that with concat_ux]. On the host, in float.
class AnyHstuLayer : public detail::AnyHstuParameters {
 public:
  /// Makes a layer. `width`: of x and y. Results do not depend on the backend's threads. Throws
  /// InvalidArgument for sizes that are not positive.
  AnyHstuLayer(const Host& backend, detail::HstuHeads heads, std::int64_t width,
               HstuOptions options)
      : detail::AnyHstuParameters(heads, width, options), threads_(backend.threads()) {}

  /// Sets first values: norms 1 and 0, matrices Glorot normal, biases 0; from (seed, layer number,
  /// index). Returns the number of the next layer.
  int initialize(std::uint64_t seed, int first_layer) {
    require_bound();
    first_values(values_, seed, first_layer);
    return first_layer + 2;
  }

  /// Computes y from x, both [positions, width]; they stay unchanged in their place until backward.
  /// Throws InvalidArgument for shapes that do not fit, a sequence longer than max_length, or more
  /// targets than positions; y is then as before.
  void forward(MatrixView<const float> x, const SequenceBatch& batch, MatrixView<float> y) {
    check_forward(x, y);
    check_sequences("HstuLayer", batch, x.rows, options_.max_length);
    x_ = x;
    offsets_.assign(batch.offsets.begin(), batch.offsets.end());
    targets_.assign(batch.targets.begin(), batch.targets.end());
    const std::int64_t rows = x.rows;
    resize(rows);
    if (!weights_kept_ || !weights_ready_) {
      detail::transpose(value(uvqk_offset()), uvqk_columns, width_, uvqk_weight_.data());
      detail::transpose(value(output_offset()), width_, gated_width(), output_weight_.data());
      weights_ready_ = true;
    }
    each_chunk(rows, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t r = first; r < first + count; ++r) {
        moments_[static_cast<std::size_t>(r)] =
            detail::layer_norm(x.row(r), value(0), value(width_), options_.norm_epsilon, width_,
                               normed_.data() + r * width_);
        std::copy_n(value(uvqk_bias_offset()), uvqk_columns, z_.data() + r * uvqk_columns);
      }
      detail::gemm(false, false, count, uvqk_columns, width_, 1, normed_.data() + first * width_,
                   width_, uvqk_weight_.data(), uvqk_columns, 1, z_.data() + first * uvqk_columns,
                   uvqk_columns);
      for (std::int64_t r = first; r < first + count; ++r) {
        const float* const z = z_.data() + r * uvqk_columns;
        float* const s = uvqk_.data() + r * uvqk_columns;
        detail::silu(z, s, activated());
        std::copy(z + activated(), z + uvqk_columns, s + activated());
      }
    });
    each_attention(detail::HstuAttention::query_block, [&](const detail::HstuAttention& attention,
                                                           std::int64_t row, int head,
                                                           std::int64_t first, float* scratch) {
      attention.forward(first, attention_.data() + row * hidden_columns + head * heads_.hidden_dim,
                        hidden_columns, scratch);
    });
    each_chunk(rows, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t r = first; r < first + count; ++r) {
        const float* const u = uvqk_.data() + r * uvqk_columns;
        const float* const attention = attention_.data() + r * hidden_columns;
        float* gated = gated_.data() + r * gated_width();
        if (options_.concat_ux) {
          gated = std::copy_n(u, hidden_columns, gated);
          gated = std::copy_n(attention, hidden_columns, gated);
        }
        output_moments_[static_cast<std::size_t>(r)] = detail::layer_norm(
            attention, value(output_norm_offset()), value(output_norm_offset() + hidden_columns),
            options_.norm_epsilon, hidden_columns, gated);
        for (std::int64_t c = 0; c < hidden_columns; ++c) gated[c] *= u[c];
        std::copy_n(x.row(r), width_, y.row(r));
      }
      detail::gemm(false, false, count, width_, gated_width(), 1,
                   gated_.data() + first * gated_width(), gated_width(), output_weight_.data(),
                   width_, 1, y.row(first), y.stride);
    });
  }

  /// Says that the parameters have not changed at the next forward: weights are laid out once.
  void keep_weights() { weights_kept_ = true, weights_ready_ = false; }

  /// Returns the attention of the last forward: [positions, Heads HiddenDim], before its
  /// normalization.
  MatrixView<const float> attention() const { return {attention_.data(), x_.rows, hidden_columns}; }

  /// Writes the gradients of all parameters, and that of x if `dx` is not empty. After a forward
  /// of the same batch. Throws InvalidArgument for other shapes.
  void backward(MatrixView<const float> dy, MatrixView<float> dx = {}) {
    check_backward(dy, dx);
    const std::int64_t rows = x_.rows;
    size(d_uvqk_, rows, uvqk_columns), size(d_attention_, rows, hidden_columns);
    std::fill(gradients_.begin(), gradients_.end(), 0.0f);
    std::fill_n(d_uvqk_.begin(), rows * uvqk_columns, 0.0f);
    const std::int64_t chunks = (rows + chunk_rows - 1) / chunk_rows;
    partial_.assign(static_cast<std::size_t>(chunks * 2 * std::max(hidden_columns, width_)), 0.0f);

    each_chunk(rows, [&](std::int64_t first, std::int64_t count) {
      float* const sums = partial_.data() + first / chunk_rows * 2 * hidden_columns;
      std::vector<float> d_gated(static_cast<std::size_t>(count * gated_width())),
          d_normal(static_cast<std::size_t>(hidden_columns));
      detail::gemm(false, false, count, gated_width(), width_, 1, dy.row(first), dy.stride,
                   value(output_offset()), gated_width(), 0, d_gated.data(), gated_width());
      for (std::int64_t r = first; r < first + count; ++r) {
        const float* g = d_gated.data() + (r - first) * gated_width();
        const float* const u = uvqk_.data() + r * uvqk_columns;
        const float* const attention = attention_.data() + r * hidden_columns;
        const detail::RowMoments moments = output_moments_[static_cast<std::size_t>(r)];
        float* const du = d_uvqk_.data() + r * uvqk_columns;
        float* const d_attention = d_attention_.data() + r * hidden_columns;
        std::fill_n(d_attention, hidden_columns, 0.0f);
        if (options_.concat_ux) {
          std::copy_n(g, hidden_columns, du);
          std::copy_n(g + hidden_columns, hidden_columns, d_attention);
          g += 2 * hidden_columns;
        }
        const float* const weight = value(output_norm_offset());
        const float* const bias = weight + hidden_columns;
        for (std::int64_t c = 0; c < hidden_columns; ++c) {
          du[c] += g[c] * ((attention[c] - moments.mean) * moments.scale * weight[c] + bias[c]);
          d_normal[static_cast<std::size_t>(c)] = g[c] * u[c];
        }
        detail::layer_norm_backward(attention, weight, moments, d_normal.data(), hidden_columns,
                                    d_attention, sums, sums + hidden_columns);
      }
    });
    add_partials(chunks, 2 * hidden_columns, output_norm_offset());
    weight_gradient(width_, gated_width(), rows, dy.data, dy.stride, gated_.data(), gated_width(),
                    output_offset());

    each_attention(
        options_.max_length, [&](const detail::HstuAttention& attention, std::int64_t row, int head,
                                 std::int64_t, float* scratch) {
          float* const d = d_uvqk_.data() + row * uvqk_columns;
          attention.backward(d_attention_.data() + row * hidden_columns + head * heads_.hidden_dim,
                             hidden_columns, d + q_column + head * heads_.attention_dim,
                             d + k_column + head * heads_.attention_dim,
                             d + v_column + head * heads_.hidden_dim, scratch,
                             scratch + detail::HstuAttention::scratch());
        });

    std::fill(partial_.begin(), partial_.end(), 0.0f);
    each_chunk(rows, [&](std::int64_t first, std::int64_t count) {
      float* const sums = partial_.data() + first / chunk_rows * 2 * width_;
      std::vector<float> d_normed(static_cast<std::size_t>(count * width_)),
          d_row(static_cast<std::size_t>(width_));
      for (std::int64_t r = first; r < first + count; ++r)
        detail::silu_backward(z_.data() + r * uvqk_columns, d_uvqk_.data() + r * uvqk_columns,
                              d_uvqk_.data() + r * uvqk_columns, activated());
      detail::gemm(false, false, count, width_, uvqk_columns, 1,
                   d_uvqk_.data() + first * uvqk_columns, uvqk_columns, value(uvqk_offset()),
                   width_, 0, d_normed.data(), width_);
      for (std::int64_t r = first; r < first + count; ++r) {
        std::copy_n(dy.row(r), width_, d_row.data());
        detail::layer_norm_backward(x_.row(r), value(0), moments_[static_cast<std::size_t>(r)],
                                    d_normed.data() + (r - first) * width_, width_, d_row.data(),
                                    sums, sums + width_);
        if (dx.data != nullptr) std::copy_n(d_row.data(), width_, dx.row(r));
      }
    });
    add_partials(chunks, 2 * width_, 0);
    weight_gradient(uvqk_columns, width_, rows, d_uvqk_.data(), uvqk_columns, normed_.data(),
                    width_, uvqk_offset());
    float* const bias = gradients_.data() + uvqk_bias_offset();
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < uvqk_columns; ++c) bias[c] += d_uvqk_[r * uvqk_columns + c];
  }

 private:
  static constexpr std::int64_t chunk_rows = 256;  ///< fixed, so that sums do not depend on threads

  static void size(std::vector<float>& v, std::int64_t rows, std::int64_t columns) {
    v.resize(static_cast<std::size_t>(rows * columns));
  }
  void resize(std::int64_t rows) {
    size(normed_, rows, width_);
    size(z_, rows, uvqk_columns), size(uvqk_, rows, uvqk_columns);
    size(attention_, rows, hidden_columns), size(gated_, rows, gated_width());
    uvqk_weight_.resize(static_cast<std::size_t>(uvqk_columns * width_));
    output_weight_.resize(static_cast<std::size_t>(width_ * gated_width()));
    moments_.resize(static_cast<std::size_t>(rows));
    output_moments_.resize(static_cast<std::size_t>(rows));
  }

  /// Calls f(first, count) for chunks of rows, on all threads.
  template <class F>
  void each_chunk(std::int64_t rows, const F& f) const {
    const int workers = threads_;
    detail::for_each_worker(workers, [&](int worker) {
      for (std::int64_t first = worker * chunk_rows; first < rows; first += workers * chunk_rows)
        f(first, std::min(chunk_rows, rows - first));
    });
  }

  /// Calls f(attention, first row of the sequence, head, position, scratch) for every `block`
  /// positions of every head of every sequence, on all threads.
  template <class F>
  void each_attention(std::int64_t block, const F& f) {
    tasks_.clear();
    for (std::size_t s = 0; s + 1 < offsets_.size(); ++s)
      for (int head = 0; head < heads_.heads; ++head)
        for (std::int64_t first = 0; first < offsets_[s + 1] - offsets_[s]; first += block)
          tasks_.push_back({s, head, first});
    const int workers = threads_;
    size(scratch_, workers, 2 * detail::HstuAttention::scratch());
    std::size_t next = 0;
    detail::for_each_worker(workers, [&](int worker) {
      float* const own = scratch_.data() + 2 * detail::HstuAttention::scratch() * worker;
      for (;;) {
        std::size_t t = 0;
#pragma omp atomic capture
        t = next++;
        if (t >= tasks_.size()) return;
        const Task& task = tasks_[t];
        const std::int64_t row = offsets_[task.sequence];
        const float* const rows = uvqk_.data() + row * uvqk_columns;
        const detail::HstuAttention attention{
            .attention_dim = heads_.attention_dim,
            .hidden_dim = heads_.hidden_dim,
            .alpha = options_.alpha,
            .scale = 1.0f / static_cast<float>(options_.attention_length),
            .mask = {.length = offsets_[task.sequence + 1] - row,
                     .targets = targets_.empty() ? 0 : targets_[task.sequence],
                     .window = options_.attention_window},
            .q = rows + q_column + task.head * heads_.attention_dim,
            .k = rows + k_column + task.head * heads_.attention_dim,
            .v = rows + v_column + task.head * heads_.hidden_dim,
            .stride = uvqk_columns};
        f(attention, row, task.head, task.first, own);
      }
    });
  }

  /// Computes [out, in] at `offset` = g^T x over all rows. A slice of outputs is one product: its
  /// sums do not depend on threads.
  void weight_gradient(std::int64_t out, std::int64_t in, std::int64_t rows, const float* g,
                       std::int64_t g_stride, const float* x, std::int64_t x_stride,
                       std::int64_t offset) {
    constexpr std::int64_t slice = 64;
    if (rows == 0) return;
    const int workers = threads_;  // before OpenMP regions of one thread begin
    detail::for_each_worker(workers, [&](int worker) {
      for (std::int64_t first = worker * slice; first < out; first += workers * slice)
        detail::gemm(true, false, std::min(slice, out - first), in, rows, 1, g + first, g_stride, x,
                     x_stride, 0, gradients_.data() + offset + first * in, in);
    });
  }

  /// Adds the chunks' sums, in order, to the gradients at `offset`.
  void add_partials(std::int64_t chunks, std::int64_t columns, std::int64_t offset) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      for (std::int64_t c = 0; c < columns; ++c)
        gradients_[static_cast<std::size_t>(offset + c)] +=
            partial_[static_cast<std::size_t>(chunk * columns + c)];
  }

  struct Task {
    std::size_t sequence;
    int head;
    std::int64_t first;
  };

  int threads_;
  std::vector<std::int64_t> offsets_, targets_;
  std::vector<Task> tasks_;
  bool weights_kept_ = false, weights_ready_ = false;
  std::vector<float> normed_, z_, uvqk_, attention_, gated_;  ///< of forward
  std::vector<float> uvqk_weight_, output_weight_;            ///< transposed
  std::vector<float> scratch_;                                ///< of attention, by worker
  std::vector<float> d_uvqk_, d_attention_, partial_;         ///< of backward
  std::vector<detail::RowMoments> moments_, output_moments_;
};

/// The same with heads that are known to the compiler.
template <int Heads, int AttentionDim, int HiddenDim>
class HstuLayer<Heads, AttentionDim, HiddenDim, Host> : public AnyHstuLayer {
  static_assert(Heads > 0 && AttentionDim > 0 && HiddenDim > 0,
                "HstuLayer: Heads, AttentionDim and HiddenDim must be positive");

 public:
  HstuLayer(const Host& backend, std::int64_t width, HstuOptions options)
      : AnyHstuLayer(backend, {Heads, AttentionDim, HiddenDim}, width, options) {}
  HstuLayer(std::int64_t width, HstuOptions options) : HstuLayer(Host(), width, options) {}
};

}}  // namespace tessera::v0
