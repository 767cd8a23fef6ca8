// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <cmath>

namespace tessera { inline namespace v0 { namespace math {

// For optimizers that are written for any value type V: backends overload these for their vectors
// (host/lanes.hpp). A function that calls them writes `using namespace tessera::math;` first, so
// that both the functions here and the overloads are found.

/// Returns the square root, correctly rounded.
TESSERA_HOST_DEVICE inline float square_root(float x) { return std::sqrt(x); }

/// Returns a * b + c in one rounding if the processor can (GPUs and all x86-64-v3 can): left to the
/// compiler, the same formula is fused in one place and not in another, and bits differ.
TESSERA_HOST_DEVICE inline float multiply_add(float a, float b, float c) {
#if TESSERA_HAS_FMA
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// Returns the larger of two values; `b` if one is NaN.
TESSERA_HOST_DEVICE inline float maximum(float a, float b) { return a > b ? a : b; }
/// Returns the smaller of two values; `b` if one is NaN.
TESSERA_HOST_DEVICE inline float minimum(float a, float b) { return a < b ? a : b; }

/// Returns |x|.
TESSERA_HOST_DEVICE inline float absolute(float x) { return std::fabs(x); }

/// Returns 1 or -1; x itself if it is zero or NaN.
TESSERA_HOST_DEVICE inline float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }

/// Returns a if `condition` holds, else b: `select(gradient > 0.0f, a, b)`. Both are evaluated.
TESSERA_HOST_DEVICE inline float select(bool condition, float a, float b) {
  return condition ? a : b;
}

}}}  // namespace tessera::v0::math
