// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/codec.hpp>

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace tessera::laws {

/// Checks a codec (docs/concepts/codec.md) on random rows of widths 1 to 130. `bound(row, column)`: the largest error that element may
/// have. Needs no test framework: returns one line per fault.
template <class C>
std::vector<std::string> codec_laws(const std::function<double(const std::vector<float>&, std::size_t)>& bound) {
  static_assert(explain_codec<C>());
  std::vector<std::string> faults;
  std::mt19937 random(7);
  constexpr std::byte guard{0xa5};
  for (int width = 1; width <= 130; ++width) {
    const auto fault = [&](const std::string& text) { faults.push_back(fmt::format("{}, width {}: {}", C::name, width, text)); };
    const std::size_t bytes = C::bytes(width);
    if (bytes % 4 != 0) fault(fmt::format("bytes() is {}, no multiple of 4", bytes));
    std::vector<float> row(static_cast<std::size_t>(width)), decoded(row.size() + 1, 77.0f);
    std::normal_distribution<float> normal(std::normal_distribution<float>(0, 2)(random),
                                           std::exp(std::normal_distribution<float>(0, 3)(random)));
    for (float& x : row) x = normal(random);
    std::vector<std::byte> encoded(bytes + 4, guard), again(bytes + 4, std::byte{0x5a});
    C::encode(row.data(), width, encoded.data());
    C::encode(row.data(), width, again.data());
    if (std::memcmp(encoded.data(), again.data(), bytes) != 0) fault("not every byte is written, or not the same twice");
    if (encoded[bytes] != guard) fault("encode writes beyond bytes()");
    C::decode(encoded.data(), width, decoded.data());
    if (decoded.back() != 77.0f) fault("decode writes beyond the row");
    for (std::size_t c = 0; c < row.size(); ++c)
      if (!(std::abs(static_cast<double>(decoded[c]) - row[c]) <= bound(row, c)))
        fault(fmt::format("element {} is {}, arrives as {}", c, row[c], decoded[c]));
  }
  return faults;
}

}  // namespace tessera::laws
