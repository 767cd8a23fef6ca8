// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <gpu/dense_cases.hpp>
#include <simt/stream_communicator.hpp>

// What results cannot show here, as streams do their work at once.
TEST_CASE(
    "buckets are summed on the GPU of the thread that asks for it; each waits for the gradients so "
    "far, and what follows the wait for the "
    "sums") {
  gpu::check(cudaSetDevice(1), "choosing GPU 1");
  const gpu::Stream stream, summing_stream;
  const Cuda backend({.stream = stream.get()}), summing({.stream = summing_stream.get()});
  const auto waits = [&](const gpu::Stream& waiting, const gpu::Stream& awaited) {
    return simt::stream_waits().counts[{waiting.get(), awaited.get()}];
  };
  ThreadGroup group(1);
  BasicThreadCommunicator<CudaTransfer> communicator(group, 0, CudaTransfer(summing));
  const OnDevice<float> gradients(backend, std::vector<float>(100, 1.0f));
  const std::span<float> all(gradients.data(), 100);
  BucketedAllReduce buckets(communicator, all, 40 * sizeof(float), backend,
                            Cuda({.stream = summing_stream.get()}));
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

TEST_CASE(
    "buckets whose sums are work of their stream, as NCCL's are: the bits of one sum after "
    "backward, under every deferral") {
  constexpr int ranks = 2;
  constexpr std::int64_t batch = 40;
  under_every_deferral([] {
    ThreadGroup background(ranks);
    std::atomic<int> wrong = 0;
    run_ranks(ranks, [&](ThreadCommunicator& host) {
      const gpu::Stream stream, summing_stream;
      const Cuda backend({.stream = stream.get()}), summing({.stream = summing_stream.get()});
      ThreadCommunicator summing_threads(background, host.rank());
      simt::StreamCommunicator communicator(host, stream.get()),
          second(summing_threads, summing_stream.get());
      CudaMlp mlp(backend, {5, 8, 3, 2});
      const CudaDenseParameters parameters(backend, 5, mlp);
      CudaDenseOptimizer optimizer(backend, Sgd{});
      BucketedAllReduce buckets(second, parameters.gradients(), 40 * sizeof(float), backend,
                                Cuda({.stream = summing_stream.get()}));
      Random random(static_cast<unsigned>(host.rank()) + 3);
      const auto x = random_elements<float>(random, batch * 5),
                 dy = random_elements<float>(random, batch * 2);
      const OnDevice<float> in(backend, x), out_gradient(backend, dy), out(backend, dy);
      const auto trained = [&](bool bucketed) {
        mlp.initialize(5);
        for (int step = 0; step < 3; ++step) {  // nobody waits in between
          mlp.forward({in.data(), batch, 5}, {out.data(), batch, 2});
          if (bucketed) {
            mlp.backward({out_gradient.data(), batch, 2}, {},
                         [&](std::span<const float> part) { buckets.ready(part); });
            buckets.wait();
          } else {
            mlp.backward({out_gradient.data(), batch, 2});
            communicator.all_reduce(parameters.gradients());
          }
          optimizer.step(parameters, 0.01f);
        }
        std::vector<float> values(static_cast<std::size_t>(parameters.size()));
        backend.copy(values.data(), parameters.values().data(), values.size() * sizeof(float));
        backend.synchronize();
        return values;
      };
      const std::vector<float> at_once = trained(false);
      wrong += trained(true) != at_once;
    });
    CHECK(wrong == 0);
  });
}

TEST_CASE(
    "all memory of dense layers, their parameters and optimizer is from the user's resource") {
  struct Counting {
    std::size_t live = 0;
    gpu::AsyncMemoryResource upstream;
    void* allocate(std::size_t bytes, cudaStream_t stream) {
      ++live;
      return upstream.allocate(bytes, stream);
    }
    void deallocate(void* p, std::size_t bytes, cudaStream_t stream) noexcept {
      --live;
      upstream.deallocate(p, bytes, stream);
    }
  } counting;
  constexpr std::int64_t batch = 300, width = 8;
  const Cuda plain;
  const OnDevice<float> x(plain, std::vector<float>(batch * width)), z(plain, x.read()),
      y(plain, std::vector<float>(batch));
  const OnDevice<double> loss(plain, {0.0});
  const std::size_t others = simt::DeviceHeap::instance().count();
  {
    const Cuda backend({.memory = counting});
    CudaMlp mlp(backend, {width, 16, 12, 1}),
        epilogues(backend, {width, 16, 12, 1}, {.gradient_epilogues = true}),
        narrow(backend, {width, 16, 12, 1}, {.precision = DensePrecision::bfloat16});
    CudaCross cross(backend, width, {.layers = 2});
    const CudaDenseParameters parameters(backend, 5, mlp, epilogues, narrow, cross);
    CudaDenseOptimizer optimizer(backend, Adam{});
    const MatrixView<float> all(x.data(), batch, width), crossed(z.data(), batch, width),
        one(y.data(), batch, 1);
    for (CudaMlp* layers : {&mlp, &epilogues, &narrow}) {
      layers->forward(all, one);
      layers->backward(one, all);
    }
    cross.forward(all, crossed);
    cross.backward(crossed, all);
    CudaBinaryCrossEntropy{}.forward_backward(backend, one, {y.data(), batch}, one, loss.data());
    optimizer.step(parameters, 0.1f);
    CHECK(counting.live > 12);
    CHECK(simt::DeviceHeap::instance().count() == others + counting.live);
  }
  CHECK(counting.live == 0);
  CHECK(simt::DeviceHeap::instance().count() == others);
}
