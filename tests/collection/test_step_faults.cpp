// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Whole steps that go wrong: at every collective of a step a rank throws, drops out or is late; a trainer throws between the passes; a
// batch does not fit. Every rank ends with an error that names the fault, and finds its tables as they were before the step.
#include <tessera/comm/fault_injecting_communicator.hpp>

#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace tessera;
using namespace small_model;
using namespace std::chrono_literals;

namespace {

constexpr int kRanks = 3, kHealthySteps = 2;
using Faulty = FaultInjectingCommunicator<Counting>;
using E = Embeddings<Faulty>;

struct Seen {
  std::string text;
  bool unchanged = false;        // the tables, against those before the faulty step
  std::uint64_t first_call = 0;  // of the faulty step, counted from 1
  std::uint64_t calls = 0;       // of a healthy step
};

using Step = std::function<void(E&, const Batch&, int)>;

void plain_step(E& e, const Batch& batch, int) {
  const auto pooled = e.forward(batch.keyed());
  std::vector<float> of_weights(batch.ids.size());
  e.backward(pooled, {batch.gradient.data(), batch.samples, e.columns()}, of_weights);
}

/// Two healthy steps, then `step` with the planned faults, on three ranks; what each saw.
std::vector<Seen> run(std::vector<Fault> faults, ThreadGroupOptions options = {}, const Step& step = plain_step) {
  std::vector<Seen> seen(kRanks);
  const auto rank = [&](ThreadCommunicator& threads) {
    Counting counting(threads);
    Faulty c(counting, faults);
    Seen& mine = seen[static_cast<std::size_t>(threads.rank())];
    E e(c, Host{}, layout(kRanks, true), {.learning_rate = 0.5f, .seed = 7});
    std::vector<float> before;
    try {
      for (int s = 0; s < kHealthySteps; ++s) {
        const std::uint64_t calls = counting.total().calls;
        plain_step(e, Batch(c.rank(), s, 9 + c.rank(), e.columns()), s);
        mine.calls = counting.total().calls - calls;
      }
      before = shards_of(e);
      mine.first_call = counting.total().calls + 1;
      step(e, Batch(c.rank(), kHealthySteps, 9 + c.rank(), e.columns()), c.rank());
      mine.unchanged = same_bits(shards_of(e), before);
    } catch (const std::exception& error) {
      mine.text = error.what();
      mine.unchanged = same_bits(shards_of(e), before);
      throw;
    }
  };
  try {
    run_ranks(kRanks, rank, options);
  } catch (const std::exception&) {  // one of those texts
  }
  return seen;
}

void expect_all(const std::vector<Seen>& seen, const std::string& text) {
  for (const Seen& rank : seen) {
    CAPTURE(rank.text);
    CHECK(rank.text.find(text) != std::string::npos);
    CHECK(rank.unchanged);
  }
}

}  // namespace

TEST_CASE("a rank that throws at any collective of a step: all ranks end, named, with the tables of the step before") {
  const std::vector<Seen> healthy = run({});
  for (const Seen& rank : healthy) {
    CHECK(rank.text.empty());
    CHECK_FALSE(rank.unchanged);  // the step does change every rank's tables
  }
  const std::uint64_t first = healthy[0].first_call, calls = healthy[0].calls;
  CHECK(calls == 9);  // sizes, ids, vectors, gradients, weight gradients, three of replicas, mean squares
  for (std::uint64_t call = first; call < first + calls; ++call) {
    CAPTURE(call);
    expect_all(run({{.kind = Fault::Kind::throws, .rank = static_cast<int>(call % kRanks), .call = call, .text = "the cable is loose"}}),
               "the cable is loose");
  }
  for (const Seen& rank : run({{.kind = Fault::Kind::throws, .rank = 1, .call = first + calls}})) CHECK(rank.text.empty());  // one beyond
}

TEST_CASE("a rank that drops out of a collective, or is late beyond the timeout, is named") {
  const std::uint64_t first = run({})[0].first_call;
  for (const std::uint64_t call : {first + 1, first + 8}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto late = run({{.kind = Fault::Kind::delays, .rank = 2, .call = call, .delay = 3s}}, {.timeout = 1500ms});
    CHECK(std::chrono::steady_clock::now() - begin < 20s);
    expect_all(late, "rank 2 failed: late: rank");
  }
  // Who drops a call makes the next one while the others are at this: they disagree, or wait for it.
  const auto dropped = run({{.kind = Fault::Kind::drops, .rank = 1, .call = first + 2}}, {.timeout = 1500ms});
  for (const Seen& rank : dropped) {
    CAPTURE(rank.text);
    CHECK(rank.text.find("rank 1") != std::string::npos);
    CHECK(rank.unchanged);
  }
}

TEST_CASE("a trainer that throws between forward and backward") {
  expect_all(run({}, {},
                 [](E& e, const Batch& batch, int rank) {
                   const auto pooled = e.forward(batch.keyed());
                   if (rank == 2) throw std::runtime_error("the loss is not a number");
                   e.backward(pooled, {batch.gradient.data(), batch.samples, e.columns()});
                 }),
             "the loss is not a number");
}

TEST_CASE("batches that do not fit end the step on all ranks, and say why") {
  expect_all(run({}, {},
                 [](E& e, const Batch& batch, int rank) {
                   const auto pooled = e.forward(batch.keyed());
                   e.backward(pooled, {batch.gradient.data(), batch.samples - (rank == 1), e.columns()});
                 }),
             "backward: gradient is [9, 116], must be [10, 116]");
  expect_all(run({}, {},
                 [](E& e, const Batch& batch, int rank) {
                   KeyedJagged<std::int64_t> ids = batch.keyed();
                   if (rank == 0) ids.batch += 1;
                   e.forward(ids);
                 }),
             "KeyedJagged: 6 features x 10 samples need 61 offsets, got 55");
  // Model-parallel input: ranks cut the global batch in different places.
  expect_all(
      run({}, {},
          [](E& e, const Batch&, int rank) {
            const std::int64_t features = static_cast<std::int64_t>(e.local_features().size());
            const std::vector<std::int64_t> ids(static_cast<std::size_t>(features * 9), 1);
            const std::vector<float> weights(ids.size(), 1.0f);
            const std::vector<std::int64_t> cut = rank == 1 ? std::vector<std::int64_t>{0, 2, 6, 9} : std::vector<std::int64_t>{0, 3, 6, 9};
            e.forward_model_parallel(KeyedJagged<std::int64_t>{features, 9, ids, {}, weights}, cut);
          }),
      "rank");
}

TEST_CASE("ranks run out of data at different steps: empty batches go on, and the tables are those of one rank") {
  const std::vector<int> own_steps{5, 2, 4};
  const auto samples = [&](int rank, int step) -> std::int64_t { return step < own_steps[static_cast<std::size_t>(rank)] ? 6 + rank : 0; };
  std::vector<std::vector<float>> sharded(3), whole(1);
  const auto whole_tables = [](auto& e) {
    std::vector<float> all;
    for (const TableSpec& t : tables()) {
      std::vector<float> values(static_cast<std::size_t>(t.rows * t.width));
      e.tables().get(t.name, {values.data(), t.rows, t.width});
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  run_ranks(3, [&](ThreadCommunicator& threads) {
    Counting counting(threads);
    Faulty c(counting, {});
    E e(c, Host{}, layout(3), {.learning_rate = 0.5f, .seed = 7});
    for (int step = 0; step < 5; ++step) plain_step(e, Batch(c.rank(), step, samples(c.rank(), step), e.columns()), step);
    sharded[static_cast<std::size_t>(c.rank())] = whole_tables(e);
  });
  run_ranks(1, [&](ThreadCommunicator& threads) {
    Counting counting(threads);
    Faulty c(counting, {});
    E e(c, Host{}, layout(1), {.learning_rate = 0.5f, .seed = 7});
    for (int step = 0; step < 5; ++step) {
      Batch all(0, 0, 0, e.columns());
      all.offsets = {0};
      std::vector<Batch> parts;
      for (int rank = 0; rank < 3; ++rank) parts.emplace_back(rank, step, samples(rank, step), e.columns());
      for (std::size_t f = 0; f < features().size(); ++f)
        for (const Batch& part : parts)
          for (std::int64_t s = 0; s < part.samples; ++s) {
            const std::size_t bag = f * static_cast<std::size_t>(part.samples) + static_cast<std::size_t>(s);
            all.ids.insert(all.ids.end(), part.ids.begin() + part.offsets[bag], part.ids.begin() + part.offsets[bag + 1]);
            all.weights.insert(all.weights.end(), part.weights.begin() + part.offsets[bag], part.weights.begin() + part.offsets[bag + 1]);
            all.offsets.push_back(static_cast<std::int64_t>(all.ids.size()));
          }
      for (const Batch& part : parts) {
        all.samples += part.samples;
        all.gradient.insert(all.gradient.end(), part.gradient.begin(), part.gradient.end());
      }
      plain_step(e, all, step);
    }
    whole[0] = whole_tables(e);
  });
  // Each rank has written its own rectangles into zeros: together they are the tables.
  std::vector<float> together(whole[0].size());
  for (const auto& part : sharded)
    for (std::size_t i = 0; i < part.size(); ++i) together[i] += part[i];
  CHECK(together == whole[0]);
}
