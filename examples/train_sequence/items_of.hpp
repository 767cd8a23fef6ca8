// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "items.hpp"
#include "outbox.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/collection/layout_collection.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/strategies.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/initializers.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace sequence {

/// Whole rows or halves of them, whole tables, even parts of their rows, or dealt ones, of which
/// the first may have copies.
inline tessera::Layout layout_of(std::string_view plan, int hot_rows, int ranks, std::int64_t rows,
                                 std::int32_t width) {
  std::vector<tessera::Shard> shards;
  if (plan == "replicated") {
    shards.push_back({0, {0, rows, 0, width}, tessera::every_rank});
  } else if (plan == "interleaved" || plan == "hot-rows") {
    using tessera::Cut;
    tessera::detail::append_shards(
        shards, 0, {.name = "item", .rows = rows, .width = width},
        plan == "hot-rows" ? tessera::detail::TableCut{.cut = Cut::hot_rows, .parts = hot_rows}
                           : tessera::detail::TableCut{.cut = Cut::interleaved},
        {ranks});
  } else {
    const int column_parts = plan == "column-wise" || plan == "grid" ? 2 : 1,
              row_parts = plan == "row-wise" || plan == "grid" ? ranks : 1;
    int rank = 0;
    for (int r = 0; r < row_parts; ++r)
      for (int c = 0; c < column_parts; ++c) {
        const tessera::Rectangle part{tessera::even_cut(rows, row_parts, r),
                                      tessera::even_cut(rows, row_parts, r + 1),
                                      width / column_parts * c, width / column_parts * (c + 1)};
        if (part.row_begin < part.row_end) shards.push_back({0, part, rank++ % ranks});
      }
  }
  return tessera::make_layout(
      tessera::Topology{ranks}, {{.name = "item", .rows = rows, .width = width}},
      {{.name = "history", .table = "item", .pooling = tessera::Pooling::none},
       {.name = "negatives", .table = "item", .pooling = tessera::Pooling::none}},
      std::move(shards));
}

/// `Widths`: those of whole tables, and of their halves.
template <class Backend, class Comm, class Widths>
class ItemTable final : public Items {
  using Collection = tessera::LayoutCollection<Widths, tessera::Adam, Backend, Comm,
                                               tessera::InitializeWith<tessera::Normal>>;

 public:
  ItemTable(Comm& ranks, const Backend& backend, const ItemsOptions& options)
      : backend_(backend),
        rows_(options.rows),
        width_(options.width),
        captured_(options.captured),
        sent_ids_(backend),
        sent_offsets_(backend),
        collection_(
            ranks, backend,
            layout_of(options.plan, options.hot_rows, ranks.size(), options.rows, options.width),
            {.seed = options.seed,
             .initialize = {.standard_deviation = 0.02f},
             .equal_batches = options.captured,
             .gradient_blocks = options.virtual_ranks}) {}

  std::int64_t rows() const override { return rows_; }
  void ask(std::span<const Asked> parts, std::int64_t histories,
           std::span<const std::int32_t> negatives, std::int64_t room) override {
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
    room_ = std::max(room, event_ids);
    if (captured_) ids_.resize(static_cast<std::size_t>(room_ + negative_ids));
    batch_ = batch(std::ssize(parts) * (histories + 1), captured_ ? room_ : event_ids);
  }
  void set_learning_rate(float rate) override { collection_.set_learning_rate(rate); }
  Found look_up() override {
    const tessera::MatrixView<float> of_events = vectors(room_, events_),
                                     of_negatives = vectors(bounds_[1], negatives_);
    if (const std::int64_t beyond = room_ - bounds_[0]; beyond > 0)
      backend_.fill_zero(of_events.row(bounds_[0]),
                         static_cast<std::size_t>(beyond * width_) * sizeof(float));
    found_ =
        collection_.forward(batch_, {{0, of_events.row_range(0, bounds_[0])}, {1, of_negatives}});
    return {of_events, of_negatives};
  }
  void update(tessera::MatrixView<const float> events,
              tessera::MatrixView<const float> negatives) override {
    collection_.backward(found_, {found_.sequence(0).per_id(events.row_range(0, bounds_[0])),
                                  found_.sequence(1).per_id(negatives)});
  }
  void evaluate(std::span<const std::int32_t> ids, tessera::MatrixView<float> vectors) override {
    const std::int64_t count = std::ssize(ids);
    ids_.assign(ids.begin(), ids.end());
    offsets_ = {0, count, count};
    collection_.evaluate(batch(1, count)).sequence(0).materialize(vectors);
  }
  void add_to(tessera::CheckpointContents& contents) override { contents.add(collection_); }

 private:
  using Floats = tessera::Buffer<float, Backend>;

  tessera::MatrixView<float> vectors(std::int64_t ids, Floats& memory) const {
    return {memory.resize(backend_, static_cast<std::size_t>(ids * width_)).data(), ids, width_};
  }
  /// Of the two features' ids and offsets; the first has so many ids, or room for them.
  tessera::KeyedJagged<std::int32_t> batch(std::int64_t samples, std::int64_t events) {
    bounds_ = {events, std::ssize(ids_) - events};
    tessera::KeyedJagged<std::int32_t> batch{
        2, samples, sent_ids_.send(ids_), sent_offsets_.send(offsets_), {}};
    if constexpr (!Backend::host_readable) batch.bounds = bounds_;
    return batch;
  }

  Backend backend_;
  std::int64_t rows_, width_;
  bool captured_;
  Outbox<std::int32_t, Backend> sent_ids_;
  Outbox<std::int64_t, Backend> sent_offsets_;
  Collection collection_;
  tessera::Pooled<std::int32_t, Backend> found_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> offsets_, bounds_;
  tessera::KeyedJagged<std::int32_t> batch_;  ///< that was asked for
  std::int64_t room_ = 0;
  Floats events_, negatives_;
};

}  // namespace sequence
