// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every kernel of the backend Cuda, but those of the jagged kit (cuda/jagged.cuh).
#include <tessera/cuda/codec.cuh>
#include <tessera/cuda/convert_rows.cuh>
#include <tessera/cuda/copy_rows.cuh>
#include <tessera/cuda/distinct_ids.cuh>
#include <tessera/cuda/exchange.cuh>
#include <tessera/cuda/gradients.cuh>
#include <tessera/cuda/initialize.cuh>
#include <tessera/cuda/inputs.cuh>
#include <tessera/cuda/lookup.cuh>
#include <tessera/cuda/mark_rows.cuh>
#include <tessera/cuda/max_pooling.cuh>
#include <tessera/cuda/non_finite.cuh>
#include <tessera/cuda/route.cuh>
#include <tessera/cuda/row_statistics.cuh>
#include <tessera/cuda/sequence_rows.cuh>
#include <tessera/cuda/step_counter.cuh>
#include <tessera/cuda/update.cuh>
#include <tessera/cuda/weight_gradients.cuh>
