// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Dense layers, interactions, loss and SGD against whole training steps of PyTorch in float64.
// Embeddings are one-hot and updated by plain loops here: they have tests of their own.
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot.hpp>
#include <tessera/io/safetensors.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "support/random_matrix.hpp"

using namespace tessera;
using test::Matrix;

namespace {

constexpr std::int64_t kBatch = 32, kWidth = 8, kDense = 13;
constexpr int kSteps = 4;

std::filesystem::path golden(const char* name) {
  return std::filesystem::path(__FILE__).parent_path() / "../../../shared/golden" / name;
}

/// Calls f(name in the file, floats) for every parameter of a model.
template <class F>
void for_mlp(const std::string& name, Mlp<>& mlp, const F& f) {
  for (int l = 0; l < mlp.layers(); ++l) {
    const MatrixView<float> w = mlp.weight(l);
    f(name + "." + std::to_string(l) + ".weight",
      std::span<float>(w.data, static_cast<std::size_t>(w.rows * w.columns)));
    f(name + "." + std::to_string(l) + ".bias", mlp.bias(l));
  }
}

template <class F>
void for_cross(CrossInteraction<Linear<>>& cross, const F& f) {
  for (int l = 0; l < cross.layers(); ++l) {
    const std::string name = "cross." + std::to_string(l);
    f(name + ".v", cross.v(l).values());
    const std::size_t weights = cross.u(l).values().size() - cross.u(l).bias(0).size();
    f(name + ".u", cross.u(l).values().first(weights));
    f(name + ".bias", cross.u(l).bias(0));
  }
}

void check_near(const std::string& name, std::span<const float> actual,
                const std::vector<float>& expected) {
  CAPTURE(name);
  REQUIRE(actual.size() == expected.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = test::worst(worst, (actual[i] - expected[i]) / (1e-5 + 1e-4 * std::abs(expected[i])));
  CHECK(worst <= 1.0);
}

/// Trains as the file says. `interact(x, z)` and `interact_back(x, dz, dx)` join bottom output and
/// embeddings; `for_parameters(f)` is as above.
template <class Interact, class InteractBack, class ForParameters>
void check_steps(const SafetensorsReader& file, const std::vector<double>& losses,
                 float learning_rate, int tables, std::int64_t columns, Mlp<>& bottom, Mlp<>& top,
                 DenseParameters<>& parameters, const Interact& interact,
                 const InteractBack& interact_back, const ForParameters& for_parameters) {
  for_parameters([&](const std::string& name, std::span<float> values) {
    const std::vector<float> initial = file.read<float>(name + ".initial");
    REQUIRE(initial.size() == values.size());
    std::copy(initial.begin(), initial.end(), values.begin());
  });
  std::vector<std::vector<float>> table;
  for (int t = 0; t < tables; ++t)
    table.push_back(file.read<float>("table.c" + std::to_string(t) + ".initial"));

  const std::int64_t width = (tables + 1) * kWidth;
  Matrix<float> x(kBatch, width, 0), z(kBatch, columns, 0), dz(kBatch, columns, 0),
      dx(kBatch, width, 0), y(kBatch, 1, 0), dy(kBatch, 1, 0);
  DenseOptimizer<Sgd> sgd;
  for (int step = 0; step < kSteps; ++step) {
    const std::string prefix = "step" + std::to_string(step) + ".";
    const std::vector<float> dense = file.read<float>(prefix + "dense"),
                             labels = file.read<float>(prefix + "label");
    std::vector<std::vector<std::int64_t>> ids;
    for (int t = 0; t < tables; ++t) {
      ids.push_back(file.read<std::int64_t>(prefix + "ids.c" + std::to_string(t)));
      for (std::int64_t s = 0; s < kBatch; ++s)
        for (std::int64_t k = 0; k < kWidth; ++k)
          x(s, (t + 1) * kWidth + k) =
              table[static_cast<std::size_t>(t)]
                   [static_cast<std::size_t>(ids.back()[static_cast<std::size_t>(s)] * kWidth + k)];
    }
    bottom.forward({dense.data(), kBatch, kDense}, x.view().column_range(0, kWidth));
    interact(x.view(), z.view());
    top.forward(z.view(), y.view());
    check_near(prefix + "interaction", {z.view().data, static_cast<std::size_t>(kBatch * columns)},
               file.read<float>(prefix + "interaction"));
    check_near(prefix + "logit", {y.view().data, static_cast<std::size_t>(kBatch)},
               file.read<float>(prefix + "logit"));
    const double loss =
        BinaryCrossEntropyWithLogits{}.forward_backward(y.view(), labels, dy.view());
    CHECK(loss == doctest::Approx(losses[static_cast<std::size_t>(step)]).epsilon(1e-5));
    top.backward(dy.view(), dz.view());
    interact_back(x.view(), dz.view(), dx.view());
    bottom.backward(dx.view().column_range(0, kWidth));
    sgd.step(parameters, learning_rate);
    for (int t = 0; t < tables; ++t)
      for (std::int64_t s = 0; s < kBatch; ++s)
        for (std::int64_t k = 0; k < kWidth; ++k)
          table[static_cast<std::size_t>(t)][static_cast<std::size_t>(
              ids[static_cast<std::size_t>(t)][static_cast<std::size_t>(s)] * kWidth + k)] -=
              learning_rate * dx(s, (t + 1) * kWidth + k);
  }
  for_parameters([&](const std::string& name, std::span<float> values) {
    check_near(name, values, file.read<float>(name + ".final"));
  });
  for (int t = 0; t < tables; ++t) {
    const std::string name = "table.c" + std::to_string(t);
    check_near(name, table[static_cast<std::size_t>(t)], file.read<float>(name + ".final"));
  }
}

bool skip(const char* name) {
  if (std::filesystem::exists(golden(name))) return false;
  std::printf("SKIPPED: no golden vectors at %s\n", golden(name).lexically_normal().c_str());
  return true;
}

}  // namespace

TEST_CASE("four DLRM steps") {
  if (skip("dlrm.safetensors")) return;
  const SafetensorsReader file(golden("dlrm.safetensors"));
  using Dot = DotInteraction<5, kWidth>;
  for (const int threads : {1, 2}) {
    const Host host({.threads = threads});
    Mlp<> bottom(host, {kDense, 16, kWidth}, {.last_relu = true}),
        top(host, {Dot::columns(), 16, 8, 1});
    DenseParameters parameters(1, bottom, top);
    check_steps(
        file, {0.9248688287663205, 0.7254870006711298, 0.9716110505535358, 0.7395367177684335},
        0.1f, 4, Dot::columns(), bottom, top, parameters,
        [&](auto x, auto z) { Dot::forward(host, x, z); },
        [&](auto x, auto dz, auto dx) { Dot::backward(host, x, dz, dx); },
        [&](const auto& f) {
          for_mlp("bottom", bottom, f);
          for_mlp("top", top, f);
        });
  }
}

TEST_CASE("four DCNv2 steps") {
  if (skip("dcnv2.safetensors")) return;
  const SafetensorsReader file(golden("dcnv2.safetensors"));
  for (const int threads : {1, 2}) {
    const Host host({.threads = threads});
    Mlp<Host, kDense, 16, kWidth> bottom(host, {.last_relu = true});
    Mlp<Host, 32, 16, 1> top(host);
    CrossInteraction<Linear<>> cross(host, 32, {.layers = 3, .rank = 4});
    DenseParameters parameters(1, bottom, cross, top);
    check_steps(
        file, {0.7181290074351243, 0.674956112734831, 0.6805771908246535, 0.693489045160534}, 0.05f,
        3, 32, bottom, top, parameters, [&](auto x, auto z) { cross.forward(x, z); },
        [&](auto, auto dz, auto dx) { cross.backward(dz, dx); },
        [&](const auto& f) {
          for_mlp("bottom", bottom, f);
          for_cross(cross, f);
          for_mlp("top", top, f);
        });
  }
}
