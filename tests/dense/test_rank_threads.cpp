// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are threads of one process use dense layers at the same time, each with objects of its own and one OpenMP thread.
#include <tessera/dense/mlp.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <thread>
#include <vector>

#include "support/random_matrix.hpp"

using namespace tessera;
using test::Matrix;

/// The thread sanitizer asks for this. oneDNN is not instrumented: the order in its cache of primitives, kept by atomics, is invisible.
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libdnnl.so\n"; }

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
        for (std::size_t i = 0; i < parameters.values().size(); ++i) parameters.values()[i] -= 1e-4f * parameters.gradients()[i];
      }
      for (const float value : parameters.values()) sums[static_cast<std::size_t>(rank)] += value;
    });
  for (std::thread& rank : ranks) rank.join();
  for (const float sum : sums) CHECK(sum == sums[0]);
}
