// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/step.hpp>
#include <tessera/collection/table_store.hpp>
#include <tessera/core/matrix_view.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera::inline v0 {

/// Gradients of per-id weights: owners work out the dot product of each id's row with its bag's gradient, before the update changes the
/// rows; one float per id and column part goes back to the rank that gave the id, which adds the parts.
template <class Store, class Backend, class Comm>
class WeightGradientStage {
 public:
  WeightGradientStage(const Backend& backend, Comm& communicator, const Store& store)
      : backend_(backend), communicator_(communicator), store_(store), layout_(store.layout()), routing_(store.routing()) {}

  /// `for_each_group(arena, visit)` visits what this rank serves, as the update does; gradients have arrived. Collective.
  template <IdType Id, class ForEachGroup>
  void run_stage(Step<Id, Backend>& step, MatrixView<const float> gradient, ForEachGroup&& for_each_group, std::span<float> out) {
    std::fill(out.begin(), out.end(), 0.0f);
    size_owner(step);
    for (std::size_t a = 0; a < store_.arenas().size(); ++a) compute<Id>(a, gradient, for_each_group);
    if (step.model_parallel) {
      add_own(step, out);
    } else {
      size_requester(step);
      communicator_.all_to_all(std::span<const float>(owner_dots_.span()), owner_counts_, requester_dots_.span(), requester_counts_);
      add_received(step, out);
    }
    scale_means(step, out);
  }

 private:
  bool weighted(const Slot& slot) const { return layout_.features[slot.feature].weighted; }
  template <IdType Id>
  static std::int64_t entries(const Bags<Id>& bags) {
    return bags.bags == 0 ? 0 : bags.entries();
  }

  /// Own slots' dots lie by source rank, slot, part.
  template <IdType Id>
  void size_owner(Step<Id, Backend>& step) {
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks());
    owner_counts_.assign(ranks, 0);
    first_dot_.assign(step.received.size(), 0);
    std::size_t total = 0;
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t k = 0; k < routing_.slots_from(static_cast<int>(r)); ++k) {
        const Slot& slot = routing_.own_slot(k);
        if (!weighted(slot)) continue;
        first_dot_[k * ranks + r] = total;
        const std::size_t floats = static_cast<std::size_t>(entries(step.received[k * ranks + r])) * slot.parts.size();
        owner_counts_[r] += floats;
        total += floats;
      }
    owner_dots_.resize(backend_, total);
  }

  template <IdType Id, class ForEachGroup>
  void compute(std::size_t arena, MatrixView<const float> gradient, ForEachGroup&& for_each_group) {
    using T = typename Store::element;
    using Group = typename WeightGradients<T, Id, dynamic_width>::Group;
    std::vector<Group> groups;
    for_each_group(
        static_cast<int>(arena), [&](const Bags<Id>& bags, const Slot& slot, std::size_t part, std::size_t received, float* packed) {
          if (!weighted(slot) || bags.entries() == 0) return;
          const bool direct = packed == nullptr;
          const SlotPart& p = slot.parts[part];
          float* dots = owner_dots_.data() + first_dot_[received] + part * static_cast<std::size_t>(bags.entries());
          groups.push_back({{bags, direct ? gradient.data + p.column : packed, direct ? gradient.stride : p.width}, dots - bags.begin(0)});
        });
    Store::with_width(store_.arenas()[arena].width(), [&]<int Width>(std::integral_constant<int, Width>) {
      using Op = WeightGradients<T, Id, Width>;
      std::vector<typename Op::Group> of_width;
      for (const Group& group : groups) of_width.push_back({group.source, group.output});
      run<Op>(backend_, {store_.arenas()[arena].weights(), store_.arenas()[arena].width(), of_width});
    });
  }

  /// Entries of a slot as this rank sent them.
  template <IdType Id>
  std::int64_t sent_entries(const Step<Id, Backend>& step, std::size_t s) const {
    const Slot& slot = routing_.slots()[s];
    return routing_.direct(slot) ? entries(step.inputs[slot.feature].bags) : step.sent[s].entries;
  }

  template <IdType Id>
  void size_requester(Step<Id, Backend>& step) {
    requester_counts_.assign(static_cast<std::size_t>(routing_.ranks()), 0);
    std::size_t total = 0;
    for (std::size_t s = 0; s < routing_.slots().size(); ++s) {
      const Slot& slot = routing_.slots()[s];
      if (!weighted(slot)) continue;
      const std::size_t floats = static_cast<std::size_t>(sent_entries(step, s)) * slot.parts.size();
      requester_counts_[slot.rank] += floats;
      total += floats;
    }
    requester_dots_.resize(backend_, total);
  }

  template <IdType Id>
  void add_received(Step<Id, Backend>& step, std::span<float> out) {
    const float* dot = requester_dots_.data();
    for (std::size_t s = 0; s < routing_.slots().size(); ++s) {
      const Slot& slot = routing_.slots()[s];
      if (!weighted(slot)) continue;
      const FeatureInput<Id>& input = step.inputs[slot.feature];
      const std::int64_t count = sent_entries(step, s), first = input.bags.bags == 0 ? 0 : input.bags.begin(0);
      for (std::size_t part = 0; part < slot.parts.size(); ++part)
        for (std::int64_t i = 0; i < count; ++i)
          out[input.position(step.sent[s].positions != nullptr ? step.sent[s].positions[i] : first + i)] += *dot++;
    }
  }

  /// Model-parallel input: the ids are this rank's own.
  template <IdType Id>
  void add_own(Step<Id, Backend>& step, std::span<float> out) {
    const std::size_t ranks = static_cast<std::size_t>(routing_.ranks());
    for (std::size_t r = 0; r < ranks; ++r)
      for (std::size_t k = 0; k < routing_.slots_from(static_cast<int>(r)); ++k) {
        const Slot& slot = routing_.own_slot(k);
        const Bags<Id>& bags = step.received[k * ranks + r];
        if (!weighted(slot) || bags.bags == 0) continue;
        const FeatureInput<Id>& input = step.inputs[slot.feature];
        // One-hot parts of the batch count their entries from their first sample.
        const std::int64_t shift = input.bags.offsets == nullptr ? step.sample_begin[r] : 0;
        const std::int64_t* positions = step.received_positions[k * ranks + r];
        const float* dot = owner_dots_.data() + first_dot_[k * ranks + r];
        for (std::size_t part = 0; part < slot.parts.size(); ++part)
          for (std::int64_t i = 0; i < bags.entries(); ++i)
            out[input.position(shift + (positions != nullptr ? positions[i] : bags.begin(0) + i))] += *dot++;
      }
  }

  /// The weights that were used are w / ids of the bag.
  template <IdType Id>
  void scale_means(const Step<Id, Backend>& step, std::span<float> out) {
    for (std::size_t f = 0; f < layout_.features.size(); ++f) {
      const FeatureInput<Id>& input = step.inputs[static_cast<int>(f)];
      for (std::size_t bag = 0; bag < input.length_scale.size(); ++bag)
        for (std::int64_t i = input.bags.begin(static_cast<std::int64_t>(bag)); i < input.bags.end(static_cast<std::int64_t>(bag)); ++i)
          out[input.position(i)] *= input.length_scale[bag];
    }
  }

  const Backend& backend_;
  Comm& communicator_;
  const Store& store_;
  const Layout& layout_;
  const Routing& routing_;
  std::vector<std::size_t> owner_counts_, requester_counts_;  // floats per rank
  std::vector<std::size_t> first_dot_;                        // of (own slot, source), in owner_dots_
  Buffer<float, Backend> owner_dots_, requester_dots_;
};

}  // namespace tessera::inline v0
