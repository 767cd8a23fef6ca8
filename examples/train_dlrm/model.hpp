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
/// categories, dot products of all pairs of these 27 vectors or cross layers over all of them
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
        accumulates_(options.accumulate > 1),
        spans_(options.timed()),
        virtual_(virtual_ranks(options, tessera::Host({.threads = threads_}), communicator_.rank(),
                               communicator_.size())),
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
                                    model_layout(options, communicator_.size(), shape),
                                    EmbeddingOptions(options, communicators.routing))),
        vectors_(floats(max_batch * (columns_ + wide_))),
        vector_gradients_(floats(max_batch * (columns_ + wide_))),
        products_(floats(max_batch * interaction_->columns())),
        product_gradients_(floats(max_batch * interaction_->columns())),
        logits_(floats(max_batch)),
        logit_gradients_(floats(max_batch)) {}

  Embeddings& embeddings() override { return *embeddings_; }
  Spans& spans() override { return spans_; }
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
  std::span<const float> forward(const tessera::ClickBatch<std::int32_t>& batch,
                                 std::int64_t global_batch) override {
    look_up(batch, nullptr, false);
    keep_weights();
    for_each_part(virtual_, global_batch, batch.size,
                  [&](int, std::int64_t first, std::int64_t n) { run_forward(batch, first, n); });
    return std::span(logits_.data(), static_cast<std::size_t>(batch.size));
  }

  void train(const tessera::ClickBatch<std::int32_t>& batch, const OptimizerStep& step,
             const tessera::ClickBatch<std::int32_t>* next) override {
    look_up(batch, next, true);
    keep_weights();
    for_each_part(virtual_, step.batch, batch.size,
                  [&](int part, std::int64_t first, std::int64_t n) {
                    run_forward(batch, first, n);
                    losses_[static_cast<std::size_t>(part)] += run_backward(batch, step, first, n);
                    if (virtual_) virtual_->add(parameters_.gradients());
                  });
    const tessera::MatrixView<float> d_pooled =
        all(vector_gradients_, 0, batch.size).column_range(first_, columns_ + wide_ - first_);
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
        all(vectors_, 0, batch.size).column_range(first_, columns_ + wide_ - first_);
    const tessera::KeyedJagged<std::int32_t> ids =
        started_ ? *std::exchange(started_, std::nullopt) : ids_of(batch);
    train ? embeddings_->forward(ids, pooled) : embeddings_->evaluate(ids, pooled);
    if (next != nullptr) start(*next);
  }

  /// What several parts share: their batch's packed weights.
  void keep_weights() {
    if (!virtual_) return;
    if (bottom_) bottom_->keep_weights();
    interaction_->keep_weights();
    top_.keep_weights();
  }

  void run_forward(const tessera::ClickBatch<std::int32_t>& batch, std::int64_t first,
                   std::int64_t n) {
    const auto numbers = batch.dense_view().row_range(first, n);
    const tessera::MatrixView<float> x = all(vectors_, first, n),
                                     logits = view(logits_, first, n, 1);
    if (bottom_) {
      const auto timing = spans_.time("bottom MLP");
      bottom_->forward(numbers, x.column_range(0, first_));
    } else {
      for (std::int64_t s = 0; s < n; ++s) std::copy_n(numbers.row(s), first_, x.row(s));
    }
    {
      const auto timing = spans_.time("interaction");
      interaction_->forward(vectors(first, n), products(first, n));
    }
    const auto timing = spans_.time("top MLP");
    top_.forward(products(first, n), logits);
    for (std::int64_t s = 0; wide_ > 0 && s < n; ++s)
      logits(s, 0) += std::accumulate(&x(s, columns_), &x(s, columns_) + wide_, 0.0f);
  }

  /// Answers the loss of these samples, over those of the step.
  double run_backward(const tessera::ClickBatch<std::int32_t>& batch, const OptimizerStep& step,
                      std::int64_t first, std::int64_t n) {
    const tessera::MatrixView<float> d_logits = view(logit_gradients_, first, n, 1),
                                     d_products =
                                         view(product_gradients_, first, n, products_columns()),
                                     d_all = all(vector_gradients_, first, n),
                                     d_vectors = d_all.column_range(0, columns_);
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
    for (std::int64_t s = 0; wide_ > 0 && s < n; ++s)
      std::fill_n(&d_all(s, columns_), wide_, d_logits(s, 0));
    const auto timing = spans_.time("bottom MLP, backward");
    if (bottom_) bottom_->backward(d_vectors.column_range(0, first_), {}, ready);
    return loss;
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
    return all(vectors_, first, n).column_range(0, columns_);
  }
  /// With the wide part's columns.
  tessera::MatrixView<float> all(const Floats& matrix, std::int64_t first, std::int64_t n) const {
    return view(matrix, first, n, columns_ + wide_);
  }
  std::int64_t products_columns() const { return interaction_->columns(); }
  tessera::MatrixView<float> products(std::int64_t first, std::int64_t n) const {
    return view(products_, first, n, products_columns());
  }

  tessera::AnyCommunicator& communicator_;
  int threads_;
  std::int64_t first_, columns_;  ///< what stands before the vectors; with them
  std::int64_t wide_;             ///< columns behind them
  float clip_norm_;               ///< 0: none
  bool accumulates_;              ///< gradients of several batches
  Spans spans_;
  std::optional<tessera::VirtualRanks<tessera::Host>> virtual_;
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
  std::vector<double> losses_ =
      std::vector<double>(virtual_ ? static_cast<std::size_t>(virtual_->count()) : 1);
};

}  // namespace dlrm
