// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/runtime.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

// More of the CUDA runtime: memory pools, cudaMalloc, times of events. Pools keep nothing here;
// their attribute is kept. There are no times: any two events are ten microseconds apart.

struct CUmemPool_st {
  std::uint64_t release_threshold = 0;
};
using cudaMemPool_t = CUmemPool_st*;
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static std::array<CUmemPool_st, simt::device_count> pools;
  if (device < 0 || device >= simt::device_count) return simt::noted(cudaErrorInvalidDevice);
  *pool = &pools[static_cast<std::size_t>(device)];
  return cudaSuccess;
}
inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* value) {
  *static_cast<std::uint64_t*>(value) = pool->release_threshold;
  return cudaSuccess;
}
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* value) {
  pool->release_threshold = *static_cast<std::uint64_t*>(value);
  return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  return cudaMallocAsync(p, bytes, nullptr);
}
inline cudaError_t cudaFree(void* p) { return cudaFreeAsync(p, nullptr); }

inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0.01f;
  return cudaSuccess;
}
