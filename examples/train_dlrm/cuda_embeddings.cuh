// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "embeddings.hpp"

#include <tessera/comm/any_communicator.hpp>
#include <tessera/tessera.cuh>

#include <memory>

namespace dlrm {

/// Embeddings whose ids, outputs and gradients are in device memory. Work goes to the calling thread's own stream.
template <class Optimizer>
class CudaEmbeddings final : public Embeddings {
  using Collection = tessera::ShardedCollection<tessera::Widths<16, 32, 64, 128>, Optimizer, tessera::Cuda, tessera::AnyCommunicator,
                                                tessera::InitializeWith<tessera::Uniform>>;

 public:
  CudaEmbeddings(tessera::AnyCommunicator& communicator, const tessera::Layout& layout, const EmbeddingOptions& options)
      : collection_(communicator, tessera::Cuda({.stream = cudaStreamPerThread}), layout,
                    {.seed = options.seed, .initialize = {-options.initial_bound, options.initial_bound}}) {}

  const tessera::Layout& layout() const override { return collection_.layout(); }
  tessera::MemoryCost memory_cost() const override { return Collection::memory_cost; }
  void forward(const tessera::KeyedJagged<std::int32_t>& ids, tessera::MatrixView<float> output) override {
    pooled_ = collection_.forward(ids, output);
  }
  void reset_rows(int table, std::span<const std::int64_t> rows) override { collection_.reset_rows(table, rows); }
  void backward(tessera::MatrixView<const float> gradient, float learning_rate) override {
    collection_.set_learning_rate(learning_rate);
    collection_.backward(pooled_, gradient);
  }

 private:
  Collection collection_;
  tessera::Pooled<std::int32_t, tessera::Cuda> pooled_;
};

EmbeddingsFactory make_cuda_sgd_embeddings, make_cuda_adagrad_embeddings, make_cuda_rowwise_adagrad_embeddings, make_cuda_adam_embeddings;

}  // namespace dlrm
