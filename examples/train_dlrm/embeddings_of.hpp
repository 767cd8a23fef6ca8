// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "embeddings.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/collection/embedding_collection.hpp>
#include <tessera/collection/route_ahead.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/tables/initializers.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dlrm {

/// Embeddings in the memory of a backend, whose operations the including file brings. `routing`:
/// the same for the thread that routes ahead, on a GPU with a stream of its own.
template <class Optimizer, class Backend, class Widths>
class EmbeddingsOf final : public Embeddings {
  // Codecs and duplicate removal are chosen at run time: a collection for each of them would be
  // compiled as often.
  using Collection = tessera::LayoutCollection<
      Widths, Optimizer, Backend, tessera::AnyCommunicator,
      tessera::InitializeWith<tessera::Uniform>,
      tessera::EncodeWithOneOf<tessera::Fp32, tessera::Bf16, tessera::Fp16, tessera::Int8>,
      tessera::DeduplicateIfAsked>;

 public:
  EmbeddingsOf(tessera::AnyCommunicator& communicator, const tessera::Layout& layout,
               const EmbeddingOptions& options, const Backend& backend, const Backend& routing)
      : collection_(communicator, backend, layout,
                    {.seed = options.seed,
                     .initialize = {-options.initial_bound, options.initial_bound},
                     .forward_codec = options.codec,
                     .backward_codec = options.gradient_codec,
                     .deduplicate = options.deduplicate}) {
    if (options.routing != nullptr) ahead_.emplace(collection_, *options.routing, routing);
  }

  const tessera::Layout& layout() const override { return collection_.layout(); }
  tessera::MemoryCost memory_cost() const override { return Collection::memory_cost; }
  void start(const tessera::KeyedJagged<std::int32_t>& ids) override {
    ahead_->start(ids);
    started_ = true;
  }
  void forward(const tessera::KeyedJagged<std::int32_t>& ids,
               tessera::MatrixView<float> output) override {
    pooled_ = std::exchange(started_, false) ? collection_.forward_routed(ahead_->take(), output)
                                             : collection_.forward(ids, output);
  }
  void evaluate(const tessera::KeyedJagged<std::int32_t>& ids,
                tessera::MatrixView<float> output) override {
    collection_.evaluate(evaluation_, ids, output);
  }
  void reset_rows(int table, std::span<const std::int64_t> rows) override {
    collection_.reset_rows(table, rows);
  }
  void backward(tessera::MatrixView<const float> gradient, float learning_rate) override {
    collection_.set_learning_rate(learning_rate);
    collection_.backward(pooled_, gradient);
  }
  void add_to(tessera::CheckpointContents& contents) override { contents.add(collection_); }

 private:
  Collection collection_;
  tessera::Pooled<std::int32_t, Backend> pooled_;
  typename Collection::template StepState<std::int32_t> evaluation_;
  bool started_ = false;
  std::optional<tessera::RouteAhead<Collection, std::int32_t, tessera::AnyCommunicator, Backend>>
      ahead_;
};

/// Embeddings with the optimizer of this name, one of kOptimizers; throws InvalidArgument for any
/// other. All in one file: more than half of their code is the same, which is compiled once there.
template <class Widths, class Backend>
std::unique_ptr<Embeddings> make_embeddings_of(std::string_view optimizer,
                                               tessera::AnyCommunicator& communicator,
                                               const tessera::Layout& layout,
                                               const EmbeddingOptions& options,
                                               const Backend& backend, const Backend& routing) {
  std::unique_ptr<Embeddings> made;
  const auto try_optimizer = [&]<class Optimizer>(std::string_view name,
                                                  std::type_identity<Optimizer>) {
    if (optimizer == name)
      made = std::make_unique<EmbeddingsOf<Optimizer, Backend, Widths>>(communicator, layout,
                                                                        options, backend, routing);
  };
  try_optimizer("sgd", std::type_identity<tessera::Sgd>{});
  try_optimizer("adagrad", std::type_identity<tessera::Adagrad>{});
  try_optimizer("rowwise-adagrad", std::type_identity<tessera::RowWiseAdagrad>{});
  try_optimizer("adam", std::type_identity<tessera::Adam>{});
  tessera::require(made != nullptr, "there is no optimizer '{}'", optimizer);
  return made;
}

}  // namespace dlrm
