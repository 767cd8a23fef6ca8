// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/thread_communicator.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <tessera/laws/communicator_laws.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace ts = tessera;
using namespace std::chrono_literals;
using Faults = std::vector<std::string>;

namespace {

/// Runs `function` on all ranks and returns the text that each rank's exception carried ("" where
/// it threw none).
template <class Function>
Faults texts_of_ranks(int ranks, Function function, ts::ThreadGroupOptions options = {}) {
  Faults texts(static_cast<std::size_t>(ranks));
  try {
    ts::run_ranks(
        ranks,
        [&](ts::ThreadCommunicator& c) {
          try {
            function(c);
          } catch (const std::exception& error) {
            texts[static_cast<std::size_t>(c.rank())] = error.what();
            throw;
          }
        },
        options);
  } catch (const std::exception&) {  // one of those texts
  }
  return texts;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("thread ranks obey the laws") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    CAPTURE(ranks);
    std::vector<Faults> faults(static_cast<std::size_t>(ranks));
    ts::run_ranks(ranks, [&](ts::ThreadCommunicator& c) {
      for (std::uint32_t seed = 1; seed <= 3; ++seed) {
        const auto found =
            ts::laws::communicator_laws(c, {.seed = seed, .large = ranks <= 4 ? 100'000u : 5'000u});
        auto& mine = faults[static_cast<std::size_t>(c.rank())];
        mine.insert(mine.end(), found.begin(), found.end());
      }
    });
    for (const Faults& rank : faults) CHECK(rank == Faults{});
  }
}

TEST_CASE("many small collectives of more ranks than cores") {
  std::atomic<int> wrong{0};
  ts::run_ranks(6, [&](ts::ThreadCommunicator& c) {
    std::minstd_rand random(5);  // the same on every rank, so that all make the same calls
    for (int i = 0; i < 1000; ++i) {
      switch (random() % 3) {
        case 0: {
          std::int64_t sum = c.rank() + i;
          c.all_reduce(std::span(&sum, 1));
          if (sum != 15 + 6 * i) ++wrong;
          break;
        }
        case 1: {
          std::int32_t value = c.rank() == i % 6 ? i : -1;
          c.broadcast(std::span(&value, 1), i % 6);
          if (value != i) ++wrong;
          break;
        }
        default:
          c.barrier();
      }
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a barrier holds everybody back") {
  std::atomic<int> before{0}, wrong{0};
  ts::run_ranks(4, [&](ts::ThreadCommunicator& c) {
    for (int i = 1; i <= 200; ++i) {
      ++before;
      c.barrier();
      if (before != 4 * i) ++wrong;
      c.barrier();
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a rank that throws ends all, and its own exception is thrown") {
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  for (int failing = 0; failing < 4; ++failing)
    for (int repeat = 0; repeat < 20; ++repeat) {
      Faults texts(4);
      const auto run = [&] {
        ts::run_ranks(4, [&](ts::ThreadCommunicator& c) {
          std::vector<float> values(1000, 1.0f);
          try {
            for (int i = 0; i < 10; ++i) c.all_reduce(std::span(values));
            if (c.rank() == failing) throw Mine("the disk is full");
            c.barrier();
          } catch (const ts::CommunicatorError& error) {
            texts[static_cast<std::size_t>(c.rank())] = error.what();
            CHECK(error.rank() == failing);
            CHECK(error.collective() == "barrier");
            throw;
          }
        });
      };
      CHECK_THROWS_WITH_AS(run(), "the disk is full", Mine);
      for (int rank = 0; rank < 4; ++rank)
        if (rank != failing)
          CHECK(texts[static_cast<std::size_t>(rank)] ==
                fmt::format(
                    "barrier (call 11) on rank {} cannot finish: rank {} failed: the disk is full",
                    rank, failing));
    }
}

TEST_CASE("threads that cannot start are named, and the others end") {
  pthread_attr_t usual, endless;
  REQUIRE(pthread_getattr_default_np(&usual) == 0);
  pthread_attr_init(&endless);
  pthread_attr_setstacksize(&endless, std::size_t{1} << 50);  // more than there are addresses
  std::string text;
  pthread_setattr_default_np(&endless);
  try {
    ts::run_ranks(2, [](ts::ThreadCommunicator& c) { c.barrier(); });
  } catch (const ts::Error& error) {
    text = error.what();
  }
  pthread_setattr_default_np(&usual);
  CHECK(text.find("cannot start a thread for each rank: ") == 0);
  CHECK(text.find("; give fewer ranks, or raise ulimit -u") != std::string::npos);
}

TEST_CASE("something thrown that is no exception, and a rank that leaves early") {
  const auto throw_number = [](ts::ThreadCommunicator& c) {
    if (c.rank() == 1) throw 42;
    c.barrier();
  };
  CHECK_THROWS_AS(ts::run_ranks(3, throw_number), int);
  const Faults texts = texts_of_ranks(3, [](ts::ThreadCommunicator& c) {
    if (c.rank() != 2) c.barrier();
  });
  for (int rank = 0; rank < 2; ++rank)
    CHECK(has(texts[static_cast<std::size_t>(rank)],
              "rank 2 failed: it has returned from its function and takes part in no further"));
  CHECK(texts[2].empty());
}

TEST_CASE("ranks that disagree all throw the same text") {
  const auto all_say = [](const Faults& texts, const std::string& expected) {
    for (const std::string& text : texts) CHECK(text == expected);
  };
  all_say(texts_of_ranks(3,
                         [](ts::ThreadCommunicator& c) {
                           std::vector<std::size_t> send{1, 2, 3},
                               receive(3, static_cast<std::size_t>(c.rank()) + 1);
                           if (c.rank() == 2) receive[1] = 7;
                           std::vector<double> from(6), to(receive[0] + receive[1] + receive[2]);
                           c.barrier();
                           c.all_to_all(from, send, std::span(to), receive);
                         }),
          "all_to_all (call 2): rank 1 sends 3 elements to rank 2, which expects 7");
  all_say(texts_of_ranks(3,
                         [](ts::ThreadCommunicator& c) {
                           const std::vector<std::size_t> counts{2, c.rank() == 0 ? 1u : 4u, 2};
                           std::vector<float> from(c.rank() == 1 ? 4 : 2), to(4 + counts[1]);
                           c.all_gather(from, std::span(to), counts);
                         }),
          "all_gather (call 1): rank 1 sends 4 elements to rank 0, which expects 1");
  all_say(texts_of_ranks(4,
                         [](ts::ThreadCommunicator& c) {
                           std::vector<float> values(c.rank() == 3 ? 9 : 8);
                           c.all_reduce(std::span(values));
                         }),
          "all_reduce (call 1): rank 0 has 8 elements, but rank 3 has 9 elements; all ranks must "
          "make the same calls in the same order");
  all_say(texts_of_ranks(2,
                         [](ts::ThreadCommunicator& c) {
                           const std::vector<std::size_t> counts{c.rank() == 0 ? 1u : 2u, 2};
                           std::vector<float> from(counts[0] + counts[1]),
                               to(c.rank() == 0 ? 1 : 2);
                           c.reduce_scatter(from, std::span(to), counts);
                         }),
          "reduce_scatter (call 1): rank 1 sends 2 elements to rank 0, which expects 1");
  all_say(texts_of_ranks(3,
                         [](ts::ThreadCommunicator& c) {
                           float value = 0;
                           c.broadcast(std::span(&value, 1), c.rank() == 1 ? 1 : 0);
                         }),
          "broadcast (call 1): rank 0 names the root 0, but rank 1 names the root 1; all ranks "
          "must make the same calls in the same order");
  all_say(texts_of_ranks(2,
                         [](ts::ThreadCommunicator& c) {
                           float value = 0;
                           c.all_reduce(std::span(&value, 1),
                                        c.rank() == 1 ? ts::Reduction::max : ts::Reduction::sum);
                         }),
          "all_reduce (call 1): rank 0 asks for the sum, but rank 1 asks for the max; all ranks "
          "must make the same calls in the same order");
  const Faults calls = texts_of_ranks(3, [](ts::ThreadCommunicator& c) {
    float value = 0;
    if (c.rank() == 2)
      c.barrier();
    else
      c.all_reduce(std::span(&value, 1));
  });
  for (const std::string& text : calls)
    CHECK(has(text, "rank 0 calls all_reduce, but rank 2 calls barrier"));
  const Faults types = texts_of_ranks(2, [](ts::ThreadCommunicator& c) {
    float single = 0;
    std::int32_t integer = 0;
    if (c.rank() == 0)
      c.all_reduce(std::span(&single, 1));
    else
      c.all_reduce(std::span(&integer, 1));
  });
  for (const std::string& text : types)
    CHECK(has(text, "rank 0 has elements of kind f, but rank 1 has elements of kind i"));
}

TEST_CASE("after a disagreement that all ranks catch, the group works on") {
  std::atomic<int> wrong{0};
  ts::run_ranks(4, [&](ts::ThreadCommunicator& c) {
    for (int i = 0; i < 100; ++i) {
      std::vector<std::int32_t> values(c.rank() == i % 4 ? 2 : 1, 1);
      CHECK_THROWS_AS(c.all_reduce(std::span(values)), ts::CommunicatorError);
      std::int32_t one = 1;
      c.all_reduce(std::span(&one, 1));
      if (one != 4) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a late rank is named, by all and to itself") {
  const auto run = [](bool late, std::chrono::nanoseconds timeout) {
    std::latch given_up(1);
    return texts_of_ranks(3,
                          [&](ts::ThreadCommunicator& c) {
                            c.barrier();
                            if (c.rank() == 1 && late) given_up.wait();
                            try {
                              c.barrier();
                            } catch (...) {
                              if (c.rank() == 0) given_up.count_down();
                              throw;
                            }
                          },
                          {.timeout = timeout});
  };
  for (const std::string& text : run(true, 1s)) {
    CHECK(has(text, "barrier (call 2)"));
    CHECK(has(text, "rank 1 failed: late: rank"));
    CHECK(has(text, "waited 1000 ms in barrier (call 2) for rank(s) 1;"));
  }
  CHECK(run(false, 60s) == Faults(3));
}

TEST_CASE("a late rank is named, not one that waits for it in a part") {
  const auto texts = texts_of_ranks(3,
                                    [&](ts::ThreadCommunicator& c) {
                                      ts::ThreadCommunicator part = c.split(c.rank() > 0);
                                      if (c.rank() == 2) std::this_thread::sleep_for(2500ms);
                                      if (c.rank() == 1) std::this_thread::sleep_for(500ms);
                                      part.barrier();
                                      c.barrier();
                                    },
                                    {.timeout = 1s});
  for (const std::string& text : texts) {
    CHECK(has(text, "rank 2 failed: late: rank 0 waited 1000 ms in barrier"));
    CHECK(has(text, "for rank(s) 2;"));
  }
}

TEST_CASE("a timeout beyond the clock is none") {
  CHECK(texts_of_ranks(2,
                       [&](ts::ThreadCommunicator& c) {
                         if (c.rank() == 1) std::this_thread::sleep_for(50ms);
                         c.barrier();
                       },
                       {.timeout = std::chrono::nanoseconds::max()}) == Faults(2));
}

TEST_CASE("deadlines that meet arrivals: all ranks finish a collective, or none does") {
  for (int i = 0; i < 200; ++i) {
    const Faults texts = texts_of_ranks(
        3,
        [&](ts::ThreadCommunicator& c) {
          std::this_thread::sleep_for(std::chrono::microseconds(c.rank() * 40 + i % 50));
          std::vector<std::int32_t> values(100, 1);
          c.all_reduce(std::span(values));
          if (values != std::vector<std::int32_t>(100, 3)) throw std::logic_error("wrong sum");
        },
        {.timeout = 100us});
    CHECK(texts[0].empty() == texts[1].empty());
    CHECK(texts[0].empty() == texts[2].empty());
    for (const std::string& text : texts) CHECK_FALSE(has(text, "wrong sum"));
  }
}

TEST_CASE("a group of the user's own threads can be ended from outside") {
  ts::ThreadGroup group(2);
  auto waiting =
      std::async(std::launch::async, [&] { ts::ThreadCommunicator(group, 0).barrier(); });
  group.fail(1, "stopped by the operator");
  group.fail(0, "a later reason");
  CHECK_THROWS_WITH_AS(
      waiting.get(),
      "barrier (call 1) on rank 0 cannot finish: rank 1 failed: stopped by the operator",
      ts::CommunicatorError);
}

TEST_CASE("bad input") {
  CHECK_THROWS_WITH_AS(ts::ThreadGroup(0), "ThreadGroup: need at least one rank, got 0",
                       ts::InvalidArgument);
  CHECK_THROWS_AS(ts::run_ranks(-1, [](ts::ThreadCommunicator&) {}), ts::InvalidArgument);
  ts::ThreadGroup group(2);
  CHECK_THROWS_AS(ts::ThreadCommunicator(group, 2), ts::InvalidArgument);
  const auto bad_counts = [](ts::ThreadCommunicator& c) {
    std::vector<float> values(4);
    const std::vector<std::size_t> good{2, 2}, bad{2, 3};
    std::vector<float> received(4);
    c.all_to_all(values, c.rank() == 1 ? bad : good, std::span(received), good);
  };
  CHECK_THROWS_WITH_AS(
      ts::run_ranks(2, bad_counts),
      "all_to_all on rank 1: the counts of the send buffer add up to 5 elements, but it has 4",
      ts::InvalidArgument);
  const auto bad_root = [](ts::ThreadCommunicator& c) {
    float value = 0;
    if (c.rank() == 1) c.broadcast(std::span(&value, 1), 2);
  };
  CHECK_THROWS_WITH_AS(ts::run_ranks(2, bad_root),
                       "broadcast on rank 1: root 2 is not a rank (0..1)", ts::InvalidArgument);
}

TEST_CASE("as a program's main: the exit code, and a line that names the rank that failed") {
  CHECK(ts::run_thread_ranks(3, [](ts::ThreadCommunicator& c) { c.barrier(); }) == 0);
  std::FILE* const file = std::tmpfile();
  std::fflush(stderr);
  const int real = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  const int code = ts::run_thread_ranks(3, [](ts::ThreadCommunicator& c) {
    if (c.rank() == 1) throw std::runtime_error("a user's exception");
    c.barrier();
  });
  std::fflush(stderr);
  dup2(real, STDERR_FILENO);
  close(real);
  std::rewind(file);
  std::string text(200, ' ');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  CHECK(code == 1);
  CHECK(text == "rank 1: a user's exception\n");
}
