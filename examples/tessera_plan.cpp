// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Chooses a sharding plan for the tables of a file, and prints, draws and writes it.
//   tessera_plan MODEL.json --ranks 8 --page plan.html --header plan.hpp
#include "support/options.hpp"
#include "tessera_plan/choices.hpp"
#include "tessera_plan/cluster_file.hpp"
#include "tessera_plan/id_statistics.hpp"
#include "tessera_plan/model.hpp"
#include "tessera_plan/output.hpp"
#include "tessera_plan/plain_yaml.hpp"

#include <tessera/core/error.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/plan_file.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace tessera;
using namespace plan;

struct Options {
  std::string file, model, cluster = "dgx-a100", optimizer = "rowwise-adagrad", out, header,
                           name_space = "planned", page, svg, json, depfile, ids, statistics;
  int ranks = 8, ranks_per_node = -1, cores = -1, width = 128, element_bytes = 4;
  double memory = -1, host_memory = -1, file_memory = -1, reserve = 0, skew = -1,
         memory_balance = tessera::detail::PlanConstraints{}.memory_balance, memory_share = 0;
  std::int64_t batch = 0;
  std::size_t tables = 40;
  std::vector<std::string> pins, forbidden;
  std::vector<std::string> pin_places;  ///< for errors
  std::string cluster_place;            ///< likewise; empty: the command line
  Model read;                           ///< the tables
};

std::int64_t gib(double value) { return static_cast<std::int64_t>(value * 1024 * 1024 * 1024); }

Constants constants_of(const Options& options) {
  Constants constants;
  try {
    constants = constants_named(options.cluster, parse_cluster);
  } catch (const DataError& error) {
    throw DataError(options.cluster_place + error.what());
  }
  constants.cluster.ranks = options.ranks;
  if (options.ranks_per_node >= 0) constants.cluster.ranks_per_node = options.ranks_per_node;
  if (options.cores >= 0) constants.cluster.concurrent_ranks = options.cores;
  if (const int cores = constants.cluster.concurrent_ranks;
      cores > 0 && cores < constants.cluster.topology().node_size())
    constants.source +=
        fmt::format("; the ranks of a node share {} core{}", cores, cores == 1 ? "" : "s");
  if (options.memory >= 0) constants.cluster.memory_per_rank = gib(options.memory);
  if (options.host_memory >= 0) constants.cluster.host_memory_per_rank = gib(options.host_memory);
  if (options.file_memory >= 0) constants.cluster.file_memory_per_rank = gib(options.file_memory);
  if (constants.cluster.file_memory_per_rank > 0 && !constants.files_measured)
    constants.source +=
        fmt::format("; files: {:.2f} GB/s, assumed (bench_sharding --files FOLDER measures a disk)",
                    1e-9 * constants.cluster.file_bandwidth);
  return constants;
}

/// A file to write, if its option is given.
struct Output {
  Output(const char* option, const std::string& path) {
    if (!path.empty()) file.emplace(path, option);
  }
  void write(const std::string& text) {
    if (file) file->write(text);
  }
  std::optional<support::ResultFile> file;
};

nlohmann::ordered_json json_of(const Report& report) {
  const detail::Prediction& planned = report.chosen().prediction;
  nlohmann::ordered_json json{
      {"model", report.model.name},
      {"cluster", to_json(report.cluster)},
      {"constants", {{"source", report.source}, {"measured", report.measured}}}};
  for (const detail::StepPart& part : detail::step_parts)
    json["step"][std::string(part.name)] = planned.stages.*part.seconds;
  if (report.runner_up.seconds >= 0)
    json["runner_up"] = {{"name", report.runner_up.name},
                         {"step_seconds", report.runner_up.seconds}};
  for (const detail::CutReason& r : report.reasons)
    json["tables"].push_back({{"name", report.model.tables[static_cast<std::size_t>(r.table)].name},
                              {"features", features_text(report, r.table)},
                              {"cut", describe(r.cut)},
                              {"reason", describe(r)}});
  for (const Candidate& c : report.candidates)
    json["plans"].push_back({{"name", c.name},
                             {"fits", c.fits},
                             {"step_seconds", c.prediction.step_seconds},
                             {"memory_imbalance", c.prediction.memory_imbalance()},
                             {"time_imbalance", c.prediction.time_imbalance()},
                             {"most_bytes", c.prediction.most_bytes()},
                             {"most_host_bytes", c.prediction.most_host_bytes()},
                             {"most_file_bytes", c.prediction.most_file_bytes()}});
  const Layout& layout = report.chosen().layout;
  for (const Shard& s : layout.shards)
    json["shards"].push_back({{"table", layout.tables[static_cast<std::size_t>(s.table)].name},
                              {"rows", {s.rectangle.row_begin, s.rectangle.row_end}},
                              {"columns", {s.rectangle.column_begin, s.rectangle.column_end}},
                              {"rank", s.rank},
                              {"memory", to_string(s.tier)},
                              {"cache_rows", s.cache_rows}});
  return json;
}

Candidate candidate(std::string name, detail::PlanChoice choice, const Layout& uncut,
                    const detail::CostModel& model, std::int64_t reserve, bool traffic) {
  Candidate c{std::move(name), std::move(choice), uncut, {}, true};
  c.layout.shards = shards_of(c.choice, uncut);
  c.prediction = predict(c.layout, model, traffic);
  c.fits = detail::fits_cluster(c.prediction, model.cluster(), reserve);
  return c;
}

/// Tables x ranks that are planned in about a minute.
constexpr std::int64_t kMostPlaces = 2'000'000;

/// Why no plan fits, and what each change by itself would do.
std::string no_fit_text(const Layout& uncut, const Cluster& cluster, const Workload& workload,
                        const detail::PlanConstraints& constraints, const Options& options) {
  const PlanFault fault = detail::explain_no_fit(uncut, cluster, workload, constraints);
  std::int64_t all = 0;
  for (const TableSpec& t : uncut.tables) all += workload.memory.of({0, t.rows, 0, t.width});
  std::string text = fmt::format(
      "no plan fits: the tables take {}, the largest, '{}', {}; {} ranks have {} each for tables",
      detail::bytes_text(all), fault.name, detail::bytes_text(fault.found), cluster.ranks,
      detail::bytes_text(fault.limit));
  const std::int64_t elsewhere = cluster.host_memory_per_rank + cluster.file_memory_per_rank;
  if (elsewhere > 0)
    text += fmt::format(", {} of it in their own memory, which holds caches of the rest, too",
                        detail::bytes_text(fault.limit - elsewhere));
  if (fault.remedy == PlanFault::Remedy::lift_constraints)
    return text + "; without --pin and --forbid a plan would fit";
  std::vector<std::string> remedies;
  if (fault.remedy == PlanFault::Remedy::free_reserve) remedies.push_back("a smaller --reserve");
  Workload half = workload;
  half.element_bytes = 2;
  half.memory.per_element -= 2;
  const auto fits = [&](const Cluster& on, const Workload& as) {
    const Layout layout = uncut_layout(on.topology(), options.read.tables, options.read.features);
    const detail::CostModel costs(layout.tables, layout.features, layout.feature_table, on, as);
    return detail::Planner(layout, costs, constraints).search().fits;
  };
  if (options.element_bytes == 4 &&
      detail::bytes_by_rows(uncut, half.memory, cluster.ranks) <= fault.limit &&
      fits(cluster, half))
    remedies.push_back("--element-bytes 2 (tables of 16-bit elements)");
  Cluster more = cluster;
  for (int doubled = 1; elsewhere > 0 && doubled <= 20; ++doubled) {
    more.memory_per_rank = cluster.memory_per_rank << doubled;
    if (!fits(more, workload)) continue;
    remedies.push_back(fmt::format("--memory {:.4g}", static_cast<double>(more.memory_per_rank) /
                                                          static_cast<double>(1 << 30)));
    break;
  }
  // The least number is a bound: tables are not cut as evenly as it assumes.
  more.memory_per_rank = cluster.memory_per_rank;
  std::int64_t ranks = detail::ranks_that_fit(uncut, workload.memory, cluster.ranks, fault.limit);
  for (int tries = 0; ranks > 0 && ranks * std::ssize(uncut.tables) < kMostPlaces / 100; ++tries) {
    more.ranks = static_cast<int>(ranks);
    if (fits(more, workload)) break;
    ranks = tries < 10 ? ranks + std::max<std::int64_t>(1, ranks / 4) : 0;
  }
  if (ranks > 0) remedies.push_back(fmt::format("--ranks {}", ranks));
  if (remedies.empty()) return text + "; no number of ranks would help: each needs more memory";
  text += "; what would do: " + remedies.front();
  for (std::size_t i = 1; i < remedies.size(); ++i) text += ", or " + remedies[i];
  return text + (constraints.pins.empty() && constraints.forbidden.empty()
                     ? ""
                     : ", without --pin and --forbid");
}

/// Returns "model.yaml:3: cluster.memory: " if the file says what a rank has.
std::string place_of_memory(const Model& model) {
  for (const char* option : {"--memory", "--ranks", "--cluster"})
    for (const Setting& setting : model.settings)
      if (setting.option == option) return setting.place + ": ";
  return {};
}

/// Writes for make and ninja which files the header is made of.
std::string dependencies(const Options& options, bool cluster_file) {
  const auto written = [](const std::string& path) {
    std::string out;
    for (const char c : std::filesystem::absolute(path).lexically_normal().string()) {
      if (c == ' ' || c == '#') out += '\\';
      if (c == '$') out += '$';
      out += c;
    }
    return out;
  };
  std::string text = written(options.header) + ": " + written(options.file);
  for (const std::string* read : {&options.read.data, &options.read.statistics})
    if (!read->empty()) text += " " + written(*read);
  if (cluster_file) text += " " + written(options.cluster);
  return text + "\n";
}

void run(Options& options) {
  const bool drawn = !options.page.empty() || !options.svg.empty();
  require<CLI::ValidationError>(!drawn || options.ranks <= kMostDrawnRanks,
                                "--page and --svg draw at most {} ranks; take --json for {}",
                                kMostDrawnRanks, options.ranks);
  const bool own_file = is_cluster_file(options.cluster);
  support::check_paths({{"FILE", options.file},
                        {"data", options.read.data},
                        {"--cluster", own_file ? options.cluster : std::string()}},
                       {{"--out", options.out},
                        {"--header", options.header},
                        {"--page", options.page},
                        {"--svg", options.svg},
                        {"--json", options.json},
                        {"--depfile", options.depfile}});
  require<CLI::ValidationError>(options.depfile.empty() || !options.header.empty(),
                                "--depfile tells what a header is made of; give --header, too");
  Model& model = options.read;
  require(std::ssize(model.tables) * options.ranks <= kMostPlaces,
          "{}: {} tables on {} ranks are more than is planned in one piece ({} x {} is over {}): "
          "plan for fewer ranks, or join small "
          "tables of one width",
          options.file, model.tables.size(), options.ranks, model.tables.size(), options.ranks,
          kMostPlaces);
  Workload workload = model.workload;
  if (options.batch > 0) workload.batch = options.batch;
  if (options.skew >= 0) workload.skew = options.skew;
  workload.element_bytes = options.element_bytes;
  const OptimizerName& optimizer = optimizer_named(options.optimizer);
  workload.memory = optimizer.memory;
  workload.memory.per_element += options.element_bytes - 4;
  const Constants constants = constants_of(options);
  const Cluster& cluster = constants.cluster;
  detail::PlanConstraints constraints{.reserve = gib(options.reserve),
                                      .memory_balance = options.memory_balance,
                                      .memory_share = options.memory_share};
  for (std::size_t p = 0; p < options.pins.size(); ++p) try {
      constraints.pins.push_back(
          parse_pin(options.pins[p], options.pin_places[p], model, options.ranks));
    } catch (const CLI::ValidationError& error) {
      if (options.pin_places[p].starts_with("--")) throw;
      throw DataError(error.what());
    }
  constraints.forbidden = forbidden_cuts(options.forbidden);

  Output out("--out", options.out), header("--header", options.header),
      page("--page", options.page), svg("--svg", options.svg), json("--json", options.json),
      depfile("--depfile", options.depfile);
  const Layout uncut = uncut_layout(cluster.topology(), model.tables, model.features);
  require(uncut.fault.ok(), "{}: {}", options.file, describe(uncut.fault));
  const detail::CostModel costs(uncut.tables, uncut.features, uncut.feature_table, cluster,
                                workload);
  Report report{model,
                cluster,
                workload,
                constants.source,
                constants.measured,
                optimizer.type,
                !constraints.pins.empty() || !constraints.forbidden.empty()};
  detail::PlanChoice choice = detail::Planner(uncut, costs, constraints).search();
  if (!choice.fits)
    throw InvalidArgument(place_of_memory(model) +
                          no_fit_text(uncut, cluster, workload, constraints, options));
  report.candidates.push_back(candidate("planned", std::move(choice), uncut, costs,
                                        constraints.reserve, !options.page.empty()));
  for (const Strategy s : detail::all_strategies)
    report.candidates.push_back(candidate(std::string(to_string(s)), strategy_choice(s, uncut),
                                          uncut, costs, constraints.reserve, false));
  report.runner_up = detail::runner_up(report.chosen().layout, costs, constraints);
  report.reasons = detail::explain_cuts(report.chosen().layout, costs, constraints,
                                        largest_tables(model, workload, options.tables));

  fmt::print("{}: {} tables, {} features, {} ranks, batch {}\n\n{}", model.name,
             model.tables.size(), model.features.size(), cluster.ranks, workload.batch,
             text_of(report));
  out.write(plan_file_text(report.chosen().layout));
  header.write(header_of(report, options.name_space));
  if (page.file) page.write(page_of(report));
  if (svg.file) svg.write(svg_of(report));
  json.write(json_of(report).dump(1) + "\n");
  if (depfile.file) depfile.write(dependencies(options, own_file));
}

/// A number in [least, most]; no other check refuses nan.
CLI::Option* between(CLI::Option* option, double least, double most) {
  return option->check([least, most](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return {};
    return fmt::format("{} is not a number from {} to {}", text, least, most);
  });
}

/// What is wrong with the name of a namespace; "" if nothing is.
std::string is_namespace(const std::string& text) {
  // that are no names, and those that the header needs
  static const std::set<std::string_view> words{"alignas",       "alignof",     "and",
                                                "and_eq",        "asm",         "auto",
                                                "bitand",        "bitor",       "bool",
                                                "break",         "case",        "catch",
                                                "char",          "char16_t",    "char32_t",
                                                "char8_t",       "class",       "co_await",
                                                "co_return",     "co_yield",    "compl",
                                                "concept",       "const",       "const_cast",
                                                "consteval",     "constexpr",   "constinit",
                                                "continue",      "decltype",    "default",
                                                "delete",        "do",          "double",
                                                "dynamic_cast",  "else",        "enum",
                                                "explicit",      "export",      "extern",
                                                "false",         "float",       "for",
                                                "friend",        "goto",        "if",
                                                "inline",        "int",         "long",
                                                "mutable",       "namespace",   "new",
                                                "noexcept",      "not",         "not_eq",
                                                "nullptr",       "operator",    "or",
                                                "or_eq",         "private",     "protected",
                                                "public",        "register",    "reinterpret_cast",
                                                "requires",      "return",      "short",
                                                "signed",        "sizeof",      "static",
                                                "static_assert", "static_cast", "std",
                                                "struct",        "switch",      "template",
                                                "tessera",       "this",        "thread_local",
                                                "throw",         "true",        "try",
                                                "typedef",       "typeid",      "typename",
                                                "union",         "unsigned",    "using",
                                                "virtual",       "void",        "volatile",
                                                "wchar_t",       "while",       "xor",
                                                "xor_eq"};
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::size_t end = rest.find("::");
    const std::string_view name = rest.substr(0, end);
    const bool letters = !name.empty() && (name.front() < '0' || name.front() > '9') &&
                         std::all_of(name.begin(), name.end(), [](char c) {
                           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                  (c >= '0' && c <= '9') || c == '_';
                         });
    if (!letters || words.contains(name))
      return fmt::format("'{}' is not a namespace of your own, as shop or shop::ads", text);
    more = end != rest.npos;
    if (more) rest.remove_prefix(end + 2);
  }
  return {};
}

/// Gives options what the file says of them, unless the command line does. Throws DataError with the
/// file and the line.
void apply_settings(CLI::App& app, Options& o) {
  std::set<std::string> given;
  for (const Setting& setting : o.read.settings)
    if (app.get_option(setting.option)->count() > 0) given.insert(setting.option);
  std::erase_if(o.read.settings, [&](const Setting& s) { return given.contains(s.option); });
  for (const std::string& pin : o.pins) o.pin_places.push_back("--pin " + pin);
  for (const Setting& setting : o.read.settings) {
    CLI::Option* const option = app.get_option(setting.option);
    try {
      option->add_result(setting.value);
      option->run_callback();
    } catch (const CLI::Error& error) {
      std::string_view text = error.what();
      if (text.starts_with(setting.option + ": ")) text.remove_prefix(setting.option.size() + 2);
      throw DataError(fmt::format("{}: {}", setting.place, text));
    }
    if (setting.option == "--pin") o.pin_places.push_back(setting.place);
    if (setting.option == "--cluster") o.cluster_place = setting.place + ": ";
  }
}

/// Plans for recorded ids, and writes down what they say.
void measure_ids(Options& o) {
  const Layout uncut = uncut_layout(Topology{1}, o.read.tables, o.read.features);
  require(uncut.fault.ok(), "{}: {}", o.file, describe(uncut.fault));
  const std::string text = statistics_text(
      read_ids(o.ids, "--measure-ids", uncut.features, uncut.tables, uncut.feature_table),
      uncut.features, uncut.tables, uncut.feature_table,
      o.batch > 0 ? o.batch : o.read.workload.batch);
  take_statistics(o.read, o.ids, text);
  Output("--statistics", o.statistics).write(text);
}

std::optional<Options> parse(int argc, char** argv) {
  Options o;
  CLI::App app(
      "Chooses how embedding tables are cut over ranks, and prints, draws and writes the plan.",
      "tessera_plan");
  app.option_defaults()->always_capture_default();
  app.add_option("model", o.file, "Tables: JSON or YAML, or a feature specification")
      ->required()
      ->option_text("FILE");
  app.add_option("--model", o.model, "Name of the model, in a file of several")
      ->option_text("NAME");
  app.add_option("--width", o.width, "Of tables for which the file names none")
      ->check(CLI::Range(1, 65536));
  app.add_option("--cluster", o.cluster,
                 "dgx-a100, hgx-h200, cpu, host (as bench_sharding measured this machine), or a "
                 "file of constants");
  app.add_option("--ranks", o.ranks)->check(CLI::Range(1, 32767));
  app.add_option("--ranks-per-node", o.ranks_per_node, "0: one node")
      ->check(CLI::Range(0, 32767))
      ->option_text("N [the cluster's]");
  app.add_option("--cores", o.cores,
                 "Ranks of a node that run at one time, where ranks are threads or processes of a "
                 "host; 0: all")
      ->check(CLI::Range(0, 32767))
      ->option_text("N [the cluster's; of cpu, this machine's cores]");
  between(app.add_option("--memory", o.memory, "GiB per rank; 0: no limit"), 0, 1e9)
      ->option_text("GIB [the cluster's]");
  between(app.add_option("--host-memory", o.host_memory,
                         "GiB of the host's memory per rank, for tables that a GPU reads there; 0: "
                         "none is kept there"),
          0, 1e9)
      ->option_text("GIB [the cluster's]");
  between(app.add_option("--file-memory", o.file_memory,
                         "GiB of a disk per rank, for tables in files behind caches, where ranks "
                         "are hosts; 0: none is kept there"),
          0, 1e9)
      ->option_text("GIB [the cluster's]");
  between(app.add_option("--reserve", o.reserve, "GiB per rank that tables may not use"), 0, 1e9);
  between(app.add_option("--batch", o.batch, "Samples of a step, over all ranks"), 1, 1e12)
      ->option_text("B [the file's, or 65536]");
  between(app.add_option("--skew", o.skew, "Exponent of the ids' power law"), 0, 16)
      ->option_text("A [the file's, or 1.05]");
  app.add_option("--optimizer", o.optimizer)
      ->check(CLI::IsMember({"sgd", "adagrad", "rowwise-adagrad", "adam"}));
  app.add_option("--measure-ids", o.ids,
                 "Recorded ids to plan for, as bench_sharding --ids reads them: a folder or a file")
      ->option_text("FOLDER|FILE");
  app.add_option("--statistics", o.statistics,
                 "What --measure-ids found: written with that option, read without it")
      ->option_text("FILE");
  app.add_option("--element-bytes", o.element_bytes, "4, or 2 for tables of 16-bit elements")
      ->check(CLI::IsMember({2, 4}));
  app.add_option("--pin", o.pins,
                 "TABLE=POLICY, TABLE=column-wise:4, TABLE=table-wise@3; may be repeated")
      ->allow_extra_args(false)
      ->option_text("PIN");
  app.add_option("--forbid", o.forbidden, "A policy that no other table may get; may be repeated")
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        return find_cut(text) ? std::string()
                              : fmt::format("there is no policy '{}': {}", text, kCutNames);
      })
      ->option_text("POLICY");
  between(
      app.add_option("--memory-balance", o.memory_balance,
                     "How much slower a step counts whose fullest rank holds a rank's whole memory "
                     "more than an even share"),
      0, 1e9);
  between(app.add_option(
              "--memory-share", o.memory_share,
              "No rank holds more even shares than this, where a plan can do so; 0: no such limit"),
          0, 1e9);
  app.add_option("--tables", o.tables, "Tables to print and to explain, largest first");
  app.add_option("--out", o.out, "Write a plan file, as train_dlrm --plan-file reads it")
      ->option_text("FILE");
  CLI::Option* const header =
      app.add_option("--header", o.header, "Write a C++ header with the plan as a type")
          ->option_text("FILE");
  app.add_option("--namespace", o.name_space, "Of the header: A, or A::B")
      ->check(is_namespace)
      ->option_text("NAME [planned]")
      ->needs(header);
  app.add_option("--depfile", o.depfile,
                 "Write for make and ninja which files the header is made of")
      ->option_text("FILE");
  app.add_option("--page", o.page, "Write a page that draws the plan")->option_text("FILE");
  app.add_option("--svg", o.svg, "Write the drawing alone")->option_text("FILE");
  app.add_option("--json", o.json, "Write rectangles and predictions")->option_text("FILE");
  support::refuse_empty_values(app);
  if (!support::parse(app, argc, argv)) return std::nullopt;
  support::check_paths({{"FILE", o.file}, {"--measure-ids", o.ids}},
                       {{"--statistics", o.ids.empty() ? std::string() : o.statistics}});
  o.read = read_model(o.file, o.model, o.width);
  if (!o.ids.empty())
    measure_ids(o);
  else if (!o.statistics.empty())
    take_statistics(o.read, o.statistics, support::read_file(o.statistics, "--statistics"));
  apply_settings(app, o);
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  return support::run_program("tessera_plan", "plan for fewer tables or ranks", [&] {
    if (auto options = parse(argc, argv)) run(*options);
    return 0;
  });
}
