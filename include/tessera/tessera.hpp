// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything that needs the standard library, fmt and OpenMP alone. Linear layers:
// tessera/dense/mlp.hpp (oneDNN).
#include <tessera/collection/embedding_collection.hpp>
#include <tessera/collection/route_ahead.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/host/kernels.hpp>
#include <tessera/interaction/concat.hpp>
#include <tessera/interaction/dot.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/tables/matrix.hpp>
#ifdef TESSERA_COMPILED
#include <tessera_compiled.hpp>
#endif
