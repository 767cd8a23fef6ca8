// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are processes, over Gloo: this program starts itself as each of them.
#include <fmt/format.h>
#include <gloo/engine.hpp>

#include <processes/communicator_cases.hpp>

#include <tessera/comm/hierarchical_communicator.hpp>

#include <cstdio>
#include <fstream>
#include <mutex>

TEST_CASE("1 to 8 processes do what communicators must do") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const processes::Outcome all = engine::run_job(ranks == 3 ? "ranks: *" : "job: laws", ranks);
    INFO(ranks << " ranks: " << all.output);
    CHECK(all.status == 0);
    CHECK(all.has("0 failed"));
  }
}
TEST_CASE("job: laws" * doctest::skip()) {
  auto c = world();
  CHECK(c.rank() == engine::place().rank);
  CHECK(c.size() == engine::place().size);
  CHECK(ts::laws::communicator_laws(c, {.seed = 7, .rounds = 1, .large = 2000}) == Faults{});
  if (c.size() == 4) {
    auto nodes = ts::make_hierarchical(c, 2);
    CHECK(ts::laws::communicator_laws(nodes, {.seed = 8, .rounds = 1, .large = 500}) == Faults{});
  }
  c.finish();
}

TEST_CASE("what Gloo's ranks are given is checked") {
  const auto text = [](const ts::GlooOptions& options, int rank, int size) {
    try {
      ts::GlooCommunicator(options, rank, size, nullptr);
    } catch (const ts::InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(text({}, 0, 1).empty());  // meets nobody
  CHECK(text({.interface = "lo"}, 0, 1).empty());
  CHECK(has(text({}, 2, 2), "rank 2 of 2 ranks is none"));
  CHECK(has(text({.max_message_bytes = 0}, 0, 1), "max_message_bytes must be at least 1"));
  CHECK(has(text({.interface = "none0"}, 0, 1),
            "this machine has no network interface 'none0' to bind to"));
  CHECK(has(text({.address = "192.0.2.1"}, 0, 1), "no address '192.0.2.1' to bind to"));
  CHECK(has(text({.address = "no.such.host.invalid"}, 0, 1),
            "address 'no.such.host.invalid' does not resolve"));
  CHECK_THROWS_AS(ts::meet_in_folder("x", 3, 3), ts::InvalidArgument);
  CHECK(ts::address_towards("127.0.0.1") == "127.0.0.1");
  CHECK(ts::address_towards("::1") == "::1");
  CHECK_THROWS_WITH_AS(ts::address_towards("no.such.host.invalid"),
                       doctest::Contains("host 'no.such.host.invalid' does not resolve"),
                       ts::InvalidArgument);
}

namespace {

/// What each of some ranks (threads) gets of a meeting, or the error's text.
std::vector<std::string> meet(const std::filesystem::path& folder, const std::vector<int>& ranks,
                              int size, std::chrono::milliseconds between = 0ms) {
  std::vector<std::string> results(ranks.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        for (const std::string& brought : ts::meet_in_folder(
                 folder, ranks[i], size, 1500ms)("bytes\n\0of "s + std::to_string(ranks[i])))
          results[i] += brought + ";";
      } catch (const ts::Error& error) {
        results[i] = error.what();
      }
    });
    std::this_thread::sleep_for(between);
  }
  threads.clear();
  return results;
}

const std::string of_all = "bytes\n\0of 0;bytes\n\0of 1;bytes\n\0of 2;"s;

}  // namespace

TEST_CASE("ranks meet in a folder, whatever other jobs left there, and leave nothing") {
  const TemporaryFolder folder;
  const auto is_empty = [&] { return std::filesystem::is_empty(folder.path); };
  CHECK(meet(folder.path / "new", {0, 1, 2}, 3) == Faults(3, of_all));
  CHECK(std::filesystem::is_empty(folder.path / "new"));
  std::filesystem::remove(folder.path / "new");

  // A rank does not come: all others say which.
  const Faults missing = meet(folder.path, {0, 2}, 3);
  CHECK(has(missing[0], "rank 0 waited 1500 ms in the folder '" + folder.path.string() +
                            "' for rank(s) 1; start all 3 ranks with the same folder"));
  CHECK(has(missing[1], "rank 2 waited 1500 ms"));
  CHECK(has(missing[1], "for rank(s) 1;"));
  CHECK(!is_empty());  // their files are left over, as of killed processes

  // Rank 0 comes last: the others first read the old job's file of it, and a list like theirs.
  std::ofstream(folder.path / "meeting_all")
      << "tessera meeting 1\nabc\nabc\n21\nabc 1\nxabd 1\nyabe 1\nz";
  CHECK(meet(folder.path, {2, 1, 0}, 3, 60ms) == Faults(3, of_all));
  CHECK(is_empty());

  // Rank 0 is missing, and an old file of it is there.
  static_cast<void>(meet(folder.path, {0}, 2));
  const Faults old = meet(folder.path, {1}, 2);
  CHECK(has(old[0], "for rank(s) 0 (is '" + (folder.path / "meeting_rank_0").string() +
                        "' left over from another job?)"));

  // Two processes are one rank: the one that wrote first is told.
  const Faults twice = meet(folder.path, {0, 1, 1}, 3, 30ms);
  const std::string told = "another process writes '" + (folder.path / "meeting_rank_1").string();
  CHECK(has(twice[1], told) != has(twice[2], told));
}

TEST_CASE("ranks that cannot meet or connect say who is missing") {
  for (const char* name : {"job: one does not come", "job: one dies before it connects",
                           "job: one has another size", "job: one listens on its machine alone"}) {
    const processes::Outcome all = engine::run_job(name);
    INFO(name << all.output);
    CHECK(all.status == 0);
    CHECK(all.has("0 failed"));
    // One may still connect to another that has given up already, and name that.
    if (all.has("connecting on rank")) CHECK(all.has("cannot finish: rank 1 failed: "));
  }
}
TEST_CASE("job: one does not come" * doctest::skip()) {
  if (engine::place().rank == 1) return;
  // Both have started: neither is the one that is missing.
  ts::meet_in_folder(engine::place().folder, engine::place().rank / 2, 2, 60s)("");
  const std::string text =
      text_of([] { ts::GlooCommunicator({}, engine::place().rank, 3, engine::meeting(800ms)); });
  CHECK(has(text, "waited 800 ms in the folder"));
  CHECK(has(text, "for rank(s) 1;"));
}
TEST_CASE("job: one dies before it connects" * doctest::skip()) {
  const ts::GlooMeeting meeting = engine::meeting();
  if (engine::place().rank == 1) {
    static_cast<void>(text_of([&] {
      ts::GlooCommunicator({}, 1, 3, [&](const std::string& mine) -> std::vector<std::string> {
        meeting(mine);
        throw ts::CommunicatorError(-1, "", "");
      });
    }));
    return;
  }
  const std::string text = text_of(
      [&] { ts::GlooCommunicator({.connect_timeout = 1500ms}, engine::place().rank, 3, meeting); });
  std::puts(text.c_str());
  const int rank = engine::place().rank;
  const std::string said = fmt::format("connecting on rank {} cannot finish: rank ", rank);
  CHECK(
      (has(text, said + "1 failed: ") || has(text, fmt::format("{}{} failed: ", said, 2 - rank))));
  // The system may have connected them before rank 1 went.
  CHECK((has(text, "has met it but cannot connect to it: ") ||
         has(text, "it closed its connections and does not say why")));
}
TEST_CASE("job: one has another size" * doctest::skip()) {
  const int rank = engine::place().rank;
  const ts::GlooMeeting meeting = engine::meeting();
  const std::string text = text_of([&] {
    ts::GlooCommunicator({.connect_timeout = 1500ms}, rank, 3, [&](std::string mine) {
      if (rank == 1) mine.replace(mine.find("of 3"), 4, "of 4");
      return meeting(mine);
    });
  });
  INFO(text);
  if (rank != 1)
    CHECK(has(text,
              "what rank 1 brought to the meeting begins with 'tessera gloo 1: rank 1 of 4', "
              "not with 'tessera gloo 1: rank 1 of 3'"));
}
TEST_CASE("job: one listens on its machine alone" * doctest::skip()) {
  const int rank = engine::place().rank;
  const ts::GlooMeeting meeting = engine::meeting();
  const std::string text = text_of([&] {
    ts::GlooCommunicator({}, rank, 3, [&](std::string mine) {
      // The others say that they listen at 192.168.7.1.
      for (std::size_t at = 0; rank != 1; at += 4) {
        at = mine.find("\x7f\0\0\x01"s, at);
        if (at == std::string::npos) break;
        mine.replace(at, 4, "\xc0\xa8\x07\x01");
      }
      return meeting(mine);
    });
  });
  INFO(text);
  CHECK(has(text, "rank 1 listens at [127.0.0.1]:"));
  CHECK(has(text, ", an address of its machine alone, but others at [192.168.7.1]:"));
}
