// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/mean_square.hpp>
#include <tessera/op/stochastic_rounding.hpp>
#include <tessera/op/update.hpp>

#include <gpu/device.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>

namespace {

using namespace tessera;

/// An optimizer that keeps what it was given, so that sums of gradients can be compared bit by bit.
struct Keep {
  static constexpr int element_states = 1, row_states = 2;
  static constexpr bool needs_mean_square = true;
  static constexpr std::array<std::string_view, 3> state_names{"updates", "mean_square",
                                                               "row_updates"};
  struct Step {
    struct Row {};
    TESSERA_HOST_DEVICE Row row(float* state, float mean_square) const {
      state[0] = mean_square;
      state[1] += 1;
      return {};
    }
    TESSERA_HOST_DEVICE float element(float, float gradient, float* state, const Row&) const {
      state[0] += 1;
      return gradient;
    }
  };
  constexpr float initial_state(int) const { return 0; }
  constexpr Step at(float, std::int64_t) const { return {}; }
};
static_assert(Optimizer<Keep>);

/// A group of bags with gradients, on the host.
template <class Id>
struct HostGroup {
  HostBags<Id> bags;
  std::vector<float> gradient;
  std::int64_t stride;
  tessera::op::RowRange rows{};
};

template <class Id>
HostGroup<Id> with_gradients(Random& random, HostBags<Id> bags, int width, int padding) {
  const std::int64_t stride = width + padding;
  std::vector<float> gradient(static_cast<std::size_t>(bags.bags * stride));
  for (float& g : gradient) g = random_float(random);
  return {std::move(bags), std::move(gradient), stride, {}};
}

/// Gradients as G holds them.
template <class G, class Id>
std::vector<HostGroup<Id>> rounded(std::vector<HostGroup<Id>> groups) {
  for (HostGroup<Id>& group : groups)
    for (float& g : group.gradient) g = to_float(from_float<G>(g));
  return groups;
}

template <class Id, class G = float>
class GroupsOnDevice {
 public:
  GroupsOnDevice(const Cuda& backend, const std::vector<HostGroup<Id>>& groups) {
    bags_.reserve(groups.size());
    for (const HostGroup<Id>& group : groups) {
      bags_.emplace_back(backend, group.bags);
      std::vector<G> gradient;
      for (const float g : group.gradient) gradient.push_back(from_float<G>(g));
      gradients_.emplace_back(backend, gradient);
      views_.push_back({bags_.back().view(), gradients_.back().data(), group.stride, group.rows});
    }
  }
  const std::vector<op::GradientGroup<Id, G>>& views() const { return views_; }

 private:
  std::vector<DeviceBags<Id>> bags_;
  std::vector<OnGpu<G>> gradients_;
  std::vector<op::GradientGroup<Id, G>> views_;
};

/// Sums in a tree of fan-out 32, as cuda/merge.cuh says: 32 entries one after the other, then 32
/// such sums, and so on.
template <class Id>
std::map<std::int64_t, std::vector<float>> merge_plainly(const std::vector<HostGroup<Id>>& groups,
                                                         int width) {
  std::map<std::int64_t, std::vector<std::pair<float, const float*>>> entries;
  for (const HostGroup<Id>& group : groups)
    for (std::int64_t bag = 0; bag < group.bags.bags; ++bag)
      for (std::int64_t i = group.bags.begin(bag); i < group.bags.end(bag); ++i)
        if (const Id id = group.bags.ids[static_cast<std::size_t>(i)]; id >= 0)
          entries[id + group.bags.row_bias].emplace_back(
              group.bags.coefficient(bag, i),
              &group.gradient[static_cast<std::size_t>(bag * group.stride)]);
  std::map<std::int64_t, std::vector<float>> merged;
  for (const auto& [row, list] : entries)
    for (int c = 0; c < width; ++c) {
      std::vector<float> sums;
      for (std::size_t begin = 0; begin < list.size(); begin += 32) {
        float sum = -0.0f;
        for (std::size_t i = begin; i < std::min(begin + 32, list.size()); ++i)
          sum = std::fma(list[i].first, list[i].second[c], sum);
        sums.push_back(sum);
      }
      while (sums.size() > 1) {
        std::vector<float> above;
        for (std::size_t begin = 0; begin < sums.size(); begin += 32) {
          float sum = -0.0f;
          for (std::size_t i = begin; i < std::min(begin + 32, sums.size()); ++i) sum += sums[i];
          above.push_back(sum);
        }
        sums = above;
      }
      merged[row].push_back(sums[0]);
    }
  return merged;
}

/// An arena on the host. One segment per ten rows.
template <class T, class O>
struct HostArena {
  std::vector<T> weights;
  std::vector<std::vector<float>> element_state, row_state;
  std::vector<op::ArenaSegment> segments;

  HostArena(Random& random, std::int64_t rows, int width)
      : weights(random_elements<T>(random, rows * width)) {
    for (int s = 0; s < O::element_states; ++s) {
      element_state.push_back(random_elements<float>(random, rows * width));
      for (float& x : element_state.back()) x = std::fabs(x);
    }
    for (int s = 0; s < O::row_states; ++s)
      row_state.emplace_back(static_cast<std::size_t>(rows), 0.25f);
    for (std::int64_t row = 0; row < rows; row += 10)
      segments.push_back({row, 10, static_cast<std::uint64_t>(row + 77), 1000 * row,
                          static_cast<std::int32_t>(row % 7)});
  }
};

template <class T, class O>
class ArenaOnDevice {
 public:
  ArenaOnDevice(const Cuda& backend, const HostArena<T, O>& host, std::int64_t rows, int width)
      : host_(host), rows_(rows), width_(width), weights_(backend, host.weights) {
    for (const auto& state : host.element_state) element_state_.emplace_back(backend, state);
    for (const auto& state : host.row_state) row_state_.emplace_back(backend, state);
  }
  op::ArenaState<T, O> view() const {
    op::ArenaState<T, O> state;
    state.arena = weights_.data();
    state.rows = rows_;
    state.width = width_;
    for (std::size_t s = 0; s < element_state_.size(); ++s)
      state.element_state[s] = element_state_[s].data();
    for (std::size_t s = 0; s < row_state_.size(); ++s) state.row_state[s] = row_state_[s].data();
    state.segments = host_.segments;
    state.rounding_seed = 99;
    return state;
  }
  HostArena<T, O> read() const {
    HostArena<T, O> arena = host_;
    arena.weights = weights_.read();
    for (std::size_t s = 0; s < element_state_.size(); ++s)
      arena.element_state[s] = element_state_[s].read();
    for (std::size_t s = 0; s < row_state_.size(); ++s) arena.row_state[s] = row_state_[s].read();
    return arena;
  }

 private:
  const HostArena<T, O>& host_;
  std::int64_t rows_;
  int width_;
  OnGpu<T> weights_;
  std::vector<OnGpu<float>> element_state_, row_state_;
};

/// One optimizer step on the merged gradients, a number at a time.
template <class T, class O>
void update_plainly(HostArena<T, O>& arena, int width, const typename O::Step& step,
                    const std::map<std::int64_t, std::vector<float>>& merged) {
  for (const auto& [row, gradient] : merged) {
    std::array<float, O::row_states + 1> row_state{};
    for (int s = 0; s < O::row_states; ++s) row_state[s] = arena.row_state[s][row];
    op::RowMeans means{op::mean_square(gradient.data(), width)};
    if constexpr (op::measures_rows<O>) {
      std::vector<float> measured, weights;
      for (int c = 0; c < width; ++c) {
        const std::size_t at = static_cast<std::size_t>(row * width + c);
        std::array<float, O::element_states + 1> state{};
        for (int s = 0; s < O::element_states; ++s) state[s] = arena.element_state[s][at];
        weights.push_back(to_float(arena.weights[at]));
        if constexpr (detail::MeasuresUpdates<O>)
          measured.push_back(
              step.measured(weights.back(), gradient[static_cast<std::size_t>(c)], state.data()));
      }
      if constexpr (detail::MeasuresUpdates<O>)
        means.square = op::mean_square(measured.data(), width);
      means.weight_square = op::mean_square(weights.data(), width);
    }
    const auto shared = op::shared_by_row<O>(step, row_state.data(), means);
    for (int s = 0; s < O::row_states; ++s) arena.row_state[s][row] = row_state[s];
    const auto segment = std::find_if(arena.segments.begin(), arena.segments.end(),
                                      [r = row](const op::ArenaSegment& s) {
                                        return r >= s.row_offset && r < s.row_offset + s.rows;
                                      });
    const std::uint64_t key = detail::rounding_key(99, segment->table_key,
                                                   row - segment->row_offset + segment->row_begin);
    for (int c = 0; c < width; ++c) {
      const std::size_t at = static_cast<std::size_t>(row * width + c);
      std::array<float, O::element_states + 1> state{};
      for (int s = 0; s < O::element_states; ++s) state[s] = arena.element_state[s][at];
      const float weight = step.element(
          to_float(arena.weights[at]), gradient[static_cast<std::size_t>(c)], state.data(), shared);
      arena.weights[at] = detail::round_stochastic<T>(
          weight, detail::rounding_bits(key, segment->column_begin + c));
      for (int s = 0; s < O::element_states; ++s) arena.element_state[s][at] = state[s];
    }
  }
}

/// Equal within rounding: compilers may or may not fuse the optimizer's multiplications and
/// additions.
template <class T>
bool nearly_equal(const std::vector<T>& a, const std::vector<T>& b) {
  const float tolerance = sizeof(T) == 2 ? 1e-2f : 1e-5f;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::fabs(to_float(a[i]) - to_float(b[i])) <=
          tolerance * (1 + std::fabs(to_float(b[i])))))
      return false;
  return a.size() == b.size();
}

template <class Id>
std::vector<HostGroup<Id>> groups_of_every_kind(int width, std::int64_t rows, int padding) {
  Random random(static_cast<unsigned>(width + padding));
  std::vector<HostGroup<Id>> groups;
  for (const Coefficients c : {Coefficients::none, Coefficients::weights, Coefficients::bag_scale})
    for (const int longest : {1, 2, 19})
      groups.push_back(
          with_gradients(random,
                         random_bags<Id>(random, 40 + longest, longest, rows / 2,
                                         groups.size() % 2 == 0 ? 0 : rows / 2, c, true),
                         width, padding));
  groups.push_back(with_gradients(random, HostBags<Id>{}, width, padding));
  groups.push_back(with_gradients(
      random, random_bags<Id>(random, 3, 0, rows, 0, Coefficients::none), width, padding));
  return groups;
}

}  // namespace
