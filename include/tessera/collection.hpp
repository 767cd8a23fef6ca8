// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Collections of embedding tables on the host: lookup, exchange, update; their options, policies,
// codecs, reports and tiers.
#include <tessera/collection/embedding_collection.hpp>

#include <tessera/codec/codecs.hpp>
#include <tessera/collection/layout_collection.hpp>
#include <tessera/collection/route_ahead.hpp>
#include <tessera/concepts/backend.hpp>
#include <tessera/concepts/codec.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/kernels.hpp>
#include <tessera/settings/options.hpp>
#include <tessera/settings/policies.hpp>
#include <tessera/step/step_report.hpp>
#include <tessera/tables/initializers.hpp>
#include <tessera/tables/matrix.hpp>
#include <tessera/tables/training_groups.hpp>
#include <tessera/update/virtual_ranks.hpp>
