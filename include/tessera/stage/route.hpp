// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/stage/agreement.hpp>
#include <tessera/stage/optional_collectives.hpp>
#include <tessera/stage/step.hpp>
#include <tessera/stage/wire_order.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace tessera::inline v0 {

/// Slots that a rank serves from its own ids read the inputs in place; its own samples are part
/// `own_part` of them.
template <IdType Id, class Backend>
void add_direct_slots(Step<Id, Backend>& step, const RankLayout& routing, std::size_t own_part) {
  const std::size_t ranks = static_cast<std::size_t>(routing.ranks());
  for (std::size_t k = 0; k < routing.slots_of(routing.rank()); ++k)
    if (const Slot& slot = routing.own_slot(k); slot.whole)
      step.received[k * ranks + static_cast<std::size_t>(routing.rank())] =
          step.routed(slot.feature, own_part);
}

/// Stage `route`: ids go to the ranks that own their rows. One pass over a feature's ids per chain
/// of slots, one exchange of sizes and one of ids for all features together. In a step of fixed
/// sizes nobody asks for sizes: messages have room for the bounds, and every block of rows gets
/// every bag, with -1 for ids of other blocks.
template <IdType Id, class Backend, class Communicator>
class IdExchange {
  using StepState = Step<Id, Backend>;
  using Block = typename op::PackBags<Id>::Block;

 public:
  IdExchange(const Backend& backend, Communicator& communicator, const RankLayout& routing)
      : backend_(backend), communicator_(communicator), routing_(routing) {}

  /// step.inputs hold this rank's samples of every feature.
  void data_parallel(StepState& step) {
    const std::size_t slots = routing_.slots().size();
    step.sent.assign(slots, {});
    if (routing_.exchanges()) {
      count(step);
      exchange_headers(step);
      pack(step);
      detail::all_to_all<std::byte>(communicator_, step.ids_out.span(), step.counts_out,
                                    step.ids_in.span(), step.counts_in);
      unpack(step);
    } else {
      step.received.assign(
          routing_.slots_of(routing_.rank()) * static_cast<std::size_t>(routing_.ranks()), {});
    }
    add_direct_slots(step, routing_, 0);
  }

 private:
  static IdMessage message(const IdMessageHeader& header) { return {header, sizeof(Id)}; }
  /// Whether a slot gets some bags and not all.
  bool packs_samples(const StepState& step, std::size_t s) const {
    return !step.fixed_sizes() && !routing_.slots()[s].whole;
  }
  IdMessageHeader header(const StepState& step, int feature, std::int64_t bags,
                         std::int64_t entries) const {
    const FeatureInput<Id>& input = step.inputs[feature];
    const bool distinct = step.distinct.active(feature);
    return {bags,
            entries,
            step.learning_rate,
            distinct || input.bags.offsets == nullptr,
            !distinct && input.scaled,
            !distinct && input.weighted,
            sizeof(Id)};
  }

  /// A job per chain; its blocks stand in step.blocks in the order of the chain's slots.
  void list_chains(StepState& step) {
    step.blocks.clear();
    step.pack_jobs.clear();
    for (const SlotChain& chain : routing_.chains())
      for (const int s : chain.slots)
        step.blocks.push_back({routing_.slots()[s].row_begin, routing_.slots()[s].row_end});
    std::span<Block> rest = step.blocks;
    for (const SlotChain& chain : routing_.chains()) {
      step.pack_jobs.push_back({step.routed(chain.feature), rest.first(chain.slots.size()),
                                !packs_samples(step, chain.slots.front())});
      rest = rest.subspan(chain.slots.size());
    }
  }

  void count(StepState& step) {
    list_chains(step);
    if (step.pack_jobs.empty()) return;
    op::run<op::PackBags<Id>>(backend_, {step.pack_jobs, true});
    const Block* block = step.blocks.data();
    for (const SlotChain& chain : routing_.chains())
      for (const int s : chain.slots) {
        step.sent[s].bags = block->bags;
        step.sent[s].entries = block++->entries;
      }
  }

  void exchange_headers(StepState& step) {
    const int ranks = routing_.ranks();
    step.headers_out.resize(routing_.slots().size());
    step.counts_out.resize(static_cast<std::size_t>(ranks));
    step.counts_in.resize(static_cast<std::size_t>(ranks));
    std::size_t incoming = 0;
    for (int r = 0; r < ranks; ++r) {
      step.counts_out[r] = routing_.slots_of(r);
      incoming += step.counts_in[r] = routing_.slots_from(r);
    }
    step.headers_in.resize(incoming);
    for (std::size_t s = 0; s < routing_.slots().size(); ++s) {
      step.headers_out[s] =
          header(step, routing_.slots()[s].feature, step.sent[s].bags, step.sent[s].entries);
      detail::require_lengths_fit(step.headers_out[s], routing_.slots()[s].feature);
    }
    if (step.fixed_sizes()) return expect_headers(step);
    detail::all_to_all<IdMessageHeader>(communicator_, step.headers_out, step.counts_out,
                                        step.headers_in, step.counts_in);
    check_headers(step);
  }

  /// Other ranks' batches are like this one's.
  void expect_headers(StepState& step) {
    auto next = step.headers_in.begin();
    for (const WireSlot& from : routing_.served()) {
      const Slot& slot = *from.slot;
      const bool direct = from.rank == routing_.rank() && slot.whole;  // and sends nothing
      const op::Bags<Id> bags = direct ? op::Bags<Id>{} : step.routed(slot.feature);
      *next++ = header(step, slot.feature, bags.bags, bags.bags == 0 ? 0 : bags.entry_bound);
    }
  }

  /// What ranks must have in common shows where they meet anyway.
  void check_headers(const StepState& step) const {
    auto header = step.headers_in.begin();
    for (const WireSlot& from : routing_.served()) {
      require(header->id_size == sizeof(Id),
              "route on rank {}: rank {} gives ids of {} bytes, this rank ids of {}; all must be "
              "of one type",
              routing_.rank(), from.rank, header->id_size, sizeof(Id));
      detail::require_same_rate("route", routing_.rank(), step.learning_rate, from.rank,
                                header->learning_rate);
      ++header;
    }
  }

  void pack(StepState& step) {
    const detail::BlockAlignment blocks = detail::block_alignment(communicator_);
    std::size_t samples = 0, positions = 0;
    detail::BlockPlaces<std::byte> out(blocks, step.counts_out, routing_.ranks());
    step.message_begin.resize(routing_.slots().size());
    for (const WireSlot& to : routing_.requested()) {
      const std::size_t s = to.index;
      step.message_begin[s] = out.take(to.rank, message(step.headers_out[s]).size);
      if (!packs_samples(step, s)) continue;
      samples += static_cast<std::size_t>(step.sent[s].bags);
      if (step.headers_out[s].weighted != 0)
        positions += static_cast<std::size_t>(step.sent[s].entries);
    }
    detail::BlockPlaces<std::byte> in(blocks, step.counts_in, routing_.ranks());
    step.arrival_begin.clear();
    auto header = step.headers_in.begin();
    for (const WireSlot& from : routing_.served())
      step.arrival_begin.push_back(in.take(from.rank, message(*header++).size));
    const std::size_t bytes_out = out.end();
    step.ids_in.resize(backend_, in.end());
    step.ids_out.resize(backend_, bytes_out);
    // room that is left over travels, too
    if (step.fixed_sizes()) backend_.fill_zero(step.ids_out.data(), bytes_out);
    step.samples.resize(backend_, samples);
    step.positions.resize(backend_, positions);
    std::int32_t* next_sample = step.samples.data();
    std::int64_t* next_position = step.positions.data();
    if (step.pack_jobs.empty()) return;
    Block* next_block = step.blocks.data();
    for (const SlotChain& chain : routing_.chains())
      for (const int s : chain.slots) {
        Block& block = *next_block++;
        const IdMessage m = message(step.headers_out[s]);
        std::byte* at = step.ids_out.data() + step.message_begin[s];
        if (m.has_lengths) block.lengths = reinterpret_cast<std::uint32_t*>(at + m.lengths);
        block.ids = reinterpret_cast<Id*>(at + m.ids);
        if (m.has_weights) block.weights = reinterpret_cast<float*>(at + m.weights);
        if (m.has_scales) block.bag_scale = reinterpret_cast<float*>(at + m.scales);
        if (!packs_samples(step, s)) continue;
        typename StepState::Sent& sent = step.sent[s];
        sent.samples = block.samples = next_sample;
        next_sample += sent.bags;
        if (m.has_weights) {
          sent.positions = block.positions = next_position;
          next_position += sent.entries;
        }
      }
    op::run<op::PackBags<Id>>(backend_, {step.pack_jobs, false});
  }

  void unpack(StepState& step) {
    std::size_t offsets = 0;
    for (const IdMessageHeader& header : step.headers_in)
      if (header.one_hot == 0) offsets += static_cast<std::size_t>(header.bags) + 1;
    std::int64_t* next_offsets = step.offsets.resize(backend_, offsets).data();
    step.received.assign(
        routing_.slots_of(routing_.rank()) * static_cast<std::size_t>(routing_.ranks()), {});
    step.offset_jobs.clear();
    auto next_header = step.headers_in.begin();
    auto next_arrival = step.arrival_begin.begin();
    for (const WireSlot& from : routing_.served()) {
      const IdMessageHeader& header = *next_header++;
      const IdMessage m = message(header);
      const std::byte* at = step.ids_in.data() + *next_arrival++;
      op::Bags<Id>& bags = step.received[from.index];
      bags.bags = header.bags;
      bags.entry_bound = header.entries;
      bags.ids = reinterpret_cast<const Id*>(at + m.ids);
      if (m.has_lengths) {
        bags.offsets = next_offsets;
        step.offset_jobs.push_back(
            {reinterpret_cast<const std::uint32_t*>(at + m.lengths), next_offsets, header.bags});
        next_offsets += header.bags + 1;
      }
      if (m.has_weights) bags.weights = reinterpret_cast<const float*>(at + m.weights);
      if (m.has_scales) bags.bag_scale = reinterpret_cast<const float*>(at + m.scales);
    }
    op::run<op::OffsetsFromLengths>(backend_, {step.offset_jobs});
  }

  const Backend& backend_;
  Communicator& communicator_;
  const RankLayout& routing_;
};

}  // namespace tessera::inline v0
