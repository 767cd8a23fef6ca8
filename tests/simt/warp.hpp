// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/shared_memory.hpp>

#include <bit>
#include <cstdint>

namespace simt {

/// A place in a kernel's source.
struct Site {
  const char* file = "?";
  unsigned line = 0;
  static constexpr Site here(const char* file = __builtin_FILE(),
                             unsigned line = __builtin_LINE()) {
    return {file, line};
  }
  SIMT_RUNTIME bool operator==(const Site& other) const {
    return line == other.line && file == other.file;
  }
};

/// What the lanes of a warp do together. `gather` hands one pointer per lane to a function (matrix
/// instructions).
enum class Collective : std::uint8_t {
  sync,
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  any,
  all,
  match_any,
  add,
  min,
  max,
  signed_min,
  signed_max,
  bit_and,
  bit_or,
  bit_xor,
  gather
};

constexpr const char* name(Collective c) {
  constexpr const char* names[] = {
      "__syncwarp",        "__shfl_sync",       "__shfl_up_sync",
      "__shfl_down_sync",  "__shfl_xor_sync",   "__ballot_sync",
      "__any_sync",        "__all_sync",        "__match_any_sync",
      "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
      "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync",
      "__reduce_or_sync",  "__reduce_xor_sync", "a warp-wide matrix instruction"};
  return names[static_cast<int>(c)];
}

using GatherFunction = void (*)(void* const* lanes);

/// What one lane brings to a collective.
struct Operand {
  Collective kind = Collective::sync;
  std::uint32_t mask = 0;
  std::uint64_t value = 0;
  int argument = 0;  ///< of a shuffle: lane, delta or lane mask
  int width = 32;    ///< of a shuffle: lanes of a segment
  GatherFunction function = nullptr;
  Site site;
};

/// Computes the results of a collective for the lanes of `mask`. Returns null, or what is wrong
/// with the operands.
SIMT_RUNTIME inline const char* resolve(const Operand* const* operands, std::uint32_t mask,
                                        std::uint64_t* results) {
  const Operand& first = *operands[std::countr_zero(mask)];
  std::uint32_t votes = 0;
  std::uint64_t sum = 0, smallest = ~std::uint64_t{0}, largest = 0, conjunction = ~std::uint64_t{0},
                disjunction = 0, parity = 0;
  std::int32_t signed_smallest = INT32_MAX, signed_largest = INT32_MIN;
  void* pointers[32] = {};
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    const Operand& o = *operands[lane];
    if (o.mask != mask) return "the lanes of a mask meet with different masks";
    if (o.kind != first.kind || !(o.site == first.site))
      return "the lanes of a mask meet at different warp intrinsics";
    const std::uint64_t v = o.value;
    const auto s = static_cast<std::int32_t>(v);
    if (v != 0) votes |= 1u << lane;
    sum += v;
    smallest = v < smallest ? v : smallest;
    largest = v > largest ? v : largest;
    signed_smallest = s < signed_smallest ? s : signed_smallest;
    signed_largest = s > signed_largest ? s : signed_largest;
    conjunction &= v;
    disjunction |= v;
    parity ^= v;
    pointers[lane] = reinterpret_cast<void*>(v);
  }
  if (first.kind == Collective::gather) {
    if (mask != 0xffffffffu) return "a matrix instruction needs all 32 lanes";
    first.function(pointers);
    return nullptr;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) == 0) continue;
    const Operand& o = *operands[lane];
    const int segment = lane & ~(o.width - 1), end = segment + o.width;
    int source = -1;
    switch (o.kind) {
      case Collective::shuffle:
        source = segment + (o.argument & (o.width - 1));
        break;
      case Collective::shuffle_up:
        source = lane - o.argument < segment ? lane : lane - o.argument;
        break;
      case Collective::shuffle_down:
        source = lane + o.argument >= end ? lane : lane + o.argument;
        break;
      case Collective::shuffle_xor:
        source = (lane ^ o.argument) >= end ? lane : lane ^ o.argument;
        break;
      case Collective::ballot:
        results[lane] = votes;
        break;
      case Collective::any:
        results[lane] = votes != 0;
        break;
      case Collective::all:
        results[lane] = votes == mask;
        break;
      case Collective::add:
        results[lane] = sum;
        break;
      case Collective::min:
        results[lane] = smallest;
        break;
      case Collective::max:
        results[lane] = largest;
        break;
      case Collective::signed_min:
        results[lane] = static_cast<std::uint32_t>(signed_smallest);
        break;
      case Collective::signed_max:
        results[lane] = static_cast<std::uint32_t>(signed_largest);
        break;
      case Collective::bit_and:
        results[lane] = conjunction;
        break;
      case Collective::bit_or:
        results[lane] = disjunction;
        break;
      case Collective::bit_xor:
        results[lane] = parity;
        break;
      case Collective::match_any:
        results[lane] = 0;
        for (int other = 0; other < 32; ++other)
          if ((mask >> other & 1u) != 0 && operands[other]->value == o.value)
            results[lane] |= std::uint64_t{1} << other;
        break;
      case Collective::sync:
      case Collective::gather:
        break;
    }
    if (o.kind < Collective::shuffle || o.kind > Collective::shuffle_xor) continue;
    if (source < 0 || source > 31 || (mask >> source & 1u) == 0)
      return "a shuffle reads a lane outside its mask";
    results[lane] = operands[source]->value;
  }
  return nullptr;
}

}  // namespace simt
