// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "embeddings.hpp"
#include "table_optimizers.hpp"

#include <tessera/checkpoint/cold_rows.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/collection/embedding_collection.hpp>
#include <tessera/collection/route_ahead.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/core/element.hpp>
#include <tessera/optimizer/clip.hpp>
#include <tessera/sharding/plan.hpp>
#include <tessera/tables/initializers.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace dlrm {

/// Where the tables of a rank lie that do not fit its memory.
inline tessera::TableFiles files_of(const EmbeddingOptions& options, const tessera::Layout& layout,
                                    int rank) {
  if (options.table_files.empty()) return {};
  const std::int64_t others = tessera::detail::bytes_in(layout, {}, rank, tessera::Tier::device);
  return {.folder = options.table_files,
          .cache_bytes = options.memory - others,
          .queue_depth = options.file_queue_depth};
}

/// Embeddings in the memory of a backend, whose operations the including file brings. `routing`:
/// the same for the thread that routes ahead, on a GPU with a stream of its own.
template <class Backend, class Widths>
class EmbeddingsOf final : public Embeddings {
  using Optimizers = tessera::detail::NamedOptimizers;
  // Codecs are chosen at run time: a collection for each of them would be compiled as often.
  using Collection = tessera::LayoutCollection<
      Widths, Optimizers, Backend, tessera::AnyCommunicator,
      tessera::InitializeWith<tessera::detail::UniformWithin>,
      tessera::EncodeWithOneOf<tessera::Fp32, tessera::Bf16, tessera::Fp16, tessera::Int8>,
      tessera::ReportSteps>;

 public:
  EmbeddingsOf(tessera::AnyCommunicator& communicator, const tessera::Layout& layout,
               const EmbeddingOptions& options, const Backend& backend, const Backend& routing)
      : collection_(communicator, backend, layout,
                    {.seed = options.seed,
                     .optimizer = tessera::detail::named_optimizers(options.optimizer,
                                                                    options.precision, layout),
                     .initialize = {options.initial_bound},
                     .forward_codec = options.codec,
                     .backward_codec = options.gradient_codec,
                     .deduplicate = options.deduplicate,
                     .equal_batches = options.equal_batches,
                     .files = files_of(options, layout, communicator.rank())}) {
    collection_.report_steps(options.report);
    std::set<int> seen{kFrozen};
    const std::vector<int> optimizers = optimizers_of(options.optimizer, layout);
    for (std::size_t t = 0; t < optimizers.size(); ++t) {
      if (!seen.insert(optimizers[t]).second) continue;
      const float share = options.rate_shares[static_cast<std::size_t>(optimizers[t])];
      // FTRL's weights are what its state and the rate say: under a falling one they would vanish.
      if (optimizers[t] == kFtrl)
        collection_.set_learning_rate(layout.tables[t].name, share * options.learning_rate);
      else
        rates_.emplace_back(layout.tables[t].name, share);
    }
    if (options.routing != nullptr) ahead_.emplace(collection_, *options.routing, routing);
  }

  const tessera::Layout& layout() const override { return collection_.layout(); }
  tessera::detail::CacheCounters cache_counters() const override {
    return collection_.tables().cache_counters();
  }
  void promise_equal_batches(bool on) override { collection_.promise_equal_batches(on); }
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
  void exchange(tessera::ColdRows& cold, tessera::AnyCommunicator& communicator,
                const tessera::Vocabulary<tessera::AnyCommunicator>& vocabulary) override {
    if constexpr (Backend::host_readable)
      cold.exchange(communicator, vocabulary, collection_);
    else
      throw tessera::InvalidArgument("--cold-keys needs tables that the host reads");
  }
  void load(tessera::ColdRows& cold, const std::filesystem::path& checkpoint) const override {
    tessera::load_cold_rows(checkpoint, cold, collection_);
  }
  void set_learning_rate(float rate) override {
    for (const auto& [table, share] : rates_) collection_.set_learning_rate(table, share * rate);
  }
  void backward(tessera::MatrixView<const float> gradient) override {
    collection_.backward(pooled_, gradient);
  }
  bool accumulate(tessera::MatrixView<const float> gradient) override {
    return collection_.accumulate(pooled_, gradient);
  }
  void apply(float norm, std::span<float> dense) override {
    if (norm == 0)
      collection_.apply();
    else
      collection_.apply(tessera::ClipByGlobalNorm{norm}, dense);
  }
  const tessera::StepReport& step_report() override { return collection_.step_report(); }
  void stop_reports() override { collection_.report_steps(false); }
  void add_to(tessera::CheckpointContents& contents) override { contents.add(collection_); }

 private:
  Collection collection_;
  tessera::Pooled<std::int32_t, Backend> pooled_;
  typename Collection::template StepState<std::int32_t> evaluation_;
  /// of each optimizer in use: a table of it, and its share of the rate
  std::vector<std::pair<std::string, float>> rates_;
  bool started_ = false;
  std::optional<tessera::RouteAhead<Collection, std::int32_t, tessera::AnyCommunicator, Backend>>
      ahead_;
};

}  // namespace dlrm
