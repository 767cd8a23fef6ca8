// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything of tessera.hpp but the host's interactions, whose vectors nvcc does not take; and the
// backend Cuda. nvcc only. Dense layers: tessera/dense/dense.cuh (cuBLASLt).
#include <tessera/collection/compiled_once.hpp>
#include <tessera/collection/embedding_collection.hpp>
#include <tessera/collection/route_ahead.hpp>
#include <tessera/comm/rank_memory.cuh>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
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
#include <tessera/cuda/stream.cuh>
#include <tessera/cuda/update.cuh>
#include <tessera/cuda/weight_gradients.cuh>
#include <tessera/host/codec.hpp>
#include <tessera/host/convert_rows.hpp>
#include <tessera/host/copy_rows.hpp>
#include <tessera/host/distinct_ids.hpp>
#include <tessera/host/exchange.hpp>
#include <tessera/host/initialize.hpp>
#include <tessera/host/lookup.hpp>
#include <tessera/host/mark_rows.hpp>
#include <tessera/host/max_pooling.hpp>
#include <tessera/host/non_finite.hpp>
#include <tessera/host/row_statistics.hpp>
#include <tessera/host/sequence_rows.hpp>
#include <tessera/host/update.hpp>
#include <tessera/host/weight_gradients.hpp>
#include <tessera/interaction/concat.cuh>
#include <tessera/interaction/dot.cuh>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/auto_plan.hpp>
#include <tessera/sharding/plan.hpp>
