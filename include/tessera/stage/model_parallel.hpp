// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/policies.hpp>
#include <tessera/stage/optional_collectives.hpp>
#include <tessera/stage/route.hpp>
#include <tessera/stage/wire_order.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::inline v0 {

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

  /// Each rank's samples: as given, or the batch cut evenly.
  static void set_sample_begin(StepState& step, const RankLayout& routing, std::int64_t batch,
                               std::span<const std::int64_t> given) {
    const int ranks = routing.ranks();
    require(given.empty() || static_cast<int>(given.size()) == ranks + 1,
            "forward_model_parallel: {} sample boundaries for {} ranks; give {}", given.size(),
            ranks, ranks + 1);
    step.sample_begin.resize(static_cast<std::size_t>(ranks) + 1);
    for (int r = 0; r <= ranks; ++r)
      step.sample_begin[r] = given.empty() ? even_cut(batch, ranks, r) : given[r];
    require(step.sample_begin[0] == 0 && step.sample_begin[ranks] == batch &&
                std::is_sorted(step.sample_begin.begin(), step.sample_begin.end()),
            "forward_model_parallel: sample boundaries must ascend from 0 to the batch ({})",
            batch);
    step.batch = step.sample_begin[routing.rank() + 1] - step.sample_begin[routing.rank()];
  }

  /// step.inputs hold all ranks' samples of the local features; rank r's are [sample_begin[r],
  /// sample_begin[r+1]). LocalDistinctRows has run where rows stay as they are.
  void run_stage(StepState& step) {
    step.sent.assign(routing_.slots().size(), {});
    step.received.assign(
        routing_.slots_of(routing_.rank()) * static_cast<std::size_t>(routing_.ranks()), {});
    step.received_positions.assign(step.received.size(), nullptr);
    measure(step);
    cut(step);
    for (std::size_t s = 0; s < step.sent.size(); ++s)
      if (const Slot& slot = routing_.slots()[s]; slot.whole)
        step.sent[s].bags = step.distinct.active(slot.feature)
                                ? step.distinct.found(slot.feature).rows
                                : step.batch;
    if (!routing_.all_whole()) tell_samples(step);
    add_direct_slots(step, routing_, static_cast<std::size_t>(routing_.rank()));
  }

 private:
  /// The bags of a slot's source that are cut.
  op::Bags<Id> cut_from(const StepState& step, const WireSlot& of) const {
    const auto source = static_cast<std::size_t>(of.rank);
    return of.rank == routing_.rank() ? step.routed(of.slot->feature, source)
                                      : step.routed_of(of.slot->feature, source);
  }

  /// A job per own slot and source that is not whole, in step.pack_jobs; its block in step.blocks.
  void list_cuts(StepState& step) {
    step.pack_jobs.clear();
    step.blocks.clear();
    for (const WireSlot& of : routing_.served()) {
      if (of.slot->whole) continue;
      step.blocks.push_back({of.slot->row_begin, of.slot->row_end});
      step.pack_jobs.push_back({cut_from(step, of), {}, false});
    }
    for (std::size_t j = 0; j < step.blocks.size(); ++j)
      step.pack_jobs[j].blocks = {&step.blocks[j], 1};
    if (!step.pack_jobs.empty()) op::run<op::PackBags<Id>>(backend_, {step.pack_jobs, true});
  }

  void measure(StepState& step) {
    list_cuts(step);
    step.headers_in.clear();
    detail::BlockPlaces<std::int32_t> samples(detail::block_alignment(communicator_),
                                              step.counts_out, routing_.ranks());
    step.arrival_begin.clear();  // of the samples of what is cut
    std::size_t bytes = 0, offsets = 0, positions = 0;
    auto next_block = step.blocks.begin();
    for (const WireSlot& of : routing_.served()) {
      const Slot& slot = *of.slot;
      const op::Bags<Id> bags = cut_from(step, of);
      IdMessageHeader& header = step.headers_in.emplace_back();
      if (slot.whole) {
        step.received[of.index] = bags;
        header.bags = bags.bags;
        continue;
      }
      const Block& block = *next_block++;
      header = {block.bags,
                block.entries,
                step.learning_rate,
                bags.offsets == nullptr,
                step.inputs[slot.feature].scaled,
                step.inputs[slot.feature].weighted,
                sizeof(Id)};
      detail::require_lengths_fit(header, slot.feature);
      bytes += IdMessage(header, sizeof(Id)).size;
      step.arrival_begin.push_back(samples.take(of.rank, static_cast<std::size_t>(block.bags)));
      if (header.one_hot == 0) offsets += static_cast<std::size_t>(block.bags) + 1;
      if (layout_.features[slot.feature].weighted)
        positions += static_cast<std::size_t>(block.entries);
    }
    step.positions.resize(backend_, positions);
    step.ids_in.resize(backend_, bytes);
    step.cut_samples.resize(backend_, samples.end());
    step.offsets.resize(backend_, offsets);
  }

  void cut(StepState& step) {
    std::byte* at = step.ids_in.data();
    std::int64_t* next_offsets = step.offsets.data();
    std::int64_t* next_position = step.positions.data();
    step.offset_jobs.clear();
    auto next_header = step.headers_in.begin();
    auto next_block = step.blocks.begin();
    auto next_samples = step.arrival_begin.begin();
    for (const WireSlot& of : routing_.served()) {
      const IdMessageHeader& header = *next_header++;
      if (of.slot->whole) continue;
      const IdMessage m(header, sizeof(Id));
      Block& block = *next_block++;
      op::Bags<Id>& received = step.received[of.index];
      received.bags = header.bags;
      received.entry_bound = header.entries;
      received.ids = block.ids = reinterpret_cast<Id*>(at + m.ids);
      if (m.has_lengths) {
        block.lengths = reinterpret_cast<std::uint32_t*>(at + m.lengths);
        received.offsets = next_offsets;
        step.offset_jobs.push_back({block.lengths, next_offsets, header.bags});
        next_offsets += header.bags + 1;
      }
      if (m.has_weights)
        received.weights = block.weights = reinterpret_cast<float*>(at + m.weights);
      if (m.has_scales)
        received.bag_scale = block.bag_scale = reinterpret_cast<float*>(at + m.scales);
      if (m.has_weights) {
        step.received_positions[of.index] = block.positions = next_position;
        next_position += header.entries;
      }
      block.samples = step.cut_samples.data() + *next_samples++;
      at += m.size;
    }
    if (step.pack_jobs.empty()) return;
    op::run<op::PackBags<Id>>(backend_, {step.pack_jobs, false});
    op::run<op::OffsetsFromLengths>(backend_, {step.offset_jobs});
  }

  void tell_samples(StepState& step) {
    const int ranks = routing_.ranks();
    std::vector<std::size_t> sizes_out(static_cast<std::size_t>(ranks)),
        sizes_in(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      sizes_out[r] = routing_.slots_from(r);
      sizes_in[r] = routing_.slots_of(r);
    }
    step.headers_out.resize(routing_.slots().size());
    detail::all_to_all<IdMessageHeader>(communicator_, step.headers_in, sizes_out, step.headers_out,
                                        sizes_in);
    detail::BlockPlaces<std::int32_t> places(detail::block_alignment(communicator_), step.counts_in,
                                             ranks);
    step.message_begin.clear();
    for (const WireSlot& to : routing_.requested()) {
      if (to.slot->whole) continue;
      step.sent[to.index].bags = step.headers_out[to.index].bags;
      step.message_begin.push_back(
          places.take(to.rank, static_cast<std::size_t>(step.sent[to.index].bags)));
    }
    const std::int32_t* const samples = step.samples.resize(backend_, places.end()).data();
    detail::all_to_all<std::int32_t>(communicator_, step.cut_samples.span(), step.counts_out,
                                     step.samples.span(), step.counts_in);
    auto next = step.message_begin.begin();
    for (const WireSlot& to : routing_.requested())
      if (!to.slot->whole) step.sent[to.index].samples = samples + *next++;
  }

  const Backend& backend_;
  Communicator& communicator_;
  const Layout& layout_;
  const RankLayout& routing_;
};

}  // namespace tessera::inline v0
