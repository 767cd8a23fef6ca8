// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tables, sharding policies and plans, as types or for a number of ranks that is known when the
// program runs.
#include <tessera/concepts/sharding_policy.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/rectangle.hpp>
#include <tessera/core/table_spec.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/fixed_sums.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/placement.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera/sharding/sound_plan.hpp>
#include <tessera/sharding/table.hpp>
