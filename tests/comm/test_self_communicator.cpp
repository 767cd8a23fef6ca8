// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/ghost_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/core/memory.hpp>

#include <doctest/doctest.h>

#include <tessera/laws/communicator_laws.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
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

TEST_CASE("a ghost of one rank keeps the laws of communicators") {
  ts::GhostCommunicator alone(0, 1);
  CHECK(ts::laws::communicator_laws(alone) == std::vector<std::string>{});
  CHECK(alone.link_seconds() == 0);
}

TEST_CASE("a ghost's peers send what is played, else zeros, and gather and reduce what it gives") {
  ts::GhostCommunicator ghost(1, 3);
  const std::vector<std::int32_t> send{1, 2, 3, 4, 5, 6};
  const std::vector<std::size_t> out{1, 2, 3}, in{2, 2, 1};
  std::vector<std::int32_t> receive(5, -1);
  ghost.all_to_all<std::int32_t>(send, out, receive, in);
  CHECK(receive == std::vector<std::int32_t>{0, 0, 2, 3, 0});
  CHECK(ghost.made_up() == 1);

  ts::detail::ReceivedCalls calls(2);
  const std::vector<std::int32_t> given{7, 8, 2, 3, 9};
  calls[0].resize(20);
  std::memcpy(calls[0].data(), given.data(), 20);
  calls[1].resize(4);  // not what the second call receives
  ghost.play(calls);
  ghost.all_to_all<std::int32_t>(send, out, receive, in);
  CHECK(receive == given);
  CHECK(ghost.made_up() == 1);
  ghost.all_to_all<std::int32_t>(send, out, receive, in);
  CHECK(receive == std::vector<std::int32_t>{0, 0, 2, 3, 0});
  CHECK(ghost.made_up() == 2);

  std::vector<std::int32_t> all(6, -1);
  ghost.all_gather<std::int32_t>(std::span(send).first(2), all, std::vector<std::size_t>{1, 2, 3});
  CHECK(all == std::vector<std::int32_t>{1, 1, 2, 1, 2, 0});
  std::vector<float> sum{1, 2}, least{1, 2}, part(2);
  ghost.all_reduce(std::span(sum));
  CHECK(sum == std::vector<float>{3, 6});
  ghost.all_reduce(std::span(least), ts::Reduction::min);
  CHECK(least == std::vector<float>{1, 2});
  ghost.reduce_scatter<float>(std::vector<float>{9, 1, 2, 9}, part,
                              std::vector<std::size_t>{1, 2, 1});
  CHECK(part == std::vector<float>{3, 6});
}

TEST_CASE("a ghost counts what its links would take: latencies, and the busier side's bytes") {
  // ranks 0, 1 | 2, 3
  ts::GhostCommunicator ghost(1, 4,
                              {.ranks_per_node = 2,
                               .node_bandwidth = 100,
                               .node_latency = 1,
                               .network_bandwidth = 10,
                               .network_latency = 2,
                               .launch_seconds = 0.5});
  const std::vector<std::uint8_t> send(100);
  std::vector<std::uint8_t> receive(60);
  ghost.all_to_all<std::uint8_t>(send, std::vector<std::size_t>{50, 10, 30, 10}, receive,
                                 std::vector<std::size_t>{10, 10, 20, 20});
  // 0.5 to begin, one near and two far messages, 30 + 20 bytes to the other node
  CHECK(ghost.link_seconds() == doctest::Approx(0.5 + 1 + 2 * 2 + 50 / 10.0));
  ghost.reset_links();
  ghost.barrier();
  CHECK(ghost.link_seconds() == 0);
}

TEST_CASE("a ghost refuses ranks that there are not, and counts that contradict the buffers") {
  CHECK_THROWS_WITH_AS(ts::GhostCommunicator(3, 3),
                       "GhostCommunicator: rank 3 is not in 0..2 of 3 ranks", ts::InvalidArgument);
  CHECK_THROWS_AS(ts::GhostCommunicator(0, 2, {.node_bandwidth = 0}), ts::InvalidArgument);
  ts::GhostCommunicator ghost(0, 2);
  std::vector<int> four(4);
  const std::vector<int> send{1, 2, 3};
  const std::vector<std::size_t> two{2, 2}, three{2, 1}, other{1, 3};
  CHECK_THROWS_AS(ghost.all_to_all<int>(send, two, four, two), ts::InvalidArgument);
  CHECK_THROWS_WITH_AS(ghost.all_to_all<int>(send, three, four, other),
                       "all_to_all on rank 0: it sends itself 2 elements and expects 1",
                       ts::InvalidArgument);
  CHECK_THROWS_AS(ghost.broadcast(std::span(four), 2), ts::InvalidArgument);
}
