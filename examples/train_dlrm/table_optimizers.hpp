// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/settings/optimizers_by_name.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/layout.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace dlrm {

using tessera::detail::kFrozen, tessera::detail::kOptimizers, tessera::detail::kTablePrecisions,
    tessera::detail::OptimizerOfTables, tessera::detail::optimizers_of,
    tessera::detail::parse_optimizers;
inline constexpr int kFtrl = 4, kCounted = 12;

/// As parse_optimizers, but one optimizer that trains, and no pattern.
OptimizerOfTables parse_optimizer(std::string_view text);

/// A line for each change of optimizer, from what a checkpoint says ("" where it says nothing) to what
/// the command line says now, with the tables whose state begins anew.
std::vector<std::string> optimizer_changes(std::string_view before, std::string_view now,
                                           const tessera::Layout& layout,
                                           const std::vector<std::string>& tables);

/// The learning rate of each of kOptimizers where none is given, under the constants of a text.
std::array<float, kOptimizers.size()> standard_rates(std::string_view text);
/// Of the first optimizer that trains.
float standard_rate(std::string_view text);

/// What an element and a row of a table cost under an optimizer.
tessera::detail::MemoryCost memory_cost(int optimizer, std::string_view precision);

}  // namespace dlrm
