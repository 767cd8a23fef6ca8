// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

// The emulator's intrinsics against their definitions, its orders, and the runtime that stands in
// for CUDA's.
#include <tessera/concepts/backend.hpp>
#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/sort.cuh>

#include <doctest/doctest.h>
#include <cub/device/device_radix_sort.cuh>
#include <support/message_of.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace gpu = tessera::gpu;

namespace {

struct WarpResults {
  int shuffled, up, down, crossed, segment;
  double wide;
  unsigned ballot, any, all, match, sum, least, most;
  int signed_least, signed_most;
};

__global__ void use_every_intrinsic(const int* values, WarpResults* results) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), lane = i % 32,
            v = values[i];
  const unsigned full = 0xffffffffu, half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  WarpResults& r = results[i];
  r.shuffled = __shfl_sync(full, v, (lane * 7) % 32);
  r.up = __shfl_up_sync(full, v, 3);
  r.down = __shfl_down_sync(full, v, 5, 8);
  r.crossed = __shfl_xor_sync(full, v, 9);
  r.segment = __shfl_sync(half, v, 2, 16);
  r.wide = __shfl_sync(full, v + 0.5, 31 - lane);
  r.ballot = __ballot_sync(full, v > 0);
  r.any = static_cast<unsigned>(__any_sync(half, v == 5));
  r.all = static_cast<unsigned>(__all_sync(full, v > -100));
  r.match = __match_any_sync(full, v);
  r.sum = __reduce_add_sync(full, static_cast<unsigned>(v));
  r.least = __reduce_min_sync(half, static_cast<unsigned>(v));
  r.most = __reduce_max_sync(half, static_cast<unsigned>(v));
  r.signed_least = __reduce_min_sync(full, v);
  r.signed_most = __reduce_max_sync(full, v);
}

__global__ void sum_of_block(const int* in, int* out) {
  int* tile = gpu::dynamic_shared<int>();
  auto& warps = gpu::block_shared<int[32]>();
  const unsigned t = threadIdx.x;
  tile[t] = in[blockIdx.x * blockDim.x + t];
  __syncthreads();
  int v = tile[blockDim.x - 1 - t];
  for (int m = 16; m > 0; m /= 2) v += __shfl_xor_sync(0xffffffffu, v, m);
  if (t % 32 == 0) warps[t / 32] = v;
  __syncthreads();
  if (t == 0) {
    int sum = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += warps[w];
    out[blockIdx.x] = sum;
  }
}

__global__ void record_order(int* next, int* order) {
  order[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void read_unwritten_shared(float* out) {
  out[threadIdx.x] = gpu::block_shared<float[32]>()[threadIdx.x];
}

// A lock that spins: works only if a thread that waits lets others run.
__global__ void count_under_lock(int* lock, int* count) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  __threadfence();
  *count += 1;
  __threadfence();
  atomicExch(lock, 0);
}

std::vector<int> order_of_threads(int blocks, int threads) {
  std::vector<int> order(static_cast<std::size_t>(blocks * threads), -1);
  int next = 0;
  gpu::launch("record_order", {.blocks = blocks, .threads = threads}, record_order, &next,
              order.data());
  return order;
}

}  // namespace

TEST_CASE("every intrinsic does what CUDA's guide says, under every order") {
  std::vector<int> values(128);
  for (int i = 0; i < 128; ++i) values[static_cast<std::size_t>(i)] = (i * 37 + 11) % 13 - 6;
  simt::under_every_order([&] {
    std::vector<WarpResults> results(128);
    gpu::launch("use_every_intrinsic", {.blocks = 2, .threads = 64}, use_every_intrinsic,
                values.data(), results.data());
    for (int i = 0; i < 128; ++i) {
      const int lane = i % 32, warp = i - lane, half = lane / 16 * 16;
      const auto v = [&](int l) { return values[static_cast<std::size_t>(warp + l)]; };
      const WarpResults& r = results[static_cast<std::size_t>(i)];
      CHECK(r.shuffled == v(lane * 7 % 32));
      CHECK(r.up == v(lane < 3 ? lane : lane - 3));
      CHECK(r.down == v(lane % 8 + 5 > 7 ? lane : lane + 5));
      CHECK(r.crossed == v(lane ^ 9));
      CHECK(r.segment == v(half + 2));
      CHECK(r.wide == v(31 - lane) + 0.5);
      unsigned ballot = 0, match = 0, sum = 0, least = ~0u, most = 0, any = 0;
      for (int l = 0; l < 32; ++l) {
        ballot |= static_cast<unsigned>(v(l) > 0) << l;
        match |= static_cast<unsigned>(v(l) == v(lane)) << l;
        sum += static_cast<unsigned>(v(l));
        if (l / 16 != lane / 16) continue;
        any |= static_cast<unsigned>(v(l) == 5);
        least = std::min(least, static_cast<unsigned>(v(l)));
        most = std::max(most, static_cast<unsigned>(v(l)));
      }
      CHECK(r.ballot == ballot);
      CHECK(r.match == match);
      CHECK(r.sum == sum);
      CHECK(r.any == any);
      CHECK(r.all == 1);
      CHECK(r.least == least);
      CHECK(r.most == most);
      CHECK(r.signed_least == *std::min_element(values.begin() + warp, values.begin() + warp + 32));
      CHECK(r.signed_most == *std::max_element(values.begin() + warp, values.begin() + warp + 32));
    }
  });
}

TEST_CASE("barriers and shared memory: the largest block, 48 KiB and more of shared memory") {
  for (const int threads : {32, 96, simt::has_tsan ? 256 : 1024}) {
    std::vector<int> in(static_cast<std::size_t>(3 * threads)), out(3);
    std::iota(in.begin(), in.end(), -50);
    simt::under_every_order([&] {
      std::fill(out.begin(), out.end(), -1);
      const gpu::LaunchShape shape{
          .blocks = 3, .threads = threads, .shared_bytes = threads == 96 ? 100'000u : 4u * 1024};
      gpu::launch("sum_of_block", shape, sum_of_block, in.data(), out.data());
      for (int b = 0; b < 3; ++b)
        CHECK(out[static_cast<std::size_t>(b)] ==
              std::accumulate(&in[static_cast<std::size_t>(b * threads)],
                              &in[static_cast<std::size_t>(b * threads)] + threads, 0));
    });
  }
}

TEST_CASE("orders: forward, reverse, random ones that differ by their seed; each thread once") {
  std::vector<int> forward = order_of_threads(3, 70), backward, first, again, second;
  CHECK(std::is_sorted(forward.begin(), forward.end()));
  {
    const simt::Scope scope({.order = simt::Order::reverse});
    backward = order_of_threads(3, 70);
  }
  std::reverse(backward.begin(), backward.end());
  CHECK(backward == forward);
  {
    const simt::Scope scope({.order = simt::Order::random, .seed = 5});
    first = order_of_threads(3, 70);
    again = order_of_threads(3, 70);
  }
  {
    const simt::Scope scope({.order = simt::Order::random, .seed = 6});
    second = order_of_threads(3, 70);
  }
  CHECK(first == again);
  CHECK(first != second);
  CHECK(first != forward);
  CHECK(std::set<int>(first.begin(), first.end()).size() == 210);
}

TEST_CASE("shared memory that nobody wrote is NaN") {
  std::vector<float> out(32, 0.0f);
  gpu::launch("read_unwritten_shared", {.blocks = 1, .threads = 32}, read_unwritten_shared,
              out.data());
  CHECK(std::all_of(out.begin(), out.end(), [](float x) { return x != x; }));
}

TEST_CASE("threads that spin on an atomic let others run") {
  const simt::Scope scope({.order = simt::Order::random, .seed = 3, .preempt_at_atomics = true});
  int lock = 0, count = 0;
  gpu::launch("count_under_lock", {.blocks = 2, .threads = 64}, count_under_lock, &lock, &count);
  CHECK(count == 128);
}

TEST_CASE(
    "the launcher: nothing for an empty grid, and errors that name the kernel and its shape") {
  int next = 0, order = 0;
  gpu::launch("record_order", {.blocks = 0, .threads = 32}, record_order, &next, &order);
  CHECK(next == 0);
  const auto text = [&](const gpu::LaunchShape& shape) {
    return message_of<tessera::Error>(
        [&] { gpu::launch("record_order", shape, record_order, &next, &order); });
  };
  CHECK(text({.blocks = 5, .threads = 1025}) ==
        "kernel record_order (grid 5, block 1025, 0 bytes of dynamic shared memory): CUDA error "
        "cudaErrorInvalidConfiguration "
        "(cudaErrorInvalidConfiguration)");
  CHECK(text({.blocks = 5, .threads = 32, .shared_bytes = 228 * 1024})
            .find("233472 bytes of dynamic shared memory): CUDA error") != std::string::npos);
  CHECK(text({.blocks = 1ll << 31, .threads = 32}).find("2147483648 blocks") != std::string::npos);
  CHECK(text({.blocks = -1, .threads = 32}).find("-1 blocks") != std::string::npos);
}

TEST_CASE(
    "an error is thrown once, by the call that met it: neither a later launch nor a sort takes it "
    "for its own") {
  int next = 0, order[2] = {};
  const auto launch = [&](int threads) {
    gpu::launch("record_order", {.blocks = 1, .threads = threads}, record_order, &next, &order[0]);
  };
  CHECK_THROWS_AS(launch(1025), tessera::CudaError);
  CHECK(cudaGetLastError() == cudaSuccess);
  launch(1);
  CHECK(next == 1);
  CHECK_THROWS_AS(gpu::check(cudaSetDevice(-1), "choosing GPU -1"), tessera::CudaError);
  const tessera::Cuda backend;
  const gpu::DeviceBuffer<std::uint32_t> keys(8, nullptr), values(8, nullptr);
  gpu::sort_pairs<std::uint32_t>(
      backend, {keys.data(), values.data(), keys.data() + 4, values.data() + 4}, 4, 8);
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);  // a caller's, who does not look
  launch(1);
  CHECK(next == 2);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

TEST_CASE(
    "a stream takes work of threads that work with its GPU; what thread_setup answers makes "
    "another thread one of these") {
  int next = 0, order[2] = {};
  CHECK(cudaSetDevice(1) == cudaSuccess);
  {
    const gpu::Stream stream;
    const auto launch = [&] {
      gpu::launch("record_order", {.blocks = 1, .threads = 1, .stream = stream.get()}, record_order,
                  &next, &order[0]);
    };
    launch();
    std::thread([&] { CHECK_THROWS_AS(launch(), tessera::CudaError); }).join();
    std::thread([&,
                 setup = tessera::detail::thread_setup(tessera::Cuda({.stream = stream.get()}))] {
      setup();
      launch();
    }).join();
  }
  cudaSetDevice(0);
  CHECK(next == 2);
}

TEST_CASE("memory goes through the resource that the user gave, and back") {
  struct Counting {
    std::int64_t live = 0, calls = 0;
    gpu::AsyncMemoryResource upstream;
    void* allocate(std::size_t bytes, cudaStream_t stream) {
      live += static_cast<std::int64_t>(bytes);
      ++calls;
      return upstream.allocate(bytes, stream);
    }
    void deallocate(void* p, std::size_t bytes, cudaStream_t stream) noexcept {
      live -= static_cast<std::int64_t>(bytes);
      upstream.deallocate(p, bytes, stream);
    }
  };
  Counting counting;
  const gpu::Stream stream;
  {
    gpu::DeviceBuffer<float> a(10, stream.get(), counting), nothing(0, stream.get(), counting);
    CHECK(counting.live == 40);
    CHECK(reinterpret_cast<std::uintptr_t>(a.data()) % 256 == 0);
    CHECK(nothing.data() == nullptr);
    const gpu::DeviceBuffer<float> b = std::move(a);
    CHECK(a.data() == nullptr);
    CHECK(b.size() == 10);
    a = gpu::DeviceBuffer<float>(3, stream.get(), counting);
    CHECK(a.size() == 3);
    a = gpu::DeviceBuffer<float>(100, stream.get(), counting);
    CHECK(a.size() == 100);
    const std::vector<float> host{1, 2, 3};
    std::vector<float> back(3);
    gpu::copy(a.data(), host.data(), 3, stream.get());
    gpu::copy(back.data(), a.data(), 3, stream.get());
    CHECK(back == host);
    gpu::zero(a.data(), 2, stream.get());
    gpu::copy(back.data(), a.data(), 3, stream.get());
    CHECK(back == std::vector<float>{0, 0, 3});
  }
  CHECK(counting.live == 0);
  CHECK(counting.calls == 3);
  CHECK_THROWS_AS(gpu::DeviceBuffer<float>(-1, stream.get()), tessera::InvalidArgument);
}

TEST_CASE("host threads may launch at the same time") {
  std::vector<std::thread> ranks;
  std::vector<int> in(64, 1), out(4 * 2);
  for (int r = 0; r < 4; ++r)
    ranks.emplace_back([&, r] {
      for (int k = 0; k < 5; ++k)
        gpu::launch("sum_of_block", {.blocks = 2, .threads = 32, .shared_bytes = 128}, sum_of_block,
                    in.data(), &out[static_cast<std::size_t>(2 * r)]);
    });
  for (std::thread& rank : ranks) rank.join();
  CHECK(std::all_of(out.begin(), out.end(), [](int sum) { return sum == 32; }));
}

TEST_CASE("the sort that stands in for CUB's: only the bits asked for, stable") {
  std::vector<std::uint32_t> keys{0x105, 0x203, 0x305, 0x001}, keys2(4);
  std::vector<int> values{0, 1, 2, 3}, values2(4);
  cub::DoubleBuffer<std::uint32_t> k(keys.data(), keys2.data());
  cub::DoubleBuffer<int> v(values.data(), values2.data());
  std::size_t bytes = 0;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, k, v, 4, 0, 8, nullptr);
  std::vector<char> temporary(bytes);
  cub::DeviceRadixSort::SortPairs(temporary.data(), bytes, k, v, 4, 0, 8, nullptr);
  CHECK(std::vector<int>(v.Current(), v.Current() + 4) == std::vector<int>{3, 1, 0, 2});
  CHECK(k.Current()[3] == 0x305);
}
