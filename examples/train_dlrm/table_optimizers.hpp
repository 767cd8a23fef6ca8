// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/optimizer/adamw.hpp>
#include <tessera/optimizer/ftrl.hpp>
#include <tessera/optimizer/lion.hpp>
#include <tessera/optimizer/momentum.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/optimizer/rowwise_adagrad.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/training_groups.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dlrm {

/// Optimizers of tables by name: the training groups that are compiled in.
inline constexpr std::array<std::string_view, 15> kOptimizers{"sgd",
                                                              "adagrad",
                                                              "rowwise-adagrad",
                                                              "adam",
                                                              "ftrl",
                                                              "momentum",
                                                              "adamw",
                                                              "partial-rowwise-adam",
                                                              "lamb",
                                                              "lion",
                                                              "rowwise-adagrad-l2",
                                                              "rowwise-adagrad-decoupled",
                                                              "rowwise-adagrad-counted",
                                                              "adam-counted",
                                                              "frozen"};
using TableOptimizers = tessera::TrainingGroups<
    tessera::Train<tessera::Sgd>, tessera::Train<tessera::Adagrad>,
    tessera::Train<tessera::RowWiseAdagrad>, tessera::Train<tessera::Adam>,
    tessera::Train<tessera::Ftrl>, tessera::Train<tessera::Momentum>,
    tessera::Train<tessera::AdamW>, tessera::Train<tessera::PartialRowWiseAdam>,
    tessera::Train<tessera::Lamb>, tessera::Train<tessera::Lion>,
    tessera::Train<tessera::RowWiseAdagradL2>, tessera::Train<tessera::RowWiseAdagradDecoupled>,
    tessera::Train<tessera::CountedRowWiseAdagrad>, tessera::Train<tessera::CountedAdam>,
    tessera::Frozen<>>;
inline constexpr int kFtrl = 4, kCounted = 12, kFrozen = 14;

/// f(name, constant) for each constant of an optimizer that a command line may give.
template <class O, class F>
void for_each_constant(O& o, F&& f) {
  if constexpr (requires { o.beta1; }) f("beta1", o.beta1), f("beta2", o.beta2);
  if constexpr (requires { o.momentum; }) f("momentum", o.momentum), f("nesterov", o.nesterov);
  if constexpr (requires { o.l1; }) f("beta", o.beta), f("l1", o.l1), f("l2", o.l2);
  if constexpr (requires { o.epsilon; }) f("epsilon", o.epsilon);
  if constexpr (requires { o.initial_accumulator; })
    f("initial_accumulator", o.initial_accumulator);
  if constexpr (requires { o.weight_decay; }) f("weight_decay", o.weight_decay);
  if constexpr (requires { o.half_life; }) {
    f("rate", o.rate), f("half_life", o.half_life), f("power", o.power), f("most", o.most);
    f("threshold", o.threshold), f("threshold_is_share", o.threshold_is_share);
    f("first_step", o.first_step);
  }
}

/// What tables are stored in.
inline constexpr std::array<std::string_view, 3> kTablePrecisions{"fp32", "bf16", "fp16"};

/// A constant's value: as a command line says it, or what stands for it in an optimizer.
struct OptimizerConstant {
  std::string name;
  double value = 0;  ///< of flags 0 or 1; of `rate` a CountedRate

  bool operator==(const OptimizerConstant&) const = default;
};

/// The tables whose names a pattern matches ('*' stands for any text) and their optimizer.
struct OptimizerOfTables {
  int optimizer = 0;  ///< index into kOptimizers
  std::string pattern;
  std::vector<OptimizerConstant> constants{};  ///< those that are given, by name
};

/// "adam", or pairs as in "ftrl(l1=0.1):wide_*,rowwise-adagrad:*", of which the first that matches a
/// table counts. Throws InvalidArgument for names, constants and values that are not known, for what
/// is no pair, and for an optimizer that is given two sets of constants.
std::vector<OptimizerOfTables> parse_optimizers(std::string_view text);
/// The same, but one optimizer that trains, and no pattern.
OptimizerOfTables parse_optimizer(std::string_view text);

/// Gives an optimizer the constants that the command line gives it.
template <class O>
void set_constants(O& optimizer, const std::vector<OptimizerConstant>& constants) {
  for_each_constant(optimizer, [&]<class T>(std::string_view name, T& constant) {
    for (const OptimizerConstant& given : constants)
      if (given.name == name) constant = static_cast<T>(given.value);
  });
}

/// By table: its optimizer, an index into kOptimizers. Throws InvalidArgument for a table that no
/// pattern matches, and for a pattern that matches none.
std::vector<int> optimizers_of(std::string_view text, const tessera::Layout& layout);

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
