// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <gpu/need_gpu.hpp>

#include <gpu/collection_cases.hpp>

// What the emulator cannot run.

TEST_CASE("a one-hot step of one rank is captured in a graph and replayed: the same bits as called, on other ids") {
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  OneRank self{CudaMemory(backend)};
  const auto ids_of = [](int step) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 2 * 300; ++i) ids.push_back((i * 7 + step * 3) % (i < 300 ? 10 : 6));
    return ids;
  };
  const Array<float, Cuda> gradient(backend, std::vector<float>(300 * 8, 0.25f));
  std::vector<float> tables[2];
  for (const bool captured : {false, true}) {
    SmallCollection e{self, backend, {.learning_rate = 0.5f, .seed = 3}};
    const Array<std::int32_t, Cuda> ids(backend, ids_of(0)), output(backend, std::vector<std::int32_t>(300 * 8));
    const auto step = [&] {
      const auto pooled = e.forward(KeyedJagged<std::int32_t>{2, 300, ids.span(), {}, {}},
                                    MatrixView<float>{reinterpret_cast<float*>(output.data()), 300, 8});
      e.backward(pooled, {gradient.data(), 300, 8});
    };
    step();  // buffers get their sizes
    cudaGraphExec_t graph = nullptr;
    if (captured) {
      cudaGraph_t recorded = nullptr;
      gpu::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capturing");
      step();
      gpu::check(cudaStreamEndCapture(stream.get(), &recorded), "capturing");
      gpu::check(cudaGraphInstantiate(&graph, recorded, 0), "instantiating a graph");
      cudaGraphDestroy(recorded);
    }
    for (int s = 1; s <= 3; ++s) {
      const std::vector<std::int32_t> next = ids_of(s);
      backend.copy(ids.data(), next.data(), next.size() * sizeof(std::int32_t));
      if (captured)
        gpu::check(cudaGraphLaunch(graph, stream.get()), "launching a graph");
      else
        step();
      backend.synchronize();
    }
    if (captured) cudaGraphExecDestroy(graph);
    tables[captured].resize(40);
    e.tables().get("a", {tables[captured].data(), 10, 4});
  }
  CHECK((tables[0] == tables[1]));
}

TEST_CASE("more than 2^31 elements in a table: lookups and updates of the last rows") {
  constexpr int width = 16;
  constexpr std::int64_t rows = (std::int64_t{1} << 31) / width + 1000;
  std::size_t free_bytes = 0, total = 0;
  gpu::check(cudaMemGetInfo(&free_bytes, &total), "asking for free memory");
  if (free_bytes < static_cast<std::size_t>(rows) * width * sizeof(float) + (std::size_t{1} << 30)) {
    MESSAGE("skipped: too little free memory");
    return;
  }
  const Cuda backend;
  Buffer<float, Cuda> arena;
  arena.resize(backend, static_cast<std::size_t>(rows * width));
  const ElementKey first{7, 11, rows, 0, 0};
  run<Initialize<float, Uniform>>(backend, {arena.data(), rows, width, first, Uniform{}});
  const std::vector<std::int64_t> host_ids{rows - 1, 0, rows - 500, rows - 1};
  const Array<std::int64_t, Cuda> ids(backend, host_ids);
  const Array<float, Cuda> output(backend, std::vector<float>(4 * width)), gradient(backend, std::vector<float>(4 * width, 1.0f));
  Bags<std::int64_t> bags;
  bags.ids = ids.data();
  bags.bags = 4;
  const auto lookup = [&] {
    const LookupGroup<std::int64_t> group{bags, output.data(), width};
    run<Lookup<float, std::int64_t, width>>(backend, {arena.data(), width, {&group, 1}});
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
    for (int c = 0; c < width; ++c) CHECK(found[i * width + static_cast<std::size_t>(c)] == doctest::Approx(expected(host_ids[i], c)));
  ArenaState<float, RowWiseAdagrad> state;
  Buffer<float, Cuda> sums;
  sums.resize(backend, static_cast<std::size_t>(rows));
  backend.fill_zero(sums.data(), sums.size() * sizeof(float));
  state.arena = arena.data();
  state.rows = rows;
  state.width = width;
  state.row_state[0] = sums.data();
  const GradientGroup<std::int64_t> group{bags, gradient.data(), width};
  run<Update<float, std::int64_t, width, RowWiseAdagrad>>(backend, {state, RowWiseAdagrad{}.at(0.5f, 1), {&group, 1}});
  found = lookup();
  for (std::size_t i = 0; i < 4; ++i)  // w - 0.5 * g / sqrt(mean(g^2)), whatever g
    for (int c = 0; c < width; ++c)
      CHECK(found[i * width + static_cast<std::size_t>(c)] == doctest::Approx(expected(host_ids[i], c) - 0.5f));
}
