// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/step_graph.hpp"
#include "batch_memory.hpp"
#include "dense_contents.hpp"
#include "embeddings.hpp"
#include "interaction.hpp"
#include "options.hpp"
#include "plans.hpp"
#include "rank_model.hpp"
#include "ranks.hpp"
#include "vector_ops.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/bucketed_all_reduce.hpp>
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp_layers.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/interaction/concat.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/matrix.hpp>
#include <tessera_data/click_batch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace dlrm {

/// What a Model of a backend is made of besides its layers.
template <class Backend>
struct ModelParts {
  Backend backend;
  Backend gradients;  ///< the same memory; in whose order gradients are summed over ranks
  std::unique_ptr<Interaction> interaction;
  std::unique_ptr<Embeddings> embeddings;
  support::StepGraph<Backend> graph;
};

/// One rank's DLRM (Naumov et al. 2019): a bottom MLP for the numbers, embeddings for the
/// categories, dot products of all pairs of these 27 vectors or cross layers over all of them
/// (DCNv2, Wang et al. 2021), a top MLP. Linear layers are replicated, embeddings are cut as the
/// plan says.
///
///   numbers -> bottom MLP -> | vector 0 | vectors 1..n | <- embeddings         one buffer [batch, columns]
///                                       interaction -> top MLP -> logit
///
/// A Wide & Deep (Cheng et al. 2016) has no bottom MLP: numbers and vectors go to the
/// top MLP as they are. Its logit is the MLP's and the sum of one weight for each category, which
/// stand behind the vectors. On a GPU the host waits for nothing in a step of one rank, nor in one
/// of several under --graph.
template <class Backend>
class Model final : public RankModel {
 public:
  Model(Communicators& communicators, const Options& options, const ModelShape& shape,
        std::int64_t max_batch, ModelParts<Backend> parts)
      : communicator_(communicators.main),
        host_ranks_(communicators.data),
        backend_(parts.backend),
        first_(shape.first_columns()),
        columns_(shape.columns()),
        wide_(static_cast<std::int64_t>(shape.wide)),
        clip_norm_(options.clip_norm),
        accumulates_(options.accumulate > 1),
        spans_(options.timed(), work_clock(backend_)),
        virtual_(virtual_ranks(options, backend_, communicator_.rank(), communicator_.size())),
        interaction_(std::move(parts.interaction)),
        embeddings_(std::move(parts.embeddings)),
        bottom_(shape.bottom ? std::make_unique<Mlp>(
                                   backend_, sizes(shape.numbers, options.bottom_mlp, first_),
                                   layer_options(options, true))
                             : nullptr),
        top_(backend_, sizes(interaction_->columns(), options.top_mlp, 1),
             layer_options(options, false)),
        parameters_(make_parameters(options.seed)),
        optimizer_(make_optimizer(options)),
        buckets_(make_buckets(communicators, options.bucket_kib, parts.gradients)),
        graph_(std::move(parts.graph)),
        samples_(backend_, shape, max_batch, graph_.captures()),
        vectors_(backend_, max_batch, columns_ + wide_),
        vector_gradients_(backend_, max_batch, columns_ + wide_),
        products_(backend_, max_batch, interaction_->columns()),
        product_gradients_(backend_, max_batch, interaction_->columns()),
        logits_(backend_, max_batch, 1),
        logit_gradients_(backend_, max_batch, 1),
        losses_(backend_, virtual_ ? virtual_->count() : 1, 1) {}

  Embeddings& embeddings() override { return *embeddings_; }
  Spans& spans() override { return spans_; }
  std::int64_t dense_parameters() const override { return parameters_.size(); }

  void add_to(tessera::CheckpointContents& contents) override {
    embeddings_->add_to(contents);
    add_dense(contents, backend_, bottom_.get(), *interaction_, top_, parameters_, optimizer_);
  }

  bool gradients_finite() const override {
    const std::span<const float> gradients = on_host(parameters_.gradients(), host_gradients_);
    return std::all_of(gradients.begin(), gradients.end(),
                       [](float g) { return std::isfinite(g); });
  }

  void start(const tessera::ClickBatch<std::int32_t>& batch) override {
    started_ = samples_.ids(batch);
    embeddings_->start(*started_);
  }
  std::span<const float> forward(const tessera::ClickBatch<std::int32_t>& batch,
                                 std::int64_t global_batch) override {
    numbers_ = samples_.numbers(batch);
    embeddings_->promise_equal_batches(false);
    embeddings_->evaluate(samples_.ids(batch), pooled(vectors_, batch.size));
    keep_weights();
    for_each_part(virtual_, global_batch, batch.size,
                  [&](int, std::int64_t first, std::int64_t n) { run_forward(first, n); });
    return on_host(
        std::span<const float>(logits_.view().data, static_cast<std::size_t>(batch.size)),
        host_logits_);
  }

  void train(const tessera::ClickBatch<std::int32_t>& batch, const OptimizerStep& step,
             const tessera::ClickBatch<std::int32_t>* next) override {
    numbers_ = samples_.numbers(batch);
    labels_ = samples_.labels(batch);
    if (!graph_.captures()) {
      const tessera::KeyedJagged<std::int32_t> ids =
          started_ ? *std::exchange(started_, std::nullopt) : samples_.ids(batch);
      return train_on(ids, batch.size, step, next);
    }
    set_rates(step);  // a replay takes what is set before it
    const bool equal = step.batch % communicator_.size() == 0;
    embeddings_->promise_equal_batches(equal);
    if (!equal) return train_on(samples_.ids(batch), batch.size, step, next);
    // Ranks meet on the host, once, while the GPU is still at the step before. What grows after it
    // does so for new bounds, with which no step was captured.
    std::int64_t stale = graph_.stale() ? 1 : 0;
    const auto agree = [&](std::span<std::int64_t> bounds) {
      if (communicator_.size() == 1) return;
      std::vector<std::int64_t> told(bounds.begin(), bounds.end());
      told.push_back(stale);
      host_ranks_.all_reduce(std::span(told), tessera::Reduction::max);
      std::copy(told.begin(), told.end() - 1, bounds.begin());
      stale = told.back();
    };
    const tessera::KeyedJagged<std::int32_t> ids = samples_.ids(batch, agree);
    std::vector<std::int64_t> sizes{batch.size, step.samples, step.batch};
    sizes.insert(sizes.end(), ids.bounds.begin(), ids.bounds.end());
    graph_.run(sizes, stale != 0, [&] { train_on(ids, batch.size, step, next); });
  }

  support::GraphCounts graph_counts() const override { return graph_.counts(); }

  void exchange(std::span<const std::size_t> to, std::span<const std::size_t> from) override {
    const auto room = [&](auto& buffer, std::span<const std::size_t> counts) {
      return buffer.resize(backend_, std::reduce(counts.begin(), counts.end()));
    };
    communicator_.all_to_all<char>(room(sent_, to), to, room(received_, from), from);
    backend_.synchronize();
  }
  void sum_dense() override {
    const std::span<float> gradients = parameters_.gradients();
    backend_.fill_zero(gradients.data(), gradients.size_bytes());
    communicator_.all_reduce(gradients);
    backend_.synchronize();
  }

  double take_loss() override {
    std::vector<double> own(static_cast<std::size_t>(losses_.rows()));
    double* const losses = losses_.view().data;
    backend_.copy(own.data(), losses, own.size() * sizeof(double));
    backend_.synchronize();
    backend_.fill_zero(losses, own.size() * sizeof(double));
    if (virtual_) return virtual_->sum(communicator_, own);
    communicator_.all_reduce(std::span<double>(own));
    return own[0];
  }

 private:
  using Mlp = tessera::Mlp<Backend>;
  using Matrix = tessera::Matrix<float, Backend>;
  using Buckets = tessera::BucketedAllReduce<tessera::AnyCommunicator>;
  using DenseOptimizer = std::variant<tessera::DenseOptimizer<tessera::Sgd, Backend>,
                                      tessera::DenseOptimizer<tessera::Adagrad, Backend>,
                                      tessera::DenseOptimizer<tessera::Adam, Backend>>;

  void set_rates(const OptimizerStep& step) {
    embeddings_->set_learning_rate(step.table_rate);
    std::visit([&](auto& optimizer) { optimizer.set_learning_rate(step.dense_rate); }, optimizer_);
  }

  /// `next`: null, or the batch to route meanwhile.
  void train_on(const tessera::KeyedJagged<std::int32_t>& ids, std::int64_t samples,
                const OptimizerStep& step, const tessera::ClickBatch<std::int32_t>* next) {
    embeddings_->forward(ids, pooled(vectors_, samples));
    if (next != nullptr) start(*next);
    keep_weights();
    for_each_part(virtual_, step.batch, samples, [&](int part, std::int64_t first, std::int64_t n) {
      run_forward(first, n);
      run_backward(step, part, first, n);
      if (virtual_) virtual_->add(parameters_.gradients());
    });
    const tessera::MatrixView<float> d_pooled = pooled(vector_gradients_, samples);
    const bool apart = accumulates_ || clip_norm_ != 0;             // rows wait for `apply`
    const bool kept = !apart || embeddings_->accumulate(d_pooled);  // alike on all ranks
    // the tree of virtual ranks is that of a batch
    if (virtual_ || !accumulates_) sum_over_ranks();
    if (accumulates_) {
      if (kept) parameters_.accumulate();
      kept_ = kept_ || kept;
      if (!step.ends || !std::exchange(kept_, false)) return;
      parameters_.take_accumulated();
      if (!virtual_) sum_over_ranks();
    } else if (!kept) {
      return;
    }
    if (!graph_.captures()) set_rates(step);
    if (apart)
      embeddings_->apply(clip_norm_, parameters_.gradients());
    else
      embeddings_->backward(d_pooled);
    const auto timing = spans_.time("dense optimizer");
    std::visit([&](auto& optimizer) { optimizer.step(parameters_); }, optimizer_);
  }

  static std::vector<std::int64_t> sizes(std::int64_t first, std::vector<std::int64_t> hidden,
                                         std::int64_t last) {
    hidden.insert(hidden.begin(), first);
    hidden.push_back(last);
    return hidden;
  }
  static tessera::MlpOptions layer_options(const Options& options, bool last_relu) {
    return {.last_relu = last_relu, .precision = dense_precision(options), .tf32 = tf32(options)};
  }

  DenseOptimizer make_optimizer(const Options& options) const {
    const auto with = [&]<class O>(O optimizer) -> DenseOptimizer {
      return tessera::DenseOptimizer<O, Backend>(backend_, optimizer, options.weight_decay);
    };
    if (options.dense_optimizer == "sgd") return with(tessera::Sgd{});
    if (options.dense_optimizer == "adagrad") return with(tessera::Adagrad{.epsilon = 1e-8f});
    return with(tessera::Adam{});
  }

  std::unique_ptr<Buckets> make_buckets(Communicators& communicators, std::int64_t kib,
                                        const Backend& summing) {
    if (kib == 0) return nullptr;
    const std::size_t bytes = static_cast<std::size_t>(kib) * 1024;
    if constexpr (Backend::host_readable)
      return std::make_unique<Buckets>(communicators.gradients, parameters_.gradients(), bytes);
    else
      return std::make_unique<Buckets>(communicators.gradients, parameters_.gradients(), bytes,
                                       backend_, summing);
  }

  /// Numbers of the backend's memory, in `copy` where the host cannot read that.
  std::span<const float> on_host(std::span<const float> values, std::vector<float>& copy) const {
    if constexpr (Backend::host_readable) return values;
    copy.resize(values.size());
    backend_.copy(copy.data(), values.data(), values.size_bytes());
    backend_.synchronize();
    return copy;
  }

  /// The columns of the embeddings' vectors, of the first samples.
  tessera::MatrixView<float> pooled(Matrix& vectors, std::int64_t samples) const {
    return vectors.first_rows(samples).column_range(first_, columns_ + wide_ - first_);
  }

  /// What several parts share: their batch's packed weights.
  void keep_weights() {
    if (!virtual_) return;
    if (bottom_) bottom_->keep_weights();
    interaction_->keep_weights();
    top_.keep_weights();
  }

  void run_forward(std::int64_t first, std::int64_t n) {
    const auto numbers = numbers_.row_range(first, n);
    const tessera::MatrixView<float> all = vectors_.view().row_range(first, n),
                                     x = all.column_range(0, columns_),
                                     z = products_.view().row_range(first, n),
                                     logits = logits_.view().row_range(first, n);
    if (bottom_) {
      const auto timing = spans_.time("bottom MLP");
      bottom_->forward(numbers, x.column_range(0, first_));
    } else {
      tessera::op::run<tessera::op::CopyMatrix<float>>(backend_,
                                                       {numbers, x.column_range(0, first_)});
    }
    {
      const auto timing = spans_.time("interaction");
      interaction_->forward(x, z);
    }
    const auto timing = spans_.time("top MLP");
    top_.forward(z, logits);
    if (wide_ > 0)
      tessera::op::run<AddRowSums>(backend_, {all.column_range(columns_, wide_), logits});
  }

  /// Adds the loss of these samples, over those of the step, to the part's.
  void run_backward(const OptimizerStep& step, int part, std::int64_t first, std::int64_t n) {
    const tessera::MatrixView<float> d_logits = logit_gradients_.view().row_range(first, n),
                                     d_z = product_gradients_.view().row_range(first, n),
                                     d_all = vector_gradients_.view().row_range(first, n),
                                     d_x = d_all.column_range(0, columns_);
    const tessera::MatrixView<const float> x =
        vectors_.view().row_range(first, n).column_range(0, columns_);
    const auto ready = [&](std::span<const float> gradients) {
      if (buckets_ && !gradients.empty()) buckets_->ready(gradients);
    };
    {
      const auto timing = spans_.time("top MLP, backward");
      tessera::BinaryCrossEntropyWithLogits{.normalizer = step.samples}.forward_backward(
          backend_, logits_.view().row_range(first, n),
          labels_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n)), d_logits,
          losses_.view().data + part);
      top_.backward(d_logits, d_z, ready);
    }
    {
      const auto timing = spans_.time("interaction, backward");
      interaction_->backward(x, d_z, d_x);
      ready(interaction_->gradients());
    }
    if (wide_ > 0)
      tessera::op::run<SpreadColumn>(backend_, {d_logits, d_all.column_range(columns_, wide_)});
    const auto timing = spans_.time("bottom MLP, backward");
    if (bottom_) bottom_->backward(d_x.column_range(0, first_), {}, ready);
  }

  tessera::DenseParameters<Backend> make_parameters(std::uint64_t seed) {
    using Parameters = tessera::DenseParameters<Backend>;
    return bottom_ ? Parameters(backend_, seed, *bottom_, *interaction_, top_)
                   : Parameters(backend_, seed, *interaction_, top_);
  }

  void sum_over_ranks() {
    const auto timing = spans_.time("all-reduce");
    if (virtual_)
      virtual_->all_reduce(communicator_, parameters_.gradients());
    else
      buckets_ ? buckets_->wait() : communicator_.all_reduce(parameters_.gradients());
  }

  tessera::AnyCommunicator& communicator_;
  tessera::AnyCommunicator& host_ranks_;  ///< the same ranks, for the host's memory
  Backend backend_;
  std::int64_t first_, columns_;  ///< what stands before the vectors; with them
  std::int64_t wide_;             ///< columns behind them
  float clip_norm_;               ///< 0: none
  bool accumulates_;              ///< gradients of several batches
  bool kept_ = false;             ///< some of this step's, of those
  Spans spans_;
  std::optional<tessera::detail::VirtualRanks<Backend>> virtual_;
  std::unique_ptr<Interaction> interaction_;
  std::unique_ptr<Embeddings> embeddings_;
  std::unique_ptr<Mlp> bottom_;
  Mlp top_;
  tessera::DenseParameters<Backend> parameters_;
  DenseOptimizer optimizer_;
  std::unique_ptr<Buckets> buckets_;
  support::StepGraph<Backend> graph_;
  BatchMemory<Backend> samples_;
  Matrix vectors_, vector_gradients_;        ///< [batch, columns and wide]
  Matrix products_, product_gradients_;      ///< [batch, columns of the interaction]
  Matrix logits_, logit_gradients_;          ///< [batch, 1]
  tessera::Matrix<double, Backend> losses_;  ///< by virtual rank
  // Of the batch that was looked up last:
  tessera::MatrixView<const float> numbers_;
  std::span<const float> labels_;
  std::optional<tessera::KeyedJagged<std::int32_t>> started_;
  mutable std::vector<float> host_logits_, host_gradients_;
  tessera::Buffer<char, Backend> sent_, received_;  ///< of `exchange`
};

}  // namespace dlrm
