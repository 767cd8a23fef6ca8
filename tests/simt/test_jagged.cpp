// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <tessera/cuda/jagged.cuh>

#include <gpu/array.hpp>

using JaggedBackend = tessera::Cuda;

#include <jagged/cases.hpp>
