// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "embeddings.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/tessera.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace dlrm {

template <class Optimizer>
class EmbeddingsOf final : public Embeddings {
  // Widths of whole tables, and of their halves under a plan that cuts columns.
  using Collection = tessera::ShardedCollection<tessera::Widths<4, 8, 16, 32, 64, 128>, Optimizer, tessera::Host, tessera::AnyCommunicator,
                                                tessera::InitializeWith<tessera::Uniform>>;

 public:
  EmbeddingsOf(tessera::AnyCommunicator& communicator, const tessera::Layout& layout, const EmbeddingOptions& options)
      : collection_(communicator, tessera::Host({.threads = options.threads}), layout,
                    {.seed = options.seed, .initialize = {-options.initial_bound, options.initial_bound}}) {
    if (options.routing != nullptr) ahead_.emplace(collection_, *options.routing, tessera::Host({.threads = options.threads}));
  }

  const tessera::Layout& layout() const override { return collection_.layout(); }
  tessera::MemoryCost memory_cost() const override { return Collection::memory_cost; }
  void start(const tessera::KeyedJagged<std::int32_t>& ids) override {
    ahead_->start(ids);
    started_ = true;
  }
  void forward(const tessera::KeyedJagged<std::int32_t>& ids, tessera::MatrixView<float> output) override {
    pooled_ = std::exchange(started_, false) ? collection_.forward_routed(ahead_->take(), output) : collection_.forward(ids, output);
  }
  void reset_rows(int table, std::span<const std::int64_t> rows) override { collection_.reset_rows(table, rows); }
  void backward(tessera::MatrixView<const float> gradient, float learning_rate) override {
    collection_.set_learning_rate(learning_rate);
    collection_.backward(pooled_, gradient);
  }
  void add_to(tessera::CheckpointContents& contents) override { contents.add(collection_); }

 private:
  Collection collection_;
  tessera::Pooled<std::int32_t, tessera::Host> pooled_;
  bool started_ = false;
  std::optional<tessera::RouteAhead<Collection, std::int32_t, tessera::AnyCommunicator, tessera::Host>> ahead_;
};

}  // namespace dlrm
