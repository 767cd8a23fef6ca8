// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

namespace tessera::inline v0::detail {

/// What a row's normalization needs again on the way back.
struct RowMoments {
  float mean = 0;
  float scale = 0;  ///< 1 / sqrt(variance + epsilon)
};

/// y = (x - mean) scale weight + bias, over a row of `width` elements. Sums are in double.
inline RowMoments layer_norm(const float* x, const float* weight, const float* bias, float epsilon,
                             std::int64_t width, float* y) {
  double sum = 0, squares = 0;
  for (std::int64_t c = 0; c < width; ++c) sum += x[c];
  const double mean = sum / static_cast<double>(width);
  for (std::int64_t c = 0; c < width; ++c) squares += (x[c] - mean) * (x[c] - mean);
  const RowMoments moments{
      static_cast<float>(mean),
      static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(width) + epsilon))};
  for (std::int64_t c = 0; c < width; ++c)
    y[c] = (x[c] - moments.mean) * moments.scale * weight[c] + bias[c];
  return moments;
}

/// Adds to `dx` (where it is wanted as a sum) the gradient of the row; adds to the gradients of
/// weight and bias.
inline void layer_norm_backward(const float* x, const float* weight, RowMoments moments,
                                const float* dy, std::int64_t width, float* dx, float* dweight,
                                float* dbias) {
  double sum = 0, product = 0;
  for (std::int64_t c = 0; c < width; ++c) {
    const float normal = (x[c] - moments.mean) * moments.scale, g = dy[c] * weight[c];
    dweight[c] += dy[c] * normal;
    dbias[c] += dy[c];
    sum += g;
    product += double{g} * normal;
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(width)),
             slope = static_cast<float>(product / static_cast<double>(width));
  for (std::int64_t c = 0; c < width; ++c) {
    const float normal = (x[c] - moments.mean) * moments.scale;
    dx[c] += moments.scale * (dy[c] * weight[c] - mean - normal * slope);
  }
}

}  // namespace tessera::inline v0::detail
