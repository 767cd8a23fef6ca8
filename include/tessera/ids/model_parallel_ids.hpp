// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/optional_collectives.hpp>
#include <tessera/ids/routed_ids.hpp>
#include <tessera/ids/wire_order.hpp>
#include <tessera/sharding/policies.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// RoutedIds::cut, for model-parallel input.
namespace tessera { inline namespace v0 { namespace detail {

template <IdType Id, class Backend>
template <class State, class Comm>
void RoutedIds<Id, Backend>::cut(const Backend& backend, Comm& communicator, const Layout& layout,
                                 const RankLayout& routing, const State& step) {
  begin(routing);
  received_positions_.assign(received_.size(), nullptr);
  measure_cuts(backend, block_alignment(communicator), layout, routing, step);
  pack_cuts(backend, routing);
  for (std::size_t s = 0; s < sent_.size(); ++s)
    if (const Slot& slot = routing.slots()[s]; slot.whole)
      sent_[s].bags = step.distinct.active(slot.feature) ? step.distinct.found(slot.feature).rows
                                                         : step.batch.samples();
  if (!routing.all_whole()) tell_samples(backend, communicator, routing);
  set_direct(routing, step);
}

/// Returns the bags of a slot's source that are cut.
template <IdType Id, class Backend>
template <class State>
op::Bags<Id> RoutedIds<Id, Backend>::cut_from(const RankLayout& routing, const State& step,
                                              const WireSlot& of) {
  const auto source = static_cast<std::size_t>(of.rank);
  return of.rank == routing.rank() ? step.bags_to_route(of.slot->feature, source)
                                   : step.bags_to_route_of(of.slot->feature, source);
}

/// Lists a job and a block per own slot and source that is not whole.
template <IdType Id, class Backend>
template <class State>
void RoutedIds<Id, Backend>::list_cuts(const Backend& backend, const RankLayout& routing,
                                       const State& step) {
  pack_jobs_.clear();
  blocks_.clear();
  for (const WireSlot& of : routing.served()) {
    if (of.slot->whole) continue;
    blocks_.push_back({of.slot->row_begin, of.slot->row_end});
    pack_jobs_.push_back({cut_from(routing, step, of), {}, false});
  }
  for (std::size_t j = 0; j < blocks_.size(); ++j) pack_jobs_[j].blocks = {&blocks_[j], 1};
  if (!pack_jobs_.empty())
    op::run<op::PackBags<Id>>(backend, {.jobs = pack_jobs_, .count_only = true});
}

template <IdType Id, class Backend>
template <class State>
void RoutedIds<Id, Backend>::measure_cuts(const Backend& backend, const BlockAlignment& alignment,
                                          const Layout& layout, const RankLayout& routing,
                                          const State& step) {
  list_cuts(backend, routing, step);
  headers_in_.clear();
  BlockPlaces<std::int32_t> samples(alignment, counts_out_, routing.ranks());
  places_in_.clear();  // of the samples of what is cut
  std::size_t bytes = 0, offsets = 0, positions = 0;
  auto next_block = blocks_.begin();
  for (const WireSlot& of : routing.served()) {
    const Slot& slot = *of.slot;
    const op::Bags<Id> bags = cut_from(routing, step, of);
    IdMessageHeader& header = headers_in_.emplace_back();
    if (slot.whole) {
      received_[of.index] = bags;
      header.bags = bags.bags;
      continue;
    }
    const Block& block = *next_block++;
    header = {block.bags,
              block.entries,
              step.batch.learning_rate(),
              bags.offsets == nullptr,
              step.batch[slot.feature].scaled,
              step.batch[slot.feature].weighted,
              sizeof(Id)};
    require_lengths_fit(header, slot.feature);
    bytes += message(header).size;
    places_in_.push_back(samples.take(of.rank, static_cast<std::size_t>(block.bags)));
    if (header.one_hot == 0) offsets += static_cast<std::size_t>(block.bags) + 1;
    if (layout.features[slot.feature].weighted)
      positions += static_cast<std::size_t>(block.entries);
  }
  positions_.resize(backend, positions);
  ids_in_.resize(backend, bytes);
  cut_samples_.resize(backend, samples.end());
  offsets_.resize(backend, offsets);
}

template <IdType Id, class Backend>
void RoutedIds<Id, Backend>::pack_cuts(const Backend& backend, const RankLayout& routing) {
  std::byte* at = ids_in_.data();
  std::int64_t* next_offsets = offsets_.data();
  std::int64_t* next_position = positions_.data();
  offset_jobs_.clear();
  auto next_header = headers_in_.begin();
  auto next_block = blocks_.begin();
  auto next_samples = places_in_.begin();
  for (const WireSlot& of : routing.served()) {
    const IdMessageHeader& header = *next_header++;
    if (of.slot->whole) continue;
    const IdMessage m = message(header);
    Block& block = *next_block++;
    m.template pack<Id>(block, at);
    receive(of.index, header, at, next_offsets);
    if (m.has_weights) {
      received_positions_[of.index] = block.positions = next_position;
      next_position += header.entries;
    }
    block.samples = cut_samples_.data() + *next_samples++;
    at += m.size;
  }
  if (pack_jobs_.empty()) return;
  op::run<op::PackBags<Id>>(backend, {.jobs = pack_jobs_, .counted = true});
  op::run<op::OffsetsFromLengths>(backend, {offset_jobs_});
}

template <IdType Id, class Backend>
template <class Comm>
void RoutedIds<Id, Backend>::tell_samples(const Backend& backend, Comm& communicator,
                                          const RankLayout& routing) {
  const int ranks = routing.ranks();
  std::vector<std::size_t> sizes_out(static_cast<std::size_t>(ranks)),
      sizes_in(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    sizes_out[r] = routing.slots_from(r);
    sizes_in[r] = routing.slots_of(r);
  }
  headers_out_.resize(routing.slots().size());
  all_to_all<IdMessageHeader>(communicator, headers_in_, sizes_out, headers_out_, sizes_in);
  BlockPlaces<std::int32_t> places(block_alignment(communicator), counts_in_, ranks);
  places_out_.clear();
  for (const WireSlot& to : routing.requested()) {
    if (to.slot->whole) continue;
    sent_[to.index].bags = headers_out_[to.index].bags;
    places_out_.push_back(places.take(to.rank, static_cast<std::size_t>(sent_[to.index].bags)));
  }
  const std::int32_t* const samples = samples_.resize(backend, places.end()).data();
  all_to_all<std::int32_t>(communicator, cut_samples_.span(), counts_out_, samples_.span(),
                           counts_in_);
  auto next = places_out_.begin();
  for (const WireSlot& to : routing.requested())
    if (!to.slot->whole) sent_[to.index].samples = samples + *next++;
}

}}}  // namespace tessera::v0::detail
