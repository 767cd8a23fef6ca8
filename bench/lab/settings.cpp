// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include "../../examples/support/files.hpp"
#include "../../examples/support/options.hpp"
#include "../../examples/tessera_plan/choices.hpp"
#include "../../examples/tessera_plan/plain_yaml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

namespace lab {
namespace {

using namespace tessera;

constexpr std::array<const char*, 5> kAxes{"deduplicate", "optimizer", "codec", "precision",
                                           "overlap"};

std::unique_ptr<CLI::App> command(Settings& o) {
  auto made = std::make_unique<CLI::App>(
      "Measures sharding plans of your model with your ids, beside what the cost model predicts.",
      o.program);
  CLI::App& app = *made;
  app.option_defaults()->always_capture_default();
  app.add_option("--model", o.model_file, "Tables: JSON or YAML, as tessera_plan reads them")
      ->required()
      ->option_text("FILE");
  app.add_option("--model-name", o.model_name, "Name of the model, in a file of several")
      ->option_text("NAME");
  app.add_option("--width", o.width, "Of tables for which the file names none")
      ->check(CLI::Range(1, 65536));
  app.add_option(
         "--ids", o.ids,
         "Recorded ids: a folder of FEATURE.values.npy and FEATURE.offsets.npy, or a CSV or "
         "TSV file with a column for each feature and | between the ids of a sample; "
         "without: drawn by the tables' power laws")
      ->option_text("FOLDER|FILE");
  app.add_option("--statistics", o.statistics,
                 "What ids are drawn by, and planned for: a file of tessera_plan --measure-ids")
      ->option_text("FILE")
      ->excludes("--ids");
  app.add_option("--plans", o.plans,
                 "auto, table-wise, memory-balanced, memory-optimized, column-wise, row-wise, "
                 "interleaved, hot-rows:N, replicated, grid, and plan files")
      ->delimiter(',')
      ->option_text("PLAN,... [auto,table-wise,column-wise,row-wise]");
  app.add_option("--ranks", o.ranks,
                 "Numbers of thread ranks; ghost:N runs one rank of N, whose peers are made up")
      ->delimiter(',')
      ->option_text("N,... [2]");
  app.add_option("--which", o.which, "The rank of ghost:N that runs; all: each in turn")
      ->option_text("RANK|all [all]");
  app.add_option(
         "--axes", o.axes,
         "Measure each plan along these, too: deduplicate (off, on), optimizer (sgd, "
         "adagrad, rowwise-adagrad, adam), codec (fp32, bf16), precision of the tables (fp32, "
         "bf16, fp16), overlap (off, on: a thread routes the next batch meanwhile)")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(kAxes.begin(), kAxes.end())))
      ->option_text("AXIS,...");
  app.add_option("--optimizer", o.optimizer, "Of all tables, if it is no axis")
      ->check(CLI::IsMember({"sgd", "adagrad", "rowwise-adagrad", "adam"}));
  app.add_option("--batch", o.batch, "Samples of a step, over all ranks")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32))
      ->option_text("B [the file's, or 4096]");
  app.add_option("--batches", o.batches, "That the steps take in turn, at most")
      ->check(CLI::Range(1, 1000));
  support::limit(
      app.add_option("--skew", o.skew, "Exponent of the power law of ids that are drawn"), 0.0,
      16.0, "A", "the file's, or 1.05")
      ->excludes("--ids");
  app.add_option("--steps", o.steps,
                 "Of a case in a round, rounded up to whole turns of the batches")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--rounds", o.rounds, "In each, every case has its turn once")
      ->check(CLI::Range(1, 10'000));
  support::limit(app.add_option("--seed", o.seed, "Of the turns, and of ids that are drawn"),
                 std::uint64_t{0}, ~std::uint64_t{0}, "N");
  app.add_option(
         "--cluster", o.cluster,
         "Constants of the predictions and of auto: dgx-a100, hgx-h200, cpu, host, or a file")
      ->option_text("NAME|FILE [host if it was measured, else cpu]");
  app.add_option("--pin", o.pins, "For auto, as tessera_plan takes it; may be repeated")
      ->allow_extra_args(false)
      ->option_text("PIN");
  app.add_option("--forbid", o.forbidden, "A policy that auto may not use; may be repeated")
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        return plan::find_cut(text)
                   ? std::string()
                   : fmt::format("there is no policy '{}': {}", text, plan::kCutNames);
      })
      ->option_text("POLICY");
  app.add_option("--out", o.out, "Folder of results.json, results.csv, index.html, rounds.jsonl")
      ->option_text("FOLDER [lab]");
  app.add_option("--compare", o.compare, "An earlier results.json: marks what changed beyond noise")
      ->option_text("FILE");
  app.add_flag("--resume", o.resume, "Go on with what is in --out");
  support::refuse_empty_values(app);
  return made;
}

/// Gives options what the model file says of them, unless the command line does. What only a plan
/// for other machines needs (memory, nodes) is left.
void apply_file(CLI::App& app, Settings& o) {
  std::set<std::string> given;
  for (const plan::Setting& setting : o.model.settings)
    if (CLI::Option* const option = app.get_option_no_throw(setting.option);
        option != nullptr && option->count() > 0)
      given.insert(setting.option);
  for (const std::string& pin : o.pins) o.pin_places.push_back("--pin " + pin);
  for (const plan::Setting& setting : o.model.settings) {
    CLI::Option* const option = app.get_option_no_throw(setting.option);
    // a file's cluster is where the model will run; what is measured here runs here
    if (option == nullptr || given.contains(setting.option) || setting.option == "--ranks" ||
        setting.option == "--cluster")
      continue;
    try {
      option->add_result(setting.value);
      option->run_callback();
    } catch (const CLI::Error& error) {
      throw DataError(fmt::format("{}: {}", setting.place, error.what()));
    }
    if (setting.option == "--pin") o.pin_places.push_back(setting.place);
  }
}

void require_links(const Settings& o) {
  const bool several = std::any_of(o.ranks.begin(), o.ranks.end(),
                                   [](const std::string& ranks) { return ranks != "1"; });
  const bool nodes = std::any_of(o.ranks.begin(), o.ranks.end(), [&](const std::string& ranks) {
    const RankChoice choice = rank_choice(ranks);
    return choice.ghosts && o.constants.cluster.ranks_per_node > 0 &&
           choice.ranks > o.constants.cluster.ranks_per_node;
  });
  std::vector<std::string> links{"node_bandwidth", "node_latency"};
  if (nodes) links.insert(links.end(), {"network_bandwidth", "network_latency"});
  for (const std::string& link : links)
    require<DataError>(
        !several || std::find(o.constants.missing.begin(), o.constants.missing.end(), link) ==
                        o.constants.missing.end(),
        "--cluster: '{}' has no '{}', which steps of several ranks need; add the links' constants, "
        "or give --ranks 1",
        o.cluster, link);
}

}  // namespace

RankChoice rank_choice(const std::string& text) {
  const std::string ghost = "ghost:";
  const bool ghosts = text.starts_with(ghost);
  return {plan::number(ghosts ? text.substr(ghost.size()) : text, 1, 1024, "--ranks"), ghosts};
}

bool Settings::has_axis(const std::string& name) const {
  return std::find(axes.begin(), axes.end(), name) != axes.end();
}

std::optional<Settings> read_settings(int argc, const char* const* argv,
                                      const std::vector<NamedPolicy>& policies,
                                      const std::string& program) {
  Settings o;
  o.program = program;
  o.policies = policies;
  for (const NamedPolicy& policy : policies) o.plans.push_back(policy.name);
  const std::unique_ptr<CLI::App> app = command(o);
  if (!support::parse(*app, argc, argv)) return std::nullopt;
  support::check_paths({{"--model", o.model_file},
                        {"--ids", o.ids},
                        {"--statistics", o.statistics},
                        {"--compare", o.compare}},
                       {});
  for (std::vector<std::string>* list : {&o.plans, &o.ranks, &o.axes}) {
    std::set<std::string> seen;
    for (const std::string& one : *list)
      require<CLI::ValidationError>(seen.insert(one).second, "'{}' is in a list twice", one);
  }
  o.model = plan::read_model(o.model_file, o.model_name, o.width);
  if (!o.statistics.empty())
    plan::take_statistics(o.model, o.statistics, support::read_file(o.statistics, "--statistics"));
  const auto only_for = [&](const char* option, bool right, const char* what) {
    require<CLI::ValidationError>(right || app->count(option) == 0,
                                  "{} is for {}; add that or leave it out", option, what);
  };
  const bool chosen = std::find(o.plans.begin(), o.plans.end(), "auto") != o.plans.end();
  // before the model's file adds its own, which wait for an auto
  only_for("--pin", chosen, "auto in --plans");
  only_for("--forbid", chosen, "auto in --plans");
  apply_file(*app, o);
  if (o.skew >= 0) o.model.workload.skew = o.skew;
  if (o.batch == 0)
    o.batch = o.model.workload.batch == Workload{}.batch ? 4096 : o.model.workload.batch;
  o.optimizers = {o.optimizer};
  if (o.has_axis("optimizer")) {
    o.optimizers.clear();
    for (const plan::OptimizerName& known : plan::kOptimizers)
      o.optimizers.emplace_back(known.option);
  }
  if (o.has_axis("codec")) o.codecs = {"fp32", "bf16"};
  if (o.has_axis("precision")) o.precisions = {"fp32", "bf16", "fp16"};
  for (const std::string& ranks : o.ranks)
    require<CLI::ValidationError>(
        !o.has_axis("overlap") || !rank_choice(ranks).ghosts,
        "--axes: overlap is not measured on '{}': a ghost's messages take no time, so that routing "
        "ahead hides none; give thread ranks, or leave the axis out",
        ranks);
  if (o.cluster.empty()) o.cluster = plan::cached_constants() ? "host" : "cpu";
  o.constants = plan::constants_named(o.cluster, plan::parse_cluster);
  require_links(o);
  int least = 32767;
  for (const std::string& ranks : o.ranks) least = std::min(least, rank_choice(ranks).ranks);
  if (o.which != "all") plan::number(o.which, 0, 1023, "--which");
  for (std::size_t p = 0; p < o.pins.size(); ++p)
    o.constraints.pins.push_back(plan::parse_pin(o.pins[p], o.pin_places[p], o.model, least));
  o.constraints.forbidden = plan::forbidden_cuts(o.forbidden);
  only_for("--which",
           std::any_of(o.ranks.begin(), o.ranks.end(),
                       [](const std::string& ranks) { return rank_choice(ranks).ghosts; }),
           "ghost:N in --ranks");
  return o;
}

std::string lab_help(const std::string& program) {
  Settings o;
  o.program = program;
  return command(o)->help();
}

}  // namespace lab
