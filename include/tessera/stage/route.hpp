// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/op/exchange.hpp>
#include <tessera/stage/admitted_batch.hpp>
#include <tessera/stage/agreement.hpp>
#include <tessera/stage/optional_collectives.hpp>
#include <tessera/stage/wire_order.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {

template <IdType Id, class Backend>
struct Step;

namespace detail {

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

/// Throws InvalidArgument where the lengths of a slot's bags might not fit their 32 bits on the
/// wire.
inline void require_lengths_fit(const IdMessageHeader& header, int feature) {
  require(header.one_hot != 0 || header.entries <= std::numeric_limits<std::uint32_t>::max(),
          "route: {} ids of feature {} for one rank in one batch; at most 2^32 - 1 travel at once, "
          "split the batch",
          header.entries, feature);
}
/// Where the sections of one slot's message are, in bytes from its start; each begins at a multiple
/// of 8, the messages for one rank together where its block does (BlockAlignment).
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
    for (const WireSlot& own : routing.served())
      if (own.rank == routing.rank() && own.slot->whole)
        received_[own.index] = bags_of(own.slot->feature);
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

/// Stage `route`: ids go to the ranks that own their rows. One pass over a feature's ids per chain
/// of slots, one exchange of sizes and one of ids for all features together. In a step of fixed
/// sizes no rank asks for sizes: messages have room for the bounds, and every block of rows gets
/// every bag, with -1 for ids of other blocks.
template <IdType Id, class Backend, class Communicator>
class IdExchange {
  using StepState = Step<Id, Backend>;
  using Block = typename op::PackBags<Id>::Block;

 public:
  IdExchange(const Backend& backend, Communicator& communicator, const RankLayout& routing)
      : backend_(backend), communicator_(communicator), routing_(routing) {}

  /// step.batch.samples() holds this rank's samples of every feature.
  void data_parallel(StepState& step) {
    step.routed.begin(routing_);
    if (routing_.exchanges()) {
      count(step);
      exchange_headers(step);
      pack(step);
      all_to_all<std::byte>(communicator_, step.routed.ids_out_.span(), step.routed.counts_out_,
                            step.routed.ids_in_.span(), step.routed.counts_in_);
      unpack(step);
    }
    step.routed.set_direct(routing_, [&](int feature) { return step.bags_to_route(feature); });
  }

 private:
  static IdMessage message(const IdMessageHeader& header) { return {header, sizeof(Id)}; }
  /// Whether a slot gets some bags and not all.
  bool packs_samples(const StepState& step, std::size_t s) const {
    return !step.batch.fixed_sizes() && !routing_.slots()[s].whole;
  }
  IdMessageHeader header(const StepState& step, int feature, std::int64_t bags,
                         std::int64_t entries) const {
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

  /// A job per chain; its blocks are in step.routed.blocks_ in the order of the chain's slots.
  void list_chains(StepState& step) {
    step.routed.blocks_.clear();
    step.routed.pack_jobs_.clear();
    for (const SlotChain& chain : routing_.chains())
      for (const int s : chain.slots)
        step.routed.blocks_.push_back({routing_.slots()[s].row_begin, routing_.slots()[s].row_end});
    std::span<Block> rest = step.routed.blocks_;
    for (const SlotChain& chain : routing_.chains()) {
      step.routed.pack_jobs_.push_back({step.bags_to_route(chain.feature),
                                        rest.first(chain.slots.size()),
                                        !packs_samples(step, chain.slots.front())});
      rest = rest.subspan(chain.slots.size());
    }
  }

  void count(StepState& step) {
    list_chains(step);
    if (step.routed.pack_jobs_.empty()) return;
    op::run<op::PackBags<Id>>(backend_, {.jobs = step.routed.pack_jobs_, .count_only = true});
    const Block* block = step.routed.blocks_.data();
    for (const SlotChain& chain : routing_.chains())
      for (const int s : chain.slots) {
        step.routed.sent_[s].bags = block->bags;
        step.routed.sent_[s].entries = block++->entries;
      }
  }

  void exchange_headers(StepState& step) {
    const int ranks = routing_.ranks();
    step.routed.headers_out_.resize(routing_.slots().size());
    step.routed.counts_out_.resize(static_cast<std::size_t>(ranks));
    step.routed.counts_in_.resize(static_cast<std::size_t>(ranks));
    std::size_t incoming = 0;
    for (int r = 0; r < ranks; ++r) {
      step.routed.counts_out_[r] = routing_.slots_of(r);
      incoming += step.routed.counts_in_[r] = routing_.slots_from(r);
    }
    step.routed.headers_in_.resize(incoming);
    for (std::size_t s = 0; s < routing_.slots().size(); ++s) {
      step.routed.headers_out_[s] = header(step, routing_.slots()[s].feature,
                                           step.routed.sent_[s].bags, step.routed.sent_[s].entries);
      require_lengths_fit(step.routed.headers_out_[s], routing_.slots()[s].feature);
    }
    if (step.batch.fixed_sizes()) return expect_headers(step);
    all_to_all<IdMessageHeader>(communicator_, step.routed.headers_out_, step.routed.counts_out_,
                                step.routed.headers_in_, step.routed.counts_in_);
    check_headers(step);
  }

  /// Other ranks' batches are like this one's.
  void expect_headers(StepState& step) {
    auto next = step.routed.headers_in_.begin();
    for (const WireSlot& from : routing_.served()) {
      const Slot& slot = *from.slot;
      const bool direct = from.rank == routing_.rank() && slot.whole;  // and sends nothing
      const op::Bags<Id> bags = direct ? op::Bags<Id>{} : step.bags_to_route(slot.feature);
      *next++ = header(step, slot.feature, bags.bags, bags.bags == 0 ? 0 : bags.entry_bound);
    }
  }

  /// What ranks must have in common shows where they meet anyway.
  void check_headers(const StepState& step) const {
    auto header = step.routed.headers_in_.begin();
    for (const WireSlot& from : routing_.served()) {
      require(header->id_size == sizeof(Id),
              "route on rank {}: rank {} gives ids of {} bytes, this rank ids of {}; all must be "
              "of one type",
              routing_.rank(), from.rank, header->id_size, sizeof(Id));
      require_same_rate("route", routing_.rank(), step.batch.learning_rate(), from.rank,
                        header->learning_rate);
      ++header;
    }
  }

  void pack(StepState& step) {
    const BlockAlignment blocks = block_alignment(communicator_);
    std::size_t samples = 0, positions = 0;
    BlockPlaces<std::byte> out(blocks, step.routed.counts_out_, routing_.ranks());
    step.routed.places_out_.resize(routing_.slots().size());
    for (const WireSlot& to : routing_.requested()) {
      const std::size_t s = to.index;
      step.routed.places_out_[s] = out.take(to.rank, message(step.routed.headers_out_[s]).size);
      if (!packs_samples(step, s)) continue;
      samples += static_cast<std::size_t>(step.routed.sent_[s].bags);
      if (step.routed.headers_out_[s].weighted != 0)
        positions += static_cast<std::size_t>(step.routed.sent_[s].entries);
    }
    BlockPlaces<std::byte> in(blocks, step.routed.counts_in_, routing_.ranks());
    step.routed.places_in_.clear();
    auto header = step.routed.headers_in_.begin();
    for (const WireSlot& from : routing_.served())
      step.routed.places_in_.push_back(in.take(from.rank, message(*header++).size));
    const std::size_t bytes_out = out.end();
    step.routed.ids_in_.resize(backend_, in.end());
    step.routed.ids_out_.resize(backend_, bytes_out);
    // room that is left over travels, too
    if (step.batch.fixed_sizes()) backend_.fill_zero(step.routed.ids_out_.data(), bytes_out);
    step.routed.samples_.resize(backend_, samples);
    step.routed.positions_.resize(backend_, positions);
    std::int32_t* next_sample = step.routed.samples_.data();
    std::int64_t* next_position = step.routed.positions_.data();
    if (step.routed.pack_jobs_.empty()) return;
    Block* next_block = step.routed.blocks_.data();
    for (const SlotChain& chain : routing_.chains())
      for (const int s : chain.slots) {
        Block& block = *next_block++;
        const IdMessage m = message(step.routed.headers_out_[s]);
        std::byte* at = step.routed.ids_out_.data() + step.routed.places_out_[s];
        if (m.has_lengths) block.lengths = reinterpret_cast<std::uint32_t*>(at + m.lengths);
        block.ids = reinterpret_cast<Id*>(at + m.ids);
        if (m.has_weights) block.weights = reinterpret_cast<float*>(at + m.weights);
        if (m.has_scales) block.bag_scale = reinterpret_cast<float*>(at + m.scales);
        if (!packs_samples(step, s)) continue;
        typename RoutedIds<Id, Backend>::Sent& sent = step.routed.sent_[s];
        sent.samples = block.samples = next_sample;
        next_sample += sent.bags;
        if (m.has_weights) {
          sent.positions = block.positions = next_position;
          next_position += sent.entries;
        }
      }
    op::run<op::PackBags<Id>>(backend_, {.jobs = step.routed.pack_jobs_, .counted = true});
  }

  void unpack(StepState& step) {
    std::size_t offsets = 0;
    for (const IdMessageHeader& header : step.routed.headers_in_)
      if (header.one_hot == 0) offsets += static_cast<std::size_t>(header.bags) + 1;
    std::int64_t* next_offsets = step.routed.offsets_.resize(backend_, offsets).data();
    step.routed.offset_jobs_.clear();
    auto next_header = step.routed.headers_in_.begin();
    auto next_arrival = step.routed.places_in_.begin();
    for (const WireSlot& from : routing_.served()) {
      const IdMessageHeader& header = *next_header++;
      const IdMessage m = message(header);
      const std::byte* at = step.routed.ids_in_.data() + *next_arrival++;
      op::Bags<Id>& bags = step.routed.received_[from.index];
      bags.bags = header.bags;
      bags.entry_bound = header.entries;
      bags.ids = reinterpret_cast<const Id*>(at + m.ids);
      if (m.has_lengths) {
        bags.offsets = next_offsets;
        step.routed.offset_jobs_.push_back(
            {reinterpret_cast<const std::uint32_t*>(at + m.lengths), next_offsets, header.bags});
        next_offsets += header.bags + 1;
      }
      if (m.has_weights) bags.weights = reinterpret_cast<const float*>(at + m.weights);
      if (m.has_scales) bags.bag_scale = reinterpret_cast<const float*>(at + m.scales);
    }
    op::run<op::OffsetsFromLengths>(backend_, {step.routed.offset_jobs_});
  }

  const Backend& backend_;
  Communicator& communicator_;
  const RankLayout& routing_;
};

}  // namespace detail

}}  // namespace tessera::v0
