// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>

#include <span>

namespace sequence {

/// How numbers that the host works out for a step come into a backend's memory, where they stay
/// until the next are sent. On a GPU, in one place (vector_ops.cuh).
template <class T, class Backend>
class Outbox;

/// On the host they stay where they are, and unchanged.
template <class T>
class Outbox<T, tessera::Host> {
 public:
  explicit Outbox(const tessera::Host&) {}
  std::span<const T> send(std::span<const T> values) const { return values; }
};

}  // namespace sequence
