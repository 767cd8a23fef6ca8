// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The plans of bench_sharding on MPI ranks. Start it with mpirun; rank 0 reports.
#include "sharding.hpp"

#include <tessera/comm/mpi_communicator.hpp>

#include <benchmark/benchmark.h>

namespace {

struct Silent : benchmark::BenchmarkReporter {
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

}  // namespace

int main(int argc, char** argv) {
  using namespace tessera;
  benchmark::Initialize(&argc, argv);
  return run_mpi_rank([](MpiCommunicator& c) {
    bench::register_plans("mpi", c.size(), cpu_host(c.size(), 0),
                          [&c](const Layout& layout, const Workload& workload, int steps) {
                            return bench::measure(c, layout, workload, steps);
                          });
    Silent silent;
    benchmark::ConsoleReporter console;
    benchmark::RunSpecifiedBenchmarks(
        c.rank() == 0 ? static_cast<benchmark::BenchmarkReporter*>(&console) : &silent);
  });
}
