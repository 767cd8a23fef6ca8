// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The next batch is routed by another thread: the same bits, and faults that end all ranks. Threads
// that look up side by side.
#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace tessera;
using namespace small_model;

namespace {

using E = Embeddings<ThreadCommunicator>;
using Ahead = RouteAhead<E, std::int64_t, ThreadCommunicator, Host>;
constexpr int kSteps = 5;

Batch batch_of(int rank, int step, const E& e) {
  return Batch(rank, step, samples_of(rank, step), e.columns());
}

template <class F>
std::vector<std::string> texts(F f) {
  std::vector<std::string> found(3);
  try {
    run_ranks(3, [&](ThreadCommunicator& c) {
      try {
        ThreadCommunicator second = c.split(0);
        E e(c, Host{}, layout(3, true), {.learning_rate = 0.125f, .seed = 7, .deduplicate = true});
        f(c, second, e);
      } catch (const std::exception& error) {
        found[static_cast<std::size_t>(c.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  return found;
}

}  // namespace

TEST_CASE("routing ahead gives the bits of routing in turn") {
  std::vector<Result> ahead_results(3), results(3);
  const auto overlapped = texts([&](ThreadCommunicator& c, ThreadCommunicator& second, E& e) {
    Result& mine = ahead_results[static_cast<std::size_t>(c.rank())];
    std::vector<Batch> batches;
    for (int step = 0; step < kSteps; ++step) batches.push_back(batch_of(c.rank(), step, e));
    Ahead ahead(e, second, Host{});
    ahead.start(batches[0].keyed());
    for (int step = 0; step < kSteps; ++step) {
      const Batch& batch = batches[static_cast<std::size_t>(step)];
      std::vector<float> output(batch.gradient.size());
      const auto pooled =
          e.forward_routed(ahead.take(), {output.data(), batch.samples, e.columns()});
      if (step + 1 < kSteps) ahead.start(batches[static_cast<std::size_t>(step) + 1].keyed());
      mine.outputs.insert(mine.outputs.end(), output.begin(), output.end());
      e.backward(pooled, {batch.gradient.data(), batch.samples, e.columns()});
    }
    mine.shards = shards_of(e);
  });
  const auto in_turn = texts([&](ThreadCommunicator& c, ThreadCommunicator&, E& e) {
    Result& mine = results[static_cast<std::size_t>(c.rank())];
    for (int step = 0; step < kSteps; ++step) {
      const Batch batch = batch_of(c.rank(), step, e);
      const auto pooled = e.forward(batch.keyed());
      mine.outputs.insert(mine.outputs.end(), pooled.values.data,
                          pooled.values.data + batch.samples * e.columns());
      e.backward(pooled, {batch.gradient.data(), batch.samples, e.columns()});
    }
    mine.shards = shards_of(e);
  });
  CHECK(overlapped == std::vector<std::string>(3));
  CHECK(in_turn == std::vector<std::string>(3));
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(!results[r].shards.empty());
    CHECK(same_bits(ahead_results[r].outputs, results[r].outputs));
    CHECK(same_bits(ahead_results[r].shards, results[r].shards));
  }
}

TEST_CASE("a bad id in a batch that is routed ahead ends all ranks, when they take it") {
  for (const std::string& text : texts([](ThreadCommunicator& c, ThreadCommunicator& second, E& e) {
         Batch batch = batch_of(c.rank(), 0, e);
         Ahead ahead(e, second, Host{});
         if (c.rank() == 1) batch.ids[0] = 1'000'000;
         ahead.start(batch.keyed());
         ahead.take();
       })) {
    CAPTURE(text);
    CHECK(text.find("id 1000000 is outside its table of 200 rows") != std::string::npos);
  }
}

TEST_CASE("a rank that throws while batches are being routed ahead leaves nobody waiting") {
  for (const std::string& text : texts([](ThreadCommunicator& c, ThreadCommunicator& second, E& e) {
         const Batch batch = batch_of(c.rank(), 0, e);
         Ahead ahead(e, second, Host{});
         if (c.rank() != 2) ahead.start(batch.keyed());  // these wait for rank 2's
         if (c.rank() == 0) throw std::runtime_error("the reader is gone");
         c.barrier();
       })) {
    CAPTURE(text);
    CHECK(text.find("the reader is gone") != std::string::npos);
  }
}

TEST_CASE("wrong order of calls") {
  CHECK(texts([](ThreadCommunicator& c, ThreadCommunicator& second, E& e) {
          const Batch batch = batch_of(c.rank(), 0, e);
          Ahead ahead(e, second, Host{});
          CHECK_THROWS_WITH_AS(ahead.take(), "RouteAhead: no batch was started", InvalidArgument);
          ahead.start(batch.keyed());
          CHECK_THROWS_AS(ahead.start(batch.keyed()), InvalidArgument);
          ahead.take();
        }) == std::vector<std::string>(3));
}

TEST_CASE("two threads look up in one collection with a step each, on one backend") {
  SelfCommunicator self;
  using Served = Embeddings<SelfCommunicator>;
  Served::Options options{.seed = 7, .bad_ids = BadIds::zero_vector};
  for (const bool deduplicate : {false, true}) {
    options.deduplicate = deduplicate;
    Served e(self, Host{}, layout(1), options);
    const Served& shared = e;
    std::vector<Batch> batches;
    std::vector<std::vector<float>> expected;
    for (int i = 0; i < 8; ++i) {
      Batch& batch = batches.emplace_back(0, i, 40 + 10 * i, e.columns());
      batch.ids[3] = -1;  // a bad id: counted by all
      const auto pooled = e.forward(batch.keyed());
      expected.emplace_back(pooled.values.data, pooled.values.data + batch.gradient.size());
    }
    const std::uint64_t bad = e.bad_ids()[0];
    std::array<bool, 2> same{true, true};
    {
      std::array<std::thread, 2> threads;
      for (std::size_t t = 0; t < 2; ++t)
        threads[t] = std::thread([&, t] {
          Served::StepState<std::int64_t> step;
          for (std::size_t i = 0; i < 16; ++i) {
            const Batch& batch = batches[(3 * t + i) % 8];
            std::vector<float> output(batch.gradient.size());
            const MatrixView<float> out(output.data(), batch.samples, shared.columns());
            if (i % 2 == 0) {
              shared.evaluate(step, batch.keyed(), out);
            } else {
              shared.route(step, batch.keyed());
              shared.forward_routed(step, out);
              shared.end(step);
            }
            same[t] = same[t] && same_bits(output, expected[(3 * t + i) % 8]);
          }
        });
      for (std::thread& thread : threads) thread.join();
    }
    CHECK(same[0]);
    CHECK(same[1]);
    CHECK(e.bad_ids()[0] == bad + 4 * bad);  // each batch was looked up four times more
  }
}

TEST_CASE("threads of each of two ranks look up side by side, with a communicator each") {
  for (const bool equal_batches : {false, true}) {
    std::array<bool, 4> same{};  // by rank, thread
    run_ranks(2, [&](ThreadCommunicator& c) {
      E e(c, Host{}, layout(2),
          {.seed = 7, .deduplicate = !equal_batches, .equal_batches = equal_batches});
      const Batch before(c.rank(), 1, 20, e.columns()), batch(c.rank(), 0, 12, e.columns());
      const auto pooled = e.forward(batch.keyed());
      const std::vector<float> expected(pooled.values.data,
                                        pooled.values.data + batch.gradient.size());
      e.forward(before.keyed());  // the threads' sizes are new
      std::array<ThreadCommunicator, 2> own{c.split(0), c.split(0)};
      std::array<std::thread, 2> threads;
      std::latch second_thread(1);
      for (std::size_t t = 0; t < 2; ++t)
        threads[t] = std::thread([&, t] {
          // Rank 0's first thread is the earlier one, rank 1's the later.
          if (c.rank() == 0 && t == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
          if (c.rank() == 1 && t == 0) second_thread.wait();
          E::StepState<std::int64_t> step;
          std::vector<float> output(batch.gradient.size());
          for (int i = 0; i < 4; ++i) {
            e.evaluate(step, batch.keyed(), {output.data(), batch.samples, e.columns()}, own[t],
                       e.backend());
            if (t == 1 && i == 0) second_thread.count_down();
          }
          same[2 * static_cast<std::size_t>(c.rank()) + t] = same_bits(output, expected);
        });
      for (std::thread& thread : threads) thread.join();
    });
    CAPTURE(equal_batches);
    for (const bool each : same) CHECK(each);
  }
}
