// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/interaction/lanes.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// What an AnyDotInteraction is on every backend: its shape, and checks of matrices.
class AnyDotShape {
 public:
  /// Throws InvalidArgument unless all are at least 1.
  AnyDotShape(std::int64_t vectors, std::int64_t width, std::int64_t pad_to)
      : vectors_(vectors), width_(width), pad_to_(pad_to) {
    require(vectors >= 1 && width >= 1 && pad_to >= 1,
            "AnyDotInteraction: vectors ({}), width ({}) and pad_to ({}) must be at least 1",
            vectors, width, pad_to);
  }

  std::int64_t input_columns() const { return vectors_ * width_; }
  std::int64_t pairs() const { return vectors_ * (vectors_ - 1) / 2; }
  /// Returns the columns of z: what the top MLP takes.
  std::int64_t columns() const { return (width_ + pairs() + pad_to_ - 1) / pad_to_ * pad_to_; }

 protected:
  void check_forward(MatrixView<const float> x, MatrixView<float> z) const {
    check("input", x, x.rows, input_columns());
    check("output", z, x.rows, columns());
  }
  void check_backward(MatrixView<const float> x, MatrixView<const float> dz,
                      MatrixView<float> dx) const {
    check("input", x, x.rows, input_columns());
    check("output gradient", dz, x.rows, columns());
    check("input gradient", dx, x.rows, input_columns());
  }

  std::int64_t vectors_, width_;

 private:
  void check(const char* what, MatrixView<const float> view, std::int64_t rows,
             std::int64_t columns) const {
    require(view.rows == rows && view.columns == columns,
            "AnyDotInteraction of {} vectors of {}: {} is {} x {}, must be {} x {}", vectors_,
            width_, what, view.rows, view.columns, rows, columns);
    require(view.sound(), "AnyDotInteraction: {} has no memory, or a stride below its columns",
            what);
  }

  std::int64_t pad_to_;
};

}  // namespace detail

/// DotInteraction of float vectors whose number and width are known at run time, from one piece of
/// code for all shapes, which is not unrolled for any. On the host the same z, bit for bit; it keeps
/// memory if a width is no multiple of a register, so that one object serves one caller at a
/// time. `AnyDotInteraction<Cuda>` is in tessera/interaction/dot.cuh.
template <class Backend = Host>
class AnyDotInteraction {
  static_assert(sizeof(Backend) == 0,
                "AnyDotInteraction: include tessera/interaction/dot.cuh for Cuda");
};
template <class Backend>
AnyDotInteraction(const Backend&, std::int64_t, std::int64_t, std::int64_t = 1)
    -> AnyDotInteraction<Backend>;

template <>
class AnyDotInteraction<Host> : public detail::AnyDotShape {
 public:
  /// Throws InvalidArgument unless all are at least 1.
  AnyDotInteraction(const Host& backend, std::int64_t vectors, std::int64_t width,
                    std::int64_t pad_to = 1)
      : AnyDotShape(vectors, width, pad_to), threads_(backend.threads()) {
    lanes_ = static_cast<int>(std::clamp<std::int64_t>(
        static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(width))), 4,
        detail::native_lanes));
    stride_ = (width + lanes_ - 1) / lanes_ * lanes_;
    if (stride_ != width) copies_.resize(static_cast<std::size_t>(threads_ * vectors * stride_));
  }

  /// Computes z [batch, columns()] from x [batch, input_columns()]; both may be columns of wider
  /// matrices.
  void forward(MatrixView<const float> x, MatrixView<float> z) {
    check_forward(x, z);
    over_threads(x.rows, [&](std::int64_t begin, std::int64_t end, int thread) {
      for (std::int64_t s = begin; s < end; ++s) {
        float* const out = std::copy_n(x.row(s), width_, z.row(s));
        const float* const vectors = aligned(x.row(s), thread);
        if (lanes_ == detail::native_lanes) {
          triangle<detail::native_lanes>(vectors, out);
        } else if (lanes_ == 4) {
          triangle<4>(vectors, out);
        } else {
          triangle<std::min(8, detail::native_lanes)>(vectors, out);
        }
        std::fill(out + pairs(), z.row(s) + columns(), 0.0f);
      }
    });
  }

  /// Computes dx (overwritten) from dz. dx may not overlap x or dz.
  void backward(MatrixView<const float> x, MatrixView<const float> dz, MatrixView<float> dx) {
    check_backward(x, dz, dx);
    over_threads(x.rows, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t s = begin; s < end; ++s) {
        const float* const from = x.row(s);
        const float* gradient = dz.row(s);
        float* const to = dx.row(s);
        std::fill(std::copy_n(gradient, width_, to), to + input_columns(), 0.0f);
        gradient += width_;
        for (std::int64_t i = 1; i < vectors_; ++i)
          for (std::int64_t j = 0; j < i; ++j, ++gradient)
            for (std::int64_t c = 0; c < width_; ++c) {
              to[i * width_ + c] += *gradient * from[j * width_ + c];
              to[j * width_ + c] += *gradient * from[i * width_ + c];
            }
      }
    });
  }

 private:
  template <class F>
  void over_threads(std::int64_t count, const F& f) const {
    if (threads_ == 1 || count <= 1) return f(std::int64_t{0}, count, 0);
    detail::parallel_for(threads_, threads_, [&](std::int64_t t, int) {
      f(count * t / threads_, count * (t + 1) / threads_, static_cast<int>(t));
    });
  }

  /// Returns a sample's vectors `stride_` apart, with zeros behind each.
  const float* aligned(const float* x, int thread) {
    if (stride_ == width_) return x;
    float* const copy = copies_.data() + thread * vectors_ * stride_;
    for (std::int64_t v = 0; v < vectors_; ++v)
      std::copy_n(x + v * width_, width_, copy + v * stride_);
    return copy;
  }

  static std::int64_t triangle_row(std::int64_t i) { return i * (i - 1) / 2; }

  /// Computes four rows of the triangle at a time: tiles left of the diagonal, then its own corner.
  template <int Lanes>
  void triangle(const float* x, float* out) const {
    for (std::int64_t row = 0; row < vectors_; row += 4) {
      const std::int64_t rows = std::min<std::int64_t>(4, vectors_ - row);
      if (rows == 4) {
        block<Lanes, 4>(x, row, out);
      } else if (rows == 3) {
        block<Lanes, 3>(x, row, out);
      } else if (rows == 2) {
        block<Lanes, 2>(x, row, out);
      } else {
        block<Lanes, 1>(x, row, out);
      }
    }
  }
  template <int Lanes, int Rows>
  void block(const float* x, std::int64_t row, float* out) const {
    constexpr int kColumns = Lanes == 16 ? 4 : 2;
    for (std::int64_t column = 0; column < row; column += kColumns)
      tile<Lanes, Rows, kColumns>(x, row, column, out);
    detail::unrolled<Rows>([&](auto i) __attribute__((always_inline)) {
      detail::unrolled<i()>([&](auto j) __attribute__((always_inline)) {
        tile<Lanes, 1, 1>(x, row + i(), row + j(), out);
      });
    });
  }

  /// Computes products of some vectors with others, as DotInteraction sums them: lane by lane, then
  /// all lanes by a tree of folds.
  template <int Lanes, int Rows, int Columns>
  [[gnu::always_inline]] void tile(const float* x, std::int64_t row, std::int64_t column,
                                   float* out) const {
    constexpr int kCount = Rows * Columns, kPadded = (kCount + Lanes - 1) / Lanes * Lanes;
    using Vector = detail::Floats<Lanes>;
    Vector sums[kPadded] = {};
    const float* const a = x + row * stride_;
    const float* const b = x + column * stride_;
    for (std::int64_t k = 0; k < stride_; k += Lanes) {
      Vector right[Columns];
      detail::unrolled<Columns>([&](auto j) __attribute__((always_inline)) {
        right[j()] = detail::load_lanes<Lanes>(b + j() * stride_ + k);
      });
      detail::unrolled<Rows>([&](auto i) __attribute__((always_inline)) {
        const Vector left = detail::load_lanes<Lanes>(a + i() * stride_ + k);
        detail::unrolled<Columns>([&](auto j) __attribute__((always_inline)) {
          Vector& sum = sums[i() * Columns + j()];
          sum = detail::multiply_add<Lanes>(left, right[j()], sum);
        });
      });
    }
    alignas(64) float dots[kPadded];
    detail::unrolled<kPadded / Lanes>([&](auto group) __attribute__((always_inline)) {
      constexpr int kBegin = group() * Lanes;
      detail::store_lanes<Lanes>(
          dots + kBegin,
          detail::sum_of_lanes<Lanes, std::min(Lanes, kCount - kBegin)>(sums + kBegin));
    });
    for (int i = 0; i < Rows; ++i)
      std::memcpy(out + triangle_row(row + i) + column, dots + i * Columns,
                  Columns * sizeof(float));
  }

  int threads_, lanes_ = 0;
  std::int64_t stride_ = 0;    ///< between vectors, in whole registers
  std::vector<float> copies_;  ///< of a sample's vectors, by thread, where they are not that
};

}}  // namespace tessera::v0
