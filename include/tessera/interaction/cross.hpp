// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/convert_rows.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/interaction/cross_layers.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 {

/// DCNv2's cross layers over `width` numbers per sample: x_{l+1} = x_0 * (U_l (V_l x_l) + b_l) +
/// x_l, where V_l is [rank, width] and U_l [width, rank]; with rank 0 U_l is [width, width] and
/// there is no V_l. `LinearLayer` makes the products: `Linear<Host>`, or a type of your own,
/// constructed from (backend, in, out, Options with `bias`), with forward(x, y) and backward(dy,
/// dx). Parameters per layer: V, then U, then b. `CrossInteraction<Linear<Cuda>>` is in
/// interaction/cross.cuh.
///
///     CrossInteraction<Linear<Host>> cross(host, 432, {.layers = 3, .rank = 64});
///     DenseParameters parameters(host, 42, cross);
///     cross.forward(x, y);
template <class LinearLayer>
class CrossInteraction : public detail::CrossLayers,
                         public detail::CrossEnds<CrossInteraction<LinearLayer>> {
  using LinearOptions = typename LinearLayer::Options;

 public:
  CrossInteraction(const Host& backend, std::int64_t width, CrossOptions options = {})
      : detail::CrossLayers(width, options), backend_(backend) {
    LinearOptions without_bias{.bias = false}, with_bias{.bias = true};
    for (LinearOptions* const linear : {&without_bias, &with_bias})
      if constexpr (requires { linear->precision = options.precision; })
        linear->precision = options.precision;
      else
        require(options.precision == DensePrecision::float32,
                "CrossInteraction: these linear layers multiply floats alone; leave out the "
                "precision");
    for (int l = 0; l < options.layers; ++l) {
      if (low_rank()) v_.emplace_back(backend, width, options.rank, without_bias);
      u_.emplace_back(backend, inner(), width, with_bias);
    }
  }
  explicit CrossInteraction(std::int64_t width, CrossOptions options = {})
      : CrossInteraction(Host(), width, options) {}

  LinearLayer& v(int layer) { return v_[static_cast<std::size_t>(layer)]; }
  LinearLayer& u(int layer) { return u_[static_cast<std::size_t>(layer)]; }

  /// Uses these spans (parameter_count() floats each) from now on; DenseParameters calls it.
  void bind(std::span<float> values, std::span<float> gradients) {
    const auto whole = static_cast<std::size_t>(parameter_count());
    require(values.size() == whole && gradients.size() == whole,
            "CrossInteraction: {} values and {} gradients; it has {} parameters", values.size(),
            gradients.size(), whole);
    std::size_t begin = 0;
    const auto add = [&](LinearLayer& linear) {
      const auto count = static_cast<std::size_t>(linear.parameter_count());
      linear.bind(values.subspan(begin, count), gradients.subspan(begin, count));
      begin += count;
    };
    for (int l = 0; l < layers(); ++l) {
      if (low_rank()) add(v(l));
      add(u(l));
    }
  }

  int initialize(std::uint64_t seed, int first_layer = 0) {
    for (int l = 0; l < layers(); ++l) {
      if (low_rank()) first_layer = v(l).initialize(seed, first_layer);
      first_layer = u(l).initialize(seed, first_layer);
    }
    return first_layer;
  }

  /// Says, as Mlp's, that the bound parameters do not change until this is called again.
  void keep_weights(bool keep = true) {
    for (int l = 0; l < layers(); ++l) {
      if (low_rank()) v(l).keep_weights(keep);
      u(l).keep_weights(keep);
    }
  }

 private:
  friend detail::CrossEnds<CrossInteraction>;

  template <Element X, Element Y>
  void forward_any(MatrixView<const X> x, MatrixView<Y> y) {
    check("input", x, x.rows);
    check("output", y, x.rows);
    remember_input<X>();
    x_ = detail::as_floats(backend_, x, widened_);
    scaled_.resize(static_cast<std::size_t>(layers()));
    states_.resize(static_cast<std::size_t>(layers()));
    narrow_.resize(static_cast<std::size_t>(layers()));
    MatrixView<const float> state = x_;
    for (int l = 0; l < layers(); ++l) {
      const auto i = static_cast<std::size_t>(l);
      const MatrixView<float> scale = detail::floats_in(scaled_[i], x.rows, width()),
                              t = detail::floats_in(narrow_[i], x.rows, rank());
      if (low_rank()) v(l).forward(state, t);
      u(l).forward(low_rank() ? MatrixView<const float>(t) : state, scale);
      if (l + 1 == layers()) return combine(scale, state, y);
      const MatrixView<float> next = detail::floats_in(states_[i], x.rows, width());
      combine(scale, state, next);
      state = next;
    }
  }

  /// Computes next = x0 * scale + state.
  template <Element Y>
  void combine(MatrixView<const float> scale, MatrixView<const float> state, MatrixView<Y> next) {
    rows([&](std::int64_t r) {
      const float* __restrict x0 = x_.row(r);
      const float* __restrict s = scale.row(r);
      const float* __restrict before = state.row(r);
      Y* __restrict after = next.row(r);
      for (std::int64_t k = 0; k < width(); ++k) after[k] = from_float<Y>(x0[k] * s[k] + before[k]);
    });
  }

  template <Element Dy, Element X>
  void backward_any(MatrixView<const Dy> given, MatrixView<X> dx) {
    require(!scaled_.empty(), "CrossInteraction: backward comes before any forward");
    check("output gradient", given, x_.rows);
    check("input gradient", dx, x_.rows);
    check_input_gradient<X>();
    const MatrixView<float> g = detail::floats_in(gradient_, x_.rows, width()),
                            ds = detail::floats_in(scale_gradient_, x_.rows, width()),
                            product = detail::floats_in(product_, x_.rows, width()),
                            dt = detail::floats_in(narrow_gradient_, x_.rows, rank());
    const MatrixView<const float> dy = detail::as_floats(backend_, given, gradient_);
    MatrixView<float> sum;  // of dx, as floats
    if constexpr (std::is_same_v<X, float>) {
      sum = dx;
    } else {
      sum = detail::floats_in(input_sum_, x_.rows, width());
    }
    for (int l = layers() - 1; l >= 0; --l) {
      const bool last = l + 1 == layers();
      const MatrixView<const float> above = last ? dy : MatrixView<const float>(g);
      const MatrixView<const float> scale(scaled_[static_cast<std::size_t>(l)].data(), x_.rows,
                                          width());
      rows([&](std::int64_t r) {
        const float* __restrict x0 = x_.row(r);
        const float* __restrict s = scale.row(r);
        const float* __restrict up = above.row(r);
        float* __restrict to_scale = ds.row(r);
        float* __restrict to_x0 = sum.row(r);
        for (std::int64_t k = 0; k < width(); ++k) {
          to_scale[k] = up[k] * x0[k];
          to_x0[k] = (last ? 0.0f : to_x0[k]) + up[k] * s[k];
        }
      });
      u(l).backward(ds, low_rank() ? dt : product);
      if (low_rank()) v(l).backward(dt, product);
      rows([&](std::int64_t r) {
        const float* __restrict p = product.row(r);
        const float* up = above.row(r);
        float* below = l == 0 ? sum.row(r) : g.row(r);
        if (l == 0) {
          if constexpr (std::is_same_v<X, float>) {
            for (std::int64_t k = 0; k < width(); ++k) below[k] += up[k] + p[k];
          } else {
            X* const to = dx.row(r);
            for (std::int64_t k = 0; k < width(); ++k)
              to[k] = from_float<X>(below[k] + (up[k] + p[k]));
          }
        } else {
          for (std::int64_t k = 0; k < width(); ++k) below[k] = up[k] + p[k];
        }
      });
    }
  }

  template <class F>
  void rows(const F& f) const {
    const std::int64_t count = x_.rows, parts = backend_.threads();
    detail::parallel_for(backend_.threads(), parts, [&](std::int64_t part, int) {
      for (std::int64_t r = count * part / parts; r < count * (part + 1) / parts; ++r) f(r);
    });
  }

  Host backend_;
  std::vector<LinearLayer> v_, u_;
  MatrixView<const float> x_;
  /// per layer: U V x + b, the layer's output, V x
  std::vector<std::vector<float>> scaled_, states_, narrow_;
  std::vector<float> gradient_, scale_gradient_, product_, narrow_gradient_;
  std::vector<float> widened_, input_sum_;  ///< x and dx of 16 bits, as floats
};

}}  // namespace tessera::v0
