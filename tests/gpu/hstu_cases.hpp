// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/dense/dense.cuh>
#include <tessera/sequence/hstu.cuh>

#include <doctest/doctest.h>
#include <gpu/device.hpp>
#include <gpu/graph.hpp>
#include <support/hstu_reference.hpp>
#include <support/message_of.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

// An HSTU block on a GPU: its output against the definition in double, its gradients against
// differences of that.

namespace hstu_cases {

using namespace tessera;

constexpr int heads = 2, attention_dim = 4, hidden_dim = 3, width = 5;
using Layer = HstuLayer<heads, attention_dim, hidden_dim, Cuda>;
using Plain = PlainHstu<heads, attention_dim, hidden_dim, width>;

/// First values as every backend has them.
struct OnHost : detail::HstuParameters<heads, attention_dim, hidden_dim> {
  using Base = detail::HstuParameters<heads, attention_dim, hidden_dim>;
  explicit OnHost(HstuOptions options) : Base(hstu_cases::width, options) {}
  std::vector<float> first(std::uint64_t seed) const {
    std::vector<float> values(static_cast<std::size_t>(parameter_count()));
    first_values(values, seed, 0);
    return values;
  }
  /// Where each kind of parameters ends.
  std::vector<std::int64_t> ends() const {
    return {uvqk_offset(), uvqk_bias_offset(), output_norm_offset(), output_offset(),
            parameter_count()};
  }
};

/// Along a random direction in each kind of parameters, and in x: the slope of what `gradient` is of.
inline void check_slopes(const Plain& plain, const std::vector<float>& dy,
                         const std::vector<float>& gradients, const std::vector<float>& dx,
                         const std::vector<std::int64_t>& ends) {
  Random random(11);
  const auto check = [&](std::vector<double> Plain::* of, std::int64_t begin, std::int64_t end,
                         const std::vector<float>& found) {
    std::vector<double> direction;
    for (std::int64_t i = begin; i < end; ++i) direction.push_back(random_float(random));
    const auto value = [&](double step) {
      Plain moved = plain;
      for (std::int64_t i = begin; i < end; ++i) (moved.*of)[i] += step * direction[i - begin];
      const std::vector<double> at = moved.output();
      double sum = 0;
      for (std::size_t i = 0; i < at.size(); ++i) sum += at[i] * dy[i];
      return sum;
    };
    const double h = 1e-5, slope = (value(h) - value(-h)) / (2 * h);
    double expected = 0, size = 1;
    for (std::int64_t i = begin; i < end; ++i) {
      expected += direction[i - begin] * found[i];
      size += std::fabs(direction[i - begin] * found[i]);
    }
    INFO("numbers ", begin, " to ", end);
    CHECK(std::fabs(slope - expected) < 2e-4 * size);
  };
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) check(&Plain::p, std::exchange(begin, end), end, gradients);
  for (int time = 0; time < 2; ++time) check(&Plain::x, 0, std::ssize(dx), dx);
}

inline void check(HstuOptions options, const std::vector<std::int64_t>& lengths,
                  const std::vector<std::int64_t>& targets) {
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + length);
  options.max_length = 80;
  options.alpha = 0.6f;
  options.norm_epsilon = 1e-3f;
  const std::int64_t rows = offsets.back();
  const auto y_bytes = static_cast<std::size_t>(rows * width) * sizeof(float);
  Random random(7);
  std::vector<float> x = random_elements<float>(random, rows * width),
                     dy = random_elements<float>(random, rows * width);

  const OnHost host(options);
  std::vector<float> values = host.first(3);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.4f * random_float(random) + (i < width ? 1.0f : 0.0f);
  const Plain plain{
      options, {values.begin(), values.end()}, {x.begin(), x.end()}, offsets, targets};
  const std::vector<double> defined = plain.output();

  std::vector<float> last, gradients, dx;
  in_every_order([&] {
    const gpu::Stream stream;
    const Cuda backend({.stream = stream.get()});
    Layer layer(backend, width, options);
    DenseParameters parameters(backend, 3, layer);
    backend.copy(parameters.values().data(), values.data(), parameters.values().size_bytes());
    const OnGpu<float> on_x(backend, x), on_dy(backend, dy), on_y(backend, x), on_dx(backend, x);
    const OnGpu<std::int64_t> on_offsets(backend, offsets), on_targets(backend, targets);
    const SequenceBatch batch{{on_offsets.data(), offsets.size()},
                              {on_targets.data(), targets.size()}};
    const auto step = [&] {
      layer.forward({on_x.data(), rows, width}, batch, {on_y.data(), rows, width});
      layer.backward({on_dy.data(), rows, width}, {on_dx.data(), rows, width});
    };
    const auto gradients_now = [&] {
      std::vector<float> found(parameters.gradients().size());
      backend.copy(found.data(), parameters.gradients().data(),
                   parameters.gradients().size_bytes());
      backend.synchronize();
      return found;
    };
    step();
    last = gradients_now();
    // captured: the same bits, of all that it writes
    const Graph graph(stream, step);
    backend.fill_zero(parameters.gradients().data(), parameters.gradients().size_bytes());
    backend.fill_zero(on_y.data(), y_bytes);
    backend.fill_zero(on_dx.data(), y_bytes);
    graph.launch();
    CHECK((gradients_now() == last));
    const std::vector<float> found = on_y.read();
    double worst = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
      worst = std::fmax(worst, std::fabs(found[i] - defined[i]) / (1 + std::fabs(defined[i])));
    CHECK(worst < 2e-4);
    // the same bits under every order
    if (!gradients.empty()) CHECK((gradients == last));
    gradients = last;
    dx = on_dx.read();
  });
  check_slopes(plain, dy, gradients, dx, host.ends());
}

inline void check_edges() {
  const Cuda backend;
  Layer layer(backend, width, {.max_length = 4});
  CHECK(message_of<InvalidArgument>([&] {
          layer.forward({nullptr, 0, width}, {}, {nullptr, 0, width});
        }) == "HstuLayer: has no parameters yet; construct DenseParameters with it, or call bind");
  DenseParameters parameters(backend, 3, layer);
  std::vector<float> values(parameters.values().size());
  backend.copy(values.data(), parameters.values().data(), parameters.values().size_bytes());
  backend.synchronize();
  CHECK((values == OnHost({.max_length = 4}).first(3)));

  const OnGpu<std::int64_t> zeros(backend, std::vector<std::int64_t>{0, 0, 0});
  layer.forward({nullptr, 0, width}, {{zeros.data(), 3}}, {nullptr, 0, width});
  layer.backward({nullptr, 0, width});
  backend.copy(values.data(), parameters.gradients().data(), parameters.gradients().size_bytes());
  backend.synchronize();
  CHECK((values == std::vector<float>(values.size(), 0.0f)));

  const OnGpu<float> x(backend, std::vector<float>(6 * width, 1.0f)),
      y(backend, std::vector<float>(6 * width));
  const auto forward = [&](std::int64_t columns, std::size_t offsets, std::size_t targets) {
    return message_of<InvalidArgument>([&] {
      layer.forward({x.data(), 6, columns}, {{zeros.data(), offsets}, {zeros.data(), targets}},
                    {y.data(), 6, width});
    });
  };
  CHECK(forward(4, 3, 0) == "HstuLayer: input is 6 x 4, output 6 x 5; both must be positions x 5");
  CHECK(forward(width, 0, 0) == "HstuLayer: no offsets; a batch of 0 sequences has one, 0");
  CHECK(forward(width, 3, 1) == "HstuLayer: 1 numbers of targets for 2 sequences");
  CHECK(message_of<InvalidArgument>([&] { Layer(backend, 0, {.max_length = 4}); }) ==
        "HstuLayer: width must be positive, got 0");

  // Positions that no sequence has, and offsets out of range: no memory but their own is touched.
  const OnGpu<std::int64_t> wild(backend, std::vector<std::int64_t>{-5, 3, 900}),
      many(backend, std::vector<std::int64_t>{7, -1});
  layer.forward({x.data(), 6, width}, {{wild.data(), 3}, {many.data(), 2}}, {y.data(), 6, width});
  layer.backward({x.data(), 6, width});
  for (const float number : y.read()) CHECK(std::isfinite(number));
}

}  // namespace hstu_cases

TEST_CASE("HSTU on CUDA: output as defined, gradients as its slopes, over several tiles") {
  using hstu_cases::check;
  SUBCASE("causal") { check({}, {70, 0, 1, 33}, {}); }
  SUBCASE("targets, some sequences of nothing else") {
    check({.concat_ux = true}, {49, 7, 40}, {20, 7, 0});
  }
  SUBCASE("a window, SiLU of U alone") {
    check({.silu_all = false, .attention_window = 9}, {78, 30}, {3, 0});
  }
}

TEST_CASE("HSTU on CUDA: first values as the host's; no positions; what does not fit") {
  hstu_cases::check_edges();
}
