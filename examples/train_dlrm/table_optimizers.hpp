// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/optimizer/adamw.hpp>
#include <tessera/optimizer/ftrl.hpp>
#include <tessera/optimizer/lion.hpp>
#include <tessera/optimizer/momentum.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/training_groups.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace dlrm {

/// Optimizers of tables by name: the training groups that are compiled in. Not those that are
/// row-wise Adagrad but for constants that no option gives (weight decay, counts).
inline constexpr std::array<std::string_view, 11> kOptimizers{
    "sgd",  "adagrad",  "rowwise-adagrad", "adam",
    "ftrl", "momentum", "adamw",           "partial-rowwise-adam",
    "lamb", "lion",     "frozen"};
using TableOptimizers = tessera::TrainingGroups<
    tessera::Train<tessera::Sgd>, tessera::Train<tessera::Adagrad>,
    tessera::Train<tessera::RowWiseAdagrad>, tessera::Train<tessera::Adam>,
    tessera::Train<tessera::Ftrl>, tessera::Train<tessera::Momentum>,
    tessera::Train<tessera::AdamW>, tessera::Train<tessera::PartialRowWiseAdam>,
    tessera::Train<tessera::Lamb>, tessera::Train<tessera::Lion>, tessera::Frozen<>>;
inline constexpr int kFtrl = 4, kFrozen = 10;

/// What tables are stored in.
inline constexpr std::array<std::string_view, 3> kTablePrecisions{"fp32", "bf16", "fp16"};

/// The tables whose names a pattern matches ('*' stands for any text) and their optimizer.
struct OptimizerOfTables {
  int optimizer = 0;  ///< index into kOptimizers
  std::string pattern;
};

/// "adam", or pairs as in "ftrl:wide_*,rowwise-adagrad:*", of which the first that matches a table
/// counts. Throws InvalidArgument for names that are not known and for what is no pair.
std::vector<OptimizerOfTables> parse_optimizers(std::string_view text);

/// By table: its optimizer, an index into kOptimizers. Throws InvalidArgument for a table that no
/// pattern matches, and for a pattern that matches none.
std::vector<int> optimizers_of(std::string_view text, const tessera::Layout& layout);

/// A line for each change of optimizer, from what a checkpoint says ("" where it says nothing) to what
/// the command line says now, with the tables whose state begins anew.
std::vector<std::string> optimizer_changes(std::string_view before, std::string_view now,
                                           const tessera::Layout& layout,
                                           const std::vector<std::string>& tables);

/// The learning rate that an optimizer has where none is given.
float standard_rate(int optimizer);
/// Of the first optimizer that trains.
float standard_rate(std::string_view text);

/// What an element and a row of a table cost under an optimizer.
tessera::MemoryCost memory_cost(int optimizer, std::string_view precision);

}  // namespace dlrm
