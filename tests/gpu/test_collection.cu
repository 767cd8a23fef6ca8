// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <gpu/need_gpu.hpp>

#include <gpu/collection_cases.hpp>
#include <sharding/large_plans.hpp>

// What the emulator cannot run.

TEST_CASE("more than 2^31 elements in a table: lookups and updates of the last rows") {
  constexpr int width = 16;
  constexpr std::int64_t rows = (std::int64_t{1} << 31) / width + 1000;
  std::size_t free_bytes = 0, total = 0;
  gpu::check(cudaMemGetInfo(&free_bytes, &total), "asking for free memory");
  if (free_bytes <
      static_cast<std::size_t>(rows) * width * sizeof(float) + (std::size_t{1} << 30)) {
    MESSAGE("skipped: too little free memory");
    return;
  }
  const Cuda backend;
  Buffer<float, Cuda> arena;
  arena.resize(backend, static_cast<std::size_t>(rows * width));
  const ElementKey first{7, 11, rows, 0, 0};
  op::run<op::Initialize<float, Uniform>>(backend, {arena.data(), rows, width, first, Uniform{}});
  const std::vector<std::int64_t> host_ids{rows - 1, 0, rows - 500, rows - 1};
  const Array<std::int64_t, Cuda> ids(backend, host_ids);
  const Array<float, Cuda> output(backend, std::vector<float>(4 * width)),
      gradient(backend, std::vector<float>(4 * width, 1.0f));
  op::Bags<std::int64_t> bags;
  bags.ids = ids.data();
  bags.bags = 4;
  const auto lookup = [&] {
    const op::LookupGroup<std::int64_t> group{bags, output.data(), width};
    op::run<op::Lookup<float, std::int64_t, width>>(backend, {arena.data(), width, {&group, 1}});
    return output.read();
  };
  const auto expected = [&](std::int64_t row, int column) {
    ElementKey key = first;
    key.row = row;
    key.column = column;
    return Uniform{}(key);
  };
  std::vector<float> found = lookup();
  for (std::size_t i = 0; i < 4; ++i)
    for (int c = 0; c < width; ++c)
      CHECK(found[i * width + static_cast<std::size_t>(c)] ==
            doctest::Approx(expected(host_ids[i], c)));
  op::ArenaState<float, RowWiseAdagrad> state;
  Buffer<float, Cuda> sums;
  sums.resize(backend, static_cast<std::size_t>(rows));
  backend.fill_zero(sums.data(), sums.size() * sizeof(float));
  state.arena = arena.data();
  state.rows = rows;
  state.width = width;
  state.row_state[0] = sums.data();
  const op::GradientGroup<std::int64_t> group{bags, gradient.data(), width};
  op::run<op::Update<float, std::int64_t, width, RowWiseAdagrad>>(
      backend, {state, RowWiseAdagrad{}.at(0.5f, 1), {&group, 1}});
  found = lookup();
  for (std::size_t i = 0; i < 4; ++i)  // w - 0.5 * g / sqrt(mean(g^2)), whatever g
    for (int c = 0; c < width; ++c)
      CHECK(found[i * width + static_cast<std::size_t>(c)] ==
            doctest::Approx(expected(host_ids[i], c) - 0.5f));
}
