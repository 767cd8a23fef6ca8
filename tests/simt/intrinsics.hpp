// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/engine.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

// CUDA's device functions, as many as kernels here use. Each meeting point takes the place of its
// call as a hidden last argument.

inline void __syncthreads(simt::Site site = simt::Site::here()) {
  simt::Engine::instance().block_barrier(site);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, simt::Site site = simt::Site::here()) {
  simt::Engine::instance().collective({.kind = simt::Collective::sync, .mask = mask, .site = site});
}

namespace simt {

template <class T>
SIMT_RUNTIME T shuffle(Collective kind, unsigned mask, T value, int argument, int width,
                       Site site) {
  static_assert(sizeof(T) <= 8 && std::is_arithmetic_v<T>, "CUDA shuffles words of 4 or 8 bytes");
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = Engine::instance().collective({kind, mask, bits, argument, width, nullptr, site});
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T, class Operation>
T atomic(T* p, Operation operation) {
  Engine& engine = Engine::instance();
  if (engine.options.preempt_at_atomics) engine.preempt();
  using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  static_assert(sizeof(T) == sizeof(Word), "atomics work on 4 or 8 bytes");
  Word* word = reinterpret_cast<Word*>(p);
  Word old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old,
                                      std::bit_cast<Word>(operation(std::bit_cast<T>(old))), false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return std::bit_cast<T>(old);
}

template <class T>
T checked_load(const T* p) {
  if (reinterpret_cast<std::uintptr_t>(p) % alignof(T) != 0)
    Engine::instance().fail("misaligned load");
  return *p;
}

}  // namespace simt

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              simt::Site site = simt::Site::here()) {
  return simt::shuffle(simt::Collective::shuffle, mask, value, lane, width, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 simt::Site site = simt::Site::here()) {
  return simt::shuffle(simt::Collective::shuffle_up, mask, value, static_cast<int>(delta), width,
                       site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   simt::Site site = simt::Site::here()) {
  return simt::shuffle(simt::Collective::shuffle_down, mask, value, static_cast<int>(delta), width,
                       site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  simt::Site site = simt::Site::here()) {
  return simt::shuffle(simt::Collective::shuffle_xor, mask, value, lane_mask, width, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, simt::Site site = simt::Site::here()) {
  return static_cast<unsigned>(simt::Engine::instance().collective(
      {.kind = simt::Collective::ballot, .mask = mask, .value = predicate != 0, .site = site}));
}
inline int __any_sync(unsigned mask, int predicate, simt::Site site = simt::Site::here()) {
  return static_cast<int>(simt::Engine::instance().collective(
      {.kind = simt::Collective::any, .mask = mask, .value = predicate != 0, .site = site}));
}
inline int __all_sync(unsigned mask, int predicate, simt::Site site = simt::Site::here()) {
  return static_cast<int>(simt::Engine::instance().collective(
      {.kind = simt::Collective::all, .mask = mask, .value = predicate != 0, .site = site}));
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, simt::Site site = simt::Site::here()) {
  static_assert(std::is_integral_v<T> && sizeof(T) >= 4);
  return static_cast<unsigned>(
      simt::Engine::instance().collective({.kind = simt::Collective::match_any,
                                           .mask = mask,
                                           .value = static_cast<std::uint64_t>(value),
                                           .site = site}));
}

namespace simt {
inline unsigned reduce(Collective kind, unsigned mask, unsigned value, Site site) {
  return static_cast<unsigned>(
      Engine::instance().collective({.kind = kind, .mask = mask, .value = value, .site = site}));
}
}  // namespace simt
inline unsigned __reduce_add_sync(unsigned mask, unsigned value,
                                  simt::Site site = simt::Site::here()) {
  return simt::reduce(simt::Collective::add, mask, value, site);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value,
                                  simt::Site site = simt::Site::here()) {
  return simt::reduce(simt::Collective::min, mask, value, site);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value,
                                  simt::Site site = simt::Site::here()) {
  return simt::reduce(simt::Collective::max, mask, value, site);
}
inline int __reduce_min_sync(unsigned mask, int value, simt::Site site = simt::Site::here()) {
  return static_cast<int>(
      simt::reduce(simt::Collective::signed_min, mask, static_cast<unsigned>(value), site));
}
inline int __reduce_max_sync(unsigned mask, int value, simt::Site site = simt::Site::here()) {
  return static_cast<int>(
      simt::reduce(simt::Collective::signed_max, mask, static_cast<unsigned>(value), site));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value,
                                  simt::Site site = simt::Site::here()) {
  return simt::reduce(simt::Collective::bit_and, mask, value, site);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value,
                                 simt::Site site = simt::Site::here()) {
  return simt::reduce(simt::Collective::bit_or, mask, value, site);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value,
                                  simt::Site site = simt::Site::here()) {
  return simt::reduce(simt::Collective::bit_xor, mask, value, site);
}

inline void __threadfence() { simt::Engine::instance().fence(); }
[[noreturn]] inline void __trap() { simt::Engine::instance().fail("__trap"); }

// Atomics are relaxed, as CUDA's are.
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  return simt::atomic(p, [value](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  return simt::atomic(p, [value](T old) { return old < value ? old : value; });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  return simt::atomic(p, [value](T old) { return old > value ? old : value; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> value) {
  return simt::atomic(p, [value](T old) { return static_cast<T>(old | value); });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  return simt::atomic(p, [value](T) { return value; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return simt::atomic(p, [expected, value](T old) { return old == expected ? value : old; });
}

template <class T>
T __ldg(const T* p) {
  return simt::checked_load(p);
}
template <class T>
T __ldcs(const T* p) {
  return simt::checked_load(p);
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}

constexpr int __popc(unsigned x) { return std::popcount(x); }
constexpr int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
constexpr int __ffs(int x) { return x == 0 ? 0 : 1 + std::countr_zero(static_cast<unsigned>(x)); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
