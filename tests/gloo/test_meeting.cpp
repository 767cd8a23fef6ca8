// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/meeting.hpp>

#include <support/free_port.hpp>

#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace ts = tessera;
namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

namespace {

ts::RankOfJob job_of(int rank, int size, int port, const std::string& token = "the job's") {
  return {.rank = rank,
          .size = size,
          .local_rank = rank,
          .local_size = size,
          .address = "127.0.0.1",
          .port = port,
          .token = token,
          .launcher = "test"};
}

struct Outcome {
  std::vector<std::string> all = {};
  std::string error = {};
  int at_fault = -2;
  bool says(const std::string& text) const { return error.find(text) != std::string::npos; }
};

/// What a process would get, which this thread is.
std::future<Outcome> meet(ts::RankOfJob job, std::string mine, ts::MeetingOptions options) {
  return std::async(std::launch::async,
                    [job = std::move(job), mine = std::move(mine), options]() -> Outcome {
                      try {
                        return {.all = ts::meet_at_rank_0(job, mine, options)};
                      } catch (const ts::CommunicatorError& error) {
                        return {.error = error.what(), .at_fault = error.rank()};
                      } catch (const std::exception& error) {
                        return {.error = error.what()};
                      }
                    });
}

const ts::MeetingOptions kPatient{.timeout = 60s}, kShort{.timeout = 400ms};
const std::vector<std::string> kBoth{"a", "b"};

}  // namespace

TEST_CASE("every rank is given what each brings, in rank order") {
  std::mt19937 random(7);
  for (const int size : {1, 2, 3, 8}) {
    CAPTURE(size);
    std::vector<std::string> brought;
    for (int r = 0; r < size; ++r) {
      std::string bytes(r == 1 ? 0 : r == 2 ? std::size_t{1} << 20 : random() % 100, '\0');
      for (char& c : bytes) c = static_cast<char>(random());
      brought.push_back(std::move(bytes));
    }
    const int port = free_port();
    std::vector<std::future<Outcome>> ranks;
    for (int r = size; r-- > 0;)  // rank 0 comes last
      ranks.push_back(meet(job_of(r, size, port), brought[static_cast<std::size_t>(r)], kPatient));
    for (auto& rank : ranks) {
      const Outcome outcome = rank.get();
      CHECK(outcome.error == "");
      CHECK((outcome.all == brought));
    }
  }
}

TEST_CASE("a rank that does not come is named by all") {
  int port = 0;
  bool named = false;
  // on a busy machine rank 2 may come when rank 0 waits no more
  for (auto wait = 400ms; !named && wait < 10s; wait *= 4) {
    port = free_port();
    auto zero = meet(job_of(0, 4, port), "", {.timeout = wait}),
         two = meet(job_of(2, 4, port), "", {.timeout = wait + 1s});
    const std::string text = "rank 0 waited " + std::to_string(wait / 1s) +
                             " s at 127.0.0.1:" + std::to_string(port) + " for rank(s) 1, 3";
    named = zero.get().says(text) && two.get().says(text);
  }
  CHECK(named);
  const Outcome alone = meet(job_of(1, 2, port), "", kShort).get();
  CHECK(alone.says("rank 0 does not listen at 127.0.0.1:" + std::to_string(port)));
  CHECK(alone.at_fault == 0);
}

TEST_CASE("a meeting goes on when others knock") {
  const int port = free_port();
  auto zero = meet(job_of(0, 2, port), "a", kPatient);
  SUBCASE("with another token") {
    const Outcome other = meet(job_of(1, 2, port, "another's"), "x", kPatient).get();
    CHECK(other.says("has not this job's token"));
    CHECK(other.at_fault == 0);
  }
  SUBCASE("of another size") {
    CHECK(meet(job_of(1, 3, port), "x", kPatient)
              .get()
              .says("rank 1 was started as one of 3, rank 0 as one of 2"));
  }
  SUBCASE("that say what they like") {
    asio::io_context context;
    std::mt19937 random(3);
    std::vector<tcp::socket> open;
    for (int i = 0; i < 100; ++i) {
      tcp::socket& socket = open.emplace_back(context);
      boost::system::error_code error = asio::error::connection_refused;
      while (error)
        socket.close(),
            socket.connect({asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)},
                           error);
      std::string bytes(random() % 200, '\0');
      for (char& c : bytes) c = static_cast<char>(random());
      if (i % 2 == 0) bytes = "TSRMEET1" + bytes;  // a good beginning
      asio::write(socket, asio::buffer(bytes), error);
      if (i % 3 == 0) socket.close();
    }
    auto one = meet(job_of(1, 2, port), "b", kPatient);
    CHECK((one.get().all == kBoth));
    CHECK((zero.get().all == kBoth));
    return;
  }
  CHECK((meet(job_of(1, 2, port), "b", kPatient).get().all == kBoth));
  CHECK((zero.get().all == kBoth));
}

TEST_CASE("a rank that is there already keeps its place") {
  const int port = free_port();
  auto zero = meet(job_of(0, 3, port), "", kPatient);
  std::vector<std::future<Outcome>> twice;
  for (int i = 0; i < 2; ++i) twice.push_back(meet(job_of(1, 3, port), "", kPatient));
  while (twice[0].wait_for(10ms) != std::future_status::ready &&
         twice[1].wait_for(10ms) != std::future_status::ready) {
  }
  auto two = meet(job_of(2, 3, port), "", kPatient);
  const Outcome a = twice[0].get(), b = twice[1].get();
  CHECK((a.error == "") != (b.error == ""));
  CHECK((a.error + b.error).find("two processes were started as rank 1 (two jobs on one port?)") !=
        std::string::npos);
  CHECK(zero.get().error == "");
  CHECK(two.get().error == "");
}

TEST_CASE("ranks that differ in facts are told so, all of them") {
  const int port = free_port();
  auto zero = meet(job_of(0, 2, port), "", {.facts = "--lr 1", .timeout = 60s});
  auto one = meet(job_of(1, 2, port), "", {.facts = "--lr 2", .timeout = 60s});
  for (const Outcome& outcome : {zero.get(), one.get()}) {
    CHECK(outcome.says("rank 1 differs from rank 0: 'Tessera "));
    CHECK(outcome.says("--lr 2' in place of '"));
    CHECK(outcome.says("--lr 1'"));
  }
}

TEST_CASE("a rank that is killed before all have come is named") {
  Outcome outcome;
  // on a busy machine it may be killed before it has come
  for (auto wait = 100ms; outcome.at_fault != 1 && wait < 10s; wait *= 4) {
    const int port = free_port();
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      static_cast<void>(ts::meet_at_rank_0(job_of(1, 3, port), "b", kPatient));
      _exit(0);
    }
    auto zero = meet(job_of(0, 3, port), "", {.timeout = wait + 1s});
    std::this_thread::sleep_for(wait);
    kill(child, SIGKILL);
    outcome = zero.get();
    waitpid(child, nullptr, 0);
  }
  CHECK(outcome.at_fault == 1);
  CHECK(outcome.says("rank 1 ended before all had come"));
}

TEST_CASE("where ranks cannot meet is said") {
  asio::io_context context;
  tcp::acceptor other(context, {asio::ip::address_v4::loopback(), 0});
  const int port = other.local_endpoint().port();
  CHECK(meet(job_of(0, 2, port), "", kPatient).get().says("set MASTER_PORT to a free port"));
  ts::RankOfJob job = job_of(1, 2, port);
  job.address = "no-such-host.invalid";
  CHECK(meet(job, "", kPatient).get().says("'no-such-host.invalid', where rank 0 should listen"));
  job.address = "";
  CHECK(meet(job, "", kPatient).get().says("set MASTER_ADDR to its machine"));
  for (const int rank : {0, 1})  // any free port: only rank 0 would know it
    CHECK(meet(job_of(rank, 2, 0), "", kPatient).get().says("MASTER_PORT=0: rank 0 listens at"));
  job = job_of(0, 2, free_port());
  job.local_size = 1;  // the other rank is elsewhere
  CHECK(meet(job, "", kPatient).get().says("an address of this machine alone (127.0.0.1)"));
  job.address = "192.0.2.1";  // of no machine
  CHECK(meet(job, "", kPatient).get().says("set MASTER_ADDR to an address of rank 0's machine"));
  job.rank = 2;
  CHECK(meet(job, "", kPatient).get().says("rank 2 of 2 is none"));
}

TEST_CASE("a listener that is no rank is told from one") {
  asio::io_context context;
  tcp::acceptor other(context, {asio::ip::address_v4::loopback(), 0});
  auto one = meet(job_of(1, 2, other.local_endpoint().port()), "", kPatient);
  tcp::socket socket = other.accept();
  boost::system::error_code ignored;
  asio::write(
      socket,
      asio::buffer("HTTP/1.1 400 Bad Request, and more of that kind" + std::string(100, '.')),
      ignored);
  CHECK(one.get().says("is no rank of Tessera"));
}

TEST_CASE("an answer of rank 0 whose lengths do not fit is refused") {
  using Meeting = ts::detail::Meeting;
  for (const std::string& answer : {std::string("abc"), Meeting::number(4) + "abc",
                                    Meeting::number(~std::uint64_t{0}) + "abc"}) {
    asio::io_context context;
    tcp::acceptor listener(context, {asio::ip::address_v4::loopback(), 0});
    const ts::RankOfJob job = job_of(1, 2, listener.local_endpoint().port());
    auto one = meet(job, "", kPatient);
    tcp::socket socket = listener.accept();
    std::string hello(Meeting::kMagic.size() + Meeting::kNonce, '\0');
    asio::read(socket, asio::buffer(hello));
    const std::string nonce(Meeting::kNonce, 'n');
    const std::string nonces = hello.substr(Meeting::kMagic.size()) + nonce;
    asio::write(socket, asio::buffer(std::string(Meeting::kMagic) + nonce +
                                     Meeting::proof(job, "rank 0", nonces) + '+' +
                                     Meeting::number(answer.size()) + answer));
    CHECK(one.get().says("is no rank of Tessera"));
  }
}
