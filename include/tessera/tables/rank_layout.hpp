// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/op/update.hpp>
#include <tessera/sharding/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// One column part of a slot: where it is stored on its rank, and which output columns it fills.
struct SlotPart {
  int shard = 0;              ///< index into Layout::shards
  int arena = -1;             ///< of the rank that asks; -1 on other ranks
  std::int64_t row_bias = 0;  ///< arena row = id + row_bias
  std::int64_t column = 0;    ///< in the output
  int width = 0;
};

/// What travels: pooled vectors to the ranks of the samples, or their gradients back.
enum class Way : std::uint8_t { vectors, gradients };

/// The ids of one feature that one rank needs: those in [row_begin, row_end). Column parts on the
/// same rank share them.
struct Slot {
  int feature = 0;
  int rank = 0;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  bool whole = false;       ///< all rows: every bag goes there unchanged
  bool replicated = false;  ///< every rank serves its own samples
  bool gradients = true;    ///< its vectors' gradients go to the owner
  PodVector<SlotPart> parts;

  bool goes(Way way) const { return way == Way::vectors || gradients; }
  int width() const;
};

/// A slot between this rank and another, in the order of the wire (RankLayout::served, requested).
struct WireSlot {
  int rank = 0;  ///< at the other end
  const Slot* slot = nullptr;
  /// served: in own slots x ranks, the place of (slot, rank); requested: in RankLayout::slots()
  std::size_t index = 0;
};

/// Slots of one feature whose rows are disjoint: one pass over the ids serves them all.
struct SlotChain {
  int feature = 0;
  std::vector<int> slots;  ///< ascending rows
};

/// Rectangles of one width that a rank holds, stored one after another.
struct ArenaPlan {
  int width = 0;
  bool replicated = false;     ///< every rank has a copy: gradients are merged over ranks
  bool columns_split = false;  ///< rows are not whole: row statistics need other shards
  int group = 0;               ///< training group
  bool trains = true;
  Tier tier = Tier::device;
  /// of its cache, if shards say so; 0: none, or of tier file a share of what there is
  std::int64_t cache_rows = 0;
  std::int64_t rows = 0;
  PodVector<op::ArenaSegment> segments;
  std::vector<int> shards;  ///< parallel to segments
};

/// What updates of a table need.
struct TableTraining {
  int group = 0;            ///< training group
  bool trains = true;       ///< false: rows never change
  bool whole_rows = false;  ///< the optimizer needs statistics of whole rows
};

/// Of the numbers of ids per feature, if the host cannot read offsets.
enum class SizesNeeded { none, bounds, exact };

/// What a layout means for one rank: which ids go where, and where its own rectangles are stored.
/// Derived from the rectangles alone.
class RankLayout {
 public:
  /// Takes a layout. `training`: by table.
  RankLayout(const Layout& layout, int rank, std::span<const TableTraining> training);
  RankLayout(RankLayout&&) = default;
  RankLayout& operator=(RankLayout&&) = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const std::vector<ArenaPlan>& arenas() const { return arenas_; }
  /// Returns all slots of all ranks, by rank, feature, row_begin; the same on every rank. This
  /// rank's are followed by its own replicated ones.
  const std::vector<Slot>& slots() const { return slots_; }
  std::size_t slots_begin(int rank) const { return first_slot_[rank]; }
  std::size_t slots_end(int rank) const { return first_slot_[rank + 1]; }
  std::size_t slots_of(int rank) const { return slots_end(rank) - slots_begin(rank); }
  /// Returns how many of this rank's slots (the first so many) `source` sends to: all but the
  /// replicated ones, which are everybody's own.
  std::size_t slots_from(int source) const {
    return slots_of(rank_) - (source == rank_ ? 0 : replicated_slots_);
  }
  const Slot& own_slot(std::size_t k) const { return slots_[slots_begin(rank_) + k]; }
  /// Returns the order of the wire, by the rank at the other end, then by slot: all that travels
  /// between two ranks, of ids and vectors, has it. This rank's own slots, of every rank that sends
  /// to them; and all slots that this rank's samples may need, as slots().
  const PodVector<WireSlot>& served() const { return served_; }
  const PodVector<WireSlot>& requested() const { return requested_; }
  const std::vector<SlotChain>& chains() const { return chains_; }
  /// Returns whether ids and vectors pass through an exchange; the same on every rank. Not where
  /// all tables have a whole copy on every rank.
  bool exchanges() const;
  /// Returns the training groups that need statistics of rows that are cut; the same on every rank.
  const std::set<int>& split_groups() const { return split_groups_; }
  /// Returns whether all slots are whole: no table is cut by rows; the same on every rank.
  bool all_whole() const {
    return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.whole; });
  }
  /// Returns whether ids of a feature leave this rank's own tables.
  bool travels(int feature) const;
  /// Returns whether a slot is one that this rank serves from its own ids and tables, without
  /// packing anything.
  bool direct(const Slot& slot) const { return slot.rank == rank_ && slot.whole; }
  /// Returns whether a feature reads this rank's own memory alone, and no cache.
  bool at_hand(int feature) const;
  /// Returns whether the rows of some feature come to the rank that asks unpooled.
  bool keeps_rows() const { return keeps_rows_; }
  /// Returns whether one rank holds all tables, none of them cut: an id reads one row, which is
  /// pooled, and nothing is packed.
  bool in_place() const;
  /// Returns which sizes the host needs. If one arena serves every feature once, the batch's number
  /// of ids is enough. `equal_batches`: other ranks need not be told; if rows are kept, there is room
  /// for as many as the bounds. `distinct`: the ids of each feature are searched for duplicates.
  SizesNeeded sizes_needed(bool equal_batches, bool distinct) const;
  /// Returns whether gradients of a feature's vectors are needed on the ranks of its rows.
  bool gradients(int feature) const;
  /// Returns the output columns that are sums of several blocks of rows: (first, width), which may
  /// repeat or overlap.
  const std::vector<std::pair<std::int64_t, int>>& summed_columns() const {
    return summed_columns_;
  }
  std::vector<int> all_features() const;
  /// Returns the features that this rank's shards read, ascending.
  const std::vector<int>& local_features() const { return local_features_; }
  bool is_local(int feature) const {
    return std::binary_search(local_features_.begin(), local_features_.end(), feature);
  }

 private:
  /// Plans arenas: those of one group are beside those of others, in the order of tables.
  void plan_arenas(const Layout& layout, std::span<const TableTraining> training);

  void add_slots(const Layout& layout, std::span<const TableTraining> training);

  void add_chains();

  void order_slots();

  struct ShardPlace {
    int arena = -1;
    std::int64_t row_bias = 0;
  };
  int ranks_;
  int rank_;
  std::size_t features_;
  bool keeps_rows_;
  PodVector<ShardPlace> place_;  // by shard
  std::vector<ArenaPlan> arenas_;
  std::set<int> split_groups_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> first_slot_;
  std::size_t replicated_slots_ = 0;
  PodVector<WireSlot> served_, requested_;
  std::vector<SlotChain> chains_;
  std::vector<std::pair<std::int64_t, int>> summed_columns_;
  std::vector<int> local_features_;
};

#ifdef TESSERA_INLINE
TESSERA_INLINE int Slot::width() const {
  int sum = 0;
  for (const SlotPart& part : parts) sum += part.width;
  return sum;
}

TESSERA_INLINE RankLayout::RankLayout(const Layout& layout, int rank,
                                      std::span<const TableTraining> training)
    : ranks_(layout.ranks()),
      rank_(rank),
      features_(layout.features.size()),
      keeps_rows_(detail::keeps_rows(layout)) {
  plan_arenas(layout, training);
  add_slots(layout, training);
  add_chains();
  order_slots();
}

TESSERA_INLINE bool RankLayout::exchanges() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return !slot.replicated || !slot.whole; });
}

TESSERA_INLINE bool RankLayout::travels(int feature) const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [&](const Slot& slot) { return slot.feature == feature && !direct(slot); });
}

TESSERA_INLINE bool RankLayout::at_hand(int feature) const {
  return std::all_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.feature != feature ||
           (direct(slot) && std::all_of(slot.parts.begin(), slot.parts.end(), [&](const auto& p) {
              return arenas_[p.arena].tier == Tier::device && arenas_[p.arena].cache_rows == 0;
            }));
  });
}

TESSERA_INLINE bool RankLayout::in_place() const {
  return ranks_ == 1 && !keeps_rows_ && slots_.size() == features_ &&
         std::all_of(slots_.begin(), slots_.end(),
                     [&](const Slot& slot) { return direct(slot) && slot.parts.size() == 1; });
}

TESSERA_INLINE SizesNeeded RankLayout::sizes_needed(bool equal_batches, bool distinct) const {
  if (in_place()) return arenas_.size() == 1 ? SizesNeeded::none : SizesNeeded::bounds;
  const bool told = equal_batches || (ranks_ == 1 && !keeps_rows_);
  return told && !distinct ? SizesNeeded::bounds : SizesNeeded::exact;
}

TESSERA_INLINE bool RankLayout::gradients(int feature) const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [&](const Slot& slot) { return slot.feature == feature && slot.gradients; });
}

TESSERA_INLINE std::vector<int> RankLayout::all_features() const {
  std::vector<int> all(features_);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TESSERA_INLINE void RankLayout::plan_arenas(const Layout& layout,
                                            std::span<const TableTraining> training) {
  place_.resize(layout.shards.size());
  for (std::size_t s = 0; s < layout.shards.size(); ++s) {
    const Shard& shard = layout.shards[s];
    const TableSpec& table = layout.tables[shard.table];
    const TableTraining& trained = training[static_cast<std::size_t>(shard.table)];
    // rows that are cut are apart if updates need them whole
    const bool split = trained.whole_rows && shard.rectangle.width() != table.width;
    if (split) split_groups_.insert(trained.group);
    if (!shard.held_by(rank_)) continue;
    const bool replicated = shard.rank == every_rank && ranks_ > 1;
    auto at = std::find_if(arenas_.begin(), arenas_.end(), [&](const ArenaPlan& a) {
      return a.width == shard.rectangle.width() && a.replicated == replicated &&
             a.columns_split == split && a.tier == shard.tier && a.group == trained.group &&
             (a.cache_rows != 0) == (shard.cache_rows != 0);
    });
    if (at == arenas_.end()) {
      at = arenas_.emplace(arenas_.end());
      at->width = shard.rectangle.width();
      at->replicated = replicated;
      at->columns_split = split;
      at->tier = shard.tier;
      at->group = trained.group;
      at->trains = trained.trains;
    }
    place_[s] = {static_cast<int>(at - arenas_.begin()), at->rows - shard.rectangle.row_begin};
    at->segments.push_back({at->rows, shard.rectangle.rows(), name_key(table.name),
                            shard.rectangle.row_begin, shard.rectangle.column_begin});
    at->shards.push_back(static_cast<int>(s));
    at->rows += shard.rectangle.rows();
    at->cache_rows += std::min(shard.cache_rows, shard.rectangle.rows());
  }
}

TESSERA_INLINE void RankLayout::add_slots(const Layout& layout,
                                          std::span<const TableTraining> training) {
  std::vector<std::vector<int>> shards_of(layout.tables.size());
  for (std::size_t s = 0; s < layout.shards.size(); ++s)
    shards_of[layout.shards[s].table].push_back(static_cast<int>(s));
  for (std::size_t f = 0; f < layout.features.size(); ++f) {
    const int table = layout.feature_table[f];
    for (const int s : shards_of[table]) {
      const Shard& shard = layout.shards[s];
      const Rectangle& r = shard.rectangle;
      const bool replicated = shard.rank == every_rank;
      const int rank = replicated ? rank_ : shard.rank;
      const bool whole = r.row_begin == 0 && r.row_end == layout.tables[table].rows;
      auto at = std::find_if(slots_.rbegin(), slots_.rend(), [&](const Slot& slot) {
        return slot.feature != static_cast<int>(f) ||
               (slot.rank == rank && slot.replicated == replicated &&
                slot.row_begin == r.row_begin && slot.row_end == r.row_end);
      });
      if (at == slots_.rend() || at->feature != static_cast<int>(f)) {
        // weights of ids have gradients, too, whose rows' owner computes them
        const bool gradients =
            training[static_cast<std::size_t>(table)].trains || layout.features[f].weighted;
        slots_.push_back(
            {static_cast<int>(f), rank, r.row_begin, r.row_end, whole, replicated, gradients, {}});
        at = slots_.rbegin();
        replicated_slots_ += replicated;
      }
      at->parts.push_back({s, place_[s].arena, place_[s].row_bias,
                           layout.feature_column[f] + r.column_begin, r.width()});
      const std::pair column(layout.feature_column[f] + r.column_begin,
                             static_cast<int>(r.width()));
      const bool summed = !whole && !detail::keeps_rows(layout.features[f].pooling);
      if (summed && std::find(summed_columns_.rbegin(), summed_columns_.rend(), column) ==
                        summed_columns_.rend())
        summed_columns_.push_back(column);
    }
  }
  std::sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
    return std::tuple(a.rank, a.replicated, a.feature, a.row_begin, a.row_end) <
           std::tuple(b.rank, b.replicated, b.feature, b.row_begin, b.row_end);
  });
  first_slot_.assign(static_cast<std::size_t>(ranks_) + 1, slots_.size());
  for (std::size_t i = slots_.size(); i-- > 0;) first_slot_[slots_[i].rank] = i;
  for (int r = ranks_; r-- > 0;) first_slot_[r] = std::min(first_slot_[r], first_slot_[r + 1]);
  for (std::size_t i = slots_begin(rank_); i < slots_end(rank_); ++i)
    local_features_.push_back(slots_[i].feature);
  std::sort(local_features_.begin(), local_features_.end());
  local_features_.erase(std::unique(local_features_.begin(), local_features_.end()),
                        local_features_.end());
}

TESSERA_INLINE void RankLayout::add_chains() {
  std::vector<int> order(slots_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::tuple(slots_[a].feature, slots_[a].row_begin, a) <
           std::tuple(slots_[b].feature, slots_[b].row_begin, b);
  });
  std::size_t first_of_feature = 0;
  for (const int i : order) {
    const Slot& slot = slots_[i];
    if (direct(slot)) continue;
    if (first_of_feature < chains_.size() && chains_[first_of_feature].feature != slot.feature)
      first_of_feature = chains_.size();
    std::size_t chain = first_of_feature;
    while (chain < chains_.size() && slots_[chains_[chain].slots.back()].row_end > slot.row_begin)
      ++chain;
    if (chain == chains_.size()) chains_.push_back({slot.feature, {}});
    chains_[chain].slots.push_back(i);
  }
}

TESSERA_INLINE void RankLayout::order_slots() {
  const auto ranks = static_cast<std::size_t>(ranks_);
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t k = 0; k < slots_from(static_cast<int>(r)); ++k)
      served_.push_back({static_cast<int>(r), &own_slot(k), k * ranks + r});
  for (std::size_t s = 0; s < slots_.size(); ++s)
    requested_.push_back({slots_[s].rank, &slots_[s], s});
}
#endif

}}}  // namespace tessera::v0::detail
