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
  const OnGpu<float> gradients(backend, std::vector<float>(100, 1.0f));
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
      Mlp<Cuda> mlp(backend, {5, 8, 3, 2});
      DenseParameters parameters(backend, 5, mlp);
      DenseOptimizer optimizer(backend, Sgd{});
      BucketedAllReduce buckets(second, parameters.gradients(), 40 * sizeof(float), backend,
                                Cuda({.stream = summing_stream.get()}));
      Random random(static_cast<unsigned>(host.rank()) + 3);
      const auto x = random_elements<float>(random, batch * 5),
                 dy = random_elements<float>(random, batch * 2);
      const OnGpu<float> in(backend, x), out_gradient(backend, dy), out(backend, dy);
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
  const OnGpu<float> x(plain, std::vector<float>(batch * width)), z(plain, x.read()),
      y(plain, std::vector<float>(batch));
  const OnGpu<double> loss(plain, {0.0});
  const std::size_t others = simt::DeviceHeap::instance().count();
  {
    const Cuda backend({.memory = counting});
    Mlp<Cuda> mlp(backend, {width, 16, 12, 1}),
        epilogues(backend, {width, 16, 12, 1}, {.gradient_epilogues = true}),
        narrow(backend, {width, 16, 12, 1}, {.precision = DensePrecision::bfloat16});
    CrossInteraction<Linear<Cuda>> cross(backend, width, {.layers = 2});
    DenseParameters parameters(backend, 5, mlp, epilogues, narrow, cross);
    DenseOptimizer optimizer(backend, Adam{});
    const MatrixView<float> all(x.data(), batch, width), crossed(z.data(), batch, width),
        one(y.data(), batch, 1);
    for (Mlp<Cuda>* layers : {&mlp, &epilogues, &narrow}) {
      layers->forward(all, one);
      layers->backward(one, all);
    }
    cross.forward(all, crossed);
    cross.backward(crossed, all);
    BinaryCrossEntropyWithLogits{}.forward_backward(backend, one, {y.data(), batch}, one,
                                                    loss.data());
    optimizer.step(parameters, 0.1f);
    CHECK(counting.live > 12);
    CHECK(simt::DeviceHeap::instance().count() == others + counting.live);
  }
  CHECK(counting.live == 0);
  CHECK(simt::DeviceHeap::instance().count() == others);
}

TEST_CASE("mlp: an epilogue that cuBLASLt has for one batch and not for the next") {
  const auto last_gradients = [&](bool epilogues) {
    const Cuda backend;
    Mlp<Cuda> mlp(backend, {8, 16, 24, 8}, {.gradient_epilogues = epilogues});
    DenseParameters parameters(backend, 5, mlp);
    std::vector<float> gradients(static_cast<std::size_t>(parameters.size()));
    for (const std::int64_t batch : {9, 10}) {
      simt::gradient_epilogue_multiple = batch == 9 ? 1 : 1000;
      Random random(static_cast<unsigned>(batch));
      const OnGpu<float> x(backend, random_elements<float>(random, batch * 8)),
          dy(backend, random_elements<float>(random, batch * 8)),
          y(backend, random_elements<float>(random, batch * 8));
      mlp.forward({x.data(), batch, 8}, {y.data(), batch, 8});
      mlp.backward({dy.data(), batch, 8}, {});
      CHECK(mlp.epilogues(1).applied_mask == (epilogues && batch == 9));
    }
    simt::gradient_epilogue_multiple = 1;
    backend.copy(gradients.data(), parameters.gradients().data(), gradients.size() * sizeof(float));
    backend.synchronize();
    return gradients;
  };
  CHECK((last_gradients(true) == last_gradients(false)));
}

TEST_CASE("mlp: where cuBLASLt has no epilogue for a layer, kernels take over, layer by layer") {
  constexpr std::int64_t batch = 9;
  const std::vector<std::int64_t> sizes{8, 16, 7, 24, 8, 3};
  struct Run {
    std::vector<float> y, dx, gradients;
    std::vector<Mlp<Cuda>::Epilogues> epilogues;
  };
  const auto run = [&](bool epilogues, int multiple, DensePrecision precision) {
    simt::gradient_epilogue_multiple = multiple;
    const Cuda backend;
    Mlp<Cuda> mlp(backend, sizes, {.precision = precision, .gradient_epilogues = epilogues});
    DenseParameters parameters(backend, 5, mlp);
    std::vector<float> values;
    for (int i = 0; i < batch * 8; ++i) values.push_back(static_cast<float>(i % 13) * 0.25f - 1.5f);
    const OnGpu<float> x(backend, values), dx(backend, values), y(backend, values);
    const OnGpu<float> dy(backend, std::vector<float>(values.begin(), values.begin() + batch * 3));
    mlp.forward({x.data(), batch, 8}, {y.data(), batch, 3});
    mlp.backward({dy.data(), batch, 3}, {dx.data(), batch, 8});
    Run result{
        y.read(), dx.read(), std::vector<float>(static_cast<std::size_t>(parameters.size())), {}};
    result.y.resize(batch * 3);
    backend.copy(result.gradients.data(), parameters.gradients().data(),
                 result.gradients.size() * sizeof(float));
    for (int l = 0; l < mlp.layers(); ++l) result.epilogues.push_back(mlp.epilogues(l));
    simt::gradient_epilogue_multiple = 1;
    return result;
  };
  const auto close = [](const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](float x, float y) {
      return std::abs(x - y) <= tolerance * (1 + std::abs(y));
    });
  };
  for (const DensePrecision precision : {DensePrecision::float32, DensePrecision::bfloat16}) {
    const float tolerance = precision == DensePrecision::float32 ? 1e-5f : 2e-2f;
    const Run kernels = run(false, 1, precision), some = run(true, 8, precision),
              all = run(true, 1, precision);
    for (const Run* other : {&some, &all}) {
      CHECK((other->y == kernels.y));
      CHECK(close(other->dx, kernels.dx, tolerance));
      CHECK(close(other->gradients, kernels.gradients, tolerance));
    }
    // widths 16, 7, 24, 8, 3 come out of the layers, 8, 16, 7, 24, 8 go in
    using E = Mlp<Cuda>::Epilogues;
    CHECK((kernels.epilogues == std::vector<E>(5)));
    // forward products in bfloat16 have 8 columns in place of 7
    const bool padded = precision == DensePrecision::bfloat16;
    CHECK((some.epilogues == std::vector<E>{{true, true, true},
                                            {padded, false, false},
                                            {true, true, false},
                                            {true, true, true},
                                            {false, false, false}}));
    const bool last_sums = precision == DensePrecision::float32;
    CHECK((all.epilogues == std::vector<E>{{true, true, true},
                                           {true, true, true},
                                           {true, true, true},
                                           {true, true, true},
                                           {false, false, last_sums}}));
  }
}

TEST_CASE("mlp: all products have strides of whole 16 bytes, whatever the hidden widths") {
  for (const DensePrecision precision : {DensePrecision::float32, DensePrecision::bfloat16}) {
    const bool narrows = precision == DensePrecision::bfloat16;
    const Cuda backend;
    // The input's and the output's rows are the caller's; 16-bit copies of them are not.
    const std::int64_t in = narrows ? 13 : 12, batch = 5;
    Mlp<Cuda> mlp(backend, {in, 39, 7, 9, 4}, {.precision = precision});
    DenseParameters parameters(backend, 5, mlp);
    Random random(3);
    const OnGpu<float> x(backend, random_elements<float>(random, batch * in)),
        dy(backend, random_elements<float>(random, batch * 4)),
        y(backend, std::vector<float>(batch * 4));
    const int before = simt::unaligned_products, products = simt::products;
    mlp.forward({x.data(), batch, in}, {y.data(), batch, 4});
    mlp.backward({dy.data(), batch, 4});
    CHECK(simt::products == products + 4 + 4 + 3);
    CHECK(simt::unaligned_products == before);
  }
}

TEST_CASE("mlp: candidates are timed in the first step, and the results are the same") {
  constexpr std::int64_t batch = 5;
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  Mlp<Cuda> plain(backend, {8, 16, 4}), timed(backend, {8, 16, 4}, {.candidates = 4});
  Random random(3);
  const OnGpu<float> x(backend, random_elements<float>(random, batch * 8)),
      y(backend, std::vector<float>(batch * 4));
  const auto outputs = [&](Mlp<Cuda>& mlp, int products) {
    const int before = simt::products;
    mlp.forward({x.data(), batch, 8}, {y.data(), batch, 4});
    CHECK(simt::products == before + products);
    return y.read();
  };
  const DenseParameters of_plain(backend, 5, plain), of_timed(backend, 5, timed);
  const std::vector<float> expected = outputs(plain, 2);
  // The double offers three; each is done once and then three times.
  CHECK(outputs(timed, 2 * (3 * 4 + 1)) == expected);
  CHECK(outputs(timed, 2) == expected);
  CHECK_THROWS_AS(Mlp<Cuda>(backend, {8, 4}, {.candidates = 0}), InvalidArgument);
  CHECK_THROWS_AS(Mlp<Cuda>(backend, {8, 4}, {.candidates = 17}), InvalidArgument);
}
