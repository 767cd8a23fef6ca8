// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <gpu/collection_cases.hpp>
#include <gpu/golden_group_cases.hpp>

#include <chrono>
#include <deque>
#include <thread>

// What results cannot show here, as streams do their work at once and a GPU suffices for all ranks.
TEST_CASE(
    "routing ahead is on the GPU of the thread that asks for it, and makes each stream wait for "
    "the other, once a step and at the end") {
  using Comm = BasicThreadCommunicator<CudaTransfer>;
  using E = LayoutCollection<Widths<16>, RowWiseAdagrad, Cuda, Comm>;
  gpu::check(cudaSetDevice(1), "choosing GPU 1");
  const gpu::Stream stream, routing_stream;
  const auto waits = [&](const gpu::Stream& waiting, const gpu::Stream& awaited) {
    return simt::stream_waits().counts[{waiting.get(), awaited.get()}];
  };
  const Cuda backend({.stream = stream.get()}), routing({.stream = routing_stream.get()});
  ThreadGroup groups[2] = {ThreadGroup(1), ThreadGroup(1)};
  Comm communicator(groups[0], 0, CudaTransfer(backend)),
      second(groups[1], 0, CudaTransfer(routing));
  E embeddings(communicator, backend,
               make_layout({1}, {{"a", 40, 16}}, {{"f", "a"}}, {{0, {0, 40, 0, 16}, 0}}), {});
  const Array<std::int32_t, Cuda> ids(backend, std::vector<std::int32_t>{3, 5, 3});
  const Array<float, Cuda> output(backend, std::vector<float>(48));
  const KeyedJagged<std::int32_t> batch{1, 3, ids.span(), {}, {}};
  {
    RouteAhead<E, std::int32_t, Comm, Cuda> ahead(embeddings, second, routing);
    for (int step = 0; step < 3; ++step) {
      ahead.start(batch);
      CHECK(waits(routing_stream, stream) == step + 1);  // before it reads the ids
      auto& routed = ahead.take();
      CHECK(waits(stream, routing_stream) == step + 1);  // before it reads what was routed
      const MatrixView<float> rows(output.data(), 3, 16);
      embeddings.backward(embeddings.forward_routed(routed, rows), rows);
    }
  }
  CHECK(waits(routing_stream, stream) == 4);  // before it frees what the last step used
  gpu::check(cudaSetDevice(0), "choosing GPU 0");
}

TEST_CASE(
    "a batch that was routed ahead and never taken: all may end while the streams still work on "
    "it") {
  using Comm = BasicThreadCommunicator<CudaTransfer>;
  using E = LayoutCollection<Widths<16>, RowWiseAdagrad, Cuda, Comm>;
  under_every_deferral([] {
    const gpu::Stream stream, routing_stream;
    const Cuda backend({.stream = stream.get()}), routing({.stream = routing_stream.get()});
    ThreadGroup groups[2] = {ThreadGroup(1), ThreadGroup(1)};
    Comm communicator(groups[0], 0, CudaTransfer(backend)),
        second(groups[1], 0, CudaTransfer(routing));
    const Array<std::int32_t, Cuda> ids(backend, std::vector<std::int32_t>{3, 50, 3});
    E embeddings(communicator, backend,
                 make_layout({1}, {{"a", 40, 16}}, {{"f", "a"}}, {{0, {0, 40, 0, 16}, 0}}), {});
    RouteAhead<E, std::int32_t, Comm, Cuda> ahead(embeddings, second, routing);
    ahead.start(KeyedJagged<std::int32_t>{1, 3, ids.span(), {}, {}});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it is routed by now, most often
  });
}

TEST_CASE("sequences and max pooling, routed ahead: the bits of steps that are called") {
  using Comm = BasicThreadCommunicator<CudaTransfer>;
  using E = LayoutCollection<Widths<16>, RowWiseAdagrad, Cuda, Comm>;
  const auto train = [](bool ahead) {
    const gpu::Stream stream, routing_stream;
    const Cuda backend({.stream = stream.get()}), routing({.stream = routing_stream.get()});
    ThreadGroup groups[2] = {ThreadGroup(1), ThreadGroup(1)};
    Comm communicator(groups[0], 0, CudaTransfer(backend)),
        second(groups[1], 0, CudaTransfer(routing));
    E embeddings(communicator, backend,
                 make_layout({1}, {{"a", 40, 16}},
                             {{"s", "a", Pooling::none}, {"m", "a", Pooling::max}, {"f", "a"}},
                             {{0, {0, 40, 0, 16}, 0}}),
                 {.seed = 3});
    std::vector<float> before(40 * 16);
    embeddings.tables().get("a", {before.data(), 40, 16});
    std::deque<on_backend::BatchOn<std::int32_t, Cuda>> batches;
    for (int step = 0; step < 4; ++step) {
      std::vector<std::int32_t> ids{3, 5, 3, 11, 5, 7, 7, 30, 2};
      ids[0] += step;
      const std::vector<std::int64_t> offsets{0, 3, 4, 6, 7, 8, 9};
      batches.emplace_back(backend, KeyedJagged<std::int32_t>{3, 2, ids, offsets, {}});
    }
    const Array<float, Cuda> output(backend, std::vector<float>(64));
    const MatrixView<float> rows(output.data(), 2, 32);
    std::vector<float> gradient(64);
    for (std::size_t i = 0; i < 64; ++i) gradient[i] = 0.25f * static_cast<float>(i % 5) - 0.5f;
    const Array<float, Cuda> up(backend, gradient);
    const auto finish = [&](const auto& found) {
      embeddings.backward(found, {up.data(), 2, 32},
                          {found.sequence(0).per_id({up.data(), 4, 16})});
    };
    if (ahead) {
      RouteAhead<E, std::int32_t, Comm, Cuda> route(embeddings, second, routing);
      route.start(batches[0].keyed());
      for (std::size_t step = 0; step < 4; ++step) {
        auto& routed = route.take();
        if (step < 3) route.start(batches[step + 1].keyed());
        finish(embeddings.forward_routed(routed, rows));
      }
    } else {
      for (const auto& batch : batches) finish(embeddings.forward(batch.keyed()));
    }
    std::vector<float> table(40 * 16);
    embeddings.tables().get("a", {table.data(), 40, 16});
    CHECK(table != before);
    return table;
  };
  const std::vector<float> called = train(false);
  CHECK(train(true) == called);
  under_every_deferral([&] { CHECK(train(true) == called); });
}
