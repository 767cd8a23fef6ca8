// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "encoder.hpp"
#include "items.hpp"
#include "options.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/gradients.hpp>
#include <tessera/sequence/sampled_softmax.hpp>
#include <tessera/update/virtual_ranks.hpp>
#include <tessera_data/histories.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace sequence {

using Batch = tessera::HistoryBatch<std::int32_t>;

/// A batch's rows as the blocks read them: the events of its histories, and after them candidates.
struct Rows {
  std::vector<std::int32_t> items;   ///< of each row
  std::vector<std::int64_t> places;  ///< in the history, from 0; candidates: after its end
  std::vector<float> labels;         ///< of candidates: what is to be predicted
  std::vector<char> is_candidate;
  std::vector<std::int64_t> offsets{0}, targets;  ///< per history: rows, candidates among them

  void add(std::int32_t item, std::int64_t place, float label, bool candidate) {
    items.push_back(item), places.push_back(place);
    labels.push_back(label), is_candidate.push_back(candidate);
  }
  void end_history(std::int64_t candidates) {
    offsets.push_back(std::ssize(items)), targets.push_back(candidates);
  }
};

/// One rank's model. Linear layers and blocks are the same on all ranks, the table of items is cut
/// as the plan says. Next item: vectors of items and places -> blocks; a row's result times an
/// item's vector is how likely that comes next. Ranking: rows of candidates -> a linear layer.
class Model {
 public:
  Model(tessera::ThreadCommunicator& ranks, const Options& options, std::int64_t items)
      : ranks_(ranks),
        options_(options),
        longest_(options.longest_sequence()),
        places_(options.max_length + 1, options.width, true),
        label_(1, options.width, false),
        encoder_(options.blocks, options.width, options.heads, longest_, options.threads_per_rank,
                 options.dropout),
        head_(tessera::Host({.threads = options.threads_per_rank}), options.width, 1),
        parameters_(options.seed, places_, label_, encoder_, head_),
        table_(make_items(ranks, options.plan, items, options.width, options.threads_per_rank,
                          options.seed, options.virtual_ranks)) {
    if (options.virtual_ranks > 0)
      virtual_.emplace(tessera::Host{}, options.virtual_ranks, ranks.rank(), ranks.size());
  }

  std::int64_t dense_parameters() const { return parameters_.size(); }
  Items& table() { return *table_; }

  void add_to(tessera::CheckpointContents& contents) {
    table_->add_to(contents);
    contents.add("dense", {parameters_.size()}, parameters_.values());
    for (const tessera::detail::DenseState& state : adam_.states(parameters_))
      contents.add(std::string("dense.") + std::string(state.name), {parameters_.size()},
                   state.values);
    contents.add_number("dense.step", adam_.steps());
  }

  /// How many parts this rank's batches have, each a batch of its own for all but the tables.
  int parts() const { return virtual_ ? virtual_->count() : 1; }
  /// The histories of a global batch before this rank's part k; of k = parts() behind all.
  std::int64_t part_begin(std::int64_t size, int k) const {
    if (virtual_) return virtual_->first(size) + virtual_->begin(size, k);
    return tessera::even_cut(size, ranks_.size(), ranks_.rank() + k);
  }
  /// Of all ranks, from those of this rank's parts. Collective.
  double sum_of_losses(std::span<const double> of_parts) {
    if (virtual_) return virtual_->sum(ranks_, of_parts);
    double sum = of_parts[0];
    ranks_.all_reduce(std::span(&sum, 1));
    return sum;
  }

  /// A step of the next-item model. `histories`: how many a part has at most; `keys`: of each
  /// history, for dropout; `global_targets`: of all ranks. Adds the parts' shares to the losses.
  void train_next_item(std::span<const Batch> parts, std::int64_t histories,
                       std::int64_t global_targets, std::span<const std::int32_t> negatives,
                       std::span<const float> log_q_of_items,
                       std::span<const std::vector<std::uint64_t>> keys, float rate,
                       std::span<double> losses) {
    asked_.clear();
    for (const Batch& batch : parts) asked_.push_back({batch.items, batch.offsets});
    const Found found = table_->look_up(asked_, histories, negatives);
    const std::int64_t drawn = std::ssize(negatives);
    resize(d_negatives_, found.negatives.rows);
    d_vectors_.assign(static_cast<std::size_t>(found.events.rows * options_.width), 0.0f);
    const tessera::MatrixView<float> d_vectors = matrix(d_vectors_),
                                     d_negatives = matrix(d_negatives_);
    std::int64_t first = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const std::int64_t events = std::ssize(parts[k].items),
                         at = static_cast<std::int64_t>(k) * drawn;
      losses[k] += next_item_part(
          parts[k], {found.events.row_range(first, events), found.negatives.row_range(at, drawn)},
          global_targets, negatives, log_q_of_items, keys[k], d_vectors.row_range(first, events),
          d_negatives.row_range(at, drawn));
      first += events;
      end_part();
    }
    update(d_vectors, d_negatives, rate);
  }

  /// A step of the ranking model on rows with candidates; as train_next_item.
  void train_ranking(std::span<const Rows> parts, std::int64_t histories,
                     std::int64_t global_candidates,
                     std::span<const std::vector<std::uint64_t>> keys, float rate,
                     std::span<double> losses) {
    asked_.clear();
    for (const Rows& rows : parts) asked_.push_back({rows.items, rows.offsets});
    const Found found = table_->look_up(asked_, histories, {});
    d_vectors_.assign(static_cast<std::size_t>(found.events.rows * options_.width), 0.0f);
    const tessera::MatrixView<float> d_vectors = matrix(d_vectors_);
    std::int64_t first = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const std::int64_t rows = std::ssize(parts[k].items);
      losses[k] += ranking_part(parts[k], found.events.row_range(first, rows), global_candidates,
                                keys[k], d_vectors.row_range(first, rows));
      first += rows;
      end_part();
    }
    update(d_vectors, {nullptr, 0, options_.width}, rate);
  }

  /// All vectors of items, for the two calls below. Collective.
  void load_all_items() {
    std::vector<std::int32_t> all(static_cast<std::size_t>(table_->rows()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    all_items_.resize(all.size() * options_.width);
    table_->evaluate(all, {all_items_.data(), table_->rows(), options_.width});
  }
  tessera::MatrixView<const float> all_items() const {
    return {all_items_.data(), table_->rows(), options_.width};
  }
  /// What the rows of a batch's targets make: [targets, width], history by history.
  tessera::MatrixView<const float> queries(const Batch& batch) {
    next_rows(batch);
    fill_input([&](std::int64_t row) { return all_items().row(rows_.items[row]); });
    const auto output = encoder_.forward({rows_.offsets}, {});
    resize(queries_, std::ssize(target_rows_));
    for (std::size_t t = 0; t < target_rows_.size(); ++t)
      std::copy_n(output.row(target_rows_[t]), options_.width,
                  queries_.data() + t * options_.width);
    return {queries_.data(), std::ssize(target_rows_), options_.width};
  }
  /// The logits of candidates, and their labels in the same order.
  std::span<const float> logits(const Rows& rows) {
    rows_ = rows;
    fill_input([&](std::int64_t row) { return all_items().row(rows_.items[row]); });
    return logits_of(encoder_.forward({rows_.offsets, rows_.targets}, {}));
  }
  std::span<const float> candidate_labels() const { return candidate_labels_; }

 private:
  /// Forward and backward of a part: its share of the loss, the gradients of the vectors found.
  double next_item_part(const Batch& batch, const Found& found, std::int64_t global_targets,
                        std::span<const std::int32_t> negatives,
                        std::span<const float> log_q_of_items, std::span<const std::uint64_t> keys,
                        tessera::MatrixView<float> d_vectors,
                        tessera::MatrixView<float> d_negatives) {
    const std::int64_t width = options_.width;
    const auto [vectors, negative_vectors] = found;
    next_rows(batch);
    fill_input(
        [&, events_of = vectors](std::int64_t row) { return events_of.row(event_of_[row]); });
    set_row_keys(keys);
    const auto output = encoder_.forward({rows_.offsets}, row_keys_);

    const std::int64_t targets = std::ssize(target_rows_);
    resize(queries_, targets), resize(positives_, targets);
    resize(d_queries_, targets), resize(d_positives_, targets);
    positive_ids_.clear(), positive_log_q_.clear(), negative_log_q_.clear();
    for (std::int64_t t = 0; t < targets; ++t) {
      const std::int64_t row = target_rows_[t], next = event_of_[row] + 1;
      std::copy_n(output.row(row), width, queries_.data() + t * width);
      std::copy_n(vectors.row(next), width, positives_.data() + t * width);
      positive_ids_.push_back(batch.items[next]);
      if (!log_q_of_items.empty()) positive_log_q_.push_back(log_q_of_items[batch.items[next]]);
    }
    if (!log_q_of_items.empty())
      for (const std::int32_t item : negatives) negative_log_q_.push_back(log_q_of_items[item]);
    tessera::SampledSoftmax softmax(tessera::Host({.threads = options_.threads_per_rank}),
                                    {.normalizer = global_targets});
    const double loss = softmax.forward_backward(
        tessera::SampledSoftmaxBatch<std::int32_t>{matrix(queries_), matrix(positives_),
                                                   negative_vectors, positive_ids_, negatives,
                                                   positive_log_q_, negative_log_q_},
        matrix(d_queries_), matrix(d_positives_), d_negatives);
    const tessera::MatrixView<float> d = cleared_gradient();
    for (std::int64_t t = 0; t < targets; ++t)
      std::copy_n(d_queries_.data() + t * width, width, d.row(target_rows_[t]));
    head_gradients_are_zero();
    backward(d, [&](std::int64_t row) { return d_vectors.row(event_of_[row]); });
    for (std::int64_t t = 0; t < targets; ++t)
      add(d_positives_.data() + t * width, d_vectors.row(event_of_[target_rows_[t]] + 1));
    return loss;
  }

  double ranking_part(const Rows& rows, tessera::MatrixView<const float> vectors,
                      std::int64_t global_candidates, std::span<const std::uint64_t> keys,
                      tessera::MatrixView<float> d_vectors) {
    rows_ = rows;
    fill_input([&](std::int64_t row) { return vectors.row(row); });
    set_row_keys(keys);
    const std::span<const float> logits =
        logits_of(encoder_.forward({rows_.offsets, rows_.targets}, row_keys_));
    const std::int64_t candidates = std::ssize(logits);
    d_logits_.resize(logits.size());
    const double loss =
        tessera::BinaryCrossEntropyWithLogits{.normalizer = global_candidates}.forward_backward(
            {logits.data(), candidates, 1}, candidate_labels_, {d_logits_.data(), candidates, 1});
    resize(d_queries_, candidates);
    head_.backward({d_logits_.data(), candidates, 1},
                   {d_queries_.data(), candidates, options_.width});
    const tessera::MatrixView<float> d = cleared_gradient();
    for (std::int64_t t = 0; t < candidates; ++t)
      std::copy_n(d_queries_.data() + t * options_.width, options_.width, d.row(target_rows_[t]));
    backward(d, [&](std::int64_t row) { return d_vectors.row(row); });
    return loss;
  }

  void resize(std::vector<float>& x, std::int64_t rows) const { x.resize(rows * options_.width); }
  tessera::MatrixView<float> matrix(std::vector<float>& x) const {
    return {x.data(), std::ssize(x) / options_.width, options_.width};
  }
  void add(const float* from, float* to) const {
    for (int c = 0; c < options_.width; ++c) to[c] += from[c];
  }

  /// Rows of the next-item model: all events of a history but its last.
  void next_rows(const Batch& batch) {
    rows_ = {};
    event_of_.clear(), target_rows_.clear();
    for (std::int64_t s = 0; s < batch.size; ++s) {
      const std::int64_t begin = batch.offsets[s], end = batch.offsets[s + 1];
      for (std::int64_t e = begin; e + 1 < end; ++e) {
        if (e + 1 >= end - batch.targets[s]) target_rows_.push_back(std::ssize(rows_.items));
        event_of_.push_back(e);
        rows_.add(batch.items[e], e - begin, 0, false);
      }
      rows_.end_history(0);
    }
  }

  template <class VectorOf>
  void fill_input(const VectorOf& vector_of) {
    const std::int64_t rows = std::ssize(rows_.items);
    const tessera::MatrixView<float> x = encoder_.input(rows);
    for (std::int64_t row = 0; row < rows; ++row) {
      add(vector_of(row), x.row(row));
      places_.add(rows_.places[row], 1, x.row(row));
      if (reads_label(row)) label_.add(0, rows_.labels[row], x.row(row));
    }
  }
  bool reads_label(std::int64_t row) const {
    return !options_.ranks_items() && !rows_.is_candidate[row];
  }

  void set_row_keys(std::span<const std::uint64_t> keys) {
    row_keys_.clear();
    for (std::size_t s = 0; s + 1 < rows_.offsets.size(); ++s)
      for (std::int64_t row = rows_.offsets[s]; row < rows_.offsets[s + 1]; ++row)
        row_keys_.push_back(tessera::random_word(keys[s], row - rows_.offsets[s]));
  }

  std::span<const float> logits_of(tessera::MatrixView<const float> output) {
    target_rows_.clear(), candidate_labels_.clear();
    for (std::int64_t row = 0; row < output.rows; ++row)
      if (rows_.is_candidate[row]) {
        target_rows_.push_back(row);
        candidate_labels_.push_back(rows_.labels[row]);
      }
    const std::int64_t candidates = std::ssize(target_rows_);
    resize(queries_, candidates);
    for (std::int64_t t = 0; t < candidates; ++t)
      std::copy_n(output.row(target_rows_[t]), options_.width,
                  queries_.data() + t * options_.width);
    logits_.resize(candidates);
    head_.forward({queries_.data(), candidates, options_.width}, {logits_.data(), candidates, 1});
    return logits_;
  }

  tessera::MatrixView<float> cleared_gradient() {
    d_rows_.assign(rows_.items.size() * options_.width, 0.0f);
    return {d_rows_.data(), std::ssize(rows_.items), options_.width};
  }
  /// The next-item model has no linear layer.
  void head_gradients_are_zero() {
    const auto gradients = parameters_.gradients();
    std::fill(gradients.end() - head_.parameter_count(), gradients.end(), 0.0f);
  }

  /// From the gradient of the blocks' result to those of all that is below.
  template <class GradientOf>
  void backward(tessera::MatrixView<float> d, const GradientOf& gradient_of) {
    encoder_.backward(d, row_keys_);
    places_.clear_gradients();
    label_.clear_gradients();
    for (std::int64_t row = 0; row < d.rows; ++row) {
      add(d.row(row), gradient_of(row));
      places_.add_gradient(rows_.places[row], 1, d.row(row));
      if (reads_label(row)) label_.add_gradient(0, rows_.labels[row], d.row(row));
    }
  }

  void end_part() {
    if (virtual_) virtual_->add(parameters_.gradients());
  }
  void update(tessera::MatrixView<const float> events, tessera::MatrixView<const float> negatives,
              float rate) {
    if (virtual_)
      virtual_->all_reduce(ranks_, parameters_.gradients());
    else
      ranks_.all_reduce(parameters_.gradients());
    table_->update(events, negatives, rate);
    adam_.step(parameters_, rate);
  }

  tessera::ThreadCommunicator& ranks_;
  const Options& options_;
  std::int64_t longest_;
  Vectors places_, label_;
  Encoder encoder_;
  tessera::Linear<> head_;
  tessera::DenseParameters<> parameters_;
  tessera::DenseOptimizer<tessera::Adam> adam_;
  std::unique_ptr<Items> table_;
  std::optional<tessera::detail::VirtualRanks<tessera::Host>> virtual_;
  std::vector<Asked> asked_;
  Rows rows_;  ///< of the part
  std::vector<std::int64_t> event_of_, target_rows_;
  std::vector<std::int32_t> positive_ids_;
  std::vector<float> positive_log_q_, negative_log_q_, candidate_labels_;
  std::vector<std::uint64_t> row_keys_;
  std::vector<float> queries_, positives_, d_queries_, d_positives_, d_rows_, d_vectors_,
      d_negatives_;
  std::vector<float> logits_, d_logits_, all_items_;
};

}  // namespace sequence
