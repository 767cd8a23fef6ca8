// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/random.hpp>
#include <tessera/laws/faults.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera { inline namespace v0 { namespace laws { namespace detail {

/// Returns a number in [-1, 1) of a fixed stream.
inline float number(std::uint64_t stream, std::size_t i) {
  return static_cast<float>(random_word(11, stream, i) >> 40) * 0x1p-23f - 1.0f;
}

/// Compares a gradient with the slope of value(step): what a sum of outputs, weighted by dy, is
/// where the numbers that the gradient is of are moved by step * number(direction, i). At a kink,
/// as a ReLU has one, the slopes to either side differ, and the gradient is one of them or between.
template <class Value>
void expect_slope(Faults& faults, std::string_view of, std::uint64_t direction,
                  const std::vector<float>& gradient, double tolerance, double step,
                  const Value& value) {
  const auto h = static_cast<float>(step);
  const double at = value(0.0f), left = (at - value(-h)) / h, right = (value(h) - at) / h;
  double expected = 0, squares = 1e-3;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double part = double{gradient[i]} * number(direction, i);
    expected += part, squares += part * part;
  }
  const double nearest = std::clamp(expected, std::min(left, right), std::max(left, right));
  faults.expect(std::abs(nearest - expected) <= tolerance * std::sqrt(squares),
                "backward: along a direction of the {} the slope is {}, the gradients give {}", of,
                (left + right) / 2, expected);
}

}}}}  // namespace tessera::v0::laws::detail
