// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <gpu/need_gpu.hpp>

#include <tessera/ngram.cuh>

#include <gpu/array.hpp>

using NgramBackend = tessera::Cuda;

#include <vocabulary/ngram_cases.hpp>
