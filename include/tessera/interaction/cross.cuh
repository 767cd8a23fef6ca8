// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/cuda/convert_rows.cuh>
#include <tessera/dense/gemm.cuh>
#include <tessera/dense/mlp_layers.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/cross_kernels.cuh>
#include <tessera/interaction/cross_layers.hpp>
#include <tessera/tables/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera::inline v0 {

/// CrossInteraction on a GPU: DCNv2's cross layers, matrices and parameters in device memory; the
/// same parameters in the same order and with the same first values. What is not a product is one
/// kernel per layer and direction. One object serves one caller at a time.
template <>
class CrossInteraction<Linear<Cuda>> : public detail::CrossLayers,
                                       public detail::CrossEnds<CrossInteraction<Linear<Cuda>>> {
 public:
  CrossInteraction(const Cuda& backend, std::int64_t width, CrossOptions options = {})
      : detail::CrossLayers(width, options), backend_(backend), gemm_(backend, options.tf32) {
    for (std::vector<Floats>* const buffers : {&scales_, &states_, &narrow_})
      buffers->resize(static_cast<std::size_t>(layers()));
  }

  /// Uses these spans of device memory (parameter_count() floats each) from now on; DenseParameters
  /// calls it.
  void bind(std::span<float> values, std::span<float> gradients) {
    const auto count = static_cast<std::size_t>(parameter_count());
    require(values.size() == count && gradients.size() == count,
            "CrossInteraction: bind needs {} parameters, got {} values and {} gradients", count,
            values.size(), gradients.size());
    values_ = values;
    gradients_ = gradients;
  }

  /// As CrossInteraction's, to the bit. Returns the next layer's number.
  int initialize(std::uint64_t seed, int first_layer = 0) {
    require_bound();
    std::vector<float> values(values_.size());
    std::span<float> rest = values;
    const auto next = [&](std::int64_t in, std::int64_t out, bool bias) {
      const FirstValues linear(in, out, bias);
      const auto count = static_cast<std::size_t>(linear.parameter_count());
      linear.first_values(rest.first(count), seed, first_layer++);
      rest = rest.subspan(count);
    };
    for (int l = 0; l < layers(); ++l) {
      if (low_rank()) next(width(), rank(), false);
      next(inner(), width(), true);
    }
    backend_.copy(values_.data(), values.data(), values_.size_bytes());
    backend_.synchronize();
    return first_layer;
  }

  /// As Mlp's. Products read the parameters in their place, so nothing is kept.
  void keep_weights(bool = true) {}

 private:
  friend detail::CrossEnds<CrossInteraction>;
  using Floats = Buffer<float, Cuda>;

  template <Element X, Element Y>
  void forward_any(MatrixView<const X> x, MatrixView<Y> y) {
    require_bound();
    check("input", x, x.rows);
    check("output", y, x.rows);
    remember_input<X>();
    given_x_ = x.data;
    given_stride_ = x.stride;
    if constexpr (std::is_same_v<X, float>) {
      x_ = x;
    } else {
      widened_.resize(backend_, x.rows * width());
      const MatrixView<float> floats(widened_.data(), x.rows, width());
      op::run<op::ConvertRows<X, float>>(backend_, {x, floats});
      x_ = floats;
    }
    for (int l = 0; l < layers(); ++l) {
      const auto i = static_cast<std::size_t>(l);
      scales_[i].resize(backend_, x.rows * width());
      narrow_[i].resize(backend_, x.rows * rank());
      if (l + 1 < layers()) states_[i].resize(backend_, x.rows * width());
      const MatrixView<const float> before = state(l);
      if (low_rank())
        gemm_.run({.rows = x.rows,
                   .columns = rank(),
                   .inner = width(),
                   .a_stride = before.stride,
                   .b_stride = width(),
                   .c_stride = rank(),
                   .b_transposed = true},
                  before.data, v(values_, l), nullptr, narrow_[i].data());
      const MatrixView<const float> in = input(l);
      gemm_.run({.rows = x.rows,
                 .columns = width(),
                 .inner = inner(),
                 .a_stride = in.stride,
                 .b_stride = inner(),
                 .c_stride = width(),
                 .b_transposed = true,
                 .bias = true},
                in.data, u(values_, l), b(values_, l), scales_[i].data());
      if (l + 1 < layers())
        combine(l, x, before, MatrixView<float>(states_[i].data(), x.rows, width()));
      else
        combine(l, x, before, y);
    }
  }

  /// after = x0 * scale + before.
  template <Element X, Element Y>
  void combine(int layer, MatrixView<const X> x, MatrixView<const float> before,
               MatrixView<Y> after) {
    if (!std::is_same_v<X, float> && layer == 0) before = {};
    const std::int64_t column_blocks = gpu::ceil_divide(width(), gpu::cross_columns);
    backend_.launch("cross_forward", gpu::ceil_divide(x.rows, gpu::cross_rows) * column_blocks,
                    gpu::dense_threads, gpu::cross_forward<X, Y>, x, scale(layer), before, after,
                    static_cast<int>(column_blocks));
  }

  template <Element Dy, Element X>
  void backward_any(MatrixView<const Dy> dy, MatrixView<X> dx) {
    require_bound();
    check("output gradient", dy, x_.rows);
    check("input gradient", dx, x_.rows);
    check_input_gradient<X>();
    const std::int64_t batch = x_.rows;
    if (batch == 0) return backend_.fill_zero(gradients_.data(), gradients_.size_bytes());
    gradient_.resize(backend_, batch * width());
    scale_gradient_.resize(backend_, batch * width());
    narrow_gradient_.resize(backend_, batch * rank());
    const MatrixView<float> ds(scale_gradient_.data(), batch, width()),
        dt(narrow_gradient_.data(), batch, rank());
    const MatrixView<const X> x0(static_cast<const X*>(given_x_), batch, width(), given_stride_);
    const MatrixView<float> sum = input_sum(dx);
    MatrixView<const float> above{};
    for (int l = layers() - 1; l >= 0; --l) {
      if (l + 1 < layers()) {
        element_gradients(l, above, x0, ds, sum, {});
      } else if constexpr (std::is_same_v<Dy, float>) {
        element_gradients(l, above = dy, x0, ds, sum, {});
      } else {
        // Products below add what passes the layer by to their own, as floats.
        const MatrixView<float> copy =
            l == 0 ? MatrixView<float>() : MatrixView<float>(gradient_.data(), batch, width());
        element_gradients(l, dy, x0, ds, sum, copy);
        above = copy;
      }
      weight_gradient(ds, input(l), u(gradients_, l));
      // To dx l == 0 has added `above` already.
      const MatrixView<float> below =
          l == 0 ? sum : MatrixView<float>(gradient_.data(), batch, width());
      const MatrixView<const float> addend = l == 0 ? MatrixView<const float>(sum) : above;
      if (low_rank()) {
        input_gradient(ds, u(values_, l), dt, {});
        weight_gradient(dt, state(l), v(gradients_, l));
        input_gradient(dt, v(values_, l), below, addend);
      } else {
        input_gradient(ds, u(values_, l), below, addend);
      }
      above = below;
    }
    if constexpr (!std::is_same_v<X, float>)
      op::run<op::ConvertRows<float, X>>(backend_, {sum, dx});
  }

  /// Where the input's gradient is summed: dx itself, or floats that become it.
  template <Element X>
  MatrixView<float> input_sum(MatrixView<X> dx) {
    if constexpr (std::is_same_v<X, float>) {
      return dx;
    } else {
      input_sum_.resize(backend_, dx.rows * width());
      return {input_sum_.data(), dx.rows, width()};
    }
  }

  /// First values of one linear layer.
  struct FirstValues : detail::MlpLayers {
    FirstValues(std::int64_t in, std::int64_t out, bool bias)
        : detail::MlpLayers("CrossInteraction", {in, out}, bias) {}
    using detail::MlpLayers::first_values;
  };

  void require_bound() const {
    require(values_.size() == static_cast<std::size_t>(parameter_count()),
            "CrossInteraction: has no parameters yet; construct DenseParameters with it, or call "
            "bind");
  }

  // Places of a layer's parameters, or of their gradients.
  float* v(std::span<float> all, int layer) const {
    return all.data() + layer * layer_parameters();
  }
  float* u(std::span<float> all, int layer) const { return v(all, layer) + v_size(); }
  float* b(std::span<float> all, int layer) const { return u(all, layer) + u_size(); }

  // Of the last forward: a layer's input, what its U takes, and U V x + b.
  MatrixView<const float> state(int layer) const {
    return layer == 0 ? x_
                      : MatrixView<const float>(states_[static_cast<std::size_t>(layer - 1)].data(),
                                                x_.rows, width());
  }
  MatrixView<const float> input(int layer) const {
    return low_rank() ? MatrixView<const float>(narrow_[static_cast<std::size_t>(layer)].data(),
                                                x_.rows, rank())
                      : state(layer);
  }
  MatrixView<const float> scale(int layer) const {
    return {scales_[static_cast<std::size_t>(layer)].data(), x_.rows, width()};
  }

  /// ds, the bias' gradient and this layer's share of dx; a `copy` of `above` as floats, where one
  /// is wanted.
  template <Element Above, Element X>
  void element_gradients(int layer, MatrixView<const Above> above, MatrixView<const X> x0,
                         MatrixView<float> ds, MatrixView<float> dx, MatrixView<float> copy) {
    const std::int64_t chunks = gpu::ceil_divide(ds.rows, gpu::sum_rows),
                       column_blocks = gpu::ceil_divide(width(), gpu::cross_columns);
    auto* partial = backend_.scratch_for<float>(gpu::ScratchSlot::column_sums, chunks * width());
    gpu::CrossGradients<Above, X> gradients{
        above, x0, scale(layer), ds, dx, layer + 1 == layers(), layer == 0};
    if constexpr (!std::is_same_v<Above, float>) gradients.copy = copy;
    backend_.launch("cross_backward", chunks * column_blocks, gpu::dense_threads,
                    gpu::cross_backward<Above, X>, gradients, partial,
                    static_cast<int>(column_blocks));
    gpu::add_chunks(backend_, partial, chunks, width(), b(gradients_, layer));
  }

  /// to [g's columns, in's columns] = g^T in.
  void weight_gradient(MatrixView<const float> g, MatrixView<const float> in, float* to) {
    gemm_.run({.rows = g.columns,
               .columns = in.columns,
               .inner = g.rows,
               .a_stride = g.stride,
               .b_stride = in.stride,
               .c_stride = in.columns,
               .a_transposed = true},
              g.data, in.data, nullptr, to);
  }

  /// to = g w, plus the addend where there is one; w [g's columns, to's columns].
  void input_gradient(MatrixView<const float> g, const float* w, MatrixView<float> to,
                      MatrixView<const float> addend) {
    gemm_.run({.rows = g.rows,
               .columns = to.columns,
               .inner = g.columns,
               .a_stride = g.stride,
               .b_stride = to.columns,
               .c_stride = to.stride,
               .addend_stride = addend.stride},
              g.data, w, nullptr, to.data, addend.data);
  }

  Cuda backend_;
  gpu::Gemm gemm_;
  std::span<float> values_, gradients_;
  MatrixView<const float> x_;      ///< as floats
  const void* given_x_ = nullptr;  ///< of the type that CrossLayers knows
  std::int64_t given_stride_ = 0;
  /// per layer: U V x + b, the layer's output (but the last's), V x
  std::vector<Floats> scales_, states_, narrow_;
  Floats gradient_, scale_gradient_, narrow_gradient_;
  Floats widened_, input_sum_;  ///< x and dx of 16 bits, as floats
};

}  // namespace tessera::inline v0
