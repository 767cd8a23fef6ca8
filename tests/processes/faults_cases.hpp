// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is left of a job when one of its processes fails. Each case starts this program again, with
// three ranks that run one of the skipped cases below, and reads what they print. The program has
// included its engine.
#include <tessera/core/error.hpp>

#include <fmt/format.h>
#include <processes/outcome.hpp>
#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ts = tessera;
using namespace std::chrono_literals;

namespace {

/// A training loop of all-reduces and all-to-alls in which `fault(communicator, step)` may do harm.
template <class Fault>
void train(Fault fault, engine::Options options) {
  const int code = engine::run_rank(
      [&](engine::Comm& c) {
        const auto ranks = static_cast<std::size_t>(c.size());
        std::vector<float> gradients(10'000, 1.0f), send(ranks * 500), receive(ranks * 500);
        const std::vector<std::size_t> counts(ranks, 500);
        for (int step = 0; step < 20; ++step) {
          fault(c, step);
          c.all_reduce(std::span(gradients));
          c.all_to_all(send, counts, std::span(receive), counts);
        }
        std::printf("rank %d is done\n", c.rank());
      },
      options);
  CHECK(code == 0);
}

}  // namespace

TEST_CASE("job: healthy" * doctest::skip()) {
  train([](auto&, int) {}, {.timeout = 300s});
}
TEST_CASE("job: throws" * doctest::skip()) {
  const auto fault = [](engine::Comm& c, int step) {
    if (c.rank() == 1 && step == 7) throw std::runtime_error("the disk is full");
  };
  train(fault, {.timeout = 300s});
}
TEST_CASE("job: killed" * doctest::skip()) {
  const auto fault = [](engine::Comm& c, int step) {
    if (c.rank() == 1 && step == 7) std::raise(SIGKILL);
  };
  train(fault, {.timeout = 1s});
}
/// Ranks wait for each other in a part, while one throws outside of it or is killed.
template <class Fault>
void train_in_part(Fault fault, engine::Options options) {
  const auto run = [&](engine::Comm& all) {
    engine::Comm last_two = all.split(all.rank() == 0 ? 0 : 1);
    engine::Comm same = last_two.split(0);  // a part of a part
    if (all.rank() == 1) fault();
    std::vector<float> values(100, 1.0f);
    if (all.rank() == 2) same.all_reduce(std::span(values));
    all.barrier();
  };
  CHECK(engine::run_rank(run, options) == 0);
}
TEST_CASE("job: throws beside a part" * doctest::skip()) {
  train_in_part([] { throw std::runtime_error("the disk is full"); }, {.timeout = 300s});
}
TEST_CASE("job: killed beside a part" * doctest::skip()) {
  train_in_part([] { std::raise(SIGKILL); }, {.timeout = 1s});
}
TEST_CASE("job: throws while batches are routed ahead" * doctest::skip()) {
  using E = small_model::Embeddings<engine::Comm>;
  const auto run = [](engine::Comm& c) {
    engine::Comm second = c.split(0);
    E e(c, ts::Host{}, small_model::layout(c.size(), true), {});
    const small_model::Batch batch(c.rank(), 0, 9, e.columns());
    ts::RouteAhead<E, std::int64_t, engine::Comm, ts::Host> ahead(e, second, ts::Host{});
    if (c.rank() == 1) throw std::runtime_error("the reader is gone");
    ahead.start(batch.keyed());
    ahead.take();
  };
  CHECK(engine::run_rank(run, {.timeout = 300s}) == 0);
}
TEST_CASE("job: stops early" * doctest::skip()) {
  const auto fault = [](engine::Comm& c, int step) {
    if (c.rank() == 1 && step == 7) c.finish();
  };
  train(fault, {.timeout = 300s});
}
/// Sleeps until others have given up after 1.5 s and another one: in parts, as a machine that
/// stands still makes their waits longer, too.
void sleep_too_long() {
  for (int i = 0; i < 60; ++i) std::this_thread::sleep_for(100ms);
}
TEST_CASE("job: hangs" * doctest::skip()) {
  const auto fault = [](engine::Comm& c, int step) {
    if (c.rank() == 2 && step == 7) sleep_too_long();
  };
  train(fault, {.timeout = 1500ms});
}
TEST_CASE("job: late at a split" * doctest::skip()) {
  const auto run = [](engine::Comm& all) {
    if (all.rank() == 1) sleep_too_long();
    all.split(0).barrier();
  };
  CHECK(engine::run_rank(run, {.timeout = 1500ms}) == 0);
}
/// Ranks 0 and 1 also have a part of their own.
template <class Calls>
void wait_in_parts(Calls calls, std::chrono::milliseconds timeout) {
  const auto run = [&](engine::Comm& all) {
    engine::Comm first_two = all.split(all.rank() / 2);
    calls(all, first_two);
  };
  CHECK(engine::run_rank(run, {.timeout = timeout}) == 0);
}
TEST_CASE("job: waits for one that waits for a silent one" * doctest::skip()) {
  const auto calls = [](engine::Comm& all, engine::Comm& first_two) {
    if (all.rank() == 2) sleep_too_long();
    if (all.rank() == 1) std::this_thread::sleep_for(300ms);  // rank 0's time is up first
    if (all.rank() == 0) first_two.barrier();
    all.barrier();
  };
  wait_in_parts(calls, 600ms);
}
TEST_CASE("job: wait for each other" * doctest::skip()) {
  const auto calls = [](engine::Comm& all, engine::Comm& first_two) {
    all.rank() == 0 ? first_two.barrier() : all.barrier();
  };
  wait_in_parts(calls, 1s);
}
TEST_CASE("job: throws within a step of the collection" * doctest::skip()) {
  const auto run = [](engine::Comm& c) {
    small_model::Embeddings<engine::Comm> e(c, ts::Host{}, small_model::layout(c.size(), true),
                                            {.learning_rate = 0.5f});
    std::vector<float> before;
    try {
      for (int step = 0; step < 4; ++step) {
        before = small_model::shards_of(e);
        const small_model::Batch batch(c.rank(), step, 9, e.columns());
        const auto pooled = e.forward(batch.keyed());
        if (c.rank() == 1 && step == 2) throw std::runtime_error("the loss is not a number");
        e.backward(pooled, {batch.gradient.data(), 9, e.columns()});
      }
    } catch (const std::exception&) {
      if (same_bits(small_model::shards_of(e), before))
        std::printf("rank %d has the tables of the step before\n", c.rank());
      std::fflush(stdout);
      throw;
    }
  };
  CHECK(engine::run_rank(run, {.timeout = 300s}) == 0);
}

TEST_CASE("a healthy job ends with success") {
  const processes::Outcome job = engine::run_job("job: healthy");
  CHECK(job.status == 0);
  for (const char* line : {"rank 0 is done", "rank 1 is done", "rank 2 is done"})
    CHECK(job.has(line));
}

TEST_CASE("a rank that throws: every rank says so and the job fails") {
  const processes::Outcome job = engine::run_job("job: throws");
  CHECK(job.status != 0);
  CHECK(job.has("rank 1: the disk is full"));
  for (const int rank : {0, 2})
    CHECK(job.has(fmt::format(
        "rank {}: all_reduce (call 15) on rank {} cannot finish: rank 1 failed: the disk is full",
        rank, rank)));
}

TEST_CASE("a rank that throws within a step of the collection: no rank's tables have changed") {
  const processes::Outcome job = engine::run_job("job: throws within a step of the collection");
  CHECK(job.status != 0);
  CHECK(job.has("rank 1: the loss is not a number"));
  for (const int rank : {0, 1, 2})
    CHECK(job.has(fmt::format("rank {} has the tables of the step before", rank)));
  for (const int rank : {0, 2})
    CHECK(job.has(
        fmt::format("on rank {} cannot finish: rank 1 failed: the loss is not a number", rank)));
}

TEST_CASE("waits in parts of a communicator end, too") {
  // In the parts the one that failed is rank 0 of two.
  const processes::Outcome thrown = engine::run_job("job: throws beside a part");
  CHECK(thrown.has("rank 1: the disk is full"));
  CHECK(thrown.has(
      "rank 2: all_reduce (call 1) on rank 1 cannot finish: rank 0 failed: the disk is full"));
  CHECK(thrown.has(
      "rank 0: barrier (call 1) on rank 0 cannot finish: rank 1 failed: the disk is full"));
  const processes::Outcome ahead = engine::run_job("job: throws while batches are routed ahead");
  for (const int rank : {0, 2})
    CHECK(ahead.has(
        fmt::format("on rank {} cannot finish: rank 1 failed: the reader is gone", rank)));
}

TEST_CASE("a rank that stops early, and one that hangs") {
  const processes::Outcome early = engine::run_job("job: stops early");
  CHECK(early.status != 0);
  for (const int rank : {0, 1})  // rank 2 would repeat rank 0
    CHECK(early.has(
        fmt::format("rank {}: {} (call 15): rank 0 calls all_reduce, but rank 1 calls nothing more",
                    rank, rank == 1 ? "nothing more" : "all_reduce")));
  const processes::Outcome late = engine::run_job("job: hangs");
  CHECK(late.status != 0);
  for (const int rank : {0, 1})
    CHECK(late.has(
        fmt::format("rank {}: all_reduce (call 15) on rank {} cannot finish: rank 2 failed: late",
                    rank, rank)));
}

TEST_CASE("who waits for one that waits names the one that is silent") {
  const processes::Outcome chain =
      engine::run_job("job: waits for one that waits for a silent one");
  INFO(chain.output);
  CHECK(chain.status != 0);
  const std::string first =
      "barrier (call 1) on rank 1 cannot finish: rank 2 failed: late: rank 1 "
      "waited 600 ms in barrier (call 1) for rank(s) 2; it may be dead";
  CHECK(chain.has("rank 1: " + first));
  CHECK(chain.has("rank 0: barrier (call 1) on rank 0 cannot finish: rank 1 failed: " + first));
  const processes::Outcome circle = engine::run_job("job: wait for each other");
  INFO(circle.output);
  CHECK(circle.status != 0);
  for (const int rank : {0, 1, 2}) CHECK(circle.has(fmt::format("rank {}: barrier", rank)));
  CHECK(circle.has("; it waits, too: call in one order on all ranks, or raise "));
}
