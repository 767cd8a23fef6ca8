// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "items.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/tessera.hpp>

#include <optional>
#include <utility>
#include <vector>

namespace sequence {
namespace {

using namespace tessera;

/// Whole rows or halves of them, whole tables or even parts of their rows.
Layout layout_of(std::string_view plan, int ranks, std::int64_t rows, std::int32_t width) {
  std::vector<Shard> shards;
  if (plan == "replicated") {
    shards.push_back({0, {0, rows, 0, width}, every_rank});
  } else {
    const int column_parts = plan == "column-wise" || plan == "grid" ? 2 : 1,
              row_parts = plan == "row-wise" || plan == "grid" ? ranks : 1;
    int rank = 0;
    for (int r = 0; r < row_parts; ++r)
      for (int c = 0; c < column_parts; ++c) {
        const Rectangle part{even_cut(rows, row_parts, r), even_cut(rows, row_parts, r + 1),
                             width / column_parts * c, width / column_parts * (c + 1)};
        if (part.row_begin < part.row_end) shards.push_back({0, part, rank++ % ranks});
      }
  }
  return make_layout(Topology{ranks}, {{.name = "item", .rows = rows, .width = width}},
                     {{.name = "history", .table = "item", .pooling = Pooling::none},
                      {.name = "negatives", .table = "item", .pooling = Pooling::none}},
                     std::move(shards));
}

class ItemTable final : public Items {
  // widths of whole tables and of their halves
  using Collection = LayoutCollection<Widths<8, 16, 32, 64, 128>, Adam, Host, ThreadCommunicator,
                                      InitializeWith<Normal>>;

 public:
  ItemTable(ThreadCommunicator& ranks, std::string_view plan, std::int64_t rows, int width,
            int threads, std::uint64_t seed, int virtual_ranks)
      : rows_(rows),
        collection_(ranks, Host({.threads = threads}), layout_of(plan, ranks.size(), rows, width),
                    {.seed = seed,
                     .initialize = {.standard_deviation = 0.02f},
                     .gradient_blocks = virtual_ranks}) {}

  std::int64_t rows() const override { return rows_; }
  Found look_up(std::span<const Asked> parts, std::int64_t histories,
                std::span<const std::int32_t> negatives) override {
    // every part has as many samples, so that they are the blocks of its gradients: its histories,
    // some without ids, and one that has the negatives
    ids_.clear();
    offsets_.assign(1, 0);
    for (const Asked& part : parts) {
      const std::int64_t before = std::ssize(ids_);
      for (const std::int64_t offset : part.offsets.subspan(1)) offsets_.push_back(before + offset);
      ids_.insert(ids_.end(), part.events.begin(), part.events.end());
      offsets_.insert(offsets_.end(),
                      static_cast<std::size_t>(histories + 2 - std::ssize(part.offsets)),
                      std::ssize(ids_));
    }
    for (std::size_t k = 0; k < parts.size(); ++k) {
      offsets_.insert(offsets_.end(), static_cast<std::size_t>(histories), std::ssize(ids_));
      ids_.insert(ids_.end(), negatives.begin(), negatives.end());
      offsets_.push_back(std::ssize(ids_));
    }
    const std::int64_t negative_ids = std::ssize(parts) * std::ssize(negatives),
                       event_ids = std::ssize(ids_) - negative_ids;
    const MatrixView<float> of_events = room(event_ids, events_),
                            of_negatives = room(negative_ids, negatives_);
    found_ = collection_.forward(
        KeyedJagged<std::int32_t>{2, std::ssize(parts) * (histories + 1), ids_, offsets_, {}},
        {{0, of_events}, {1, of_negatives}});
    return {of_events, of_negatives};
  }
  void update(MatrixView<const float> events, MatrixView<const float> negatives,
              float learning_rate) override {
    collection_.set_learning_rate(learning_rate);
    collection_.backward(found_,
                         {found_.sequence(0).per_id(events), found_.sequence(1).per_id(negatives)});
  }
  void evaluate(std::span<const std::int32_t> ids, MatrixView<float> vectors) override {
    const std::int64_t count = std::ssize(ids), offsets[] = {0, count, count};
    collection_.evaluate(KeyedJagged<std::int32_t>{2, 1, ids, offsets, {}})
        .sequence(0)
        .materialize(vectors);
  }
  void add_to(CheckpointContents& contents) override { contents.add(collection_); }

 private:
  MatrixView<float> room(std::int64_t ids, std::vector<float>& memory) const {
    const std::int32_t width = collection_.layout().tables[0].width;
    memory.resize(static_cast<std::size_t>(ids * width));
    return {memory.data(), ids, width};
  }

  std::int64_t rows_;
  Collection collection_;
  Pooled<std::int32_t, Host> found_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> offsets_;
  std::vector<float> events_, negatives_;
};

}  // namespace

std::unique_ptr<Items> make_items(ThreadCommunicator& ranks, std::string_view plan,
                                  std::int64_t rows, int width, int threads, std::uint64_t seed,
                                  int virtual_ranks) {
  return std::make_unique<ItemTable>(ranks, plan, rows, width, threads, seed, virtual_ranks);
}

}  // namespace sequence
