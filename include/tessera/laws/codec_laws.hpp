// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/codec.hpp>
#include <tessera/laws/faults.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace tessera { inline namespace v0 { namespace laws {

namespace detail {

/// Returns whether lanes of a GPU make the same of a row together: a range joined from pieces, the
/// last first; a header; pieces of four columns.
template <LaneCodec C>
bool lanes_agree(const std::vector<float>& row, const std::byte* encoded, const float* decoded) {
  const int width = static_cast<int>(row.size());
  const std::size_t head = C::bytes(0), piece = C::bytes(4) - head;
  typename C::Range range;
  for (int c = (width - 1) / 4 * 4; c >= 0; c -= 4)
    range = C::join(range, C::range(row.data() + c, std::min(4, width - c)));
  const typename C::Header header = C::header(range);
  bool same = head == 0 || (head == sizeof(header) && std::memcmp(encoded, &header, head) == 0);
  for (int c = 0; c < width; c += 4) {
    const int count = std::min(4, width - c);
    float four[4] = {7, 7, 7, 7};
    std::copy_n(row.data() + c, count, four);
    alignas(16) std::byte out[64];
    C::encode_four(header, four, count, out);
    const std::size_t at = head + static_cast<std::size_t>(c / 4) * piece,
                      bytes = C::bytes(count) - head;
    same = same && at + bytes <= C::bytes(width) && std::memcmp(encoded + at, out, bytes) == 0;
    C::decode_four(header, out, four);
    same = same &&
           std::memcmp(decoded + c, four, static_cast<std::size_t>(count) * sizeof(float)) == 0;
  }
  return same;
}

}  // namespace detail

/// Checks a codec (docs/concepts/codec.md) on random rows of widths 1 to 130. `bound(row, column)`:
/// the largest error that element may have. Needs no test framework; returns what it found wrong,
/// repeated faults counted.
template <class C>
std::vector<std::string> codec_laws(
    const std::function<double(const std::vector<float>&, std::size_t)>& bound) {
  static_assert(explain_codec<C>());
  detail::Faults faults;
  std::mt19937 random(7);
  constexpr std::byte guard{0xa5};
  for (int width = 1; width <= 130; ++width) {
    const std::size_t bytes = C::bytes(width);
    faults.expect(bytes % 4 == 0, "{}, width {}: bytes() is {}, no multiple of 4", C::name, width,
                  bytes);
    std::vector<float> row(static_cast<std::size_t>(width)), decoded(row.size() + 1, 77.0f);
    std::normal_distribution<float> normal(std::normal_distribution<float>(0, 2)(random),
                                           std::exp(std::normal_distribution<float>(0, 3)(random)));
    for (float& x : row) x = normal(random);
    std::vector<std::byte> encoded(bytes + 4, guard), again(bytes + 4, std::byte{0x5a});
    C::encode(row.data(), width, encoded.data());
    C::encode(row.data(), width, again.data());
    faults.expect(std::memcmp(encoded.data(), again.data(), bytes) == 0,
                  "{}, width {}: not every byte is written, or not the same twice", C::name, width);
    faults.expect(encoded[bytes] == guard, "{}, width {}: encode writes beyond bytes()", C::name,
                  width);
    C::decode(encoded.data(), width, decoded.data());
    faults.expect(decoded.back() == 77.0f, "{}, width {}: decode writes beyond the row", C::name,
                  width);
    if constexpr (LaneCodec<C>)
      faults.expect(detail::lanes_agree<C>(row, encoded.data(), decoded.data()),
                    "{}, width {}: pieces of four columns are not what encode and decode make",
                    C::name, width);
    for (std::size_t c = 0; c < row.size(); ++c)
      faults.expect(std::abs(static_cast<double>(decoded[c]) - row[c]) <= bound(row, c),
                    "{}, width {}: element {} is {}, arrives as {}", C::name, width, c, row[c],
                    decoded[c]);
  }
  return faults.take();
}

}}}  // namespace tessera::v0::laws
