// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stands in for the toolkit's header of the same name, with what NCCL's double asks of a runtime.
#include <cuda_runtime.h>

#include <functional>
#include <utility>

using CudaTask = std::function<void()>;
inline void cuda_double_add(cudaStream_t stream, CudaTask task) {
  simt::enqueue(stream, [task = std::move(task)] {
    const simt::DeviceAccess access;
    task();
  });
}
inline bool cuda_double_on_device(const void* p) { return simt::DeviceHeap::instance().holds(p); }
