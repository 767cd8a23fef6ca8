// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// tests/simt shadows this file for its emulator, which is all of the kernels that depends on the
// compiler.
#ifndef __CUDACC__
#error "Tessera's .cuh headers need nvcc; include <tessera/tessera.hpp> for the host backend alone"
#endif

#include <tessera/core/element.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace gpu {

/// Returns a static variable in the block's shared memory, uninitialized: one per type and tag.
template <class T, int Tag = 0>
__device__ __forceinline__ T& block_shared() {
  __shared__ T variable;
  return variable;
}

/// Returns the block's dynamic shared memory, aligned to 16 bytes.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ uint4 tessera_dynamic_shared_memory[];
  return reinterpret_cast<T*>(tessera_dynamic_shared_memory);
}

/// Returns the pointer, of which the compiler learns that it is one to global memory: what came
/// through shared memory it would load from as if it could be anywhere.
template <class T>
__device__ __forceinline__ T* in_global(T* p) {
  __builtin_assume(__isGlobal(p));
  return p;
}

/// Returns the pointer, of which the compiler forgets how it was worked out: it would do so again,
/// from the start, for every address beside it.
template <class T>
__device__ __forceinline__ T* as_base(T* p) {
  std::size_t address = __cvta_generic_to_global(p);
  asm("" : "+l"(address));
  return static_cast<T*>(__cvta_global_to_generic(address));
}

/// Asks for the 32 bytes around p, to be in the second-level cache when they are loaded.
__device__ __forceinline__ void prefetch_sector(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/// Copies up to 16 bytes from global to shared memory, past the registers, and fills up with zeros;
/// both pointers are aligned to 16 bytes. The bytes are there after the lane's wait_for_copies,
/// and for other lanes after the __syncwarp behind it.
__device__ __forceinline__ void copy_later(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Returns two floats as 16-bit elements, the first in the lower half: from_float's bits, but any
/// NaN for a NaN.
template <Element T>
__device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
  static_assert(sizeof(T) == 2, "16-bit elements");
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Does the reverse: as to_float.
template <Element T>
__device__ __forceinline__ void widen_pair(std::uint32_t pair, float& low, float& high) {
  static_assert(sizeof(T) == 2, "16-bit elements");
  if constexpr (std::is_same_v<T, BFloat16>) {
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
  } else {
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
        : "=f"(low), "=f"(high)
        : "r"(pair));
  }
}

/// Computes c += a b on the tensor cores: a is 16 x 16, b 16 x 8, c 16 x 8, spread over the warp as
/// PTX's mma.m16n8k16 says (lane = 4 g + t): a holds pairs of columns (2t, 2t+1) of row g, of row g
/// + 8, (2t+8, 2t+9) of row g, of row g + 8; b pairs of rows (2t, 2t+1) and (2t+8, 2t+9) of column
/// g; c columns 2t, 2t+1 of row g, then of row g + 8. All 32 lanes call it together.
template <Element T>
__device__ __forceinline__ void multiply_add_16x8x16(float (&c)[4], const std::uint32_t (&a)[4],
                                                     const std::uint32_t (&b)[2]) {
  static_assert(sizeof(T) == 2, "16-bit elements");
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

/// Loads four 8 x 8 matrices of 16-bit elements from shared memory, as operands of the product
/// above: lane i gives the place of row i % 8 of matrix i / 8, aligned to 16 bytes, and gets of
/// each the elements (g, 2t) and (g, 2t+1); transposed, (2t, g) and (2t+1, g). All 32 lanes call
/// it.
template <bool Transposed, class T>
__device__ __forceinline__ void load_matrices(const T* row, std::uint32_t (&words)[4]) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}

/// Returns a float's bits, rounded to the 10 bits of mantissa that tensor cores take, ties away
/// from zero.
__device__ __forceinline__ std::uint32_t to_tf32(float x) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

/// Computes c += a b on the tensor cores for such floats: a is 16 x 8, b 8 x 8, c 16 x 8, spread
/// over the warp as PTX's mma.m16n8k8 says (lane = 4 g + t): a holds column t of rows g and g + 8,
/// then column t + 4 of both; b rows t and t + 4 of column g; c as above. All 32 lanes call it.
__device__ __forceinline__ void multiply_add_16x8x8(float (&c)[4], const std::uint32_t (&a)[4],
                                                    const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}}}  // namespace tessera::v0::gpu
