// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "embeddings.hpp"

#include <tessera/tessera.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dlrm {

inline constexpr std::array<std::string_view, kFeatures> kNames{"C1",  "C2",  "C3",  "C4",  "C5",  "C6",  "C7",  "C8",  "C9",
                                                                "C10", "C11", "C12", "C13", "C14", "C15", "C16", "C17", "C18",
                                                                "C19", "C20", "C21", "C22", "C23", "C24", "C25", "C26"};

/// The tables of the given categories (from 1, as in Criteo's description); rows are known at run time.
template <int Width, int... Categories>
inline constexpr std::array<tessera::TableSpec, sizeof...(Categories)> kSpecs{
    tessera::TableSpec{kNames[Categories - 1], tessera::dynamic_rows, Width}...};
template <int Width, int... Categories>
using Some = tessera::Tables<kSpecs<Width, Categories...>>;
template <int Width>
using All = Some<Width, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26>;

/// Outputs stand in the order of the categories, whatever the order of the plan.
inline constexpr auto kFeatureSpecs = [] {
  std::array<tessera::FeatureSpec, kFeatures> features;
  for (std::size_t i = 0; i < kFeatures; ++i) features[i] = {.name = kNames[i], .table = kNames[i]};
  return features;
}();
using InOrder = tessera::Features<tessera::FeatureArray<kFeatureSpecs>>;

/// Every policy at once, each where it fits the table sizes of Criteo's 1 TB logs: the largest tables are cut by rows, the next by
/// columns or both, tiny ones are copied to every rank, and the rest stay whole, spread over the ranks.
template <int Width>
using MixedPlan =
    tessera::Plan<tessera::RowWise<Some<Width, 1, 20>>, tessera::Grid<2, Some<Width, 22>>, tessera::ColumnWise<2, Some<Width, 10, 21, 11>>,
                  tessera::Replicated<Some<Width, 6, 9, 13, 16, 17, 19, 25, 26>>,
                  tessera::TableWise<Some<Width, 2, 3, 4, 5, 7, 8, 12, 14, 15, 23, 24>, tessera::Fused<Some<Width, 18>>>, InOrder>;

template <class Plan, class Optimizer>
class EmbeddingsOf final : public Embeddings {
  using Collection =
      tessera::EmbeddingCollection<Plan, Optimizer, tessera::Host, tessera::ThreadCommunicator, tessera::InitializeWith<tessera::Uniform>>;

 public:
  EmbeddingsOf(tessera::ThreadCommunicator& communicator, const EmbeddingOptions& options)
      : collection_(communicator, tessera::Host({.threads = options.threads}),
                    {.seed = options.seed, .initialize = {-options.initial_bound, options.initial_bound}, .rows = table_rows(options)}) {}

  const tessera::Layout& layout() const override { return collection_.layout(); }
  tessera::MemoryCost memory_cost() const override { return Collection::memory_cost; }
  void forward(const tessera::KeyedJagged<std::int32_t>& ids, tessera::MatrixView<float> output) override {
    pooled_ = collection_.forward(ids, output);
  }
  void backward(tessera::MatrixView<const float> gradient, float learning_rate) override {
    collection_.set_learning_rate(learning_rate);
    collection_.backward(pooled_, gradient);
  }

 private:
  static std::vector<tessera::TableRows> table_rows(const EmbeddingOptions& options) {
    std::vector<tessera::TableRows> rows;
    for (std::size_t f = 0; f < kFeatures; ++f) rows.push_back({kNames[f], options.rows[f]});
    return rows;
  }

  Collection collection_;
  tessera::Pooled<std::int32_t, tessera::Host> pooled_;
};

template <class Plan>
std::unique_ptr<Embeddings> make_embeddings_of_plan(tessera::ThreadCommunicator& communicator, const EmbeddingOptions& options) {
  if (options.optimizer == "sgd") return std::make_unique<EmbeddingsOf<Plan, tessera::Sgd>>(communicator, options);
  if (options.optimizer == "adagrad") return std::make_unique<EmbeddingsOf<Plan, tessera::Adagrad>>(communicator, options);
  if (options.optimizer == "rowwise-adagrad") return std::make_unique<EmbeddingsOf<Plan, tessera::RowWiseAdagrad>>(communicator, options);
  if (options.optimizer == "adam") return std::make_unique<EmbeddingsOf<Plan, tessera::Adam>>(communicator, options);
  throw tessera::InvalidArgument("there is no optimizer '" + options.optimizer + "'");
}

template <int Width>
std::unique_ptr<Embeddings> make_embeddings_of_width(tessera::ThreadCommunicator& communicator, const EmbeddingOptions& options) {
  using namespace tessera;
  const std::string& plan = options.plan;
  if (plan == "table-wise") return make_embeddings_of_plan<Plan<TableWise<All<Width>>, InOrder>>(communicator, options);
  if (plan == "column-wise") return make_embeddings_of_plan<Plan<ColumnWise<2, All<Width>>, InOrder>>(communicator, options);
  if (plan == "row-wise") return make_embeddings_of_plan<Plan<RowWise<All<Width>>, InOrder>>(communicator, options);
  if (plan == "grid") return make_embeddings_of_plan<Plan<Grid<2, All<Width>>, InOrder>>(communicator, options);
  if (plan == "replicated") return make_embeddings_of_plan<Plan<Replicated<All<Width>>, InOrder>>(communicator, options);
  if (plan == "mixed") return make_embeddings_of_plan<MixedPlan<Width>>(communicator, options);
  throw InvalidArgument("there is no plan '" + plan + "'");
}

}  // namespace dlrm
