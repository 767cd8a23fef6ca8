// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/step_graph.hpp"

#include <tessera_data/histories.hpp>

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {
class CheckpointContents;
}}

namespace sequence {

using Batch = tessera::HistoryBatch<std::int32_t>;

/// A batch's rows as the blocks read them: the events of its histories, and after them candidates.
struct Rows {
  std::vector<std::int32_t> items;   ///< of each row
  std::vector<std::int32_t> places;  ///< in the history, from 0; candidates: after its end
  std::vector<float> labels;         ///< of candidates: what is to be predicted
  std::vector<char> is_candidate;
  std::vector<std::int64_t> offsets{0}, targets;  ///< per history: rows, candidates among them

  void add(std::int32_t item, std::int64_t place, float label, bool candidate) {
    items.push_back(item), places.push_back(static_cast<std::int32_t>(place));
    labels.push_back(label), is_candidate.push_back(candidate);
  }
  void end_history(std::int64_t candidates) {
    offsets.push_back(std::ssize(items)), targets.push_back(candidates);
  }
};

/// One rank's model, whatever its backend: what is given and answered is in the host's memory.
class RankModel {
 public:
  virtual ~RankModel() = default;
  virtual std::int64_t dense_parameters() const = 0;
  virtual void add_to(tessera::CheckpointContents& contents) = 0;

  /// How many parts this rank's batches have, each a batch of its own for all but the tables.
  virtual int parts() const = 0;
  /// The histories of a global batch before this rank's part k; of k = parts() behind all.
  virtual std::int64_t part_begin(std::int64_t size, int k) const = 0;
  /// Of all steps since the last call and of all ranks. Collective.
  virtual double take_losses() = 0;
  virtual support::GraphCounts graph_counts() const = 0;

  /// A step of the next-item model. `histories`: how many a part has at most; `keys`: of each
  /// history, for dropout; `global_targets`: of all ranks.
  virtual void train_next_item(std::span<const Batch> parts, std::int64_t histories,
                               std::int64_t global_targets, std::span<const std::int32_t> negatives,
                               std::span<const float> log_q_of_items,
                               std::span<const std::vector<std::uint64_t>> keys, float rate) = 0;
  /// A step of the ranking model on rows with candidates; as train_next_item.
  virtual void train_ranking(std::span<const Rows> parts, std::int64_t histories,
                             std::int64_t global_candidates,
                             std::span<const std::vector<std::uint64_t>> keys, float rate) = 0;

  /// All vectors of items, for the calls below. Collective.
  virtual void load_all_items() = 0;
  /// What the rows of a batch's targets give all items: [targets, items], history by history.
  virtual std::span<const float> scores(const Batch& batch) = 0;
  /// The logits of candidates, and their labels in the same order.
  virtual std::span<const float> logits(const Rows& rows) = 0;
  virtual std::span<const float> candidate_labels() const = 0;
};

}  // namespace sequence
