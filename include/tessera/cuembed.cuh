// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// cuEmbed's functions over Tessera's kernels. nvcc only.
#include <tessera/bridges/cuembed.cuh>
