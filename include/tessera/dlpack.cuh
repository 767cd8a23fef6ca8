// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What dlpack.hpp has, and the order of streams. nvcc only.
#include <tessera/bridges/dlpack.cuh>
#include <tessera/bridges/dlpack.hpp>
#include <tessera/bridges/dlpack_structs.hpp>
