// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// MPI ranks: the all-to-all as a share of memcpy (see exchange.hpp). Start it with mpirun; rank 0
// reports.
#include "exchange.hpp"

#include <tessera/comm/mpi_communicator.hpp>

#include <benchmark/benchmark.h>

namespace ts = tessera;

namespace {

struct Silent : benchmark::BenchmarkReporter {
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  return ts::run_mpi_rank([](ts::MpiCommunicator& c) {
    ts::bench::register_sizes(fmt::format("mpi_all_to_all/ranks:{}", c.size()),
                              [&c](benchmark::State& state, std::size_t bytes, int iterations) {
                                ts::bench::report(state,
                                                  ts::bench::time_all_to_all(c, bytes, iterations));
                              });
    Silent silent;
    benchmark::ConsoleReporter console;
    benchmark::RunSpecifiedBenchmarks(
        c.rank() == 0 ? static_cast<benchmark::BenchmarkReporter*>(&console) : &silent);
  });
}
