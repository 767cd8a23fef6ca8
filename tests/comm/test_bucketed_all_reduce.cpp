// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/bucketed_all_reduce.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace ts = tessera;

namespace {

float gradient(int rank, int step, std::size_t i) {
  return 1.0f / static_cast<float>(1 + rank * 31 + step * 7 + static_cast<int>(i % 97)) - 0.01f;
}

}  // namespace

TEST_CASE("the sums of one all-reduce, in as many as the buckets' size says") {
  constexpr std::size_t kCount = 1000;
  const std::vector<std::size_t> parts{300, 1, 0, 499, 200};  // from the end
  // In floats: every part by itself (the empty one is nothing), 300 + 500 + 200, all at once.
  for (const auto& [floats, calls] :
       {std::pair<std::size_t, std::uint64_t>{1, 4}, {300, 3}, {5000, 1}}) {
    const std::size_t bucket = floats;  // clang captures no structured binding
    CAPTURE(bucket);
    std::atomic<int> wrong{0};
    ts::ThreadGroup background(3);
    ts::run_ranks(3, [&, floats = floats, calls = calls](ts::ThreadCommunicator& c) {
      ts::ThreadCommunicator own(background, c.rank());
      ts::CountingCommunicator<ts::ThreadCommunicator> counting(own);
      std::vector<float> gradients(kCount), expected(kCount);
      ts::BucketedAllReduce buckets(counting, std::span(gradients), floats * sizeof(float));
      for (int step = 0; step < 20; ++step) {
        for (std::size_t i = 0; i < kCount; ++i) expected[i] = gradient(c.rank(), step, i);
        std::size_t end = kCount;
        for (const std::size_t part : parts) {
          end -= part;
          for (std::size_t i = end; i < end + part; ++i) gradients[i] = gradient(c.rank(), step, i);
          buckets.ready(std::span(gradients).subspan(end, part));
        }
        buckets.wait();
        c.all_reduce(std::span(expected));
        if (std::memcmp(gradients.data(), expected.data(), kCount * sizeof(float)) != 0) ++wrong;
        if (counting.traffic(ts::Collective::all_reduce).calls !=
            calls * static_cast<std::uint64_t>(step + 1))
          ++wrong;
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("what an all-reduce throws comes out of wait") {
  ts::ThreadGroup group(2);
  ts::ThreadCommunicator c(group, 0);
  std::vector<float> gradients(10);
  ts::BucketedAllReduce buckets(c, std::span(gradients), 4);
  buckets.ready(std::span(gradients).last(4));
  group.fail(1, "the disk is full");
  buckets.ready(std::span(gradients).first(6));
  CHECK_THROWS_WITH_AS(
      buckets.wait(),
      "all_reduce (call 1) on rank 0 cannot finish: rank 1 failed: the disk is full",
      ts::CommunicatorError);
}

TEST_CASE("parts out of order, and a step that is not whole") {
  ts::ThreadGroup group(1);
  ts::ThreadCommunicator c(group, 0);
  std::vector<float> gradients(10);
  ts::BucketedAllReduce buckets(c, std::span(gradients), 4);
  CHECK_THROWS_AS(buckets.ready(std::span(gradients).first(4)), ts::InvalidArgument);
  buckets.ready(std::span(gradients).last(4));
  CHECK_THROWS_WITH_AS(buckets.wait(),
                       "BucketedAllReduce: the first 6 gradients have not been announced",
                       ts::InvalidArgument);
}

namespace {

/// A communicator whose calls go to a stream, and two streams, as far as the order of calls shows.
struct Queue {
  std::vector<std::string>* log;
  const char* name;
  void wait_for(const Queue& other) const {
    log->push_back(std::string(name) + " waits for " + other.name);
  }
};
struct QueuedCommunicator : ts::SelfCommunicator {
  static constexpr bool queues_calls() { return true; }
  std::vector<std::string> log;
  std::thread::id caller;
  template <class T>
  void all_reduce(std::span<T> values, ts::Reduction = ts::Reduction::sum) {
    if (log.size() > 6) throw ts::Error("the link is down");
    caller = std::this_thread::get_id();
    log.push_back("sum " + std::to_string(values.size()));
  }
};

}  // namespace

TEST_CASE("where calls go to a stream, the announcing thread makes them, an event per bucket") {
  QueuedCommunicator c;
  std::vector<float> gradients(10);
  const Queue computing{&c.log, "one"}, communicating{&c.log, "two"};
  ts::BucketedAllReduce buckets(c, std::span(gradients), 4, computing, communicating);
  const std::span<const float> all(gradients);
  buckets.ready(all.last(4));
  CHECK((c.log == std::vector<std::string>{"two waits for one", "sum 4"}));
  CHECK(c.caller == std::this_thread::get_id());
  buckets.ready(all.first(6));
  buckets.wait();
  CHECK((c.log == std::vector<std::string>{"two waits for one", "sum 4", "two waits for one",
                                           "sum 6", "one waits for two"}));
  buckets.ready(all.last(4));
  buckets.ready(all.first(6));
  CHECK_THROWS_WITH_AS(buckets.wait(), "the link is down", ts::Error);
}
