// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>

#include <simt/runtime.hpp>

#include <cstdint>
#include <type_traits>

// The emulator's twins of tessera/cuda/primitives.cuh.
namespace tessera { inline namespace v0 { namespace gpu {

template <class T, int Tag = 0>
T& block_shared() {
  static_assert(std::is_trivially_default_constructible_v<T>, "shared memory is uninitialized");
  static const char key = 0;
  return *static_cast<T*>(simt::Engine::instance().static_shared(&key, sizeof(T)));
}

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(simt::Engine::instance().shared.dynamic());
}

template <class T>
T* in_global(T* p) {
  return p;
}
template <class T>
T* as_base(T* p) {
  return p;
}

/// Of global memory that is there: the sanitizer sees others.
inline void prefetch_sector(const void* p) {
  static_cast<void>(*static_cast<const volatile char*>(p));
}

/// The place is filled with 0xff until the bytes arrive: when the lane waits, the latest copy first.
inline void copy_later(void* shared, const void* global, int bytes) {
  auto& engine = simt::Engine::instance();
  if ((reinterpret_cast<std::uintptr_t>(shared) | reinterpret_cast<std::uintptr_t>(global)) % 16 !=
      0)
    engine.fail("a copy to shared memory whose pointers are not aligned to 16 bytes");
  if (bytes < 0 || bytes > 16) engine.fail("a copy to shared memory of more than 16 bytes");
  for (int i = 0; i < 16; ++i) static_cast<unsigned char*>(shared)[i] = 0xff;
  engine.push_copy({static_cast<unsigned char*>(shared), static_cast<const unsigned char*>(global),
                    bytes, nullptr});
}
inline void wait_for_copies() {
  simt::PendingCopy copy;
  while (simt::Engine::instance().pop_copy(copy))
    for (int i = 0; i < 16; ++i) copy.to[i] = i < copy.bytes ? copy.from[i] : 0;
}

template <Element T>
std::uint32_t round_pair(float low, float high) {
  return from_float<T>(low).bits | std::uint32_t{from_float<T>(high).bits} << 16;
}
template <Element T>
void widen_pair(std::uint32_t pair, float& low, float& high) {
  low = to_float(T{static_cast<std::uint16_t>(pair)});
  high = to_float(T{static_cast<std::uint16_t>(pair >> 16)});
}

namespace detail {

struct MatrixFragments {
  float c[4];
  std::uint32_t a[4], b[2];
};

template <Element T>
SIMT_RUNTIME float half_of(std::uint32_t pair, int which) {
  return to_float(T{static_cast<std::uint16_t>(pair >> (16 * which))});
}

/// Gathers the fragments of the 32 lanes, multiplies, scatters.
template <Element T>
SIMT_RUNTIME void multiply_fragments(void* const* lanes) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& f = *static_cast<const MatrixFragments*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 2; ++i) {
      for (int part = 0; part < 4; ++part)
        a[g + part % 2 * 8][2 * t + part / 2 * 8 + i] = half_of<T>(f.a[part], i);
      for (int part = 0; part < 2; ++part) b[2 * t + part * 8 + i][g] = half_of<T>(f.b[part], i);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto& f = *static_cast<MatrixFragments*>(lanes[lane]);
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 16; ++k)
        f.c[i] += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
  }
}

/// Likewise, of floats.
SIMT_RUNTIME inline void multiply_tf32_fragments(void* const* lanes) {
  float a[16][8], b[8][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& f = *static_cast<const MatrixFragments*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int part = 0; part < 4; ++part)
      a[g + part % 2 * 8][t + part / 2 * 4] = __builtin_bit_cast(float, f.a[part]);
    for (int part = 0; part < 2; ++part) b[t + part * 4][g] = __builtin_bit_cast(float, f.b[part]);
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto& f = *static_cast<MatrixFragments*>(lanes[lane]);
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 8; ++k) f.c[i] += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
  }
}

struct MatrixRow {
  const void* row;
  std::uint32_t words[4];
};

/// Gathers the rows that the 32 lanes tell, scatters pairs of elements.
template <bool Transposed>
SIMT_RUNTIME void load_matrix_rows(void* const* lanes) {
  const auto element = [&](int matrix, int row, int column) {
    const void* from = static_cast<const MatrixRow*>(lanes[8 * matrix + row])->row;
    return std::uint32_t{static_cast<const std::uint16_t*>(from)[column]};
  };
  for (int lane = 0; lane < 32; ++lane)
    for (int m = 0; m < 4; ++m) {
      const int g = lane / 4, t = lane % 4;
      static_cast<MatrixRow*>(lanes[lane])->words[m] =
          Transposed ? element(m, 2 * t, g) | element(m, 2 * t + 1, g) << 16
                     : element(m, g, 2 * t) | element(m, g, 2 * t + 1) << 16;
    }
}

inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                         void (*multiply)(void* const*), simt::Site site) {
  MatrixFragments fragments{{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  simt::Engine::instance().collective({.kind = simt::Collective::gather,
                                       .mask = 0xffffffffu,
                                       .value = reinterpret_cast<std::uint64_t>(&fragments),
                                       .function = multiply,
                                       .site = site});
  for (int i = 0; i < 4; ++i) c[i] = fragments.c[i];
}

}  // namespace detail

template <Element T>
void multiply_add_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                          simt::Site site = simt::Site::here()) {
  detail::multiply_add(c, a, b, &detail::multiply_fragments<T>, site);
}

template <bool Transposed, class T>
void load_matrices(const T* row, std::uint32_t (&words)[4], simt::Site site = simt::Site::here()) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    simt::Engine::instance().fail("a matrix's row that is not aligned to 16 bytes");
  detail::MatrixRow mine{row, {}};
  simt::Engine::instance().collective({.kind = simt::Collective::gather,
                                       .mask = 0xffffffffu,
                                       .value = reinterpret_cast<std::uint64_t>(&mine),
                                       .function = &detail::load_matrix_rows<Transposed>,
                                       .site = site});
  for (int i = 0; i < 4; ++i) words[i] = mine.words[i];
}

/// The tensor core ignores the last 13 bits, which are zeros after this.
inline std::uint32_t to_tf32(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}

inline void multiply_add_16x8x8(float (&c)[4], const std::uint32_t (&a)[4],
                                const std::uint32_t (&b)[2], simt::Site site = simt::Site::here()) {
  for (const std::uint32_t word : {a[0], a[1], a[2], a[3], b[0], b[1]})
    if ((word & 0x1fffu) != 0 && (word & 0x7f800000u) != 0x7f800000u)
      simt::Engine::instance().fail("a float that to_tf32 has not rounded");
  detail::multiply_add(c, a, b, &detail::multiply_tf32_fragments, site);
}

}}}  // namespace tessera::v0::gpu
