// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "embeddings.hpp"
#include "options.hpp"

#include <tessera/data/click_batch.hpp>
#include <tessera/dense/mlp_layers.hpp>

#include <cstdint>
#include <span>

namespace dlrm {

inline tessera::DensePrecision dense_precision(const Options& options) {
  return options.dense_precision == "bf16" ? tessera::DensePrecision::bfloat16
                                           : tessera::DensePrecision::float32;
}

/// One step of the optimizers.
struct OptimizerStep {
  std::int64_t samples = 0;  ///< of all ranks and all its batches
  float dense_rate = 0, table_rate = 0;
  bool ends = true;  ///< with this batch; else gradients wait for the next one's
};

/// One rank's model, whatever the backend.
class RankModel {
 public:
  virtual ~RankModel() = default;
  virtual Embeddings& embeddings() = 0;
  virtual std::int64_t dense_parameters() const = 0;
  /// Whether the last step's dense gradients, the same on all ranks, are numbers: a ReLU hides from
  /// the loss that they are not.
  virtual bool gradients_finite() const = 0;
  /// Tells what a checkpoint must hold: tables, layers by name, and the optimizers' state.
  virtual void add_to(tessera::CheckpointContents& contents) = 0;
  /// Begins to route the batch of the next `train`, on a thread. It must outlive the model or its
  /// step.
  virtual void start(const tessera::ClickBatch<std::int32_t>& batch) = 0;
  /// The logits of this rank's samples, valid until the next call. Collective, as all ranks look up
  /// together.
  virtual std::span<const float> forward(const tessera::ClickBatch<std::int32_t>& batch) = 0;
  /// This rank's part of a global batch, and the step that it belongs to. `next`, where given, is
  /// started meanwhile.
  virtual void train(const tessera::ClickBatch<std::int32_t>& batch, const OptimizerStep& step,
                     const tessera::ClickBatch<std::int32_t>* next) = 0;
  /// This rank's shares of the mean losses of the steps since the last call, added up.
  virtual double take_loss() = 0;
};

}  // namespace dlrm
