// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <gpu/need_gpu.hpp>

#include <c/gpu_memory.cuh>
#include <c/test_cuda_library.cpp>
