// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tessera { inline namespace v0 {

/// Of a CrossInteraction on any backend.
struct CrossOptions {
  int layers = 3;
  std::int64_t rank = 0;  ///< 0: full, U_l [width, width] alone
  bool tf32 = false;      ///< as MlpOptions'
  /// Of products. On Cuda in bfloat16 what is between them has 16 bits, too: x, each layer's
  /// U V x + b, output and their gradients; elements are worked out, and dx summed, in float.
  DensePrecision precision = DensePrecision::float32;
  int candidates = 1;  ///< as MlpOptions'
};

namespace detail {

/// Whether a matrix of `From` that is read or one of `To` that is written has other elements than
/// floats: then the overloads for 16 bits are meant.
template <class From, class To>
inline constexpr bool narrow_ends =
    !(std::is_same_v<std::remove_const_t<From>, float> && std::is_same_v<To, float>);

template <class From, class To>
consteval bool explain_cross_ends() {
  static_assert(Element<std::remove_const_t<From>>,
                "CrossInteraction: the matrix that is read must hold float, BFloat16 or Half "
                "(docs/concepts/interaction.md)");
  static_assert(Element<To>,
                "CrossInteraction: the matrix that is written must hold float, BFloat16 or Half, "
                "not const (docs/concepts/interaction.md)");
  return Element<std::remove_const_t<From>> && Element<To>;
}

/// What DCNv2's cross layers, x_{l+1} = x_0 * (U_l (V_l x_l) + b_l) + x_l, are on every backend:
/// sizes, the order of their parameters (V_0 [rank, width], U_0 [width, rank], b_0 [width], V_1,
/// ...; with rank 0 U_l is [width, width] and there is no V_l), and the shapes that forward and
/// backward take.
class CrossLayers {
 public:
  std::int64_t width() const { return width_; }
  std::int64_t input_size() const { return width_; }
  std::int64_t output_size() const { return width_; }
  int layers() const { return layers_; }
  std::int64_t rank() const { return rank_; }
  bool low_rank() const { return rank_ > 0; }
  std::int64_t parameter_count() const { return layers_ * layer_parameters(); }

 protected:
  CrossLayers(std::int64_t width, CrossOptions options)
      : width_(width), layers_(options.layers), rank_(options.rank) {
    require(width > 0, "CrossInteraction: width must be positive, is {}", width);
    require(layers_ >= 1, "CrossInteraction: needs at least one layer, got {}", layers_);
    require(rank_ >= 0, "CrossInteraction: rank must not be negative (0 is full rank), is {}",
            rank_);
  }

  /// Returns what U_l takes.
  std::int64_t inner() const { return low_rank() ? rank_ : width_; }
  std::int64_t v_size() const { return rank_ * width_; }
  std::int64_t u_size() const { return width_ * inner(); }
  std::int64_t layer_parameters() const { return v_size() + u_size() + width_; }

  template <class View>
  void check(const char* what, const View& view, std::int64_t rows) const {
    require(view.rows == rows && view.columns == width_,
            "CrossInteraction: {} is {} x {}, must be {} x {}", what, view.rows, view.columns, rows,
            width_);
    require(view.sound(), "CrossInteraction: {} has no memory, or a stride below its columns",
            what);
  }

  /// Remembers that forward has read an x of T.
  template <Element T>
  void remember_input() {
    input_ = element_name<T>();
  }
  /// Checks that the input's gradient has T, too.
  template <Element T>
  void check_input_gradient() const {
    require(input_ == std::string_view(element_name<T>()),
            "CrossInteraction: the last forward read an input of {}, its gradient is to be {}; "
            "give one of the same type",
            input_, element_name<T>());
  }

 private:
  std::int64_t width_;
  int layers_;
  std::int64_t rank_;
  std::string_view input_ = element_name<float>();
};

/// The two directions for every type of their ends. `Layers`, derived from this, has forward_any(x,
/// y) and backward_any(dy, dx).
template <class Layers>
class CrossEnds {
 public:
  /// Computes y [batch, width] from x [batch, width]; both may be columns of wider matrices.
  /// Remembers x, which must not change until backward. y may not overlap x.
  void forward(MatrixView<const float> x, MatrixView<float> y) { derived().forward_any(x, y); }
  /// Computes the same if x, y or both are stored in 16 bits (BFloat16, Half). Everything between
  /// them is in CrossOptions::precision, and each element of y is rounded once, to nearest even. On
  /// Host that is the float y of the widened x, rounded; on Cuda products may be summed in another
  /// order, so that an element may be one step of 16 bits apart.
  template <class X, class Y>
    requires narrow_ends<X, Y>
  void forward(MatrixView<X> x, MatrixView<Y> y) {
    if constexpr (explain_cross_ends<X, Y>())
      derived().forward_any(MatrixView<const std::remove_const_t<X>>(x), y);
  }

  /// Computes, after forward, from dy the gradients of all parameters and dx (both overwritten). dx
  /// may not overlap dy or x.
  void backward(MatrixView<const float> dy, MatrixView<float> dx) {
    derived().backward_any(dy, dx);
  }
  /// Computes the same if dy, dx or both are stored in 16 bits: dx as x is (else throws
  /// InvalidArgument), dy in any type. dx is summed in float and each element rounded once.
  template <class Dy, class Dx>
    requires narrow_ends<Dy, Dx>
  void backward(MatrixView<Dy> dy, MatrixView<Dx> dx) {
    if constexpr (explain_cross_ends<Dy, Dx>())
      derived().backward_any(MatrixView<const std::remove_const_t<Dy>>(dy), dx);
  }

 private:
  Layers& derived() { return static_cast<Layers&>(*this); }
};

}  // namespace detail

}}  // namespace tessera::v0
