// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/clock.hpp>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns when a wait ends that begins now: at the clock's last moment for one that would end later.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::nanoseconds wait) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  return wait < Clock::time_point::max() - now ? now + wait : Clock::time_point::max();
}

}}}  // namespace tessera::v0::detail
