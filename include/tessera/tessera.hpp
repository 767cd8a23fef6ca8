// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything that needs the standard library, fmt and OpenMP alone. Linear layers:
// tessera/dense/mlp.hpp (oneDNN).
#include <tessera/collection/embedding_collection.hpp>
// before the next, for shorter errors
#include <tessera/collection/compiled_once.hpp>
#include <tessera/collection/route_ahead.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/host/codec.hpp>
#include <tessera/host/convert_rows.hpp>
#include <tessera/host/copy_rows.hpp>
#include <tessera/host/distinct_ids.hpp>
#include <tessera/host/exchange.hpp>
#include <tessera/host/gradients.hpp>
#include <tessera/host/initialize.hpp>
#include <tessera/host/lookup.hpp>
#include <tessera/host/mark_rows.hpp>
#include <tessera/host/max_pooling.hpp>
#include <tessera/host/non_finite.hpp>
#include <tessera/host/row_statistics.hpp>
#include <tessera/host/sequence_rows.hpp>
#include <tessera/host/update.hpp>
#include <tessera/host/weight_gradients.hpp>
#include <tessera/interaction/concat.hpp>
#include <tessera/interaction/dot.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/auto_plan.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/tables/matrix.hpp>
