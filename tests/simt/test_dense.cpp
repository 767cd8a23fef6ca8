// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <gpu/dense_cases.hpp>

// What results cannot show here, as streams do their work at once.
TEST_CASE(
    "buckets are summed on the GPU of the thread that asks for it; each waits for the gradients so far, and what follows the wait for the "
    "sums") {
  gpu::check(cudaSetDevice(1), "choosing GPU 1");
  const gpu::Stream stream, summing_stream;
  const Cuda backend({.stream = stream.get()}), summing({.stream = summing_stream.get()});
  const auto waits = [&](const gpu::Stream& waiting, const gpu::Stream& awaited) {
    return simt::stream_waits().counts[{waiting.get(), awaited.get()}];
  };
  ThreadGroup group(1);
  BasicThreadCommunicator<CudaMemory> communicator(group, 0, CudaMemory(summing));
  const OnDevice<float> gradients(backend, std::vector<float>(100, 1.0f));
  const std::span<float> all(gradients.data(), 100);
  BucketedAllReduce buckets(communicator, all, 40 * sizeof(float), backend, Cuda({.stream = summing_stream.get()}));
  for (int step = 0; step < 2; ++step) {
    buckets.ready(all.subspan(70));
    CHECK(waits(summing_stream, stream) == 2 * step);  // not a bucket yet
    buckets.ready(all.subspan(50, 20));
    CHECK(waits(summing_stream, stream) == 2 * step + 1);
    buckets.ready(all.first(50));
    CHECK(waits(summing_stream, stream) == 2 * step + 2);
    CHECK(waits(stream, summing_stream) == step);
    buckets.wait();
    CHECK(waits(stream, summing_stream) == step + 1);
  }
  CHECK(gradients.read() == std::vector<float>(100, 1.0f));
  gpu::check(cudaSetDevice(0), "choosing GPU 0");
}
