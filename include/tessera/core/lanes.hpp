// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Floats in a vector register of the processor that is compiled for. Longer vectors would be
/// legal, but g++ 12 moves them through memory piece by piece (measured on AVX2: an update of
/// narrow rows takes twice as long).
#if defined(__AVX512F__)
inline constexpr int native_lanes = 16;
#elif defined(__AVX__)
inline constexpr int native_lanes = 8;
#else
inline constexpr int native_lanes = 4;
#endif

template <class T, int N>
struct VectorOf {
  // NOLINTNEXTLINE(modernize-use-using): clang wants the attribute here
  typedef T Type __attribute__((vector_size(N * sizeof(T))));
};
template <class T>
struct VectorOf<T, 1> {
  using Type = T;
};

/// N values of T with arithmetic operators, lane by lane (a GNU extension of g++ and clang, on any
/// processor).
template <class T, int N>
using Vector = typename VectorOf<T, N>::Type;

/// Returns N copies of x.
template <int N>
[[gnu::always_inline]] inline Vector<float, N> broadcast(float x) {
  return x - Vector<float, N>{};
}

/// Returns a * b + c in one rounding if the processor can, everywhere alike: left to the
/// compiler, the same sum is fused in one function and not in another, and results would depend on
/// where a width's columns are cut into registers.
template <int N>
[[gnu::always_inline]] inline Vector<float, N> multiply_add(Vector<float, N> a, Vector<float, N> b,
                                                            Vector<float, N> c) {
#if defined(__FMA__)
  if constexpr (N == 1) {
    return __builtin_fmaf(a, b, c);
  } else {
    asm("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
  }
#elif defined(__ARM_FEATURE_FMA)
  if constexpr (N == 1) {
    return __builtin_fmaf(a, b, c);
  } else {
    for (int i = 0; i < N; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
  }
#else
  return a * b + c;
#endif
}

/// Returns the same of an `a` that is not read afterwards: the result takes its register, where
/// that of multiply_add takes a copy of c.
template <int N>
[[gnu::always_inline]] inline Vector<float, N> multiply_add_over(Vector<float, N> a,
                                                                 Vector<float, N> b,
                                                                 Vector<float, N> c) {
#if defined(__FMA__)
  if constexpr (N != 1) {
    asm("vfmadd213ps %2, %1, %0" : "+v"(a) : "v"(b), "v"(c));
    return a;
  }
#endif
  return multiply_add<N>(a, b, c);
}

/// Calls f(0), f(1), ..., f(N - 1) as integral constants: unrolled for certain, so that arrays of
/// vectors stay in registers.
template <int N, class F>
[[gnu::always_inline]] inline void unrolled(F&& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, I>{}), ...);
  }(std::make_integer_sequence<int, N>{});
}

}}}  // namespace tessera::v0::detail
