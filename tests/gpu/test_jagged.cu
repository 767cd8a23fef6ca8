// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <gpu/need_gpu.hpp>

#include <tessera/cuda/jagged.cuh>

#include <gpu/array.hpp>

using JaggedBackend = tessera::Cuda;

#include <jagged/cases.hpp>
