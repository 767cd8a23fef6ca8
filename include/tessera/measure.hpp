// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Plans of the same tables, measured on this machine beside what the cost model predicts; one rank of
// many, measured alone.
#include <tessera/comm/ghost_communicator.hpp>
#include <tessera/measure/measure_plans.hpp>
#include <tessera/measure/measure_steps.hpp>
