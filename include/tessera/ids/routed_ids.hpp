// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/optional_collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/admitted_batch.hpp>
#include <tessera/ids/agreement.hpp>
#include <tessera/ids/wire_order.hpp>
#include <tessera/op/exchange.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// What one rank tells another about a slot before the ids travel. Any number of them ends at a
/// multiple of 16 bytes (BlockAlignment).
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

/// Throws InvalidArgument if the lengths of a slot's bags might not fit their 32 bits on the
/// wire.
void require_lengths_fit(const IdMessageHeader& header, int feature);
/// Where the sections of one slot's message are, in bytes from its start; each begins at a multiple
/// of 8, the messages for one rank together where its block does (BlockAlignment).
struct IdMessage {
  std::size_t lengths = 0, ids = 0, weights = 0, scales = 0, size = 0;
  bool has_lengths = false, has_weights = false, has_scales = false;

  IdMessage(const IdMessageHeader& header, std::size_t id_size);

  /// Has a block packed into the message at `at`.
  template <IdType Id>
  void pack(typename op::PackBags<Id>::Block& block, std::byte* at) const {
    if (has_lengths) block.lengths = reinterpret_cast<std::uint32_t*>(at + lengths);
    block.ids = reinterpret_cast<Id*>(at + ids);
    if (has_weights) block.weights = reinterpret_cast<float*>(at + weights);
    if (has_scales) block.bag_scale = reinterpret_cast<float*>(at + scales);
  }
};

/// The ids of a step where they were routed to: what of this rank's samples went to the owners of
/// rows, and what came to this rank as owner. `State`: the Step that this is a part of.
template <IdType Id, class Backend>
class RoutedIds {
  using Block = typename op::PackBags<Id>::Block;

 public:
  /// This rank's side of a slot: which of its samples have a vector there.
  struct Sent {
    std::int64_t bags = 0;
    std::int64_t entries = 0;
    const std::int32_t* samples = nullptr;  ///< null: all samples, in order
    /// index into the feature's entries of each id; null: all entries, in order
    const std::int64_t* positions = nullptr;
  };

  /// Returns what was sent, by RankLayout::slots().
  std::span<const Sent> sent() const { return sent_; }
  /// Returns bags by own slot x ranks + source.
  std::span<const op::Bags<Id>> received() const { return received_; }
  /// Returns, if model parallel, weighted and cut, entries' indices in the inputs.
  const std::int64_t* received_positions(std::size_t i) const { return received_positions_[i]; }

  /// Sends ids to the ranks that own their rows. One pass over a feature's ids per chain of slots,
  /// one exchange of sizes and one of ids for all features together. In a step of fixed sizes no
  /// rank asks for sizes: messages have room for the bounds, and every block of rows gets every
  /// bag, with -1 for ids of other blocks. Collective.
  template <class State, class Comm>
  void exchange(const Backend& backend, Comm& communicator, const RankLayout& routing,
                const State& step) {
    begin(routing);
    if (routing.exchanges()) {
      count(backend, routing, step);
      exchange_headers(communicator, routing, step);
      pack(backend, block_alignment(communicator), routing, step);
      all_to_all<std::byte>(communicator, ids_out_.span(), counts_out_, ids_in_.span(), counts_in_);
      unpack(backend, routing);
    }
    set_direct(routing, step);
  }

  /// Routes model-parallel input: every rank already holds the global batch's ids of the features
  /// that its shards read, so no id travels. Owners cut what they need; for tables cut by rows they
  /// tell each rank which of its samples will get a vector. step.batch holds all ranks' samples of
  /// the local features; RowsOfOthers has found rows that are not pooled. Collective. In
  /// model_parallel_ids.hpp.
  template <class State, class Comm>
  void cut(const Backend& backend, Comm& communicator, const Layout& layout,
           const RankLayout& routing, const State& step);

  /// Lets slots that this rank serves from its own ids read these in place.
  template <class State>
  void set_direct(const RankLayout& routing, const State& step) {
    const auto part = static_cast<std::size_t>(step.batch.model_parallel() ? routing.rank() : 0);
    for (const WireSlot& own : routing.served())
      if (own.rank == routing.rank() && own.slot->whole)
        received_[own.index] = step.bags_to_route(own.slot->feature, part);
  }

 private:
  void begin(const RankLayout& routing) {
    sent_.assign(routing.slots().size(), {});
    received_.assign(routing.slots_of(routing.rank()) * static_cast<std::size_t>(routing.ranks()),
                     {});
  }

  static IdMessage message(const IdMessageHeader& header) { return {header, sizeof(Id)}; }
  /// Returns whether a slot gets some bags and not all.
  template <class State>
  static bool packs_samples(const State& step, const Slot& slot) {
    return !step.batch.fixed_sizes() && !slot.whole;
  }
  template <class State>
  static IdMessageHeader header(const State& step, int feature, std::int64_t bags,
                                std::int64_t entries) {
    const FeatureInput<Id>& input = step.batch[feature];
    const bool distinct = step.distinct.active(feature);
    return {bags,
            entries,
            step.batch.learning_rate(),
            distinct || input.bags.offsets == nullptr,
            !distinct && input.scaled,
            !distinct && input.weighted,
            sizeof(Id)};
  }

  /// Lists a job per chain; its blocks are in the order of the chain's slots.
  template <class State>
  void list_chains(const RankLayout& routing, const State& step) {
    blocks_.clear();
    pack_jobs_.clear();
    for (const SlotChain& chain : routing.chains())
      for (const int s : chain.slots)
        blocks_.push_back({routing.slots()[s].row_begin, routing.slots()[s].row_end});
    std::span<Block> rest = blocks_;
    for (const SlotChain& chain : routing.chains()) {
      pack_jobs_.push_back({step.bags_to_route(chain.feature), rest.first(chain.slots.size()),
                            !packs_samples(step, routing.slots()[chain.slots.front()])});
      rest = rest.subspan(chain.slots.size());
    }
  }

  template <class State>
  void count(const Backend& backend, const RankLayout& routing, const State& step) {
    list_chains(routing, step);
    if (pack_jobs_.empty()) return;
    op::run<op::PackBags<Id>>(backend, {.jobs = pack_jobs_, .count_only = true});
    const Block* block = blocks_.data();
    for (const SlotChain& chain : routing.chains())
      for (const int s : chain.slots) {
        sent_[s].bags = block->bags;
        sent_[s].entries = block++->entries;
      }
  }

  template <class State, class Comm>
  void exchange_headers(Comm& communicator, const RankLayout& routing, const State& step) {
    const int ranks = routing.ranks();
    headers_out_.resize(routing.slots().size());
    counts_out_.resize(static_cast<std::size_t>(ranks));
    counts_in_.resize(static_cast<std::size_t>(ranks));
    std::size_t incoming = 0;
    for (int r = 0; r < ranks; ++r) {
      counts_out_[r] = routing.slots_of(r);
      incoming += counts_in_[r] = routing.slots_from(r);
    }
    headers_in_.resize(incoming);
    for (std::size_t s = 0; s < routing.slots().size(); ++s) {
      const int feature = routing.slots()[s].feature;
      headers_out_[s] = header(step, feature, sent_[s].bags, sent_[s].entries);
      require_lengths_fit(headers_out_[s], feature);
    }
    if (step.batch.fixed_sizes()) return expect_headers(routing, step);
    all_to_all<IdMessageHeader>(communicator, headers_out_, counts_out_, headers_in_, counts_in_);
    check_headers(routing, step.batch.learning_rate());
  }

  /// Expects other ranks' batches to be like this one's.
  template <class State>
  void expect_headers(const RankLayout& routing, const State& step) {
    auto next = headers_in_.begin();
    for (const WireSlot& from : routing.served()) {
      const Slot& slot = *from.slot;
      const bool direct = from.rank == routing.rank() && slot.whole;  // and sends nothing
      const op::Bags<Id> bags = direct ? op::Bags<Id>{} : step.bags_to_route(slot.feature);
      *next++ = header(step, slot.feature, bags.bags, bags.bags == 0 ? 0 : bags.entry_bound);
    }
  }

  /// Checks headers: what ranks must have in common shows where they meet anyway.
  void check_headers(const RankLayout& routing, double rate) const {
    auto header = headers_in_.begin();
    for (const WireSlot& from : routing.served()) {
      require(header->id_size == sizeof(Id),
              "route on rank {}: rank {} gives ids of {} bytes, this rank ids of {}; all must be "
              "of one type",
              routing.rank(), from.rank, header->id_size, sizeof(Id));
      require_same_rate("route", routing.rank(), rate, from.rank, header->learning_rate);
      ++header;
    }
  }

  template <class State>
  void pack(const Backend& backend, const BlockAlignment& alignment, const RankLayout& routing,
            const State& step) {
    std::size_t samples = 0, positions = 0;
    BlockPlaces<std::byte> out(alignment, counts_out_, routing.ranks());
    places_out_.resize(routing.slots().size());
    for (const WireSlot& to : routing.requested()) {
      const std::size_t s = to.index;
      places_out_[s] = out.take(to.rank, message(headers_out_[s]).size);
      if (!packs_samples(step, *to.slot)) continue;
      samples += static_cast<std::size_t>(sent_[s].bags);
      if (headers_out_[s].weighted != 0) positions += static_cast<std::size_t>(sent_[s].entries);
    }
    BlockPlaces<std::byte> in(alignment, counts_in_, routing.ranks());
    places_in_.clear();
    auto header = headers_in_.begin();
    for (const WireSlot& from : routing.served())
      places_in_.push_back(in.take(from.rank, message(*header++).size));
    const std::size_t bytes_out = out.end();
    ids_in_.resize(backend, in.end());
    ids_out_.resize(backend, bytes_out);
    // room that is left over travels, too
    if (step.batch.fixed_sizes()) backend.fill_zero(ids_out_.data(), bytes_out);
    std::int32_t* next_sample = samples_.resize(backend, samples).data();
    std::int64_t* next_position = positions_.resize(backend, positions).data();
    if (pack_jobs_.empty()) return;
    Block* next_block = blocks_.data();
    for (const SlotChain& chain : routing.chains())
      for (const int s : chain.slots) {
        Block& block = *next_block++;
        const IdMessage m = message(headers_out_[s]);
        m.template pack<Id>(block, ids_out_.data() + places_out_[s]);
        if (!packs_samples(step, routing.slots()[s])) continue;
        sent_[s].samples = block.samples = next_sample;
        next_sample += sent_[s].bags;
        if (m.has_weights) {
          sent_[s].positions = block.positions = next_position;
          next_position += sent_[s].entries;
        }
      }
    op::run<op::PackBags<Id>>(backend, {.jobs = pack_jobs_, .counted = true});
  }

  void unpack(const Backend& backend, const RankLayout& routing) {
    std::size_t offsets = 0;
    for (const IdMessageHeader& header : headers_in_)
      if (header.one_hot == 0) offsets += static_cast<std::size_t>(header.bags) + 1;
    std::int64_t* next_offsets = offsets_.resize(backend, offsets).data();
    offset_jobs_.clear();
    auto next_header = headers_in_.begin();
    auto next_arrival = places_in_.begin();
    for (const WireSlot& from : routing.served())
      receive(from.index, *next_header++, ids_in_.data() + *next_arrival++, next_offsets);
    op::run<op::OffsetsFromLengths>(backend, {offset_jobs_});
  }

  /// Receives received()[i], which is in the message at `at`; its offsets, made of lengths, go to
  /// `next_offsets`.
  void receive(std::size_t i, const IdMessageHeader& header, const std::byte* at,
               std::int64_t*& next_offsets) {
    const IdMessage m = message(header);
    op::Bags<Id>& bags = received_[i];
    bags.bags = header.bags;
    bags.entry_bound = header.entries;
    bags.ids = reinterpret_cast<const Id*>(at + m.ids);
    if (m.has_lengths) {
      bags.offsets = next_offsets;
      offset_jobs_.push_back(
          {reinterpret_cast<const std::uint32_t*>(at + m.lengths), next_offsets, header.bags});
      next_offsets += header.bags + 1;
    }
    if (m.has_weights) bags.weights = reinterpret_cast<const float*>(at + m.weights);
    if (m.has_scales) bags.bag_scale = reinterpret_cast<const float*>(at + m.scales);
  }

  // of `cut`
  template <class State>
  static op::Bags<Id> cut_from(const RankLayout& routing, const State& step, const WireSlot& of);
  template <class State>
  void list_cuts(const Backend& backend, const RankLayout& routing, const State& step);
  template <class State>
  void measure_cuts(const Backend& backend, const BlockAlignment& alignment, const Layout& layout,
                    const RankLayout& routing, const State& step);
  void pack_cuts(const Backend& backend, const RankLayout& routing);
  template <class Comm>
  void tell_samples(const Backend& backend, Comm& communicator, const RankLayout& routing);

  PodVector<Sent> sent_;
  PodVector<op::Bags<Id>> received_;
  PodVector<const std::int64_t*> received_positions_;
  // the messages
  PodVector<Block> blocks_;
  PodVector<typename op::PackBags<Id>::Job> pack_jobs_;
  PodVector<op::OffsetsFromLengths::Job> offset_jobs_;
  PodVector<IdMessageHeader> headers_out_, headers_in_;
  std::vector<std::size_t> counts_out_, counts_in_;  // by rank
  std::vector<std::size_t> places_out_, places_in_;  // of messages, or of samples
  Buffer<std::byte, Backend> ids_out_, ids_in_;
  Buffer<std::int32_t, Backend> samples_;
  Buffer<std::int32_t, Backend> cut_samples_;  // model parallel: of what this rank cut for others
  Buffer<std::int64_t, Backend> positions_, offsets_;
};

#ifdef TESSERA_INLINE
TESSERA_INLINE void require_lengths_fit(const IdMessageHeader& header, int feature) {
  require(header.one_hot != 0 || header.entries <= std::numeric_limits<std::uint32_t>::max(),
          "route: {} ids of feature {} for one rank in one batch; at most 2^32 - 1 travel at once, "
          "split the batch",
          header.entries, feature);
}

TESSERA_INLINE IdMessage::IdMessage(const IdMessageHeader& header, std::size_t id_size) {
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
#endif

}}}  // namespace tessera::v0::detail
