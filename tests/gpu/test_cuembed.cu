// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <gpu/need_gpu.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <gpu/cuembed_cases.hpp>
