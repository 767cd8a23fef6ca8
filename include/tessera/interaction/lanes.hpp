// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/lanes.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

template <int Lanes>
using Floats = Vector<float, Lanes>;

template <int Lanes>
[[gnu::always_inline]] inline Floats<Lanes> load_lanes(const float* p) {
  Floats<Lanes> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <int Lanes>
[[gnu::always_inline]] inline void store_lanes(float* p, Floats<Lanes> v) {
  std::memcpy(p, &v, sizeof v);
}

/// Adds neighbouring groups of `Half` lanes: even groups of the result come from a, odd ones from
/// b.
template <int Half, int Lanes>
[[gnu::always_inline]] inline Floats<Lanes> fold_lanes(Floats<Lanes> a, Floats<Lanes> b) {
  return [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
#ifdef __clang__
    const Floats<Lanes> straight =
        __builtin_shufflevector(a, b, ((I / Half) % 2 == 0 ? I : Lanes + I)...);
    const Floats<Lanes> crossed =
        __builtin_shufflevector(a, b, ((I / Half) % 2 == 0 ? I + Half : Lanes + I - Half)...);
#else  // g++ has the other builtin too, but what nvcc 13 hands it of a pack among its arguments does not compile
    using Indices = Vector<int, Lanes>;
    const Floats<Lanes> straight =
        __builtin_shuffle(a, b, Indices{((I / Half) % 2 == 0 ? I : Lanes + I)...});
    const Floats<Lanes> crossed =
        __builtin_shuffle(a, b, Indices{((I / Half) % 2 == 0 ? I + Half : Lanes + I - Half)...});
#endif
    return straight + crossed;
  }(std::make_integer_sequence<int, Lanes>{});
}

/// Returns sums of lanes: lane i of the result is the sum of all lanes of v[i], i < Count <= Lanes;
/// further lanes are 0. A tree of folds: one vector of sums costs about three operations per summed
/// vector instead of a horizontal sum each. Overwrites v.
template <int Lanes, int Count, int Half = Lanes / 2>
[[gnu::always_inline]] inline Floats<Lanes> sum_of_lanes(Floats<Lanes>* v) {
  constexpr int kLeft = std::min(Half, Count);
  unrolled<kLeft>([&](auto i) __attribute__((always_inline)) {
    if constexpr (i() + Half < Count) {
      v[i()] = fold_lanes<Half, Lanes>(v[i()], v[i() + Half]);
    } else {
      v[i()] = fold_lanes<Half, Lanes>(v[i()], Floats<Lanes>{});
    }
  });
  if constexpr (Half > 1) {
    return sum_of_lanes<Lanes, kLeft, Half / 2>(v);
  } else {
    return v[0];
  }
}

}}}  // namespace tessera::v0::detail
