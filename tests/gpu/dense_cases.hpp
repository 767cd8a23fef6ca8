// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/dense.cuh>
#include <tessera/optimizer/optimizers.hpp>

#include <doctest/doctest.h>
#include <gpu/device.hpp>

#include <cmath>
#include <vector>

namespace {

using namespace tessera;

bool nearly(const std::vector<float>& found, const std::vector<double>& expected, double tolerance = 1e-4) {
  if (found.size() != expected.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!(std::fabs(static_cast<double>(found[i]) - expected[i]) <= tolerance * (1 + std::fabs(expected[i])))) return false;
  return true;
}

/// Layers in double, by the definition.
struct PlainMlp {
  std::vector<std::int64_t> sizes;
  bool last_relu;
  std::vector<double> parameters, gradients;
  std::vector<std::vector<double>> states;  // inputs of the layers and the last output

  void forward(std::vector<double> x, std::int64_t batch) {
    states = {x};
    std::size_t at = 0;
    for (std::size_t l = 0; l + 1 < sizes.size(); ++l) {
      const auto in = static_cast<std::size_t>(sizes[l]), out = static_cast<std::size_t>(sizes[l + 1]);
      std::vector<double> y;
      for (std::size_t s = 0; s < static_cast<std::size_t>(batch); ++s)
        for (std::size_t o = 0; o < out; ++o) {
          double sum = parameters[at + in * out + o];
          for (std::size_t i = 0; i < in; ++i) sum += parameters[at + o * in + i] * states.back()[s * in + i];
          y.push_back((l + 2 < sizes.size() || last_relu) && sum < 0 ? 0 : sum);
        }
      states.push_back(y);
      at += in * out + out;
    }
  }
  std::vector<double> backward(std::vector<double> dy, std::int64_t batch) {
    gradients.assign(parameters.size(), 0);
    std::size_t at = parameters.size();
    for (std::size_t l = sizes.size() - 1; l-- > 0;) {
      const auto in = static_cast<std::size_t>(sizes[l]), out = static_cast<std::size_t>(sizes[l + 1]);
      at -= in * out + out;
      std::vector<double> dx(static_cast<std::size_t>(batch) * in);
      for (std::size_t s = 0; s < static_cast<std::size_t>(batch); ++s)
        for (std::size_t o = 0; o < out; ++o) {
          const double g = (l + 2 < sizes.size() || last_relu) && states[l + 1][s * out + o] <= 0 ? 0 : dy[s * out + o];
          gradients[at + in * out + o] += g;
          for (std::size_t i = 0; i < in; ++i) {
            gradients[at + o * in + i] += g * states[l][s * in + i];
            dx[s * in + i] += g * parameters[at + o * in + i];
          }
        }
      dy = dx;
    }
    return dy;
  }
};

std::vector<double> doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

}  // namespace

TEST_CASE("mlp: outputs, gradients of parameters and of the input; matrices that are parts of wider ones") {
  for (const bool last_relu : {false, true}) {
    const std::vector<std::int64_t> sizes{13, 40, 7, 3};
    constexpr std::int64_t batch = 700, padding = 5;
    const Cuda backend;
    CudaMlp mlp(backend, sizes, {.last_relu = last_relu});
    const CudaDenseParameters parameters(backend, 5, mlp);
    Random random(3);
    const std::vector<float> x = random_elements<float>(random, batch * 13), dy = random_elements<float>(random, batch * (3 + padding));
    const OnDevice<float> device_x(backend, x), device_dy(backend, dy), dx(backend, std::vector<float>(batch * (13 + padding), -7.0f)),
        y(backend, std::vector<float>(batch * (3 + padding), -7.0f));
    mlp.forward({device_x.data(), batch, 13}, {y.data(), batch, 3, 3 + padding});
    mlp.backward({device_dy.data(), batch, 3, 3 + padding}, {dx.data(), batch, 13, 13 + padding});

    std::vector<float> values(static_cast<std::size_t>(parameters.size())), gradients(values.size());
    backend.copy(values.data(), parameters.values().data(), values.size() * sizeof(float));
    backend.copy(gradients.data(), parameters.gradients().data(), values.size() * sizeof(float));
    backend.synchronize();
    PlainMlp plain{sizes, last_relu, doubles(values), {}, {}};
    plain.forward(doubles(x), batch);
    std::vector<double> plain_dy;
    for (std::int64_t s = 0; s < batch; ++s)
      for (int o = 0; o < 3; ++o) plain_dy.push_back(dy[static_cast<std::size_t>(s * (3 + padding) + o)]);
    const std::vector<double> plain_dx = plain.backward(plain_dy, batch);
    const auto columns = [&](const OnDevice<float>& m, std::int64_t width) {
      const std::vector<float> all = m.read();
      std::vector<float> part;
      for (std::int64_t s = 0; s < batch; ++s)
        for (std::int64_t c = 0; c < width + padding; ++c)
          if (const float v = all[static_cast<std::size_t>(s * (width + padding) + c)]; c < width)
            part.push_back(v);
          else
            CHECK(v == -7.0f);
      return part;
    };
    CHECK(nearly(columns(y, 3), plain.states.back()));
    CHECK(nearly(columns(dx, 13), plain_dx));
    CHECK(nearly(gradients, plain.gradients));
  }
}

TEST_CASE("mlp: an empty batch leaves zero gradients; wrong shapes are named") {
  const Cuda backend;
  CudaMlp mlp(backend, {4, 2});
  float* const none = nullptr;
  CHECK_THROWS_AS(mlp.forward({none, 0, 4}, {none, 0, 2}), InvalidArgument);  // no parameters yet
  const CudaDenseParameters parameters(backend, 5, mlp);
  mlp.forward({none, 0, 4}, {none, 0, 2});
  mlp.backward({none, 0, 2});
  CHECK_THROWS_AS(mlp.forward({none, 2, 5}, {none, 2, 2}), InvalidArgument);
  CHECK_THROWS_AS(mlp.backward({none, 1, 2}), InvalidArgument);
  CHECK_THROWS_AS(CudaMlp(backend, {4}), InvalidArgument);
}

TEST_CASE("loss: value and gradient; large logits") {
  const Cuda backend;
  Random random(2);
  constexpr std::int64_t batch = 600;
  std::vector<float> logits = random_elements<float>(random, batch), labels;
  logits[0] = 200;
  logits[1] = -200;
  double expected = 0;
  std::vector<double> gradients;
  for (std::int64_t i = 0; i < batch; ++i) {
    labels.push_back(static_cast<float>(i % 3 == 0));
    const double x = logits[static_cast<std::size_t>(i)], y = labels.back();
    expected += (std::fmax(x, 0) - x * y + std::log1p(std::exp(-std::fabs(x)))) / 1000;
    gradients.push_back((1 / (1 + std::exp(-x)) - y) / 1000);
  }
  in_every_order([&] {
    const OnDevice<float> device_logits(backend, logits), device_labels(backend, labels), gradient(backend, std::vector<float>(batch));
    const OnDevice<double> loss(backend, {1.0});
    CudaBinaryCrossEntropy{1000}.forward_backward(backend, {device_logits.data(), batch, 1},
                                                  {device_labels.data(), static_cast<std::size_t>(batch)}, {gradient.data(), batch, 1},
                                                  loss.data());
    CHECK(loss.read()[0] - 1 == doctest::Approx(expected).epsilon(1e-9));
    CHECK(nearly(gradient.read(), gradients, 1e-9));
  });
}

TEST_CASE("dense optimizers: the formulas, with weight decay") {
  const Cuda backend;
  CudaMlp mlp(backend, {3, 2});
  const CudaDenseParameters parameters(backend, 5, mlp);
  Random random(9);
  const auto count = static_cast<std::size_t>(parameters.size());
  const std::vector<float> first = random_elements<float>(random, 8), gradients = random_elements<float>(random, 8);
  const auto run = [&](auto optimizer) {
    backend.copy(parameters.values().data(), first.data(), count * sizeof(float));
    backend.copy(parameters.gradients().data(), gradients.data(), count * sizeof(float));
    CudaDenseOptimizer steps(backend, optimizer, 0.5f);
    steps.step(parameters, 0.25f);
    steps.step(parameters, 0.25f);
    std::vector<float> values(count);
    backend.copy(values.data(), parameters.values().data(), count * sizeof(float));
    backend.synchronize();
    return values;
  };
  std::vector<double> sgd, adagrad, adam;
  for (std::size_t i = 0; i < count; ++i) {
    double w[3] = {first[i], first[i], first[i]}, sum = 0, m = 0, v = 0;
    for (int t = 1; t <= 2; ++t) {
      const auto g = [&](double weight) { return gradients[i] + 0.5 * weight; };
      w[0] -= 0.25 * g(w[0]);
      sum += g(w[1]) * g(w[1]);
      w[1] -= 0.25 * g(w[1]) / (std::sqrt(sum) + 1e-10);
      m = 0.9 * m + 0.1 * g(w[2]);
      v = 0.999 * v + 0.001 * g(w[2]) * g(w[2]);
      w[2] -= 0.25 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)) * m / (std::sqrt(v) + 1e-8);
    }
    sgd.push_back(w[0]);
    adagrad.push_back(w[1]);
    adam.push_back(w[2]);
  }
  CHECK(nearly(run(Sgd{}), sgd));
  CHECK(nearly(run(Adagrad{}), adagrad));
  CHECK(nearly(run(Adam{}), adam));
}
