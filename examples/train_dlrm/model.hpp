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
#include <tessera/host/gradients.hpp>
#include <tessera/tables/buffer.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
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
        spans_(!options.trace.empty()),
        virtual_(virtual_ranks(options, tessera::Host({.threads = threads_}), communicator_.rank(),
                               communicator_.size())),
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
                                    model_layout(options, communicator_.size(), shape),
                                    EmbeddingOptions(options, communicators.routing))),
        vectors_(floats(max_batch * (features_ + 1) * width_)),
        vector_gradients_(floats(max_batch * (features_ + 1) * width_)),
        products_(floats(max_batch * interaction_->columns())),
        product_gradients_(floats(max_batch * interaction_->columns())),
        logits_(floats(max_batch)),
        logit_gradients_(floats(max_batch)) {}

  Embeddings& embeddings() override { return *embeddings_; }
  Spans& spans() override { return spans_; }
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
  std::span<const float> forward(const tessera::ClickBatch<std::int32_t>& batch,
                                 std::int64_t global_batch) override {
    look_up(batch, nullptr, false);
    for_each_part(virtual_, global_batch, batch.size,
                  [&](int, std::int64_t first, std::int64_t n) { run_forward(batch, first, n); });
    return std::span(logits_.data(), static_cast<std::size_t>(batch.size));
  }

  void train(const tessera::ClickBatch<std::int32_t>& batch, const OptimizerStep& step,
             const tessera::ClickBatch<std::int32_t>* next) override {
    look_up(batch, next, true);
    for_each_part(virtual_, step.batch, batch.size,
                  [&](int part, std::int64_t first, std::int64_t n) {
                    run_forward(batch, first, n);
                    losses_[static_cast<std::size_t>(part)] += run_backward(batch, step, first, n);
                    if (virtual_) virtual_->add(parameters_.gradients());
                  });
    const tessera::MatrixView<float> d_pooled =
        view(vector_gradients_, 0, batch.size, (features_ + 1) * width_)
            .column_range(width_, features_ * width_);
    const bool apart = accumulates_ || clip_norm_ != 0;  // rows wait for `apply`
    if (apart) embeddings_->accumulate(d_pooled);
    // the tree of virtual ranks is that of a batch
    if (virtual_ || !accumulates_) sum_over_ranks();
    if (accumulates_) {
      parameters_.accumulate();
      if (!step.ends) return;
      parameters_.take_accumulated();
      if (!virtual_) sum_over_ranks();
    }
    if (apart)
      embeddings_->apply(step.table_rate, clip_norm_, parameters_.gradients());
    else
      embeddings_->backward(d_pooled, step.table_rate);
    const auto timing = spans_.time("dense optimizer");
    std::visit([&](auto& optimizer) { optimizer.step(parameters_, step.dense_rate, threads_); },
               optimizer_);
  }

  double take_loss() override {
    const std::vector<double> own = std::exchange(losses_, std::vector<double>(losses_.size()));
    if (virtual_) return virtual_->sum(communicator_, own);
    double sum = own[0];
    communicator_.all_reduce(std::span<double>(&sum, 1));
    return sum;
  }

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
  void look_up(const tessera::ClickBatch<std::int32_t>& batch,
               const tessera::ClickBatch<std::int32_t>* next, bool train) {
    const tessera::MatrixView<float> pooled =
        vectors(0, batch.size).column_range(width_, features_ * width_);
    train ? embeddings_->forward(batch.keyed(), pooled)
          : embeddings_->evaluate(batch.keyed(), pooled);
    if (next != nullptr) start(*next);
  }

  void run_forward(const tessera::ClickBatch<std::int32_t>& batch, std::int64_t first,
                   std::int64_t n) {
    {
      const auto timing = spans_.time("bottom MLP");
      bottom_.forward(batch.dense_view().row_range(first, n),
                      vectors(first, n).column_range(0, width_));
    }
    {
      const auto timing = spans_.time("interaction");
      interaction_->forward(vectors(first, n), products(first, n));
    }
    const auto timing = spans_.time("top MLP");
    top_.forward(products(first, n), view(logits_, first, n, 1));
  }

  /// Answers the loss of these samples, over those of the step.
  double run_backward(const tessera::ClickBatch<std::int32_t>& batch, const OptimizerStep& step,
                      std::int64_t first, std::int64_t n) {
    const tessera::MatrixView<float> d_logits = view(logit_gradients_, first, n, 1),
                                     d_products =
                                         view(product_gradients_, first, n, products_columns()),
                                     d_vectors = view(vector_gradients_, first, n,
                                                      (features_ + 1) * width_);
    const auto ready = [&](std::span<const float> part) {
      if (buckets_ && !part.empty()) buckets_->ready(part);
    };
    double loss = 0;
    {
      const auto timing = spans_.time("top MLP, backward");
      loss = tessera::BinaryCrossEntropyWithLogits{.normalizer = step.samples}.forward_backward(
          view(logits_, first, n, 1),
          std::span(batch.labels)
              .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n)),
          d_logits);
      top_.backward(d_logits, d_products, ready);
    }
    {
      const auto timing = spans_.time("interaction, backward");
      interaction_->backward(vectors(first, n), d_products, d_vectors);
      ready(interaction_->gradients());
    }
    const auto timing = spans_.time("bottom MLP, backward");
    bottom_.backward(d_vectors.column_range(0, width_), {}, ready);
    return loss;
  }

  void sum_over_ranks() {
    const auto timing = spans_.time("all-reduce");
    if (virtual_)
      virtual_->all_reduce(communicator_, parameters_.gradients());
    else
      buckets_ ? buckets_->wait() : communicator_.all_reduce(parameters_.gradients());
  }

  // its vectors begin at cache lines, as those of a std::vector may not
  using Floats = tessera::Buffer<float, tessera::Host>;
  static Floats floats(std::int64_t count) {
    Floats buffer;
    std::ranges::fill(buffer.resize(tessera::Host(), static_cast<std::size_t>(count)), 0.0f);
    return buffer;
  }
  /// Rows [first, first + n) of a matrix of so many columns.
  static tessera::MatrixView<float> view(const Floats& matrix, std::int64_t first, std::int64_t n,
                                         std::int64_t columns) {
    return {matrix.data() + first * columns, n, columns};
  }
  tessera::MatrixView<float> vectors(std::int64_t first, std::int64_t n) const {
    return view(vectors_, first, n, (features_ + 1) * width_);
  }
  std::int64_t products_columns() const { return interaction_->columns(); }
  tessera::MatrixView<float> products(std::int64_t first, std::int64_t n) const {
    return view(products_, first, n, products_columns());
  }

  tessera::AnyCommunicator& communicator_;
  int threads_;
  int width_;
  float clip_norm_;   ///< 0: none
  bool accumulates_;  ///< gradients of several batches
  Spans spans_;
  std::optional<tessera::VirtualRanks<tessera::Host>> virtual_;
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
  std::vector<double> losses_ =
      std::vector<double>(virtual_ ? static_cast<std::size_t>(virtual_->count()) : 1);
};

}  // namespace dlrm
