// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/self_communicator.hpp>
#include <tessera/core/memory.hpp>

#include <doctest/doctest.h>

#include <tessera/laws/communicator_laws.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ts = tessera;

namespace {

/// The smallest communicator of a plan that needs all-reduce alone.
struct OnlyAllReduce {
  int rank() const { return 0; }
  int size() const { return 1; }
  template <ts::Reducible T>
  void all_reduce(std::span<T>, ts::Reduction = ts::Reduction::sum) {}
};

/// Claims to be one of two ranks, and moves nothing.
struct Idle {
  int rank() const { return 0; }
  int size() const { return 2; }
  template <ts::Reducible T>
  void all_reduce(std::span<T>, ts::Reduction = ts::Reduction::sum) {}
};

static_assert(ts::Communicator<OnlyAllReduce, ts::Collective::all_reduce>);
static_assert(!ts::Communicator<OnlyAllReduce>);
static_assert(!ts::Communicator < OnlyAllReduce,
              ts::Collective::all_reduce | ts::Collective::barrier >);
static_assert(ts::explain_communicator<OnlyAllReduce, ts::Collective::all_reduce>());
static_assert(!ts::Communicator<int, ts::Collective::none>);

}  // namespace

TEST_CASE("one rank obeys the laws") {
  ts::SelfCommunicator self;
  CHECK(ts::laws::communicator_laws(self) == std::vector<std::string>{});
  OnlyAllReduce only_all_reduce;
  CHECK(ts::laws::communicator_laws(only_all_reduce) == std::vector<std::string>{});
}

TEST_CASE("bytes are copied wherever buffers lie to each other") {
  std::vector<unsigned char> from(3 * 4096), to(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i % 251 + 1);
  const auto page_offset = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 4096; };
  // `behind` bytes behind each other within their pages: from 1 to 31 they go in pieces of 2048.
  for (const std::size_t behind : {0, 1, 16, 31, 32, 4095})
    for (const std::size_t bytes : {0, 1, 2047, 2048, 2049, 5000}) {
      const std::size_t begin =
          (4096 + page_offset(from.data()) + behind - page_offset(to.data())) % 4096;
      std::fill(to.begin(), to.end(), std::uint8_t{0});
      REQUIRE((page_offset(to.data() + begin) + 4096 - page_offset(from.data())) % 4096 == behind);
      ts::detail::copy_bytes(to.data() + begin, from.data(), bytes);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < to.size(); ++i)
        wrong += to[i] != (i >= begin && i < begin + bytes ? from[i - begin] : 0);
      CHECK(wrong == 0);
    }
  ts::detail::copy_bytes(nullptr, nullptr, 0);
}

TEST_CASE("the laws catch a communicator that moves nothing") {
  Idle idle;
  CHECK_FALSE(ts::laws::communicator_laws(idle).empty());
}

TEST_CASE("bad arguments of one rank") {
  ts::SelfCommunicator self;
  const std::vector<float> send(3);
  // not a constant: some compilers would warn of the copy that the check prevents
  const volatile std::size_t less = 2;
  std::vector<float> receive(3), too_small(less);
  const std::vector<std::size_t> three{3}, two{2}, two_ranks{3, 0};
  CHECK_THROWS_WITH_AS(
      self.all_to_all(send, two, std::span(receive), three),
      "all_to_all on rank 0: the counts of the send buffer add up to 2 elements, but it has 3",
      ts::InvalidArgument);
  CHECK_THROWS_WITH_AS(self.all_to_all(send, three, std::span(receive), two_ranks),
                       "all_to_all on rank 0: 2 counts for the receive buffer, but there are 1 "
                       "ranks; give one per rank",
                       ts::InvalidArgument);
  CHECK_THROWS_WITH_AS(self.all_to_all(send, three, std::span(too_small), two),
                       "all_to_all on rank 0: 3 elements to send, but room to receive 2",
                       ts::InvalidArgument);
  CHECK_THROWS_AS(self.all_gather(send, std::span(too_small), two), ts::InvalidArgument);
  CHECK_THROWS_AS(self.reduce_scatter(send, std::span(too_small), three), ts::InvalidArgument);
  CHECK_THROWS_WITH_AS(self.broadcast(std::span(receive), 1),
                       "broadcast on rank 0: root 1 is not a rank (0..0)", ts::InvalidArgument);
}
