// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "turns.hpp"

#include "measure.hpp"

#include "../../examples/support/files.hpp"

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/crc32.hpp>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <random>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <malloc.h>

namespace lab {
namespace {

using namespace tessera;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Bytes of a line of /proc/self/status; 0: there is none.
std::int64_t own_bytes(std::string_view key) {
  std::istringstream status(support::read_file("/proc/self/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return 1024 * std::atoll(line.c_str() + key.size() + 1);
  return 0;
}

/// Milliseconds of a loop that is the same every time: what differs is the machine.
double fixed_work_ms() {
  const auto begin = Clock::now();
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 4'000'000; ++i) sum ^= random_word(1, i);
  const double milliseconds = 1e3 * seconds_since(begin);
  require(sum != 0, "the loop of fixed work was not run");  // so that it is
  return milliseconds;
}

json measured(const Case& c, const Batches& batches, int steps) {
  require(c.layout.fault.ok(), "{}", describe(c.layout.fault));
  json record{{"fixed_work_ms", fixed_work_ms()}};
  std::int64_t before = 0, tables = 0, peak = 0;
  const auto grown = [&] { return own_bytes("VmRSS:") - before; };
  const Watch watch{.begins =
                        [&] {
                          malloc_trim(0);  // what was freed is not there
                          before = own_bytes("VmRSS:");
                        },
                    .built = [&] { tables = std::max(tables, grown()); },
                    .steps = [&] { peak = std::max(peak, grown()); }};
  const Recorded recorded = record_case(c, batches, steps, watch);
  record["steps"] = steps;
  record["tables_bytes"] = tables;
  // of ghosts as it was seen before steps: the rehearsal was in this process, too
  record["peak_bytes"] = c.ghosts.empty() ? own_bytes("VmHWM:") - before : peak;
  record["link_seconds"] = recorded.link_seconds;
  for (const tessera::detail::RecordedSteps& rank : recorded.ranks) {
    json& to = record["ranks"].emplace_back();
    to["whole"] = rank.whole;
    to["rows"] = rank.rows;
    const tessera::detail::CacheCounters& cache = recorded.caches[record["ranks"].size() - 1];
    if (cache.rows > 0) to["cache"] = {{"rows", cache.rows}, {"fetched_rows", cache.fetched_rows}};
    for (std::size_t s = 0; s < rank.seconds.size(); ++s) {
      to["seconds"].push_back(rank.seconds[s]);
      to["waits"].push_back(rank.waits[s]);
      to["work"].push_back(rank.work[s]);
      to["bytes"].push_back(rank.traffic[s].bytes);
      to["messages"].push_back(rank.traffic[s].messages);
    }
  }
  return record;
}

/// A line. Of a path that is no UTF-8, what is not is replaced.
std::string text_of(const json& line) {
  return line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

/// Ends an object of JSON with the checksum of its text: damage often leaves other JSON.
std::string with_checksum(std::string_view open) {
  return fmt::format("{},\"crc32\":{}}}", open, tessera::detail::crc32(open));
}

/// A line of rounds.jsonl.
std::string turn_text(const std::string& name, const json& record) {
  const std::string text = text_of({{"case", name}, {"record", record}});
  return with_checksum(std::string_view(text).substr(0, text.rfind('}'))) + "\n";
}

/// Runs in a process of its own and returns what it sent, or {"error": text}.
json in_own_process(const std::function<json()>& body) {
  int pipe_ends[2];
  const bool piped = pipe(pipe_ends) == 0;  // before errno is read
  require<DataError>(piped, "cannot make a pipe: {}", std::strerror(errno));
  std::fflush(nullptr);
  const pid_t parent = getpid(), child = fork();
  require<DataError>(child >= 0, "cannot start a process: {}", std::strerror(errno));
  if (child == 0) {
    close(pipe_ends[0]);
    // a turn does not run on beside the next one if the laboratory is killed
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(3);
    std::string text;
    try {
      text = text_of(body());
    } catch (const std::bad_alloc&) {
      text = text_of({{"error", "out of memory"}});
    } catch (const std::exception& error) {
      text = text_of({{"error", error.what()}});
    }
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t sent = write(pipe_ends[1], rest.data(), rest.size());
      if (sent < 0 && errno != EINTR) _exit(3);
      if (sent > 0) rest.remove_prefix(static_cast<std::size_t>(sent));
    }
    _exit(0);  // nothing of the parent's is flushed twice
  }
  close(pipe_ends[1]);
  std::string text(1 << 16, '\0');
  std::size_t size = 0;
  for (;;) {
    const ssize_t got = read(pipe_ends[0], text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
    if (size == text.size()) text.resize(2 * size);
  }
  close(pipe_ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    return {{"error",
             fmt::format("ended by signal {} ({}){}", WTERMSIG(status), strsignal(WTERMSIG(status)),
                         WTERMSIG(status) == SIGKILL ? ": out of memory?" : "")}};
  json record = json::parse(text.substr(0, size), nullptr, false);
  if (record.is_discarded()) return {{"error", "it ended without a result"}};
  return record;
}

/// What must be the same for rounds to be of one experiment.
json fingerprint(const Settings& settings, const std::vector<Case>& cases, const Batches& batches) {
  std::uint64_t layouts = 0;
  const auto add = [&](auto value) {
    layouts = random_word(layouts, std::bit_cast<std::uint64_t>(value));
  };
  for (const Case& c : cases) {
    for (const Shard& s : c.layout.shards)
      for (const std::int64_t value :
           {std::int64_t{s.table}, s.rectangle.row_begin, s.rectangle.row_end,
            std::int64_t{s.rectangle.column_begin}, std::int64_t{s.rectangle.column_end},
            std::int64_t{s.rank}, static_cast<std::int64_t>(s.tier), std::int64_t{s.cache_rows}})
        add(value);
    add(c.ghost_checksum());
  }
  return {{"laboratory", 2},         {"model", settings.model_file}, {"batch", batches.samples},
          {"steps", settings.steps}, {"ids", batches.checksum},      {"layouts", layouts}};
}

/// Lines as they were written: a kill may have cut the last, a disk have damaged others.
void read_rounds(const std::string& path, const json& settings, Rounds& rounds) {
  std::istringstream file(support::read_file(path, "--resume", std::size_t{1} << 34));
  std::string line;
  if (!std::getline(file, line)) return;
  const json first = json::parse(line, nullptr, false);
  require<DataError>(first == json::parse(text_of(settings)),
                     "--resume: '{}' is of another model, batch, number of steps, ids or plans; "
                     "give what it was begun with, or another --out",
                     path);
  while (std::getline(file, line)) {
    const std::string_view text = line;
    if (text != with_checksum(text.substr(0, text.rfind(",\"crc32\":")))) continue;
    json turn = json::parse(line);
    if (turn["record"].contains("error")) continue;  // it gets another try
    std::vector<json>& records = rounds[turn["case"].get<std::string>()];
    // a line that is there twice is one turn
    if (std::find(records.begin(), records.end(), turn["record"]) == records.end())
      records.push_back(std::move(turn["record"]));
  }
}

/// The state of the laboratory: redrawn on a terminal, a line now and then elsewhere.
class Turns {
 public:
  explicit Turns(std::size_t all) : all_(all), terminal_(isatty(2) != 0) {}
  void show(std::size_t done, const std::string& next) {
    if (!terminal_ && seconds_since(shown_) < 10) return;
    shown_ = Clock::now();
    const double each = done == 0 ? 0 : seconds_since(begin_) / static_cast<double>(done);
    std::string text = fmt::format("{} of {}", done, all_);
    if (done > 0) text += fmt::format(", {:.0f} s left", each * static_cast<double>(all_ - done));
    if (terminal_) {
      const std::size_t filled = 20 * done / std::max<std::size_t>(1, all_);
      text = fmt::format("[{:<20}] {}: {}", std::string(filled, '#'), text, next);
      fmt::print(stderr, "\r\x1b[K{}", text.substr(0, 99));
    } else {
      fmt::print(stderr, "{}\n", text);
    }
  }
  void end() const {
    if (terminal_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  std::size_t all_;
  bool terminal_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

}  // namespace

Rounds measure_in_turn(const Settings& settings, const std::vector<Case>& cases,
                       const Batches& batches) {
  const std::string path = settings.out + "/rounds.jsonl";
  const support::NamedPath named{"--out", path};
  const json first = fingerprint(settings, cases, batches);
  Rounds rounds;
  if (settings.resume && std::filesystem::exists(path)) read_rounds(path, first, rounds);
  {  // rewritten: a line that a kill has cut is gone
    support::ResultFile again(path, "--out");
    again.add(text_of(first));
    for (const auto& [name, records] : rounds)
      for (const json& record : records) again.add(turn_text(name, record));
    again.finish();
  }
  const int file = support::open_output(path, named, O_APPEND);
  std::vector<std::pair<int, const Case*>> turns;
  std::mt19937_64 random(settings.seed);
  for (int round = 0; round < settings.rounds; ++round) {
    const std::size_t begin = turns.size();
    for (const Case& c : cases)
      if (std::ssize(rounds[c.name]) <= round) turns.emplace_back(round, &c);
    std::shuffle(turns.begin() + static_cast<std::ptrdiff_t>(begin), turns.end(), random);
  }
  Turns shown(turns.size());
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Case& c = *turns[i].second;
    if (!rounds[c.name].empty() && rounds[c.name].back().contains("error")) continue;
    shown.show(i, c.name);
    const auto without_files = [&] {  // before, too: a kill may have left them
      std::error_code ignored;
      if (c.cached()) std::filesystem::remove_all(c.files, ignored);
    };
    without_files();
    json record = in_own_process([&] { return measured(c, batches, settings.steps); });
    without_files();
    support::write_all(file, turn_text(c.name, record), named);
    rounds[c.name].push_back(std::move(record));
  }
  shown.end();
  close(file);
  return rounds;
}

}  // namespace lab
