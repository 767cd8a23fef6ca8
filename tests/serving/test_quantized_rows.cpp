// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Error bounds of the row formats, and what cannot be encoded. Golden cases of kind quantized hold
// FBGEMM's bytes.
#include <tessera_serving/quantized_rows.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace tessera;

namespace {

template <class R>
std::vector<float> through(const std::vector<float>& rows, int width) {
  std::vector<std::byte> bytes(rows.size() / static_cast<std::size_t>(width) * R::bytes(width));
  quantize_rows<R>(rows, width, bytes);
  std::vector<float> back(rows.size());
  for (std::size_t r = 0; r * static_cast<std::size_t>(width) < rows.size(); ++r)
    R::decode(bytes.data() + r * R::bytes(width), width,
              back.data() + r * static_cast<std::size_t>(width));
  return back;
}

template <class R>
void check_bounds(float codes, float half_precision) {
  std::mt19937_64 random(5);
  for (const int width : {1, 2, 3, 7, 16, 65}) {
    for (const float size : {1e-3f, 1.0f, 300.0f}) {
      std::vector<float> rows(static_cast<std::size_t>(20 * width));
      for (float& x : rows) x = size * (static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
      const std::vector<float> back = through<R>(rows, width);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const float* const row =
            rows.data() + i / static_cast<std::size_t>(width) * static_cast<std::size_t>(width);
        const auto [least, most] = std::minmax_element(row, row + width);
        // Half a code as stored, FBGEMM's 1e-8 beside the range, and what half precision takes from
        // scale (`codes` times) and offset: a relative error, or one of 2^-25 at least.
        const float subnormal = half_precision > 0 ? (codes + 2) * 0x1p-25f : 0;
        const float bound = (*most - *least) * (0.5f / codes + half_precision) +
                            half_precision * std::abs(*least) + subnormal + 1e-8f + 1e-6f * size;
        CHECK(std::abs(back[i] - rows[i]) <= bound);
      }
    }
  }
}

}  // namespace

TEST_CASE("rows come back within half a code of their range") {
  check_bounds<Int8Row>(255, 0);
  check_bounds<Int8HalfRow>(255, 0x1p-10f);
  check_bounds<Int4Row>(15, 0x1p-10f);
}

TEST_CASE("constant rows come back, as near as the offset is stored") {
  CHECK(through<Int8Row>({0.1f, 0.1f, 0.1f}, 3) == std::vector{0.1f, 0.1f, 0.1f});
  CHECK(through<Int8HalfRow>({0.25f, 0.25f}, 2) == std::vector{0.25f, 0.25f});
  CHECK(through<Int4Row>({-3.0f}, 1) == std::vector{-3.0f});
}

TEST_CASE("sizes per row are FBGEMM's") {
  CHECK(Int8Row::bytes(64) == 72);
  CHECK(Int8HalfRow::bytes(64) == 68);
  CHECK(Int4Row::bytes(64) == 36);
  CHECK(Int4Row::bytes(7) == 8);
}

TEST_CASE_TEMPLATE("what a format cannot hold is refused, with the row's number", R, Int8Row,
                   Int8HalfRow, Int4Row) {
  std::vector<std::byte> bytes(2 * R::bytes(2));
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, inf, -inf})
    CHECK_THROWS_WITH_AS(quantize_rows<R>(std::vector{1.0f, 2.0f, 3.0f, bad}, 2, bytes),
                         doctest::Contains("row 1 "), InvalidArgument);
  CHECK_THROWS_WITH_AS(quantize_rows<R>(std::vector{1.0f, 2.0f, -3e38f, 3e38f}, 2, bytes),
                       doctest::Contains("row 1 "), InvalidArgument);
  if constexpr (std::is_same_v<R, Int8Row>) {
    CHECK_NOTHROW(quantize_rows<R>(std::vector{1.0f, 2.0f, 0.0f, 70000.0f}, 2, bytes));
  } else {
    CHECK_THROWS_AS(quantize_rows<R>(std::vector{1.0f, 2.0f, 70000.0f, 70001.0f}, 2, bytes),
                    InvalidArgument);
    CHECK_THROWS_AS(quantize_rows<R>(std::vector{1.0f, 2.0f, -70000.0f, 1.0f}, 2, bytes),
                    InvalidArgument);
  }
  CHECK_THROWS_AS(quantize_rows<R>(std::vector{1.0f, 2.0f, 3.0f}, 2, bytes), InvalidArgument);
  CHECK_THROWS_AS(quantize_rows<R>(std::vector{1.0f, 2.0f}, 2, bytes), InvalidArgument);
  CHECK_THROWS_AS(quantize_rows<R>(std::vector{1.0f, 2.0f}, 0, bytes), InvalidArgument);
}
