// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What is left of a job over Gloo when one of its processes fails, is killed or is stopped at a
// random moment. TESSERA_GLOO_ROUNDS: how many of these.
#include <fmt/format.h>
#include <gloo/engine.hpp>

#include <tessera/comm/peer_watch.hpp>

#include <processes/faults_cases.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <regex>
#include <set>

TEST_CASE("a killed process is named by all others at once") {
  for (const char* name : {"job: killed", "job: killed beside a part"}) {
    const processes::Outcome job = engine::run_job(name);
    INFO(name << job.output);
    for (const int rank : {0, 2}) CHECK(job.has(fmt::format("rank {}: ", rank)));
    CHECK(job.has("failed: it closed its connections and does not say why: its process has ended"));
    CHECK_FALSE(job.has("late"));
  }
}

namespace {

/// Ranks wait for something that does not end by itself, and a watch tells them of the others.
template <class Fault>
void wait_watched(Fault fault) {
  const auto run = [&](ts::GlooCommunicator& c) {
    std::mutex mutex;
    std::condition_variable changed;
    std::string heard;
    ts::detail::PeerWatch<ts::GlooCommunicator> watch(c.split(0), [&](const std::string& text) {
      const std::lock_guard lock(mutex);
      heard = text;
      changed.notify_all();
    });
    try {
      fault(c.rank());
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !heard.empty(); });
      throw ts::Error(heard);
    } catch (const std::exception& error) {
      watch.end(error.what());
      throw;
    }
  };
  CHECK(engine::run_rank(run, {.timeout = 300s, .grace = 300ms}) == 1);
}

}  // namespace

TEST_CASE("job: watched and one throws" * doctest::skip()) {
  wait_watched([](int rank) {
    if (rank != 1) return;
    std::this_thread::sleep_for(200ms);
    throw std::runtime_error("the disk is full");
  });
}
TEST_CASE("job: watched and one is killed" * doctest::skip()) {
  wait_watched([](int rank) {
    if (rank != 1) return;
    std::this_thread::sleep_for(200ms);
    std::raise(SIGKILL);
  });
}
TEST_CASE("job: watched and all end in turn" * doctest::skip()) {
  const auto run = [](ts::GlooCommunicator& c) {
    std::string heard;
    ts::detail::PeerWatch<ts::GlooCommunicator> watch(
        c.split(0), [&](const std::string& text) { heard = text; });
    std::this_thread::sleep_for(c.rank() * 150ms);
    watch.finish();
    std::printf("rank %d is done%s\n", c.rank(), heard.c_str());
  };
  CHECK(engine::run_rank(run, {.timeout = 300s}) == 0);
}

TEST_CASE("a watch ends waits that know of no peers, and says why") {
  const processes::Outcome thrown = engine::run_job("job: watched and one throws");
  INFO(thrown.output);
  CHECK(thrown.has("rank 1: the disk is full"));
  const processes::Outcome killed = engine::run_job("job: watched and one is killed");
  INFO(killed.output);
  for (const int rank : {0, 2}) CHECK(killed.has(fmt::format("rank {}: ", rank)));
  CHECK(killed.has("rank 1 failed: it closed its connections"));
  const processes::Outcome healthy = engine::run_job("job: watched and all end in turn");
  INFO(healthy.output);
  for (const int rank : {0, 1, 2}) CHECK(healthy.has(fmt::format("rank {} is done\n", rank)));
}

TEST_CASE("job: trains until it fails" * doctest::skip()) {
  ts::GlooCommunicator c =
      engine::world({.timeout = engine::place().folder.empty() ? 60s : 700ms, .grace = 300ms});
  const auto ranks = static_cast<std::size_t>(c.size());
  c.barrier();
  std::ofstream(engine::place().folder + "/started_" + std::to_string(c.rank()));
  std::string text;
  const char* among = "all";  // a rank has another number in its part
  try {
    ts::GlooCommunicator part = c.split(c.rank() % 2);
    for (std::uint32_t step = 1;; ++step) {
      among = "all";
      std::minstd_rand random(step);
      const std::size_t count = random() % 50'000;
      std::vector<float> sums(count, static_cast<float>(c.rank())), send(ranks * count),
          receive(ranks * count);
      c.all_reduce(std::span(sums));
      c.all_to_all(send, std::vector<std::size_t>(ranks, count), std::span(receive),
                   std::vector<std::size_t>(ranks, count));
      float one = 1;
      among = "its part";
      part.all_reduce(std::span(&one, 1));
      const float first = static_cast<float>(ranks * (ranks - 1) / 2);
      if (count > 0 && sums.back() != first) std::printf("a wrong sum\n");
    }
  } catch (const ts::CommunicatorError& error) {
    text = fmt::format("<{} among {}> {}", c.rank(), among, error.what());
    c.fail(text);
  }
  std::printf("heard: %s\n", text.c_str());
}

namespace {

/// Returns all whom a rank names, in the text that was said first, which is the last in its own.
std::set<int> named_by(const std::string& output) {
  static const std::regex said("<(\\d+) among (its part|all)>[^<]*$"),
      names("(?:cannot finish: rank|for rank\\(s\\)|,) (\\d+)(?= failed: |,|;)");
  std::smatch who;
  REQUIRE(std::regex_search(output, who, said));
  const std::string text = who[0];
  std::set<int> ranks;
  for (std::sregex_iterator it(text.begin(), text.end(), names), end; it != end; ++it) {
    const int number = std::stoi((*it)[1]);
    ranks.insert(who[2] == "all" ? number : 2 * number + std::stoi(who[1]) % 2);
  }
  return ranks;
}

}  // namespace

TEST_CASE("processes that are killed or stopped at random moments are named by all others") {
  const char* const said = std::getenv("TESSERA_GLOO_ROUNDS");
  const int rounds = said == nullptr ? 4 : std::atoi(said);
  std::minstd_rand random(said == nullptr ? 1u : std::random_device()());
  double slowest = 0;
  for (int round = 0; round < rounds; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 4);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const bool stopped = round % 2 == 1;
    engine::Job job("job: trains until it fails", ranks);
    for (int rank = 0; rank < ranks; ++rank)
      while (!std::filesystem::exists(job.folder() / ("started_" + std::to_string(rank))))
        std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 150'000));
    job.signal(victim, stopped ? SIGSTOP : SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    CHECK(job.ends(100s, victim));
    const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - begin;
    if (!stopped) slowest = std::max(slowest, lasted.count());
    job.signal(victim, SIGCONT);
    CHECK(job.ends(100s));
    for (int rank = 0; rank < ranks; ++rank) {
      const processes::Outcome one = job.outcome(rank);
      INFO("round " << round << ": rank " << victim << " of " << ranks
                    << std::string(stopped ? " stopped; " : " killed; ") << rank << ": "
                    << one.output);
      CHECK_FALSE(one.has("a wrong sum"));
      if (rank == victim) {
        CHECK(one.status == (stopped ? 0 : 128 + SIGKILL));
        CHECK(one.has("heard: ") == stopped);
        continue;
      }
      CHECK(one.status == 0);
      CHECK(named_by(one.output) == std::set<int>{victim});
    }
  }
  MESSAGE("of " << rounds << " rounds the slowest after SIGKILL: " << slowest << " s");
}

TEST_CASE("job: a connection ends while a rank sleeps" * doctest::skip()) {
  const ts::GlooOptions options{.timeout = 20s};
  const auto device = std::make_shared<ts::detail::GlooDevice>(options);
  const int rank = engine::place().rank;
  for (int round = 0; round < 20; ++round) {
    ts::detail::GlooMessenger messenger(device, options, rank, 2, engine::meeting(), nullptr);
    pid_t other = getpid();
    int value = round;
    const auto bytes_of = [](auto& what) { return std::as_writable_bytes(std::span(&what, 1)); };
    messenger.begin_transfers();
    if (rank == 1) {
      // Its receive is posted when its number comes: to a rank that has none Gloo sends nothing.
      messenger.receive(0, bytes_of(value), 1);
      messenger.send(0, bytes_of(other), 1);
      messenger.wait();
      continue;
    }
    messenger.receive(1, bytes_of(other), 1);
    messenger.wait();
    std::this_thread::sleep_for(2ms);  // it waits
    kill(other, SIGSTOP);
    messenger.begin_transfers();
    messenger.send(1, bytes_of(value), 1);
    messenger.wait();
    messenger.close();
    std::this_thread::sleep_for(6ms);  // its wait is to be woken then
    kill(other, SIGCONT);
  }
}

TEST_CASE("a message that comes with the end of its connection is taken once") {
  const processes::Outcome job = engine::run_job("job: a connection ends while a rank sleeps", 2);
  INFO(job.output);
  CHECK(job.status == 0);
}
