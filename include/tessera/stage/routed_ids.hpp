// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/op/exchange.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera::inline v0 {

/// What one rank tells another about a slot before the ids travel. Any number of them ends at a
/// multiple of 16 bytes (detail::BlockAlignment).
struct alignas(16) IdMessageHeader {
  std::int64_t bags = 0;
  std::int64_t entries = 0;
  /// of the rank that sends; NaN: not told
  double learning_rate = std::numeric_limits<double>::quiet_NaN();
  /// every bag has one id: lengths do not travel
  std::uint8_t one_hot = 0;
  std::uint8_t scaled = 0;  ///< bags have scales
  std::uint8_t weighted = 0;
  std::uint8_t id_size = 0;  ///< bytes
};

namespace detail {
/// Throws InvalidArgument where the lengths of a slot's bags might not fit their 32 bits on the
/// wire.
inline void require_lengths_fit(const IdMessageHeader& header, int feature) {
  require(header.one_hot != 0 || header.entries <= std::numeric_limits<std::uint32_t>::max(),
          "route: {} ids of feature {} for one rank in one batch; at most 2^32 - 1 travel at once, "
          "split the batch",
          header.entries, feature);
}
}  // namespace detail

/// Where the sections of one slot's message lie, in bytes from its start; each begins at a multiple
/// of 8, the messages for one rank together where its block does (detail::BlockAlignment).
struct IdMessage {
  std::size_t lengths = 0, ids = 0, weights = 0, scales = 0, size = 0;
  bool has_lengths = false, has_weights = false, has_scales = false;

  IdMessage(const IdMessageHeader& header, std::size_t id_size) {
    const auto aligned = [](std::size_t bytes) { return (bytes + 7) / 8 * 8; };
    const std::size_t bags = static_cast<std::size_t>(header.bags),
                      entries = static_cast<std::size_t>(header.entries);
    has_lengths = header.one_hot == 0;
    has_weights = header.weighted != 0;
    has_scales = header.scaled != 0;
    ids = has_lengths ? aligned(bags * sizeof(std::uint32_t)) : 0;
    weights = ids + aligned(entries * id_size);
    scales = weights + (has_weights ? aligned(entries * sizeof(float)) : 0);
    size = scales + (has_scales ? aligned(bags * sizeof(float)) : 0);
  }
};

/// The ids of a step where they were routed to: what of this rank's samples went to the owners of
/// rows, and what came to this rank as owner. Written by IdExchange, or by LocalIdExchange for
/// model-parallel input.
template <IdType Id, class Backend>
class RoutedIds {
 public:
  /// This rank's side of a slot: which of its samples have a vector there.
  struct Sent {
    std::int64_t bags = 0;
    std::int64_t entries = 0;
    const std::int32_t* samples = nullptr;  ///< null: all samples, in order
    /// index into the feature's entries of each id; null: all entries, in order
    const std::int64_t* positions = nullptr;
  };

  /// By RankLayout::slots().
  std::span<const Sent> sent() const { return sent_; }
  /// By own slot x ranks + source.
  std::span<const op::Bags<Id>> received() const { return received_; }
  /// Model parallel, weighted, cut: entries' indices in the inputs.
  const std::int64_t* received_positions(std::size_t i) const { return received_positions_[i]; }

  /// Slots that this rank serves from its own ids read these in place: bags_of(feature).
  template <class BagsOf>
  void set_direct(const RankLayout& routing, const BagsOf& bags_of) {
    const std::size_t ranks = static_cast<std::size_t>(routing.ranks());
    for (std::size_t k = 0; k < routing.slots_of(routing.rank()); ++k)
      if (const Slot& slot = routing.own_slot(k); slot.whole)
        received_[k * ranks + static_cast<std::size_t>(routing.rank())] = bags_of(slot.feature);
  }

 private:
  template <IdType, class, class>
  friend class IdExchange;
  template <IdType, class, class>
  friend class LocalIdExchange;

  void begin(const RankLayout& routing) {
    sent_.assign(routing.slots().size(), {});
    received_.assign(routing.slots_of(routing.rank()) * static_cast<std::size_t>(routing.ranks()),
                     {});
  }

  std::vector<Sent> sent_;
  std::vector<op::Bags<Id>> received_;
  std::vector<const std::int64_t*> received_positions_;
  // the messages
  std::vector<typename op::PackBags<Id>::Block> blocks_;
  std::vector<typename op::PackBags<Id>::Job> pack_jobs_;
  std::vector<op::OffsetsFromLengths::Job> offset_jobs_;
  std::vector<IdMessageHeader> headers_out_, headers_in_;
  std::vector<std::size_t> counts_out_, counts_in_;  // by rank
  std::vector<std::size_t> places_out_, places_in_;  // of messages, or of samples
  Buffer<std::byte, Backend> ids_out_, ids_in_;
  Buffer<std::int32_t, Backend> samples_;
  Buffer<std::int32_t, Backend> cut_samples_;  // model parallel: of what this rank cut for others
  Buffer<std::int64_t, Backend> positions_, offsets_;
};

}  // namespace tessera::inline v0
