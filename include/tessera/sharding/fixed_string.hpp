// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera { inline namespace v0 {

/// A string literal as a template argument: `Table<"user", ...>`.
template <std::size_t N>
struct FixedString {
  char text[N]{};

  consteval FixedString(const char (&literal)[N]) {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < N; ++i) text[i] = literal[i];
  }
  constexpr std::string_view view() const { return {text, N - 1}; }
};

}}  // namespace tessera::v0
