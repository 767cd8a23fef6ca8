// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Histories read from events in any order against a sort of lines in the test; splits against their
// definitions, event by event; what is wrong in a file, by name.
#include <tessera_data/history_reader.hpp>
#include <tessera_data/synthetic_histories.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <support/bytes_of.hpp>
#include <support/message_of.hpp>
#include <support/temporary_folder.hpp>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace tessera;

namespace {

HistoryReader read(const std::string& text, HistoryReaderOptions options = {},
                   std::size_t at_a_time = 1000) {
  return {bytes_of(text, at_a_time), "e.csv", std::move(options)};
}
std::string fault(const std::string& text, HistoryReaderOptions options = {}) {
  return message_of<DataError>([&] { read(text, std::move(options)); });
}

struct Line {
  std::string user, item;
  std::int64_t time;
  int label;
};
std::vector<Line> random_lines(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Line> lines;
  for (int i = 0; i < count; ++i)
    lines.push_back({"u" + std::to_string(random() % 37), "i" + std::to_string(random() % 50),
                     static_cast<std::int64_t>(random() % 60) - 30,
                     static_cast<int>(random() % 6)});
  return lines;
}
std::string text_of(const std::vector<Line>& lines, const char* separator) {
  std::string text = fmt::format("user{0}item{0}timestamp{0}rating\n", separator);
  for (const Line& line : lines)
    text += fmt::format("{1}{0}{2}{0}{3}{0}{4}\n", separator, line.user, line.item, line.time,
                        line.label);
  return text;
}
using Event = std::tuple<std::int64_t, std::string, float>;
std::map<std::string, std::vector<Event>> events_of(const HistoryReader& reader) {
  std::map<std::string, std::vector<Event>> all;
  const Histories histories = reader.histories();
  REQUIRE(histories.users() == reader.users());
  REQUIRE(histories.items == reader.items());
  for (std::int64_t u = 0; u < histories.users(); ++u)
    for (const HistoryEvent& event : histories.of(u))
      all[reader.user_key(u)].emplace_back(event.time, reader.item_key(event.item), event.label);
  return all;
}

/// Users with 0, 1, 2, ... events, at times 10, 20, ...; items are the event's number.
struct Steps {
  std::vector<HistoryEvent> events;
  std::vector<std::int64_t> offsets{0};
  explicit Steps(int users) {
    for (int u = 0; u < users; ++u) {
      for (int e = 0; e < u; ++e) events.push_back({10 * (e + 1), e, 1});
      offsets.push_back(std::ssize(events));
    }
  }
  Histories histories() const { return {events, offsets, 100}; }
};

/// Each target event and the events before it, by user, in the order of the ranges.
using Target = std::pair<std::int64_t, std::int64_t>;  // user, event
std::map<Target, std::int64_t> targets_of(const std::vector<HistoryRange>& ranges,
                                          std::int64_t max_length) {
  std::map<Target, std::int64_t> targets;
  for (const HistoryRange& range : ranges) {
    CHECK((0 <= range.begin && range.begin < range.target && range.target < range.end));
    CHECK(range.end - range.begin <= max_length + 1);
    for (std::int64_t e = range.target; e < range.end; ++e)
      CHECK(targets.emplace(Target(range.user, e), e - range.begin).second);
  }
  return targets;
}

}  // namespace

TEST_CASE("events in any order, in memory and by runs on disk, are those of a sort of the lines") {
  const TemporaryFolder folder;
  for (const char* separator : {",", "\t"}) {
    const std::vector<Line> lines = random_lines(3'000, 1);
    std::map<std::string, std::vector<Event>> expected;
    for (const Line& line : lines)
      expected[line.user].emplace_back(line.time, line.item, static_cast<float>(line.label));
    for (auto& [user, events] : expected)
      std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
        return std::get<0>(a) < std::get<0>(b);
      });
    std::uint64_t checksum = 0;
    for (const std::size_t memory : {std::size_t{1} << 20, std::size_t{20'000}, std::size_t{1}}) {
      CAPTURE(memory);
      const HistoryReader reader =
          read(text_of(lines, separator),
               {.label = "rating", .memory_bytes = memory, .temporary_folder = folder.path},
               memory == 1 ? 1 : 4096);
      CHECK(reader.on_disk() == (memory < 1 << 20));
      CHECK(events_of(reader) == expected);
      if (checksum == 0) checksum = reader.checksum();
      CHECK(reader.checksum() == checksum);
      CHECK(std::filesystem::is_empty(folder.path));  // the file has no name
    }
    std::vector<Line> other = lines;
    other[700].label ^= 1;
    CHECK(read(text_of(other, separator), {.label = "rating"}).checksum() != checksum);
  }
}

TEST_CASE("items keep their numbers whatever the order of lines, popular ones are spread") {
  std::vector<Line> lines = random_lines(500, 2);
  const HistoryReader reader = read(text_of(lines, ","));
  std::reverse(lines.begin(), lines.end());
  const HistoryReader reversed = read(text_of(lines, ","));
  REQUIRE(reader.items() == 50);
  bool sorted = true;
  for (std::int64_t i = 0; i < reader.items(); ++i) {
    CHECK(reader.item_key(i) == reversed.item_key(i));
    sorted = sorted && (i == 0 || reader.item_key(i - 1) < reader.item_key(i));
  }
  CHECK(!sorted);
  CHECK(reader.user_key(0) == lines.back().user);
  CHECK(reader.histories().of(0)[0].label == 1);  // no column was asked for
}

TEST_CASE("a reader that moves keeps its histories; quotes, spaces, floats of whole numbers") {
  HistoryReader first = read("when,who,what\n\"1.0\",\"a,b\",x\r\n -5 ,c,\"say \"\"x\"\"\"\n+3,c,x",
                             {.user = "who", .item = "what", .time = "when"}, 1);
  const HistoryReader reader = std::move(first);
  CHECK(reader.user_key(0) == "a,b");
  const auto events = reader.histories().of(1);
  REQUIRE(events.size() == 2);
  CHECK(events[0].time == -5);
  CHECK(reader.item_key(events[0].item) == "say \"x\"");
  CHECK(events[1].time == 3);
  CHECK_THROWS(reader.user_key(2));
}

TEST_CASE("a file, plain or not there; larger than the space for its runs") {
  const TemporaryFolder folder;
  const auto path = folder.path / "events.tsv";
  std::ofstream(path) << text_of(random_lines(100, 3), "\t");
  CHECK(HistoryReader(path).histories().events.size() == 100);
  CHECK_THROWS_AS(HistoryReader(folder.path / "none.csv"), DataError);
  CHECK_THROWS_AS(HistoryReader(folder.path), DataError);
  CHECK_THROWS_AS(HistoryReader(path, {.memory_bytes = 0}), InvalidArgument);

  const HistoryReaderOptions small{.memory_bytes = 480, .temporary_folder = folder.path / "no"};
  try {
    HistoryReader reader(path, small);
    FAIL("the folder is not there");
  } catch (const DataError& error) {
    CHECK(std::string(error.what()).find((folder.path / "no").string()) != std::string::npos);
  }
  // a file may grow to 1,000 bytes: as a disk that is full
  struct rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit tight{1'000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  std::string text;
  try {
    HistoryReader(path, {.memory_bytes = 480, .temporary_folder = folder.path});
  } catch (const DataError& error) {
    text = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(text.find("cannot write a temporary file in '" + folder.path.string()) == 0);
}

TEST_CASE("faults of a file name the line and the column") {
  const std::string header = "user,item,timestamp\n";
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(fault(""), "file 'e.csv' is empty; it needs a line of column names");
  has(fault("\n\n"), "is empty");
  has(fault(header), "file 'e.csv' holds no events");
  has(fault("user,item\na,b\n"),
      "line 1: there is no column 'timestamp', which HistoryReaderOptions::time names; there are "
      "'user', 'item'");
  has(fault("196\t242\t3\t881250949\n"),
      "there are '196', '242', '3', '881250949'; if this is no line of names, give 'columns'");
  has(fault("user,item\na,b\n", {.before_option = "--", .after_option = "-column"}),
      "there is no column 'timestamp', which --time-column names; there are 'user', 'item'");
  has(fault("user,user,item,timestamp\na,b,c,1\n"), "two columns are named 'user'; rename one");
  has(fault(header + "a,b,1\n", {.label = "like"}), "there is no column 'like'");
  has(fault(header + "a,b,1\na,b\n"), "line 3: the record has 2 fields, the header has 3");
  has(fault(header + "a,b,1\na,b,c,2\n"), "line 3: the record has 4 fields");
  for (const char* time : {"yesterday", "", "1e9", "1.5", ".0", "1.", "1,0", "0x10",
                           "9223372036854775808", "nan", "2026-11-24"})
    has(fault(header + "a,b," + (std::string(time) == "1,0" ? "\"1,0\"" : time) + "\n"),
        "line 2, column 'timestamp': '");
  has(fault(header + ",b,1\n"), "line 2, column 'user': '' is empty; every event has a user");
  has(fault(header + "a,,1\n"), "line 2, column 'item': '' is empty; every event has an item");
  for (const char* label : {"", "yes", "nan", "inf", "1e99"})
    has(fault("user,item,timestamp,y\na,b,1," + std::string(label) + "\n", {.label = "y"}),
        "line 2, column 'y': '");
  has(fault(header + "\"a,b,1\n"), "quote");
  has(fault("\xff\xfeu"), "UTF-16");
  has(fault("user;item;timestamp\na;b;1\n"), "there is no column 'user'");
  CHECK(fault("user;item;timestamp\na;b;1\n", {.separator = ";"}).empty());
  has(fault("1::28::1::978300761\n"),
      "there is one column, '1::28::1::978300761'; if something else separates the fields, give "
      "'separator' (an option: --separator); if this is no line of names, give 'columns' "
      "(--columns)");
  has(fault("user,item,timestamp\na,b,\xff\x1b\n"), "column 'timestamp': '\\xff\\x1b' is no whole");
  has(fault("user,item,timestamp,y\na,b,1,1e39\n", {.label = "y"}),
      "column 'y': '1e39' is too large for a float");
  CHECK(read("user,item,timestamp,y\na,b,1,1e-400\n", {.label = "y"}).histories().events[0].label ==
        0.0f);

  const HistoryReader reader =
      read(header + "a,b,1\na,b\na,b,x\na,c,2\n", {.bad_lines = BadLines::skip});
  CHECK(reader.histories().events.size() == 2);
  CHECK(reader.bad_lines() == 2);
  has(reader.first_bad_line(), "line 3");
  has(fault(header + "a,b\n", {.bad_lines = BadLines::skip}),
      "holds no events; the first bad line");
}

TEST_CASE("events as MovieLens and RecBole write them are those of a plain file") {
  const std::string rows[][4] = {
      {"1", "28", "5", "978300761"}, {"2", "9", "1", "978300762"}, {"1", "9", "3", "978300760"}};
  const auto text = [&](const std::string& header, const std::string& separator) {
    std::string out = header;
    for (const auto& row : rows)
      out += row[0] + separator + row[1] + separator + row[2] + separator + row[3] + "\n";
    return out;
  };
  const std::uint64_t plain =
      read(text("user,item,rating,timestamp\n", ","), {.label = "rating"}).checksum();
  const auto same = [&](const std::string& data, const HistoryReaderOptions& options) {
    for (const std::size_t bytes : {1, 3, 1000})
      CHECK(read(data, options, bytes).checksum() == plain);
  };
  same(text("", "::"),
       {.label = "rating", .separator = "::", .columns = {"user", "item", "rating", "timestamp"}});
  same(text("user_id:token item_id:token rating:float timestamp:float\n", "  "),
       {.user = "user_id", .item = "item_id", .label = "rating", .separator = "blanks"});
  same("\n\r\n" + text("user\titem\trating\ttimestamp\n", "\t"), {.label = "rating"});
  same(text("user_id:token\titem_id:token\trating:float\ttimestamp:float\n", "\t"),
       {.user = "user_id", .item = "item_id:token", .label = "rating"});
  same("user,item,rating,timestamp\n1,28,5,978300761\nNA,1,1,1\n2,9,1,978300762\n1,9,3,978300760\n",
       {.label = "rating", .empty_words = {"NA"}, .bad_lines = BadLines::skip});
  same(text("user,item,rating,timestamp\n", ",") + "|1|,\"3\n",
       {.label = "rating", .quote = '|', .bad_lines = BadLines::skip});
}

TEST_CASE("leave one out, by its definition: users of 0, 1, 2, ... events") {
  const Steps steps(40);
  for (const std::int64_t max_length : {1, 2, 7, 100}) {
    CAPTURE(max_length);
    const auto part = [&](HistoryPart which) {
      return targets_of(leave_one_out(steps.histories(), which, max_length), max_length);
    };
    const auto train = part(HistoryPart::train), validation = part(HistoryPart::validation),
               test = part(HistoryPart::test);
    for (std::int64_t user = 0; user < 40; ++user) {
      const std::int64_t n = user;  // events
      std::set<std::int64_t> expected;
      for (std::int64_t e = 1; e < n; ++e) {
        CHECK(train.contains({user, e}) == (e < n - 2));
        CHECK(validation.contains({user, e}) == (e == n - 2));
        CHECK(test.contains({user, e}) == (e == n - 1));
        // one target: all that fits of what came before
        if (e == n - 1) CHECK(test.at({user, e}) == std::min(e, max_length));
        if (e == n - 3) CHECK(train.at({user, e}) == std::min(e, max_length));
      }
    }
    CHECK(test.size() == 38);
    CHECK(validation.size() == 37);
  }
  CHECK_THROWS_AS(leave_one_out(steps.histories(), HistoryPart::test, 0), InvalidArgument);
}

TEST_CASE("windows of time: each event of a window is a target once, in one window only") {
  const Steps steps(30);
  std::map<Target, std::int64_t> all;
  for (std::int64_t begin = 0; begin < 400; begin += 50) {
    const auto targets = targets_of(time_window(steps.histories(), begin, begin + 50, 6), 6);
    for (const auto& [target, history] : targets) {
      const std::int64_t time = 10 * (target.second + 1);
      CHECK((begin <= time && time < begin + 50));
      CHECK(history >= 1);
      CHECK(all.emplace(target, history).second);
    }
  }
  std::size_t expected = 0;
  for (int n = 2; n < 30; ++n) expected += static_cast<std::size_t>(n - 1);
  CHECK(all.size() == expected);  // all but the users' first ones
  // few targets in a range: each has the more before it
  const auto few = targets_of(time_window(steps.histories(), 0, 400, 6, 2), 6);
  CHECK(few.size() == expected);
  for (const auto& [target, history] : few)
    CHECK(history >= std::min<std::int64_t>(target.second, 5));
  CHECK_THROWS_AS(time_window(steps.histories(), 0, 50, 6, -1), InvalidArgument);
  CHECK(time_window(steps.histories(), 50, 50, 6).empty());
  CHECK_THROWS_AS(time_window(steps.histories(), 51, 50, 6), InvalidArgument);
}

TEST_CASE("an epoch has every sample once, in an order of its own, by any parts") {
  const Steps steps(50);
  const HistorySamples samples(steps.histories(),
                               leave_one_out(steps.histories(), HistoryPart::train, 5), 9);
  const auto epoch_of = [&](int epoch, std::int64_t part) {
    std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen;
    HistoryBatch<std::int32_t> batch;
    for (std::int64_t first = 0; first < samples.size(); first += part) {
      samples.batch(epoch, first, std::min(part, samples.size() - first), batch);
      REQUIRE(std::ssize(batch.offsets) == batch.size + 1);
      REQUIRE(batch.offsets.back() == std::ssize(batch.items));
      for (std::int64_t s = 0; s < batch.size; ++s) {
        const auto begin = static_cast<std::size_t>(batch.offsets[s]);
        seen.emplace_back(batch.users[s], batch.items[begin],
                          batch.offsets[s + 1] - batch.offsets[s] - batch.targets[s]);
        CHECK(batch.times[begin] == 10 * (batch.items[begin] + 1));
      }
    }
    return seen;
  };
  const auto whole = epoch_of(0, samples.size());
  CHECK(epoch_of(0, 7) == whole);
  auto next = epoch_of(1, samples.size());
  CHECK(next != whole);
  auto sorted = whole;
  std::sort(sorted.begin(), sorted.end());
  std::sort(next.begin(), next.end());
  CHECK(sorted == next);
  CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
  CHECK(samples.targets() == 47 * 46 / 2);
  HistoryBatch<std::int64_t> batch;
  samples.in_order(3, 0, batch);
  CHECK(batch.offsets == std::vector<std::int64_t>{0});
  CHECK_THROWS_AS(samples.in_order(samples.size(), 1, batch), InvalidArgument);
  CHECK_THROWS_AS(samples.batch(0, -1, 1, batch), InvalidArgument);
}

TEST_CASE(
    "made-up histories follow their law as often as they say; labels are those of its logits") {
  for (const int lags : {1, 2, 5}) {
    const SyntheticHistories made(
        {.users = 600, .items = 300, .min_length = 2, .lags = lags, .seed = 4});
    const Histories histories = made.histories();
    REQUIRE(histories.users() == 600);
    std::vector<float> law(300);
    double events = 0, expected = 0, followed = 0, right = 0;
    for (std::int64_t user = 0; user < histories.users(); ++user) {
      const auto own = histories.of(user);
      CHECK((own.size() >= 2 && own.size() <= 50));
      CHECK(std::ranges::is_sorted(own, {}, &HistoryEvent::time));
      std::set<std::int32_t> seen;
      for (std::size_t e = 0; e < own.size(); ++e) {
        CHECK(seen.insert(own[e].item).second);
        if (e == 0) continue;
        made.law(own.first(e), law);
        // its mass on items not yet seen is how often one of those comes
        for (std::size_t i = 0; i < law.size(); ++i)
          if (!seen.contains(static_cast<std::int32_t>(i)) || static_cast<int>(i) == own[e].item)
            expected += law[i];
        const bool follows = law[static_cast<std::size_t>(own[e].item)] > 0;
        followed += follows, events += 1;
        CHECK((made.label_logit(own.first(e), own[e].item) > 0) == follows);
        right += (own[e].label == 1) == follows;
      }
    }
    CHECK(std::abs(followed / events - expected / events) < 0.03);  // chance brings some, too
    CHECK(std::abs(right / events - 1 / (1 + std::exp(-2.0))) < 0.01);
    // a user is a function of the seed and his number
    const SyntheticHistories fewer(
        {.users = 5, .items = 300, .min_length = 2, .lags = lags, .seed = 4});
    const auto a = made.histories().of(4), b = fewer.histories().of(4);
    CHECK(std::ranges::equal(a, b, {}, &HistoryEvent::item, &HistoryEvent::item));
  }
  CHECK_THROWS_AS(SyntheticHistories({.lags = 0}), InvalidArgument);
  CHECK_THROWS_AS(SyntheticHistories({.items = 99}), InvalidArgument);
  CHECK_THROWS_AS(SyntheticHistories({.users = 0}), InvalidArgument);
  CHECK_THROWS_AS(SyntheticHistories({.min_length = 60}), InvalidArgument);
  CHECK_THROWS_AS(SyntheticHistories({.follow = 1.5}), InvalidArgument);
}
