// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The sharding laboratory from the outside: what it reads, counts, writes and refuses. What it
// counts is compared with count_bytes.py, which knows the ids and the rectangles alone.
#include <trainer/command.hpp>

#include <tessera/io/crc32.hpp>
#include <tessera/io/npy_header.hpp>
#include <tessera_data/binary_dataset.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using tessera::detail::TensorType;

template <class T>
void write_npy(const fs::path& path, const std::vector<T>& values) {
  const std::int64_t size = std::ssize(values);
  std::ofstream file(path, std::ios::binary);
  file << tessera::detail::format_npy_header(sizeof(T) == 8 ? TensorType::i64 : TensorType::i32,
                                             std::span(&size, 1));
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(sizeof(T) * values.size()));
}

const std::string kModel = R"({"name": "shop", "tables": [
  {"name": "query", "rows": 900, "width": 16},
  {"name": "user", "rows": 300, "width": 8, "features": ["viewer", "seen by"], "hotness": [1, 3], "pooling": "mean"},
  {"name": "country", "rows": 40, "width": 16}]})";

/// A folder with a model, ids of 200 samples, and a plan file for two ranks.
struct Shop {
  TemporaryFolder folder;
  std::vector<std::string> names{"query", "viewer", "seen by", "country"};
  std::vector<std::int64_t> rows{900, 300, 300, 40};

  Shop() {
    std::ofstream(at("m.json")) << kModel;
    std::ofstream(at("mine.json"))
        << R"({"tessera_plan": 1, "ranks": 2, "ranks_per_node": 0, "tables": [
 {"name": "query", "rows": 900, "width": 16, "shards": [
  {"rows": [0, 700], "columns": [0, 16], "rank": 1, "memory": "device"},
  {"rows": [700, 900], "columns": [0, 8], "rank": 0, "memory": "device"},
  {"rows": [700, 900], "columns": [8, 16], "rank": 0, "memory": "device"}]},
 {"name": "user", "rows": 300, "width": 8, "shards": [{"rows": [0, 300], "columns": [0, 8], "rank": 0, "memory": "device"}]},
 {"name": "country", "rows": 40, "width": 16, "shards": [{"rows": [0, 40], "columns": [0, 16], "rank": "every", "memory": "device"}]}]})";
    fs::create_directory(at("ids"));
    std::mt19937 random(7);
    std::vector<std::vector<std::string>> cells(200);
    for (std::size_t f = 0; f < names.size(); ++f) {
      std::vector<std::int64_t> ids, offsets{0};
      for (std::vector<std::string>& line : cells) {
        const std::size_t count = f == 2 ? random() % 5 : 1;
        std::string cell;
        for (std::size_t i = 0; i < count; ++i) {
          const std::int64_t row = static_cast<std::int64_t>(random() % 1000) * rows[f] / 1000;
          ids.push_back(row * row / rows[f]);  // the first rows more often
          cell += fmt::format("{}{}", i == 0 ? "" : "|", ids.back());
        }
        offsets.push_back(std::ssize(ids));
        line.push_back(cell);
      }
      if (f == 3)
        write_npy(at("ids/" + names[f] + ".values.npy"),
                  std::vector<std::int32_t>(ids.begin(), ids.end()));
      else
        write_npy(at("ids/" + names[f] + ".values.npy"), ids);
      if (f == 2) write_npy(at("ids/" + names[f] + ".offsets.npy"), offsets);
    }
    std::ofstream table(at("ids.tsv"));
    table << "query\tviewer\tseen by\tcountry\n";
    for (const auto& line : cells)
      table << line[0] << '\t' << line[1] << '\t' << line[2] << '\t' << line[3] << '\n';
  }
  fs::path at(const std::string& name) const { return folder.path / name; }

  Outcome run(const std::string& arguments, const std::string& launcher = "") const {
    return train_dlrm(arguments, false,
                      "cd '" + folder.path.string() + "' && TESSERA_MACHINE=none.json " + launcher,
                      "lab_own_policy");
  }
  nlohmann::json results(const std::string& out) const {
    return nlohmann::json::parse(text_of(at(out + "/results.json")));
  }
  /// The cases alone: a loop over a part of `results(out)` would outlive it.
  nlohmann::json cases(const std::string& out) const { return results(out)["laboratory"]["cases"]; }
  /// The bytes of every case, rank and stage.
  static std::string bytes(const nlohmann::json& results) {
    std::string text;
    for (const auto& c : results["laboratory"]["cases"])
      for (const auto& rank : c["by_rank"]) text += c["name"].dump() + rank["bytes"].dump();
    return text;
  }
};

/// Counts how many of the other cases are off by less, and by more, than an interval's ends.
void check_intervals(const nlohmann::json& results) {
  for (const auto& c : results["laboratory"]["cases"]) {
    CAPTURE(c["name"].dump());
    REQUIRE(c.contains("predicted_interval"));
    const double predicted = c["predicted_ms"], low = c["predicted_interval"]["low_ms"],
                 high = c["predicted_interval"]["high_ms"];
    std::int64_t others = 0, below = 0, above = 0;
    for (const auto& other : results["laboratory"]["cases"]) {
      if (other["ranks"] == c["ranks"] && other["shards"] == c["shards"]) continue;
      const double as_far =
          predicted * other["step_ms"]["p50"].get<double>() / other["predicted_ms"].get<double>();
      ++others;
      below += as_far < low * (1 - 1e-9);
      above += as_far > high * (1 + 1e-9);
    }
    CHECK(c["predicted_interval"]["holds"] ==
          fmt::format("at least 80 %, by {} other cases of the run", others));
    // the ends themselves are cases: of 10 to 19 the least and the most, of 20 to 29 the next
    CHECK(below == (others + 1) / 10 - 1);
    CHECK(above == below);
  }
}

constexpr const char* kFast = " --batch 48 --steps 4 --optimizer adagrad ";

}  // namespace

TEST_CASE("bytes and messages of recorded ids are those that Python counts, under every plan") {
  const Shop shop;
  const Outcome outcome = shop.run(
      std::string("--model m.json --ids ids --out out --rounds 2 --ranks 1,2,4 --plans "
                  "auto,table-wise,memory-balanced,column-wise,row-wise,grid,backwards,mine.json") +
      kFast);
  REQUIRE(outcome.err == "");
  REQUIRE(outcome.status == 0);
  const std::string count =
      "python3 -B '" + (source_folder() / "tests/trainer/count_bytes.py").string() + "' '" +
      shop.at("m.json").string() + "' '" + shop.at("ids").string() + "' '" +
      shop.at("out/results.json").string() + "' 48 >'" + shop.at("counted").string() + "' 2>&1";
  const int status = std::system(count.c_str());
  INFO(text_of(shop.at("counted")));
  CHECK(status == 0);
  // 7 plans on 1, 2 and 4 ranks, and a plan file on 2; four stages send
  CHECK(text_of(shop.at("counted")) == fmt::format("{} counts are equal\n", 4 * (7 * 7 + 2)));

  const nlohmann::json results = shop.results("out");
  CHECK(results["laboratory"]["cases"].size() == 22);
  CHECK(results["benchmarks"].size() == 44);  // a line a round, as Google Benchmark's repetitions
  for (const auto& c : results["laboratory"]["cases"]) {
    CAPTURE(c["name"].dump());
    CHECK(c["step_ms"]["best"] <= c["step_ms"]["p10"]);
    CHECK(c["step_ms"]["p10"] <= c["step_ms"]["p50"]);
    CHECK(c["step_ms"]["p50"] <= c["step_ms"]["p90"]);
    CHECK(c["rounds_ms"].size() == 2);
    CHECK(c["predicted_ms"] > 0);
    // weights and Adagrad's sums of 900 x 16, 300 x 8 and 40 x 16 elements; copies on each rank
    const double copies = c["plan"] == "mine.json" ? 40 * 16 * 8 : 0;
    if (c["plan"] != "auto")
      CHECK(c["memory"]["predicted_tables_bytes"] == 8 * (900 * 16 + 300 * 8 + 40 * 16) + copies);
  }
  for (const auto& group : results["laboratory"]["groups"]) CHECK(group["regret"] >= 1);
  check_intervals(results);
  // every line of CSV has as many fields: one for a case, one for each of its ranks
  std::istringstream csv(text_of(shop.at("out/results.csv")));
  std::int64_t lines = 0, fields = 0;
  for (std::string line; std::getline(csv, line); ++lines) {
    const std::int64_t here = std::count(line.begin(), line.end(), ',');
    if (lines == 0) fields = here;
    CHECK(here == fields);
  }
  CHECK(lines == 1 + 22 + 7 * (1 + 2 + 4) + 2);
  std::istringstream out(outcome.out);
  for (std::string line; std::getline(out, line);) CHECK(line.size() <= 100);
  const std::string page = text_of(shop.at("out/index.html"));
  for (const char* text : {"is fastest", "the planner's regret", "Time over memory", "backwards",
                           "Prediction against measurement", "where it was expected",
                           "<th>expected", "other cases of the run", "</html>"})
    CHECK(page.find(text) != std::string::npos);
  for (const char* text : {"src=", "href=", "http", "nan", "inf\""})
    CHECK(page.find(text) == std::string::npos);
}

/// Writes into rounds what they say of the machine's noise, which is whatever it is.
void write_noise(const fs::path& rounds, bool quiet) {
  std::istringstream lines(text_of(rounds));
  std::ofstream written(rounds);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    nlohmann::json round = nlohmann::json::parse(line);
    if (count > 0) {
      round.at("record").at("fixed_work_ms") = quiet ? 3 : count;
      round.erase("crc32");
      std::string text = round.dump();
      text.pop_back();
      written << text << ",\"crc32\":" << tessera::detail::crc32(text) << "}\n";
    } else {
      written << line << '\n';
    }
  }
  REQUIRE(count > 2);
}

TEST_CASE("few cases have an interval where constants are this machine's, and it is quiet") {
  const Shop shop;
  const std::string arguments =
      std::string("--model m.json --ids ids --plans table-wise,row-wise --resume ") + kFast;
  const auto run = [&](const std::string& out, bool quiet, const std::string& launcher) {
    const std::string all = arguments + " --out " + out + (out == "b" ? " --ranks 2,ghost:2" : "");
    REQUIRE(shop.run(all, launcher).err == "");
    write_noise(shop.at(out + "/rounds.jsonl"), quiet);
    const Outcome outcome = shop.run(all, launcher);
    REQUIRE(outcome.err == "");
    return outcome.out;
  };
  CHECK(run("a", true, "").find("No interval: fewer than nine other cases") != std::string::npos);
  for (const auto& c : shop.cases("a")) CHECK(!c.contains("predicted_interval"));
  nlohmann::json machine{{"measured",
                          {{"processor", shop.results("a")["context"]["processor"]},
                           {"cores", shop.results("a")["context"]["num_cpus"]},
                           {"date", "2026-11-28"}}}};
  for (const char* rate : {"stream_bandwidth", "gather_bandwidth", "cache_bandwidth",
                           "node_bandwidth", "network_bandwidth", "flops"})
    machine[rate] = 7e9;
  for (const char* seconds : {"lookup_seconds", "check_seconds", "route_seconds", "cut_seconds",
                              "vector_seconds", "merge_seconds", "block_seconds", "launch_seconds",
                              "node_latency", "network_latency", "wake_seconds"})
    machine[seconds] = 3e-8;
  for (const char* number : {"ranks", "ranks_per_node", "memory_per_rank", "concurrent_ranks"})
    machine[number] = 0;
  std::ofstream(shop.at("machine.json")) << machine;
  machine["measured"]["cores"] = 7777;  // another machine's constants say nothing of this one
  std::ofstream(shop.at("another.json")) << machine;
  run("c", true, "TESSERA_MACHINE=another.json");
  for (const auto& c : shop.cases("c")) CHECK(!c.contains("predicted_interval"));
  for (const bool quiet : {true, false}) {
    run("b", quiet, "TESSERA_MACHINE=machine.json");
    int with = 0;
    for (const auto& c : shop.cases("b")) {
      // what is known of predictions was measured on threads
      CHECK(c.contains("predicted_interval") == (quiet && !c.contains("ghosts")));
      if (!c.contains("predicted_interval")) continue;
      const double predicted = c["predicted_ms"];
      CHECK(c["predicted_interval"]["low_ms"].get<double>() == doctest::Approx(predicted / 1.25));
      CHECK(c["predicted_interval"]["high_ms"].get<double>() == doctest::Approx(predicted / 0.75));
      ++with;
    }
    CHECK(with == (quiet ? 2 : 0));
  }
}

TEST_CASE("ids of a TSV file are those of arrays; copies and one-hot ids are counted, too") {
  const Shop shop;
  REQUIRE(
      shop.run(std::string("--model m.json --ids ids --out a --plans row-wise,grid") + kFast).err ==
      "");
  REQUIRE(
      shop.run(std::string("--model m.json --ids ids.tsv --out b --plans row-wise,grid") + kFast)
          .err == "");
  CHECK(Shop::bytes(shop.results("a")) == Shop::bytes(shop.results("b")));

  std::ofstream(shop.at("one.json"))
      << R"({"tables": [{"name": "query", "rows": 900, "width": 16}]})";
  fs::create_directory(shop.at("one"));
  fs::copy(shop.at("ids/query.values.npy"), shop.at("one/query.values.npy"));
  REQUIRE(
      shop.run(std::string(
                   "--model one.json --ids one --out c --ranks 2,4 --plans replicated,row-wise") +
               kFast)
          .err == "");
  CHECK(std::system(("python3 -B '" + (source_folder() / "tests/trainer/count_bytes.py").string() +
                     "' '" + shop.at("one.json").string() + "' '" + shop.at("one").string() +
                     "' '" + shop.at("c/results.json").string() + "' 48 >/dev/null")
                        .c_str()) == 0);
}

TEST_CASE("axes: duplicates that do not travel, optimizers, codecs of half the bytes") {
  const Shop shop;
  const Outcome outcome = shop.run(
      "--model m.json --ids ids --out out --plans table-wise --axes deduplicate,optimizer,codec "
      "--batch 48 --steps 4 --rounds 1");
  REQUIRE(outcome.err == "");
  const nlohmann::json results = shop.results("out");
  REQUIRE(results["laboratory"]["cases"].size() == 16);
  const auto sent = [&](const std::string& name, const char* stage) {
    for (const auto& c : results["laboratory"]["cases"])
      if (c["name"] == "ranks:2/plan:table-wise/" + name)
        return c["by_rank"][0]["bytes"][stage].get<double>();
    return -1.0;
  };
  CHECK(sent("optimizer:adam/codec:bf16/deduplicate:off", "exchange") * 2 ==
        sent("optimizer:adam/codec:fp32/deduplicate:off", "exchange"));
  CHECK(sent("optimizer:sgd/codec:fp32/deduplicate:on", "route") > 0);
  CHECK(sent("optimizer:sgd/codec:fp32/deduplicate:on", "exchange") !=
        sent("optimizer:sgd/codec:fp32/deduplicate:off", "exchange"));
  // what finding duplicates costs is not in the model: no prediction is better than a wrong one
  for (const auto& c : results["laboratory"]["cases"])
    CHECK(c.contains("predicted_ms") == c["name"].get<std::string>().ends_with("deduplicate:off"));
}

TEST_CASE("axes: tables of 16 bits, and batches that a thread routes ahead") {
  const Shop shop;
  std::ofstream(shop.at("large.json"))
      << R"({"tables": [{"name": "query", "rows": 400000, "width": 16}]})";
  const Outcome outcome =
      shop.run(std::string("--model large.json --out out --plans row-wise,auto --rounds 1 --axes "
                           "precision,overlap --ranks 2") +
               kFast);
  REQUIRE(outcome.err == "");
  const nlohmann::json results = shop.results("out");
  REQUIRE(results["laboratory"]["cases"].size() == 12);
  const auto found = [&](const std::string& axes) {
    const std::string name =
        "ranks:2/plan:row-wise/optimizer:adagrad/codec:fp32/deduplicate:off" + axes;
    for (const auto& c : results["laboratory"]["cases"])
      if (c["name"] == name) return c;
    FAIL("there is no case " << name);
    return nlohmann::json();
  };
  const nlohmann::json plain = found("");
  constexpr double kElements = 400000 * 16;
  for (const char* precision : {"bf16", "fp16"})
    for (const bool overlap : {false, true}) {
      const nlohmann::json c =
          found(fmt::format("/precision:{}{}", precision, overlap ? "/overlap:on" : ""));
      CAPTURE(c["name"].dump());
      CHECK(c["axes"]["precision"] == precision);
      CHECK(c["axes"]["overlap"] == overlap);
      CHECK(c["group"] == fmt::format("2 ranks, adagrad, tables in {}{}", precision,
                                      overlap ? ", routed ahead" : ""));
      // a weight of 2 bytes in place of 4, beside a sum of squares of 4
      CHECK(c["memory"]["predicted_tables_bytes"] == 6 * kElements);
      CHECK(plain["memory"]["measured_tables_bytes"].get<double>() -
                c["memory"]["measured_tables_bytes"].get<double>() ==
            doctest::Approx(2 * kElements).epsilon(0.2));
      // ids and vectors travel as before
      for (const int r : {0, 1}) CHECK(c["by_rank"][r]["bytes"] == plain["by_rank"][r]["bytes"]);
    }
  const nlohmann::json ahead = found("/overlap:on");
  for (const int r : {0, 1}) CHECK(ahead["by_rank"][r]["bytes"] == plain["by_rank"][r]["bytes"]);
  CHECK(ahead["step_ms"]["best"] > 0);
  // what overlap saves without dense layers is not in the model
  for (const auto& c : results["laboratory"]["cases"])
    CHECK(c.contains("predicted_ms") != c["axes"]["overlap"].get<bool>());
  const std::string page = text_of(shop.at("out/index.html")),
                    csv = text_of(shop.at("out/results.csv"));
  CHECK(page.find("<h2>2 ranks, adagrad, tables in fp16, routed ahead</h2>") != std::string::npos);
  CHECK(page.find("<h2>2 ranks, adagrad, routed ahead</h2>") != std::string::npos);
  CHECK(csv.find("\"row-wise\",2,0,adagrad,fp32,off,bf16,on,all,") != std::string::npos);
  const std::string help =  // in one line
      std::regex_replace(shop.run("--help").out, std::regex("[ \n]+"), " ");
  for (const char* axis :
       {"deduplicate (off, on)", "optimizer (sgd, adagrad, rowwise-adagrad,", "codec (fp32, bf16)",
        "precision of the tables (fp32, bf16, fp16)", "overlap (off, on:"}) {
    CAPTURE(axis);
    CHECK(help.find(axis) != std::string::npos);
  }
}

TEST_CASE("rows behind a cache: how many were there, beside the case") {
  const Shop shop;
  // rank 1 has "query" in a file, and slots for all of its rows: what is fetched once stays
  std::ofstream(shop.at("filed.json"))
      << R"({"tessera_plan": 1, "ranks": 2, "ranks_per_node": 0, "tables": [
 {"name": "query", "rows": 900, "width": 16, "shards": [
  {"rows": [0, 900], "columns": [0, 16], "rank": 1, "memory": "file", "cache_rows": 900}]},
 {"name": "user", "rows": 300, "width": 8, "shards": [{"rows": [0, 300], "columns": [0, 8], "rank": 0, "memory": "device"}]},
 {"name": "country", "rows": 40, "width": 16, "shards": [{"rows": [0, 40], "columns": [0, 16], "rank": 0, "memory": "device"}]}]})";
  fs::create_directories(shop.at("out/table-files.tmp"));  // of a run that was killed
  std::ofstream(shop.at("out/table-files.tmp/staged")) << "no folder";
  const Outcome outcome = shop.run(
      std::string("--model m.json --ids ids --out out --plans filed.json,table-wise --axes overlap "
                  "--rounds 2 --ranks 2") +
      kFast);
  REQUIRE(outcome.err == "");
  REQUIRE(
      shop.run(std::string("--model m.json --ids ids --out ghosts --plans filed.json --rounds 1 "
                           "--ranks ghost:2") +
               kFast)
          .err == "");
  // The ids of "query" are the 8 bytes before the end of its file, one of each of 200 samples. The
  // warm-up has batches 0 and 1, the steps that count 2, 3, 0 and 1.
  const std::string file = text_of(shop.at("ids/query.values.npy"));
  std::vector<std::int64_t> ids(200);
  std::memcpy(ids.data(), file.data() + file.size() - 8 * ids.size(), 8 * ids.size());
  const auto batch = [&](std::ptrdiff_t b) {
    return std::set<std::int64_t>(ids.begin() + 48 * b, ids.begin() + 48 * (b + 1));
  };
  std::set<std::int64_t> there = batch(0);
  there.merge(batch(1));
  std::size_t asked = 0, fetched = 0;
  for (const std::ptrdiff_t b : {2, 3, 0, 1}) {
    asked += batch(b).size();
    for (const std::int64_t id : batch(b)) fetched += there.insert(id).second;
  }
  REQUIRE(fetched > 10);
  const double hits = 1 - static_cast<double>(fetched) / static_cast<double>(asked);
  const auto check = [&](const nlohmann::json& c) {
    CAPTURE(c["name"].dump());
    CHECK(c["hit_rate"].get<double>() == doctest::Approx(hits));
    CHECK(!c["by_rank"][0].contains("cache"));
    CHECK(c["by_rank"][1]["cache"]["rows"].get<double>() * 4 == doctest::Approx(asked));
    CHECK(c["by_rank"][1]["cache"]["fetched_rows"].get<double>() * 4 == doctest::Approx(fetched));
  };
  int without = 0, with = 0;
  for (const auto& c : shop.cases("out"))
    if (c["plan"] == "filed.json") {
      check(c);
      ++with;
    } else {
      CHECK(!c.contains("hit_rate"));
      for (const int r : {0, 1}) CHECK(!c["by_rank"][r].contains("cache"));
      ++without;
    }
  CHECK(with == 2);  // in turn, and routed ahead
  CHECK(without == 2);
  check(shop.results("ghosts")["laboratory"]["cases"][0]);
  const std::string percent = fmt::format("{:.1f} %", 100 * hits);
  CHECK(outcome.out.find("Rows that were in their cache: filed.json " + percent + ".\n") !=
        std::string::npos);
  std::string plan = text_of(shop.at("filed.json"));
  plan.erase(plan.find(", \"cache_rows\": 900"), std::strlen(", \"cache_rows\": 900"));
  std::ofstream(shop.at("without.json")) << plan;
  CHECK(shop.run("--model m.json --ids ids --batch 48 --out w --plans without.json").err ==
        "run_lab: --plans: 'without.json' has table 'query' in a file without a cache; give its "
        "shards cache_rows\n");
  const std::string page = text_of(shop.at("out/index.html"));
  CHECK(page.find(percent + " of the rows behind a cache were in it") != std::string::npos);
  CHECK(text_of(shop.at("out/results.csv")).find(",hit_rate,") != std::string::npos);
  // what the files held is gone, and other cases say nothing of caches
  CHECK(!fs::exists(shop.at("out/table-files.tmp")));
  const Outcome none = shop.run(std::string("--model m.json --ids ids --out none --ranks 2 --plans "
                                            "table-wise,row-wise") +
                                kFast);
  REQUIRE(none.err == "");
  CHECK(none.out.find("cache") == std::string::npos);
  CHECK(text_of(shop.at("none/index.html")).find("cache") == std::string::npos);
}

TEST_CASE("a ghost rank receives, sends and updates what the real rank does, under every plan") {
  const Shop shop;
  const auto compare = [&](const std::string& arguments, std::size_t pairs) {
    const Outcome outcome =
        shop.run("--model m.json --ids ids --batch 48 --steps 4 --rounds 1 " + arguments);
    CAPTURE(arguments);
    REQUIRE(outcome.err == "");
    const nlohmann::json results = shop.results("out");
    std::size_t compared = 0;
    for (const auto& ghost : results["laboratory"]["cases"])
      for (const auto& real : results["laboratory"]["cases"]) {
        const std::string name = ghost["name"].get<std::string>();
        if (!ghost.contains("ghosts") ||
            real["name"] != "ranks:" + name.substr(std::string("ranks:ghost:").size()))
          continue;
        CAPTURE(name);
        ++compared;
        for (const int r : ghost["ghosts"])
          for (const char* what : {"bytes", "messages", "rows"})
            CHECK(ghost["by_rank"][r][what] == real["by_rank"][r][what]);
        CHECK(ghost["modelled_links_ms"] > 0);
        CHECK(ghost["by_rank"][ghost["ghosts"][0].get<int>()]["rows"]["update"] > 0);
      }
    CHECK(compared == pairs);
  };
  compare(
      "--out out --ranks 4,ghost:4 --which all --optimizer adagrad --plans "
      "auto,table-wise,memory-balanced,column-wise,row-wise,grid,replicated,backwards",
      8);
  compare(
      "--out out --ranks 2,ghost:2 --which 1 --plans mine.json,column-wise --axes "
      "deduplicate,optimizer,codec",
      32);
  compare(
      "--out out --ranks 2,ghost:2 --which 0 --plans mine.json,row-wise --axes precision "
      "--optimizer "
      "adam",
      6);
  // one rank of 32 that is not asked for has no steps
  REQUIRE(shop.run("--model m.json --out out --ranks ghost:32 --which 31 --batch 64 --steps 2 "
                   "--rounds 1 --plans row-wise")
              .err == "");
  const nlohmann::json ghost = shop.results("out")["laboratory"]["cases"][0];
  CHECK(ghost["step_ms"]["best"] > 0);
  const nlohmann::json ranks = ghost["by_rank"];
  REQUIRE(ranks.size() == 32);
  CHECK(ranks[0]["bytes"]["route"] == 0);
  // whole tables on ranks 0 to 2: 4 headers; of 2 samples 4 x 8 bytes of lengths, 12 ids, and 2 x 8
  // bytes of scales
  CHECK(ranks[31]["bytes"]["route"] == 4 * 32 + 4 * 8 + 12 * 8 + 2 * 8);
  CHECK(text_of(shop.at("out/index.html")).find("Modelled: the time of its messages") !=
        std::string::npos);
}

TEST_CASE("it goes on after a kill, keeps what was done, and compares with an earlier run") {
  const Shop shop;
  const std::string arguments =
      std::string("--model m.json --ids ids --plans table-wise,row-wise ") + kFast;
  // killed while it measures 2000 rounds, after some turns
  const std::string rounds_file = shop.at("out/rounds.jsonl").string();
  shop.run(
      arguments + "--rounds 2000 --out out >out.txt 2>&1 & until [ \"$(cat '" + rounds_file +
          "' 2>&- | wc -l)\" -ge 4 ] || ! kill -0 $!; do sleep 0.05; done; kill -KILL $!; wait",
      "exec");
  const std::string kept = text_of(shop.at("out/rounds.jsonl"));
  const auto done = std::count(kept.begin(), kept.end(), '\n') - 1;
  REQUIRE(done >= 2);
  REQUIRE(done < 4000);
  CHECK(!fs::exists(shop.at("out/results.json")));
  std::ofstream(shop.at("out/rounds.jsonl"), std::ios::app) << R"({"case":"ranks:2/pl)";
  const std::string rounds = fmt::format("--rounds {} ", done / 2 + 2);
  const Outcome resumed = shop.run(arguments + rounds + "--out out --resume");
  REQUIRE(resumed.err == "");
  for (const auto& c : shop.cases("out"))
    CHECK(c["rounds_ms"].size() == static_cast<std::size_t>(done / 2 + 2));
  CHECK(text_of(shop.at("out/rounds.jsonl")).starts_with(kept.substr(0, kept.find('\n'))));
  // another batch is another experiment
  CHECK(shop.run(rounds + "--model m.json --ids ids --batch 24 --out out --resume")
            .err.find("--resume: 'out/rounds.jsonl' is of another model, batch") !=
        std::string::npos);

  // ten times as slow before: every round is faster now
  nlohmann::json old = shop.results("out");
  for (auto& c : old["laboratory"]["cases"])
    if (c["plan"] == "row-wise")
      for (auto& ms : c["rounds_ms"]) ms = 1e6;
    else
      c["rounds_ms"] = nlohmann::json::array({1e-9, 1e9});
  std::ofstream(shop.at("old.json")) << old.dump();
  CHECK(shop.run("--model m.json --ids ids --batch 24 --out new --compare old.json")
            .err.find("--compare: 'old.json' has the batch 48, this run 24") != std::string::npos);
  REQUIRE(shop.run(arguments + "--out new --compare old.json").err == "");
  const nlohmann::json compared = shop.results("new");
  for (const auto& c : compared["laboratory"]["cases"])
    CHECK(c["change"] == (c["plan"] == "row-wise" ? "-100 %" : "same"));

  // what this run does not measure
  REQUIRE(std::regex_replace(shop.run("--model m.json --ids ids --plans row-wise --out fewer "
                                      "--compare old.json " +
                                      std::string(kFast))
                                 .out,
                             std::regex("[ \n]+"), " ")
              .find("Not in this run, in the earlier one: ranks:2/plan:table-wise/") !=
          std::string::npos);
  CHECK(text_of(shop.at("fewer/index.html")).find("Not in this run") != std::string::npos);
  CHECK(text_of(shop.at("new/index.html")).find("Not in this run") == std::string::npos);

  // of one round, which is no proof: that is said in the terminal, too, however long the text
  for (auto& c : old["laboratory"]["cases"]) c["rounds_ms"] = nlohmann::json::array({1e-9});
  std::ofstream(shop.at("old.json")) << old.dump();
  const Outcome one = shop.run(arguments + "--out new --compare old.json");
  const std::string told = std::regex_replace(one.out, std::regex("[ \n]+"), " ");
  for (const auto& c : shop.cases("new"))
    CHECK(told.find(c["plan"].get<std::string>() + " " + c["change"].get<std::string>()) !=
          std::string::npos);
  CHECK(std::regex_search(told, std::regex("row-wise [+][^;.]* %, one round")));
  // a run without a case that was measured: all are new
  old["laboratory"]["cases"].clear();
  std::ofstream(shop.at("old.json")) << old.dump();
  REQUIRE(shop.run(arguments + "--out new --compare old.json").err == "");
  for (const auto& c : shop.cases("new")) CHECK(c["change"] == "new");
}

TEST_CASE("a round that is damaged is measured again; a result that cannot be written is alone") {
  const Shop shop;
  const std::string run =
      std::string(
          "--model m.json --ids ids --plans table-wise,row-wise --rounds 2 --resume --out "
          "out ") +
      kFast;
  REQUIRE(shop.run(run).err == "");
  const std::string kept = text_of(shop.at("out/rounds.jsonl"));
  const std::size_t first = kept.find('\n') + 1, second = kept.find('\n', first) + 1;
  const std::string line = kept.substr(first, second - first);
  const auto damaged = [&](const std::string& old, const std::string& now) {
    std::string text = line;
    REQUIRE(text.find(old) != std::string::npos);
    text.replace(text.find(old), old.size(), now);
    std::ofstream(shop.at("out/rounds.jsonl"))
        << kept.substr(0, first) << text << kept.substr(second);
    const Outcome outcome = shop.run(run);
    CAPTURE(now);
    CHECK(outcome.err == "");
    for (const auto& c : shop.cases("out")) CHECK(c["rounds_ms"].size() == 2);
    const std::string after = text_of(shop.at("out/rounds.jsonl"));
    CHECK(after.find(text) == std::string::npos);
    CHECK(std::count(after.begin(), after.end(), '\n') == 5);
  };
  damaged("\"messages\"", "\"messagez\"");
  damaged("\"seconds\":[", "\"seconds\":[],\"others\":[");
  damaged("\"fixed_work_ms\":", "\"fixed_work_ms\":1");
  damaged(line, "{\"case\":\"a\",\"record\":" + std::string(200'000, '[') +
                    std::string(200'000, ']') + "}\n");

  // a turn that is there twice is one
  std::ofstream(shop.at("out/rounds.jsonl")) << kept << line;
  CHECK(shop.run(run).err == "");
  for (const auto& c : shop.cases("out")) CHECK(c["rounds_ms"].size() == 2);

  for (const char* file : {"results.json", "results.csv", "index.html"})
    fs::remove(shop.at(std::string("out/") + file));
  fs::create_directories(shop.at("out/results.json/no file"));
  const Outcome outcome = shop.run(run);
  CHECK(outcome.status == 1);
  CHECK(outcome.err.find("--out: cannot write 'out/results.json'") != std::string::npos);
  CHECK(outcome.out.find("is fastest") != std::string::npos);
  CHECK(fs::exists(shop.at("out/results.csv")));
  CHECK(fs::exists(shop.at("out/index.html")));
}

TEST_CASE("a case that cannot run is named, and the others stay") {
  const Shop shop;
  // the process may not hold the second table
  std::ofstream(shop.at("large.json"))
      << R"({"tables": [{"name": "query", "rows": 900, "width": 16}, {"name": "huge", "rows": 300000000, "width": 128}]})";
  const Outcome outcome =
      shop.run("--model large.json --out out --plans table-wise --batch 48 --steps 4 --rounds 1",
               "ulimit -v 4000000;");
  CHECK(outcome.status == 1);
  CHECK(outcome.err == "run_lab: 1 of 1 cases failed\n");
  CHECK(outcome.out.find("no memory for the tables of rank") != std::string::npos);
  CHECK(shop.results("out")["laboratory"]["cases"][0].contains("error"));
}

TEST_CASE("turns of plan files whose names are no UTF-8 are kept, each its own") {
  const Shop shop;
  for (const char* name : {"mi\xff.json", "mi\xfe.json"})
    fs::copy(shop.at("mine.json"), shop.at(name));
  const std::string run =
      std::string(
          "--model m.json --ids ids --plans 'mi\xff.json','mi\xfe.json' --rounds 2 --out out ") +
      kFast;
  REQUIRE(shop.run(run).err == "");
  const std::string kept = text_of(shop.at("out/rounds.jsonl"));
  REQUIRE(shop.run(run + " --resume").err == "");
  CHECK(text_of(shop.at("out/rounds.jsonl")).size() == kept.size());
  for (const auto& c : shop.cases("out")) CHECK(c["rounds_ms"].size() == 2);
}

TEST_CASE(
    "a plan that there is not fails alone; what does not fit the cluster is not the fastest") {
  const Shop shop;
  std::ofstream(shop.at("tiny.json"))
      << R"({"ranks": 2, "memory_per_rank": 1000, "stream_bandwidth": 1e10, "gather_bandwidth": 7e9,
 "node_bandwidth": 7e9, "node_latency": 3e-5})";
  const Outcome none = shop.run(std::string("--model m.json --ids ids --out tiny --rounds 1 "
                                            "--cluster tiny.json --plans auto,row-wise") +
                                kFast);
  CHECK(none.status == 1);
  CHECK(none.err == "run_lab: 1 of 2 cases failed\n");
  CHECK(none.out.find("failed: AutoPlan: no plan") != std::string::npos);
  for (const auto& c : shop.cases("tiny")) CHECK(c.contains("error") == (c["plan"] == "auto"));
  std::ofstream(shop.at("small.json"))
      << R"({"ranks": 2, "memory_per_rank": 100000, "stream_bandwidth": 1e10, "gather_bandwidth": 7e9,
 "node_bandwidth": 7e9, "node_latency": 3e-5})";
  const Outcome outcome =
      shop.run(std::string("--model m.json --ids ids --out out --ranks ghost:2 --rounds 1 "
                           "--cluster small.json --plans row-wise,replicated") +
               kFast);
  REQUIRE(outcome.err == "");
  // copies take 900 x 16 + 300 x 8 + 40 x 16 floats and as many of state
  for (const auto& c : shop.cases("out")) CHECK(c["fits_cluster"] == (c["plan"] == "row-wise"));
  CHECK(shop.results("out")["laboratory"]["groups"][0]["answer"].get<std::string>().find(
            "row-wise is fastest") != std::string::npos);
  CHECK(outcome.out.find("no room: the plan does not fit") != std::string::npos);
  CHECK(text_of(shop.at("out/index.html")).find("does not fit the memory") != std::string::npos);
}

TEST_CASE("ghosts are predicted with a core each") {
  const Shop shop;
  const auto predicted = [&](const std::string& cores) {
    std::ofstream(shop.at("links.json"))
        << R"({"ranks": 8, "stream_bandwidth": 1e10, "gather_bandwidth": 7e9,
 "node_bandwidth": 7e9, "node_latency": 3e-5)" +
               cores + "}";
    REQUIRE(shop.run(std::string("--model m.json --ids ids --out out --ranks ghost:8 --which 0 "
                                 "--rounds 1 --cluster links.json --plans row-wise") +
                     kFast)
                .err == "");
    return shop.cases("out")[0]["predicted_ms"].get<double>();
  };
  CHECK(predicted(", \"concurrent_ranks\": 2") == predicted(""));
}

TEST_CASE("drawn ids have the model's hotness, also of fractions") {
  const Shop shop;
  std::ofstream(shop.at("f.json")) << R"({"tables": [{"name": "a", "rows": 100, "hotness": 1.1},
 {"name": "b", "rows": 100, "hotness": 0.05}, {"name": "c", "rows": 100, "hotness": 3}]})";
  REQUIRE(shop.run("--model f.json --out out --ranks 1 --plans table-wise --batch 4096 --steps 4 "
                   "--rounds 1")
              .err == "");
  const double ids = shop.cases("out")[0]["by_rank"][0]["rows"]["route"];
  CHECK(ids / 4096 == doctest::Approx(4.15).epsilon(0.01));
}

TEST_CASE("rounds of other models and ids are neither resumed nor compared; pins wait for auto") {
  const Shop shop;
  const std::string run = std::string("--ids ids --plans table-wise --rounds 1 ") + kFast;
  const auto model = [&](const std::string& old, const std::string& now, const char* name) {
    std::string text = kModel;
    std::ofstream(shop.at(name)) << text.replace(text.find(old), old.size(), now);
  };
  REQUIRE(shop.run("--model m.json --out out " + run).err == "");
  fs::copy(shop.at("out/results.json"), shop.at("old.json"));
  model("\"mean\"", "\"sum\"", "m.json");
  CHECK(shop.run("--model m.json --out out --resume " + run).err.find("is of another model") !=
        std::string::npos);
  for (const auto& [old, now] :
       {std::pair{"\"mean\"", "\"sum\""}, {"\"rows\": 900", "\"rows\": 901"}}) {
    model(old, now, "other.json");
    CHECK(shop.run("--model other.json --out new --compare old.json " + run)
              .err.find("--compare: 'old.json' is of other tables, features or ids") !=
          std::string::npos);
  }
  // the same tables in another file are the same experiment
  model("\"shop\"", "\"shop\", \"pins\": {\"query\": \"row-wise\"}, \"forbid\": [\"grid\"]",
        "pinned.json");
  CHECK(shop.run("--model pinned.json --out new --compare old.json " + run).err == "");
  CHECK(shop.run("--model pinned.json --out new --pin query:row-wise " + run)
            .err.find("--pin is for auto in --plans") != std::string::npos);
}

TEST_CASE("wrong input is named with its file, line or element") {
  const Shop shop;
  fs::create_directories(shop.at("bad"));
  const auto copy = [&] {
    fs::remove_all(shop.at("bad"));
    fs::copy(shop.at("ids"), shop.at("bad"));
  };
  const auto says = [&](const std::string& arguments, const std::string& text, int status = 1) {
    const auto unless_given = [&](const std::string& option) {
      return arguments.find(option.substr(0, option.find(' '))) == std::string::npos ? option : "";
    };
    const Outcome outcome = shop.run(unless_given("--out refused ") + unless_given("--batch 48 ") +
                                     "--steps 4 --rounds 1 " + arguments);
    CAPTURE(arguments);
    CAPTURE(outcome.err);
    CHECK(outcome.status == status);
    CHECK(outcome.err.find(text) != std::string::npos);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  };
  const std::string ids = "--model m.json --ids bad";
  copy();
  write_npy<std::int64_t>(shop.at("bad/seen by.offsets.npy"), {0, 1, 2});
  says(ids,
       "bad/seen by.offsets.npy', element 2: the offsets end at 2, but 'bad/seen by.values.npy'");
  write_npy<std::int64_t>(shop.at("bad/seen by.offsets.npy"), {0, 3, 2});
  says(ids, "bad/seen by.offsets.npy', element 2: 2 after 3; offsets never fall");
  write_npy<std::int64_t>(shop.at("bad/seen by.offsets.npy"), {});
  says(ids, "bad/seen by.offsets.npy', element 0: offsets begin with 0");
  copy();
  write_npy<std::int64_t>(shop.at("bad/query.values.npy"), {1, 900});
  says(ids, "bad/query.values.npy', element 1: id 900 is not in table 'query' of 900 rows");
  write_npy<std::int64_t>(shop.at("bad/query.values.npy"), {1, 2});
  says(ids, "'bad': feature 'viewer' has 200 samples, 'query' 2; all must have as many");
  fs::remove(shop.at("bad/query.values.npy"));
  says(ids, "'bad' has no query.values.npy, for feature 'query' of the model");
  copy();
  write_npy<std::int64_t>(shop.at("bad/other.values.npy"), {1});
  says(ids, "'bad' has ids of 'other', which is no feature of the model");
  copy();
  std::ofstream(shop.at("bad/query.values.npy")) << "no array";
  says(ids, "bad/query.values.npy', offset 0: this is no .npy file");
  says("--model m.json --ids nowhere", "--ids: there is no 'nowhere'");
  const std::string header = "query\tviewer\tseen by\tcountry\n";
  const std::string table = "--model m.json --ids bad.tsv";
  std::ofstream(shop.at("bad.tsv")) << header << "1\t2\t3|4\t5\n1\t2\t3;4\t5\n";
  says(table, "file 'bad.tsv', line 3: '3;4' of feature 'seen by' is no id");
  std::ofstream(shop.at("bad.tsv")) << header << "1\t2\t3|300\t5\n";
  says(table, "file 'bad.tsv', line 2: id 300 of feature 'seen by' is not in table 'user' of 300");
  std::ofstream(shop.at("bad.tsv")) << header << "1\t2\t3\n";
  says(table, "file 'bad.tsv', line 2: the record has 3 fields");
  std::ofstream(shop.at("one.json")) << R"({"tables": [{"name": "query", "rows": 9}]})";
  std::ofstream(shop.at("bad.tsv")) << "query\n1\n\n2\n";
  says("--model one.json --ids bad.tsv",
       "file 'bad.tsv', line 4: there is an empty line before it; write \"\"");
  std::ofstream(shop.at("bad.tsv")) << "query\tviewer\tcountry\n1\t2\t3\n";
  says(table, "there is no column");
  std::ofstream(shop.at("bad.tsv")) << "other\t" << header << "1\t1\t2\t3\t4\n";
  says(table, "file 'bad.tsv', line 1: column 'other' is no feature of the model");
  says("--model m.json --ids ids --batch 500",
       "'ids' has 200 samples, fewer than a batch of 500; give --batch 200 or less");

  const std::string model = "--model m.json ";
  says(model + "--ranks 3 --batch 50", "--batch: 50 samples do not part among 3 ranks");
  says(model + "--ranks two", "--ranks: 'two' is not a number from 1 to 1024", 2);
  says(model + "--ranks ghost:x", "--ranks: 'x' is not a number from 1 to 1024", 2);
  says(model + "--ranks ghost:4 --which 4", "--which: there is no rank 4 of 4");
  says(model + "--ranks ghost:4 --which each", "--which: 'each' is not a number", 2);
  says(model + "--plans diagonal", "--plans: there is no plan 'diagonal'; there are auto, grid");
  says(model + "--plans mine.json --ranks 4", "'mine.json' is for 2 ranks, which --ranks does not");
  says(model + "--plans m.json", "--plans: 'm.json' is no plan file");
  std::ofstream(shop.at("other.json"))
      << R"({"tables": [{"name": "other", "rows": 9, "width": 4}]})";
  std::ofstream(shop.at("many.json"))
      << R"({"tables": [{"name": "many", "rows": 4294967297, "width": 4}]})";
  says("--model many.json", "table 'many' has 4294967297 rows: ids are drawn for at most 2^32");
  says("--model other.json --plans mine.json", "plan file 'mine.json' is of other tables");
  says(model + "--plans row-wise --pin query=row-wise", "--pin is for auto in --plans", 2);
  says(model + "--which 1", "--which is for ghost:N in --ranks", 2);
  says(model + "--skew nan", "--skew: nan is not a number from 0 to 16", 2);
  says(model + "--seed -1", "--seed: -1 is not a number from 0 to 18446744073709551615", 2);
  says(model + "--plans auto,auto", "'auto' is in a list twice", 2);
  says(model + "--axes colour", "colour not in {deduplicate,optimizer,codec,precision,overlap}", 2);
  says(model + "--axes overlap,overlap", "'overlap' is in a list twice", 2);
  says(model + "--axes overlap --ranks 2,ghost:4", "overlap is not measured on 'ghost:4'", 2);
  says("--model none.json", "none.json");
  says("", "--model is required", 2);
  says("--model m.json --ids", "--ids", 2);
  std::ofstream(shop.at("slow.json")) << R"({"stream_bandwidth": 1e10})";
  says(model + "--cluster slow.json",
       "'slow.json' has no 'node_bandwidth', which steps of several");
  std::ofstream(shop.at("cheap.json")) << R"({"beyond_cache": 0.5})";
  says(model + "--cluster cheap.json", "'beyond_cache' must be a number from 1 to ");
  std::ofstream(shop.at("half.json")) << R"({"ranks_per_node": 1.5})";
  says(model + "--cluster half.json", "'ranks_per_node' must be a whole number from 0 to ");
  std::ofstream(shop.at("measured.json")) << R"({"measured": 5})";
  says(model + "--cluster measured.json", "'measured' must hold the texts 'processor' and 'date'");
  std::ofstream(shop.at("file")) << "";
  says(model + "--out file/out", "--out: cannot make the folder 'file/out'");
  says(model + "--out /proc/out", "--out");
  says(model + "--compare m.json", "--compare: 'm.json' is no results.json of the laboratory");
}

TEST_CASE("ids of a folder in NVIDIA's layout are those of the same ids in NumPy files") {
  const Shop shop;
  tessera::BinaryDatasetWriter writer(shop.at("set"), 0, {900, 40}, {1, 3});
  tessera::ClickBatch<std::int32_t> batch;
  batch.size = 192, batch.features = 2;
  std::vector<std::int64_t> first, second, offsets{0};
  for (int s = 0; s < 192; ++s) {
    batch.labels.push_back(0);
    first.push_back(s * 7 % 900);
    for (const int id : {s % 40, s * 3 % 40, 1}) second.push_back(id);
    offsets.push_back(std::ssize(second));
  }
  for (const auto* ids : {&first, &second})
    batch.ids.insert(batch.ids.end(), ids->begin(), ids->end());
  for (int s = 0; s <= 192; ++s) batch.offsets.push_back(s);
  for (int s = 1; s <= 192; ++s) batch.offsets.push_back(192 + 3 * s);
  for (const char* part : {"train", "test"}) writer.add(part, batch);
  writer.finish();
  fs::create_directory(shop.at("same"));
  write_npy(shop.at("same/cat_0.bin.values.npy"), first);
  write_npy(shop.at("same/cat_1.bin.values.npy"), second);
  write_npy(shop.at("same/cat_1.bin.offsets.npy"), offsets);
  const auto model = [&](const char* second_feature) {
    return fmt::format(R"({{"tables": [{{"name": "cat_0.bin", "rows": 900, "width": 16}},
      {{"name": "{}", "rows": 40, "width": 16, "hotness": 3}}]}})",
                       second_feature);
  };
  std::ofstream(shop.at("two.json")) << model("cat_1.bin");
  std::ofstream(shop.at("other.json")) << model("age");
  const std::string plans = std::string(" --plans row-wise,table-wise ") + kFast;
  CHECK(shop.run("--model two.json --ids set --out a" + plans).err == "");
  CHECK(shop.run("--model two.json --ids same --out b" + plans).err == "");
  CHECK(Shop::bytes(shop.results("a")) == Shop::bytes(shop.results("b")));
  CHECK(shop.run("--model other.json --ids set --out c" + plans)
            .err.find("'set' has no feature 'age' of the model") != std::string::npos);
}

TEST_CASE("--statistics: ids are drawn as often as they were measured") {
  const Shop shop;
  // of "query" 9 rows have nine tenths of the ids; a sample has 1.5 of "seen by"
  const auto statistics = [](const char* query) {
    return fmt::format(
        R"({{"tessera_statistics": 1, "samples": 10, "batch": 10, "sorted_ids": true, "tables": [
      {{"name": "query", "rows": {}}}, {{"name": "user", "rows": 300, "frequencies": [[300, 1]]}},
      {{"name": "country", "rows": 40}}], "features": [{{"name": "seen by", "hotness": 1.5}}]}})",
        query);
  };
  std::ofstream(shop.at("s.json")) << statistics(R"(900, "frequencies": [[9, 0.9], [891, 0.1]])");
  std::ofstream(shop.at("rows.json")) << statistics("901");
  std::ofstream(shop.at("sum.json")) << statistics(R"(900, "frequencies": [[9, 0.9], [891, 0.2]])");
  std::ofstream(shop.at("order.json"))
      << statistics(R"(900, "frequencies": [[891, 0.1], [9, 0.9]])");
  const std::string options =
      "--model m.json --plans row-wise --batch 960 --steps 4 --optimizer adagrad --out ";
  CHECK(shop.run(options + "o --statistics s.json").err == "");
  const nlohmann::json drawn = shop.results("o");
  CHECK(drawn["context"]["ids"] == "drawn as measured (4 batches of 960)");
  // Of 960 ids of "query" rank 0 has all of the first rows and half of the others, of 2,400 of
  // "user" half, of "country", which is too small to be cut, all.
  const nlohmann::json& ranks = drawn["laboratory"]["cases"][0]["by_rank"];
  CHECK(ranks[0]["rows"]["lookup"].get<double>() ==
        doctest::Approx(960 * (0.9 + 0.1 * 441 / 891) + 1200 + 960).epsilon(0.02));
  CHECK(ranks[1]["rows"]["lookup"].get<double>() ==
        doctest::Approx(960 * 0.1 * 450 / 891 + 1200).epsilon(0.04));
  const auto refusal = [&](const std::string& more) { return shop.run(options + "p " + more).err; };
  CHECK(refusal("--statistics rows.json").find("table 'query' has 901 rows, in the model 900") !=
        std::string::npos);
  CHECK(refusal("--statistics sum.json").find("the groups have 900 of 900 rows") !=
        std::string::npos);
  CHECK(refusal("--statistics order.json").find("drawn more often than those before") !=
        std::string::npos);
  CHECK(refusal("--statistics m.json").find("no file of statistics") != std::string::npos);
  CHECK(refusal("--statistics none.json").find("none.json") != std::string::npos);
  CHECK(refusal("--statistics s.json --ids ids").find("excludes") != std::string::npos);
}
