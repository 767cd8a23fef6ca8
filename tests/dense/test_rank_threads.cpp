// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are threads of one process use dense layers at the same time, each with objects of its
// own and one OpenMP thread, and on whatever core is free.
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/dense/mlp.hpp>

#include <doctest/doctest.h>
#include <omp.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "support/random_matrix.hpp"

using namespace tessera;
using test::Matrix;

namespace {

/// How many threads a parallel region of one thread has.
[[gnu::noinline]] int parallel_region() {
  std::atomic<int> threads = 0;
#pragma omp parallel num_threads(1)
  ++threads;
  return threads;
}

}  // namespace

TEST_CASE("several ranks as threads, each with its own objects") {
  std::vector<std::thread> ranks;
  std::vector<float> sums(4);
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([rank, &sums] {
      Mlp<> mlp({20, 30, 1});
      DenseParameters parameters(5, mlp);
      const Matrix<float> x(100, 20, 0, 1);
      Matrix<float> y(100, 1, 0), dx(100, 20, 0);
      for (int step = 0; step < 5; ++step) {
        mlp.forward(x.view(), y.view());
        mlp.backward(y.view(), dx.view());
        for (std::size_t i = 0; i < parameters.values().size(); ++i)
          parameters.values()[i] -= 1e-4f * parameters.gradients()[i];
      }
      for (const float value : parameters.values()) sums[static_cast<std::size_t>(rank)] += value;
    });
  for (std::thread& rank : ranks) rank.join();
  for (const float sum : sums) CHECK(sum == sums[0]);
}

TEST_CASE("ranks are not bound to the core of the thread that starts them") {
  // Runs a second time with OMP_PROC_BIND=true, where that thread has one core. Optimized:
  // compilers drop regions that do nothing.
  const bool bound = omp_get_proc_bind() != omp_proc_bind_false;
  std::atomic<int> fewest = 1 << 20;
  run_ranks(3, [&](ThreadCommunicator&) {
    // it must not bind them again; without need it only confuses the thread sanitizer
    if (bound) REQUIRE(parallel_region() == 1);
    cpu_set_t processors;
    REQUIRE(sched_getaffinity(0, sizeof(processors), &processors) == 0);
    const int mine = CPU_COUNT(&processors);
    for (int seen = fewest; mine < seen && !fewest.compare_exchange_weak(seen, mine);) {
    }
  });
  // The processors of this process, whatever its threads are bound to.
  CHECK(fewest == omp_get_num_procs());
}
