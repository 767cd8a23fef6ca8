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
  return make_layout(Topology{ranks}, {{.name = "item", .rows = rows, .width = width}}, {},
                     std::move(shards));
}

class ItemTable final : public Items {
  // widths of whole tables and of their halves
  using Collection = LayoutCollection<Widths<8, 16, 32, 64, 128>, Adam, Host, ThreadCommunicator,
                                      InitializeWith<Normal>>;

 public:
  ItemTable(ThreadCommunicator& ranks, std::string_view plan, std::int64_t rows, int width,
            int threads, std::uint64_t seed)
      : rows_(rows),
        collection_(ranks, Host({.threads = threads}), layout_of(plan, ranks.size(), rows, width),
                    {.seed = seed, .initialize = {.standard_deviation = 0.02f}}) {}

  std::int64_t rows() const override { return rows_; }
  MatrixView<const float> look_up(std::span<const std::int32_t> ids) override {
    found_ = collection_.forward(bags(ids));
    return found_.values;
  }
  void update(MatrixView<const float> gradient, float learning_rate) override {
    collection_.set_learning_rate(learning_rate);
    collection_.backward(found_, gradient);
  }
  void evaluate(std::span<const std::int32_t> ids, MatrixView<float> vectors) override {
    collection_.evaluate(evaluation_, bags(ids), vectors);
  }
  void add_to(CheckpointContents& contents) override { contents.add(collection_); }

 private:
  /// Each id is a bag of its own, so that nothing is pooled.
  static KeyedJagged<std::int32_t> bags(std::span<const std::int32_t> ids) {
    return {1, std::ssize(ids), ids, {}, {}};
  }

  std::int64_t rows_;
  Collection collection_;
  Pooled<std::int32_t, Host> found_;
  Collection::StepState<std::int32_t> evaluation_;
};

}  // namespace

std::unique_ptr<Items> make_items(ThreadCommunicator& ranks, std::string_view plan,
                                  std::int64_t rows, int width, int threads, std::uint64_t seed) {
  return std::make_unique<ItemTable>(ranks, plan, rows, width, threads, seed);
}

}  // namespace sequence
