// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// gpu_memory.h by CUDA, or its emulator.
#pragma once

#include "gpu_memory.h"

#include <cuda_runtime.h>

/// The last that this thread has made: what it works in the order of.
static thread_local cudaStream_t gpu_own_stream = nullptr;

void* gpu_allocate(size_t bytes) {
  void* memory = nullptr;
  return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}
void gpu_free(void* memory) { static_cast<void>(cudaFree(memory)); }
int gpu_copy(void* to, const void* from, size_t bytes) {
  if (const cudaError_t error = cudaStreamSynchronize(gpu_own_stream); error != cudaSuccess)
    return error;
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}
void* gpu_stream(int device) {
  const int before = gpu_current();
  static_cast<void>(cudaSetDevice(device));
  static_cast<void>(cudaStreamCreateWithFlags(&gpu_own_stream, cudaStreamNonBlocking));
  static_cast<void>(cudaSetDevice(before));
  return gpu_own_stream;
}
void gpu_end_stream(void* stream) {
  static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
  gpu_own_stream = nullptr;
}
int gpu_current() {
  int device = -1;
  return cudaGetDevice(&device) == cudaSuccess ? device : -1;
}
int gpu_joined() {
#if TESSERA_C_NCCL
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
#else
  return 1;
#endif
}
