// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/codec/codecs.hpp>
#include <tessera/host/codec.hpp>

#include <tessera/laws/codec_laws.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace tessera;
using Row = std::vector<float>;
using Faults = std::vector<std::string>;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class C>
Row through(const Row& row) {
  std::vector<std::byte> encoded(C::bytes(static_cast<int>(row.size())));
  Row result(row.size());
  C::encode(row.data(), static_cast<int>(row.size()), encoded.data());
  C::decode(encoded.data(), static_cast<int>(row.size()), result.data());
  return result;
}

double half_step_of_256(const Row& row, std::size_t) {
  const auto [low, high] = std::minmax_element(row.begin(), row.end());
  return (static_cast<double>(*high) - *low) / 510 * 1.0001 +
         std::max(std::abs(*low), std::abs(*high)) * 1.2e-7;
}

struct ForgetsTheLastByte : Fp16 {
  static constexpr std::string_view name = "forgetful";
  static void encode(const float* row, int width, std::byte* to) {
    std::vector<std::byte> whole(bytes(width));
    Fp16::encode(row, width, whole.data());
    std::copy(whole.begin(), whole.end() - 1, to);
  }
};

struct NoDecode {
  static constexpr std::string_view name = "none";
  static constexpr std::size_t bytes(int) { return 4; }
  static void encode(const float*, int, std::byte*) {}
};
struct OddBytes : Fp32 {
  static constexpr std::size_t bytes(int width) { return static_cast<std::size_t>(width); }
};
static_assert(!Codec<NoDecode> && !Codec<OddBytes> && !Codec<int> && Codec<ForgetsTheLastByte>);

}  // namespace

TEST_CASE("codecs obey the laws within their stated errors") {
  CHECK(laws::codec_laws<Fp32>([](const Row&, std::size_t) { return 0.0; }) == Faults{});
  CHECK(laws::codec_laws<Bf16>([](const Row& r, std::size_t c) {
          return std::abs(r[c]) * 0x1p-8 + 1e-40;
        }) == Faults{});
  CHECK(laws::codec_laws<Fp16>([](const Row& r, std::size_t c) {
          return std::abs(r[c]) > 65519 ? std::numeric_limits<double>::infinity()
                                        : std::max(std::abs(r[c]) * 0x1p-11, 0x1p-25);
        }) == Faults{});
  CHECK(laws::codec_laws<Int8>(half_step_of_256) == Faults{});
  CHECK_FALSE(
      laws::codec_laws<ForgetsTheLastByte>([](const Row&, std::size_t) { return 1e30; }).empty());
}

TEST_CASE("int8: constant rows, extremes, and rows that hold what no byte can say") {
  CHECK(through<Int8>(Row(20, 0.3f)) == Row(20, 0.3f));
  CHECK(through<Int8>(Row(5, 0.0f)) == Row(5, 0.0f));
  CHECK(through<Int8>({-1, 2})[0] == -1);
  CHECK(through<Int8>({-1, 2})[1] == doctest::Approx(2).epsilon(1e-4));
  CHECK(through<Int8>({1e-40f, 2e-40f, 0}) == Row(3, 0.0f));  // a range that no float divides
  const Row huge = through<Int8>({-1e38f, 1e38f, 0});
  CHECK(huge[0] == -1e38f);
  CHECK(huge[1] == doctest::Approx(1e38f).epsilon(1e-4));
  for (const float strange : {kInfinity, -kInfinity, std::nanf("")})
    for (const std::size_t width : {1u, 7u, 16u, 33u, 64u})
      for (const std::size_t at : {std::size_t{0}, width / 2, width - 1}) {
        Row row(width);
        for (std::size_t c = 0; c < width; ++c) row[c] = static_cast<float>(c);
        row[at] = strange;
        for (const float x : through<Int8>(row)) CHECK(std::isnan(x));
      }
  for (const float x : through<Int8>({-3e38f, 3e38f})) CHECK(std::isnan(x));
}

TEST_CASE("16-bit codecs carry NaN and infinity, and fp16 what is too large as infinity") {
  const Row row = through<Bf16>({kInfinity, -kInfinity, std::nanf(""), 3e38f, -0.0f});
  CHECK(row[0] == kInfinity);
  CHECK(row[1] == -kInfinity);
  CHECK(std::isnan(row[2]));
  CHECK(row[3] == doctest::Approx(3e38f).epsilon(0x1p-9));
  CHECK(std::signbit(row[4]));
  CHECK(through<Fp16>({65504, 70000, -1e6f, 1e-9f}) == Row{65504, kInfinity, -kInfinity, 0});
}

TEST_CASE("encode and decode: samples, strides, added parts, threads") {
  for (const int threads : {1, 3}) {
    const Host host({.threads = threads});
    constexpr int kWidth = 5;
    Row source(40 * 7), target(40 * 6, 0.5f), expected = target;
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i % 97) - 40;
    const std::vector<std::int32_t> samples{1, 4, 5, 17, 39};
    std::vector<std::byte> all(40 * Bf16::bytes(kWidth)), some(5 * Bf16::bytes(kWidth));
    const op::EncodeRows<Bf16>::Job encode[] = {
        {source.data(), 7, all.data(), 40, kWidth, nullptr},
        {source.data() + 1, 7, some.data(), 5, kWidth, samples.data()}};
    op::run<op::EncodeRows<Bf16>>(host, {encode});
    const op::DecodeRows<Bf16>::Job decode[] = {
        {all.data(), target.data(), 6, 40, kWidth, nullptr, false},
        {some.data(), target.data(), 6, 5, kWidth, samples.data(), true}};
    op::run<op::DecodeRows<Bf16>>(host, {decode});
    for (std::size_t r = 0; r < 40; ++r)
      for (std::size_t c = 0; c < kWidth; ++c) expected[r * 6 + c] = source[r * 7 + c];
    for (const std::int32_t s : samples)
      for (std::size_t c = 0; c < kWidth; ++c)
        expected[static_cast<std::size_t>(s) * 6 + c] +=
            source[static_cast<std::size_t>(s) * 7 + c + 1];
    CHECK(target == expected);  // small whole numbers are exact in bf16
  }
}
