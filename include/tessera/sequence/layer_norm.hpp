// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns the sum of f(0) .. f(count - 1) in double, eight interleaved sums at a time: an order
/// that vector instructions can follow.
template <class F>
double sum_of(std::int64_t count, const F& f) {
  constexpr int lanes = 8;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += f(i + lane);
  for (int lane = 0; lane < lanes && i < count; ++i, ++lane) sums[lane] += f(i);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// What a row's normalization needs again on the way back.
struct RowMoments {
  float mean = 0;
  float scale = 0;  ///< 1 / sqrt(variance + epsilon)
};

/// Computes y = (x - mean) scale weight + bias, over a row of `width` elements. Sums are in double.
inline RowMoments layer_norm(const float* x, const float* weight, const float* bias, float epsilon,
                             std::int64_t width, float* y) {
  const double mean =
      sum_of(width, [&](std::int64_t c) { return double{x[c]}; }) / static_cast<double>(width);
  const double squares =
      sum_of(width, [&](std::int64_t c) { return (x[c] - mean) * (x[c] - mean); });
  const RowMoments moments{
      static_cast<float>(mean),
      static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(width) + epsilon))};
  for (std::int64_t c = 0; c < width; ++c)
    y[c] = (x[c] - moments.mean) * moments.scale * weight[c] + bias[c];
  return moments;
}

/// Adds to `dx` (if it is wanted as a sum) the gradient of the row; adds to the gradients of
/// weight and bias.
inline void layer_norm_backward(const float* x, const float* weight, RowMoments moments,
                                const float* dy, std::int64_t width, float* dx, float* dweight,
                                float* dbias) {
  const auto normal = [&](std::int64_t c) { return (x[c] - moments.mean) * moments.scale; };
  const auto g = [&](std::int64_t c) { return dy[c] * weight[c]; };
  const double count = static_cast<double>(width);
  const auto mean =
      static_cast<float>(sum_of(width, [&](std::int64_t c) { return double{g(c)}; }) / count);
  const auto slope = static_cast<float>(
      sum_of(width, [&](std::int64_t c) { return double{g(c)} * normal(c); }) / count);
  for (std::int64_t c = 0; c < width; ++c) {
    dweight[c] += dy[c] * normal(c);
    dbias[c] += dy[c];
    dx[c] += moments.scale * (g(c) - mean - normal(c) * slope);
  }
}

}}}  // namespace tessera::v0::detail
