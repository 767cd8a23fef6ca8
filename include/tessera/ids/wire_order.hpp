// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/optional_collectives.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Rows of one part of a slot, which follow one another on the wire.
struct Piece {
  int rank = 0;  ///< at the other end
  const Slot* slot = nullptr;
  std::size_t part = 0;   ///< of the slot
  std::size_t index = 0;  ///< as WireSlot's
  std::int64_t rows = 0;
  /// among all ranks' blocks: as floats, and in a codec's form
  std::size_t first_float = 0, first_byte = 0;
  bool travels = true;  ///< false: read and written where the caller has it, and no place

  const SlotPart& columns() const { return slot->parts[part]; }
};

/// Places in a buffer where the blocks of ranks follow one another, each padded as the
/// communicator likes it. `counts` gets the size of each rank's block.
template <class T>
class BlockPlaces {
 public:
  BlockPlaces(BlockAlignment blocks, std::vector<std::size_t>& counts, int ranks)
      : blocks_(blocks), counts_(counts) {
    counts_.assign(static_cast<std::size_t>(ranks), 0);
  }
  /// Returns the first element of the next `count` of a rank; ranks ascend.
  std::size_t take(int rank, std::size_t count) {
    while (rank_ < static_cast<std::size_t>(rank)) end_block();
    const std::size_t first = begin_ + counts_[rank_];
    counts_[rank_] += count;
    return first;
  }
  /// Returns the elements of all blocks; there are no more.
  std::size_t end() {
    while (rank_ < counts_.size()) end_block();
    return begin_;
  }

 private:
  void end_block() {
    counts_[rank_] = blocks_.padded<T>(counts_[rank_]);
    begin_ += counts_[rank_++];
  }

  BlockAlignment blocks_;
  std::vector<std::size_t>& counts_;
  std::size_t rank_ = 0, begin_ = 0;
};

/// What travels between this rank and all others on one side of an exchange: by rank, slot, part.
class WireSide {
 public:
  struct RowSize {
    std::size_t floats = 0, bytes = 0;  ///< as floats, and in a codec's form
  };

  /// Lists pieces. `rows(slot)`: how many of each of its parts travel. `size(part)`: of one of
  /// them.
  template <class Rows, class Size>
  void list(std::span<const WireSlot> slots, int ranks, BlockAlignment blocks, const Rows& rows,
            const Size& size) {
    BlockPlaces<float> floats(blocks, floats_, ranks);
    BlockPlaces<std::byte> bytes(blocks, bytes_, ranks);
    pieces_.clear();
    for (const WireSlot& wire : slots) {
      const std::int64_t count = rows(wire);
      if (count == 0) continue;
      for (std::size_t p = 0; p < wire.slot->parts.size(); ++p) {
        const RowSize row = size(wire.slot->parts[p]);
        const auto n = static_cast<std::size_t>(count);
        pieces_.push_back({wire.rank, wire.slot, p, wire.index, count,
                           floats.take(wire.rank, n * row.floats),
                           bytes.take(wire.rank, n * row.bytes)});
      }
    }
    all_floats_ = floats.end();
    all_bytes_ = bytes.end();
  }

  /// Returns those with rows.
  std::span<const Piece> pieces() const { return pieces_; }
  /// Returns the floats to or from each rank, and together.
  const std::vector<std::size_t>& floats() const { return floats_; }
  const std::vector<std::size_t>& bytes() const { return bytes_; }
  std::size_t all_floats() const { return all_floats_; }
  std::size_t all_bytes() const { return all_bytes_; }

 private:
  PodVector<Piece> pieces_;
  std::vector<std::size_t> floats_, bytes_;
  std::size_t all_floats_ = 0, all_bytes_ = 0;
};

/// Where the vectors of a routed step are on their way to the ranks of the samples, or their
/// gradients on the way back: the one owner of that order. Keeps its memory.
class WireOrder {
 public:
  /// Sets the pieces. `received`: bags that came, by own slot and rank. `sent`: what of this rank's
  /// samples was routed, by slot. `bytes(width)`: of a row in the codec's form.
  template <class Bags, class Sent, class Bytes>
  void set(const RankLayout& routing, BlockAlignment blocks, Way way,
           std::span<const Bags> received, std::span<const Sent> sent, const Bytes& bytes) {
    const auto travels = [&](const Slot& slot, int source) {
      return slot.goes(way) && !(slot.whole && source == slot.rank);
    };
    const auto size = [&](const SlotPart& part) {
      return WireSide::RowSize{static_cast<std::size_t>(part.width), bytes(part.width)};
    };
    served_.list(
        routing.served(), routing.ranks(), blocks,
        [&](const WireSlot& of) {
          return travels(*of.slot, of.rank) ? received[of.index].bags : std::int64_t{0};
        },
        size);
    requested_.list(
        routing.requested(), routing.ranks(), blocks,
        [&](const WireSlot& of) {
          return travels(*of.slot, routing.rank()) ? sent[of.index].bags : std::int64_t{0};
        },
        size);
    list_sums(routing, way, received);
  }

  /// Returns the side of this rank's own rows; of this rank's samples.
  const WireSide& served() const { return served_; }
  const WireSide& requested() const { return requested_; }

  /// Returns all pieces that this rank serves from an arena, its own samples' with them, in the
  /// order in which a row's gradients are summed: by slot, source rank, part.
  std::span<const Piece> sums(std::size_t arena) const { return sums_[arena]; }

 private:
  template <class Bags>
  void list_sums(const RankLayout& routing, Way way, std::span<const Bags> received) {
    const auto ranks = static_cast<std::size_t>(routing.ranks());
    const std::span<const Piece> wire = served_.pieces();
    next_.assign(ranks, wire.size());
    for (std::size_t i = wire.size(); i-- > 0;) next_[static_cast<std::size_t>(wire[i].rank)] = i;
    sums_.resize(routing.arenas().size());
    for (PodVector<Piece>& of_arena : sums_) of_arena.clear();
    for (std::size_t k = 0; k < routing.slots_of(routing.rank()); ++k) {
      const Slot& slot = routing.own_slot(k);
      if (!slot.goes(way)) continue;
      for (std::size_t r = 0; r < ranks; ++r) {
        const std::size_t index = k * ranks + r;
        if (received[index].bags == 0) continue;
        const bool travels = !(slot.whole && static_cast<int>(r) == routing.rank());
        for (std::size_t p = 0; p < slot.parts.size(); ++p)
          sums_[static_cast<std::size_t>(slot.parts[p].arena)].push_back(
              travels ? wire[next_[r]++]
                      : Piece{.rank = static_cast<int>(r),
                              .slot = &slot,
                              .part = p,
                              .index = index,
                              .rows = received[index].bags,
                              .travels = false});
      }
    }
  }

  WireSide served_, requested_;
  std::vector<PodVector<Piece>> sums_;  // by arena
  std::vector<std::size_t> next_;       // by rank: of list_sums
};

}}}  // namespace tessera::v0::detail
