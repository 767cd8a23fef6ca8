// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <cstdint>
#include <string_view>

namespace tessera { inline namespace v0 {

/// Returns the finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words whose
/// output bits all depend on all input bits.
TESSERA_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Returns a counter-based random word: a pure function of its arguments, so any rank and any
/// thread can draw any element's value.
template <class... Counters>
TESSERA_HOST_DEVICE constexpr std::uint64_t random_word(std::uint64_t seed, Counters... counters) {
  std::uint64_t state = mix64(seed);
  ((state = mix64(state ^ static_cast<std::uint64_t>(counters))), ...);
  return state;
}

/// Returns a number uniform in [0, 1) with 24 bits, from the upper bits of a random word.
TESSERA_HOST_DEVICE constexpr float unit_float(std::uint64_t word) {
  return static_cast<float>(word >> 40) * 0x1p-24f;
}

namespace detail {

/// Returns a stable 64-bit key of a name (FNV-1a, then mixed).
constexpr std::uint64_t name_key(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix64(hash);
}

}  // namespace detail

}}  // namespace tessera::v0
