// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Sharding strategies measured on thread ranks: policies x widths x hotness x ranks, the time of each stage, bytes and messages per rank,
// balance, and what the cost model predicts.
//   bench_sharding                               Google Benchmark; --machine FILE takes the constants of predictions from a file
//   bench_sharding --calibrate [--out FOLDER]    fits the model's constants to this machine; writes machine.json and machine.hpp
//   bench_sharding --honesty [--machine FILE]    predicted against measured steps, over models and plans that the fit did not see
#include "../examples/tessera_plan/cluster_file.hpp"
#include "calibration.hpp"
#include "sharding.hpp"

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace tessera;
using namespace tessera::bench;

int cores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

Measured measure_on_threads(const Layout& layout, const Workload& workload, int steps) {
  Measured result;
  run_ranks(layout.ranks(), [&](ThreadCommunicator& communicator) {
    const Measured m = measure(communicator, layout, workload, steps);
    if (communicator.rank() == 0) result = m;
  });
  return result;
}

Cluster calibrate() {
  const std::vector<ShardingModel> models{
      make_model("", 8192, 1.05, {{8, 200'000, 16, 1}}),  make_model("", 8192, 1.05, {{4, 200'000, 16, 10}}),
      make_model("", 8192, 0, {{4, 1'000'000, 16, 8}}),   make_model("", 8192, 0, {{8, 500'000, 64, 1}}),
      make_model("", 4096, 1.05, {{4, 500'000, 64, 10}}), make_model("", 4096, 0, {{2, 1'000'000, 128, 4}}),
      make_model("", 2048, 1.05, {{32, 20'000, 32, 1}}),  make_model("", 512, 1.05, {{32, 1000, 8, 1}})};
  std::vector<Observation> observations;
  Cluster base{.network_bandwidth = 1e9, .network_latency = 3e-5, .flops = 1e11, .concurrent_ranks = cores()};
  for (const int ranks : {1, 2, 4})
    for (const ShardingModel& model : models) {
      base.ranks = ranks;
      for (const NamedLayout& plan : layouts_of(model, base)) {
        if ((plan.name == "planned" && ranks > 1) || plan.name.rfind("memory", 0) == 0) continue;  // whole tables once is enough
        observations.push_back({plan.layout, model.workload, measure_on_threads(plan.layout, model.workload, 5)});
      }
    }
  base = fit(observations, base);
  base.ranks = cores();
  for (const StageMember stage : kStages) {
    std::vector<double> ratios;
    for (const Observation& o : observations) {
      Cluster c = base;
      c.ranks = o.layout.ranks();
      ratios.push_back(predict(o.layout, c, o.workload).stages.*stage / (o.measured.stages.*stage));
    }
    std::sort(ratios.begin(), ratios.end());
    fmt::print("{:<20} predicted/measured: 10 % below {:.2f}, median {:.2f}, 10 % above {:.2f}\n",
               kStageNames[static_cast<std::size_t>(std::find(kStages.begin(), kStages.end(), stage) - kStages.begin())],
               ratios[ratios.size() / 10], ratios[ratios.size() / 2], ratios[ratios.size() - 1 - ratios.size() / 10]);
  }
  return base;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  require<Error>(file.flush().good(), "cannot write '{}'", path);
  fmt::print("wrote {}\n", path);
}

/// Models of other shapes than those of the calibration.
void honesty(const Cluster& constants) {
  const std::vector<ShardingModel> models{
      make_model("26 one-hot, width 16", 8192, 1.05, {{4, 800'000, 16, 1}, {6, 100'000, 16, 1}, {10, 5000, 16, 1}, {6, 50, 16, 1}}),
      make_model("26 one-hot, width 64", 4096, 1.05, {{4, 400'000, 64, 1}, {6, 50'000, 64, 1}, {10, 5000, 64, 1}, {6, 50, 64, 1}}),
      make_model("multi-hot, widths 8-32", 4096, 1.05, {{2, 500'000, 32, 20}, {6, 100'000, 16, 5}, {12, 10'000, 8, 1}}),
      make_model("uniform ids, width 128", 2048, 0, {{2, 300'000, 128, 8}, {4, 100'000, 128, 1}}),
      make_model("one large, many small", 4096, 1.1, {{1, 2'000'000, 32, 10}, {20, 2000, 16, 2}})};
  struct Pair {
    std::string name;
    int group;
    double predicted, measured;
  };
  std::vector<Pair> pairs;
  int group = 0;
  fmt::print("{:<24} {:>5} {:<24} {:>12} {:>12} {:>6}\n", "model", "ranks", "plan", "predicted ms", "measured ms", "ratio");
  for (const int ranks : {2, 4})
    for (const ShardingModel& model : models) {
      Cluster cluster = constants;
      cluster.ranks = ranks;
      cluster.ranks_per_node = 0;
      ++group;
      for (const NamedLayout& plan : layouts_of(model, cluster)) {
        if (plan.name.rfind("memory", 0) == 0) continue;  // whole tables once is enough
        const double predicted = predict(plan.layout, cluster, model.workload).step_seconds;
        const double measured = measure_on_threads(plan.layout, model.workload, 7).step_seconds;
        pairs.push_back({plan.name, group, predicted, measured});
        fmt::print("{:<24} {:>5} {:<24} {:>12.3f} {:>12.3f} {:>6.2f}\n", model.name, ranks, plan.name, 1e3 * predicted, 1e3 * measured,
                   predicted / measured);
        std::fflush(stdout);
      }
    }
  std::size_t close = 0, compared = 0, ordered = 0;
  for (const Pair& a : pairs) {
    close += std::abs(a.predicted / a.measured - 1) <= 0.25;
    for (const Pair& b : pairs)
      if (a.group == b.group && a.measured > 1.2 * b.measured) {
        ++compared;
        ordered += a.predicted > b.predicted;
      }
  }
  fmt::print("within 25 %: {} of {}; order right: {} of {} pairs that differ by more than 20 %\n", close, pairs.size(), ordered, compared);
}

}  // namespace

int main(int argc, char** argv) try {
  std::string machine, out = ".";
  bool want_calibration = false, want_honesty = false;
  std::vector<char*> rest{argv[0]};
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--calibrate") {
      want_calibration = true;
    } else if (argument == "--honesty") {
      want_honesty = true;
    } else if (argument == "--machine" || argument == "--out") {
      require(i + 1 < argc, "{}: a path must follow", argument);
      (argument == "--machine" ? machine : out) = argv[++i];
    } else {
      rest.push_back(argv[i]);
    }
  }
  Cluster constants = machine.empty() ? cpu_host(1, cores()) : plan::read_cluster(machine);
  if (want_calibration) {
    constants = calibrate();
    write(out + "/machine.json", plan::to_json(constants).dump(1) + "\n");
    write(out + "/machine.hpp",
          "// Written by bench_sharding --calibrate.\n#pragma once\n\n#include <tessera/sharding/cluster.hpp>\n\ninline constexpr auto "
          "kMachine = " +
              plan::to_cpp(constants) + ";\n");
  }
  if (want_honesty) honesty(constants);
  if (want_calibration || want_honesty) return 0;
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 2;
  for (const int ranks : {1, 2, 4}) register_plans("threads", ranks, constants, measure_on_threads);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_sharding: {}\n", error.what());
  return 1;
}
