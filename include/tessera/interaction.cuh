// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Interactions on a GPU. nvcc only.
#include <tessera/concepts/interaction.hpp>
#include <tessera/interaction/concat.cuh>
#include <tessera/interaction/cross.cuh>
#include <tessera/interaction/dot.cuh>
