// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/step_graph.hpp"
#include "embeddings.hpp"
#include "model_shape.hpp"
#include "options.hpp"
#include "plans.hpp"
#include "spans.hpp"

#include <tessera/sharding/fixed_sums.hpp>
#include <tessera/update/virtual_ranks.hpp>
#include <tessera_data/click_batch.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace dlrm {

/// f(part, first, n): the samples [first, first + n) of this rank are a batch of the linear layers.
template <class Backend, class F>
void for_each_part(const std::optional<tessera::detail::VirtualRanks<Backend>>& parts,
                   std::int64_t global_batch, std::int64_t samples, const F& f) {
  if (!parts) return f(0, std::int64_t{0}, samples);
  for (int k = 0; k < parts->count(); ++k) {
    const std::int64_t first = parts->begin(global_batch, k);
    f(k, first, parts->begin(global_batch, k + 1) - first);
  }
}

/// One step of the optimizers.
struct OptimizerStep {
  std::int64_t samples = 0;  ///< of all ranks and all its batches
  std::int64_t batch = 0;    ///< of all ranks, in this one of them
  float dense_rate = 0, table_rate = 0;
  bool ends = true;  ///< with this batch; else gradients wait for the next one's
};

/// Parts of a global batch that each rank has the same number of.
inline std::int64_t parts_of(const Options& options, int ranks) {
  return options.virtual_ranks == 0 ? ranks : options.virtual_ranks;
}

/// The layout of the command line's plan.
inline tessera::Layout model_layout(const Options& options, int ranks, const ModelShape& shape) {
  tessera::Layout layout = make_layout(options, ranks, shape);
  if (options.virtual_ranks == 0) return layout;
  std::vector<bool> lists;
  for (const DataShape::Feature& feature : shape.features) lists.push_back(feature.list);
  return tessera::detail::with_fixed_sums(layout, options.virtual_ranks, lists);
}

/// The parts of this rank, each a batch of its own to the linear layers.
template <class Backend>
std::optional<tessera::detail::VirtualRanks<Backend>> virtual_ranks(const Options& options,
                                                                    const Backend& backend,
                                                                    int rank, int ranks) {
  if (options.virtual_ranks == 0) return {};
  return std::optional<tessera::detail::VirtualRanks<Backend>>(std::in_place, backend,
                                                               options.virtual_ranks, rank, ranks);
}

/// One rank's model, whatever the backend.
class RankModel {
 public:
  virtual ~RankModel() = default;
  virtual Embeddings& embeddings() = 0;
  /// What is timed beside the stages of the embeddings.
  virtual Spans& spans() = 0;
  virtual std::int64_t dense_parameters() const = 0;
  /// Whether the last step's dense gradients, the same on all ranks, are numbers: a ReLU hides from
  /// the loss that they are not.
  virtual bool gradients_finite() const = 0;
  /// Tells what a checkpoint must hold: tables, layers by name, and the optimizers' state.
  virtual void add_to(tessera::CheckpointContents& contents) = 0;
  /// Begins to route the batch of the next `train`, on a thread. It must outlive the model or its
  /// step.
  virtual void start(const tessera::ClickBatch<std::int32_t>& batch) = 0;
  /// The logits of this rank's samples of a batch of `global_batch`, valid until the next call.
  /// Collective, as all ranks look up together.
  virtual std::span<const float> forward(const tessera::ClickBatch<std::int32_t>& batch,
                                         std::int64_t global_batch) = 0;
  /// This rank's part of a global batch, and the step that it belongs to. `next`, where given, is
  /// started meanwhile.
  virtual void train(const tessera::ClickBatch<std::int32_t>& batch, const OptimizerStep& step,
                     const tessera::ClickBatch<std::int32_t>* next) = 0;
  virtual support::GraphCounts graph_counts() const = 0;
  /// The mean losses of the steps since the last call, added up, over all ranks. Collective.
  virtual double take_loss() = 0;
  /// Sends so many bytes to each rank and receives so many, as a step's exchanges are sent; sums the
  /// dense gradients over ranks, which are zeros. Both return when that is done. Collective.
  virtual void exchange(std::span<const std::size_t> to, std::span<const std::size_t> from) = 0;
  virtual void sum_dense() = 0;
};

}  // namespace dlrm
