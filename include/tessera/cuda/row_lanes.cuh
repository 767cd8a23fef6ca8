// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/cuda/primitives.cuh>

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 { namespace gpu {

/// Calls f(0), f(1), ..., f(Count - 1), the numbers as types: an array whose indices are made of
/// them stays in registers, whatever the compiler thinks of unrolling a loop. As detail::unrolled,
/// which is the host's: nvcc refuses one function that calls lambdas of either side.
template <int Count, class F>
__device__ __forceinline__ void for_each_constant(const F& f) {
  const auto call = [&]<int... I>(std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I>{}), ...);
  };
  call(std::make_integer_sequence<int, Count>{});
}

/// Returns whether a warp holds rows of a width in registers; else they go through memory
/// (any_width.cuh).
constexpr bool fits_lanes(int width) { return width > 0 && width <= 1024; }

/// Returns how many rows to hold of so many registers each: up to 32 registers, 8 rows.
constexpr int rows_in_registers(int each) { return each <= 4 ? 8 : each <= 32 ? 32 / each : 1; }

/// How a warp's lanes share rows of `Width` elements of T. A group of `lanes` lanes holds a row; a
/// lane holds `pieces` vectors of `vector` neighbouring elements, loaded at once (16 bytes where
/// the row allows), `lanes * vector` elements apart:
///
///     width 12, float            lane 0    lane 1    lane 2    lane 3 (idle)
///                                0..3      4..7      8..11
template <class T, int Width>
struct RowLanes {
  static_assert(fits_lanes(Width), "wider rows go through memory");
  static constexpr int row_bytes = Width * static_cast<int>(sizeof(T));
  static constexpr int vector_bytes = row_bytes % 16 == 0  ? 16
                                      : row_bytes % 8 == 0 ? 8
                                      : row_bytes % 4 == 0 ? 4
                                                           : static_cast<int>(sizeof(T));
  static constexpr int vector = vector_bytes / static_cast<int>(sizeof(T));
  static constexpr int vectors = Width / vector;
  static constexpr int lanes =
      vectors >= 32 ? 32 : static_cast<int>(std::bit_ceil(static_cast<unsigned>(vectors)));
  static constexpr int pieces = (vectors + lanes - 1) / lanes;
  static constexpr int groups = 32 / lanes;
  static constexpr bool exact = pieces * lanes == vectors;  ///< no lane is ever idle
  /// Rows to load before the first is used: about 64 bytes per lane.
  static constexpr int rows_in_flight = pieces >= 4 ? 1 : pieces >= 2 ? 2 : 4;
  static constexpr int floats = pieces * vector;                 ///< that a lane holds of a row
  static constexpr int words = (pieces * vector_bytes + 3) / 4;  ///< registers of them as stored
  /// Rows to load where little else needs registers, as floats and as stored.
  static constexpr int most_in_flight = rows_in_registers(floats),
                       most_raw_in_flight = rows_in_registers(words);

  /// Returns the first column of a lane's vector, and whether there is one.
  static constexpr TESSERA_HOST_DEVICE int column(int piece, int lane) {
    return (piece * lanes + lane) * vector;
  }
  static constexpr TESSERA_HOST_DEVICE bool has(int piece, int lane) {
    return exact || piece * lanes + lane < vectors;
  }
};

/// A lane's part of a row, as floats.
template <class Lanes>
struct RowPart {
  float x[Lanes::pieces][Lanes::vector];
};

template <class T, int Count>
struct alignas(sizeof(T) * Count) Packed {
  T x[Count];
};

/// Neighbouring elements as stored in memory, read and written at once: those of 16 bits in
/// pairs, where they are even in number.
template <class T, int Count>
struct [[gnu::may_alias]] alignas(sizeof(T) * Count) RawPack {
  static constexpr bool pairs = sizeof(T) == 2 && Count % 2 == 0;
  static constexpr int words = pairs ? Count / 2 : Count;
  std::conditional_t<pairs, std::uint32_t, T> word[words];

  __device__ __forceinline__ static RawPack rounded(const float (&x)[Count]) {
    RawPack pack;
    for (int i = 0; i < words; ++i)
      if constexpr (pairs)
        pack.word[i] = round_pair<T>(x[2 * i], x[2 * i + 1]);
      else
        pack.word[i] = from_float<T>(x[i]);
    return pack;
  }
  __device__ __forceinline__ void widen(float (&x)[Count]) const {
    for (int i = 0; i < words; ++i)
      if constexpr (pairs)
        widen_pair<T>(word[i], x[2 * i], x[2 * i + 1]);
      else
        x[i] = to_float(word[i]);
  }
  __device__ __forceinline__ T element(int i) const {
    if constexpr (pairs)
      return T{static_cast<std::uint16_t>(word[i / 2] >> (i % 2 * 16))};
    else
      return word[i];
  }
};

/// Loads `Count` neighbouring elements, one load; p is aligned to their bytes.
template <int Count, class T>
__device__ __forceinline__ RawPack<T, Count> load_raw(const T* p) {
  return *reinterpret_cast<const RawPack<T, Count>*>(p);
}
template <int Count, class T>
__device__ __forceinline__ void load_packed(const T* p, float (&x)[Count]) {
  load_raw<Count>(p).widen(x);
}

/// Loads `Count` neighbouring floats, in 16-byte loads if `aligned` says that p is.
template <int Count>
__device__ __forceinline__ void load_floats(const float* p, bool aligned, float (&x)[Count]) {
  if constexpr (Count % 4 == 0) {
    if (aligned) {
      for (int i = 0; i < Count; i += 4) {
        const float4 v = *reinterpret_cast<const float4*>(p + i);
        x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
      }
      return;
    }
  }
  for (int i = 0; i < Count; ++i) x[i] = p[i];
}

/// Asks for memory: a group of lanes asks for a row's memory.
template <int Lanes>
__device__ __forceinline__ void prefetch_row(const void* row, int bytes, int lane) {
  constexpr int sector = 32;
  for (int at = lane * sector; at < bytes; at += Lanes * sector)
    prefetch_sector(static_cast<const char*>(row) + at);
}

/// Stores, the mirror image, past the cache: for results that are read once, later.
template <int Count>
__device__ __forceinline__ void store_floats(float* p, bool aligned, const float (&x)[Count]) {
  if constexpr (Count % 4 == 0) {
    if (aligned) {
      for (int i = 0; i < Count; i += 4)
        __stcs(reinterpret_cast<float4*>(p + i), make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]));
      return;
    }
  }
  for (int i = 0; i < Count; ++i) __stcs(p + i, x[i]);
}

/// Loads four neighbouring elements, at once if `aligned` says that p allows it.
template <class G>
__device__ __forceinline__ void load_four_at(const G* p, bool aligned, float (&x)[4]) {
  if constexpr (std::is_same_v<G, float>)
    load_floats(p, aligned, x);
  else if (aligned)
    load_packed(p, x);
  else
    for (int i = 0; i < 4; ++i) x[i] = to_float(p[i]);
}

/// Loads up to four neighbouring floats of a row of any width; the others are 0.
__device__ __forceinline__ void load_four(const float* p, bool aligned, int count, float (&x)[4]) {
  if (aligned && count == 4) return load_floats(p, true, x);
  for (int i = 0; i < 4; ++i) x[i] = i < count ? p[i] : 0.0f;
}
__device__ __forceinline__ void store_four(float* p, bool aligned, int count, const float (&x)[4]) {
  if (aligned && count == 4) {
    *reinterpret_cast<float4*>(p) = make_float4(x[0], x[1], x[2], x[3]);
    return;
  }
  for (int i = 0; i < 4; ++i)
    if (i < count) p[i] = x[i];
}
/// Does the same for elements of 16 bits, which are `aligned` where four of them are.
template <class G>
__device__ __forceinline__ void load_four(const G* p, bool aligned, int count, float (&x)[4]) {
  if (aligned && count == 4) return load_packed(p, x);
  for (int i = 0; i < 4; ++i) x[i] = i < count ? to_float(p[i]) : 0.0f;
}
template <class G>
__device__ __forceinline__ void store_four(G* p, bool aligned, int count, const float (&x)[4]) {
  const auto pack = RawPack<G, 4>::rounded(x);
  if (aligned && count == 4) {
    *reinterpret_cast<RawPack<G, 4>*>(p) = pack;
    return;
  }
  for (int i = 0; i < 4; ++i)
    if (i < count) p[i] = pack.element(i);
}

template <class Lanes>
__device__ __forceinline__ RowPart<Lanes> zero_row(float zero = 0.0f) {
  RowPart<Lanes> part;
  for (int k = 0; k < Lanes::pieces; ++k)
    for (int i = 0; i < Lanes::vector; ++i) part.x[k][i] = zero;
  return part;
}

/// Returns a lane's part of a row of the table. Idle lanes get zeros.
template <class T, class Lanes>
__device__ __forceinline__ RowPart<Lanes> load_row(const T* row, int lane) {
  RowPart<Lanes> part = zero_row<Lanes>();
  for (int k = 0; k < Lanes::pieces; ++k)
    if (Lanes::has(k, lane)) load_packed(row + Lanes::column(k, lane), part.x[k]);
  return part;
}

/// A lane's part of a row as stored in memory: elements of 16 bits take half of RowPart's
/// registers.
template <class T, class Lanes>
struct RawRow {
  RawPack<T, Lanes::vector> x[Lanes::pieces];
};

/// Loads a row. `first`: the address of the lane's first element. Idle lanes get zeros.
template <class Lanes, class T>
__device__ __forceinline__ RawRow<T, Lanes> load_raw_row(const T* first, int lane) {
  RawRow<T, Lanes> row{};
  for (int k = 0; k < Lanes::pieces; ++k)
    if (Lanes::has(k, lane)) row.x[k] = load_raw<Lanes::vector>(first + Lanes::column(k, 0));
  return row;
}

template <class T, class Lanes>
__device__ __forceinline__ RowPart<Lanes> widen(const RawRow<T, Lanes>& row) {
  RowPart<Lanes> part;
  for (int k = 0; k < Lanes::pieces; ++k) row.x[k].widen(part.x[k]);
  return part;
}

/// Returns a lane's part of a row of floats that may be at any address. Idle lanes get zeros.
template <class Lanes>
__device__ __forceinline__ RowPart<Lanes> load_float_row(const float* row, bool aligned, int lane) {
  RowPart<Lanes> part = zero_row<Lanes>();
  for (int k = 0; k < Lanes::pieces; ++k)
    if (Lanes::has(k, lane)) load_floats(row + Lanes::column(k, lane), aligned, part.x[k]);
  return part;
}

template <class Lanes>
__device__ __forceinline__ void store_float_row(float* row, bool aligned, int lane,
                                                const RowPart<Lanes>& part) {
  for (int k = 0; k < Lanes::pieces; ++k)
    if (Lanes::has(k, lane)) store_floats(row + Lanes::column(k, lane), aligned, part.x[k]);
}

/// Does load_float_row for rows of G, which, where they have 16 bits, are `aligned` if lanes'
/// vectors are.
template <class Lanes, class G>
__device__ __forceinline__ RowPart<Lanes> load_any_row(const G* row, bool aligned, int lane) {
  if constexpr (std::is_same_v<G, float>) {
    return load_float_row<Lanes>(row, aligned, lane);
  } else {
    RowPart<Lanes> part = zero_row<Lanes>();
    for (int k = 0; k < Lanes::pieces; ++k) {
      if (!Lanes::has(k, lane)) continue;
      const G* const from = row + Lanes::column(k, lane);
      if (aligned)
        load_packed(from, part.x[k]);
      else
        for (int i = 0; i < Lanes::vector; ++i) part.x[k][i] = to_float(from[i]);
    }
    return part;
  }
}

/// Stores past the cache, as store_floats; `aligned`: to the pack's bytes.
template <class G, int Count>
__device__ __forceinline__ void store_pack(G* to, bool aligned, const RawPack<G, Count>& pack) {
  const auto store = [&]<class Word>(const Word& word) {
    __stcs(reinterpret_cast<Word*>(to), word);
  };
  if (!aligned)
    for (int i = 0; i < Count; ++i) to[i] = pack.element(i);
  else if constexpr (sizeof(pack) == 16)
    store(reinterpret_cast<const uint4&>(pack));
  else if constexpr (sizeof(pack) == 8)
    store(reinterpret_cast<const uint2&>(pack));
  else if constexpr (sizeof(pack) == 4)
    store(reinterpret_cast<const unsigned&>(pack));
  else
    *reinterpret_cast<RawPack<G, Count>*>(to) = pack;
}

/// Does store_float_row, likewise.
template <class Lanes, class G>
__device__ __forceinline__ void store_any_row(G* row, bool aligned, int lane,
                                              const RowPart<Lanes>& part) {
  if constexpr (std::is_same_v<G, float>) {
    store_float_row(row, aligned, lane, part);
  } else {
    for (int k = 0; k < Lanes::pieces; ++k)
      if (Lanes::has(k, lane))
        store_pack(row + Lanes::column(k, lane), aligned,
                   RawPack<G, Lanes::vector>::rounded(part.x[k]));
  }
}

/// Does the same for a row as stored in memory.
template <class Lanes, class T>
__device__ __forceinline__ void store_raw_row(T* to, bool aligned, int lane,
                                              const RawRow<T, Lanes>& row) {
  for (int k = 0; k < Lanes::pieces; ++k)
    if (Lanes::has(k, lane)) store_pack(to + Lanes::column(k, lane), aligned, row.x[k]);
}

/// Stores into the cache: the next kernel reads it. Rows of whole 16 bytes begin at such.
template <int Width, class Lanes>
__device__ __forceinline__ void keep_float_row(float* row, int lane, const RowPart<Lanes>& part) {
  for (int k = 0; k < Lanes::pieces; ++k) {
    if (!Lanes::has(k, lane)) continue;
    float* const to = row + Lanes::column(k, lane);
    if constexpr (Width % 4 == 0 && Lanes::vector % 4 == 0) {
      for (int i = 0; i < Lanes::vector; i += 4)
        *reinterpret_cast<float4*>(to + i) =
            make_float4(part.x[k][i], part.x[k][i + 1], part.x[k][i + 2], part.x[k][i + 3]);
    } else {
      for (int i = 0; i < Lanes::vector; ++i) to[i] = part.x[k][i];
    }
  }
}

template <class Lanes>
__device__ __forceinline__ void add_row(RowPart<Lanes>& sum, const RowPart<Lanes>& part) {
  for (int k = 0; k < Lanes::pieces; ++k)
    for (int i = 0; i < Lanes::vector; ++i) sum.x[k][i] += part.x[k][i];
}

template <class Lanes>
__device__ __forceinline__ void multiply_add_row(RowPart<Lanes>& sum, float coefficient,
                                                 const RowPart<Lanes>& part) {
  for (int k = 0; k < Lanes::pieces; ++k)
    for (int i = 0; i < Lanes::vector; ++i)
      sum.x[k][i] = fmaf(coefficient, part.x[k][i], sum.x[k][i]);
}

template <class Lanes>
__device__ __forceinline__ void scale_row(RowPart<Lanes>& part, float factor) {
  for (int k = 0; k < Lanes::pieces; ++k)
    for (int i = 0; i < Lanes::vector; ++i) part.x[k][i] *= factor;
}

/// Returns whether all rows of a float matrix begin at multiples of 16 bytes.
TESSERA_HOST_DEVICE inline bool rows_aligned(const float* data, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}
/// Returns whether those of a matrix of G are aligned for load_any_row with vectors of so many
/// elements.
template <class G>
TESSERA_HOST_DEVICE bool rows_aligned_for(const G* data, std::int64_t stride, int vector) {
  if constexpr (std::is_same_v<G, float>) {
    return rows_aligned(data, stride);
  } else {
    const auto bytes = static_cast<std::uintptr_t>(vector) * sizeof(G);
    return reinterpret_cast<std::uintptr_t>(data) % bytes == 0 && stride % vector == 0;
  }
}

}}}  // namespace tessera::v0::gpu
