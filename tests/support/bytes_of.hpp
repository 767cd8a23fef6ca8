// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera_data/criteo.hpp>

#include <algorithm>
#include <string>
#include <utility>

/// Gives a text, `at_a_time` bytes in each call.
inline tessera::ByteSource bytes_of(std::string text, std::size_t at_a_time) {
  return [text = std::move(text), at_a_time, at = std::size_t{0}](std::span<char> chunk) mutable {
    const std::size_t count = std::min({chunk.size(), at_a_time, text.size() - at});
    std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(at), count, chunk.begin());
    at += count;
    return count;
  };
}
