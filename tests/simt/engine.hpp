// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/context.hpp>
#include <simt/shared_memory.hpp>
#include <simt/vector_types.hpp>
#include <simt/warp.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

namespace simt {

/// In which order the threads that could run do run, between meeting points, and the blocks of a
/// grid. A kernel that is right gives the same bits in all of them.
enum class Order { forward, reverse, random };

struct Options {
  Order order = Order::forward;
  std::uint64_t seed = 1;           ///< of the random order
  bool preempt_at_atomics = false;  ///< other threads run before each atomic operation, too
};

struct Counters {
  std::uint64_t launches = 0, blocks = 0, threads = 0, switches = 0, barriers = 0, collectives = 0;
};

/// A copy to shared memory that its thread has not waited for.
struct PendingCopy {
  unsigned char* to = nullptr;
  const unsigned char* from = nullptr;
  int bytes = 0;
  PendingCopy* next = nullptr;
};

/// Runs the threads of a block as fibers on the calling thread, one block after another. Barriers
/// and warp intrinsics are meeting points where operands are checked. One launch at a time:
/// launches from several host threads wait for each other.
class Engine {
 public:
  static constexpr unsigned max_threads = 1024;

  static Engine& instance() {
    static Engine engine;
    return engine;
  }

  Options options;
  Counters counters;
  SharedMemory shared;

  /// Runs body(argument) once per CUDA thread. Throws what the first failing thread threw.
  SIMT_RUNTIME void run_grid(dim3 grid, dim3 block, std::size_t dynamic_bytes, void (*body)(void*),
                             void* argument) {
    const std::lock_guard lock(launch_mutex_);
    const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
    gridDim = grid;
    blockDim = block;
    body_ = body;
    argument_ = argument;
    random_ = options.seed * 0x9e3779b97f4a7c15u | 1u;
    ++counters.launches;
    // A step that has no divisor in common with the number of blocks visits each of them once.
    std::uint64_t step = 1, start = 0;
    if (options.order == Order::reverse) {
      start = blocks - 1;
      step = blocks - 1;
    } else if (options.order == Order::random) {
      start = random() % blocks;
      do step = 1 + random() % blocks;
      while (greatest_common_divisor(step, blocks) != 1);
    }
    std::uint64_t b = start;
    for (std::uint64_t i = 0; i < blocks; ++i, b = (b + step) % blocks) {
      blockIdx = {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                  static_cast<unsigned>(b / (std::uint64_t{grid.x} * grid.y))};
      run_block(dynamic_bytes);
    }
    tsan::acquire(&exit_tag_);
  }

  /// __syncthreads.
  SIMT_RUNTIME void block_barrier(Site site) {
    lane().operand.site = site;
    if (exited_count_ != 0) fail("__syncthreads after threads of the block have exited");
    if (arrived_ == 0) barrier_site_ = site;
    if (!(barrier_site_ == site))
      fail("divergent __syncthreads: the block's threads wait at different places");
    // two tags in turn: no thread is two barriers ahead of another
    void* tag = &tags_->barrier[barriers_ % 2];
    tsan::release(tag);
    at_barrier_[warp()] |= bit();
    if (++arrived_ == threads_) {
      arrived_ = 0;
      ++barriers_;
      ++counters.barriers;
      for (unsigned w = 0; w < 32; ++w) {
        ready_[w] |= at_barrier_[w];
        at_barrier_[w] = 0;
      }
    }
    yield();
    tsan::acquire(tag);
  }

  /// By words, as compilers may call memcpy for an assignment, which the thread sanitizer watches: to
  /// it, fibers of two launches are threads that nothing orders.
  SIMT_RUNTIME static void copy_unwatched(Operand& to, const Operand& from) {
    using Word [[gnu::may_alias]] = std::uint64_t;
    static_assert(sizeof(Operand) % sizeof(Word) == 0 && std::is_trivially_copyable_v<Operand>);
    const auto* source = reinterpret_cast<const volatile Word*>(&from);
    auto* target = reinterpret_cast<volatile Word*>(&to);
    for (std::size_t i = 0; i < sizeof(Operand) / sizeof(Word); ++i) target[i] = source[i];
  }

  /// A warp intrinsic: waits for every lane of the mask and returns this lane's result.
  SIMT_RUNTIME std::uint64_t collective(const Operand& operand) {
    const unsigned w = warp();
    const std::uint32_t mask = operand.mask;
    Lane& self = lane();
    copy_unwatched(self.operand, operand);
    if ((mask & bit()) == 0)
      fail("a lane calls a warp intrinsic with a mask that does not name it");
    if ((mask & exited_[w]) != 0)
      fail("the mask of a warp intrinsic names lanes that have exited or do not exist");
    // Only __syncwarp orders memory; shuffles and votes do not. Two tags in turn, as for the
    // block's barrier.
    const int leader = std::countr_zero(mask);
    void* tag = nullptr;
    if (operand.kind == Collective::sync) {
      tag = &tags_->warp[w][leader][warp_syncs_[w][leader] % 2];
      tsan::release(tag);
    }
    waiting_[w] |= bit();
    if ((waiting_[w] & mask) == mask) {
      const Operand* operands[32] = {};
      std::uint64_t results[32] = {};
      for (unsigned i = 0; i < 32 && w * 32 + i < threads_; ++i)
        operands[i] = &lanes_[w * 32 + i].operand;
      if (const char* fault = resolve(operands, mask, results)) fail(fault);
      for (unsigned i = 0; i < 32; ++i)
        if ((mask >> i & 1u) != 0) lanes_[w * 32 + i].result = results[i];
      if (tag != nullptr) ++warp_syncs_[w][leader];
      ++counters.collectives;
      waiting_[w] &= ~mask;
      ready_[w] |= mask;
    }
    yield();
    if (tag != nullptr) tsan::acquire(tag);
    return self.result;
  }

  /// Lets other threads run.
  SIMT_RUNTIME void preempt() {
    ready_[warp()] |= bit();
    yield();
  }

  /// A thread's copies to shared memory, of which the latest is waited for first.
  SIMT_RUNTIME void push_copy(PendingCopy copy) {
    copy.next = lane().copies;
    lane().copies = new PendingCopy(copy);
  }
  SIMT_RUNTIME bool pop_copy(PendingCopy& copy) {
    PendingCopy* const latest = lane().copies;
    if (latest == nullptr) return false;
    copy.to = latest->to;
    copy.from = latest->from;
    copy.bytes = latest->bytes;
    lane().copies = latest->next;
    delete latest;
    return true;
  }

  SIMT_RUNTIME void fence() {
    tsan::acquire(&fence_tag_);
    tsan::release(&fence_tag_);
  }

  SIMT_RUNTIME void* static_shared(const void* key, std::size_t bytes) {
    void* p = shared.variable(key, bytes);
    if (p == nullptr) fail("too much static shared memory in a block");
    return p;
  }

  /// Throws Error: what, block, thread, file and line of its latest meeting point.
  [[noreturn]] SIMT_RUNTIME void fail(const char* what) const {
    char text[512];
    const Site& site = lanes_[current_].operand.site;
    std::snprintf(text, sizeof text, "simt: %s (block (%u,%u,%u), thread (%u,%u,%u), at %s:%u)",
                  what, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z,
                  site.file, site.line);
    throw Error(text);
  }

 private:
  /// A stack and what the sanitizers know of it. A thread gets one when it begins, and keeps it if it
  /// has to wait: those that never do run one after another on one stack.
  struct Fiber {
    Stack stack;
    void* asan_stack = nullptr;
    void* tsan_fiber = nullptr;
    Fiber* next_idle = nullptr;
  };
  struct Lane {
    Context context;
    Operand operand;
    std::uint64_t result = 0;
    uint3 thread{};
    Fiber* fiber = nullptr;  // null: it has not begun
    PendingCopy* copies = nullptr;
  };
  /// Addresses that stand for a block's barriers. Fresh memory for each block: freeing makes the
  /// thread sanitizer forget the order that they carried, so blocks stay unordered among
  /// themselves.
  struct Tags {
    char barrier[2];
    char warp[32][32][2];
  };
  struct Abandoned {};  // thrown in the threads of a failed block, to unwind their stacks

  // A fiber remembers, for the thread sanitizer, all that was ordered before its latest barrier. So
  // blocks take turns with sets of fibers, and a race between blocks is seen when fewer than this
  // many blocks lie between them.
  static constexpr unsigned fiber_sets = has_tsan ? 3 : 1;

  Engine() = default;

  SIMT_RUNTIME unsigned warp() const { return current_ / 32; }
  SIMT_RUNTIME std::uint32_t bit() const { return 1u << (current_ % 32); }
  SIMT_RUNTIME Lane& lane() { return lanes_[current_]; }

  SIMT_RUNTIME std::uint64_t random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }
  static std::uint64_t greatest_common_divisor(std::uint64_t a, std::uint64_t b) {
    while (b != 0) a = std::exchange(b, a % b);
    return a;
  }

  SIMT_RUNTIME static void fiber_main() {
    Engine& e = instance();
    e.enter(nullptr);
    for (;;) {
      tsan::acquire(&e.launch_tag_);
      e.run_body();
      e.exited_[e.warp()] |= e.bit();
      ++e.exited_count_;
      tsan::release(&e.exit_tag_);
      const unsigned next = e.next();
      Fiber& f = *e.lane().fiber;
      if (!has_tsan && next != none && e.lanes_[next].fiber == nullptr) {
        e.lanes_[next].fiber = &f;
        e.become(next);
        continue;
      }
      f.next_idle = e.idle_;  // not std::exchange, which TSan would watch
      e.idle_ = &f;
      e.go_to(next, e.lane().context, nullptr);
      __builtin_trap();
    }
  }

  SIMT_RUNTIME void run_body() {
    if (aborting_) return;
    try {
      body_(argument_);
      if (arrived_ != 0) fail("a thread exits while others of its block wait in __syncthreads");
      if (lane().copies != nullptr)
        fail("a thread exits before its copies to shared memory have arrived");
    } catch (...) {
      if (!aborting_) failure_ = std::current_exception();
      aborting_ = true;
      for (PendingCopy copy; pop_copy(copy);) {
      }
    }
  }

  SIMT_RUNTIME void become(unsigned thread) {
    current_ = thread;
    threadIdx = lanes_[thread].thread;
    ++counters.switches;
  }

  /// Gives a thread a stack of its own.
  SIMT_RUNTIME void begin(unsigned thread) {
    Fiber& f = has_tsan           ? fibers_[fiber_set_ * max_threads + thread]
               : idle_ != nullptr ? *std::exchange(idle_, idle_->next_idle)
                                  : fibers_[stacks_++];
    f.stack.reserve();
    f.asan_stack = nullptr;
    if (has_tsan && f.tsan_fiber == nullptr) f.tsan_fiber = tsan::create();
    lanes_[thread].fiber = &f;
    lanes_[thread].context.start(f.stack, static_cast<std::size_t>(&f - fibers_) * 7, &fiber_main);
  }

  /// Leaves a stack for that of a thread, or of the host.
  SIMT_RUNTIME void go_to(unsigned thread, Context& from, void** asan_stack) {
    from_host_ = &from == &host_context_;
    if (thread == none) {
      asan::leave_stack(asan_stack, host_bottom_, host_bytes_);
      tsan::switch_to(host_fiber_);
      return Context::swap(from, host_context_);
    }
    if (lanes_[thread].fiber == nullptr) begin(thread);
    const Fiber& f = *lanes_[thread].fiber;
    become(thread);
    asan::leave_stack(asan_stack, f.stack.bottom(), Stack::bytes);
    tsan::switch_to(f.tsan_fiber);
    Context::swap(from, lanes_[thread].context);
  }
  /// After go_to of another stack: a thread's is in use.
  SIMT_RUNTIME void enter(void* asan_stack) {
    asan::enter_stack(asan_stack, from_host_ ? &host_bottom_ : nullptr,
                      from_host_ ? &host_bytes_ : nullptr);
  }

  /// From the host into a thread, until no thread can run.
  SIMT_RUNTIME void resume(unsigned thread) {
    void* host_stack = nullptr;
    go_to(thread, host_context_, &host_stack);
    asan::enter_stack(host_stack, nullptr, nullptr);
  }

  /// From a thread to the next one that can run, until this one can again.
  SIMT_RUNTIME void yield() {
    const unsigned thread = next();
    if (thread == current_) return;
    Lane& self = lane();
    Fiber& f = *self.fiber;
    go_to(thread, self.context, &f.asan_stack);
    enter(f.asan_stack);
    if (aborting_) throw Abandoned{};
  }

  static constexpr unsigned none = ~0u;

  SIMT_RUNTIME unsigned next() { return aborting_ ? none : pick(); }

  /// The next thread to run: the nearest ready one after, or before, the latest, or after a random
  /// one.
  SIMT_RUNTIME unsigned pick() {
    const bool down = options.order == Order::reverse;
    const unsigned from =
        options.order == Order::random ? static_cast<unsigned>(random() % threads_) : current_;
    const unsigned warps = (threads_ + 31) / 32, w0 = from / 32, b = from % 32;
    const std::uint32_t here = down ? (1u << b) - 1u : b == 31 ? 0u : ~0u << (b + 1);
    for (unsigned i = 0; i <= warps; ++i) {
      const unsigned w = (down ? w0 + warps - i % warps : w0 + i) % warps;
      const std::uint32_t candidates = ready_[w] & (i == 0 ? here : i == warps ? ~here : ~0u);
      if (candidates == 0) continue;
      const unsigned choice = static_cast<unsigned>(down ? 31 - std::countl_zero(candidates)
                                                         : std::countr_zero(candidates));
      ready_[w] &= ~(1u << choice);
      return w * 32 + choice;
    }
    return none;
  }

  SIMT_RUNTIME void begin_block(std::size_t dynamic_bytes) {
    threads_ = blockDim.x * blockDim.y * blockDim.z;
    arrived_ = exited_count_ = barriers_ = 0;
    aborting_ = false;
    failure_ = nullptr;
    host_fiber_ = tsan::current();
    fiber_set_ = (fiber_set_ + 1) % fiber_sets;
    shared.begin_block(dynamic_bytes);
    for (unsigned w = 0; w < 32; ++w) {
      const unsigned begin = w * 32;
      const std::uint32_t exist = begin + 32 <= threads_ ? ~0u
                                  : begin >= threads_    ? 0u
                                                         : (1u << (threads_ - begin)) - 1u;
      ready_[w] = exist;
      exited_[w] = ~exist;
      waiting_[w] = at_barrier_[w] = 0;
    }
    uint3 thread{};
    for (unsigned i = 0; i < threads_; ++i) {
      lanes_[i].fiber = nullptr;
      lanes_[i].thread = thread;
      lanes_[i].operand.site = {"the kernel's start, line", 0};
      if (++thread.x != blockDim.x) continue;
      thread.x = 0;
      if (++thread.y != blockDim.y) continue;
      thread.y = 0;
      ++thread.z;
    }
    current_ = options.order == Order::reverse ? 0 : threads_ - 1;
    counters.threads += threads_;
    ++counters.blocks;
    tsan::release(&launch_tag_);
  }

  SIMT_RUNTIME void run_block(std::size_t dynamic_bytes) {
    const std::unique_ptr<Tags> tags(has_tsan ? new Tags : nullptr);
    tags_ = has_tsan ? tags.get() : &no_tags_;
    begin_block(dynamic_bytes);
    resume(pick());
    if (!aborting_ && exited_count_ != threads_) {
      aborting_ = true;
      failure_ = std::make_exception_ptr(Error(deadlock_text()));
    }
    if (aborting_) abandon_block();
  }

  /// Unwinds the stacks of a failed block, so that the sanitizers' books stay right, and passes the
  /// failure on.
  SIMT_RUNTIME void abandon_block() {
    for (unsigned i = 0; i < threads_; ++i)
      if ((exited_[i / 32] >> (i % 32) & 1u) == 0 && lanes_[i].fiber != nullptr) resume(i);
    if (has_tsan) tsan::acquire(&exit_tag_);
    for (unsigned i = 0; i < threads_; ++i) {
      if (lanes_[i].fiber == nullptr) continue;
      if (has_tsan) tsan::destroy(std::exchange(lanes_[i].fiber->tsan_fiber, nullptr));
      asan::unpoison(lanes_[i].fiber->stack.bottom(), Stack::bytes);
    }
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  SIMT_RUNTIME std::string deadlock_text() const {
    char line[256];
    std::snprintf(line, sizeof line, "simt: deadlock in block (%u,%u,%u):", blockIdx.x, blockIdx.y,
                  blockIdx.z);
    std::string text = line;
    unsigned named = 0, stuck = 0;
    for (unsigned i = 0; i < threads_; ++i) {
      if ((exited_[i / 32] >> (i % 32) & 1u) != 0) continue;
      ++stuck;
      if (named == 3) continue;
      const Lane& l = lanes_[i];
      const bool barrier = (at_barrier_[i / 32] >> (i % 32) & 1u) != 0;
      std::snprintf(line, sizeof line, "%s thread (%u,%u,%u) waits in %s at %s:%u",
                    named++ == 0 ? "" : ",", l.thread.x, l.thread.y, l.thread.z,
                    barrier ? "__syncthreads" : name(l.operand.kind), l.operand.site.file,
                    l.operand.site.line);
      text += line;
    }
    std::snprintf(line, sizeof line, "; %u of %u threads wait for ever", stuck, threads_);
    return text + line;
  }

  // What meeting points touch.
  unsigned threads_ = 0, current_ = 0, arrived_ = 0, exited_count_ = 0, barriers_ = 0,
           fiber_set_ = 0;
  bool aborting_ = false, from_host_ = false;
  Site barrier_site_;
  std::uint32_t ready_[32] = {}, waiting_[32] = {}, at_barrier_[32] = {}, exited_[32] = {};
  unsigned warp_syncs_[32][32] = {};
  Tags* tags_ = nullptr;
  Lane lanes_[max_threads];
  Fiber fibers_[fiber_sets * max_threads];
  Fiber* idle_ = nullptr;  // that had a thread which has ended
  unsigned stacks_ = 0;    // of which the first fibers have one
  // The launch.
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::uint64_t random_ = 1;
  std::exception_ptr failure_;
  Context host_context_;
  const void* host_bottom_ = nullptr;
  std::size_t host_bytes_ = 0;
  void* host_fiber_ = nullptr;
  char launch_tag_ = 0, exit_tag_ = 0, fence_tag_ = 0;
  Tags no_tags_;
  std::mutex launch_mutex_;
};

/// Runs the scope's launches with these options.
class Scope {
 public:
  explicit Scope(Options options) : saved_(std::exchange(Engine::instance().options, options)) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { Engine::instance().options = saved_; }

 private:
  Options saved_;
};

/// Calls `function` under every order, and two seeds of the random one.
template <class Function>
void under_every_order(Function&& function) {
  for (const Options options :
       {Options{.order = Order::forward}, Options{.order = Order::reverse},
        Options{.order = Order::random, .seed = 1},
        Options{.order = Order::random, .seed = 2, .preempt_at_atomics = true}}) {
    const Scope scope(options);
    function();
  }
}

}  // namespace simt
