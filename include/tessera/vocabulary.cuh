// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Raw keys to rows in a GPU's memory. nvcc only.
#include <tessera/vocabulary/vocabulary.cuh>
