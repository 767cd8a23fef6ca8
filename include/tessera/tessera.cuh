// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything of tessera.hpp but the host's interactions, whose vectors nvcc does not take; and the
// backend Cuda. nvcc only. Dense layers: tessera/dense/dense.cuh (cuBLASLt).
#include <tessera/collection/embedding_collection.hpp>
#include <tessera/collection/route_ahead.hpp>
#include <tessera/comm/rank_memory.cuh>
#include <tessera/comm/rank_order_sums.cuh>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/cuda/kernels.cuh>
#include <tessera/cuda/stream.cuh>
#include <tessera/host/kernels.hpp>
#include <tessera/interaction/concat.cuh>
#include <tessera/interaction/dot.cuh>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/sharding/plan.hpp>
