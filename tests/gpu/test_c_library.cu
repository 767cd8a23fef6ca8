// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// libtessera_c's sources as one, so that this program needs no library, and the tests of its tables on GPUs.
#include <gpu/need_gpu.hpp>

#include "../../cmake/c_library/collections.cpp"
#include "../../cmake/c_library/communicators.cpp"
#include "../../cmake/c_library/cuda_collections.cu"
#include "../../cmake/c_library/files.cpp"
#include "../../cmake/c_library/handles.cpp"
#include "../../cmake/c_library/host_collections.cpp"
#include "../../cmake/c_library/layouts.cpp"

#include <c/gpu_memory.cuh>
#include <c/test_cuda_library.cpp>
