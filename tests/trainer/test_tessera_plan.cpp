// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// tessera_plan from the outside: what it reads, what it writes, how it fails.
#include <trainer/command.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

fs::path bin() { return fs::read_symlink("/proc/self/exe").parent_path(); }

/// A folder with a model file, and the command run in it.
struct Run {
  TemporaryFolder folder;
  int status = -1;
  std::string out, err;

  Run(const std::string& name, const std::string& model, const std::string& arguments) {
    if (!fs::exists(bin() / "tessera_plan")) {
      std::printf("skipped: there is no %s\n", (bin() / "tessera_plan").c_str());
      std::exit(77);
    }
    std::ofstream(folder.path / name) << model;
    const int result = std::system(
        fmt::format("cd '{}' && TESSERA_MACHINE=none.json '{}' {} {} >out 2>err",
                    folder.path.string(), (bin() / "tessera_plan").string(), name, arguments)
            .c_str());
    status = WIFEXITED(result) ? WEXITSTATUS(result) : -1;
    out = text_of(folder.path / "out");
    err = text_of(folder.path / "err");
  }
  nlohmann::json json(const char* file) const {
    return nlohmann::json::parse(text_of(folder.path / file));
  }
};

const std::string kModel = R"({"name": "shop", "workload": {"batch": 8192, "skew": 1.1}, "tables": [
  {"name": "query", "rows": 40000000, "width": 128},
  {"name": "user", "rows": 3000000, "width": 64, "hotness": [1, 20], "features": ["viewer", "seen by"], "pooling": "mean"},
  {"name": "a \"quoted\" <name>", "rows": 5000, "width": 64, "skew": 0},
  {"name": "country", "rows": 250, "width": 16}]})";

}  // namespace

TEST_CASE("a model of one's own: a table, JSON, a page that needs nothing else") {
  const Run run(
      "m.json", kModel,
      "--ranks 8 --ranks-per-node 4 --memory 6 --page page.html --json plan.json --svg plan.svg");
  REQUIRE(run.err == "");
  REQUIRE(run.status == 0);
  CHECK(run.out.find("shop: 4 tables, 5 features, 8 ranks, batch 8192") != std::string::npos);
  const nlohmann::json json = run.json("plan.json");
  REQUIRE(json.at("plans").size() == 7);
  CHECK(json["plans"][0]["fits"] == true);
  for (const auto& plan : json["plans"])
    if (plan["fits"] == true)
      CHECK(json["plans"][0]["step_seconds"].get<double>() <= plan["step_seconds"].get<double>());
  // Every element of every table once (or on every rank).
  std::map<std::string, double> elements;
  for (const auto& s : json["shards"])
    elements[s["table"]] += (s["rows"][1].get<double>() - s["rows"][0].get<double>()) *
                            (s["columns"][1].get<double>() - s["columns"][0].get<double>());
  CHECK(elements["query"] == 40000000.0 * 128);
  CHECK(elements["user"] == 3000000.0 * 64);
  const std::string page = text_of(run.folder.path / "page.html"),
                    svg = text_of(run.folder.path / "plan.svg");
  for (const char* text :
       {"query", "country", "a &quot;quoted&quot; &lt;name&gt;", "memory balanced", "rank 7"})
    CHECK(page.find(text) != std::string::npos);
  CHECK(page.find("src=") == std::string::npos);
  CHECK(page.find("href=") == std::string::npos);
  CHECK(svg.rfind("<svg", 0) == 0);
}

TEST_CASE("the header compiles, and holds the same rectangles on the same ranks") {
  const fs::path include = source_folder() / "include";
  // Every cut there is; tables on the hosts; tables in files; tables on the hosts behind caches.
  for (const int tiers : {0, 1, 2, 3}) {
    const std::string other = tiers == 2 ? "file" : "host";
    const Run run("m.json", kModel,
                  tiers ? "--ranks 8 --ranks-per-node 4 --header plan.hpp --json plan.json --page "
                          "page.html --" +
                              other +
                              (tiers == 3 ? "-memory 16 --memory 1 --optimizer adam"
                                          : "-memory 4 --memory 0.25")
                        : "--ranks 8 --ranks-per-node 4 --header plan.hpp --json plan.json --pin "
                          "query=grid:2 --pin user=column-wise:4 "
                          "--pin country=replicated --pin 'a \"quoted\" <name>=table-wise@5'");
    REQUIRE(run.err == "");
    std::string test =
        "#include \"plan.hpp\"\nconstexpr bool same() {\n  const tessera::Layout l = "
        "planned::Plan::layout({8, 4});\n  int found = 0;\n";
    int shards = 0, elsewhere = 0, cached = 0;
    const nlohmann::json json = run.json("plan.json");
    for (const auto& s : json.at("shards")) {
      ++shards;
      elsewhere += s["memory"] == other;
      cached += s["memory"] == "host" && s["cache_rows"] != 0;
      test += fmt::format(
          "  for (const tessera::Shard& s : l.shards) found += l.tables[s.table].name == {} && "
          "s.rectangle == tessera::Rectangle{{{}, {}, "
          "{}, {}}} && s.rank == {} && s.tier == tessera::Tier::{} && s.cache_rows == {};\n",
          s["table"].dump(), s["rows"][0].get<std::int64_t>(), s["rows"][1].get<std::int64_t>(),
          s["columns"][0].get<int>(), s["columns"][1].get<int>(), s["rank"].get<int>(),
          s["memory"].get<std::string>(), s["cache_rows"].get<std::int64_t>());
    }
    if (!tiers) CHECK(shards == 8 + 4 + 1 + 1);
    CHECK((elsewhere > 0) == (tiers > 0));
    CHECK((cached > 0) == (tiers == 3));
    CHECK((run.out.find("caches of this table ") != std::string::npos) == (tiers % 2 == 1));
    if (tiers > 0) {
      CHECK(elsewhere < shards);
      CHECK(json["plans"][0]["fits"] == true);
      CHECK(json["plans"][0]["most_bytes"].get<double>() <= (tiers == 3 ? 1 : 0.25) * (1 << 30));
      CHECK(json["plans"][0]["most_" + other + "_bytes"].get<double>() > 0);
      CHECK(text_of(run.folder.path / "page.html")
                .find(tiers != 2 ? "of the host's memory" : " in a file") != std::string::npos);
    }
    test += fmt::format(
        "  return l.fault.ok() && found == {0} && l.shards.size() == {0} && l.features.size() == "
        "5;\n}}\nstatic_assert(same());\n"
        "static_assert(planned::kCluster.ranks == 8);\n",
        shards);
    std::ofstream(run.folder.path / "test.cpp") << test;
    const int status = std::system(
        fmt::format("c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I '{}' '{}' >'{}' 2>&1",
                    include.string(), (run.folder.path / "test.cpp").string(),
                    (run.folder.path / "log").string())
            .c_str());
    INFO(text_of(run.folder.path / "log").substr(0, 2000));
    CHECK(status == 0);
  }
}

TEST_CASE("a plan file: the trainer cuts its tables so, and names what differs") {
  const std::string options =
      " --samples 4000 --max-rows 300 --bottom-mlp 16 --top-mlp 16 --threads-per-rank 1 ";
  const Outcome whole = train_dlrm(options + "--ranks 2 --plan table-wise");
  REQUIRE(whole.status == 0);
  // The tables as the trainer prints them: name, rows, width, rank.
  std::string model;
  std::istringstream lines(whole.out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, rows, width;
    if (!(words >> name >> rows >> width) || width != "16") continue;
    std::erase(rows, ',');
    model += fmt::format(R"({}{{"name": "{}", "rows": {}, "width": 16}})",
                         model.empty() ? "" : ", ", name, rows);
  }
  model = R"({"name": "clicks", "tables": [)" + model + "]}";
  const Run run("m.json", model,
                "--ranks 2 --cluster cpu --forbid replicated --pin C3=row-wise --out plan.json");
  REQUIRE(run.err == "");
  CHECK(run.json("plan.json")["tables"].size() == 26);
  const std::string file = "--plan-file '" + (run.folder.path / "plan.json").string() + "' ";
  const Outcome planned = train_dlrm(options + "--ranks 2 " + file);
  REQUIRE(planned.err == "");
  CHECK(planned.json["plan"] == "file");
  CHECK(planned.json["auc"] == whole.json["auc"]);
  CHECK(planned.json["logloss"] == whole.json["logloss"]);
  const auto fails = [&](const std::string& more, const std::string& says) {
    const Outcome outcome = train_dlrm(options + more, false);
    INFO(outcome.err);
    CHECK(outcome.status != 0);
    CHECK(outcome.err.find(says) != std::string::npos);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  };
  fails("--ranks 3 " + file, "is for 2 ranks, but there are 3");
  fails("--ranks 2 --embedding-width 8 " + file, "'C1' has width 16 there, 8 here");
  fails("--ranks 2 --test-fraction 0.2 --embedding-width 32 " + file, "; and more");
  fails("--ranks 2 --plan auto " + file, "--plan");
  fails("--ranks 2 --plan-file nowhere.json", "cannot open 'nowhere.json'");
}

TEST_CASE("other files: groups of tables, cardinalities, a feature specification") {
  const std::string groups =
      R"({"common": {"id_distribution": {"alpha_flag_default": 1.05, "ids_are_frequency_sorted": true}},
    "models": {"tiny": {"num_numerical_features": 10, "mlp_sizes": [256, 128], "interact_stride": null, "embedding_groups": [
      {"num_tables": 2, "hotness": [1, 10], "num_rows": 10000, "width": 8, "shared": true},
      {"num_tables": 3, "hotness": [1], "num_rows": 1000000, "width": 16, "shared": false}]}}})";
  const Run tiny("m.json", groups, "--model tiny --ranks 4");
  CHECK(tiny.err == "");
  CHECK(tiny.out.find("tiny: 5 tables, 7 features, 4 ranks, batch 65536") != std::string::npos);
  const Run sets(
      "m.json",
      R"({"embedding_dim": 32, "sets": {"s": {"cardinalities": [100, 200000], "multi_hot_sizes_v2": [3, 1]}}})",
      "--model s --ranks 2");
  CHECK(sets.out.find("s: 2 tables, 2 features") != std::string::npos);
  const std::string yaml =
      "channel_spec:\n  categorical:\n  - cat_1.bin\n  - cat_0.bin\n  label: [label]\n  numerical: "
      "&id001\n  - num_0\n"
      "feature_spec:\n  cat_0.bin:\n    cardinality: 7912889  # rows\n    dtype: int32\n  "
      "cat_1.bin: \n    cardinality: 33823\n    "
      "hotness: 3\n"
      "  num_0:\n    dtype: float16\nmetadata: {}\nsource_spec:\n  train:\n  - features: *id001\n  "
      "  files:\n    - train/numerical.bin\n";
  const Run spec("m.yaml", yaml, "--ranks 2 --width 16");
  CHECK(Run("m.yaml", yaml, "--model other").err.find("has one model, without a name") !=
        std::string::npos);
  CHECK(spec.err == "");
  CHECK(spec.out.find("2 tables, 2 features, 2 ranks") != std::string::npos);
  CHECK(spec.out.find("cat_0.bin                  7912889     16") != std::string::npos);
  const Run bad(
      "m.yaml",
      "channel_spec:\n  categorical:\n  - a\nfeature_spec:\n  a:\n    cardinality: many\n", "");
  CHECK(bad.err ==
        "tessera_plan: m.yaml:6: cardinality 'many' is not a number from 1 to 1099511627776\n");
  const std::string begin = "channel_spec: {categorical: [a]}\nfeature_spec:\n  a: ";
  CHECK(Run("m.yaml", begin + "{cardinality: 10, hotness: inf}\n", "")
            .err.find("m.yaml:3: hotness 'inf' is not a number from 0.001") != std::string::npos);
  // rows are those of the feature itself, in any style of YAML
  for (const char* const of :
       {"{cardinality: 31337, statistics: {cardinality: 5}}\n",
        "\n    cardinality: 31337\n    statistics:\n      cardinality: 5\n"}) {
    const Run nested("m.yaml", begin + of, "--ranks 2");
    CHECK(nested.err == "");
    CHECK(nested.out.find("31337") != std::string::npos);
  }
  const Run absent(
      "m.yaml", "channel_spec:\n  categorical: [a, b]\nfeature_spec:\n  a:\n    cardinality: 10\n",
      "");
  CHECK(absent.err == "tessera_plan: m.yaml: channel_spec names 'b', which feature_spec lacks\n");
  CHECK(Run("m.json", groups, "").err.find("--model must name one of: tiny") != std::string::npos);
}

TEST_CASE("constraints, and what cannot be") {
  const Run forbidden("m.json", kModel,
                      "--ranks 8 --forbid replicated --forbid row-wise --forbid grid --forbid "
                      "column-wise --json plan.json");
  CHECK(forbidden.json("plan.json")["shards"].size() == 4);
  CHECK(forbidden.out.find("\nplain strategies keep no pins and forbid no cuts\n") !=
        std::string::npos);
  const auto fails = [](const std::string& model, const std::string& arguments,
                        const std::string& text, int status = 1) {
    const Run run("m.json", model, arguments);
    CAPTURE(arguments);
    CHECK(run.status == status);
    INFO(run.err);
    CHECK(run.err.find(text) != std::string::npos);
    CHECK(run.err.find('\n') == run.err.size() - 1);
  };
  CHECK(Run(".", "", "").err ==
        "tessera_plan: cannot read '.': it is a directory, not a regular file\n");
  fails(kModel, "--ranks 2 --memory 4",
        "no plan fits: the tables take 20.0 GiB, the largest, 'query', 19.2 GiB; 2 ranks have 4.0 "
        "GiB each");
  fails(kModel, "--ranks 4 --memory 6 --forbid row-wise --forbid column-wise --forbid grid",
        "without --pin and --forbid a plan would fit");
  fails(kModel, "--pin nobody=row-wise", "has no table 'nobody'");
  fails(kModel, "--pin user=upside-down", "there is no policy 'upside-down'", 2);
  fails(kModel, "--pin user", "write TABLE=POLICY", 2);
  fails(kModel, "--pin user=row-wise:2", "row-wise takes no :PARTS", 2);
  fails(kModel, "--pin user=table-wise:2", "table-wise takes no :PARTS", 2);
  fails(kModel, "--pin user=replicated@1", "replicated takes no @RANK", 2);
  fails(kModel, "--pin user=column-wise:0", "'0' is not a number from 1 to 8", 2);
  fails(kModel, "--pin user=column-wise:7", "7 parts do not divide the 64 columns of 'user'");
  fails(kModel, "--pin user=table-wise@8", "'8' is not a number from 0 to 7", 2);
  const auto says = [](const std::string& arguments, const std::string& text) {
    const Run run("m.json", kModel, arguments);
    INFO(run.out, run.err);
    CHECK(run.out.find(text) != std::string::npos);
  };
  says("--ranks 4 --pin country=grid", "whole, as the cut that is pinned does not suit it");
  says("--ranks 4 --pin country=table-wise", "country: table-wise: pinned");
  says(
      "--ranks 4 --forbid table-wise --forbid column-wise --forbid row-wise --forbid replicated "
      "--forbid interleaved --forbid hot-rows",
      "whole, though forbidden, as no cut that is allowed suits it");
  for (const char* option :
       {"--memory", "--reserve", "--skew", "--memory-balance", "--memory-share"})
    fails(kModel, std::string(option) + " nan", "nan is not a number from 0", 2);
  fails(kModel, "--ranks 0", "--ranks", 2);
  fails(kModel, "--ranks 2000 --page page.html", "--page and --svg draw at most 1024 ranks", 2);
  fails(kModel, "--ranks 32767 --memory 1e-9", "no number of ranks would help");
  for (const char* option :
       {"--header", "--page", "--svg", "--json", "--cluster", "--model", "--pin", "--forbid"})
    fails(kModel, std::string(option) + " ''", option, 2);
  fails(kModel, "--cluster nowhere.json", "cannot open 'nowhere.json'");
  fails(kModel, "--page /nowhere/page.html", "cannot write");
  fails("{\"tables\":\n [", "", "m.json:2: not JSON: syntax error");
  fails("{\"tables\": [],\n \"tables\": []}", "", "m.json:2: the key was there before: 'tables'");
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const char* key : {"optimizer", "name", "tables"})
    fails(fmt::format("{{\n\"{}\": {}}}", key, deep), "",
          "m.json:2: the values are nested too deep");
  fails(kModel, "--model other", "its only model is");
  fails(kModel, "--namespace a", "--namespace requires --header", 2);
  fails(kModel,
        "--forbid table-wise --forbid column-wise --forbid row-wise --forbid grid --forbid "
        "replicated",
        "all forbidden", 2);
  fails("{}", "", "'tables' is missing");
  fails(R"({"tables": [{"name": "a", "rows": 5, "features": []}]})", "",
        "m.json:1: tables[0].features: the list is empty");
  fails(R"({"tables": []})", "", "there are no tables");
  fails(R"({"tables": [{"name": "a", "rows": -1}]})", "",
        "m.json:1: tables[0].rows: -1 is not in 1");
  fails(R"({"tables": [{"name": "a", "rows": 9223372036854775808}]})", "",
        "m.json:1: tables[0].rows: 9223372036854775808 is not in 1");
  fails(R"({"tables": [{"name": "a", "rows": 1099511627776, "width": 65536},
                       {"name": "b", "rows": 1, "width": 65536}]})",
        "", "table 'b' has 1 rows, but with its width, and the tables before it, no more than 0");
  fails(R"({"tables": [{"name": "a", "rows": "x"}]})", "",
        "m.json:1: tables[0].rows: 'x' is neither a whole number nor 'from data'");
  fails(R"({"tables": [{"name": "a\nb", "rows": 5}]})", "",
        "m.json:1: tables[0].name: a name with the control character 0x0a");
  fails(R"({"name": "a\nb", "tables": [{"name": "a", "rows": 5}]})", "",
        "m.json:1: name: a name with the control character 0x0a");
  fails(R"({"tables": [{"name": "a", "rows": 5, "hotness": [1, 2], "features": ["a"]}]})", "",
        "1 names, but 2 values of hotness");
  fails(R"({"tables": [{"name": "a", "rows": 5, "features": ["x", "x"]}]})", "",
        "two features have the name 'x'");
  fails(R"({"tables": [{"name": "a", "rows": 5}, {"name": "a", "rows": 5}]})", "",
        "two tables have the name 'a'");
  fails(R"({"tables": [{"name": "a", "rows": 5, "pooling": "most"}]})", "",
        "'most' is none of sum, mean, sqrtn, max and none");
}

TEST_CASE("tables in YAML are read as those in JSON are") {
  const Run json("m.json", kModel, "--ranks 4 --out plan.json"),
      yaml("m.yaml",
           "name: shop\nworkload: {batch: 8192, skew: 1.1}\ntables:\n"
           "- {name: query, rows: 40000000, width: 128}\n"
           "- name: user\n  rows: 3000000\n  width: 64\n  hotness: [1, 20]\n"
           "  features: [viewer, seen by]\n  pooling: mean\n"
           "- {name: 'a \"quoted\" <name>', rows: 5000, width: 64, skew: 0}\n"
           "- {name: country, rows: 250, width: 16}\n",
           "--ranks 4 --out plan.json");
  CHECK(yaml.err == "");
  CHECK(yaml.out == json.out);
  CHECK(yaml.json("plan.json") == json.json("plan.json"));
}

TEST_CASE("a model's file says on what it is planned; the command line says otherwise") {
  const std::string data =
      "channel_spec:\n  categorical: [user, seen]\nfeature_spec:\n  user:\n    cardinality: 12345\n"
      "  seen:\n    cardinality: 77\n";
  const TemporaryFolder folder;
  std::ofstream(folder.path / "feature_spec.yaml") << data;
  const std::string model = "name: shop\ndata: " + (folder.path / "feature_spec.yaml").string() +
                            R"(
optimizer: adam
element_bytes: 4
cluster: {name: cpu, ranks: 4, cores: 2, memory: 16}
pins:
  user: column-wise:4
  item: table-wise@3
forbid: [replicated]
workload: {batch: 512}
tables:
- {name: user, rows: from data, width: 16}
- {name: item, rows: from data, width: 8, features: [seen]}
)";
  const Run run("m.yaml", model, "--header plan.hpp --depfile plan.d --json plan.json");
  REQUIRE(run.err == "");
  CHECK(run.out.find("shop: 2 tables, 2 features, 4 ranks, batch 512") != std::string::npos);
  CHECK(run.out.find("user: column-wise 4: pinned\n") != std::string::npos);
  CHECK(run.out.find("item: table-wise: pinned\n") != std::string::npos);
  const std::string header = text_of(run.folder.path / "plan.hpp"),
                    depfile = text_of(run.folder.path / "plan.d");
  for (const char* text : {".rows = 12345", ".rows = 77", "using Optimizer = tessera::Adam;",
                           "kBatch = 512;", ".concurrent_ranks = 2", "OnRank<3>"})
    CHECK(header.find(text) != std::string::npos);
  CHECK(depfile == fmt::format("{0}/plan.hpp: {0}/m.yaml {1}/feature_spec.yaml\n",
                               run.folder.path.string(), folder.path.string()));
  const Run other("m.yaml", model,
                  "--ranks 2 --pin user=row-wise --optimizer sgd --json plan.json");
  REQUIRE(other.err == "");
  CHECK(other.out.find(" 2 ranks") != std::string::npos);
  CHECK(other.out.find("user: row-wise: pinned\n") != std::string::npos);
  CHECK(other.out.find("item: table-wise: pinned\n") == std::string::npos);
}

TEST_CASE("a mistake in a model's file is told with the line") {
  const auto says = [](const std::string& name, const std::string& model, const std::string& text) {
    const Run run(name, model, "");
    CAPTURE(model);
    INFO(run.err);
    CHECK(run.status == 1);
    CHECK(run.err.rfind("tessera_plan: " + name + ":" + text, 0) == 0);
  };
  const std::string table = "tables:\n- name: a\n  rows: 50\n  width: 8\n";
  says("m.yaml", "tables:\n- {name: a, rows: many}\n",
       "2: tables[0].rows: 'many' is neither a whole number nor 'from data'\n");
  says("m.yaml", "tables:\n- name: a\n  rows: from data\n",
       "3: tables[0].rows: from data, but no data are named; add 'data: FOLDER/feature_spec.yaml'");
  says("m.yaml", table + "  witdh: 3\n",
       "5: tables[0].witdh: a table has no 'witdh'; there are name");
  says("m.yaml", table + "optimiser: adam\n",
       "5: optimiser: a model has no 'optimiser'; there are");
  says("m.yaml", table + "- {name: a, rows: 3}\n",
       "5: tables[1].name: two tables have the name 'a'");
  says("m.yaml", table + "optimizer: adamw\n", "5: optimizer: ");
  says("m.yaml", table + "cluster:\n  name: cpu\n  ranks: none\n", "7: cluster.ranks: ");
  says("m.yaml", table + "cluster:\n  rank: 3\n",
       "6: cluster.rank: a cluster has no 'rank'; there");
  says("m.yaml", table + "pins:\n  b: row-wise\n", "6: pins.b: 'model' has no table 'b'\n");
  says("m.yaml", table + "pins:\n  a: rowwise\n", "6: pins.a: there is no policy 'rowwise': repl");
  says("m.yaml", table + "pins:\n  a: column-wise:3\n", "6: pins.a: 3 parts do not divide the 8");
  says("m.yaml", table + "forbid:\n- grids\n", "6: forbid[0]: there is no policy 'grids'");
  says("m.yaml", table + "cluster: {memory: 1e-9}\n", "5: cluster.memory: no plan fits: ");
  says("m.yaml", table + "data: nowhere.yaml\n", "5: data: cannot open 'nowhere.yaml'");
  says("m.yaml", table + "cluster:\n  name: gpu\n",
       "6: cluster.name: there is no cluster 'gpu': dgx-a100, hgx-h200, cpu, host, or a file");
  says("m.yaml", table + "cluster: gpu.json\n", "5: cluster: cannot open 'gpu.json'");
  says("m.json", "{\"tables\": [\n{\"name\": \"a\",\n \"rows\": 1.5\n}]}",
       "3: tables[0].rows: must be");
  says("m.json", "{\"tables\": [\n{\"name\": \"a\",\n\t\"rows\": 5},\n{\"name\": \"b\"}]}",
       "4: tables[1]: 'rows' is missing\n");
}

TEST_CASE("two headers stand in one program, each in a namespace of its own") {
  const fs::path include = source_folder() / "include";
  const Run ads("m.json", kModel, "--ranks 2 --header plan.hpp --namespace shop::ads"),
      feed("m.json", kModel, "--ranks 4 --header plan.hpp --namespace feed");
  REQUIRE(ads.err == "");
  REQUIRE(feed.err == "");
  std::ofstream(ads.folder.path / "test.cpp")
      << "#include \"plan.hpp\"\n#include \"" << (feed.folder.path / "plan.hpp").string()
      << "\"\nstatic_assert(shop::ads::kCluster.ranks == 2 && feed::kCluster.ranks == 4);\n";
  CHECK(std::system(fmt::format("c++ -std=c++20 -fsyntax-only -I '{}' '{}'", include.string(),
                                (ads.folder.path / "test.cpp").string())
                        .c_str()) == 0);
  for (const char* name : {"7up", "a b", "a::", "class", "tessera", "std::x"})
    CHECK(Run("m.json", kModel, fmt::format("--namespace '{}'", name)).status == 2);
}

TEST_CASE("outputs are never inputs nor each other, and what cannot be written is an error") {
  for (const char* option : {"--out", "--page", "--json", "--header", "--svg"}) {
    CAPTURE(option);
    const Run over("m.json", kModel, fmt::format("--ranks 2 --out other.json {} ./m.json", option));
    CHECK(over.status == 2);
    CHECK(text_of(over.folder.path / "m.json") == kModel);
    CHECK(!fs::exists(over.folder.path / "other.json"));
    CHECK(Run("m.json", kModel, fmt::format("--ranks 2 {} /dev/full", option)).status == 1);
  }
  const Run twice("m.json", kModel, "--ranks 2 --out a.json --json a.json");
  CHECK(twice.status == 2);
  CHECK(!fs::exists(twice.folder.path / "a.json"));
  CHECK(Run("m.json", kModel, "--ranks 2 >/dev/full 2>err; test $? = 1 && true").status == 0);
  CHECK(Run("m.json", kModel, "--version").out.rfind("tessera_plan ", 0) == 0);
  const Run pipe(
      "m.json", kModel,
      "--version; mkfifo p.json; timeout 20 '" + (bin() / "tessera_plan").string() + "' p.json");
  CHECK(pipe.status == 1);
  CHECK(pipe.err.find("it is a pipe") != std::string::npos);
}

TEST_CASE("no plan fits: each change that would do is named, and does") {
  const Run none("m.json", kModel, "--ranks 4 --memory 4");
  CHECK(none.err ==
        "tessera_plan: no plan fits: the tables take 20.0 GiB, the largest, 'query', 19.2 GiB; 4 "
        "ranks have 4.0 GiB each for tables; what "
        "would do: --element-bytes 2 (tables of 16-bit elements), or --ranks 5\n");
  for (const char* change : {"--ranks 4 --element-bytes 2", "--ranks 5"})
    CHECK(Run("m.json", kModel, std::string(change) + " --memory 4").status == 0);
}

TEST_CASE("what a prediction is made of and worth, and why each table is cut so") {
  std::string model = kModel;
  model.insert(
      model.rfind('}'),
      R"(, "dense": {"flops_per_sample": 3e7, "bytes_per_sample": 20000, "parameters": 3000000})");
  const std::string how =
      "--ranks 8 --ranks-per-node 4 --memory 6 --page page.html --json plan.json";
  const Run run("m.json", model, how);
  REQUIRE(run.err == "");
  const nlohmann::json json = run.json("plan.json");
  const std::string page = text_of(run.folder.path / "page.html");
  // The parts make up the step.
  double sum = 0;
  for (const auto& [name, seconds] : json["step"].items()) sum += seconds.get<double>();
  const double step = json["plans"][0]["step_seconds"].get<double>();
  CHECK(std::abs(sum - step) < 1e-9);
  CHECK(json["step"]["dense layers"].get<double>() > 0);
  const std::string dense = fmt::format("{:.3f}", 1e3 * json["step"]["dense layers"].get<double>());
  CHECK(run.out.find(fmt::format("predicted step: {:.3f} ms = route ", 1e3 * step)) !=
        std::string::npos);
  CHECK(run.out.find(" + dense layers " + dense + " + sum of dense gradients ") !=
        std::string::npos);
  CHECK(page.find("dense layers</td><td>" + dense + "</td>") != std::string::npos);
  // The runner-up is the fastest of the others that fit.
  double fastest = 1e300;
  for (std::size_t i = 1; i < json["plans"].size(); ++i)
    if (json["plans"][i]["fits"] == true)
      fastest = std::min(fastest, json["plans"][i]["step_seconds"].get<double>());
  CHECK(json["runner_up"]["step_seconds"].get<double>() >= fastest);
  const std::string runner_up =
      fmt::format("unner-up: {}, {:.3f} ms", json["runner_up"]["name"].get<std::string>(),
                  1e3 * json["runner_up"]["step_seconds"].get<double>());
  for (const std::string& text : {run.out, page}) {
    CHECK(text.find(runner_up) != std::string::npos);
    CHECK(text.find("never measured with this library") != std::string::npos);
    CHECK(text.find("larger than a rank") != std::string::npos);  // 19.2 GiB
  }
  REQUIRE(json["tables"].size() == 4);
  for (const auto& table : json["tables"]) {
    CAPTURE(table.dump());
    CHECK(table["reason"].get<std::string>().size() > 10);
  }
  CHECK(json["tables"][1]["features"] == "viewer, seen by x 20");
  CHECK(page.find("viewer, seen by x 20") != std::string::npos);
  // Of the traffic: axes, a scale, and numbers that sum up.
  for (const char* text : {">from rank<", ">to rank<", "(most)<", "all together: "})
    CHECK(page.find(text) != std::string::npos);
  // Bars of memory: the fullest rank's fills its half of the page, whatever a rank could hold, and
  // the others are to it as their bytes.
  const std::regex memory_bar(
      R"re(<rect x="30" y="[0-9.]+" width="([0-9.]+)"[^>]*><title>rank \d+: ([0-9.]+) (B|KiB|MiB|GiB)<)re");
  std::vector<std::pair<double, double>> bars;  // pixels, bytes
  for (std::sregex_iterator it(page.begin(), page.end(), memory_bar), end; it != end; ++it)
    bars.push_back(
        {std::stod((*it)[1]),
         std::stod((*it)[2]) * std::pow(1024.0, std::string("BKMG").find((*it)[3].str()[0]))});
  REQUIRE(bars.size() == 8);
  const auto fullest = *std::max_element(bars.begin(), bars.end());
  CHECK(fullest.first > 400);
  CHECK(fullest.second ==
        doctest::Approx(json["plans"][0]["most_bytes"].get<double>()).epsilon(0.03));
  for (const auto& [pixels, bytes] : bars)
    CHECK(pixels / fullest.first == doctest::Approx(bytes / fullest.second).epsilon(0.05));
  // Bars of the comparison have one scale: the lengths are to each other as the steps, unless they
  // say that they are cut.
  const std::string table = page.substr(page.find("<h2>Comparison"));
  std::vector<double> lengths;
  for (std::size_t at = table.find("class=\"bar"); at != std::string::npos;
       at = table.find("class=\"bar", at + 1)) {
    const std::string bar = table.substr(at, table.find("</span>", at) - at);
    double length = 0;
    for (std::size_t w = bar.find("width:"); w != std::string::npos; w = bar.find("width:", w + 1))
      length += std::stod(bar.substr(w + 6));
    const bool cut = table.compare(table.find("</span>", at) + 7, 3, "<b ") == 0;
    lengths.push_back(cut ? -length : length);
  }
  REQUIRE(lengths.size() == json["plans"].size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const double ratio = json["plans"][i]["step_seconds"].get<double>() / step;
    CAPTURE(i);
    if (lengths[i] > 0) CHECK(std::abs(lengths[i] / lengths[0] - ratio) < 0.02 * ratio);
    CHECK((lengths[i] < 0) == (ratio > 4));
  }
  // A pinned table says so; constants of a file say whether they were measured.
  const Run pinned("m.json", model, how + " --pin country=table-wise@3");
  CHECK(pinned.out.find("country: table-wise: pinned\n") != std::string::npos);
  const TemporaryFolder folder;
  const std::string file = (folder.path / "machine.json").string();
  std::ofstream(file) << R"({"flops": 1e12})";
  const Run given("m.json", model, how + " --cluster '" + file + "'");
  CHECK(given.out.find(
            "which does not say that they were measured; not in the file, so an A100's: ranks ") !=
        std::string::npos);
  std::string all = json["cluster"].dump();
  all.insert(1, R"("measured": {"processor": "Abacus", "cores": 7, "date": "2020-02-29"}, )");
  std::ofstream(file, std::ios::trunc) << all;
  const Run measured("m.json", model, how + " --cluster '" + file + "'");
  CHECK(
      measured.out.find("constants: measured on another machine (Abacus, 7 cores, 2020-02-29; ") !=
      std::string::npos);
  CHECK(measured.out.find("measure both") != std::string::npos);
  // The same constants in YAML are the same plan.
  const std::string yaml = (folder.path / "machine.yaml").string();
  std::string lines = "# a card\nmeasured: {processor: Abacus, cores: 7, date: 2020-02-29}\n";
  for (const auto& [key, value] : json["cluster"].items())
    lines += fmt::format("{}: {}\n", key, value.dump());
  std::ofstream(yaml) << lines;
  const std::string named = " --cluster '" + yaml + "'";
  std::string out = Run("m.json", model, how + named).out;
  REQUIRE(out.find(yaml) != std::string::npos);
  CHECK(out.replace(out.find(yaml), yaml.size(), file) == measured.out);
  const auto refused = [&](const std::string& line, const std::string& error) {
    std::ofstream(yaml, std::ios::trunc) << lines << line;
    CAPTURE(line);
    CHECK(Run("m.json", model, how + named).err.find(error) != std::string::npos);
  };
  refused("nodes: 3\n", "machine.yaml: a cluster has no 'nodes'");
  refused("flops: 1e12\n", "the key was there before: 'flops'");
  refused("- 1\n", "machine.yaml', line ");
  std::ofstream(yaml, std::ios::trunc) << "flops: fast\n";
  CHECK(Run("m.json", model, how + named).err.find("machine.yaml: 'flops' must be a number from") !=
        std::string::npos);
  CHECK(Run("m.json", model, "--cluster host").err.find("run bench_sharding once") !=
        std::string::npos);
}

TEST_CASE("--measure-ids: statistics of recorded ids, which another plan takes") {
  // "t": row k of 40 has 40 - k ids, and stands alone; "u": two or no ids, all rows alike
  const std::string model = R"({"name": "m", "workload": {"batch": 82}, "tables": [
    {"name": "t", "rows": 64, "width": 16}, {"name": "u", "rows": 10, "width": 16}]})";
  std::vector<int> rows;
  for (int k = 0; k < 40; ++k) rows.insert(rows.end(), 40 - k, k);
  const TemporaryFolder folder;
  const std::string ids = (folder.path / "ids.csv").string(),
                    scattered = (folder.path / "scattered.csv").string(),
                    found = (folder.path / "s.json").string();
  std::ofstream file(ids), other(scattered);
  file << "t,u\n", other << "t,u\n";
  for (std::size_t s = 0; s < rows.size(); ++s) {
    // 37 and the number of samples have no common divisor: a batch has all kinds of rows
    const int row = rows[s * 37 % rows.size()];
    const std::string bag = s % 2 == 0 ? fmt::format("{}|{}", s / 2 % 10, s / 2 * 3 % 10) : "";
    file << row << ',' << bag << '\n';
    other << (row * 27 + 5) % 64 << ',' << bag << '\n';
  }
  file.close(), other.close();
  const Run run("m.json", model,
                "--ranks 2 --cluster cpu --measure-ids '" + ids + "' --statistics '" + found + "'");
  REQUIRE(run.err == "");
  const nlohmann::json json = nlohmann::json::parse(text_of(found));
  CHECK(json["samples"] == 820);
  CHECK(json["batch"] == 82);
  CHECK(json["sorted_ids"] == true);
  const nlohmann::json &t = json["tables"][0], &u = json["tables"][1];
  CHECK(t["ids"] == 820);
  CHECK(t["distinct_rows"] == 40);
  CHECK(t["sorted"] == 1);
  CHECK(t["ids_of_batch"] == 82);
  double distinct = 0, shares = 0, all = 0;
  for (std::size_t b = 0; b < 10; ++b) {
    std::vector<int> batch;
    for (std::size_t s = 82 * b; s < 82 * b + 82; ++s) batch.push_back(rows[s * 37 % rows.size()]);
    std::sort(batch.begin(), batch.end());
    distinct += 0.1 * static_cast<double>(std::unique(batch.begin(), batch.end()) - batch.begin());
  }
  CHECK(t["distinct_rows_of_batch"].get<double>() == doctest::Approx(distinct));
  CHECK(t["duplicates_of_batch"].get<double>() == doctest::Approx(1 - distinct / 82));
  for (const auto& group : t["frequencies"]) {
    all += group[0].get<double>();
    shares += group[1].get<double>();
  }
  CHECK(t["frequencies"][0] == nlohmann::json({4, (40.0 + 39 + 38 + 37) / 820}));
  CHECK(t["frequencies"].back() == nlohmann::json({24, 0.0}));
  CHECK(all == 64);
  CHECK(shares == doctest::Approx(1));
  CHECK(!u.contains("sorted"));
  CHECK(json["features"][1]["hotness"] == 1);
  CHECK(json["features"][1]["lengths"] ==
        nlohmann::json({{"p10", 0}, {"p50", 0}, {"p90", 2}, {"most", 2}}));
  // The same plan from the file, named by an option or by the model; another one where frequent
  // rows are anywhere.
  const Run again("m.json", model, "--ranks 2 --cluster cpu --statistics '" + found + "'");
  CHECK(again.out == run.out);
  const std::string named =
      model.substr(0, model.size() - 1) + ", \"statistics\": \"" + found + "\"}";
  CHECK(Run("m.json", named, "--ranks 2 --cluster cpu").out == run.out);
  const Run mixed(
      "m.json", model,
      "--ranks 2 --cluster cpu --statistics mixed.json --measure-ids '" + scattered + "'");
  CHECK(mixed.json("mixed.json")["sorted_ids"] == false);
  CHECK(mixed.json("mixed.json")["tables"][0]["frequencies"] == t["frequencies"]);
  const auto refusal = [&](const std::string& arguments) {
    const Run failed("m.json", model, "--ranks 2 --cluster cpu " + arguments);
    CHECK(failed.status == 1);
    return failed.err;
  };
  CHECK(refusal("--measure-ids none.csv").find("--measure-ids: there is no 'none.csv'") !=
        std::string::npos);
  CHECK(refusal("--measure-ids m.json").find("line 1") != std::string::npos);
  CHECK(refusal("--statistics m.json").find("no file of statistics") != std::string::npos);
  nlohmann::json twice = json;
  twice["tables"][1] = twice["tables"][0];
  std::ofstream(folder.path / "twice.json") << twice;
  const auto given = [&](const char* name) {
    return refusal("--statistics '" + (folder.path / name).string() + "'");
  };
  CHECK(given("twice.json").find("table 't' was there before") != std::string::npos);
  // a header is made of the statistics, too
  const Run header("m.json", named, "--ranks 2 --cluster cpu --header h.hpp --depfile h.d");
  CHECK(text_of(header.folder.path / "h.d").find(" " + found) != std::string::npos);
}
