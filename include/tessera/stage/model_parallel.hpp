// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/policies.hpp>
#include <tessera/stage/optional_collectives.hpp>
#include <tessera/stage/route.hpp>
#include <tessera/stage/wire_order.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Stage `route` for model-parallel input: every rank already holds the global batch's ids of the
/// features that its shards read, so no id travels. Owners cut what they need; for tables cut by
/// rows they tell each rank which of its samples will get a vector.
template <IdType Id, class Backend, class Communicator>
class LocalIdExchange {
  using StepState = Step<Id, Backend>;
  using Block = typename op::PackBags<Id>::Block;

 public:
  LocalIdExchange(const Backend& backend, Communicator& communicator, const Layout& layout,
                  const RankLayout& routing)
      : backend_(backend), communicator_(communicator), layout_(layout), routing_(routing) {}

  /// step.batch holds all ranks' samples of the local features; rank r's are [sample_begin[r],
  /// sample_begin[r+1]). LocalDistinctRows has run for rows that are not pooled.
  void run_stage(StepState& step) {
    step.routed.begin(routing_);
    step.routed.received_positions_.assign(step.routed.received_.size(), nullptr);
    measure(step);
    cut(step);
    for (std::size_t s = 0; s < step.routed.sent_.size(); ++s)
      if (const Slot& slot = routing_.slots()[s]; slot.whole)
        step.routed.sent_[s].bags = step.distinct.active(slot.feature)
                                        ? step.distinct.found(slot.feature).rows
                                        : step.batch.samples();
    if (!routing_.all_whole()) tell_samples(step);
    step.routed.set_direct(routing_, [&](int feature) {
      return step.bags_to_route(feature, static_cast<std::size_t>(routing_.rank()));
    });
  }

 private:
  /// The bags of a slot's source that are cut.
  op::Bags<Id> cut_from(const StepState& step, const WireSlot& of) const {
    const auto source = static_cast<std::size_t>(of.rank);
    return of.rank == routing_.rank() ? step.bags_to_route(of.slot->feature, source)
                                      : step.bags_to_route_of(of.slot->feature, source);
  }

  /// A job per own slot and source that is not whole, in step.routed.pack_jobs_; its block in
  /// step.routed.blocks_.
  void list_cuts(StepState& step) {
    step.routed.pack_jobs_.clear();
    step.routed.blocks_.clear();
    for (const WireSlot& of : routing_.served()) {
      if (of.slot->whole) continue;
      step.routed.blocks_.push_back({of.slot->row_begin, of.slot->row_end});
      step.routed.pack_jobs_.push_back({cut_from(step, of), {}, false});
    }
    for (std::size_t j = 0; j < step.routed.blocks_.size(); ++j)
      step.routed.pack_jobs_[j].blocks = {&step.routed.blocks_[j], 1};
    if (!step.routed.pack_jobs_.empty())
      op::run<op::PackBags<Id>>(backend_, {.jobs = step.routed.pack_jobs_, .count_only = true});
  }

  void measure(StepState& step) {
    list_cuts(step);
    step.routed.headers_in_.clear();
    BlockPlaces<std::int32_t> samples(block_alignment(communicator_), step.routed.counts_out_,
                                      routing_.ranks());
    step.routed.places_in_.clear();  // of the samples of what is cut
    std::size_t bytes = 0, offsets = 0, positions = 0;
    auto next_block = step.routed.blocks_.begin();
    for (const WireSlot& of : routing_.served()) {
      const Slot& slot = *of.slot;
      const op::Bags<Id> bags = cut_from(step, of);
      IdMessageHeader& header = step.routed.headers_in_.emplace_back();
      if (slot.whole) {
        step.routed.received_[of.index] = bags;
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
      bytes += IdMessage(header, sizeof(Id)).size;
      step.routed.places_in_.push_back(samples.take(of.rank, static_cast<std::size_t>(block.bags)));
      if (header.one_hot == 0) offsets += static_cast<std::size_t>(block.bags) + 1;
      if (layout_.features[slot.feature].weighted)
        positions += static_cast<std::size_t>(block.entries);
    }
    step.routed.positions_.resize(backend_, positions);
    step.routed.ids_in_.resize(backend_, bytes);
    step.routed.cut_samples_.resize(backend_, samples.end());
    step.routed.offsets_.resize(backend_, offsets);
  }

  void cut(StepState& step) {
    std::byte* at = step.routed.ids_in_.data();
    std::int64_t* next_offsets = step.routed.offsets_.data();
    std::int64_t* next_position = step.routed.positions_.data();
    step.routed.offset_jobs_.clear();
    auto next_header = step.routed.headers_in_.begin();
    auto next_block = step.routed.blocks_.begin();
    auto next_samples = step.routed.places_in_.begin();
    for (const WireSlot& of : routing_.served()) {
      const IdMessageHeader& header = *next_header++;
      if (of.slot->whole) continue;
      const IdMessage m(header, sizeof(Id));
      Block& block = *next_block++;
      op::Bags<Id>& received = step.routed.received_[of.index];
      received.bags = header.bags;
      received.entry_bound = header.entries;
      received.ids = block.ids = reinterpret_cast<Id*>(at + m.ids);
      if (m.has_lengths) {
        block.lengths = reinterpret_cast<std::uint32_t*>(at + m.lengths);
        received.offsets = next_offsets;
        step.routed.offset_jobs_.push_back({block.lengths, next_offsets, header.bags});
        next_offsets += header.bags + 1;
      }
      if (m.has_weights)
        received.weights = block.weights = reinterpret_cast<float*>(at + m.weights);
      if (m.has_scales)
        received.bag_scale = block.bag_scale = reinterpret_cast<float*>(at + m.scales);
      if (m.has_weights) {
        step.routed.received_positions_[of.index] = block.positions = next_position;
        next_position += header.entries;
      }
      block.samples = step.routed.cut_samples_.data() + *next_samples++;
      at += m.size;
    }
    if (step.routed.pack_jobs_.empty()) return;
    op::run<op::PackBags<Id>>(backend_, {.jobs = step.routed.pack_jobs_, .counted = true});
    op::run<op::OffsetsFromLengths>(backend_, {step.routed.offset_jobs_});
  }

  void tell_samples(StepState& step) {
    const int ranks = routing_.ranks();
    std::vector<std::size_t> sizes_out(static_cast<std::size_t>(ranks)),
        sizes_in(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      sizes_out[r] = routing_.slots_from(r);
      sizes_in[r] = routing_.slots_of(r);
    }
    step.routed.headers_out_.resize(routing_.slots().size());
    all_to_all<IdMessageHeader>(communicator_, step.routed.headers_in_, sizes_out,
                                step.routed.headers_out_, sizes_in);
    BlockPlaces<std::int32_t> places(block_alignment(communicator_), step.routed.counts_in_, ranks);
    step.routed.places_out_.clear();
    for (const WireSlot& to : routing_.requested()) {
      if (to.slot->whole) continue;
      step.routed.sent_[to.index].bags = step.routed.headers_out_[to.index].bags;
      step.routed.places_out_.push_back(
          places.take(to.rank, static_cast<std::size_t>(step.routed.sent_[to.index].bags)));
    }
    const std::int32_t* const samples = step.routed.samples_.resize(backend_, places.end()).data();
    all_to_all<std::int32_t>(communicator_, step.routed.cut_samples_.span(),
                             step.routed.counts_out_, step.routed.samples_.span(),
                             step.routed.counts_in_);
    auto next = step.routed.places_out_.begin();
    for (const WireSlot& to : routing_.requested())
      if (!to.slot->whole) step.routed.sent_[to.index].samples = samples + *next++;
  }

  const Backend& backend_;
  Communicator& communicator_;
  const Layout& layout_;
  const RankLayout& routing_;
};

}}}  // namespace tessera::v0::detail
