// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Matrices for the tests of dense layers and interactions.
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace test {

/// The larger magnitude; NaN counts as infinite.
inline double worst(double so_far, double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity()
                           : std::max(so_far, std::abs(error));
}

/// An owned matrix whose rows are `margin` elements apart; all NaN, or with random numbers in [-1,
/// 1) where a seed is given.
template <class T>
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t columns, std::int64_t margin, unsigned seed = 0)
      : rows_(rows),
        columns_(columns),
        stride_(columns + margin),
        values_(static_cast<std::size_t>(rows * stride_ + 1), nan()) {
    if (seed == 0) return;
    std::mt19937 generator(seed);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        (*this)(i, j) =
            tessera::from_float<T>(static_cast<float>(generator() >> 8) * 0x1p-23f - 1.0f);
  }

  T& operator()(std::int64_t i, std::int64_t j) {
    return values_[static_cast<std::size_t>(i * stride_ + j)];
  }
  T operator()(std::int64_t i, std::int64_t j) const {
    return values_[static_cast<std::size_t>(i * stride_ + j)];
  }
  tessera::MatrixView<T> view() { return {values_.data(), rows_, columns_, stride_}; }
  tessera::MatrixView<const T> view() const { return {values_.data(), rows_, columns_, stride_}; }

  bool margin_untouched() const {
    for (std::int64_t i = 0; i < rows_; ++i)
      for (std::int64_t j = columns_; j < stride_; ++j)
        if (!std::isnan(tessera::to_float((*this)(i, j)))) return false;
    return std::isnan(tessera::to_float(values_.back()));
  }

 private:
  static T nan() { return tessera::from_float<T>(std::numeric_limits<float>::quiet_NaN()); }

  std::int64_t rows_, columns_, stride_;
  std::vector<T> values_;
};

}  // namespace test
