// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What any communicator of processes must do, on any number of ranks; every rank runs every case.
// The program has included its engine.
#include <tessera/core/error.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <support/message_of.hpp>

#include <tessera/laws/communicator_laws.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace ts = tessera;
using namespace std::chrono_literals;
using engine::world;
using namespace std::string_literals;
using Faults = std::vector<std::string>;

namespace {

std::string text_of(const auto& function) { return message_of<ts::CommunicatorError>(function); }

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks: obey the laws" * doctest::skip(engine::skips_ranks)) {
  auto c = world();
  for (std::uint32_t seed = 1; seed <= engine::law_seeds; ++seed)
    CHECK(ts::laws::communicator_laws(c, {.seed = seed}) == Faults{});
  c.finish();
}

TEST_CASE("ranks: messages in pieces, what blocks above 2 GiB go through" *
          doctest::skip(engine::skips_ranks)) {
  auto c = world({.timeout = 60s, .max_message_bytes = engine::piece_bytes});
  CHECK(ts::laws::communicator_laws(c, {.seed = 4, .large = 300}) == Faults{});
}

TEST_CASE("ranks: parts" * doctest::skip(engine::skips_ranks)) {
  auto all = world();
  auto pair = all.split(all.rank() / 2);
  CHECK(pair.rank() == all.rank() % 2);
  CHECK(pair.size() == std::min(2, all.size() - all.rank() / 2 * 2));
  CHECK(ts::laws::communicator_laws(pair, {.seed = 5, .large = 1000}) == Faults{});
  all.barrier();
}

TEST_CASE("ranks: who disagree all throw, and the communicator is dead" *
          doctest::skip(engine::skips_ranks)) {
  if (world().size() == 1) return;
  {
    auto c = world();
    float value = 0;
    const auto call = [&] { c.rank() == 1 ? c.barrier() : c.all_reduce(std::span(&value, 1)); };
    CHECK(has(text_of(call), "rank 0 calls all_reduce, but rank 1 calls barrier"));
    CHECK(has(text_of([&] { c.barrier(); }), "rank 0 calls all_reduce, but rank 1 calls barrier"));
  }
  {
    auto c = world();
    std::vector<float> values(c.rank() == 1 ? 9 : 8);
    // Found by a rank itself, or heard from one that was faster.
    CHECK(has(text_of([&] { c.all_reduce(std::span(values)); }),
              "all_reduce (call 1): rank 0 has 8 elements, but rank 1 has 9 elements; all ranks "
              "must make the same calls in the same order"));
  }
  {
    auto c = world();
    const auto ranks = static_cast<std::size_t>(c.size());
    std::vector<std::size_t> send_counts(ranks, 2), receive_counts(ranks, 2);
    if (c.rank() == 0) receive_counts[1] = 5;
    std::vector<double> send(2 * ranks), receive(c.rank() == 0 ? 2 * ranks + 3 : 2 * ranks);
    // Who has no part in it may finish this call, and hears at the next.
    const std::string text = text_of([&] {
      c.all_to_all(send, send_counts, std::span(receive), receive_counts);
      c.barrier();
    });
    CHECK(has(text, "all_to_all (call 1): rank 1 sends 2 elements to rank 0, which expects 5"));
  }
  {
    auto c = world();
    float value = 0;
    CHECK(has(text_of([&] { c.rank() == 0 ? c.finish() : c.broadcast(std::span(&value, 1), 0); }),
              "rank 0 calls nothing more, but rank 1 calls broadcast"));
  }
}

TEST_CASE("ranks: one that fails ends the wait of all" * doctest::skip(engine::skips_ranks)) {
  auto c = world();
  if (c.size() == 1) return;
  c.barrier();
  if (c.rank() == 1) {
    c.fail("the disk is full");
  } else {
    std::vector<float> values(100);
    CHECK(has(
        text_of([&] { c.all_reduce(std::span(values)); }),
        fmt::format("all_reduce (call 2) on rank {} cannot finish: rank 1 failed: the disk is full",
                    c.rank())));
  }
  CHECK(has(text_of([&] { c.barrier(); }), "rank 1 failed: the disk is full"));
}

TEST_CASE("ranks: a late one is named" * doctest::skip(engine::skips_ranks)) {
  auto c = world({.timeout = 1500ms});
  if (c.size() == 1) return;
  c.barrier();
  if (c.rank() == 1) std::this_thread::sleep_for(4000ms);
  const std::string text = text_of([&] { c.barrier(); });
  CHECK(has(text, "rank 1 failed: late: rank"));
  CHECK(has(text, "waited 1500 ms in barrier (call 2) for rank(s) 1; it may be dead, or raise " +
                      std::string(engine::options_name) + "::timeout"));
}

TEST_CASE("ranks: one that waits is interrupted by a thread of its own" *
          doctest::skip(engine::skips_ranks)) {
  auto c = world(), second = world();
  if (c.size() == 1) return;
  c.barrier();
  std::jthread other;
  if (c.rank() == 0)
    other = std::jthread([&] {
      std::this_thread::sleep_for(100ms);
      c.interrupt("no more time");
    });
  // Rank 1 comes when the others have given up, also who waits for rank 1 alone.
  if (c.rank() == 1) second.barrier();
  CHECK(has(text_of([&] { c.barrier(); }), "rank 0 failed: it was interrupted: no more time"));
  if (c.rank() != 1) second.barrier();
}
