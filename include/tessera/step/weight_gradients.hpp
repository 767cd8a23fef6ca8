// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/optional_collectives.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/wire_order.hpp>
#include <tessera/op/weight_gradients.hpp>
#include <tessera/step/step.hpp>
#include <tessera/tables/arena_kernels.hpp>
#include <tessera/tables/rank_tables.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Gradients of per-id weights: owners work out the dot product of each id's row with its bag's
/// gradient, before the update changes the rows; one float per id and column part goes back to the
/// rank that gave the id, which adds the parts.
template <class Backend, class Comm>
class WeightGradientStage {
 public:
  WeightGradientStage(const Backend& backend, Comm& communicator, const RankTables<Backend>& tables)
      : backend_(backend),
        communicator_(communicator),
        tables_(tables),
        layout_(tables.layout()),
        routing_(tables.routing()) {}

  static void check_room(const char* call, std::span<const float> out, std::int64_t ids) {
    require(std::ssize(out) == ids, "{}: room for {} weight gradients, the batch has {} ids", call,
            out.size(), ids);
  }

  /// Runs when gradients have arrived. Collective.
  template <IdType Id, Element G>
  void run_stage(Step<Id, Backend>& step, MatrixView<const G> gradient, std::span<float> out,
                 DotArena<Id, G, Backend> dot, DotWholeRows<Backend> dot_whole_rows) {
    backend_.fill_zero(out.data(), out.size_bytes());
    if (in_place(step)) {
      compute<Id, G>(step, gradient, dot,
                     [&](const Slot& slot, const op::Bags<Id>&, std::size_t, std::size_t) {
                       return out.data() + step.batch[slot.feature].base;
                     });
      scale_means(step, out);
      return;
    }
    order_served(step);
    compute<Id, G>(
        step, gradient, dot,
        [&](const Slot&, const op::Bags<Id>& bags, std::size_t part, std::size_t received) {
          return owner_dots_.data() + first_dot_[received] +
                 part * static_cast<std::size_t>(bags.entry_bound);
        });
    if (step.batch.model_parallel()) {
      add_own(step, out);
    } else {
      order_requested(step);
      if (routing_.exchanges())
        all_to_all<float>(communicator_, owner_dots_.span(), served_.floats(),
                          requester_dots_.span(), requested_.floats());
      else
        std::swap(owner_dots_,
                  requester_dots_);  // all slots are this rank's own, in the same order
      add_received(step, out);
      // of 16 bits only if no feature's rows came unpooled (NarrowValues)
      if constexpr (std::is_same_v<G, float>) add_distinct(step, gradient, out, dot_whole_rows);
    }
    scale_means(step, out);
  }

 private:
  bool weighted(const Slot& slot) const { return layout_.features[slot.feature].weighted; }
  /// Returns whether the dots are the gradients, in the order of the batch's ids: not where ids
  /// were taken out of it.
  template <IdType Id>
  bool in_place(const Step<Id, Backend>& step) const {
    if (!routing_.in_place()) return false;
    for (int f = 0; f < std::ssize(layout_.features); ++f)
      if (step.batch[f].positions != nullptr) return false;
    return true;
  }
  /// Returns whether weights travel: those of features whose duplicates do not travel do not
  /// either: the rows are here.
  template <IdType Id>
  bool travels(const Step<Id, Backend>& step, const Slot& slot) const {
    return weighted(slot) && !step.distinct.active(slot.feature);
  }
  template <IdType Id>
  static std::int64_t entries(const op::Bags<Id>& bags) {
    return bags.bags == 0 ? 0 : bags.entry_bound;
  }

  /// Orders one float per entry and part.
  template <class Entries>
  void order(WireSide& side, std::span<const WireSlot> slots, const Entries& entries) {
    side.list(slots, routing_.ranks(), block_alignment(communicator_), entries,
              [](const SlotPart&) { return WireSide::RowSize{.floats = 1}; });
  }

  template <IdType Id>
  void order_served(Step<Id, Backend>& step) {
    order(served_, routing_.served(), [&](const WireSlot& of) {
      const op::Bags<Id>& bags = step.routed.received()[of.index];
      // An own batch without ids may have no weights, and yet room for some.
      const bool own = of.rank == routing_.rank();
      const bool there = own ? travels(step, *of.slot) : bags.weights != nullptr;
      return there ? entries(bags) : std::int64_t{0};
    });
    first_dot_.assign(step.routed.received().size(), 0);
    for (const Piece& piece : served_.pieces())
      if (piece.part == 0) first_dot_[piece.index] = piece.first_float;
    owner_dots_.resize(backend_, served_.all_floats());
    // room that is left over travels, too
    if (step.batch.fixed_sizes())
      backend_.fill_zero(owner_dots_.data(), served_.all_floats() * sizeof(float));
  }

  /// Computes dots: those of the entries of a slot's part go to output_of(slot, bags, part, place
  /// in received), parallel to the bags' ids if in place, else to their entries alone.
  template <IdType Id, Element G, class OutputOf>
  void compute(Step<Id, Backend>& step, MatrixView<const G> gradient, DotArena<Id, G, Backend> dot,
               const OutputOf& output_of) {
    const bool from_first_entry = !in_place(step);
    for (std::size_t a = 0; a < tables_.arenas().size(); ++a) {
      PodVector<op::WeightGradientGroup<Id, G>> groups;
      for (const Piece& piece : step.in_flight.order().sums(a)) {
        const op::Bags<Id> bags = step.bags_of(piece);
        if (bags.weights == nullptr || bags.entry_bound == 0) continue;
        const MatrixView<const G> of_vectors = step.gradient_at_owner(piece, gradient);
        groups.push_back({{step.resident.placed(bags, piece.index, piece.part), of_vectors.data,
                           of_vectors.stride},
                          output_of(*piece.slot, bags, piece.part, piece.index),
                          from_first_entry});
      }
      dot(backend_, tables_, a, groups);
    }
  }

  template <IdType Id>
  void order_requested(Step<Id, Backend>& step) {
    order(requested_, routing_.requested(), [&](const WireSlot& of) {
      if (!travels(step, *of.slot)) return std::int64_t{0};
      return routing_.direct(*of.slot) ? entries(step.batch.part(of.slot->feature, 0))
                                       : step.routed.sent()[of.index].entries;
    });
    requester_dots_.resize(backend_, requested_.all_floats());
  }

  template <IdType Id>
  void add_received(Step<Id, Backend>& step, std::span<float> out) {
    PodVector<op::AddEntryValues::Job> jobs;
    for (const Piece& piece : requested_.pieces()) {
      const FeatureInput<Id>& input = step.batch[piece.slot->feature];
      jobs.push_back({.values = requester_dots_.data() + piece.first_float,
                      .count = piece.rows,
                      .entries = step.routed.sent()[piece.index].positions,
                      .offsets = input.bags.offsets,
                      .bags = input.bags.bags,
                      .positions = input.positions,
                      .base = input.base,
                      .target = out.data()});
    }
    op::run<op::AddEntryValues>(backend_, {jobs});
  }

  /// Adds for model-parallel input: the ids are this rank's own.
  template <IdType Id>
  void add_own(Step<Id, Backend>& step, std::span<float> out) {
    PodVector<op::AddEntryValues::Job> jobs;
    for (const Piece& piece : served_.pieces()) {
      const op::Bags<Id>& bags = step.routed.received()[piece.index];
      const FeatureInput<Id>& input = step.batch[piece.slot->feature];
      // One-hot parts of the batch count their entries from their first sample. What was cut
      // knows its entries' positions in the part.
      const std::int64_t shift =
          input.bags.offsets == nullptr ? step.batch.sample_begin(piece.rank) : 0;
      jobs.push_back({.values = owner_dots_.data() + piece.first_float,
                      .count = piece.rows,
                      .entries = step.routed.received_positions(piece.index),
                      .offsets = bags.offsets,
                      .bags = bags.bags,
                      .positions = input.positions == nullptr ? nullptr : input.positions + shift,
                      .base = input.base + shift,
                      .target = out.data()});
    }
    op::run<op::AddEntryValues>(backend_, {jobs});
  }

  /// Adds for features whose rows came here unpooled.
  template <IdType Id>
  void add_distinct(Step<Id, Backend>& step, MatrixView<const float> gradient, std::span<float> out,
                    DotWholeRows<Backend> dot) {
    for (std::size_t i = 0; i < layout_.features.size(); ++i) {
      const int f = static_cast<int>(i);
      if (!layout_.features[i].weighted || !step.distinct.active(f) ||
          step.distinct.ids(f).bags == 0)
        continue;
      const op::Bags<std::int32_t>& bags = step.distinct.indices(f);
      const MatrixView<float> rows = step.distinct.rows(f);
      requester_dots_.resize(backend_, static_cast<std::size_t>(bags.entry_bound));
      const auto of_entries = step.distinct.entry_gradients(backend_, f, gradient);
      dot(backend_, rows.data, static_cast<int>(rows.columns),
          {of_entries, requester_dots_.data() - of_entries.bags.first_entry});
      const FeatureInput<Id>& input = step.batch[f];
      const op::AddEntryValues::Job jobs[] = {{.values = requester_dots_.data(),
                                               .count = bags.entry_bound,
                                               .first = bags.first_entry,
                                               .positions = input.positions,
                                               .base = input.base,
                                               .target = out.data()}};
      op::run<op::AddEntryValues>(backend_, {jobs});
    }
  }

  /// Scales means: the weights that were used are w / ids of the bag.
  template <IdType Id>
  void scale_means(const Step<Id, Backend>& step, std::span<float> out) {
    PodVector<op::ScaleEntryValues::Job> jobs;
    for (std::size_t f = 0; f < layout_.features.size(); ++f) {
      const FeatureInput<Id>& input = step.batch[static_cast<int>(f)];
      if (input.length_scale != nullptr)
        jobs.push_back({input.bags.offsets, input.length_scale, input.bags.bags, input.positions,
                        input.base, out.data()});
    }
    op::run<op::ScaleEntryValues>(backend_, {jobs});
  }

  const Backend& backend_;
  Comm& communicator_;
  const RankTables<Backend>& tables_;
  const Layout& layout_;
  const RankLayout& routing_;
  WireSide served_, requested_;
  std::vector<std::size_t> first_dot_;  // in owner_dots_, by Step::received
  Buffer<float, Backend> owner_dots_, requester_dots_;
};

}  // namespace detail

}}  // namespace tessera::v0
