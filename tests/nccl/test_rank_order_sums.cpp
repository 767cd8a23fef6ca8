// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// RankOrderSums over NCCL's double, whose own sums run backwards here, on the emulator's streams.
#include <simt/simt.hpp>

#include <nccl_double/nccl.h>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/nccl_communicator.hpp>
#include <tessera/comm/rank_order_sums.cuh>
#include <tessera/comm/thread_communicator.hpp>

#include <doctest/doctest.h>

#include <nccl/on_ranks.hpp>
#include <nccl/through_device.hpp>
#include <support/communicator_laws.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace ts = tessera;
using namespace std::chrono_literals;

namespace {

using Ordered = ts::RankOrderSums<ts::NcclCommunicator>;

/// What NCCL sums in another order, while this lives.
struct Backwards {
  Backwards() { nccl_double::sums_in_reverse = true; }
  ~Backwards() { nccl_double::sums_in_reverse = false; }
};

/// Values whose sum depends on the order.
std::vector<float> values_of(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank + 1));
  std::uniform_real_distribution<float> exponent(-20, 20);
  std::vector<float> values(count);
  for (float& v : values) v = (random() % 2 == 0 ? 1.0f : -1.0f) * std::exp2(exponent(random));
  return values;
}

/// ((v0 + v1) + v2) ...
std::vector<float> sum_of(int ranks, std::size_t count) {
  std::vector<float> sum = values_of(0, count);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<float> more = values_of(r, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
  }
  return sum;
}

}  // namespace

TEST_CASE("sums over NCCL have the bits of the ranks' order, in both memories") {
  const Backwards backwards;
  for (const int ranks : {1, 2, 3, 5})
    for (const std::size_t count : {0u, 1u, 31u, 32u, 33u, 700u, 4096u}) {
      CAPTURE(ranks);
      CAPTURE(count);
      const std::vector<float> expected = sum_of(ranks, count);
      bool nccls_differ = false;
      const Texts texts = on_ranks(ranks, [&](ts::NcclCommunicator& c, cudaStream_t stream) {
        Ordered ordered(c, ts::Cuda({.stream = stream}));
        std::vector<float> mine = values_of(c.rank(), count);
        {
          const Device<float> device(mine, stream);
          ordered.all_reduce(device.span());
          c.wait();
          std::vector<float> found(count);
          device.read(found);
          CHECK((found == expected));
        }
        std::vector<float> on_host = mine;
        ordered.all_reduce(std::span(on_host));
        CHECK((on_host == expected));
        std::vector<float> by_nccl = mine;
        c.all_reduce(std::span(by_nccl));
        if (c.rank() == 0) nccls_differ = by_nccl != expected;
        // blocks of different sizes, the last of none
        std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), 0);
        std::size_t begin = 0;
        for (std::size_t r = 0; r + 1 < counts.size(); ++r) counts[r] = (count - begin) / (r + 2);
        for (std::size_t r = 0; r < counts.size(); ++r) begin += counts[r];
        counts[0] += count - begin;
        begin = 0;
        for (int r = 0; r < c.rank(); ++r) begin += counts[static_cast<std::size_t>(r)];
        std::vector<float> block(counts[static_cast<std::size_t>(c.rank())]);
        ordered.reduce_scatter<float>(mine, std::span(block), counts);
        CHECK((block == std::vector<float>(
                            expected.begin() + static_cast<std::ptrdiff_t>(begin),
                            expected.begin() + static_cast<std::ptrdiff_t>(begin + block.size()))));
      });
      CHECK(texts == Texts(static_cast<std::size_t>(ranks)));
      // else this test would find nothing
      CHECK(nccls_differ == (ranks > 2 && count > 1));
    }
}

TEST_CASE("a sum of more ranks than a kernel takes goes on from the sum so far") {
  const Backwards backwards;
  constexpr int ranks = 260;  // two rounds and some of a third
  constexpr std::size_t count = 3;
  const std::vector<float> expected = sum_of(ranks, count);
  int right = 0;
  const Texts texts = on_ranks(ranks, [&](ts::NcclCommunicator& c, cudaStream_t stream) {
    Ordered ordered(c, ts::Cuda({.stream = stream}));
    const std::vector<float> mine = values_of(c.rank(), count);
    const Device<float> device(mine, stream);
    ordered.all_reduce(device.span());
    c.wait();
    std::vector<float> found(count);
    device.read(found);
    if (c.rank() == 0) right = found == expected;
  });
  CHECK(texts == Texts(ranks));
  CHECK(right == 1);
}

TEST_CASE("ordered ranks obey the laws of communicators") {
  const Backwards backwards;
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    const Texts texts = on_ranks(ranks,
                                 [&](ts::NcclCommunicator& c, cudaStream_t stream) {
                                   Ordered ordered(c, ts::Cuda({.stream = stream}));
                                   ThroughDevice through(ordered, c);
                                   ts::AnyCommunicator from_host(ordered), on_device(through);
                                   for (ts::AnyCommunicator* any : {&from_host, &on_device})
                                     CHECK(laws_of(*any, {.seed = 5, .large = 20'000}) == Texts{});
                                 },
                                 {.timeout = 60s});
    CHECK(texts == Texts(static_cast<std::size_t>(ranks)));
  }
}

TEST_CASE("what CUDA refuses the communicator is not left for CUB to find") {
  CHECK(ts::NcclMemory().allocate(std::size_t{1} << 60, nullptr) == nullptr);
  CHECK(cudaGetLastError() == cudaSuccess);
}
