// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace tessera { inline namespace v0 { namespace detail {

// <cmath> may not be used in constant expressions. These may, to about 1e-14; written with few
// statements, which compilers count.

/// Returns e^x; 0 below -700, e^700 above 700.
constexpr double constexpr_exp(double x) {
  const double bounded = x < -700 ? -700 : x > 700 ? 700 : x;
  const auto k =
      static_cast<std::int64_t>(bounded * 1.4426950408889634 + (bounded < 0 ? -0.5 : 0.5));
  const double r = (bounded - static_cast<double>(k) * 0x1.62e42feep-1) -
                   static_cast<double>(k) * 1.90821492927058770002e-10;
  // The Taylor series to r^13/13!, |r| <= ln(2)/2.
  return x < -700
             ? 0
             : (1 +
                r * (1 +
                     r / 2 *
                         (1 +
                          r / 3 *
                              (1 +
                               r / 4 *
                                   (1 +
                                    r / 5 *
                                        (1 +
                                         r / 6 *
                                             (1 +
                                              r / 7 *
                                                  (1 +
                                                   r / 8 *
                                                       (1 +
                                                        r / 9 *
                                                            (1 +
                                                             r / 10 *
                                                                 (1 +
                                                                  r / 11 *
                                                                      (1 +
                                                                       r / 12 *
                                                                           (1 +
                                                                            r / 13))))))))))))) *
                   std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

/// Returns ln x of a positive normal number.
constexpr double constexpr_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // [1, 2)
  const double m = std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  const bool upper = m > 1.4142135623730951;
  const double half = upper ? m / 2 : m, s = (half - 1) / (half + 1), z = s * s;
  // 2 atanh(s), |s| < 0.172, to s^21/21.
  return (static_cast<double>(bits >> 52) - (upper ? 1022 : 1023)) * 0.6931471805599453 +
         2 * s *
             (1 +
              z * (1.0 / 3 +
                   z * (1.0 / 5 +
                        z * (1.0 / 7 +
                             z * (1.0 / 9 +
                                  z * (1.0 / 11 +
                                       z * (1.0 / 13 +
                                            z * (1.0 / 15 +
                                                 z * (1.0 / 17 + z * (1.0 / 19 + z / 21))))))))));
}

/// Returns x^y for x >= 0.
constexpr double constexpr_pow(double x, double y) {
  return y == 0 ? 1 : x <= 0 ? 0 : constexpr_exp(y * constexpr_log(x));
}

}}}  // namespace tessera::v0::detail
