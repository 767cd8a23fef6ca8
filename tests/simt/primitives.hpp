// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/runtime.hpp>

#include <type_traits>

// The emulator's twins of tessera/cuda/primitives.cuh.
namespace tessera::inline v0::cuda {

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

}  // namespace tessera::inline v0::cuda
