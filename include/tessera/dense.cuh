// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dense layers on a GPU. nvcc and cuBLASLt.
#include <tessera/dense/dense.cuh>
#include <tessera/dense/mlp.cuh>
