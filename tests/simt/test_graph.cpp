// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <gpu/graph_cases.hpp>
#include <gpu/rank_graph_cases.hpp>
#include <simt/stream_communicator.hpp>

TEST_CASE("the emulator captures nothing that a replay would not repeat") {
  const gpu::Stream stream, other;
  const Cuda backend({.stream = stream.get()}), second({.stream = other.get()});
  const Array<float, Cuda> device(backend, std::vector<float>{1, 2});
  std::vector<float> pageable{3, 4};
  auto* pages = static_cast<float*>(Cuda::allocate_host(2 * sizeof(float)));
  CHECK_THROWS_AS(Graph(stream, [&] { backend.allocate(8); }), CudaError);
  CHECK_THROWS_AS(Graph(stream, [&] { backend.copy(device.data(), pageable.data(), 8); }), CudaError);
  CHECK_THROWS_AS(Graph(stream, [&] { backend.synchronize(); }), CudaError);
  CHECK_THROWS_AS(Graph(stream, [&] { second.wait_for(backend); }), CudaError);

  pages[0] = 5, pages[1] = 6;
  const Graph graph(stream, [&] { backend.copy(device.data(), pages, 8); });
  CHECK((device.read() == std::vector<float>{1, 2}));  // captured, not done
  graph.launch();
  CHECK((device.read() == std::vector<float>{5, 6}));
  pages[1] = 7;
  graph.launch();
  CHECK((device.read() == std::vector<float>{5, 7}));
  Cuda::deallocate_host(pages, 8);
}

TEST_CASE("steps of several ranks as graphs: with equal batches the host waits for nothing, whatever the policies") {
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [ranks](ThreadCommunicator& threads) {
      const gpu::Stream stream;
      simt::StreamCommunicator communicator(threads, stream.get());
      CHECK(graphs_train_like_calls(communicator, stream, ranks == 3));
    });
}
