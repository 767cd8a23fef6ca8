// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The same operations with the same data on both backends.
#include <simt/every_order.hpp>

#include <tessera/cuda/lookup.cuh>
#include <tessera/cuda/update.cuh>
#include <tessera/cuda/weight_gradients.cuh>
#include <tessera/host/lookup.hpp>
#include <tessera/host/update.hpp>
#include <tessera/host/weight_gradients.hpp>
#include <tessera/optimizer/optimizers.hpp>

#include <doctest/doctest.h>
#include <gpu/update_data.hpp>

namespace {

constexpr std::int64_t rows = 60;

/// A view of the arena in host memory.
template <class T, class O>
op::ArenaState<T, O> host_view(HostArena<T, O>& arena, int width) {
  op::ArenaState<T, O> state;
  state.arena = arena.weights.data();
  state.rows = rows;
  state.width = width;
  for (std::size_t s = 0; s < arena.element_state.size(); ++s)
    state.element_state[s] = arena.element_state[s].data();
  for (std::size_t s = 0; s < arena.row_state.size(); ++s)
    state.row_state[s] = arena.row_state[s].data();
  state.segments = arena.segments;
  state.rounding_seed = 99;
  return state;
}

template <class Id>
std::vector<op::GradientGroup<Id>> host_views(const std::vector<HostGroup<Id>>& groups) {
  std::vector<op::GradientGroup<Id>> views;
  for (const HostGroup<Id>& group : groups)
    views.push_back({group.bags.view(), group.gradient.data(), group.stride});
  return views;
}

template <class T, int Width>
void compare_lookups() {
  Random random(Width);
  const std::vector<T> arena = random_elements<T>(random, rows * Width);
  const std::vector<HostGroup<std::int32_t>> groups =
      groups_of_every_kind<std::int32_t>(Width, rows, 0);
  for (const HostGroup<std::int32_t>& group : groups) {
    std::vector<float> expected(group.gradient.size(), -1.0f);
    const std::vector<float> before = expected;
    const op::LookupGroup<std::int32_t> lookup{group.bags.view(), expected.data(), Width};
    op::run<op::Lookup<T, std::int32_t, Width>>(Host{}, {arena.data(), Width, {&lookup, 1}});
    in_every_order([&] {
      const Cuda backend;
      const OnGpu<T> device_arena(backend, arena);
      const OnGpu<float> output(backend, before);
      const DeviceBags<std::int32_t> bags(backend, group.bags);
      const op::LookupGroup<std::int32_t> device_lookup{bags.view(), output.data(), Width};
      op::run<op::Lookup<T, std::int32_t, Width>>(
          backend, {device_arena.data(), Width, {&device_lookup, 1}});
      CHECK(nearly_equal(output.read(), expected));
      if (group.bags.weights.empty()) CHECK((output.read() == expected));
    });
  }
}

template <class T, int Width, class O>
void compare_updates(const O& optimizer) {
  Random random(Width);
  const HostArena<T, O> before(random, rows, Width);
  HostArena<T, O> expected = before;
  const typename O::Step step = optimizer.at(0.05f, 3);
  const std::vector<HostGroup<std::int32_t>> groups =
      groups_of_every_kind<std::int32_t>(Width, rows, 1);
  const std::vector<op::GradientGroup<std::int32_t>> views = host_views(groups);
  op::run<op::Update<T, std::int32_t, Width, O>>(Host{}, {host_view(expected, Width), step, views});
  in_every_order([&] {
    const Cuda backend;
    const ArenaOnDevice<T, O> arena(backend, before, rows, Width);
    const GroupsOnDevice<std::int32_t> sources(backend, groups);
    op::run<op::Update<T, std::int32_t, Width, O>>(backend, {arena.view(), step, sources.views()});
    const HostArena<T, O> after = arena.read();
    CHECK(nearly_equal(after.weights, expected.weights));
    for (std::size_t s = 0; s < after.element_state.size(); ++s)
      CHECK(nearly_equal(after.element_state[s], expected.element_state[s]));
    for (std::size_t s = 0; s < after.row_state.size(); ++s)
      CHECK(nearly_equal(after.row_state[s], expected.row_state[s]));
  });
}

}  // namespace

TEST_CASE("lookup") {
  compare_lookups<float, 16>();
  compare_lookups<BFloat16, 20>();
}

TEST_CASE("update") {
  compare_updates<float, 16>(RowWiseAdagrad{});
  compare_updates<float, 20>(Adam{});
  compare_updates<Half, 16>(Sgd{});
  compare_updates<float, 20>(Lamb{.weight_decay = 0.1f});
  compare_updates<float, 1030>(Lamb{.weight_decay = 0.1f});  // wider than a warp's registers
  compare_updates<BFloat16, 16>(RowWiseAdagradL2{.weight_decay = 0.1f});
}

TEST_CASE("gradients of weights") {
  constexpr int width = 20;
  Random random(3);
  const std::vector<float> arena = random_elements<float>(random, rows * width);
  const std::vector<HostGroup<std::int32_t>> groups =
      groups_of_every_kind<std::int32_t>(width, rows, 0);
  const std::vector<op::GradientGroup<std::int32_t>> views = host_views(groups);
  using Operation = op::WeightGradients<float, std::int32_t, width>;
  const Cuda backend;
  const OnGpu<float> device_arena(backend, arena);
  const GroupsOnDevice<std::int32_t> sources(backend, groups);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<float> expected(groups[g].bags.ids.size());
    const OnGpu<float> output(backend, expected);
    const Operation::Group job{views[g], expected.data()},
        device_job{sources.views()[g], output.data()};
    op::run<Operation>(Host{}, {arena.data(), width, {&job, 1}});
    op::run<Operation>(backend, {device_arena.data(), width, {&device_job, 1}});
    CHECK(nearly_equal(output.read(), expected));
  }
}
