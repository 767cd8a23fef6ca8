// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/cuda/convert_rows.cuh>
#include <tessera/dense/gemm.cuh>
#include <tessera/dense/mlp_layers.hpp>
#include <tessera/dense/weight_copies.cuh>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/cross_kernels.cuh>
#include <tessera/interaction/cross_layers.hpp>
#include <tessera/tables/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 {

/// CrossInteraction on a GPU: DCNv2's cross layers, matrices and parameters in device memory; the
/// same parameters in the same order and with the same first values. What is not a product is one
/// kernel per layer and direction. One object serves one caller at a time.
template <>
class CrossInteraction<Linear<Cuda>> : public detail::CrossLayers,
                                       public detail::CrossEnds<CrossInteraction<Linear<Cuda>>> {
 public:
  CrossInteraction(const Cuda& backend, std::int64_t width, CrossOptions options = {})
      : detail::CrossLayers(width, options),
        backend_(backend),
        bfloat16_(options.precision == DensePrecision::bfloat16),
        gemm_(backend, options.tf32, options.candidates),
        copies_(backend, places()) {
    for (std::vector<Bytes>* const buffers : {&scales_, &states_, &narrow_})
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

  /// Initializes as CrossInteraction's, to the bit. Returns the next layer's number.
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

  /// Says that the bound parameters do not change until this is called again, as Mlp's.
  void keep_weights(bool keep = true) { copies_.keep(keep); }

 private:
  friend detail::CrossEnds<CrossInteraction>;
  using Bytes = Buffer<std::byte, Cuda>;

  /// What x0 is read from, in products of T: x as it is given, or as T.
  template <Element X, Element T>
  using FirstInput = std::conditional_t<std::is_same_v<T, float>, X, T>;

  template <Element X, Element Y>
  void forward_any(MatrixView<const X> x, MatrixView<Y> y) {
    bfloat16_ ? forward_in<BFloat16>(x, y) : forward_in<float>(x, y);
  }
  template <Element Dy, Element X>
  void backward_any(MatrixView<const Dy> dy, MatrixView<X> dx) {
    bfloat16_ ? backward_in<BFloat16>(dy, dx) : backward_in<float>(dy, dx);
  }

  template <Element T, Element X, Element Y>
  void forward_in(MatrixView<const X> x, MatrixView<Y> y) {
    require_bound();
    check("input", x, x.rows);
    check("output", y, x.rows);
    remember_input<X>();
    batch_ = x.rows;
    given_x_ = {x.data, x.stride};
    // Of 16 bits, products read zeros behind its columns.
    const bool as_it_is = std::is_same_v<X, T> && (!bfloat16_ || whole_rows<T>(width()));
    if (!as_it_is) {
      const MatrixView<T> converted = room<T>(converted_x_, width());
      if constexpr (std::is_same_v<X, T>)
        gpu::detail::copy_matrix<T>(backend_, x, converted);
      else
        op::run<op::ConvertRows<X, T>>(backend_, {x, converted});
      product_x_ = {converted.data, converted.stride};
    } else {
      product_x_ = given_x_;
    }
    copies_.refresh<T>(values_);
    for (int l = 0; l < layers(); ++l) {
      const auto i = static_cast<std::size_t>(l);
      const MatrixView<T> scale = room<T>(scales_[i], width());
      if (low_rank()) multiply<T>(state<T>(l), v_map(l), room<T>(narrow_[i], rank()));
      multiply<T>(input<T>(l), u_map(l), scale);
      if (l + 1 < layers())
        combine<X, T>(l, room<T>(states_[i], width()));
      else
        combine<X, T>(l, y);
    }
  }

  /// Computes out = in W^T, plus b for a U.
  template <Element T>
  void multiply(MatrixView<const T> in, std::size_t map, MatrixView<T> out) {
    const MatrixView<const T> weight = copies_.weight<T>(map);
    const bool bias = is_u(map);
    gemm_.run({.rows = in.rows,
               .columns = gpu::detail::padded_columns<T>(out.columns),
               .inner = gpu::detail::padded_columns<T>(in.columns),
               .a_stride = in.stride,
               .b_stride = weight.stride,
               .c_stride = out.stride,
               .b_transposed = true,
               .bias = bias},
              in.data, weight.data, bias ? copies_.bias<T>(map) : nullptr, out.data);
  }

  /// Computes after = x0 * scale + before.
  template <Element X, Element T, Element Y>
  void combine(int layer, MatrixView<Y> after) {
    using X0 = FirstInput<X, T>;
    const std::int64_t column_blocks = gpu::ceil_divide(width(), gpu::cross_columns);
    backend_.launch("cross_forward",
                    gpu::ceil_divide(batch_, gpu::cross_rows<X0, T>) * column_blocks,
                    gpu::dense_threads, gpu::cross_forward<X0, T, Y>, first_input<X, T>(),
                    scale<T>(layer), layer == 0 ? MatrixView<const T>() : state<T>(layer), after,
                    static_cast<int>(column_blocks));
  }

  template <Element T, Element Dy, Element X>
  void backward_in(MatrixView<const Dy> dy, MatrixView<X> dx) {
    require_bound();
    check("output gradient", dy, batch_);
    check("input gradient", dx, batch_);
    check_input_gradient<X>();
    if (batch_ == 0) return backend_.fill_zero(gradients_.data(), gradients_.size_bytes());
    const MatrixView<T> g = room<T>(gradient_, width()), ds = room<T>(scale_gradient_, width()),
                        dt = room<T>(narrow_gradient_, rank());
    const MatrixView<float> sum = input_sum(dx);
    MatrixView<const T> above{};
    for (int l = layers() - 1; l >= 0; --l) {
      if (l + 1 < layers()) {
        element_gradients<X>(l, above, ds, sum, MatrixView<T>());
      } else if constexpr (std::is_same_v<Dy, T>) {
        element_gradients<X>(l, above = dy, ds, sum, MatrixView<T>());
      } else {
        // Products below add what passes the layer by to their own, as T.
        const MatrixView<T> copy = l == 0 ? MatrixView<T>() : g;
        element_gradients<X>(l, dy, ds, sum, copy);
        above = copy;
      }
      weight_gradient<T>(ds, input<T>(l), u(gradients_, l));
      if (low_rank()) {
        input_gradient<T>(ds, u_map(l), dt, MatrixView<const T>());
        weight_gradient<T>(dt, state<T>(l), v(gradients_, l));
      }
      const MatrixView<const T> inner = low_rank() ? dt : ds;
      const std::size_t map = low_rank() ? v_map(l) : u_map(l);
      if (l == 0)  // to dx its kernel has added `above` already
        input_gradient<T>(inner, map, sum, MatrixView<const float>(sum));
      else
        input_gradient<T>(inner, map, g, above);
      above = g;
    }
    if constexpr (!std::is_same_v<X, float>)
      op::run<op::ConvertRows<float, X>>(backend_, {sum, dx});
  }

  /// Returns where the input's gradient is summed: dx itself, or floats that become it.
  template <Element X>
  MatrixView<float> input_sum(MatrixView<X> dx) {
    if constexpr (std::is_same_v<X, float>)
      return dx;
    else
      return room<float>(input_sum_, width());
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

  // Places of a layer's parameters, or of their gradients, and the numbers of its maps.
  float* v(std::span<float> all, int layer) const {
    return all.data() + layer * layer_parameters();
  }
  float* u(std::span<float> all, int layer) const { return v(all, layer) + v_size(); }
  float* b(std::span<float> all, int layer) const { return u(all, layer) + u_size(); }
  std::size_t v_map(int layer) const { return 2 * static_cast<std::size_t>(layer); }
  std::size_t u_map(int layer) const {
    return low_rank() ? v_map(layer) + 1 : static_cast<std::size_t>(layer);
  }
  bool is_u(std::size_t map) const { return !low_rank() || map % 2 == 1; }
  std::vector<gpu::detail::LinearPlace> places() const {
    std::vector<gpu::detail::LinearPlace> all;
    for (int l = 0; l < layers(); ++l) {
      const std::int64_t begin = l * layer_parameters();
      if (low_rank()) all.push_back({rank(), width(), begin, false});
      all.push_back({width(), inner(), begin + v_size(), true});
    }
    return all;
  }

  template <class T>
  static bool whole_rows(std::int64_t columns) {
    return columns == gpu::detail::row_stride<T>(columns);
  }
  /// Returns a matrix of the batch in `buffer`, in rows that begin aligned.
  template <Element T>
  MatrixView<T> room(Bytes& buffer, std::int64_t columns) {
    const std::int64_t stride = gpu::detail::row_stride<T>(columns),
                       bytes = batch_ * stride * static_cast<std::int64_t>(sizeof(T));
    // Products read what is behind the columns, times zeros: it has to be a number.
    if (bfloat16_ && !whole_rows<T>(columns) && buffer.size() < static_cast<std::size_t>(bytes)) {
      buffer.resize(backend_, bytes);
      backend_.fill_zero(buffer.data(), buffer.size());
    }
    buffer.resize(backend_, bytes);
    return matrix<T>(buffer, columns);
  }
  template <Element T>
  MatrixView<T> matrix(const Bytes& buffer, std::int64_t columns) const {
    return {reinterpret_cast<T*>(buffer.data()), batch_, columns,
            gpu::detail::row_stride<T>(columns)};
  }

  // Of the last forward: x0, a layer's input, what its U takes, and U V x + b.
  template <Element X, Element T>
  MatrixView<const FirstInput<X, T>> first_input() const {
    const Given& from = std::is_same_v<T, float> ? given_x_ : product_x_;
    return {static_cast<const FirstInput<X, T>*>(from.data), batch_, width(), from.stride};
  }
  template <Element T>
  MatrixView<const T> state(int layer) const {
    if (layer == 0)
      return {static_cast<const T*>(product_x_.data), batch_, width(), product_x_.stride};
    return matrix<T>(states_[static_cast<std::size_t>(layer - 1)], width());
  }
  template <Element T>
  MatrixView<const T> input(int layer) const {
    if (!low_rank()) return state<T>(layer);
    return matrix<T>(narrow_[static_cast<std::size_t>(layer)], rank());
  }
  template <Element T>
  MatrixView<const T> scale(int layer) const {
    return matrix<T>(scales_[static_cast<std::size_t>(layer)], width());
  }

  /// Computes ds, the bias' gradient and this layer's share of dx; a `copy` of `above` as T, where
  /// one is wanted.
  template <Element X, Element Above, Element T>
  void element_gradients(int layer, MatrixView<const Above> above, MatrixView<T> ds,
                         MatrixView<float> dx, MatrixView<T> copy) {
    using X0 = FirstInput<X, T>;
    const std::int64_t chunks = gpu::ceil_divide(ds.rows, gpu::sum_rows),
                       column_blocks = gpu::ceil_divide(width(), gpu::cross_columns);
    auto* partial = backend_.scratch_for<float>(gpu::ScratchSlot::column_sums, chunks * width());
    gpu::CrossGradients<Above, X0, T> gradients{above, first_input<X, T>(),   scale<T>(layer), ds,
                                                dx,    layer + 1 == layers(), layer == 0};
    if constexpr (!std::is_same_v<Above, T>) gradients.copy = copy;
    backend_.launch("cross_backward", chunks * column_blocks, gpu::dense_threads,
                    gpu::cross_backward<Above, X0, T>, gradients, partial,
                    static_cast<int>(column_blocks));
    gpu::add_chunks(backend_, partial, chunks, width(), b(gradients_, layer));
  }

  /// Computes to [g's columns, in's columns] = g^T in.
  template <Element T>
  void weight_gradient(MatrixView<const T> g, MatrixView<const T> in, float* to) {
    gpu::detail::multiply_aligned(backend_, weight_gradient_,
                                  MatrixView<float>(to, g.columns, in.columns),
                                  [&](MatrixView<float> weights) {
                                    gemm_.run({.rows = g.columns,
                                               .columns = in.columns,
                                               .inner = g.rows,
                                               .a_stride = g.stride,
                                               .b_stride = in.stride,
                                               .c_stride = weights.stride,
                                               .a_transposed = true},
                                              g.data, in.data, nullptr, weights.data);
                                  });
  }

  /// Computes to = g W, plus the addend if there is one; W [g's columns, to's columns].
  template <Element T, Element Out>
  void input_gradient(MatrixView<const T> g, std::size_t map, MatrixView<Out> to,
                      MatrixView<const Out> addend) {
    const MatrixView<const T> weight = copies_.weight<T>(map);
    gemm_.run({.rows = g.rows,
               .columns = to.columns,
               .inner = g.columns,
               .a_stride = g.stride,
               .b_stride = weight.stride,
               .c_stride = to.stride,
               .addend_stride = addend.stride},
              g.data, weight.data, nullptr, to.data, addend.data);
  }

  Cuda backend_;
  bool bfloat16_;
  gpu::Gemm gemm_;
  gpu::detail::WeightCopies copies_;
  std::span<float> values_, gradients_;
  std::int64_t batch_ = 0;  ///< of the last forward
  /// x, of the type that CrossLayers knows, and as products read it.
  struct Given {
    const void* data = nullptr;
    std::int64_t stride = 0;
  } given_x_, product_x_;
  /// per layer: U V x + b, the layer's output (but the last's), V x
  std::vector<Bytes> scales_, states_, narrow_;
  Bytes gradient_, scale_gradient_, narrow_gradient_;
  Bytes converted_x_, input_sum_;
  Buffer<float, Cuda> weight_gradient_;
};

}}  // namespace tessera::v0
