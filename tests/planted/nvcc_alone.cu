// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A fault that the emulator's compilers take and nvcc refuses: a kernel that calls a function of the host.
#include <cuda_runtime.h>

inline int of_the_host() { return 1; }

__global__ void kernel(int* value) { *value = of_the_host(); }
