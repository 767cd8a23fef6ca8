// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dense_contents.hpp"
#include "embeddings.hpp"
#include "interaction.hpp"
#include "options.hpp"
#include "plans.hpp"
#include "rank_model.hpp"
#include "ranks.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/bucketed_all_reduce.hpp>
#include <tessera/data/click_batch.hpp>
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/tables/buffer.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace dlrm {

/// One rank's DLRM (Naumov et al. 2019): a bottom MLP for the numbers, embeddings for the
/// categories, dot products of all pairs of these 27 vectors or cross layers over all of them
/// (DCNv2, Wang et al. 2021), a top MLP. Linear layers are replicated, embeddings are cut as the
/// plan says.
///
///   numbers -> bottom MLP -> | vector 0 | vectors 1..n | <- embeddings         one buffer [batch, (n+1)*width]
///                                       interaction -> top MLP -> logit
class Model final : public RankModel {
 public:
  Model(Communicators& communicators, const Options& options, const DataShape& shape,
        std::int64_t max_batch)
      : communicator_(communicators.main),
        threads_(options.threads_per_rank),
        width_(options.embedding_width),
        clip_norm_(options.clip_norm),
        accumulates_(options.accumulate > 1),
        features_(static_cast<std::int64_t>(shape.features.size())),
        interaction_(make_interaction(options, static_cast<int>(features_) + 1)),
        bottom_(sizes(shape.numbers, options.bottom_mlp, width_),
                {.last_relu = true, .precision = dense_precision(options), .threads = threads_}),
        top_(sizes(interaction_->columns(), options.top_mlp, 1),
             {.precision = dense_precision(options), .threads = threads_}),
        parameters_(options.seed, bottom_, *interaction_, top_),
        optimizer_(make_optimizer(options)),
        buckets_(options.bucket_kib == 0
                     ? nullptr
                     : std::make_unique<Buckets>(communicators.gradients, parameters_.gradients(),
                                                 options.bucket_kib * 1024)),
        embeddings_(make_embeddings(communicator_,
                                    make_layout(options, communicator_.size(), shape),
                                    EmbeddingOptions(options, communicators.routing))),
        vectors_(floats(max_batch * (features_ + 1) * width_)),
        vector_gradients_(floats(max_batch * (features_ + 1) * width_)),
        products_(floats(max_batch * interaction_->columns())),
        product_gradients_(floats(max_batch * interaction_->columns())),
        logits_(floats(max_batch)),
        logit_gradients_(floats(max_batch)) {}

  Embeddings& embeddings() override { return *embeddings_; }
  std::int64_t dense_parameters() const override { return parameters_.size(); }

  void add_to(tessera::CheckpointContents& contents) override {
    embeddings_->add_to(contents);
    add_dense(contents, tessera::Host(), bottom_, *interaction_, top_, parameters_, optimizer_);
  }

  bool gradients_finite() const override {
    const std::span<const float> gradients = parameters_.gradients();
    return std::all_of(gradients.begin(), gradients.end(),
                       [](float g) { return std::isfinite(g); });
  }

  void start(const tessera::ClickBatch<std::int32_t>& batch) override {
    embeddings_->start(batch.keyed());
  }
  std::span<const float> forward(const tessera::ClickBatch<std::int32_t>& batch) override {
    run_forward(batch, nullptr, false);
    return std::span(logits_.data(), static_cast<std::size_t>(batch.size));
  }

  void train(const tessera::ClickBatch<std::int32_t>& batch, const OptimizerStep& step,
             const tessera::ClickBatch<std::int32_t>* next) override {
    run_forward(batch, next, true);
    const std::int64_t n = batch.size;
    const tessera::MatrixView<float> d_logits(logit_gradients_.data(), n, 1),
        d_products(product_gradients_.data(), n, products(n).columns),
        d_vectors(vector_gradients_.data(), n, vectors(n).columns);
    const tessera::BinaryCrossEntropyWithLogits loss{.normalizer = step.samples};
    loss_ += loss.forward_backward({logits_.data(), n, 1}, batch.labels, d_logits);
    const auto ready = [&](std::span<const float> part) {
      if (buckets_ && !part.empty()) buckets_->ready(part);
    };
    top_.backward(d_logits, d_products, ready);
    interaction_->backward(vectors(n), d_products, d_vectors);
    ready(interaction_->gradients());
    bottom_.backward(d_vectors.column_range(0, width_), {}, ready);
    const tessera::MatrixView<float> d_pooled = d_vectors.column_range(width_, features_ * width_);
    const bool apart = accumulates_ || clip_norm_ != 0;  // rows wait for `apply`
    if (apart) embeddings_->accumulate(d_pooled);
    if (accumulates_) {
      parameters_.accumulate();
      if (!step.ends) return;
      parameters_.take_accumulated();
    }
    buckets_ ? buckets_->wait() : communicator_.all_reduce(parameters_.gradients());
    if (apart)
      embeddings_->apply(step.table_rate, clip_norm_, parameters_.gradients());
    else
      embeddings_->backward(d_pooled, step.table_rate);
    std::visit([&](auto& optimizer) { optimizer.step(parameters_, step.dense_rate, threads_); },
               optimizer_);
  }

  double take_loss() override { return std::exchange(loss_, 0.0); }

 private:
  using Buckets = tessera::BucketedAllReduce<tessera::AnyCommunicator>;
  using DenseOptimizer = std::variant<tessera::DenseSgd, tessera::DenseAdagrad, tessera::DenseAdam>;

  static std::vector<std::int64_t> sizes(std::int64_t first, std::vector<std::int64_t> hidden,
                                         std::int64_t last) {
    hidden.insert(hidden.begin(), first);
    hidden.push_back(last);
    return hidden;
  }

  static DenseOptimizer make_optimizer(const Options& options) {
    const tessera::DenseOptimizerOptions settings{.weight_decay = options.weight_decay};
    if (options.dense_optimizer == "sgd") return tessera::DenseSgd(settings);
    if (options.dense_optimizer == "adagrad") return tessera::DenseAdagrad(settings);
    return tessera::DenseAdam(settings);
  }

  /// `next`: null, or the batch to route meanwhile. `train`: this one gets a backward.
  void run_forward(const tessera::ClickBatch<std::int32_t>& batch,
                   const tessera::ClickBatch<std::int32_t>* next, bool train) {
    const std::int64_t n = batch.size;
    const tessera::MatrixView<float> pooled = vectors(n).column_range(width_, features_ * width_);
    bottom_.forward(batch.dense_view(), vectors(n).column_range(0, width_));
    train ? embeddings_->forward(batch.keyed(), pooled)
          : embeddings_->evaluate(batch.keyed(), pooled);
    if (next != nullptr) start(*next);
    interaction_->forward(vectors(n), products(n));
    top_.forward(products(n), {logits_.data(), n, 1});
  }

  // its vectors begin at cache lines, as those of a std::vector may not
  using Floats = tessera::Buffer<float, tessera::Host>;
  static Floats floats(std::int64_t count) {
    Floats buffer;
    std::ranges::fill(buffer.resize(tessera::Host(), static_cast<std::size_t>(count)), 0.0f);
    return buffer;
  }
  tessera::MatrixView<float> vectors(std::int64_t n) {
    return {vectors_.data(), n, (features_ + 1) * width_};
  }
  tessera::MatrixView<float> products(std::int64_t n) {
    return {products_.data(), n, interaction_->columns()};
  }

  tessera::AnyCommunicator& communicator_;
  int threads_;
  int width_;
  float clip_norm_;        ///< 0: none
  bool accumulates_;       ///< gradients of several batches
  std::int64_t features_;  ///< categories; n below
  std::unique_ptr<Interaction> interaction_;
  tessera::Mlp<> bottom_, top_;
  tessera::DenseParameters parameters_;
  DenseOptimizer optimizer_;
  std::unique_ptr<Buckets> buckets_;
  std::unique_ptr<Embeddings> embeddings_;
  Floats vectors_, vector_gradients_;    // [batch, (n+1)*width]
  Floats products_, product_gradients_;  // [batch, columns of the interaction]
  Floats logits_, logit_gradients_;
  double loss_ = 0;
};

}  // namespace dlrm
