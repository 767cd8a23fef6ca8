// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Matrices, ids and tables' rows as tensors of other libraries, and back, without a copy.
#include <tessera/bridges/dlpack.hpp>
#include <tessera/bridges/dlpack_structs.hpp>
