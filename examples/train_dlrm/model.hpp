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
#include <tessera/core/jagged.hpp>
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
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace dlrm {

/// One rank's DLRM (Naumov et al. 2019): a bottom MLP for the numbers, embeddings for the
/// categories, dot products of all pairs of these vectors or cross layers over all of them
/// (DCNv2, Wang et al. 2021), a top MLP. Linear layers are replicated, embeddings are cut as the
/// plan says.
///
///   numbers -> bottom MLP -> | vector 0 | vectors 1..n | <- embeddings         one buffer [batch, columns]
///                                       interaction -> top MLP -> logit
///
/// A Wide & Deep (Cheng et al. 2016) has no bottom MLP: numbers and vectors go to the top MLP as they
/// are. Its logit is the MLP's and the sum of one weight for each category, which stand behind the
/// vectors.
class Model final : public RankModel {
 public:
  Model(Communicators& communicators, const Options& options, const ModelShape& shape,
        std::int64_t max_batch)
      : communicator_(communicators.main),
        threads_(options.threads_per_rank),
        first_(shape.first_columns()),
        columns_(shape.columns()),
        wide_(static_cast<std::int64_t>(shape.wide)),
        clip_norm_(options.clip_norm),
        interaction_(make_interaction(options, shape)),
        bottom_(shape.bottom ? std::make_unique<tessera::Mlp<>>(
                                   sizes(shape.numbers, options.bottom_mlp, first_),
                                   tessera::MlpOptions{.last_relu = true,
                                                       .precision = dense_precision(options),
                                                       .threads = threads_})
                             : nullptr),
        top_(sizes(interaction_->columns(), options.top_mlp, 1),
             {.precision = dense_precision(options), .threads = threads_}),
        parameters_(make_parameters(options.seed)),
        optimizer_(make_optimizer(options)),
        buckets_(options.bucket_kib == 0
                     ? nullptr
                     : std::make_unique<Buckets>(communicators.gradients, parameters_.gradients(),
                                                 options.bucket_kib * 1024)),
        embeddings_(make_embeddings(communicator_,
                                    make_layout(options, communicator_.size(), shape),
                                    EmbeddingOptions(options, communicators.routing))),
        vectors_(floats(max_batch * (columns_ + wide_))),
        vector_gradients_(floats(max_batch * (columns_ + wide_))),
        products_(floats(max_batch * interaction_->columns())),
        product_gradients_(floats(max_batch * interaction_->columns())),
        logits_(floats(max_batch)),
        logit_gradients_(floats(max_batch)) {}

  Embeddings& embeddings() override { return *embeddings_; }
  std::int64_t dense_parameters() const override { return parameters_.size(); }

  void add_to(tessera::CheckpointContents& contents) override {
    embeddings_->add_to(contents);
    add_dense(contents, tessera::Host(), bottom_.get(), *interaction_, top_, parameters_,
              optimizer_);
  }

  bool gradients_finite() const override {
    const std::span<const float> gradients = parameters_.gradients();
    return std::all_of(gradients.begin(), gradients.end(),
                       [](float g) { return std::isfinite(g); });
  }

  void start(const tessera::ClickBatch<std::int32_t>& batch) override {
    started_ = ids_of(batch);
    embeddings_->start(*started_);
  }
  std::span<const float> forward(const tessera::ClickBatch<std::int32_t>& batch) override {
    run_forward(batch, nullptr, false);
    return std::span(logits_.data(), static_cast<std::size_t>(batch.size));
  }

  void train(const tessera::ClickBatch<std::int32_t>& batch, std::int64_t global_batch,
             float dense_rate, float embedding_rate,
             const tessera::ClickBatch<std::int32_t>* next) override {
    run_forward(batch, next, true);
    const std::int64_t n = batch.size;
    const tessera::MatrixView<float> d_logits(logit_gradients_.data(), n, 1),
        d_products(product_gradients_.data(), n, products(n).columns),
        d_all(vector_gradients_.data(), n, columns_ + wide_),
        d_vectors = d_all.column_range(0, columns_);
    const tessera::BinaryCrossEntropyWithLogits loss{.normalizer = global_batch};
    loss_ += loss.forward_backward({logits_.data(), n, 1}, batch.labels, d_logits);
    const auto ready = [&](std::span<const float> part) {
      if (buckets_ && !part.empty()) buckets_->ready(part);
    };
    top_.backward(d_logits, d_products, ready);
    interaction_->backward(vectors(n), d_products, d_vectors);
    ready(interaction_->gradients());
    if (bottom_) bottom_->backward(d_vectors.column_range(0, first_), {}, ready);
    for (std::int64_t s = 0; wide_ > 0 && s < n; ++s)
      std::fill_n(&d_all(s, columns_), wide_, d_logits(s, 0));
    buckets_ ? buckets_->wait() : communicator_.all_reduce(parameters_.gradients());
    const tessera::MatrixView<float> d_pooled =
        d_all.column_range(first_, columns_ + wide_ - first_);
    if (clip_norm_ == 0)
      embeddings_->backward(d_pooled, embedding_rate);
    else
      embeddings_->backward_clipped(d_pooled, embedding_rate, clip_norm_, parameters_.gradients());
    std::visit([&](auto& optimizer) { optimizer.step(parameters_, dense_rate, threads_); },
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
    const tessera::MatrixView<float> all(vectors_.data(), n, columns_ + wide_),
        pooled = all.column_range(first_, columns_ + wide_ - first_), logits(logits_.data(), n, 1);
    const auto numbers = batch.dense_view();
    if (bottom_) bottom_->forward(numbers, all.column_range(0, first_));
    for (std::int64_t s = 0; !bottom_ && s < n; ++s)
      std::copy_n(numbers.row(s), first_, all.row(s));
    const tessera::KeyedJagged<std::int32_t> ids =
        started_ ? *std::exchange(started_, std::nullopt) : ids_of(batch);
    train ? embeddings_->forward(ids, pooled) : embeddings_->evaluate(ids, pooled);
    if (next != nullptr) start(*next);
    interaction_->forward(vectors(n), products(n));
    top_.forward(products(n), logits);
    for (std::int64_t s = 0; wide_ > 0 && s < n; ++s)
      logits(s, 0) += std::accumulate(&all(s, columns_), &all(s, columns_) + wide_, 0.0f);
  }

  /// The batch's, and once more for the wide part. They stay while those of the next batch come.
  tessera::KeyedJagged<std::int32_t> ids_of(const tessera::ClickBatch<std::int32_t>& batch) {
    tessera::KeyedJagged<std::int32_t> ids = batch.keyed();
    if (wide_ == 0) return ids;
    std::swap(twice_[0], twice_[1]);
    Twice& twice = twice_[0];
    const auto repeat = [](auto& to, const auto& from, auto begin, auto add) {
      to.assign(from.begin(), from.end());
      std::transform(begin, from.end(), std::back_inserter(to), [add](auto x) { return x + add; });
    };
    repeat(twice.ids, batch.ids, batch.ids.begin(), 0);
    if (!batch.offsets.empty())
      repeat(twice.offsets, batch.offsets, batch.offsets.begin() + 1, batch.offsets.back());
    ids.features *= 2;
    ids.ids = twice.ids;
    ids.offsets = twice.offsets;
    return ids;
  }

  tessera::DenseParameters make_parameters(std::uint64_t seed) {
    return bottom_ ? tessera::DenseParameters(seed, *bottom_, *interaction_, top_)
                   : tessera::DenseParameters(seed, *interaction_, top_);
  }

  // its vectors begin at cache lines, as those of a std::vector may not
  using Floats = tessera::Buffer<float, tessera::Host>;
  static Floats floats(std::int64_t count) {
    Floats buffer;
    std::ranges::fill(buffer.resize(tessera::Host(), static_cast<std::size_t>(count)), 0.0f);
    return buffer;
  }
  tessera::MatrixView<float> vectors(std::int64_t n) {
    return {vectors_.data(), n, columns_, columns_ + wide_};
  }
  tessera::MatrixView<float> products(std::int64_t n) {
    return {products_.data(), n, interaction_->columns()};
  }

  tessera::AnyCommunicator& communicator_;
  int threads_;
  std::int64_t first_, columns_;  ///< what stands before the vectors; with them
  std::int64_t wide_;             ///< columns behind them
  float clip_norm_;               ///< 0: none
  std::unique_ptr<Interaction> interaction_;
  std::unique_ptr<tessera::Mlp<>> bottom_;
  tessera::Mlp<> top_;
  tessera::DenseParameters parameters_;
  DenseOptimizer optimizer_;
  std::unique_ptr<Buckets> buckets_;
  std::unique_ptr<Embeddings> embeddings_;
  Floats vectors_, vector_gradients_;    // [batch, columns and wide]
  Floats products_, product_gradients_;  // [batch, columns of the interaction]
  Floats logits_, logit_gradients_;
  struct Twice {
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> offsets;
  } twice_[2];
  std::optional<tessera::KeyedJagged<std::int32_t>> started_;
  double loss_ = 0;
};

}  // namespace dlrm
