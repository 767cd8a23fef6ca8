// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "shape.hpp"

#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/plan.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dlrm {

inline constexpr int kFeatures = 26;
inline constexpr std::array<int, 5> kWidths{8, 16, 32, 64, 128};
inline constexpr std::array<std::string_view, 7> kPlans{
    "table-wise", "column-wise", "row-wise", "grid", "replicated", "mixed", "auto"};

/// Criteo's 26 categories.
inline constexpr std::array<std::string_view, kFeatures> kNames{
    "C1",  "C2",  "C3",  "C4",  "C5",  "C6",  "C7",  "C8",  "C9",  "C10", "C11", "C12", "C13",
    "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21", "C22", "C23", "C24", "C25", "C26"};

/// Works the plan of the options out, or reads it from --plan-file, on so many ranks. `auto`
/// searches for the plan whose predicted step is shortest (docs/cost_model.md). Under
/// --device-memory some tables are OnHost. Throws
/// tessera::InvalidArgument for an unknown plan or width.
tessera::Layout make_layout(const Options& options, int ranks, const DataShape& shape);

/// Of plan `auto`: why each table is cut as it is, the predicted step by its parts, the next best
/// plan, and where the constants of the prediction come from. Empty for other plans.
std::string explain_plan(const Options& options, const tessera::Layout& layout);

}  // namespace dlrm
