// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera::inline v0::cuda {

/// A static variable in the block's shared memory, uninitialized: one per type and tag.
template <class T, int Tag = 0>
__device__ __forceinline__ T& block_shared() {
  __shared__ T variable;
  return variable;
}

/// The block's dynamic shared memory, aligned to 16 bytes.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ uint4 tessera_dynamic_shared_memory[];
  return reinterpret_cast<T*>(tessera_dynamic_shared_memory);
}

}  // namespace tessera::inline v0::cuda
