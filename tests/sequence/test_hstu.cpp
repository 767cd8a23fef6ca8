// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <tessera/core/random.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/sequence/hstu.hpp>

#include <doctest/doctest.h>
#include <support/hstu_reference.hpp>
#include <support/message_of.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace tessera;

constexpr int kHeads = 2, kAttention = 4, kHidden = 3, kWidth = 5;
using Layer = HstuLayer<kHeads, kAttention, kHidden>;
using Plain = PlainHstu<kHeads, kAttention, kHidden, kWidth>;

float number(std::uint64_t stream, std::uint64_t i) {
  return static_cast<float>(random_word(7, stream, i) >> 40) * 0x1p-23f - 1.0f;
}

struct Run {
  std::vector<float> y, dx, gradients;
};

Run run(Layer& layer, DenseParameters<>& parameters, const std::vector<float>& x,
        const std::vector<float>& dy, const SequenceBatch& batch) {
  const std::int64_t rows = std::ssize(x) / kWidth;
  Run result{std::vector<float>(x.size()), std::vector<float>(x.size()), {}};
  layer.forward({x.data(), rows, kWidth}, batch, {result.y.data(), rows, kWidth});
  layer.backward({dy.data(), rows, kWidth}, {result.dx.data(), rows, kWidth});
  result.gradients.assign(parameters.gradients().begin(), parameters.gradients().end());
  return result;
}

void check(HstuOptions options, const std::vector<std::int64_t>& lengths,
           const std::vector<std::int64_t>& targets) {
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + length);
  options.max_length = 700;
  options.alpha = 0.6f;
  options.norm_epsilon = 1e-3f;
  Layer layer(kWidth, options);
  DenseParameters parameters(3, layer);
  for (std::size_t i = 0; i < parameters.values().size(); ++i)
    parameters.values()[i] = 0.7f * number(1, i) + (i < kWidth ? 1.0f : 0.0f);
  std::vector<float> x(static_cast<std::size_t>(offsets.back() * kWidth)), dy(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = number(2, i), dy[i] = number(3, i);
  const SequenceBatch batch{offsets, targets};
  const Run found = run(layer, parameters, x, dy, batch);

  Plain plain{options,
              {parameters.values().begin(), parameters.values().end()},
              {x.begin(), x.end()},
              offsets,
              targets};
  const std::vector<double> y = plain.output();
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i)
    worst = std::max(worst, std::abs(y[i] - found.y[i]) / (1 + std::abs(y[i])));
  CHECK(worst < 1e-4);

  // the gradient along random directions, of the parameters and of the input
  for (std::uint64_t direction = 0; direction < 4; ++direction) {
    double expected = 0, slope = 0;
    const double h = 1e-5;
    std::vector<double> of_p(plain.p.size()), of_x(plain.x.size());
    for (std::size_t i = 0; i < of_p.size(); ++i)
      of_p[i] = direction < 2 ? number(10 + direction, i) : 0.0f;
    for (std::size_t i = 0; i < of_x.size(); ++i)
      of_x[i] = direction < 2 ? 0.0f : number(10 + direction, i);
    const auto value = [&](double step) {
      Plain moved = plain;
      for (std::size_t i = 0; i < of_p.size(); ++i) moved.p[i] += step * of_p[i];
      for (std::size_t i = 0; i < of_x.size(); ++i) moved.x[i] += step * of_x[i];
      const std::vector<double> at = moved.output();
      double sum = 0;
      for (std::size_t i = 0; i < at.size(); ++i) sum += at[i] * dy[i];
      return sum;
    };
    slope = (value(h) - value(-h)) / (2 * h);
    double size = 1;
    for (std::size_t i = 0; i < of_p.size(); ++i)
      expected += of_p[i] * found.gradients[i], size += std::abs(of_p[i] * found.gradients[i]);
    for (std::size_t i = 0; i < of_x.size(); ++i)
      expected += of_x[i] * found.dx[i], size += std::abs(of_x[i] * found.dx[i]);
    INFO("direction ", direction);
    CHECK(std::abs(slope - expected) < 2e-4 * size);
  }

  for (const int threads : {2, 5}) {
    Layer again(Host({.threads = threads}), kWidth, options);
    DenseParameters same(3, again);
    std::copy(parameters.values().begin(), parameters.values().end(), same.values().begin());
    const Run other = run(again, same, x, dy, batch);
    CHECK((other.y == found.y));
    CHECK((other.dx == found.dx));
    CHECK((other.gradients == found.gradients));
  }
}

}  // namespace

TEST_CASE("HSTU: value and gradients of sequences over several blocks; any threads, same bits") {
  SUBCASE("causal") { check({}, {600, 0, 1, 300}, {}); }
  SUBCASE("targets, some sequences of nothing else") {
    check({.concat_ux = true}, {290, 7, 140}, {150, 7, 0});
  }
  SUBCASE("a window, SiLU of U alone") {
    check({.silu_all = false, .attention_window = 50}, {520, 130}, {3, 0});
  }
}

// Forward and backward of any length and number of heads, up to 128 threads: below 64 MiB.
static_assert(128 * 2 * sizeof(float) * detail::HstuAttention::scratch() <= std::size_t{64} << 20);

TEST_CASE("HSTU: no sequences, and sequences of nothing") {
  Layer layer(kWidth, {.max_length = 4});
  DenseParameters parameters(3, layer);
  const std::vector<std::int64_t> none{0}, empty{0, 0, 0};
  for (const auto& offsets : {none, empty}) {
    layer.forward({nullptr, 0, kWidth}, {offsets}, {nullptr, 0, kWidth});
    layer.backward({nullptr, 0, kWidth});
    for (const float g : parameters.gradients()) CHECK(g == 0.0f);
  }
}

TEST_CASE("HSTU: what does not fit is named, and nothing is written") {
  Layer layer(kWidth, {.max_length = 4});
  std::vector<float> x(6 * kWidth, 1.0f), y(6 * kWidth, 9.0f);
  const auto forward = [&](std::vector<std::int64_t> offsets, std::vector<std::int64_t> targets,
                           std::int64_t columns = kWidth) {
    return message_of<InvalidArgument>(
        [&] { layer.forward({x.data(), 6, columns}, {offsets, targets}, {y.data(), 6, kWidth}); });
  };
  CHECK(forward({0, 6}, {}) ==
        "HstuLayer: has no parameters yet; construct DenseParameters with it, or call bind");
  DenseParameters parameters(3, layer);
  CHECK(forward({0, 3, 6}, {}, 4) ==
        "HstuLayer: input is 6 x 4, output 6 x 5; both must be positions x 5");
  CHECK(forward({0, 3, 5}, {}) ==
        "HstuLayer: offsets must begin with 0 and end with the 6 positions of the input");
  CHECK(forward({}, {}) ==
        "HstuLayer: offsets must begin with 0 and end with the 6 positions of the input");
  CHECK(forward({0, 4, 3, 6}, {}) == "HstuLayer: offsets decrease after sequence 1");
  CHECK(forward({0, 1, 6}, {}) == "HstuLayer: sequence 1 has 5 positions; max_length is 4");
  CHECK(forward({0, 3, 6}, {1}) == "HstuLayer: 1 numbers of targets for 2 sequences");
  CHECK(forward({0, 3, 6}, {1, 4}) == "HstuLayer: sequence 1 has 4 targets and 3 positions");
  CHECK(message_of<InvalidArgument>([&] {
          const std::vector<std::int64_t> offsets{0, 3, 6};
          layer.forward({y.data(), 6, kWidth}, {offsets}, {y.data(), 6, kWidth});
        }) == "HstuLayer: input and output are one matrix; backward reads the input again");
  CHECK(message_of([&] {
          const std::vector<std::int64_t> offsets{0, 3, 6};
          layer.forward({nullptr, 6, kWidth}, {offsets}, {y.data(), 6, kWidth});
        }) == "HstuLayer: input or output has no memory, or a stride below its columns");
  CHECK(message_of([&] { Layer(kWidth, {.max_length = 4, .alpha = NAN}); }) ==
        "HstuLayer: alpha is nan; it must be finite");
  CHECK((y == std::vector<float>(6 * kWidth, 9.0f)));
  CHECK(forward({0, 3, 6}, {}).empty());
  CHECK(message_of<InvalidArgument>([&] { layer.backward({x.data(), 5, kWidth}); }) ==
        "HstuLayer: gradient is 5 x 5, must be 6 x 5 as the output of the last forward");
  CHECK(message_of<InvalidArgument>([&] { Layer(0, {.max_length = 4}); }) ==
        "HstuLayer: width must be positive, got 0");
  CHECK(message_of<InvalidArgument>([&] { Layer(4, {}); }) ==
        "HstuLayer: max_length must be positive, got 0");
}
