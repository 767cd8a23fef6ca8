// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Texts that are made out of line, against what is written here and what fmt::format gives.
#include <tessera/core/error.hpp>
#include <tessera/core/format.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

using tessera::detail::formatted;
using tessera::detail::TextArgument;

static_assert(!std::is_constructible_v<TextArgument, const int*>, "a pointer is no bool");
static_assert(!std::is_constructible_v<TextArgument, std::nullptr_t>);

TEST_CASE("each kind of argument has its place and its form") {
  const std::string text = "text";
  CHECK(formatted("{} {} {} {} {}", true, 'c', -1, 2u, std::int8_t{-3}) == "true c -1 2 -3");
  CHECK(formatted("{}|{}|{}", text, std::string_view(text).substr(1), "literal") ==
        "text|ext|literal");
  CHECK(formatted("{:>6}|{:<6}|{:^6}|{:+}|{:#x}|{:.3f}|{:.2}", text, 'c', 12, 3, 255u, 2.0,
                  0.123) == "  text|c     |  12  |+3|0xff|2.000|0.12");
  CHECK(formatted("{{}} {1} {0} {0:{2}}", 1, 2, 3) == "{} 2 1   1");
  CHECK(formatted("no place") == "no place");
  // a float is not written as the double that it is equal to
  CHECK(formatted("{} {}", 0.1f, 0.1) == "0.1 0.1");
  CHECK(formatted("{}", 16777217.0) == "16777217");
}

TEST_CASE("numbers are those of fmt::format, to the ends of their types") {
  const auto check = [](const auto& value) {
    CHECK(formatted("{}", value) == fmt::format("{}", value));
  };
  const auto check_ends = [&]<class T>(T zero) {
    check(zero);
    check(std::numeric_limits<T>::lowest());
    check(std::numeric_limits<T>::max());
  };
  check_ends(short{}), check_ends(0), check_ends(0l), check_ends(0ll);
  check_ends(static_cast<unsigned short>(0)), check_ends(0u), check_ends(0ul), check_ends(0ull);
  check_ends(0.0f), check_ends(0.0);
  check(std::numeric_limits<float>::quiet_NaN()), check(-std::numeric_limits<double>::infinity());
}

TEST_CASE(
    "require makes a text only if it throws, and names what a type of the user's converts to") {
  struct Place {
    int* asked;
    operator std::string() const { return ++*asked, "line 7"; }
  };
  int asked = 0;
  tessera::require(true, "{}: wrong", Place{&asked});
  CHECK(asked == 0);
  CHECK_THROWS_WITH_AS(
      tessera::require<tessera::DataError>(false, "{}: {} > {}", Place{&asked}, 3, 2.5),
      "line 7: 3 > 2.5", tessera::DataError);
  CHECK(asked == 1);
}
