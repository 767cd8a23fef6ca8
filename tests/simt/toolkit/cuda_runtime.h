// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stands in for the toolkit's header of the same name where a C++ compiler builds kernels for the emulator.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Read by all threads, copied by none.
#define __grid_constant__ &

#include <simt/memory_pools.hpp>
#include <simt/runtime.hpp>
