// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

// The one place that knows which compiler builds the kernels: nvcc for a GPU, or a C++ compiler for the emulator of tests/simt, whose
// toolkit folder stands in for CUDA's. It chooses a file and changes no body.
#if defined(__CUDACC__)
#include <tessera/cuda/primitives.cuh>
#elif __has_include(<simt/primitives.hpp>)
#include <simt/primitives.hpp>
#else
#error "Tessera's .cuh headers need nvcc; include <tessera/tessera.hpp> for the host backend alone"
#endif
