// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/convert_rows.hpp>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Inputs and outputs of 16 bits for Mlp<Host>, as Mlp<Cuda> takes them. `Layers`, derived from
/// this, has forward_floats, backward_floats and multiplies_bfloat16.
template <class Layers>
class MlpEnds {
  template <class A, class B>
  static constexpr bool narrow =
      std::is_same_v<std::remove_const_t<A>, BFloat16> || std::is_same_v<B, BFloat16>;

 public:
  /// Computes the same if x, y or both have 16 bits: x is widened, each element of y rounded once.
  /// Throws InvalidArgument unless the precision is bfloat16.
  template <class X, class Y>
    requires narrow<X, Y>
  void forward(MatrixView<X> x, MatrixView<Y> y) {
    require(derived().multiplies_bfloat16(),
            "Mlp: an input or output of 16 bits needs .precision = DensePrecision::bfloat16");
    const MatrixView<const float> wide_x = as_floats<std::remove_const_t<X>>(backend_, x, wide_x_);
    if constexpr (std::is_same_v<Y, float>) {
      derived().forward_floats(wide_x, y);
    } else {
      const MatrixView<float> wide_y = floats_in(wide_y_, y.rows, y.columns);
      derived().forward_floats(wide_x, wide_y);
      op::run<op::ConvertRows<float, Y>>(backend_, {wide_y, y});
    }
    narrow_y_ = std::is_same_v<Y, BFloat16>;
  }

  /// Computes the same if y has 16 bits: so has dy, or it throws InvalidArgument. dx may have
  /// 16 bits, whatever x has.
  template <class Dy, class Dx = float, class Ready = decltype(nullptr)>
    requires narrow<Dy, Dx>
  void backward(MatrixView<Dy> dy, MatrixView<Dx> dx = {}, const Ready& ready = {}) {
    check_output_gradient(std::is_same_v<std::remove_const_t<Dy>, BFloat16>, dy.rows);
    require(derived().multiplies_bfloat16(),
            "Mlp: an input gradient of 16 bits needs .precision = DensePrecision::bfloat16");
    const MatrixView<const float> wide_dy =
        as_floats<std::remove_const_t<Dy>>(backend_, dy, wide_dy_);
    if constexpr (std::is_same_v<Dx, float>) {
      derived().backward_floats(wide_dy, dx, ready);
    } else {
      const MatrixView<float> wide_dx =
          dx.data == nullptr ? MatrixView<float>() : floats_in(wide_dx_, dx.rows, dx.columns);
      derived().backward_floats(wide_dy, wide_dx, ready);
      if (dx.data != nullptr) op::run<op::ConvertRows<float, Dx>>(backend_, {wide_dx, dx});
    }
  }

 protected:
  explicit MlpEnds(const Host& backend) : backend_(backend) {}

  void gave_floats() { narrow_y_ = false; }
  void check_output_gradient(bool narrow_dy, std::int64_t rows) const {
    require(rows == 0 || narrow_dy == narrow_y_,
            "Mlp: an output of 16 bits has a gradient of 16 bits, one of floats has one of floats");
  }

 private:
  Layers& derived() { return static_cast<Layers&>(*this); }

  Host backend_;
  bool narrow_y_ = false;  ///< the last forward's output
  std::vector<float> wide_x_, wide_y_, wide_dy_, wide_dx_;
};

}}}  // namespace tessera::v0::detail
