// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/fault_injecting_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <support/communicator_laws.hpp>

#include <string>
#include <vector>

namespace ts = tessera;
using namespace std::chrono_literals;
using Faults = std::vector<std::string>;
using Counting = ts::CountingCommunicator<ts::ThreadCommunicator>;
using Injecting = ts::FaultInjectingCommunicator<ts::ThreadCommunicator>;

namespace {

struct OnlyBarrier {
  int rank() const { return 0; }
  int size() const { return 1; }
  void barrier() {}
};

static_assert(ts::Communicator<Counting> && ts::Communicator<Injecting> &&
              ts::Communicator<ts::FaultInjectingCommunicator<Counting>>);
static_assert(ts::Communicator<ts::CountingCommunicator<OnlyBarrier>, ts::Collective::barrier>);
static_assert(!ts::detail::HasAllReduce<ts::CountingCommunicator<OnlyBarrier>> &&
              !ts::detail::HasAllToAll<ts::FaultInjectingCommunicator<OnlyBarrier>>);

/// Runs ten all-reduces on three ranks and returns what each rank threw ("" for none), the sums'
/// faults included.
Faults train(std::vector<ts::Fault> faults, ts::ThreadGroupOptions options = {}) {
  Faults texts(3);
  const auto run = [&](ts::ThreadCommunicator& threads) {
    Injecting c(threads, faults);
    std::string& text = texts[static_cast<std::size_t>(c.rank())];
    try {
      for (int step = 0; step < 10; ++step) {
        std::vector<std::int32_t> values(4, 1);
        c.all_reduce(std::span(values));
        for (std::size_t i = 0; i < values.size(); ++i)
          if (values[i] != 3)
            text += fmt::format("step {}: values[{}] is {}; ", step, i, values[i]);
        c.barrier();
      }
    } catch (const ts::CommunicatorError& error) {
      text = error.what();
      throw;
    }
  };
  try {
    ts::run_ranks(3, run, options);
  } catch (const ts::CommunicatorError&) {  // one of those texts
  }
  return texts;
}

}  // namespace

TEST_CASE("wrappers obey the laws") {
  std::vector<Faults> faults(3);
  ts::run_ranks(3, [&](ts::ThreadCommunicator& threads) {
    Counting counting(threads);
    ts::FaultInjectingCommunicator<Counting> injecting(counting, {});
    ts::AnyCommunicator any(injecting);
    faults[static_cast<std::size_t>(threads.rank())] = laws_of(any);
  });
  for (const Faults& rank : faults) CHECK(rank == Faults{});
}

TEST_CASE("counters are exact") {
  std::vector<std::vector<ts::Traffic>> counted(3);
  std::vector<ts::Traffic> totals(3);
  ts::run_ranks(3, [&](ts::ThreadCommunicator& threads) {
    Counting c(threads);
    c.barrier();
    c.reset();
    const auto mine = static_cast<std::size_t>(c.rank());
    // Rank r sends r elements to each rank but rank 0, which gets none.
    const std::vector<std::size_t> send_counts{0, mine, mine}, nothing{0, 0, 0}, something{0, 1, 2};
    std::vector<double> send(2 * mine), receive(mine == 0 ? 0 : 3);
    c.all_to_all(send, send_counts, std::span(receive), mine == 0 ? nothing : something);
    std::vector<float> own(mine + 1), gathered(6), block(mine + 1);
    const std::vector<std::size_t> sizes{1, 2, 3};
    c.all_gather(own, std::span(gathered), sizes);
    c.all_reduce(std::span(gathered).first(5));  // slices of 2, 2, 1
    c.all_reduce(std::span(gathered).first(1));  // slices of 1, 0, 0
    c.reduce_scatter(gathered, std::span(block), sizes);
    c.broadcast(std::span(gathered), 1);
    c.barrier();
    for (const auto collective :
         {ts::Collective::all_to_all, ts::Collective::all_gather, ts::Collective::all_reduce,
          ts::Collective::reduce_scatter, ts::Collective::broadcast, ts::Collective::barrier})
      counted[mine].push_back(c.traffic(collective));
    totals[mine] = c.total();
  });
  using List = std::vector<ts::Traffic>;
  // calls, messages, bytes
  CHECK((counted[0] == List{{1, 0, 0},
                            {1, 2, 8},
                            {2, 6, 4 * (2 + 1 + 2 * 2) + 4 * 2},
                            {1, 2, 4 * 5},
                            {1, 0, 0},
                            {1, 0, 0}}));
  CHECK((counted[1] == List{{1, 1, 8},
                            {1, 2, 16},
                            {2, 5, 4 * (2 + 1 + 2 * 2) + 4},
                            {1, 2, 4 * 4},
                            {1, 2, 48},
                            {1, 0, 0}}));
  CHECK((counted[2] == List{{1, 1, 16},
                            {1, 2, 24},
                            {2, 5, 4 * (2 + 2 + 2 * 1) + 4},
                            {1, 2, 4 * 3},
                            {1, 0, 0},
                            {1, 0, 0}}));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ts::Traffic sum;
    for (const ts::Traffic& part : counted[rank]) sum = sum + part;
    CHECK(totals[rank] == sum);
    CHECK(totals[rank] - sum == ts::Traffic{});
  }
}

TEST_CASE("without faults nothing happens") { CHECK(train({}) == Faults(3)); }

TEST_CASE("a fault that throws") {
  const Faults texts =
      train({{.kind = ts::Fault::Kind::throws, .rank = 1, .call = 4, .text = "the cable is out"}});
  CHECK(texts[1] == "the cable is out");
  for (const std::size_t rank : {0u, 2u})
    CHECK(texts[rank] ==
          fmt::format("barrier (call 4) on rank {} cannot finish: rank 1 failed: the cable is out",
                      rank));
}

TEST_CASE("a fault that drops a call: ranks go out of step and find it") {
  const Faults texts = train({{.kind = ts::Fault::Kind::drops,
                               .rank = 2,
                               .call = 3,
                               .collectives = ts::Collective::all_reduce}});
  for (const std::string& text : texts)
    CHECK(text.find("rank 0 calls all_reduce, but rank 2 calls barrier") != std::string::npos);
}

TEST_CASE("a fault that delays") {
  CHECK(train({{.kind = ts::Fault::Kind::delays, .rank = 0, .call = 2, .delay = 20ms}}) ==
        Faults(3));
  const Faults texts = train(
      {{.kind = ts::Fault::Kind::delays, .rank = 0, .call = 2, .delay = 2500ms}}, {.timeout = 1s});
  for (const std::string& text : texts)
    CHECK(text.find("rank 0 failed: late") != std::string::npos);
}

TEST_CASE("a fault that corrupts one bit of one rank") {
  const Faults texts = train({{.kind = ts::Fault::Kind::corrupts,
                               .rank = 1,
                               .call = 5,
                               .collectives = ts::Collective::all_reduce,
                               .bit = 37}});
  CHECK(texts == Faults{"", "step 4: values[1] is 35; ", ""});
}

TEST_CASE("faults that cannot be") {
  ts::SelfCommunicator self;
  using OnSelf = ts::FaultInjectingCommunicator<ts::SelfCommunicator>;
  CHECK_THROWS_WITH_AS(OnSelf(self, {{.rank = 1}}), "Fault: rank 1 is not in 0..0",
                       ts::InvalidArgument);
  CHECK_THROWS_AS(OnSelf(self, {{.call = 0}}), ts::InvalidArgument);
}
