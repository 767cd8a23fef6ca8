// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layers over sequences and the jagged kit on a GPU. nvcc and cuBLASLt.
#include <tessera/concepts/sequence_layer.hpp>
#include <tessera/cuda/jagged.cuh>
#include <tessera/sequence/hstu.cuh>
#include <tessera/sequence/jagged.hpp>
#include <tessera/sequence/sampled_softmax.cuh>
#include <tessera/sequence/softmax_options.hpp>
