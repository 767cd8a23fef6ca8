// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Whole steps that go wrong, on any backend: bodies of test_step_faults.cpp and gpu/twin_cases.hpp.
#pragma once

#include <tessera/comm/fault_injecting_communicator.hpp>

#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace faulty {

using namespace tessera;      // NOLINT: a header of tests
using namespace on_backend;   // NOLINT
using namespace small_model;  // NOLINT

inline constexpr int kRanks = 3;
template <class Backend>
inline constexpr int healthy_steps = enough_steps<Backend> / 2;
template <class Backend>
using Comm = FaultInjectingCommunicator<CountingOn<Backend>>;
template <class Backend>
using E = EmbeddingsOn<Backend, Comm<Backend>>;

struct Seen {
  std::string text;
  bool unchanged = false;        // the tables, against those before the faulty step
  std::uint64_t first_call = 0;  // of the faulty step, counted from 1
  std::uint64_t calls = 0;       // of a healthy step
};

template <class Backend>
using Step = std::function<void(E<Backend>&, const Batch&, int)>;

template <class Backend>
void plain_step(E<Backend>& e, const Batch& batch, int) {
  const Given given(e.backend(), batch, e.columns());
  const auto pooled = e.forward(given.keyed());
  e.backward(pooled, given.gradient, given.of_weights.span());
}

template <class Backend>
typename E<Backend>::Options options() {
  typename E<Backend>::Options given;
  given.learning_rate = 0.5f;
  given.seed = 7;
  return given;
}

/// Healthy steps, then `step` with the planned faults, on three ranks; what each saw.
template <class Backend>
std::vector<Seen> seen_on_three_ranks(const std::vector<Fault>& faults,
                                      ThreadGroupOptions group_options = {},
                                      const Step<Backend>& step = plain_step<Backend>) {
  std::vector<Seen> seen(kRanks);
  const auto rank = [&](auto& threads, const Backend& backend) {
    CountingOn<Backend> counting(threads);
    Comm<Backend> c(counting, faults);
    Seen& mine = seen[static_cast<std::size_t>(threads.rank())];
    E<Backend> e(c, backend, layout(kRanks, true), options<Backend>());
    std::vector<float> before;
    try {
      for (int s = 0; s < healthy_steps<Backend>; ++s) {
        const std::uint64_t calls = counting.total().calls;
        plain_step<Backend>(e, Batch(c.rank(), s, 9 + c.rank(), e.columns()), s);
        mine.calls = counting.total().calls - calls;
      }
      before = shards_of(e);
      mine.first_call = counting.total().calls + 1;
      step(e, Batch(c.rank(), healthy_steps<Backend>, 9 + c.rank(), e.columns()), c.rank());
      mine.unchanged = same_bits(shards_of(e), before);
    } catch (const std::exception& error) {
      mine.text = error.what();
      mine.unchanged = same_bits(shards_of(e), before);
      throw;
    }
  };
  try {
    on_thread_ranks<Backend>(kRanks, rank, group_options);
  } catch (const std::exception&) {  // one of those texts
  }
  return seen;
}

inline void expect_all(const std::vector<Seen>& seen, const std::string& text) {
  for (const Seen& rank : seen) {
    CAPTURE(rank.text);
    CHECK(rank.text.find(text) != std::string::npos);
    CHECK(rank.unchanged);
  }
}

template <class Backend>
void a_rank_throws_at_any_collective() {
  const std::vector<Seen> healthy = seen_on_three_ranks<Backend>({});
  for (const Seen& rank : healthy) {
    CHECK(rank.text.empty());
    CHECK_FALSE(rank.unchanged);  // the step does change every rank's tables
  }
  const std::uint64_t first = healthy[0].first_call, calls = healthy[0].calls;
  // sizes, ids, vectors, gradients, weight gradients, three of replicas, mean squares
  CHECK(calls == 9);
  const auto one = [](int rank, std::uint64_t call) {
    Fault fault;
    fault.rank = rank;
    fault.call = call;
    fault.text = "the cable is loose";
    return std::vector<Fault>{fault};
  };
  for (std::uint64_t call = first; call < first + calls; ++call) {
    CAPTURE(call);
    expect_all(seen_on_three_ranks<Backend>(one(static_cast<int>(call % kRanks), call)),
               "the cable is loose");
  }
  // one beyond
  for (const Seen& rank : seen_on_three_ranks<Backend>(one(1, first + calls)))
    CHECK(rank.text.empty());
}

template <class Backend>
void a_trainer_throws_between_the_passes() {
  const Step<Backend> step = [](E<Backend>& e, const Batch& batch, int rank) {
    const Given given(e.backend(), batch, e.columns());
    const auto pooled = e.forward(given.keyed());
    if (rank == 2) throw std::runtime_error("the loss is not a number");
    e.backward(pooled, given.gradient);
  };
  expect_all(seen_on_three_ranks<Backend>({}, {}, step), "the loss is not a number");
}

template <class Backend>
void batches_do_not_fit() {
  const Step<Backend> short_gradient = [](E<Backend>& e, const Batch& batch, int rank) {
    const Given given(e.backend(), batch, e.columns());
    const auto pooled = e.forward(given.keyed());
    e.backward(pooled, given.gradient.row_range(0, batch.samples - (rank == 1)));
  };
  expect_all(seen_on_three_ranks<Backend>({}, {}, short_gradient),
             "backward: gradient is [9, 116], must be [10, 116]");
  const Step<Backend> short_offsets = [](E<Backend>& e, const Batch& batch, int rank) {
    const Given given(e.backend(), batch, e.columns());
    KeyedJagged<std::int64_t> ids = given.keyed();
    if (rank == 0) ids.batch += 1;
    e.forward(ids);
  };
  expect_all(seen_on_three_ranks<Backend>({}, {}, short_offsets),
             "KeyedJagged: 6 features x 10 samples need 61 offsets, got 55");
  // Model-parallel input: ranks cut the global batch in different places.
  const Step<Backend> other_cuts = [](E<Backend>& e, const Batch&, int rank) {
    const std::int64_t features = static_cast<std::int64_t>(e.local_features().size());
    const std::vector<std::int64_t> ids(static_cast<std::size_t>(features * 9), 1);
    const std::vector<float> weights(ids.size(), 1.0f);
    const BatchOn<std::int64_t, Backend> given(e.backend(), {features, 9, ids, {}, weights});
    const std::vector<std::int64_t> cut =
        rank == 1 ? std::vector<std::int64_t>{0, 2, 6, 9} : std::vector<std::int64_t>{0, 3, 6, 9};
    e.forward_model_parallel(given.keyed(), cut);
  };
  expect_all(seen_on_three_ranks<Backend>({}, {}, other_cuts), "rank");
}

template <class Embeddings>
std::vector<float> whole_tables(const Embeddings& e) {
  std::vector<float> all;
  for (const TableSpec& t : tables()) {
    std::vector<float> values(static_cast<std::size_t>(t.rows * t.width));
    e.tables().get(t.name, {values.data(), t.rows, t.width});
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// One rank's batch: those of all ranks, sample after sample.
inline Batch joined(const std::vector<Batch>& parts, std::int64_t columns) {
  Batch all(0, 0, 0, columns);
  all.offsets = {0};
  for (std::size_t f = 0; f < features().size(); ++f)
    for (const Batch& part : parts)
      for (std::int64_t s = 0; s < part.samples; ++s) {
        const std::size_t bag =
            f * static_cast<std::size_t>(part.samples) + static_cast<std::size_t>(s);
        all.ids.insert(all.ids.end(), part.ids.begin() + part.offsets[bag],
                       part.ids.begin() + part.offsets[bag + 1]);
        all.weights.insert(all.weights.end(), part.weights.begin() + part.offsets[bag],
                           part.weights.begin() + part.offsets[bag + 1]);
        all.offsets.push_back(static_cast<std::int64_t>(all.ids.size()));
      }
  for (const Batch& part : parts) {
    all.samples += part.samples;
    all.gradient.insert(all.gradient.end(), part.gradient.begin(), part.gradient.end());
  }
  return all;
}

template <class Backend>
void ranks_run_out_of_data() {
  const std::vector<int> own_steps{5, 2, 4};
  const auto samples = [&](int rank, int step) -> std::int64_t {
    return step < own_steps[static_cast<std::size_t>(rank)] ? 6 + rank : 0;
  };
  std::vector<std::vector<float>> sharded(3), whole(1);
  const auto train = [&](std::vector<std::vector<float>>& results) {
    const int ranks = static_cast<int>(results.size());
    on_ranks<Backend>(ranks, [&](CountingOn<Backend>& counting, const Backend& backend) {
      Comm<Backend> c(counting, {});
      E<Backend> e(c, backend, layout(ranks), options<Backend>());
      for (int step = 0; step < 5; ++step) {
        std::vector<Batch> parts;
        for (int rank = 0; rank < 3; ++rank)
          parts.emplace_back(rank, step, samples(rank, step), e.columns());
        plain_step<Backend>(
            e, ranks == 1 ? joined(parts, e.columns()) : parts[static_cast<std::size_t>(c.rank())],
            step);
      }
      results[static_cast<std::size_t>(c.rank())] = whole_tables(e);
    });
  };
  train(sharded);
  train(whole);
  // Each rank has written its own rectangles into zeros: together they are the tables.
  std::vector<float> together(whole[0].size());
  for (const auto& part : sharded)
    for (std::size_t i = 0; i < part.size(); ++i) together[i] += part[i];
  CHECK(together == whole[0]);
}

}  // namespace faulty
