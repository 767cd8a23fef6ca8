// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SIMT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif

#ifdef SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SIMT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/// Marks the emulator's own code: it touches its state from every fiber, which the sanitizers must
/// not see as the kernel's doing. With no_sanitize alone clang's thread sanitizer still notes calls
/// and returns, which a switch between fibers does not pair. Undefined behaviour is looked for in
/// kernels, not here: that would be a third of a test's time.
#if (defined(SIMT_ASAN) || defined(SIMT_TSAN)) && defined(__clang__)
#define SIMT_RUNTIME \
  __attribute__((disable_sanitizer_instrumentation, no_sanitize("undefined"), noinline))
#elif defined(SIMT_ASAN) || defined(SIMT_TSAN)
#define SIMT_RUNTIME __attribute__((no_sanitize("address"), no_sanitize("thread"), noinline))
#else
#define SIMT_RUNTIME
#endif

namespace simt {

#ifdef SIMT_ASAN
inline constexpr bool has_asan = true;
#else
inline constexpr bool has_asan = false;
#endif
#ifdef SIMT_TSAN
inline constexpr bool has_tsan = true;
#else
inline constexpr bool has_tsan = false;
#endif

/// Address sanitizer: memory that must not be touched, and which stack is in use.
namespace asan {
#ifdef SIMT_ASAN
SIMT_RUNTIME inline void poison(const void* p, std::size_t bytes) {
  __asan_poison_memory_region(p, bytes);
}
SIMT_RUNTIME inline void unpoison(const void* p, std::size_t bytes) {
  __asan_unpoison_memory_region(p, bytes);
}
/// Before a switch: `save` keeps the stack being left (null: it is finished), bottom and bytes are
/// those of the next one.
SIMT_RUNTIME inline void leave_stack(void** save, const void* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(save, bottom, bytes);
}
/// After a switch: `saved` is what leave_stack kept for the stack now in use; tells where the
/// previous stack was.
SIMT_RUNTIME inline void enter_stack(void* saved, const void** previous_bottom,
                                     std::size_t* previous_bytes) {
  __sanitizer_finish_switch_fiber(saved, previous_bottom, previous_bytes);
}
#else
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
inline void leave_stack(void**, const void*, std::size_t) {}
inline void enter_stack(void*, const void**, std::size_t*) {}
#endif
}  // namespace asan

/// Thread sanitizer: one of its fibers per CUDA thread. Switching creates no order; acquire and
/// release on a tag do.
namespace tsan {
#ifdef SIMT_TSAN
SIMT_RUNTIME inline void* create() { return __tsan_create_fiber(0); }
SIMT_RUNTIME inline void destroy(void* fiber) { __tsan_destroy_fiber(fiber); }
SIMT_RUNTIME inline void* current() { return __tsan_get_current_fiber(); }
SIMT_RUNTIME inline void switch_to(void* fiber) {
  __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
}
SIMT_RUNTIME inline void acquire(void* tag) { __tsan_acquire(tag); }
SIMT_RUNTIME inline void release(void* tag) { __tsan_release(tag); }
#else
inline void* create() { return nullptr; }
inline void destroy(void*) {}
inline void* current() { return nullptr; }
inline void switch_to(void*) {}
inline void acquire(void*) {}
inline void release(void*) {}
#endif
}  // namespace tsan
}  // namespace simt
