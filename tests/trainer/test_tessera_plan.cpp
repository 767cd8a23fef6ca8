// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// tessera_plan from the outside: what it reads, what it writes, how it fails.
#include <trainer/command.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

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
        fmt::format("cd '{}' && '{}' {} {} >out 2>err", folder.path.string(), (bin() / "tessera_plan").string(), name, arguments).c_str());
    status = WIFEXITED(result) ? WEXITSTATUS(result) : -1;
    out = text_of(folder.path / "out");
    err = text_of(folder.path / "err");
  }
  nlohmann::json json(const char* file) const { return nlohmann::json::parse(text_of(folder.path / file)); }
};

const std::string kModel = R"({"name": "shop", "workload": {"batch": 8192, "skew": 1.1}, "tables": [
  {"name": "query", "rows": 40000000, "width": 128},
  {"name": "user", "rows": 3000000, "width": 64, "hotness": [1, 20], "pooling": "mean"},
  {"name": "a \"quoted\" <name>", "rows": 5000, "width": 64, "skew": 0},
  {"name": "country", "rows": 250, "width": 16}]})";

}  // namespace

TEST_CASE("a model of one's own: a table, JSON, a page that needs nothing else") {
  const Run run("m.json", kModel, "--ranks 8 --ranks-per-node 4 --memory 6 --page page.html --json plan.json --svg plan.svg");
  REQUIRE(run.err == "");
  REQUIRE(run.status == 0);
  CHECK(run.out.find("shop: 4 tables, 5 features, 8 ranks, batch 8192") != std::string::npos);
  const nlohmann::json json = run.json("plan.json");
  REQUIRE(json.at("plans").size() == 7);
  CHECK(json["plans"][0]["fits"] == true);
  for (const auto& plan : json["plans"])
    if (plan["fits"] == true) CHECK(json["plans"][0]["step_seconds"].get<double>() <= plan["step_seconds"].get<double>());
  // Every element of every table once (or on every rank).
  std::map<std::string, double> elements;
  for (const auto& s : json["shards"])
    elements[s["table"]] +=
        (s["rows"][1].get<double>() - s["rows"][0].get<double>()) * (s["columns"][1].get<double>() - s["columns"][0].get<double>());
  CHECK(elements["query"] == 40000000.0 * 128);
  CHECK(elements["user"] == 3000000.0 * 64);
  const std::string page = text_of(run.folder.path / "page.html"), svg = text_of(run.folder.path / "plan.svg");
  for (const char* text : {"query", "country", "a &quot;quoted&quot; &lt;name&gt;", "memory balanced", "rank 7"})
    CHECK(page.find(text) != std::string::npos);
  CHECK(page.find("src=") == std::string::npos);
  CHECK(page.find("href=") == std::string::npos);
  CHECK(svg.rfind("<svg", 0) == 0);
}

TEST_CASE("the header compiles, and holds the same rectangles on the same ranks") {
  const fs::path include = bin() / "../../../include";
  if (!fs::exists(include / "tessera")) return;
  // Every cut there is.
  const Run run("m.json", kModel,
                "--ranks 8 --ranks-per-node 4 --header plan.hpp --json plan.json --pin query=grid:2 --pin user=column-wise:4 "
                "--pin country=replicated --pin 'a \"quoted\" <name>=table-wise@5'");
  REQUIRE(run.err == "");
  std::string test =
      "#include \"plan.hpp\"\nconstexpr bool same() {\n  const tessera::Layout l = planned::Plan::layout({8, 4});\n  int found = 0;\n";
  int shards = 0;
  const nlohmann::json json = run.json("plan.json");
  for (const auto& s : json.at("shards")) {
    ++shards;
    test += fmt::format(
        "  for (const tessera::Shard& s : l.shards) found += l.tables[s.table].name == {} && s.rectangle == tessera::Rectangle{{{}, {}, "
        "{}, {}}} && s.rank == {};\n",
        s["table"].dump(), s["rows"][0].get<std::int64_t>(), s["rows"][1].get<std::int64_t>(), s["columns"][0].get<int>(),
        s["columns"][1].get<int>(), s["rank"].get<int>());
  }
  CHECK(shards == 8 + 4 + 1 + 1);
  test += fmt::format(
      "  return l.fault.ok() && found == {0} && l.shards.size() == {0} && l.features.size() == 5;\n}}\nstatic_assert(same());\n"
      "static_assert(planned::kCluster.ranks == 8);\n",
      shards);
  std::ofstream(run.folder.path / "test.cpp") << test;
  const int status = std::system(fmt::format("c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I '{}' '{}' >'{}' 2>&1", include.string(),
                                             (run.folder.path / "test.cpp").string(), (run.folder.path / "log").string())
                                     .c_str());
  INFO(text_of(run.folder.path / "log").substr(0, 2000));
  CHECK(status == 0);
}

TEST_CASE("other files: groups of tables, cardinalities, a feature specification") {
  const std::string groups = R"({"common": {"id_distribution": {"alpha_flag_default": 1.05, "ids_are_frequency_sorted": true}},
    "models": {"tiny": {"num_numerical_features": 10, "mlp_sizes": [256, 128], "interact_stride": null, "embedding_groups": [
      {"num_tables": 2, "hotness": [1, 10], "num_rows": 10000, "width": 8, "shared": true},
      {"num_tables": 3, "hotness": [1], "num_rows": 1000000, "width": 16, "shared": false}]}}})";
  const Run tiny("m.json", groups, "--model tiny --ranks 4");
  CHECK(tiny.err == "");
  CHECK(tiny.out.find("tiny: 5 tables, 7 features, 4 ranks, batch 65536") != std::string::npos);
  const Run sets("m.json", R"({"embedding_dim": 32, "sets": {"s": {"cardinalities": [100, 200000], "multi_hot_sizes_v2": [3, 1]}}})",
                 "--model s --ranks 2");
  CHECK(sets.out.find("s: 2 tables, 2 features") != std::string::npos);
  const std::string yaml =
      "channel_spec:\n  categorical:\n  - cat_1.bin\n  - cat_0.bin\n  label: [label]\n  numerical: &id001\n  - num_0\n"
      "feature_spec:\n  cat_0.bin:\n    cardinality: 7912889  # rows\n    dtype: int32\n  cat_1.bin: \n    cardinality: 33823\n    "
      "hotness: 3\n"
      "  num_0:\n    dtype: float16\nmetadata: {}\nsource_spec:\n  train:\n  - features: *id001\n    files:\n    - train/numerical.bin\n";
  const Run spec("m.yaml", yaml, "--ranks 2 --width 16");
  CHECK(spec.err == "");
  CHECK(spec.out.find("2 tables, 2 features, 2 ranks") != std::string::npos);
  CHECK(spec.out.find("cat_0.bin                  7912889     16") != std::string::npos);
  const Run bad("m.yaml", "channel_spec:\n  categorical:\n  - a\nfeature_spec:\n  a:\n    cardinality: many\n", "");
  CHECK(bad.err == "tessera_plan: m.yaml:6: cardinality 'many' is not a positive number\n");
  const Run absent("m.yaml", "channel_spec:\n  categorical: [a, b]\nfeature_spec:\n  a:\n    cardinality: 10\n", "");
  CHECK(absent.err == "tessera_plan: m.yaml: channel_spec names 'b', which feature_spec lacks\n");
  CHECK(Run("m.json", groups, "").err.find("--model must name one of: tiny") != std::string::npos);
}

TEST_CASE("constraints, and what cannot be") {
  const Run forbidden("m.json", kModel,
                      "--ranks 8 --forbid replicated --forbid row-wise --forbid grid --forbid column-wise --json plan.json");
  CHECK(forbidden.json("plan.json")["shards"].size() == 4);
  const auto fails = [](const std::string& model, const std::string& arguments, const std::string& text, int status = 1) {
    const Run run("m.json", model, arguments);
    CAPTURE(arguments);
    CHECK(run.status == status);
    INFO(run.err);
    CHECK(run.err.find(text) != std::string::npos);
    CHECK(run.err.find('\n') == run.err.size() - 1);
  };
  CHECK(Run(".", "", "").err == "tessera_plan: '.' is a folder, not a file\n");
  fails(kModel, "--ranks 2 --memory 4", "no plan fits: table 'query' has 20640000000 bytes");
  fails(kModel, "--ranks 4 --memory 6 --forbid row-wise --forbid column-wise --forbid grid",
        "without the pins and forbidden policies it would fit");
  fails(kModel, "--pin nobody=row-wise", "has no table 'nobody'");
  fails(kModel, "--pin user=upside-down", "there is no policy 'upside-down'");
  fails(kModel, "--pin user", "write TABLE=POLICY");
  fails(kModel, "--ranks 0", "--ranks", 2);
  for (const char* option : {"--header", "--page", "--svg", "--json", "--cluster", "--model", "--pin", "--forbid"})
    fails(kModel, std::string(option) + " ''", option, 2);
  fails(kModel, "--cluster nowhere.json", "cannot read 'nowhere.json'");
  fails(kModel, "--page /nowhere/page.html", "cannot write");
  fails("{\"tables\": [", "", "parse error");
  fails("{}", "", "'tables' is missing");
  fails(R"({"tables": []})", "", "there are no tables");
  fails(R"({"tables": [{"name": "a", "rows": -1}]})", "", "m.json.tables[0].rows: -1 is not in 1");
  fails(R"({"tables": [{"name": "a", "rows": "x"}]})", "", "m.json.tables[0].rows: must be a whole number");
  fails(R"({"tables": [{"name": "a", "rows": 5}, {"name": "a", "rows": 5}]})", "", "the name 'a' stands twice");
  fails(R"({"tables": [{"name": "a", "rows": 5, "pooling": "max"}]})", "", "'max' is neither sum nor mean");
}
