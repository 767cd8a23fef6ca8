// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace detail {

/// Runs parallel_for of any function, compiled once: `call` passes `f` on.
inline void run_parts(int threads, std::int64_t parts,
                      void (*call)(const void* f, std::int64_t part, int worker), const void* f) {
  if (threads <= 1 || parts <= 1) {
    for (std::int64_t part = 0; part < parts; ++part) call(f, part, 0);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (std::int64_t part = 0; part < parts; ++part) call(f, part, omp_get_thread_num());
}

/// Calls f(part, worker) for every part in [0, parts) on up to `threads` OpenMP threads, as they
/// become free; `worker` (0..threads-1) is the thread that runs it. With one thread or one part
/// nothing is started. `f` must not throw.
template <class F>
void parallel_for(int threads, std::int64_t parts, const F& f) {
  run_parts(
      threads, parts,
      [](const void* given, std::int64_t part, int worker) {
        (*static_cast<const F*>(given))(part, worker);
      },
      &f);
}

/// Returns how many of `threads` are worth their start for work that touches `bytes`.
inline int worthwhile_threads(int threads, std::int64_t bytes) {
  constexpr std::int64_t bytes_per_thread = 64 << 10;
  const std::int64_t useful = bytes / bytes_per_thread;
  return useful >= threads ? threads : useful <= 1 ? 1 : static_cast<int>(useful);
}

}  // namespace detail

}}  // namespace tessera::v0
