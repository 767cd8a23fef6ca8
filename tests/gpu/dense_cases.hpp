// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/bucketed_all_reduce.hpp>
#include <tessera/comm/rank_memory.cuh>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/cuda/stream.cuh>
#include <tessera/dense/dense.cuh>
#include <tessera/interaction/concat.cuh>
#include <tessera/interaction/cross.cuh>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot.cuh>
#include <tessera/laws/dense_layer_laws.hpp>
#include <tessera/laws/interaction_laws.hpp>
#include <tessera/optimizer/optimizers.hpp>

#include <doctest/doctest.h>
#include <gpu/device.hpp>
#include <support/cross_reference.hpp>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace tessera;

bool nearly(const std::vector<float>& found, const std::vector<double>& expected,
            double tolerance = 1e-4) {
  if (found.size() != expected.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!(std::fabs(static_cast<double>(found[i]) - expected[i]) <=
          tolerance * (1 + std::fabs(expected[i]))))
      return false;
  return true;
}

/// Layers in double, by the definition. `bfloat16`: what is stored in 16 bits is rounded to them.
struct PlainMlp {
  std::vector<std::int64_t> sizes;
  bool last_relu;
  std::vector<double> parameters, gradients;
  std::vector<std::vector<double>> states;  // inputs of the layers and the last output
  bool bfloat16 = false;

  double stored(double x) const {
    return bfloat16 ? to_float(from_float<BFloat16>(static_cast<float>(x))) : x;
  }

  void forward(std::vector<double> x, std::int64_t batch) {
    for (double& number : x) number = stored(number);
    for (std::size_t i = 0; i + static_cast<std::size_t>(sizes.back()) < parameters.size(); ++i)
      parameters[i] = stored(parameters[i]);
    states = {x};
    std::size_t at = 0;
    for (std::size_t l = 0; l + 1 < sizes.size(); ++l) {
      const auto in = static_cast<std::size_t>(sizes[l]),
                 out = static_cast<std::size_t>(sizes[l + 1]);
      std::vector<double> y;
      for (std::size_t s = 0; s < static_cast<std::size_t>(batch); ++s)
        for (std::size_t o = 0; o < out; ++o) {
          double sum = parameters[at + in * out + o];
          for (std::size_t i = 0; i < in; ++i)
            sum += parameters[at + o * in + i] * states.back()[s * in + i];
          const double output = (l + 2 < sizes.size() || last_relu) && sum < 0 ? 0 : sum;
          y.push_back(l + 2 < sizes.size() ? stored(output) : output);
        }
      states.push_back(y);
      at += in * out + out;
    }
  }
  std::vector<double> backward(std::vector<double> dy, std::int64_t batch) {
    gradients.assign(parameters.size(), 0);
    std::size_t at = parameters.size();
    for (std::size_t l = sizes.size() - 1; l-- > 0;) {
      const auto in = static_cast<std::size_t>(sizes[l]),
                 out = static_cast<std::size_t>(sizes[l + 1]);
      at -= in * out + out;
      std::vector<double> dx(static_cast<std::size_t>(batch) * in);
      for (std::size_t s = 0; s < static_cast<std::size_t>(batch); ++s)
        for (std::size_t o = 0; o < out; ++o) {
          const double g = (l + 2 < sizes.size() || last_relu) && states[l + 1][s * out + o] <= 0
                               ? 0
                               : dy[s * out + o];
          gradients[at + in * out + o] += g;
          for (std::size_t i = 0; i < in; ++i) {
            gradients[at + o * in + i] += stored(g) * states[l][s * in + i];
            dx[s * in + i] += stored(g) * parameters[at + o * in + i];
          }
        }
      for (double& number : dx) number = l > 0 ? stored(number) : number;
      dy = dx;
    }
    return dy;
  }
};

std::vector<double> doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

/// Columns [0, width) of rows of `stride`; what lies between them must still be -7.
std::vector<float> columns(const std::vector<float>& matrix, std::int64_t width,
                           std::int64_t stride) {
  std::vector<float> part;
  bool untouched = true;
  for (std::size_t i = 0; i < matrix.size(); ++i)
    if (static_cast<std::int64_t>(i) % stride < width)
      part.push_back(matrix[i]);
    else
      untouched = untouched && matrix[i] == -7.0f;
  CHECK(untouched);
  return part;
}

/// A plain linear layer with the library's first values.
struct FirstValues : cross_reference::PlainLinear {
  FirstValues(const Host& backend, std::int64_t in, std::int64_t out, Options options)
      : PlainLinear(backend, in, out, options), shape(in, out, options.bias) {}
  void bind(std::span<float> values, std::span<float> gradients) {
    PlainLinear::bind(values, gradients);
    all = values;
  }
  int initialize(std::uint64_t seed, int layer) {
    shape.first_values(all, seed, layer);
    return layer + 1;
  }
  struct Shape : detail::MlpLayers {
    Shape(std::int64_t in, std::int64_t out, bool bias)
        : detail::MlpLayers("Linear", {in, out}, bias) {}
    using detail::MlpLayers::first_values;
  } shape;
  std::span<float> all;
};

/// What CrossInteraction<Linear<Cuda>> gives, its inputs and outputs being columns of matrices that are wider by
/// `padding`.
struct CrossRun {
  std::int64_t batch, width;
  CrossOptions options;
  std::int64_t padding;
  std::vector<float> values, x, dy, y, dx, gradients;

  explicit CrossRun(std::int64_t batch_, std::int64_t width_, CrossOptions options_,
                    std::int64_t padding_ = 0)
      : batch(batch_), width(width_), options(options_), padding(padding_) {
    const Cuda backend;
    CrossInteraction<Linear<Cuda>> cross(backend, width, options);
    DenseParameters parameters(backend, 5, cross);
    const std::int64_t stride = width + padding;
    Random random(3);
    x = random_elements<float>(random, batch * width);
    const std::vector<float> wide_dy = random_elements<float>(random, batch * stride),
                             unwritten(static_cast<std::size_t>(batch * stride), -7.0f);
    for (std::int64_t i = 0; i < batch * stride; ++i)
      if (i % stride < width) dy.push_back(wide_dy[static_cast<std::size_t>(i)]);
    const OnGpu<float> device_x(backend, x), device_dy(backend, wide_dy),
        device_y(backend, unwritten), device_dx(backend, unwritten);
    cross.forward({device_x.data(), batch, width}, {device_y.data(), batch, width, stride});
    cross.backward({device_dy.data(), batch, width, stride},
                   {device_dx.data(), batch, width, stride});
    y = columns(device_y.read(), width, stride);
    dx = columns(device_dx.read(), width, stride);
    values.resize(static_cast<std::size_t>(parameters.size()));
    gradients.resize(values.size());
    backend.copy(values.data(), parameters.values().data(), values.size() * sizeof(float));
    backend.copy(gradients.data(), parameters.gradients().data(), values.size() * sizeof(float));
    backend.synchronize();
  }
};

}  // namespace

TEST_CASE(
    "mlp: outputs, gradients of parameters and of the input; matrices that are parts of wider "
    "ones; in float and in bfloat16") {
  struct Case {
    bool last_relu, epilogues, bfloat16;
    std::vector<std::int64_t> sizes{13, 40, 7, 3};
  };
  for (const Case& c : {Case{false, false, false}, Case{true, false, false},
                        Case{true, true, false}, Case{false, false, true}, Case{true, false, true},
                        Case{true, true, true}, Case{false, false, false, {13, 40, 1}},
                        Case{false, true, true, {13, 40, 1}}, Case{true, false, true, {13, 1}}}) {
    const bool last_relu = c.last_relu, epilogues = c.epilogues, bfloat16 = c.bfloat16;
    CAPTURE(last_relu);
    CAPTURE(bfloat16);
    const std::vector<std::int64_t>& sizes = c.sizes;
    const std::int64_t outputs = sizes.back();
    CAPTURE(outputs);
    constexpr std::int64_t batch = 700, padding = 5;
    const Cuda backend;
    Mlp<Cuda> mlp(backend, sizes,
                  {.last_relu = last_relu,
                   .precision = bfloat16 ? DensePrecision::bfloat16 : DensePrecision::float32,
                   .gradient_epilogues = epilogues});
    DenseParameters parameters(backend, 5, mlp);
    Random random(3);
    const std::vector<float> x = random_elements<float>(random, batch * 13),
                             dy = random_elements<float>(random, batch * (outputs + padding));
    const OnGpu<float> device_x(backend, x), device_dy(backend, dy),
        dx(backend, std::vector<float>(batch * (13 + padding), -7.0f)),
        y(backend, std::vector<float>(batch * (outputs + padding), -7.0f));
    mlp.forward({device_x.data(), batch, 13}, {y.data(), batch, outputs, outputs + padding});
    mlp.backward({device_dy.data(), batch, outputs, outputs + padding},
                 {dx.data(), batch, 13, 13 + padding});

    std::vector<float> values(static_cast<std::size_t>(parameters.size())),
        gradients(values.size());
    backend.copy(values.data(), parameters.values().data(), values.size() * sizeof(float));
    backend.copy(gradients.data(), parameters.gradients().data(), values.size() * sizeof(float));
    backend.synchronize();
    PlainMlp plain{sizes, last_relu, doubles(values), {}, {}, bfloat16};
    plain.forward(doubles(x), batch);
    std::vector<double> plain_dy;
    for (std::int64_t s = 0; s < batch; ++s)
      for (std::int64_t o = 0; o < outputs; ++o)
        plain_dy.push_back(dy[static_cast<std::size_t>(s * (outputs + padding) + o)]);
    const std::vector<double> plain_dx = plain.backward(plain_dy, batch);
    // A sum that is added up in another order is now and then rounded to the other neighbour of 8
    // bits.
    const double tolerance = bfloat16 ? 4e-3 : 1e-4;
    CHECK(nearly(columns(y.read(), outputs, outputs + padding), plain.states.back(), tolerance));
    CHECK(nearly(columns(dx.read(), 13, 13 + padding), plain_dx, tolerance));
    CHECK(nearly(gradients, plain.gradients, tolerance));
    if (!bfloat16) continue;
    // Ends in 16 bits: what floats give that hold the same numbers, rounded.
    const auto bf16 = [](const std::vector<float>& from) {
      std::vector<BFloat16> to;
      for (const float number : from) to.push_back(from_float<BFloat16>(number));
      return to;
    };
    const auto wide = [](const std::vector<BFloat16>& from) {
      std::vector<float> to;
      for (const BFloat16 number : from) to.push_back(to_float(number));
      return to;
    };
    const OnGpu<BFloat16> narrow_x(backend, bf16(x)), narrow_dy(backend, bf16(dy)),
        narrow_y(backend, bf16(std::vector<float>(batch * (outputs + padding), -7.0f))),
        narrow_dx(backend, bf16(std::vector<float>(batch * (13 + padding), -7.0f)));
    const MatrixView<BFloat16> to_y(narrow_y.data(), batch, outputs, outputs + padding),
        to_dx(narrow_dx.data(), batch, 13, 13 + padding);
    const MatrixView<const BFloat16> from_x(narrow_x.data(), batch, 13),
        from_dy(narrow_dy.data(), batch, outputs, outputs + padding);
    mlp.forward(from_x, to_y);
    mlp.backward(from_dy, to_dx);
    backend.copy(gradients.data(), parameters.gradients().data(), values.size() * sizeof(float));
    backend.synchronize();
    CHECK(nearly(columns(wide(narrow_y.read()), outputs, outputs + padding), plain.states.back(),
                 8e-3));
    CHECK(nearly(columns(wide(narrow_dx.read()), 13, 13 + padding), plain_dx, 8e-3));
    CHECK(nearly(gradients, plain.gradients, 8e-3));
    CHECK_THROWS_AS(mlp.backward({device_dy.data(), batch, outputs, outputs + padding}),
                    InvalidArgument);
    // an input alone: it is rounded before the products anyway
    const std::vector<float> once = y.read();
    mlp.forward(from_x, MatrixView<float>(y.data(), batch, outputs, outputs + padding));
    CHECK((y.read() == once));
    PlainMlp exact{sizes, last_relu, doubles(values), {}, {}};
    exact.forward(doubles(x), batch);
    CHECK_FALSE(
        nearly(columns(y.read(), outputs, outputs + padding), exact.states.back(), tolerance));
    CHECK(nearly(columns(y.read(), outputs, outputs + padding), exact.states.back(), 0.1));
  }
}

TEST_CASE("dense layers and the dot interaction keep the laws") {
  const Cuda backend;
  static_assert(DenseLayer<Mlp<Cuda>> && DenseLayer<Mlp<Cuda, 5, 3>> &&
                DenseLayer<CrossInteraction<Linear<Cuda>>>);
  Mlp<Cuda> mlp(backend, {5, 9, 4, 2});
  Linear<Cuda> linear(backend, 4, 6, {.relu = true});
  CrossInteraction<Linear<Cuda>> cross(backend, 6, {.layers = 2, .rank = 2});
  const auto none = [](const std::vector<std::string>& faults) {
    for (const std::string& fault : faults) MESSAGE(fault);
    return faults.empty();
  };
  CHECK(none(laws::dense_layer_laws(backend, mlp)));
  CHECK(none(laws::dense_layer_laws(backend, linear)));
  CHECK(none(laws::dense_layer_laws(backend, cross)));
  CHECK(none(laws::interaction_laws(backend, DotInteraction<27, 16, 8>())));
}

TEST_CASE("mlp: NaN passes every ReLU, also what numbers become on the way") {
  const Cuda backend;
  for (const auto precision : {DensePrecision::float32, DensePrecision::bfloat16})
    for (const bool epilogues : {false, true}) {
      CAPTURE(epilogues);
      Mlp<Cuda> mlp(backend, {2, 2, 2, 1},
                    {.last_relu = true, .precision = precision, .gradient_epilogues = epilogues});
      const auto count = static_cast<std::size_t>(mlp.parameter_count());
      // layers of [out, in], then biases: the second takes one number from the other
      std::vector<float> given{1, 1, 1, 1, 0, 0, 1, -1, 1, 1, 0, 0, 1, 1, 0};
      REQUIRE(given.size() == count);
      OnGpu<float> values(backend, given), gradients(backend, std::vector<float>(count));
      mlp.bind({values.data(), count}, {gradients.data(), count});
      const float nan = std::nanf("");
      const OnGpu<float> x(backend, std::vector<float>{1, 2, nan, 2, 3e38f, 3e38f, -1, -1}),
          y(backend, std::vector<float>(4));
      mlp.forward({x.data(), 4, 2}, {y.data(), 4, 1});
      const std::vector<float> found = y.read();
      CHECK(found[0] == 6);
      CHECK(std::isnan(found[1]));
      CHECK(std::isnan(found[2]));  // infinity less infinity
      CHECK(found[3] == 0);
      given[2] = nan;
      const OnGpu<float> spoiled(backend, given);
      mlp.bind({spoiled.data(), count}, {gradients.data(), count});
      mlp.forward({x.data(), 4, 2}, {y.data(), 4, 1});
      for (const float number : y.read()) CHECK(std::isnan(number));
    }
}

TEST_CASE("mlp: parameters that are kept are copied again when that is said again") {
  const Cuda backend;
  Mlp<Cuda> mlp(backend, {4, 3, 2}, {.precision = DensePrecision::bfloat16});
  DenseParameters parameters(backend, 5, mlp);
  const OnGpu<float> x(backend, std::vector<float>(4, 1.0f)), y(backend, std::vector<float>(2));
  const auto forward = [&] {
    mlp.forward({x.data(), 1, 4}, {y.data(), 1, 2});
    return y.read();
  };
  const auto set = [&](float value) {
    const std::vector<float> values(static_cast<std::size_t>(parameters.size()), value);
    backend.copy(parameters.values().data(), values.data(), values.size() * sizeof(float));
    backend.synchronize();
  };
  set(1);
  mlp.keep_weights();
  CHECK(forward() == std::vector<float>(2, 16.0f));  // 3 hidden numbers of 4 + 1, and 1
  set(2);
  CHECK(forward()[0] == doctest::Approx(17));  // the last layer's bias is read in its place
  mlp.keep_weights();
  CHECK(forward() == std::vector<float>(2, 62.0f));
  mlp.keep_weights(false);
  set(1);
  CHECK(forward() == std::vector<float>(2, 16.0f));
}

TEST_CASE("mlp: an empty batch leaves zero gradients; wrong shapes are named") {
  const Cuda backend;
  Mlp<Cuda> mlp(backend, {4, 2});
  float* const none = nullptr;
  CHECK_THROWS_AS(mlp.forward({none, 0, 4}, {none, 0, 2}), InvalidArgument);  // no parameters yet
  DenseParameters parameters(backend, 5, mlp);
  mlp.forward({none, 0, 4}, {none, 0, 2});
  mlp.backward({none, 0, 2});
  CHECK_THROWS_AS(mlp.forward({none, 2, 5}, {none, 2, 2}), InvalidArgument);
  CHECK_THROWS_AS(mlp.backward({none, 1, 2}), InvalidArgument);
  BFloat16 narrow[8];  // in float32
  CHECK_THROWS_AS(mlp.forward(MatrixView<const BFloat16>(narrow, 2, 4), {none, 2, 2}),
                  InvalidArgument);
  CHECK_THROWS_AS(Mlp<Cuda>(backend, {4}), InvalidArgument);
}

TEST_CASE(
    "mlp: each layer's gradients are announced once, last layer first, when they are final; of an "
    "empty batch, too") {
  for (const std::int64_t batch : {70, 0}) {
    const Cuda backend;
    Mlp<Cuda> mlp(backend, {5, 8, 3, 2});
    DenseParameters parameters(backend, 5, mlp);
    Random random(3);
    const OnGpu<float> x(backend, random_elements<float>(random, batch * 5)),
        dy(backend, random_elements<float>(random, batch * 2)),
        y(backend, std::vector<float>(static_cast<std::size_t>(batch * 2)));
    mlp.forward({x.data(), batch, 5}, {y.data(), batch, 2});
    std::vector<float> announced(static_cast<std::size_t>(parameters.size()), 9.0f);
    std::vector<std::size_t> sizes;
    const float* end = parameters.gradients().data() + parameters.size();
    mlp.backward({dy.data(), batch, 2}, {}, [&](std::span<const float> part) {
      CHECK(part.data() + part.size() == end);
      end = part.data();
      sizes.push_back(part.size());
      backend.copy(announced.data() + (end - parameters.gradients().data()), end,
                   part.size_bytes());
    });
    backend.synchronize();
    CHECK((sizes == std::vector<std::size_t>{3 * 2 + 2, 8 * 3 + 3, 5 * 8 + 8}));
    std::vector<float> gradients(announced.size());
    backend.copy(gradients.data(), parameters.gradients().data(), gradients.size() * sizeof(float));
    backend.synchronize();
    CHECK((announced == gradients));
    CHECK((gradients == std::vector<float>(gradients.size())) == (batch == 0));
  }
}

TEST_CASE(
    "gradients summed in buckets on another stream while backward runs: the bits of one sum after "
    "it") {
  constexpr int ranks = 3, steps = 3;
  constexpr std::int64_t batch = 40;
  for (const std::size_t bucket : {std::size_t{1}, std::size_t{200}, std::size_t{1} << 20}) {
    CAPTURE(bucket);
    under_every_deferral([&] {
      ThreadGroup background(ranks);
      std::atomic<int> wrong = 0;
      run_ranks(ranks, [&](ThreadCommunicator& host) {
        const gpu::Stream stream, summing_stream;
        const Cuda backend({.stream = stream.get()}), summing({.stream = summing_stream.get()});
        BasicThreadCommunicator<CudaTransfer> communicator(host.group(), host.rank(),
                                                           CudaTransfer(backend)),
            second(background, host.rank(), CudaTransfer(summing));
        Mlp<Cuda> mlp(backend, {5, 8, 3, 2});
        DenseParameters parameters(backend, 5, mlp);
        BucketedAllReduce buckets(second, parameters.gradients(), bucket, backend,
                                  Cuda({.stream = summing_stream.get()}));
        Random random(static_cast<unsigned>(host.rank()) + 3);
        const auto gradients = [&] {
          std::vector<float> values(static_cast<std::size_t>(parameters.size()));
          backend.copy(values.data(), parameters.gradients().data(), values.size() * sizeof(float));
          backend.synchronize();
          return values;
        };
        for (int step = 0; step < steps; ++step) {
          const OnGpu<float> x(backend, random_elements<float>(random, batch * 5)),
              dy(backend, random_elements<float>(random, batch * 2)),
              y(backend, std::vector<float>(static_cast<std::size_t>(batch * 2)));
          mlp.forward({x.data(), batch, 5}, {y.data(), batch, 2});
          mlp.backward({dy.data(), batch, 2}, {},
                       [&](std::span<const float> part) { buckets.ready(part); });
          buckets.wait();
          const std::vector<float> found = gradients();
          mlp.backward({dy.data(), batch, 2});
          communicator.all_reduce(parameters.gradients());
          wrong += found != gradients();
        }
      });
      CHECK(wrong == 0);
    });
  }
}

TEST_CASE("cross layers: against the definition and its central differences, low rank and full") {
  for (const std::int64_t rank : {0, 2})
    for (const int layers : {1, 3}) {
      CAPTURE(rank);
      CAPTURE(layers);
      const CrossRun run(3, 6, {.layers = layers, .rank = rank}, 1);
      std::vector<double> x = doubles(run.x), values = doubles(run.values), dx, gradients;
      const auto outputs = [&] { return cross_reference::reference(x, values, 6, layers, rank); };
      const auto derivative = [&](double& at) {
        const double middle = at, step = 1e-5;
        double difference = 0;
        for (const double sign : {1.0, -1.0}) {
          at = middle + sign * step;
          const std::vector<double> y = outputs();
          for (std::size_t i = 0; i < y.size(); ++i) difference += sign * y[i] * run.dy[i];
        }
        at = middle;
        return difference / (2 * step);
      };
      CHECK(nearly(run.y, outputs(), 1e-5));
      for (double& number : x) dx.push_back(derivative(number));
      for (double& number : values) gradients.push_back(derivative(number));
      CHECK(nearly(run.dx, dx));
      CHECK(nearly(run.gradients, gradients));
    }
}

TEST_CASE(
    "cross layers: as the host's, first values too; any width, alignment and number of rows; the "
    "same bits in every order") {
  struct Case {
    std::int64_t batch, width, rank, padding;
  };
  for (const Case& c :
       slow_run ? std::vector<Case>{{40, 132, 3, 0}}
                : std::vector<Case>{{520, 132, 5, 0}, {33, 160, 0, 4}, {70, 130, 1, 3}}) {
    CAPTURE(c.width);
    CAPTURE(c.rank);
    const CrossRun run(c.batch, c.width, {.layers = 2, .rank = c.rank}, c.padding);
    CrossInteraction<FirstValues> host(c.width, {.layers = 2, .rank = c.rank});
    std::vector<float> values(run.values.size()), gradients(run.values.size()), y(run.x.size()),
        dx(run.x.size());
    host.bind(values, gradients);
    host.initialize(5);
    CHECK(values == run.values);
    host.forward({run.x.data(), c.batch, c.width}, {y.data(), c.batch, c.width});
    host.backward({run.dy.data(), c.batch, c.width}, {dx.data(), c.batch, c.width});
    CHECK(nearly(run.y, doubles(y)));
    CHECK(nearly(run.dx, doubles(dx), 1e-3));
    CHECK(nearly(run.gradients, doubles(gradients), 1e-3));
    in_every_order([&] {
      const CrossRun again(c.batch, c.width, {.layers = 2, .rank = c.rank}, c.padding);
      CHECK(again.y == run.y);
      CHECK(again.dx == run.dx);
      CHECK(again.gradients == run.gradients);
    });
  }
}

namespace {

/// A bottom MLP's floats and pooled vectors of `Pooled`, side by side as an X, through cross layers and
/// a top MLP, and back: everything that a step gives, as floats.
template <Element Pooled, Element X>
struct CrossModelRun {
  std::vector<float> scores, bottom_gradient, pooled_gradient, gradients;

  explicit CrossModelRun(std::int64_t batch) {
    constexpr std::int64_t dense = 8, width = 24, whole = dense + width;
    const Cuda backend;
    CrossInteraction<Linear<Cuda>> cross(backend, whole, {.layers = 2, .rank = 4});
    Mlp<Cuda> top(backend, {whole, 16, 1}, {.precision = DensePrecision::bfloat16});
    DenseParameters parameters(backend, 5, cross, top);
    Random random(4);
    const OnGpu<float> bottom(backend, random_elements<float>(random, batch * dense)),
        d_scores(backend, random_elements<float>(random, batch)),
        y(backend, std::vector<float>(static_cast<std::size_t>(batch))),
        d_bottom(backend, std::vector<float>(static_cast<std::size_t>(batch * dense)));
    const auto numbers = random_elements<BFloat16>(random, batch * width);
    std::vector<Pooled> vectors;
    for (const BFloat16 number : numbers) vectors.push_back(from_float<Pooled>(to_float(number)));
    const OnGpu<Pooled> pooled(backend, vectors), d_pooled(backend, vectors);
    const std::vector<X> unwritten(static_cast<std::size_t>(batch * whole));
    const OnGpu<X> x(backend, unwritten), crossed(backend, unwritten), dx(backend, unwritten),
        d_crossed(backend, unwritten);
    const auto matrix = [&]<class T>(const OnGpu<T>& of, std::int64_t columns) {
      return MatrixView<T>(of.data(), batch, columns);
    };
    const auto read = []<class T>(const OnGpu<T>& of) {
      std::vector<float> floats;
      for (const T number : of.read()) floats.push_back(to_float(number));
      return floats;
    };
    Concat::forward(backend, std::tuple(matrix(bottom, dense), matrix(pooled, width)),
                    matrix(x, whole));
    cross.forward(matrix(x, whole), matrix(crossed, whole));
    top.forward(MatrixView<const X>(matrix(crossed, whole)), matrix(y, 1));
    top.backward(MatrixView<const float>(matrix(d_scores, 1)), matrix(d_crossed, whole));
    cross.backward(matrix(d_crossed, whole), matrix(dx, whole));
    Concat::backward(backend, matrix(dx, whole),
                     std::tuple(matrix(d_bottom, dense), matrix(d_pooled, width)));
    scores = y.read();
    bottom_gradient = d_bottom.read();
    pooled_gradient = read(d_pooled);
    gradients.resize(static_cast<std::size_t>(parameters.size()));
    backend.copy(gradients.data(), parameters.gradients().data(), gradients.size() * sizeof(float));
    backend.synchronize();
  }
};

/// The root of the mean square difference, as a share of the numbers' own.
double difference(const std::vector<float>& found, const std::vector<float>& expected) {
  REQUIRE(found.size() == expected.size());
  double apart = 0, all = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    apart += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2);
    all += std::pow(static_cast<double>(expected[i]), 2);
  }
  REQUIRE(all > 0);
  return std::sqrt(apart / all);
}

/// Ends stored in X and Y: the numbers of Host's layers with the same ends, to one step of what they are
/// stored in.
template <Element X, Element Y>
void check_narrow_ends(std::int64_t batch, std::int64_t width, CrossOptions options,
                       std::int64_t padding) {
  CAPTURE(width);
  const Cuda backend;
  CrossInteraction<Linear<Cuda>> cross(backend, width, options);
  CrossInteraction<FirstValues> host(width, options);
  DenseParameters parameters(backend, 5, cross);
  const std::int64_t stride = width + padding;
  Random random(3);
  const auto x = random_elements<X>(random, batch * stride);
  const auto dy = random_elements<Y>(random, batch * stride);
  const std::vector<Y> no_y(static_cast<std::size_t>(batch * stride), from_float<Y>(-7));
  const std::vector<X> no_x(static_cast<std::size_t>(batch * stride), from_float<X>(-7));
  const OnGpu<X> device_x(backend, x), device_dx(backend, no_x);
  const OnGpu<Y> device_dy(backend, dy), device_y(backend, no_y);
  const auto view = [&](auto* data) { return MatrixView(data, batch, width, stride); };
  cross.forward(view(device_x.data()), view(device_y.data()));
  cross.backward(view(device_dy.data()), view(device_dx.data()));

  std::vector<float> values(static_cast<std::size_t>(parameters.size())), gradients(values.size()),
      found(values.size());
  host.bind(values, gradients);
  host.initialize(5);
  std::vector<Y> y = no_y;
  std::vector<X> dx = no_x;
  host.forward(view(x.data()), view(y.data()));
  host.backward(view(dy.data()), view(dx.data()));
  const auto same = [](const auto& on_device, const auto& expected, double step) {
    const auto got = on_device.read();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double e = to_float(expected[i]);
      if (!(std::fabs(to_float(got[i]) - e) <= step * std::fabs(e) + 1e-3)) return false;
    }
    return true;
  };
  const auto step = []<class T>(T) {
    return std::is_same_v<T, float> ? 1e-4 : std::is_same_v<T, Half> ? 0x1p-10 : 0x1p-7;
  };
  CHECK(same(device_y, y, step(Y{})));
  CHECK(same(device_dx, dx, step(X{})));
  backend.copy(found.data(), parameters.gradients().data(), found.size() * sizeof(float));
  backend.synchronize();
  CHECK(nearly(found, doubles(gradients), 1e-3));
}

}  // namespace

TEST_CASE("cross layers: ends of 16 bits, any width and alignment") {
  check_narrow_ends<BFloat16, BFloat16>(slow_run ? 5 : 40, 132, {.layers = 2, .rank = 3}, 4);
  check_narrow_ends<BFloat16, BFloat16>(3, 9, {.layers = 1, .rank = 0}, 0);
  check_narrow_ends<Half, float>(6, 12, {.layers = 3, .rank = 2}, 3);
  const Cuda backend;
  CrossInteraction<Linear<Cuda>> cross(backend, 4);
  DenseParameters parameters(backend, 5, cross);
  const OnGpu<BFloat16> x(backend, std::vector<BFloat16>(4));
  const OnGpu<float> y(backend, std::vector<float>(4));
  cross.forward(MatrixView<const BFloat16>(x.data(), 1, 4), MatrixView<float>(y.data(), 1, 4));
  CHECK_THROWS_WITH_AS(cross.backward({y.data(), 1, 4}, {y.data(), 1, 4}),
                       "CrossInteraction: the last forward read an input of BFloat16, its gradient "
                       "is to be float; give one of the same type",
                       InvalidArgument);
}

namespace {

/// What layers in bfloat16 give of numbers that 16 bits hold, whose ends are stored in End, as
/// floats. Ends are columns of matrices that are wider by `padding`.
template <Element End>
CrossRun in_bfloat16(std::int64_t batch, std::int64_t width, std::int64_t rank,
                     std::int64_t padding) {
  const Cuda backend;
  CrossRun run(0, width,
               {.layers = 3, .rank = rank, .precision = DensePrecision::bfloat16, .candidates = 2});
  CrossInteraction<Linear<Cuda>> cross(backend, width, run.options);
  DenseParameters parameters(backend, 5, cross);
  const std::int64_t stride = width + padding;
  Random random(3);
  const auto given = [&] {
    std::vector<End> numbers;
    for (const BFloat16 number : random_elements<BFloat16>(random, batch * stride))
      numbers.push_back(from_float<End>(to_float(number)));
    return numbers;
  };
  const auto floats = [](const std::vector<End>& numbers) {
    std::vector<float> wide;
    for (const End number : numbers) wide.push_back(to_float(number));
    return wide;
  };
  const auto inputs = [&](const std::vector<End>& numbers) {
    const std::vector<float> wide = floats(numbers);
    std::vector<float> part;
    for (std::int64_t i = 0; i < batch * stride; ++i)
      if (i % stride < width) part.push_back(wide[static_cast<std::size_t>(i)]);
    return part;
  };
  const std::vector<End> x = given(), dy = given(),
                         unwritten(static_cast<std::size_t>(batch * stride), from_float<End>(-7));
  const OnGpu<End> device_x(backend, x), device_dy(backend, dy), device_y(backend, unwritten),
      device_dx(backend, unwritten);
  const auto matrix = [&](const OnGpu<End>& of) {
    return MatrixView<End>(of.data(), batch, width, stride);
  };
  cross.forward(matrix(device_x), matrix(device_y));
  cross.backward(matrix(device_dy), matrix(device_dx));
  run.batch = batch;
  run.x = inputs(x);
  run.dy = inputs(dy);
  run.y = columns(floats(device_y.read()), width, stride);
  run.dx = columns(floats(device_dx.read()), width, stride);
  run.gradients.resize(static_cast<std::size_t>(parameters.size()));
  backend.copy(run.gradients.data(), parameters.gradients().data(),
               run.gradients.size() * sizeof(float));
  backend.synchronize();
  return run;
}

double rounded(double x) { return to_float(from_float<BFloat16>(static_cast<float>(x))); }

/// The definition where what is stored in 16 bits is rounded to them; y in full.
std::vector<double> rounded_cross(const CrossRun& run) {
  const std::int64_t n = run.width, rank = run.options.rank, inner = rank > 0 ? rank : n;
  std::vector<double> x = doubles(run.x), state = x, p = doubles(run.values);
  for (double& number : p) number = rounded(number);
  const double* at = p.data();
  for (int l = 0; l < run.options.layers; ++l) {
    const double *v = at, *u = v + rank * n, *b = u + n * inner;
    std::vector<double> next = state;
    for (std::int64_t s = 0; s < run.batch; ++s) {
      const double* const in = state.data() + s * n;
      std::vector<double> t(in, in + n);
      if (rank > 0) {
        t.assign(static_cast<std::size_t>(rank), 0);
        for (std::int64_t r = 0; r < rank; ++r) {
          for (std::int64_t k = 0; k < n; ++k)
            t[static_cast<std::size_t>(r)] += v[r * n + k] * in[k];
          t[static_cast<std::size_t>(r)] = rounded(t[static_cast<std::size_t>(r)]);
        }
      }
      for (std::int64_t k = 0; k < n; ++k) {
        double scale = b[k];
        for (std::int64_t r = 0; r < inner; ++r)
          scale += u[k * inner + r] * t[static_cast<std::size_t>(r)];
        const auto i = static_cast<std::size_t>(s * n + k);
        const double after = x[i] * rounded(scale) + state[i];
        next[i] = l + 1 < run.options.layers ? rounded(after) : after;
      }
    }
    state = next;
    at = b + n;
  }
  return state;
}

}  // namespace

TEST_CASE("cross layers in bfloat16: any width and rank, ends of floats and of 16 bits") {
  struct Case {
    std::int64_t batch, width, rank, padding;
  };
  for (const Case& c :
       slow_run
           ? std::vector<Case>{{20, 13, 3, 0}}
           : std::vector<Case>{{140, 132, 5, 0}, {33, 160, 16, 8}, {40, 27, 0, 3}, {9, 8, 0, 1}}) {
    CAPTURE(c.width);
    CAPTURE(c.rank);
    CrossRun narrow = in_bfloat16<float>(c.batch, c.width, c.rank, c.padding);
    narrow.values = CrossRun(1, c.width, {.layers = 3, .rank = c.rank}).values;
    // A sum that is added up in another order is now and then rounded to the other neighbour.
    CHECK(nearly(narrow.y, rounded_cross(narrow), 0.02));
    // The host's layers, which multiply floats.
    CrossInteraction<FirstValues> host(c.width, {.layers = 3, .rank = c.rank});
    std::vector<float> values(narrow.values.size()), gradients(values.size()), y(narrow.x.size()),
        dx(narrow.x.size());
    host.bind(values, gradients);
    host.initialize(5);
    host.forward({narrow.x.data(), c.batch, c.width}, {y.data(), c.batch, c.width});
    host.backward({narrow.dy.data(), c.batch, c.width}, {dx.data(), c.batch, c.width});
    CHECK(difference(narrow.y, y) < 0.02);
    CHECK(difference(narrow.y, y) > 1e-4);
    CHECK(difference(narrow.dx, dx) < 0.02);
    CHECK(difference(narrow.gradients, gradients) < 0.02);
    // Ends of 16 bits: the same numbers, rounded once. Where rows lie otherwise, cuBLASLt may round a
    // product before it adds what is of 16 bits, or after it.
    const CrossRun ends = in_bfloat16<BFloat16>(c.batch, c.width, c.rank, c.padding);
    for (float& number : narrow.y) number = to_float(from_float<BFloat16>(number));
    for (float& number : narrow.dx) number = to_float(from_float<BFloat16>(number));
    CHECK(ends.x == narrow.x);
    CHECK(difference(ends.y, narrow.y) < 2e-3);
    CHECK(difference(ends.dx, narrow.dx) < 0.01);
    CHECK(difference(ends.gradients, narrow.gradients) < 0.01);
    const CrossRun halves = in_bfloat16<Half>(c.batch, c.width, c.rank, c.padding);
    CHECK(difference(halves.y, narrow.y) < 0.01);
    CHECK(difference(halves.dx, narrow.dx) < 0.01);
    CHECK(difference(halves.gradients, narrow.gradients) < 0.01);
  }
}

TEST_CASE("concat, cross layers and mlp in 16 bits: a step of floats, but for rounding") {
  const CrossModelRun<BFloat16, BFloat16> narrow(40);
  const CrossModelRun<float, float> wide(40);
  CHECK(difference(narrow.scores, wide.scores) < 0.02);
  CHECK(difference(narrow.bottom_gradient, wide.bottom_gradient) < 0.02);
  CHECK(difference(narrow.pooled_gradient, wide.pooled_gradient) < 0.02);
  CHECK(difference(narrow.gradients, wide.gradients) < 0.02);
}

TEST_CASE("cross layers: an empty batch leaves zero gradients; wrong shapes are named") {
  const CrossRun empty(0, 4, {.rank = 2});
  CHECK(empty.gradients == std::vector<float>(3 * (2 * 4 + 4 * 2 + 4)));
  const Cuda backend;
  CrossInteraction<Linear<Cuda>> cross(backend, 4);
  float* const none = nullptr;
  CHECK_THROWS_WITH_AS(
      cross.forward({none, 0, 4}, {none, 0, 4}),
      "CrossInteraction: has no parameters yet; construct DenseParameters with it, or call bind",
      InvalidArgument);
  DenseParameters parameters(backend, 5, cross);
  CHECK_THROWS_WITH_AS(cross.forward({none, 2, 5}, {none, 2, 4}),
                       "CrossInteraction: input is 2 x 5, must be 2 x 4", InvalidArgument);
  cross.forward({none, 0, 4}, {none, 0, 4});
  CHECK_THROWS_WITH_AS(cross.backward({none, 1, 4}, {none, 0, 4}),
                       "CrossInteraction: output gradient is 1 x 4, must be 0 x 4",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(CrossInteraction<Linear<Cuda>>(backend, 4, {.rank = -1}),
                       "CrossInteraction: rank must not be negative (0 is full rank), is -1",
                       InvalidArgument);
}

TEST_CASE("dense gradients of several batches are summed, and then taken once") {
  const Cuda backend;
  Mlp<Cuda> mlp(backend, {3, 2});
  DenseParameters parameters(backend, 5, mlp);
  const auto count = static_cast<std::size_t>(parameters.size());
  const auto set = [&](float x) {
    const std::vector<float> values(count, x);
    backend.copy(parameters.gradients().data(), values.data(), count * sizeof(float));
    backend.synchronize();
  };
  const auto get = [&] {
    std::vector<float> values(count);
    backend.copy(values.data(), parameters.gradients().data(), count * sizeof(float));
    backend.synchronize();
    return values;
  };
  for (const float x : {1.0f, 10.0f}) set(x), parameters.accumulate();
  set(1000);
  parameters.take_accumulated();
  CHECK(get() == std::vector<float>(count, 11));
  CHECK_THROWS_AS(parameters.take_accumulated(), InvalidArgument);
  set(7), parameters.accumulate();
  parameters.take_accumulated();
  CHECK(get() == std::vector<float>(count, 7));
}

TEST_CASE("loss: value and gradient; large logits") {
  const Cuda backend;
  Random random(2);
  const std::int64_t batch = slow_run ? 600 : 66'000;  // more blocks than a block has threads
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
    const OnGpu<float> device_logits(backend, logits), device_labels(backend, labels),
        gradient(backend, std::vector<float>(batch));
    const OnGpu<double> loss(backend, {1.0});
    BinaryCrossEntropyWithLogits{1000}.forward_backward(
        backend, {device_logits.data(), batch, 1},
        {device_labels.data(), static_cast<std::size_t>(batch)}, {gradient.data(), batch, 1},
        loss.data());
    CHECK(loss.read()[0] - 1 == doctest::Approx(expected).epsilon(1e-9));
    CHECK(nearly(gradient.read(), gradients, 1e-9));
    const OnGpu<double> shares(backend, std::vector<double>{0.5, 0, 2}), of_shares(backend, {1.0});
    BinaryCrossEntropyWithLogits{.shares = {shares.data(), 3}}.forward_backward(
        backend, {device_logits.data(), 3, 1}, {device_labels.data(), 3}, {gradient.data(), 3, 1},
        of_shares.data());
    CHECK(of_shares.read()[0] - 1 == doctest::Approx(2 * std::log1p(std::exp(double{logits[2]}))));
    CHECK(gradient.read()[1] == 0);
    CHECK(gradient.read()[2] == doctest::Approx(2000 * gradients[2]));
    for (const float label : {-0.5f, 2.0f}) {
      const OnGpu<float> bad_label(backend, {label});
      const OnGpu<double> bad_loss(backend, {1.0});
      BinaryCrossEntropyWithLogits{}.forward(backend, {device_logits.data(), 1, 1},
                                             {bad_label.data(), 1}, bad_loss.data());
      CHECK(std::isnan(bad_loss.read()[0]));
    }
  });
}

TEST_CASE("dense optimizers: the formulas, with weight decay") {
  const Cuda backend;
  Mlp<Cuda> mlp(backend, {3, 2});
  DenseParameters parameters(backend, 5, mlp);
  Random random(9);
  const auto count = static_cast<std::size_t>(parameters.size());
  const std::vector<float> first = random_elements<float>(random, 8),
                           gradients = random_elements<float>(random, 8);
  const auto run = [&](auto optimizer) {
    backend.copy(parameters.values().data(), first.data(), count * sizeof(float));
    backend.copy(parameters.gradients().data(), gradients.data(), count * sizeof(float));
    DenseOptimizer steps(backend, optimizer, 0.5f);
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
      w[2] -= 0.25 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)) * m /
              (std::sqrt(v) + 1e-8);
    }
    sgd.push_back(w[0]);
    adagrad.push_back(w[1]);
    adam.push_back(w[2]);
  }
  CHECK(nearly(run(Sgd{}), sgd));
  CHECK(nearly(run(Adagrad{}), adagrad));
  CHECK(nearly(run(Adam{}), adam));
}
