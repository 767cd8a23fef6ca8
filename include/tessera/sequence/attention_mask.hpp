// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace detail {

/// Which positions of a sequence a position sees, without a matrix of them: itself, and the history
/// before it, of which the last `window` (0: all). The last `targets` positions are candidates:
/// each sees itself and the history, and no position sees it.
struct AttentionMask {
  std::int64_t length = 0;
  std::int64_t targets = 0;
  std::int64_t window = 0;

  TESSERA_HOST_DEVICE std::int64_t place(std::int64_t i) const {
    return i < length - targets ? i : length - targets;
  }
  /// Return the history that position i sees: [begin(i), place(i)). Neither decreases with i.
  TESSERA_HOST_DEVICE std::int64_t begin(std::int64_t i) const {
    const std::int64_t begin = place(i) - window;
    return window == 0 || begin < 0 ? 0 : begin;
  }
  TESSERA_HOST_DEVICE bool sees(std::int64_t i, std::int64_t j) const {
    return i == j || (j >= begin(i) && j < place(i));
  }
};

}}}  // namespace tessera::v0::detail
