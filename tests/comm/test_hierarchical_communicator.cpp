// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Two-stage exchanges on thread ranks, with nodes that are made up.
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/fault_injecting_communicator.hpp>
#include <tessera/comm/hierarchical_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include <doctest/doctest.h>

#include <tessera/laws/communicator_laws.hpp>

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ts = tessera;
using Faults = std::vector<std::string>;
using Counting = ts::CountingCommunicator<ts::ThreadCommunicator>;

TEST_CASE(
    "thread ranks split: ranks in order, data stays within a part, a part ends with its group") {
  std::vector<int> sums(6);
  ts::run_ranks(6, [&](ts::ThreadCommunicator& c) {
    ts::ThreadCommunicator part = c.split(c.rank() % 2 == 0 ? 7 : -1);
    CHECK(part.size() == 3);
    CHECK(part.rank() == c.rank() / 2);
    std::int32_t sum = c.rank();
    part.all_reduce(std::span(&sum, 1));
    sums[static_cast<std::size_t>(c.rank())] = sum;
    ts::ThreadCommunicator alone = part.split(part.rank());
    CHECK(alone.size() == 1);
  });
  CHECK(sums == std::vector<int>{6, 9, 6, 9, 6, 9});

  Faults texts(4);
  try {
    ts::run_ranks(4, [&](ts::ThreadCommunicator& c) {
      ts::ThreadCommunicator part = c.split(c.rank() / 2);
      try {
        if (c.rank() == 3) throw std::runtime_error("no more data");
        for (;;) part.barrier();  // ranks 0 and 1 are in another part than rank 3
      } catch (const std::exception& error) {
        texts[static_cast<std::size_t>(c.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  for (const std::string& text : texts) CHECK(text.find("no more data") != std::string::npos);
}

TEST_CASE("hierarchical ranks obey the laws, on nodes of any size") {
  for (const auto& shape : {std::pair{1, 1}, {4, 2}, {6, 3}, {6, 2}, {3, 3}, {3, 1}}) {
    const int ranks = shape.first, per_node = shape.second;
    CAPTURE(ranks);
    CAPTURE(per_node);
    std::vector<Faults> faults(static_cast<std::size_t>(ranks));
    ts::run_ranks(ranks, [&](ts::ThreadCommunicator& c) {
      auto h = ts::make_hierarchical(c, per_node);
      CHECK(h.rank() == c.rank());
      CHECK(h.size() == c.size());
      faults[static_cast<std::size_t>(c.rank())] =
          ts::laws::communicator_laws(h, {.seed = 5, .large = 5000});
    });
    for (const Faults& rank : faults) CHECK(rank == Faults{});
  }
  ts::run_ranks(3, [](ts::ThreadCommunicator& c) {
    CHECK_THROWS_WITH_AS(ts::make_hierarchical(c, 2),
                         "make_hierarchical: 3 ranks are no whole number of nodes of 2",
                         ts::InvalidArgument);
  });
}

TEST_CASE("hierarchical ranks say that they take host memory alone, also when wrapped") {
  ts::run_ranks(2, [](ts::ThreadCommunicator& c) {
    auto h = ts::make_hierarchical(c, 1);
    const ts::CountingCommunicator counting(h);
    const ts::FaultInjectingCommunicator injecting(h, {});
    CHECK(counting.host_memory_only());
    CHECK(injecting.host_memory_only());
    CHECK(ts::AnyCommunicator(h).host_memory_only());
    CHECK_FALSE(ts::AnyCommunicator(c).host_memory_only());
  });
}

TEST_CASE(
    "messages and bytes between nodes: one message per other node and its sizes, instead of one "
    "per rank there") {
  constexpr int kRanks = 8, kPerNode = 4;
  std::vector<std::vector<std::int32_t>> flat(kRanks), two_stage(kRanks);
  std::vector<ts::Traffic> across(kRanks);
  const auto count = [](int from, int to) { return static_cast<std::size_t>(10 + from + 3 * to); };
  const auto exchange = [&](auto& c, std::vector<std::int32_t>& received) {
    std::vector<std::size_t> out, in;
    for (int peer = 0; peer < kRanks; ++peer) {
      out.push_back(count(c.rank(), peer));
      in.push_back(count(peer, c.rank()));
    }
    std::vector<std::int32_t> send(std::accumulate(out.begin(), out.end(), std::size_t{0}));
    std::iota(send.begin(), send.end(), 1000 * c.rank());
    received.resize(std::accumulate(in.begin(), in.end(), std::size_t{0}));
    c.all_to_all(send, out, std::span(received), in);
  };
  ts::run_ranks(kRanks, [&](ts::ThreadCommunicator& c) {
    const auto mine = static_cast<std::size_t>(c.rank());
    exchange(c, flat[mine]);
    ts::ThreadCommunicator local = c.split(c.rank() / kPerNode),
                           cross = c.split(c.rank() % kPerNode);
    ts::HierarchicalCommunicator<Counting> h{Counting(local), Counting(cross)};
    exchange(h, two_stage[mine]);
    across[mine] = h.cross().total();
  });
  CHECK(flat == two_stage);
  for (int r = 0; r < kRanks; ++r) {
    // From this rank's node, for the rank in its place on the other node: one message with 1 + 4
    // sizes; flat: 4 messages.
    const int other = (r + kPerNode) % kRanks;
    std::size_t elements = 0;
    for (int p = 0; p < kPerNode; ++p) elements += count(r / kPerNode * kPerNode + p, other);
    CHECK(across[static_cast<std::size_t>(r)] == ts::Traffic{1, 1, elements * 4 + 5 * 8});
  }
}

TEST_CASE("what ranks do not agree about is found, within a node and between nodes") {
  const auto text_of = [](auto wrong) {
    std::string text;
    try {
      ts::run_ranks(4, [&](ts::ThreadCommunicator& c) {
        auto h = ts::make_hierarchical(c, 2);
        wrong(h);
      });
    } catch (const ts::CommunicatorError& error) {
      text = error.what();
    }
    return text;
  };
  // Rank 3 expects an element too many from rank 0 and one too few from rank 1: the sum of the node
  // is right.
  CHECK(text_of([](auto& h) {
          const std::vector<std::size_t> out(4, 2);
          const std::vector<std::size_t> in =
              h.rank() == 3 ? std::vector<std::size_t>{3, 1, 2, 2} : out;
          const std::vector<float> send(8);
          std::vector<float> receive(8);
          h.all_to_all(send, out, std::span(receive), in);
        }) == "all_to_all (call 1): rank 0 sends 2 elements to rank 3, which expects 3");
  CHECK(text_of([](auto& h) {
          std::vector<float> values(8);
          h.all_reduce(std::span(values), h.rank() < 2 ? ts::Reduction::sum : ts::Reduction::max);
        }).find("makes another call") != std::string::npos);
  // each node agrees with the same place on the other
  CHECK(text_of([](auto& h) {
          float value = 1;
          h.broadcast(std::span(&value, 1), h.rank() % 2 == 0 ? 1 : 3);
        }).find("names root") != std::string::npos);
}
