// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/op/entry_values.hpp>
#include <tessera/stage/optional_collectives.hpp>
#include <tessera/stage/served_groups.hpp>
#include <tessera/stage/step.hpp>
#include <tessera/tables/table_store.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// Gradients of per-id weights: owners work out the dot product of each id's row with its bag's
/// gradient, before the update changes the rows; one float per id and column part goes back to the
/// rank that gave the id, which adds the parts.
template <class Store, class Backend, class Comm>
class WeightGradientStage {
 public:
  WeightGradientStage(const Backend& backend, Comm& communicator, const Store& store)
      : backend_(backend),
        communicator_(communicator),
        store_(store),
        layout_(store.layout()),
        routing_(store.routing()) {}

  static void check_room(const char* call, std::span<const float> out, std::int64_t ids) {
    require(std::ssize(out) == ids, "{}: room for {} weight gradients, the batch has {} ids", call,
            out.size(), ids);
  }

  /// Gradients have arrived. Collective.
  template <IdType Id>
  void run_stage(Step<Id, Backend>& step, MatrixView<const float> gradient, std::span<float> out) {
    backend_.fill_zero(out.data(), out.size_bytes());
    if (in_place(step)) {
      compute<Id>(step, gradient,
                  [&](const Slot& slot, const op::Bags<Id>&, std::size_t, std::size_t) {
                    return out.data() + step.inputs[slot.feature].base;
                  });
      scale_means(step, out);
      return;
    }
    size_owner(step);
    compute<Id>(step, gradient,
                [&](const Slot&, const op::Bags<Id>& bags, std::size_t part, std::size_t received) {
                  return owner_dots_.data() + first_dot_[received] +
                         part * static_cast<std::size_t>(bags.entry_bound);
                });
    if (step.model_parallel) {
      add_own(step, out);
    } else {
      size_requester(step);
      if (routing_.exchanges())
        detail::all_to_all<float>(communicator_, owner_dots_.span(), owner_counts_,
                                  requester_dots_.span(), requester_counts_);
      else
        std::swap(owner_dots_,
                  requester_dots_);  // all slots are this rank's own, in the same order
      add_received(step, out);
      add_distinct(step, gradient, out);
    }
    scale_means(step, out);
  }

 private:
  bool weighted(const Slot& slot) const { return layout_.features[slot.feature].weighted; }
  /// Whether the dots are the gradients, in the order of the batch's ids: not where ids were taken
  /// out of it.
  template <IdType Id>
  bool in_place(const Step<Id, Backend>& step) const {
    if (!routing_.in_place()) return false;
    for (int f = 0; f < std::ssize(layout_.features); ++f)
      if (step.inputs[f].positions != nullptr) return false;
    return true;
  }
  /// Weights of features whose duplicates do not travel do not either: the rows are here.
  template <IdType Id>
  bool travels(const Step<Id, Backend>& step, const Slot& slot) const {
    return weighted(slot) && !step.distinct.active(slot.feature);
  }
  template <IdType Id>
  static std::int64_t entries(const op::Bags<Id>& bags) {
    return bags.bags == 0 ? 0 : bags.entry_bound;
  }

  /// Own slots' dots lie by source rank, slot, part.
  template <IdType Id>
  void size_owner(Step<Id, Backend>& step) {
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks());
    owner_counts_.assign(ranks, 0);
    first_dot_.assign(step.received.size(), 0);
    const detail::BlockAlignment blocks = detail::block_alignment(communicator_);
    std::size_t total = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::size_t begin = total;
      for (std::size_t k = 0; k < routing_.slots_from(static_cast<int>(r)); ++k) {
        const Slot& slot = routing_.own_slot(k);
        // An own batch without ids may have no weights, and yet room for some.
        const bool own = static_cast<int>(r) == routing_.rank();
        if (own ? !travels(step, slot) : step.received[k * ranks + r].weights == nullptr) continue;
        first_dot_[k * ranks + r] = total;
        total +=
            static_cast<std::size_t>(entries(step.received[k * ranks + r])) * slot.parts.size();
      }
      owner_counts_[r] = blocks.padded<float>(total - begin);
      total = begin + owner_counts_[r];
    }
    owner_dots_.resize(backend_, total);
    // room that is left over travels, too
    if (step.fixed_sizes()) backend_.fill_zero(owner_dots_.data(), total * sizeof(float));
  }

  /// Dots of the entries of a slot's part go to output_of(slot, bags, part, place in received),
  /// parallel to the bags' ids if in place, else to their entries alone.
  template <IdType Id, class OutputOf>
  void compute(Step<Id, Backend>& step, MatrixView<const float> gradient,
               const OutputOf& output_of) {
    using Group = typename op::WeightGradients<float, Id, op::dynamic_width>::Group;
    const bool from_first_entry = !in_place(step);
    for (std::size_t a = 0; a < store_.arenas().size(); ++a) {
      std::vector<Group> groups;
      for_each_group(
          step, routing_, static_cast<int>(a), Way::gradients,
          [&](const op::Bags<Id>& bags, const Slot& slot, std::size_t part, std::size_t received,
              float* packed) {
            if (bags.weights == nullptr || bags.entry_bound == 0) return;
            const SlotPart& p = slot.parts[part];
            const MatrixView<const float> own = step.gradient_of(slot, p, gradient);
            const bool direct = packed == nullptr;
            const op::GradientGroup<Id> source{step.resident.placed(bags, received, part),
                                               direct ? own.data : packed,
                                               direct ? own.stride : p.width};
            groups.push_back({source, output_of(slot, bags, part, received), from_first_entry});
          });
      store_.with_weights(a, [&]<int Width, class T>(const T* weights) {
        using Op = op::WeightGradients<T, Id, Width>;
        std::vector<typename Op::Group> of_width;
        for (const Group& group : groups)
          of_width.push_back({group.source, group.output, group.from_first_entry});
        op::run<Op>(backend_, {weights, store_.arenas()[a].width(), of_width});
      });
    }
  }

  /// Entries of a slot as this rank sent them.
  template <IdType Id>
  std::int64_t sent_entries(const Step<Id, Backend>& step, std::size_t s) const {
    const Slot& slot = routing_.slots()[s];
    return routing_.direct(slot) ? entries(step.inputs.part(slot.feature, 0))
                                 : step.sent[s].entries;
  }

  template <IdType Id>
  void size_requester(Step<Id, Backend>& step) {
    requester_counts_.assign(static_cast<std::size_t>(routing_.ranks()), 0);
    for (std::size_t s = 0; s < routing_.slots().size(); ++s) {
      const Slot& slot = routing_.slots()[s];
      if (travels(step, slot))
        requester_counts_[slot.rank] +=
            static_cast<std::size_t>(sent_entries(step, s)) * slot.parts.size();
    }
    const detail::BlockAlignment blocks = detail::block_alignment(communicator_);
    std::size_t total = 0;
    for (std::size_t& count : requester_counts_) total += count = blocks.padded<float>(count);
    requester_dots_.resize(backend_, total);
  }

  template <IdType Id>
  void add_received(Step<Id, Backend>& step, std::span<float> out) {
    std::vector<op::AddEntryValues::Job> jobs;
    const float *dots = nullptr, *block = requester_dots_.data();
    int begun = 0;  // blocks
    for (std::size_t s = 0; s < routing_.slots().size(); ++s) {
      const Slot& slot = routing_.slots()[s];
      if (!travels(step, slot)) continue;
      for (; begun <= slot.rank; ++begun)
        dots = std::exchange(block, block + requester_counts_[static_cast<std::size_t>(begun)]);
      const FeatureInput<Id>& input = step.inputs[slot.feature];
      const op::AddEntryValues::Job job{.count = sent_entries(step, s),
                                        .entries = step.sent[s].positions,
                                        .offsets = input.bags.offsets,
                                        .bags = input.bags.bags,
                                        .positions = input.positions,
                                        .base = input.base,
                                        .target = out.data()};
      add_parts(jobs, slot, dots, job);
    }
    op::run<op::AddEntryValues>(backend_, {jobs});
  }

  /// Model-parallel input: the ids are this rank's own.
  template <IdType Id>
  void add_own(Step<Id, Backend>& step, std::span<float> out) {
    std::vector<op::AddEntryValues::Job> jobs;
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks());
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t k = 0; k < routing_.slots_from(static_cast<int>(r)); ++k) {
        const Slot& slot = routing_.own_slot(k);
        const op::Bags<Id>& bags = step.received[k * ranks + r];
        if (!weighted(slot) || bags.bags == 0) continue;
        const FeatureInput<Id>& input = step.inputs[slot.feature];
        // One-hot parts of the batch count their entries from their first sample. What was cut
        // knows its entries' positions in the part.
        const std::int64_t shift = input.bags.offsets == nullptr ? step.sample_begin[r] : 0;
        const float* dots = owner_dots_.data() + first_dot_[k * ranks + r];
        const op::AddEntryValues::Job job{
            .count = bags.entry_bound,
            .entries = step.received_positions[k * ranks + r],
            .offsets = bags.offsets,
            .bags = bags.bags,
            .positions = input.positions == nullptr ? nullptr : input.positions + shift,
            .base = input.base + shift,
            .target = out.data()};
        add_parts(jobs, slot, dots, job);
      }
    op::run<op::AddEntryValues>(backend_, {jobs});
  }

  /// Features whose rows came here unpooled.
  template <IdType Id>
  void add_distinct(Step<Id, Backend>& step, MatrixView<const float> gradient,
                    std::span<float> out) {
    for (std::size_t i = 0; i < layout_.features.size(); ++i) {
      const int f = static_cast<int>(i);
      if (!layout_.features[i].weighted || !step.distinct.active(f) ||
          step.distinct.ids(f).bags == 0)
        continue;
      const op::Bags<std::int32_t>& bags = step.distinct.indices(f);
      const MatrixView<float> rows = step.distinct.rows(f);
      requester_dots_.resize(backend_, static_cast<std::size_t>(bags.entry_bound));
      Store::with_width(
          static_cast<int>(rows.columns), [&]<int Width>(std::integral_constant<int, Width>) {
            using Op = op::WeightGradients<float, std::int32_t, Width>;
            const std::vector<typename Op::Group> groups{
                {{bags, gradient.data + step.distinct.column(f), gradient.stride},
                 requester_dots_.data() - bags.first_entry}};
            op::run<Op>(backend_, {rows.data, static_cast<int>(rows.columns), groups});
          });
      const FeatureInput<Id>& input = step.inputs[f];
      const op::AddEntryValues::Job jobs[] = {{.values = requester_dots_.data(),
                                               .count = bags.entry_bound,
                                               .first = bags.first_entry,
                                               .positions = input.positions,
                                               .base = input.base,
                                               .target = out.data()}};
      op::run<op::AddEntryValues>(backend_, {jobs});
    }
  }

  /// A job for each part of a slot. `dots` moves behind what they have.
  static void add_parts(std::vector<op::AddEntryValues::Job>& jobs, const Slot& slot,
                        const float*& dots, op::AddEntryValues::Job job) {
    for (std::size_t part = 0; part < slot.parts.size(); ++part, dots += job.count) {
      job.values = dots;
      if (job.count != 0) jobs.push_back(job);
    }
  }

  /// The weights that were used are w / ids of the bag.
  template <IdType Id>
  void scale_means(const Step<Id, Backend>& step, std::span<float> out) {
    std::vector<op::ScaleEntryValues::Job> jobs;
    for (std::size_t f = 0; f < layout_.features.size(); ++f) {
      const FeatureInput<Id>& input = step.inputs[static_cast<int>(f)];
      if (input.length_scale != nullptr)
        jobs.push_back({input.bags.offsets, input.length_scale, input.bags.bags, input.positions,
                        input.base, out.data()});
    }
    op::run<op::ScaleEntryValues>(backend_, {jobs});
  }

  const Backend& backend_;
  Comm& communicator_;
  const Store& store_;
  const Layout& layout_;
  const RankLayout& routing_;
  std::vector<std::size_t> owner_counts_, requester_counts_;  // floats per rank
  // of (own slot, source), in owner_dots_
  std::vector<std::size_t> first_dot_;
  Buffer<float, Backend> owner_dots_, requester_dots_;
};

}  // namespace tessera::inline v0
