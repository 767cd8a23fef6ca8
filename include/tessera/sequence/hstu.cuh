// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/sequence_batch.hpp>
#include <tessera/dense/dense_kernels.cuh>
#include <tessera/dense/gemm.cuh>
#include <tessera/sequence/hstu_kernels.cuh>
#include <tessera/sequence/hstu_parameters.hpp>
#include <tessera/tables/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {

/// HSTU on a GPU: the same block, floats in device memory; the same parameters in the same
/// order and with the same first values. Attention in tiles of 32 positions, or fewer if heads
/// are wide, in float; no memory depends on the square of a length. Sums are always added in the
/// same order: the same bits in every run. One object serves one caller at a time.
template <int Heads, int AttentionDim, int HiddenDim>
class HstuLayer<Heads, AttentionDim, HiddenDim, Cuda>
    : public detail::HstuParameters<Heads, AttentionDim, HiddenDim> {
  using Base = detail::HstuParameters<Heads, AttentionDim, HiddenDim>;
  using Base::gated_width, Base::activated, Base::uvqk_offset, Base::uvqk_bias_offset;
  using Base::hidden_columns, Base::uvqk_columns, Base::v_column, Base::q_column, Base::k_column;
  using Base::output_norm_offset, Base::output_offset, Base::value, Base::gradient;
  using Base::width_, Base::options_, Base::values_, Base::gradients_, Base::x_;
  using Tile = gpu::detail::HstuTile<AttentionDim, HiddenDim>;

 public:
  /// Makes a layer. `width`: of x and y. Throws InvalidArgument for sizes that are not positive.
  HstuLayer(const Cuda& backend, std::int64_t width, HstuOptions options)
      : Base(width, options), backend_(backend), gemm_(backend, options.tf32) {}

  /// Initializes as on the host, to the bit. Returns the next layer's number.
  int initialize(std::uint64_t seed, int first_layer = 0) {
    this->require_bound();
    std::vector<float> values(values_.size());
    this->first_values(values, seed, first_layer);
    backend_.copy(values_.data(), values.data(), values_.size_bytes());
    backend_.synchronize();
    return first_layer + 2;
  }

  /// Keeps nothing: products read the parameters in their place.
  void keep_weights(bool = true) {}

  /// Computes y from x, both [positions, width]; they, and what `batch` names, stay unchanged in
  /// their place until backward. The batch's spans are in device memory, where the host does not
  /// read them: positions of a sequence behind max_length, and those that no sequence has, get no
  /// attention; targets beyond a sequence's length count as that. Throws InvalidArgument for shapes
  /// that do not fit.
  void forward(MatrixView<const float> x, const SequenceBatch& batch, MatrixView<float> y) {
    this->check_forward(x, y);
    require(!batch.offsets.empty(), "HstuLayer: no offsets; a batch of 0 sequences has one, 0");
    const auto sequences = static_cast<std::size_t>(batch.sequences());
    require(batch.targets.empty() || batch.targets.size() == sequences,
            "HstuLayer: {} numbers of targets for {} sequences", batch.targets.size(), sequences);
    x_ = x;
    batch_ = batch;
    if (x.rows == 0) return;
    resize(x.rows);
    rows_launch("normalize_rows", gpu::detail::normalize_rows<>, x, value(0), value(width_),
                options_.norm_epsilon, moments_.data(), view(normed_, width_));
    gemm_.run({.rows = x.rows,
               .columns = uvqk_columns,
               .inner = width_,
               .a_stride = width_,
               .b_stride = width_,
               .c_stride = uvqk_columns,
               .b_transposed = true,
               .bias = true},
              static_cast<const float*>(normed_.data()), value(uvqk_offset()),
              value(uvqk_bias_offset()), z_.data());
    elements_launch("silu_columns", gpu::detail::silu_columns<>,
                    static_cast<const float*>(z_.data()), uvqk_.data());
    backend_.fill_zero(attention_.data(),
                       static_cast<std::size_t>(x.rows * hidden_columns) * sizeof(float));
    attention_launch("hstu_attention", gpu::detail::hstu_attention<AttentionDim, HiddenDim>,
                     view(attention_, hidden_columns));
    rows_launch("gate_rows", gpu::detail::gate_rows<>, u(), constant(attention_, hidden_columns),
                value(output_norm_offset()), value(output_norm_offset() + hidden_columns),
                options_.norm_epsilon, options_.concat_ux, output_moments_.data(),
                view(gated_, gated_width()));
    gemm_.run({.rows = x.rows,
               .columns = width_,
               .inner = gated_width(),
               .a_stride = gated_width(),
               .b_stride = gated_width(),
               .c_stride = y.stride,
               .b_transposed = true,
               .addend_stride = x.stride},
              static_cast<const float*>(gated_.data()), value(output_offset()), nullptr, y.data,
              x.data);
  }

  /// Returns the attention of the last forward: [positions, Heads HiddenDim], before its
  /// normalization.
  MatrixView<const float> attention() const { return constant(attention_, hidden_columns); }

  /// Writes the gradients of all parameters, and that of x if `dx` is not empty. After a forward
  /// of the same batch. Throws InvalidArgument for other shapes.
  void backward(MatrixView<const float> dy, MatrixView<float> dx = {}) {
    this->check_backward(dy, dx);
    const std::int64_t rows = x_.rows;
    if (rows == 0) return backend_.fill_zero(gradients_.data(), gradients_.size_bytes());
    gemm_.run({.rows = rows,
               .columns = gated_width(),
               .inner = width_,
               .a_stride = dy.stride,
               .b_stride = gated_width(),
               .c_stride = gated_width()},
              dy.data, value(output_offset()), nullptr, d_gated_.data());
    const MatrixView<float> d_uvqk = view(d_uvqk_, uvqk_columns);
    // Positions that no sequence has get nothing by attention.
    backend_.fill_zero(d_uvqk_.data(),
                       static_cast<std::size_t>(rows * uvqk_columns) * sizeof(float));
    rows_launch("gate_rows_backward", gpu::detail::gate_rows_backward<>, u(), attention(),
                value(output_norm_offset()), value(output_norm_offset() + hidden_columns),
                static_cast<const gpu::detail::RowMoments*>(output_moments_.data()),
                options_.concat_ux, constant(d_gated_, gated_width()),
                d_uvqk.column_range(0, hidden_columns), view(d_attention_, hidden_columns),
                view(d_normal_, hidden_columns), view(products_, hidden_columns));
    norm_gradients(constant(products_, hidden_columns), constant(d_normal_, hidden_columns),
                   output_norm_offset());
    weight_gradient(width_, gated_width(), dy.data, dy.stride, gated_.data(), output_offset());

    attention_launch("hstu_attention_backward_q",
                     gpu::detail::hstu_attention_backward_q<AttentionDim, HiddenDim>,
                     constant(d_attention_, hidden_columns), d_uvqk);
    attention_launch("hstu_attention_backward_kv",
                     gpu::detail::hstu_attention_backward_kv<AttentionDim, HiddenDim>,
                     constant(d_attention_, hidden_columns), d_uvqk);

    elements_launch("silu_columns_backward", gpu::detail::silu_columns_backward<>,
                    static_cast<const float*>(z_.data()), d_uvqk_.data());
    gemm_.run({.rows = rows,
               .columns = width_,
               .inner = uvqk_columns,
               .a_stride = uvqk_columns,
               .b_stride = width_,
               .c_stride = width_},
              static_cast<const float*>(d_uvqk_.data()), value(uvqk_offset()), nullptr,
              d_normed_.data());
    rows_launch("normalize_rows_backward", gpu::detail::normalize_rows_backward<>, x_, value(0),
                static_cast<const gpu::detail::RowMoments*>(moments_.data()),
                constant(d_normed_, width_), dy, view(products_, width_), dx);
    norm_gradients(constant(products_, width_), constant(d_normed_, width_), 0);
    weight_gradient(uvqk_columns, width_, d_uvqk_.data(), uvqk_columns, normed_.data(),
                    uvqk_offset());
    gpu::mask_and_sum(backend_, constant(d_uvqk_, uvqk_columns), MatrixView<const float>{},
                      MatrixView<float>{}, gradient(uvqk_bias_offset()));
  }

 private:
  using Floats = Buffer<float, Cuda>;

  MatrixView<float> view(const Floats& buffer, std::int64_t columns) const {
    return {buffer.data(), x_.rows, columns};
  }
  MatrixView<const float> constant(const Floats& buffer, std::int64_t columns) const {
    return {buffer.data(), x_.rows, columns};
  }
  MatrixView<const float> u() const {
    return constant(uvqk_, uvqk_columns).column_range(0, hidden_columns);
  }

  void resize(std::int64_t rows) {
    const std::int64_t wider = width_ > hidden_columns ? width_ : hidden_columns;
    for (Floats* const buffer : {&normed_, &d_normed_}) buffer->resize(backend_, rows * width_);
    for (Floats* const buffer : {&z_, &uvqk_, &d_uvqk_})
      buffer->resize(backend_, rows * uvqk_columns);
    for (Floats* const buffer : {&attention_, &d_attention_, &d_normal_})
      buffer->resize(backend_, rows * hidden_columns);
    for (Floats* const buffer : {&gated_, &d_gated_})
      buffer->resize(backend_, rows * gated_width());
    products_.resize(backend_, rows * wider);
    moments_.resize(backend_, rows);
    output_moments_.resize(backend_, rows);
  }

  /// Launches a warp per row.
  template <class... Parameters, class... Arguments>
  void rows_launch(const char* name, void (*kernel)(Parameters...), const Arguments&... arguments) {
    backend_.launch(name, gpu::ceil_divide(x_.rows, gpu::detail::hstu_threads / 32),
                    gpu::detail::hstu_threads, kernel, arguments...);
  }
  /// Launches a thread per element of U, V, Q and K.
  template <class... Parameters>
  void elements_launch(const char* name, void (*kernel)(Parameters...), const float* from,
                       float* to) {
    const std::int64_t count = x_.rows * uvqk_columns;
    backend_.launch(name, gpu::ceil_divide(count, gpu::detail::hstu_threads),
                    gpu::detail::hstu_threads, kernel, from, to, count, uvqk_columns, activated());
  }
  /// Launches a block of threads per sequence, head and tile.
  template <class... Parameters, class... Arguments>
  void attention_launch(const char* name, void (*kernel)(Parameters...),
                        const Arguments&... arguments) {
    const std::int64_t tiles = gpu::ceil_divide(options_.max_length, Tile::positions);
    const gpu::detail::HstuSequences sequences{
        .offsets = batch_.offsets.data(),
        .targets = batch_.targets.empty() ? nullptr : batch_.targets.data(),
        .rows = x_.rows,
        .max_length = options_.max_length,
        .window = options_.attention_window,
        .heads = Heads,
        .tiles = tiles,
        .alpha = options_.alpha,
        .scale = 1.0f / static_cast<float>(options_.attention_length),
        .uvqk = uvqk_.data(),
        .stride = uvqk_columns,
        .v_column = v_column,
        .q_column = q_column,
        .k_column = k_column};
    backend_.launch(name, batch_.sequences() * Heads * tiles, gpu::detail::hstu_threads, kernel,
                    sequences, arguments...);
  }

  /// Computes weight, then bias, at `offset`: the column sums of both.
  void norm_gradients(MatrixView<const float> products, MatrixView<const float> dy,
                      std::int64_t offset) {
    for (const MatrixView<const float>& of : {products, dy}) {
      gpu::mask_and_sum(backend_, of, MatrixView<const float>{}, MatrixView<float>{},
                        gradient(offset));
      offset += of.columns;
    }
  }
  /// Computes [out, in] at `offset` = g^T x over all rows.
  void weight_gradient(std::int64_t out, std::int64_t in, const float* g, std::int64_t g_stride,
                       const float* x, std::int64_t offset) {
    gemm_.run({.rows = out,
               .columns = in,
               .inner = x_.rows,
               .a_stride = g_stride,
               .b_stride = in,
               .c_stride = in,
               .a_transposed = true},
              g, x, nullptr, gradient(offset));
  }

  Cuda backend_;
  gpu::Gemm gemm_;
  SequenceBatch batch_;
  Floats normed_, z_, uvqk_, attention_, gated_;  ///< of forward
  Floats d_gated_, d_uvqk_, d_attention_, d_normal_, d_normed_, products_;
  Buffer<gpu::detail::RowMoments, Cuda> moments_, output_moments_;
};

}}  // namespace tessera::v0
