// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>

namespace tessera { inline namespace v0 {

namespace detail {

// What a backend is, and what it needs besides these members (kernels): docs/concepts/backend.md.

template <class B>
concept HasHostReadable = requires {
  { B::host_readable } -> std::convertible_to<bool>;
};
template <class B>
concept HasAllocate = requires(const B& backend, std::size_t bytes) {
  { backend.allocate(bytes) } -> std::same_as<void*>;
};
template <class B>
concept HasDeallocate = requires(const B& backend, void* memory, std::size_t bytes) {
  backend.deallocate(memory, bytes);
};
template <class B>
concept HasAllocateHost = requires(const B& backend, std::size_t bytes) {
  { backend.allocate_host(bytes) } -> std::same_as<void*>;
};
template <class B>
concept HasDeallocateHost = requires(const B& backend, void* memory, std::size_t bytes) {
  backend.deallocate_host(memory, bytes);
};
template <class B>
concept HasCopy = requires(const B& backend, void* to, const void* from, std::size_t bytes) {
  backend.copy(to, from, bytes);
};
template <class B>
concept HasFillZero = requires(const B& backend, void* memory, std::size_t bytes) {
  backend.fill_zero(memory, bytes);
};
template <class B>
concept HasSynchronize = requires(const B& backend) { backend.synchronize(); };
template <class B>
concept HasWaitFor = requires(const B& backend) { backend.wait_for(backend); };

/// Returns what a new thread must call before it works with a backend of the thread that asks: each
/// thread begins with the process' first GPU, whichever its parent has chosen, and CUDA refuses
/// kernels on streams of another.
template <class Backend>
auto thread_setup(const Backend&) {
  if constexpr (requires { Backend::thread_setup(); })
    return Backend::thread_setup();
  else
    return [] {};
}

}  // namespace detail

/// Where tables are and operations run: memory, and an order of work. A handle; its copies mean the
/// same memory and order. Meaning and the smallest model: docs/concepts/backend.md.
template <class B>
concept Backend =
    std::copy_constructible<B> && detail::HasHostReadable<B> && detail::HasAllocate<B> &&
    detail::HasDeallocate<B> && detail::HasAllocateHost<B> && detail::HasDeallocateHost<B> &&
    detail::HasCopy<B> && detail::HasFillZero<B> && detail::HasSynchronize<B> &&
    detail::HasWaitFor<B>;

/// Lists every requirement that `B` misses, one error each. (Of a concept itself g++ would add
/// seven lines to each.)
template <class B>
consteval bool explain_backend() {
  constexpr bool readable = detail::HasHostReadable<B>, allocate = detail::HasAllocate<B>,
                 deallocate = detail::HasDeallocate<B>;
  constexpr bool allocate_host = detail::HasAllocateHost<B>,
                 deallocate_host = detail::HasDeallocateHost<B>, copy = detail::HasCopy<B>;
  constexpr bool zero = detail::HasFillZero<B>, synchronize = detail::HasSynchronize<B>,
                 wait = detail::HasWaitFor<B>, copyable = std::copy_constructible<B>;
  constexpr bool any = readable || allocate || deallocate || copy || zero || synchronize;
  static_assert(any, "Backend: this type has no member of a backend (docs/concepts/backend.md)");
  static_assert(!any || copyable,
                "Backend: need a copy constructor: copies are handles of the same memory "
                "(docs/concepts/backend.md)");
  static_assert(!any || readable,
                "Backend: need static constexpr bool host_readable (docs/concepts/backend.md)");
  static_assert(!any || allocate,
                "Backend: need void* allocate(std::size_t bytes) const (docs/concepts/backend.md)");
  static_assert(
      !any || deallocate,
      "Backend: need deallocate(void* memory, std::size_t bytes) const (docs/concepts/backend.md)");
  static_assert(
      !any || allocate_host,
      "Backend: need void* allocate_host(std::size_t bytes) const (docs/concepts/backend.md)");
  static_assert(!any || deallocate_host,
                "Backend: need deallocate_host(void* memory, std::size_t bytes) const "
                "(docs/concepts/backend.md)");
  static_assert(!any || copy,
                "Backend: need copy(void* to, const void* from, std::size_t bytes) const "
                "(docs/concepts/backend.md)");
  static_assert(
      !any || zero,
      "Backend: need fill_zero(void* memory, std::size_t bytes) const (docs/concepts/backend.md)");
  static_assert(!any || synchronize,
                "Backend: need synchronize() const (docs/concepts/backend.md)");
  static_assert(!any || wait,
                "Backend: need wait_for(const B& other) const (docs/concepts/backend.md)");
  return Backend<B>;
}

}}  // namespace tessera::v0
