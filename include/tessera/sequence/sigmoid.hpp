// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns e^x for |x| up to 87, to two units in the last place: what compilers turn into vector
/// instructions, as they do not the library's function. Method and coefficients: Cephes, expf.
inline float exp_near(float x) {
  constexpr float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const float shifted = x * 1.44269504f + magic, whole = shifted - magic;
  const float r = x - whole * 0.693359375f - whole * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - 0x4b400000 + 127;
  return p * std::bit_cast<float>(exponent << 23);
}

inline float sigmoid(float x) {
  const float bounded = x < -87.0f ? -87.0f : x > 87.0f ? 87.0f : x;
  return x != x ? x : 1.0f / (1.0f + exp_near(-bounded));
}

/// Computes y = factor x sigmoid(x).
inline void silu(const float* x, float* y, std::int64_t count, float factor = 1.0f) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = factor * (x[i] * sigmoid(x[i]));
}

/// Computes dx = dy times the derivative of silu at x. dx may be dy.
inline void silu_backward(const float* x, const float* dy, float* dx, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float s = sigmoid(x[i]);
    dx[i] = dy[i] * (s + x[i] * s * (1.0f - s));
  }
}

/// Computes both at once: y = x sigmoid(x), g times the derivative, each times its factor.
inline void silu_and_slope(float* x, float* g, std::int64_t count, float x_factor, float g_factor) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float s = sigmoid(x[i]), y = x[i] * s;
    g[i] = g_factor * g[i] * (s + y * (1.0f - s));
    x[i] = x_factor * y;
  }
}

}}}  // namespace tessera::v0::detail
