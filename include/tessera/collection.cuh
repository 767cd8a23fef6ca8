// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Collections whose tables are in a GPU's memory: the backend Cuda, its kernels, thread ranks on
// GPUs. nvcc only.
#include <tessera/collection.hpp>

#include <tessera/comm/rank_memory.cuh>
#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/kernels.cuh>
#include <tessera/cuda/stream.cuh>
