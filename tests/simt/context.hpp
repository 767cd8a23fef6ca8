// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/sanitizer.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace simt {

/// A stack of its own with a guard page below it.
class Stack {
 public:
  static constexpr std::size_t bytes = 128 * 1024;

  Stack() = default;
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() {
    if (mapping_ == nullptr) return;
    asan::unpoison(bottom(), bytes);
    munmap(mapping_, bytes + guard);
  }

  char* bottom() const { return mapping_ + guard; }

  SIMT_RUNTIME void reserve() {
    if (mapping_ != nullptr) return;
    void* p = mmap(nullptr, bytes + guard, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    mprotect(p, guard, PROT_NONE);
    mapping_ = static_cast<char*>(p);
  }

 private:
  static constexpr std::size_t guard = 4096;
  char* mapping_ = nullptr;
};

#ifdef __x86_64__
namespace detail {
/// Saves the registers that a System V function must keep, and continues on another stack. glibc's
/// swapcontext would make a system call for the signal mask at each switch: ten times slower.
__attribute__((naked, noinline, no_sanitize("address"), no_sanitize("thread"))) inline void
switch_stack([[maybe_unused]] void** save, [[maybe_unused]] void* load) {
  asm("push %rbp\n\t"
      "push %rbx\n\t"
      "push %r12\n\t"
      "push %r13\n\t"
      "push %r14\n\t"
      "push %r15\n\t"
      "mov %rsp, (%rdi)\n\t"
      "mov %rsi, %rsp\n\t"
      "pop %r15\n\t"
      "pop %r14\n\t"
      "pop %r13\n\t"
      "pop %r12\n\t"
      "pop %rbx\n\t"
      "pop %rbp\n\t"
      "ret");
}
}  // namespace detail

/// Where a fiber stands while it does not run.
class Context {
 public:
  /// The next switch to this context calls `entry` on `stack`; entry must not return.
  SIMT_RUNTIME void start(const Stack& stack, std::size_t colour, void (*entry)()) {
    // Equal page offsets on a thousand stacks would compete for the same lines of the cache.
    void** top = reinterpret_cast<void**>(stack.bottom() + Stack::bytes - (colour % 32) * 128);
    *--top = nullptr;  // the return address of `entry`: there is none
    *--top = reinterpret_cast<void*>(entry);
    for (int saved_register = 0; saved_register < 6; ++saved_register) *--top = nullptr;
    stack_pointer_ = top;
  }
  SIMT_RUNTIME static void swap(Context& save, Context& load) {
    detail::switch_stack(&save.stack_pointer_, load.stack_pointer_);
  }

 private:
  void* stack_pointer_ = nullptr;
};
#else
class Context {
 public:
  SIMT_RUNTIME void start(const Stack& stack, std::size_t, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack.bottom();
    context_.uc_stack.ss_size = Stack::bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }
  SIMT_RUNTIME static void swap(Context& save, Context& load) {
    swapcontext(&save.context_, &load.context_);
  }

 private:
  ucontext_t context_;
};
#endif
}  // namespace simt
