// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a step costs under a plan, the search for a good plan, at compile time and at run time, and
// plans as files.
#include <tessera/planner/auto_plan.hpp>
#include <tessera/planner/cost.hpp>
#include <tessera/planner/explain_plan.hpp>
#include <tessera/planner/keep_on_host.hpp>
#include <tessera/planner/plan_file.hpp>
#include <tessera/planner/planned_policy.hpp>
#include <tessera/planner/planner.hpp>
#include <tessera/planner/power_law.hpp>
#include <tessera/planner/strategies.hpp>
#include <tessera/sharding/cluster.hpp>
