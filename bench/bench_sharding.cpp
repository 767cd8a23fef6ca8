// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Sharding strategies measured on thread ranks: policies x widths x hotness x ranks, the time of
// each stage, bytes and messages per rank, balance, and what the cost model predicts.
//   bench_sharding --help
#include "../examples/support/report.hpp"
#include "../examples/tessera_plan/cluster_file.hpp"
#include "calibration.hpp"
#include "file_calibration.hpp"
#include "lab/run_lab.hpp"
#include "sharding.hpp"

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using namespace tessera;
using namespace tessera::bench;

int cores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

Measured measure_on_threads(const Layout& layout, const Workload& workload, int steps,
                            const TableFiles& files) {
  Measured result;
  run_ranks(layout.ranks(), [&](ThreadCommunicator& communicator) {
    const Measured m = measure(communicator, layout, workload, steps, Host{}, files);
    if (communicator.rank() == 0) result = m;
  });
  return result;
}
constexpr auto measure_in_memory = [](const Layout& layout, const Workload& workload, int steps) {
  return measure_on_threads(layout, workload, steps, {});
};

/// Keeps the calling thread on a core of its rank's. Beside other programs threads that wake each
/// other are put on one core, where they run one after the other. A refusal costs steadiness only.
void keep_on_core(int rank) {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int turn = rank % std::max(1, CPU_COUNT(&allowed));
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed) && turn-- == 0) CPU_SET(core, &one);
  pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

/// Seconds of an all-to-all of next to no data as a step pays it: ranks come from unequal work, so
/// that some sleep until the last one is there. From its arrival to the last return: what was
/// before is that rank's work.
double seconds_among_threads(int ranks) {
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> came(static_cast<std::size_t>(ranks)), went(came);
  std::vector<double> rounds;
  run_ranks(ranks, [&](ThreadCommunicator& c) {
    keep_on_core(c.rank());
    const auto rank = static_cast<std::size_t>(c.rank());
    const std::vector<std::size_t> ones(came.size(), 1);
    const std::vector<float> send(came.size());
    std::vector<float> receive(came.size());
    for (std::size_t i = 0; i < 400; ++i) {
      const double work = 5e-5 * (1 + static_cast<double>((7 * i + 3 * rank) % 5)),
                   begin = detail::processor_seconds();
      while (detail::processor_seconds() - begin < work) {
      }
      came[rank] = Clock::now();
      c.all_to_all<float>(send, ones, receive, ones);
      went[rank] = Clock::now();
      c.barrier();
      if (rank == 0)
        rounds.push_back(std::chrono::duration<double>(*std::max_element(went.begin(), went.end()) -
                                                       *std::max_element(came.begin(), came.end()))
                             .count());
      c.barrier();
    }
  });
  // other programs only ever add to it
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 10];
}

Cluster calibrate() {
  Cluster base{.launch_seconds = 0,  // a call
               .node_latency = 0,
               .network_bandwidth = 1e9,
               .network_latency = 3e-5,
               .flops = 1e11,
               .concurrent_ranks = cores()};
  std::vector<Case> cases = cases_of(calibration_models(), {1, 2, 4}, base);
  std::erase_if(
      cases, [](const Case& c) { return c.plan.name == "planned" && c.plan.layout.ranks() > 1; });
  // Blocks cost little beside their ids: these plans have many of few.
  for (const int ranks : {2, 4})
    for (const ShardingModel& model : calibration_models()) {
      Layout layout = uncut_layout({ranks}, model.tables);
      detail::PlanChoice dealt;
      dealt.tables.assign(model.tables.size(), {.cut = Cut::interleaved});
      layout.shards = shards_of(dealt, layout);
      cases.push_back({model.name, {"interleaved", layout}, model.workload});
    }
  measure_in_turn(cases, measure_in_memory);
  base = fit_with_caches(observations_of(cases), base, kCacheSizes, kCachePrices);
  print_stages(cases, base);
  base.ranks = cores();
  // Waiting is no work.
  const int many = 2 * cores();
  const double of_two = seconds_among_threads(2), of_many = seconds_among_threads(many);
  base.node_latency = many == 2 ? of_two : std::max(0.0, of_many - of_two) / (many - 2);
  base.wake_seconds = std::max(0.0, of_two - base.node_latency);
  return base;
}

/// Models of other shapes than those of the calibration.
void honesty(const Cluster& constants) {
  const std::vector<ShardingModel> models{
      make_model("26 one-hot, width 16", 8192, 1.05,
                 {{4, 800'000, 16, 1}, {6, 100'000, 16, 1}, {10, 5000, 16, 1}, {6, 50, 16, 1}}),
      make_model("26 one-hot, width 64", 4096, 1.05,
                 {{4, 400'000, 64, 1}, {6, 50'000, 64, 1}, {10, 5000, 64, 1}, {6, 50, 64, 1}}),
      make_model("multi-hot, widths 8-32", 4096, 1.05,
                 {{2, 500'000, 32, 20}, {6, 100'000, 16, 5}, {12, 10'000, 8, 1}}),
      make_model("uniform ids, width 128", 2048, 0, {{2, 300'000, 128, 8}, {4, 100'000, 128, 1}}),
      make_model("one large, many small", 4096, 1.1, {{1, 2'000'000, 32, 10}, {20, 2000, 16, 2}})};
  std::vector<Case> cases = cases_of(models, {2, 4}, constants);
  measure_in_turn(cases, measure_in_memory);
  struct Step {
    double predicted, measured;
  };
  std::vector<Step> steps;
  fmt::print("{:<24} {:>5} {:<24} {:>12} {:>12} {:>6}   work of", "model", "ranks", "plan",
             "predicted ms", "measured ms", "ratio");
  for (const char* stage : kStageNames) fmt::print(" {:.8}", stage);
  fmt::print("\n");
  for (const Case& c : cases) {
    Cluster cluster = constants;
    cluster.ranks = c.plan.layout.ranks();
    cluster.ranks_per_node = 0;
    const detail::Prediction p = predict(c.plan.layout, cluster, c.workload);
    const Measured m = joined(c.rounds);
    steps.push_back({p.step_seconds, m.step_seconds});
    fmt::print("{:<24} {:>5} {:<24} {:>12.3f} {:>12.3f} {:>6.2f}         ", c.model, cluster.ranks,
               c.plan.name, 1e3 * p.step_seconds, 1e3 * m.step_seconds,
               p.step_seconds / m.step_seconds);
    // waiting is no work
    cluster.node_latency = cluster.launch_seconds = cluster.wake_seconds = 0;
    const detail::StageTimes work = work_of(predict(c.plan.layout, cluster, c.workload));
    for (const StageMember stage : kStages) fmt::print(" {:>8.2f}", work.*stage / (m.work.*stage));
    fmt::print("\n");
  }
  Cluster without_waiting = constants;
  without_waiting.node_latency = without_waiting.launch_seconds = without_waiting.wake_seconds = 0;
  print_stages(cases, without_waiting);
  std::size_t close = 0, compared = 0, ordered = 0;
  for (std::size_t a = 0; a < cases.size(); ++a) {
    close += std::abs(steps[a].predicted / steps[a].measured - 1) <= 0.25;
    for (std::size_t b = 0; b < cases.size(); ++b)
      if (cases[a].model == cases[b].model &&
          cases[a].plan.layout.ranks() == cases[b].plan.layout.ranks() &&
          steps[a].measured > 1.2 * steps[b].measured) {
        ++compared;
        ordered += steps[a].predicted > steps[b].predicted;
      }
  }
  fmt::print("within 25 %: {} of {}; order right: {} of {} pairs that differ by more than 20 %\n",
             close, cases.size(), ordered, compared);
}

constexpr const char* kHelp =
    R"(Sharding strategies measured on thread ranks, beside what the cost model predicts.

  bench_sharding --model FILE [...]            races plans of your own model, with your own ids: the options are below
  bench_sharding [--machine FILE]              measures; predictions have this machine's constants, which are measured once
                                               (about four minutes) and kept in the user's cache, or those of a file
  bench_sharding --calibrate [--out FOLDER]    fits the constants to this machine again; writes machine.json and machine.hpp, too
  bench_sharding --files FOLDER                measures what tables in files of that folder's disk get, keeps it with the rest,
                                               which is measured before if it never was
  bench_sharding --honesty [--machine FILE]    predicted against measured steps, over models and plans that the fit did not see
  bench_sharding --help | --version

Google Benchmark's options choose and print the measurements: --benchmark_filter=REGEX, --benchmark_list_tests,
--benchmark_format=json, --benchmark_out=FILE, --benchmark_repetitions=N, --benchmark_min_time=SECONDS.

With --model:

)";

/// Whether the command line is the laboratory's.
bool names_model(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](const std::string& argument) {
    const std::string name = argument.substr(0, argument.find('='));
    for (const char* own : {"--model", "--ids", "--plans", "--ranks", "--axes", "--resume"})
      if (name == own) return true;
    return false;
  });
}

}  // namespace

int main(int argc, char** argv) try {
  if (names_model(argc, argv)) return lab::run_lab<>(argc, argv, "bench_sharding");
  std::string machine, files, out;
  bool want_calibration = false, want_honesty = false;
  std::vector<char*> rest{argv[0]};
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--calibrate") {
      want_calibration = true;
    } else if (argument == "--honesty") {
      want_honesty = true;
    } else if (argument == "--help" || argument == "-h") {
      fmt::print("{}{}", kHelp, lab::lab_help("bench_sharding"));
      support::check_output();
      return 0;
    } else if (argument == "--version") {
      fmt::print("{}\n", support::version_of("bench_sharding"));
      support::check_output();
      return 0;
    } else if (argument == "--machine" || argument == "--out" || argument == "--files") {
      require(i + 1 < argc && *argv[i + 1] != '\0', "{}: a path must follow", argument);
      (argument == "--machine" ? machine : argument == "--files" ? files : out) = argv[++i];
    } else {
      rest.push_back(argv[i]);
    }
  }
  const bool only_names = std::any_of(rest.begin(), rest.end(), [](const char* a) {
    return std::string(a).starts_with("--benchmark_list");
  });
  // before minutes of measurements
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (count > 1)
    return support::fail(
        "bench_sharding",
        fmt::format("there is no option '{}' without --model (see --help)", rest[1]), 2);
  const bool measures_machine = want_calibration || !files.empty();
  require(machine.empty() || !measures_machine,
          "--machine names constants, which --calibrate and --files measure: leave one out");
  require(out.empty() || want_calibration, "--out is the folder of --calibrate's files");
  plan::Constants constants;
  if (measures_machine) {
    if (out.empty()) out = ".";
    require(std::filesystem::is_directory(out), "--out {}: no such folder", out);
    plan::machine_place();
    const auto kept = plan::cached_constants();
    FileSpeed speed;
    if (!files.empty())
      speed = measure_files(files);
    else if (kept)
      speed = {kept->cluster.file_bandwidth, kept->cluster.file_queue_depth};
    constants.cluster = want_calibration || !kept ? calibrate() : kept->cluster;
    if (kept) constants.cluster.directory_seconds = kept->cluster.directory_seconds;
    if (!files.empty()) {
      constants.cluster.directory_seconds =
          directory_seconds(Tier::file, 400'000, 8192,
                            [&](const Layout& layout, const Workload& workload, int steps) {
                              return measure_on_threads(layout, workload, steps,
                                                        {.folder = files + "/tessera_bench_cache"});
                            });
      fmt::print("an id of a table behind a cache: {:.1f} ns\n",
                 1e9 * constants.cluster.directory_seconds);
      std::error_code error;
      std::filesystem::remove(files + "/tessera_bench_cache", error);
    }
    constants.cluster.file_bandwidth = speed.bandwidth;
    constants.cluster.file_queue_depth = speed.queue_depth;
    fmt::print("kept in {}\n", want_calibration || !kept
                                   ? plan::write_machine_cache(constants.cluster)
                                   : plan::write_files(constants.cluster));
    if (want_calibration) plan::write_machine(out, constants.cluster, plan::this_machine());
  } else if (!machine.empty()) {
    constants = plan::read_constants(machine);
  } else if (const auto kept = plan::cached_constants()) {
    constants = *kept;
  } else if (only_names || want_honesty) {
    constants = {cpu_host(1, cores()), "of another machine (a 2-core x86-64 server)"};
  } else {
    plan::machine_place();
    fmt::print("measuring this machine's constants, once: about four minutes\n");
    std::fflush(stdout);
    constants = plan::read_constants(plan::write_machine_cache(calibrate()));
  }
  if (want_honesty) {
    if (!measures_machine) fmt::print("constants {}\n", constants.source);
    honesty(constants.cluster);
  }
  if (want_calibration || want_honesty || !files.empty()) return 0;
  benchmark::AddCustomContext("constants", constants.source);
  for (const int ranks : {1, 2, 4})
    register_plans("threads", ranks, constants.cluster, measure_in_memory);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
} catch (const std::exception& error) {
  return support::fail("bench_sharding", error.what(), 1);
}
