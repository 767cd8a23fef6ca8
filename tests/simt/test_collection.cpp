// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <gpu/collection_cases.hpp>
#include <gpu/golden_group_cases.hpp>

#include <chrono>
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
