// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/routing.hpp>
#include <tessera/collection/step.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace tessera::inline v0 {

/// The bags of samples [first, first + count).
template <IdType Id>
Bags<Id> part_of(Bags<Id> bags, std::int64_t first, std::int64_t count) {
  if (bags.offsets != nullptr) {
    bags.offsets += first;
  } else {
    bags.ids += first;
    if (bags.weights != nullptr) bags.weights += first;
  }
  if (bags.bag_scale != nullptr) bags.bag_scale += first;
  bags.bags = count;
  return bags;
}

/// Slots that a rank serves from its own ids read the inputs in place; its own samples begin at `first_sample` of them.
template <IdType Id, class Backend>
void add_direct_slots(Step<Id, Backend>& step, const Routing& routing, std::int64_t first_sample) {
  const std::size_t ranks = static_cast<std::size_t>(routing.ranks());
  for (std::size_t k = 0; k < routing.slots_of(routing.rank()); ++k)
    if (const Slot& slot = routing.own_slot(k); slot.whole)
      step.received[k * ranks + static_cast<std::size_t>(routing.rank())] =
          part_of(step.inputs[slot.feature].bags, first_sample, step.batch);
}

/// Stage `route`: ids go to the ranks that own their rows. One pass over a feature's ids per chain of slots, one exchange of sizes and
/// one of ids for all features together.
template <IdType Id, class Backend, class Communicator>
class Router {
  using StepState = Step<Id, Backend>;
  using Block = typename PackBags<Id>::Block;

 public:
  Router(const Backend& backend, Communicator& communicator, const Layout& layout, const Routing& routing)
      : backend_(backend), communicator_(communicator), layout_(layout), routing_(routing) {}

  /// step.inputs hold this rank's samples of every feature.
  void data_parallel(StepState& step) {
    const std::size_t slots = routing_.slots().size();
    step.sent.assign(slots, {});
    for (const SlotChain& chain : routing_.chains()) count(step, chain, step.inputs[chain.feature].bags);
    exchange_headers(step);
    pack(step);
    communicator_.all_to_all(std::span<const std::byte>(step.ids_out.span()), step.counts_out, step.ids_in.span(), step.counts_in);
    unpack(step);
    add_direct_slots(step, routing_, 0);
  }

 private:
  SlotMessage message(const Slot& slot, const SlotHeader& header) const { return {header, sizeof(Id), layout_.features[slot.feature]}; }

  std::span<Block> blocks_of(StepState& step, const SlotChain& chain) {
    step.blocks.clear();
    for (const int s : chain.slots) step.blocks.push_back({routing_.slots()[s].row_begin, routing_.slots()[s].row_end});
    return step.blocks;
  }

  void count(StepState& step, const SlotChain& chain, const Bags<Id>& bags) {
    const std::span<Block> blocks = blocks_of(step, chain);
    run<PackBags<Id>>(backend_, {bags, blocks, routing_.slots()[chain.slots.front()].whole, true});
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      step.sent[chain.slots[i]].bags = blocks[i].bags;
      step.sent[chain.slots[i]].entries = blocks[i].entries;
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
      const FeatureInput<Id>& input = step.inputs[routing_.slots()[s].feature];
      step.headers_out[s] = {step.sent[s].bags, step.sent[s].entries, input.bags.offsets == nullptr, input.scaled};
    }
    communicator_.all_to_all(std::span<const SlotHeader>(step.headers_out), step.counts_out, std::span<SlotHeader>(step.headers_in),
                             step.counts_in);
  }

  void pack(StepState& step) {
    const int ranks = routing_.ranks();
    std::size_t bytes_out = 0, bytes_in = 0, samples = 0, positions = 0;
    step.message_begin.resize(routing_.slots().size());
    for (int r = 0; r < ranks; ++r) {
      const std::size_t begin = bytes_out;
      for (std::size_t s = routing_.slots_begin(r); s < routing_.slots_end(r); ++s) {
        const Slot& slot = routing_.slots()[s];
        step.message_begin[s] = bytes_out;
        bytes_out += message(slot, step.headers_out[s]).size;
        if (slot.whole) continue;
        samples += static_cast<std::size_t>(step.sent[s].bags);
        if (layout_.features[slot.feature].weighted) positions += static_cast<std::size_t>(step.sent[s].entries);
      }
      step.counts_out[r] = bytes_out - begin;
    }
    auto header = step.headers_in.begin();
    for (int r = 0; r < ranks; ++r) {
      const std::size_t begin = bytes_in;
      for (std::size_t k = 0; k < routing_.slots_from(r); ++k) bytes_in += message(routing_.own_slot(k), *header++).size;
      step.counts_in[r] = bytes_in - begin;
    }
    step.ids_out.resize(backend_, bytes_out);
    step.ids_in.resize(backend_, bytes_in);
    step.samples.resize(backend_, samples);
    step.positions.resize(backend_, positions);
    std::int32_t* next_sample = step.samples.data();
    std::int64_t* next_position = step.positions.data();
    for (const SlotChain& chain : routing_.chains()) {
      const FeatureInput<Id>& input = step.inputs[chain.feature];
      const std::span<Block> blocks = blocks_of(step, chain);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const std::size_t s = static_cast<std::size_t>(chain.slots[i]);
        const Slot& slot = routing_.slots()[s];
        const SlotMessage m = message(slot, step.headers_out[s]);
        std::byte* at = step.ids_out.data() + step.message_begin[s];
        if (m.has_lengths) blocks[i].lengths = reinterpret_cast<std::uint32_t*>(at + m.lengths);
        blocks[i].ids = reinterpret_cast<Id*>(at + m.ids);
        if (m.has_weights) blocks[i].weights = reinterpret_cast<float*>(at + m.weights);
        if (m.has_scales) blocks[i].bag_scale = reinterpret_cast<float*>(at + m.scales);
        if (slot.whole) continue;
        typename StepState::Sent& sent = step.sent[s];
        sent.samples = blocks[i].samples = next_sample;
        next_sample += sent.bags;
        if (m.has_weights) {
          sent.positions = blocks[i].positions = next_position;
          next_position += sent.entries;
        }
      }
      run<PackBags<Id>>(backend_, {input.bags, blocks, routing_.slots()[chain.slots.front()].whole, false});
    }
  }

  void unpack(StepState& step) {
    const int ranks = routing_.ranks();
    std::size_t offsets = 0;
    for (const SlotHeader& header : step.headers_in)
      if (header.one_hot == 0) offsets += static_cast<std::size_t>(header.bags) + 1;
    std::int64_t* next_offsets = step.offsets.resize(backend_, offsets).data();
    step.received.assign(routing_.slots_of(routing_.rank()) * static_cast<std::size_t>(ranks), {});
    step.offset_jobs.clear();
    const std::byte* at = step.ids_in.data();
    auto next_header = step.headers_in.begin();
    for (int r = 0; r < ranks; ++r)
      for (std::size_t k = 0; k < routing_.slots_from(r); ++k) {
        const SlotHeader& header = *next_header++;
        const SlotMessage m = message(routing_.own_slot(k), header);
        Bags<Id>& bags = step.received[k * static_cast<std::size_t>(ranks) + r];
        bags.bags = header.bags;
        bags.ids = reinterpret_cast<const Id*>(at + m.ids);
        if (m.has_lengths) {
          bags.offsets = next_offsets;
          step.offset_jobs.push_back({reinterpret_cast<const std::uint32_t*>(at + m.lengths), next_offsets, header.bags});
          next_offsets += header.bags + 1;
        }
        if (m.has_weights) bags.weights = reinterpret_cast<const float*>(at + m.weights);
        if (m.has_scales) bags.bag_scale = reinterpret_cast<const float*>(at + m.scales);
        at += m.size;
      }
    run<OffsetsFromLengths>(backend_, {step.offset_jobs});
  }

  const Backend& backend_;
  Communicator& communicator_;
  const Layout& layout_;
  const Routing& routing_;
};

}  // namespace tessera::inline v0
