// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>

#include <cstdint>

namespace tessera::inline v0 {

/// Of a CrossInteraction on any backend.
struct CrossOptions {
  int layers = 3;
  std::int64_t rank = 0;  ///< 0: full, U_l [width, width] alone
  bool tf32 = false;      ///< as MlpOptions'
};

namespace detail {

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

  /// What U_l takes.
  std::int64_t inner() const { return low_rank() ? rank_ : width_; }
  std::int64_t v_size() const { return rank_ * width_; }
  std::int64_t u_size() const { return width_ * inner(); }
  std::int64_t layer_parameters() const { return v_size() + u_size() + width_; }

  template <class View>
  void check(const char* what, const View& view, std::int64_t rows) const {
    require(view.rows == rows && view.columns == width_,
            "CrossInteraction: {} is {} x {}, must be {} x {}", what, view.rows, view.columns, rows,
            width_);
  }

 private:
  std::int64_t width_;
  int layers_;
  std::int64_t rank_;
};

}  // namespace detail

}  // namespace tessera::inline v0
