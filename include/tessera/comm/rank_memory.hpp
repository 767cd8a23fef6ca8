// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/memory.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace tessera { inline namespace v0 { namespace detail {

/// Computes to = to (+ min max) from, element by element.
template <Reducible T>
void reduce_into(T* to, const T* from, std::size_t count, Reduction reduction) {
  if (reduction == Reduction::sum) {
    for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
  } else if (reduction == Reduction::min) {
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i] < to[i] ? from[i] : to[i];
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = to[i] < from[i] ? from[i] : to[i];
  }
}

/// How the communicators of one process read and write buffers: here, in host memory, by the
/// calling thread. A backend whose memory the host cannot touch brings a class of its own with the
/// same members, which takes host memory, too.
struct HostTransfer {
  /// Completes earlier work on `buffer` before peers may read or write it.
  void publish(const void*) const {}
  void copy(void* to, const void* from, std::size_t bytes) const { copy_bytes(to, from, bytes); }
  /// Makes element i of to(0) .. to(targets - 1) the reduction of element i of from(0) ..
  /// from(sources - 1), in this order. Targets may be some of the sources.
  template <Reducible T, class From, class To>
  void reduce(int sources, From from, int targets, To to, std::size_t count,
              Reduction reduction) const {
    std::array<T, 2048 / sizeof(T)> block;
    for (std::size_t at = 0; at < count; at += block.size()) {
      const std::size_t size = std::min(block.size(), count - at);
      std::copy_n(from(0) + at, size, block.data());
      for (int i = 1; i < sources; ++i) reduce_into<T>(block.data(), from(i) + at, size, reduction);
      for (int i = 0; i < targets; ++i) std::copy_n(block.data(), size, to(i) + at);
    }
  }
  /// Waits for this rank's copies and reductions.
  void complete() const {}
};

}}}  // namespace tessera::v0::detail
