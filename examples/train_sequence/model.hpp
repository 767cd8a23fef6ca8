// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/step_graph.hpp"
#include "encoder.hpp"
#include "items.hpp"
#include "options.hpp"
#include "outbox.hpp"
#include "rank_model.hpp"
#include "vector_ops.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/sequence_batch.hpp>
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp_layers.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/op/sequence_rows.hpp>
#include <tessera/sequence/softmax_options.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/update/virtual_ranks.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sequence {

/// What a backend gives a model.
struct ModelParts {
  std::vector<std::unique_ptr<Block>> blocks;
  std::unique_ptr<Items> table;
};

/// Blocks and table of the options. `block_of`, `items_of`: make_block and make_items of the
/// backend.
template <class Backend, class Comm, class MakeBlock, class MakeItems>
ModelParts make_parts(const Backend& backend, Comm& ranks, const Options& options,
                      std::int64_t items, const MakeBlock& block_of, const MakeItems& items_of) {
  ModelParts parts;
  for (int b = 0; b < options.blocks; ++b)
    parts.blocks.push_back(
        block_of(backend, options.width, options.heads, options.longest_sequence()));
  parts.table = items_of(ranks, backend,
                         ItemsOptions{.plan = options.plan,
                                      .hot_rows = options.hot_rows,
                                      .rows = items,
                                      .width = options.width,
                                      .seed = options.seed,
                                      .virtual_ranks = options.virtual_ranks,
                                      .captured = options.graph && ranks.size() == 1});
  return parts;
}

/// One rank's model. Linear layers and blocks are the same on all ranks, the table of items is cut
/// as the plan says. Next item: vectors of items and places -> blocks; a row's result times an
/// item's vector is how likely that comes next. Ranking: rows of candidates -> a linear layer.
/// `Comm`: moves the backend's memory.
template <class Backend, class Comm>
class Model : public RankModel {
 public:
  Model(tessera::ThreadCommunicator& ranks, Comm& communicator, const Backend& backend,
        const Options& options, ModelParts parts, support::StepGraph<Backend> graph = {})
      : ranks_(ranks),
        communicator_(communicator),
        backend_(backend),
        options_(options),
        places_(backend, options.max_length + 1, options.width, true),
        label_(backend, 1, options.width, false),
        encoder_(backend, std::move(parts.blocks), options.width, options.dropout),
        head_(backend, options.width, 1),
        parameters_(backend, options.seed, places_, label_, encoder_, head_),
        adam_(backend),
        softmax_(backend),
        products_(backend),
        table_(std::move(parts.table)),
        graph_(std::move(graph)) {
    if (options.virtual_ranks > 0)
      virtual_.emplace(backend, options.virtual_ranks, ranks.rank(), ranks.size());
    const auto count = static_cast<std::size_t>(this->parts());
    backend_.fill_zero(losses_.resize(backend_, count).data(), count * sizeof(double));
  }

  std::int64_t dense_parameters() const override { return parameters_.size(); }

  void add_to(tessera::CheckpointContents& contents) override {
    table_->add_to(contents);
    contents.add(backend_, "dense", {parameters_.size()}, parameters_.values());
    for (const tessera::detail::DenseState& state : adam_.states(parameters_))
      contents.add(backend_, std::string("dense.") + std::string(state.name), {parameters_.size()},
                   state.values);
    contents.add_number(  // asked for at each save: replays of a graph are counted by the GPU
        "dense.step", [this] { return static_cast<std::uint64_t>(adam_.steps()); },
        [this](std::uint64_t steps) { adam_.steps() = static_cast<std::int64_t>(steps); });
  }

  int parts() const override { return virtual_ ? virtual_->count() : 1; }
  std::int64_t part_begin(std::int64_t size, int k) const override {
    if (virtual_) return virtual_->first(size) + virtual_->begin(size, k);
    return tessera::even_cut(size, ranks_.size(), ranks_.rank() + k);
  }
  double take_losses() override {
    std::vector<double> of_parts(losses_.size());
    backend_.copy(of_parts.data(), losses_.data(), losses_.size() * sizeof(double));
    backend_.synchronize();
    backend_.fill_zero(losses_.data(), losses_.size() * sizeof(double));
    if (virtual_) return virtual_->sum(ranks_, std::span<const double>(of_parts));
    double sum = of_parts[0];
    ranks_.all_reduce(std::span(&sum, 1));
    return sum;
  }

  void train_next_item(std::span<const Batch> parts, std::int64_t histories,
                       std::int64_t global_targets, std::span<const std::int32_t> negatives,
                       std::span<const float> log_q_of_items,
                       std::span<const std::vector<std::uint64_t>> keys, float rate) override {
    asked_.clear();
    for (const Batch& batch : parts) asked_.push_back({batch.items, batch.offsets});
    negative_log_q_.clear();
    if (!log_q_of_items.empty())
      for (const std::int32_t item : negatives) negative_log_q_.push_back(log_q_of_items[item]);
    sent_.negative_ids = negative_ids_.send(negatives);
    sent_.negative_log_q = negative_log_q_box_.send(negative_log_q_);
    train(
        histories, negatives, rate,
        [&](std::size_t k) { send_next_item(parts[k], global_targets, log_q_of_items, keys[k]); },
        [&](const Share& share) { next_item_part(share); });
  }

  void train_ranking(std::span<const Rows> parts, std::int64_t histories,
                     std::int64_t global_candidates,
                     std::span<const std::vector<std::uint64_t>> keys, float rate) override {
    asked_.clear();
    for (const Rows& rows : parts) asked_.push_back({rows.items, rows.offsets});
    train(
        histories, {}, rate,
        [&](std::size_t k) { send_ranking(parts[k], global_candidates, keys[k]); },
        [&](const Share& share) { ranking_part(share); });
  }

  support::GraphCounts graph_counts() const override { return graph_.counts(); }

  void load_all_items() override {
    std::vector<std::int32_t> all(static_cast<std::size_t>(table_->rows()));
    std::iota(all.begin(), all.end(), 0);
    table_->evaluate(all, room(all_items_, table_->rows()));
  }
  std::span<const float> scores(const Batch& batch) override {
    next_rows(batch);
    send_rows(rows_.items);
    const tessera::MatrixView<const float> queries = queries_of(forward(all_items()));
    scores_.resize(static_cast<std::size_t>(queries.rows * table_->rows()));
    products_.run(queries, all_items(), scores_.data());
    return scores_;
  }
  std::span<const float> logits(const Rows& rows) override {
    rows_ = rows;
    find_candidates();
    list_labels();
    send_rows(rows_.items);
    const tessera::MatrixView<const float> found = logits_of(forward(all_items()));
    scores_.resize(static_cast<std::size_t>(found.rows));
    backend_.copy(scores_.data(), found.data, scores_.size() * sizeof(float));
    backend_.synchronize();
    return scores_;
  }
  std::span<const float> candidate_labels() const override { return candidate_labels_; }

 private:
  using Floats = tessera::Buffer<float, Backend>;
  template <class T>
  using Box = Outbox<T, Backend>;

  /// A part's vectors, their gradients, and where its loss is added.
  struct Share {
    Found found;
    tessera::MatrixView<float> d_events, d_negatives;
    double* loss = nullptr;
  };

  /// A step. `send(k)`: sends what part k reads; `compute`: forward and backward of what was sent.
  /// A graph has all of it but what is sent, of one rank; of several, which share a GPU and meet on
  /// the host, what is computed between their exchanges.
  template <class Send, class Compute>
  void train(std::int64_t histories, std::span<const std::int32_t> negatives, float rate,
             const Send& send, const Compute& compute) {
    table_->set_learning_rate(rate);  // a replay takes what is set before it
    adam_.set_learning_rate(rate);
    const std::int64_t drawn = std::ssize(negatives);
    if (const std::int64_t events = std::ssize(asked_[0].events);
        graph_.captures() && events > room_)
      room_ = events + events / 4 + 16;
    table_->ask(asked_, histories, negatives, room_);
    const auto look_up = [&] {
      found_ = table_->look_up();
      d_events_ = zeros(d_vectors_, found_.events.rows);
      d_drawn_ = room(d_negatives_, found_.negatives.rows);
    };
    const auto share = [&](std::size_t k, std::int64_t first, std::int64_t events) {
      const std::int64_t at = static_cast<std::int64_t>(k) * drawn;
      return Share{{found_.events.row_range(first, events), found_.negatives.row_range(at, drawn)},
                   d_events_.row_range(first, events),
                   d_drawn_.row_range(at, drawn),
                   losses_.data() + k};
    };
    if (!graph_.captures()) {
      look_up();
      std::int64_t first = 0;
      for (std::size_t k = 0; k < asked_.size(); ++k) {
        const std::int64_t events = std::ssize(asked_[k].events);
        send(k);
        compute(share(k, first, events));
        first += events;
        if (virtual_) virtual_->add(parameters_.gradients());
      }
      return update();
    }
    send(0);
    const bool whole = ranks_.size() == 1;
    if (!whole) look_up();
    graph_.run({room_, std::ssize(rows_.items), std::ssize(rows_.offsets), histories, drawn},
               graph_.stale(), [&] {
                 if (whole) look_up();
                 compute(share(0, 0, room_));
                 if (whole) update();
               });
    if (!whole) update();
  }

  void send_next_item(const Batch& batch, std::int64_t global_targets,
                      std::span<const float> log_q_of_items, std::span<const std::uint64_t> keys) {
    next_rows(batch);
    const std::int64_t events = std::ssize(batch.items);
    fill_room(events);
    list_shares(global_targets);
    next_events_.clear(), positive_ids_.clear(), positive_log_q_.clear();
    for (const std::int32_t row : target_rows_) {
      const std::int32_t event = event_of_[row], next = event < events ? event + 1 : event,
                         item = event < events ? batch.items[next] : 0;
      next_events_.push_back(next);
      positive_ids_.push_back(item);
    }
    // positives are not drawn
    if (!log_q_of_items.empty())
      positive_log_q_.assign(target_rows_.size(),
                             -std::log(static_cast<float>(sent_.negative_ids.size())));
    send_rows(event_of_, keys);
    sent_.next_events = next_events_box_.send(next_events_);
    sent_.positive_ids = positive_ids_box_.send(positive_ids_);
    sent_.positive_log_q = positive_log_q_box_.send(positive_log_q_);
  }
  /// Adds a part's loss, writes the gradients of the vectors found.
  void next_item_part(const Share& share) {
    const tessera::MatrixView<const float> output = forward(share.found.events);
    const tessera::MatrixView<float> queries = queries_of(output),
                                     positives = room(positives_, queries.rows),
                                     d_queries = room(d_queries_, queries.rows),
                                     d_positives = room(d_positives_, queries.rows);
    tessera::op::run<tessera::op::GatherIndexed>(
        backend_, {share.found.events, sent_.next_events.data(), positives});
    softmax_.forward_backward(
        tessera::SampledSoftmaxBatch<std::int32_t>{
            queries, positives, share.found.negatives, sent_.positive_ids, sent_.negative_ids,
            sent_.positive_log_q, sent_.negative_log_q, sent_.shares},
        d_queries, d_positives, share.d_negatives, share.loss);
    const tessera::MatrixView<float> d = zeros(d_rows_, output.rows);
    add(d_queries, sent_.target_rows, d);
    // the next-item model has no linear layer
    const auto head = static_cast<std::size_t>(head_.parameter_count());
    backend_.fill_zero(parameters_.gradients().last(head).data(), head * sizeof(float));
    backward(d, share.d_events);
    add(d_positives, sent_.next_events, share.d_events);
  }

  void send_ranking(const Rows& rows, std::int64_t global_candidates,
                    std::span<const std::uint64_t> keys) {
    rows_ = rows;
    find_candidates();
    event_of_.resize(rows_.items.size());
    std::iota(event_of_.begin(), event_of_.end(), 0);
    fill_room(std::ssize(event_of_));
    list_shares(global_candidates);
    list_labels();
    send_rows(event_of_, keys);
    sent_.candidate_labels = labels_box_.send(candidate_labels_);
  }
  void ranking_part(const Share& share) {
    const tessera::MatrixView<const float> logits = logits_of(forward(share.found.events));
    const tessera::MatrixView<float> d_logits(
        d_logits_.resize(backend_, static_cast<std::size_t>(logits.rows)).data(), logits.rows, 1);
    tessera::BinaryCrossEntropyWithLogits{.shares = sent_.shares}.forward_backward(
        backend_, logits, sent_.candidate_labels, d_logits, share.loss);
    const tessera::MatrixView<float> d_queries = room(d_queries_, logits.rows);
    head_.backward(d_logits, d_queries);
    const tessera::MatrixView<float> d = zeros(d_rows_, share.found.events.rows);
    add(d_queries, sent_.target_rows, d);
    backward(d, share.d_events);
  }

  tessera::MatrixView<float> room(Floats& x, std::int64_t rows) const {
    return {x.resize(backend_, static_cast<std::size_t>(rows * options_.width)).data(), rows,
            options_.width};
  }
  tessera::MatrixView<float> zeros(Floats& x, std::int64_t rows) const {
    const tessera::MatrixView<float> matrix = room(x, rows);
    backend_.fill_zero(matrix.data, x.size() * sizeof(float));
    return matrix;
  }
  tessera::MatrixView<const float> all_items() const {
    return {all_items_.data(), table_->rows(), options_.width};
  }
  void add(tessera::MatrixView<const float> from, std::span<const std::int32_t> index,
           tessera::MatrixView<float> to) const {
    tessera::op::run<AddIndexed>(backend_, {from, index.data(), to});
  }
  /// The target rows of the blocks' result.
  tessera::MatrixView<float> queries_of(tessera::MatrixView<const float> output) {
    const tessera::MatrixView<float> queries = room(queries_, std::ssize(sent_.target_rows));
    tessera::op::run<tessera::op::GatherIndexed>(backend_,
                                                 {output, sent_.target_rows.data(), queries});
    return queries;
  }

  /// Rows of the next-item model: all events of a history but its last.
  void next_rows(const Batch& batch) {
    rows_ = {};
    event_of_.clear(), target_rows_.clear();
    for (std::int64_t s = 0; s < batch.size; ++s) {
      const std::int64_t begin = batch.offsets[s], end = batch.offsets[s + 1];
      for (std::int64_t e = begin; e + 1 < end; ++e) {
        if (e + 1 >= end - batch.targets[s])
          target_rows_.push_back(static_cast<std::int32_t>(std::ssize(rows_.items)));
        event_of_.push_back(static_cast<std::int32_t>(e));
        rows_.add(batch.items[e], e - begin, 0, false);
      }
      rows_.end_history(0);
    }
  }
  void find_candidates() {
    target_rows_.clear();
    for (std::size_t row = 0; row < rows_.items.size(); ++row)
      if (rows_.is_candidate[row]) target_rows_.push_back(static_cast<std::int32_t>(row));
  }
  /// Rows of a graph's step that no history has, each of a vector behind those of the events: the
  /// blocks leave them alone, and no loss counts them.
  void fill_room(std::int64_t events) {
    for (; events < room_; ++events) {
      event_of_.push_back(static_cast<std::int32_t>(events));
      rows_.add(0, 0, 0, false);
    }
  }
  /// What each target row's loss is multiplied by. In a graph's step all rows are targets, as their
  /// number must stay: behind those that count the others, with nothing.
  void list_shares(std::int64_t global_targets) {
    const double share = 1.0 / static_cast<double>(global_targets);
    shares_.assign(target_rows_.size(), share);
    if (!graph_.captures()) return;
    std::size_t counted = 0;
    for (std::int32_t row = 0; row < std::ssize(rows_.items); ++row)
      if (counted < shares_.size() && target_rows_[counted] == row)
        ++counted;
      else
        target_rows_.push_back(row);
    shares_.resize(target_rows_.size());
  }
  void list_labels() {
    candidate_labels_.clear();
    for (const std::int32_t row : target_rows_) candidate_labels_.push_back(rows_.labels[row]);
  }

  /// Sends what `forward` reads of rows_ and target_rows_. `sources` lists the vector of each row.
  void send_rows(std::span<const std::int32_t> sources) {
    read_labels_.clear();
    for (std::size_t row = 0; row < rows_.items.size(); ++row)
      read_labels_.push_back(options_.ranks_items() || rows_.is_candidate[row] ? 0.0f
                                                                               : rows_.labels[row]);
    sent_.sources = sources_box_.send(sources);
    sent_.target_rows = target_rows_box_.send(target_rows_);
    sent_.places = places_box_.send(rows_.places);
    sent_.labels = read_labels_box_.send(read_labels_);
    sent_.batch = {offsets_box_.send(rows_.offsets), options_.ranks_items()
                                                         ? std::span<const std::int64_t>{}
                                                         : targets_box_.send(rows_.targets)};
    sent_.keys = {};
  }
  /// Sends the same for a training step. `keys`: of histories.
  void send_rows(std::span<const std::int32_t> sources, std::span<const std::uint64_t> keys) {
    send_rows(sources);
    row_keys_.clear();
    for (std::size_t s = 0; s < keys.size(); ++s)
      for (std::int64_t row = rows_.offsets[s]; row < rows_.offsets[s + 1]; ++row)
        row_keys_.push_back(tessera::random_word(keys[s], row - rows_.offsets[s]));
    row_keys_.resize(rows_.items.size());  // of what no history has: any
    sent_.keys = keys_box_.send(row_keys_);
    sent_.shares = shares_box_.send(shares_);
    // rows by place, each place's in their order
    place_begins_.assign(static_cast<std::size_t>(options_.max_length) + 2, 0);
    for (const std::int32_t place : rows_.places)
      ++place_begins_[static_cast<std::size_t>(place) + 1];
    std::partial_sum(place_begins_.begin(), place_begins_.end(), place_begins_.begin());
    std::vector<std::int64_t> next = place_begins_;
    rows_by_place_.resize(rows_.places.size());
    for (std::size_t row = 0; row < rows_.places.size(); ++row)
      rows_by_place_[static_cast<std::size_t>(
          next[static_cast<std::size_t>(rows_.places[row])]++)] = static_cast<std::int32_t>(row);
    sent_.rows_by_place = rows_by_place_box_.send(rows_by_place_);
    sent_.place_begins = place_begins_box_.send(place_begins_);
  }

  /// The blocks' result for what was sent, of these vectors.
  tessera::MatrixView<const float> forward(tessera::MatrixView<const float> vectors) {
    tessera::op::run<FillInput>(backend_, {.vectors = vectors,
                                           .places = places_.values(),
                                           .label_vector = label_.values().data,
                                           .sources = sent_.sources.data(),
                                           .place_of = sent_.places.data(),
                                           .labels = sent_.labels.data(),
                                           .x = encoder_.input(std::ssize(sent_.sources))});
    return encoder_.forward(sent_.batch, sent_.keys);
  }
  /// Of target rows: [rows, 1].
  tessera::MatrixView<const float> logits_of(tessera::MatrixView<const float> output) {
    const tessera::MatrixView<float> queries = queries_of(output),
                                     logits(
                                         logits_.resize(backend_, sent_.target_rows.size()).data(),
                                         queries.rows, 1);
    head_.forward(queries, logits);
    return logits;
  }

  /// From the gradient of the blocks' result to those of all that is below.
  void backward(tessera::MatrixView<float> d, tessera::MatrixView<float> d_vectors) {
    encoder_.backward(d, sent_.keys);
    add(d, sent_.sources, d_vectors);
    tessera::op::run<PlaceGradients>(backend_, {.d = d,
                                                .rows = sent_.rows_by_place.data(),
                                                .begins = sent_.place_begins.data(),
                                                .labels = sent_.labels.data(),
                                                .label_vector = label_.values().data,
                                                .of_places = places_.gradients(),
                                                .of_label = label_.gradients().data});
  }

  void update() {
    if (virtual_)
      virtual_->all_reduce(communicator_, parameters_.gradients());
    else
      communicator_.all_reduce(parameters_.gradients());
    table_->update(d_events_, d_drawn_);
    adam_.step(parameters_);
  }

  /// Lists in the backend's memory: of the part, and of the step.
  struct Sent {
    std::span<const std::int32_t> sources, target_rows, places, rows_by_place, next_events,
        positive_ids, negative_ids;
    std::span<const std::int64_t> place_begins;
    std::span<const float> labels, candidate_labels, positive_log_q, negative_log_q;
    std::span<const double> shares;
    std::span<const std::uint64_t> keys;
    tessera::SequenceBatch batch;
  };

  tessera::ThreadCommunicator& ranks_;
  Comm& communicator_;
  Backend backend_;
  const Options& options_;
  Vectors<Backend> places_, label_;
  Encoder<Backend> encoder_;
  tessera::Linear<Backend> head_;
  tessera::DenseParameters<Backend> parameters_;
  tessera::DenseOptimizer<tessera::Adam, Backend> adam_;
  tessera::SampledSoftmax<Backend> softmax_;
  Products<Backend> products_;
  std::unique_ptr<Items> table_;
  support::StepGraph<Backend> graph_;
  std::optional<tessera::detail::VirtualRanks<Backend>> virtual_;
  tessera::Buffer<double, Backend> losses_;  ///< of the parts, since they were taken
  std::vector<Asked> asked_;
  Rows rows_;  ///< of the part
  std::vector<std::int32_t> event_of_, target_rows_, next_events_, positive_ids_, rows_by_place_;
  std::vector<std::int64_t> place_begins_;
  std::vector<float> positive_log_q_, negative_log_q_, candidate_labels_, read_labels_, scores_;
  std::vector<double> shares_;  ///< of target_rows_
  std::vector<std::uint64_t> row_keys_;
  Box<std::int32_t> sources_box_{backend_}, target_rows_box_{backend_}, next_events_box_{backend_},
      positive_ids_box_{backend_}, negative_ids_{backend_}, rows_by_place_box_{backend_},
      places_box_{backend_};
  Box<std::int64_t> offsets_box_{backend_}, targets_box_{backend_}, place_begins_box_{backend_};
  Box<float> positive_log_q_box_{backend_}, negative_log_q_box_{backend_}, labels_box_{backend_},
      read_labels_box_{backend_};
  Box<double> shares_box_{backend_};
  Box<std::uint64_t> keys_box_{backend_};
  Sent sent_;
  std::int64_t room_ = 0;  ///< of events, in a graph's step
  Found found_;            ///< of the step; its gradients:
  tessera::MatrixView<float> d_events_, d_drawn_;
  Floats queries_, positives_, d_queries_, d_positives_, d_rows_, d_vectors_, d_negatives_;
  Floats logits_, d_logits_, all_items_;
};

}  // namespace sequence
