// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Stacks of linear layers against plain loops in double (forward, all gradients) and central
// differences of the forward loop.
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/interaction/cross.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "support/random_matrix.hpp"

using namespace tessera;
using test::Matrix;

namespace {

using Sizes = std::vector<std::int64_t>;

/// Layer by layer in double, with the activations kept.
struct Reference {
  Sizes sizes;
  bool last_relu, bias;
  std::vector<double> parameters;
  DensePrecision precision = DensePrecision::float32;
  std::vector<std::vector<double>> states{};

  /// What a number becomes when it is stored as an activation or enters a product.
  double stored(double x) const {
    return precision == DensePrecision::float32
               ? x
               : static_cast<double>(to_float(from_float<BFloat16>(static_cast<float>(x))));
  }

  const std::vector<double>& forward(const std::vector<double>& x, std::int64_t batch) {
    states = {x};
    for (double& value : states[0]) value = stored(value);
    const double* p = parameters.data();
    for (std::size_t l = 0; l + 1 < sizes.size(); ++l) {
      const std::int64_t in = sizes[l], out = sizes[l + 1];
      const double* b = p + in * out;
      std::vector<double> y(static_cast<std::size_t>(batch * out));
      for (std::int64_t s = 0; s < batch; ++s)
        for (std::int64_t o = 0; o < out; ++o) {
          double sum = bias ? b[o] : 0.0;
          for (std::int64_t k = 0; k < in; ++k)
            sum += states.back()[static_cast<std::size_t>(s * in + k)] * stored(p[o * in + k]);
          if (l + 2 < sizes.size()) sum = stored(sum);
          y[static_cast<std::size_t>(s * out + o)] =
              l + 2 < sizes.size() || last_relu ? std::max(sum, 0.0) : sum;
        }
      states.push_back(y);
      p = b + (bias ? out : 0);
    }
    return states.back();
  }

  /// Gradients of the parameters and, in `g`, of the input in place of the output's.
  std::vector<double> backward(std::vector<double>& g, std::int64_t batch) const {
    std::vector<double> gradients(parameters.size());
    std::size_t end = parameters.size();
    for (std::size_t l = sizes.size() - 1; l-- > 0;) {
      const std::int64_t in = sizes[l], out = sizes[l + 1];
      end -= static_cast<std::size_t>(in * out + (bias ? out : 0));
      const double* w = parameters.data() + end;
      double *dw = gradients.data() + end, *db = dw + in * out;
      std::vector<double> below(static_cast<std::size_t>(batch * in));
      for (std::int64_t s = 0; s < batch; ++s)
        for (std::int64_t o = 0; o < out; ++o) {
          const auto i = static_cast<std::size_t>(s * out + o);
          if ((l + 2 < sizes.size() || last_relu) && states[l + 1][i] <= 0.0) continue;
          if (bias) db[o] += g[i];
          const double up = stored(g[i]);
          for (std::int64_t k = 0; k < in; ++k) {
            dw[o * in + k] += up * states[l][static_cast<std::size_t>(s * in + k)];
            below[static_cast<std::size_t>(s * in + k)] += up * stored(w[o * in + k]);
          }
        }
      g = below;
      if (l > 0)
        for (double& value : g) value = stored(value);
    }
    return gradients;
  }
};

std::vector<double> flat(const Matrix<float>& m, std::int64_t rows, std::int64_t columns) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) values.push_back(m(i, j));
  return values;
}

/// Root of the mean squared difference over that of the expected numbers.
double distance(const std::vector<double>& actual, const std::vector<double>& expected) {
  double difference = 0.0, size = 1e-30;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::isnan(difference) ? 1e30 : std::sqrt(difference / size);
}

void check_mlp(Mlp<>& mlp, MlpOptions options, std::int64_t batch, double tolerance) {
  CAPTURE(batch);
  const std::int64_t in = mlp.input_size(), out = mlp.output_size();
  const Matrix<float> x(batch, in, 3, 11), dy(batch, out, 2, 12);
  Matrix<float> y(batch, out, 5), dx(batch, in, 1);
  mlp.forward(x.view(), y.view());
  std::fill(mlp.gradients().begin(), mlp.gradients().end(),
            std::numeric_limits<float>::quiet_NaN());
  mlp.backward(dy.view(), dx.view());
  CHECK(y.margin_untouched());
  CHECK(dx.margin_untouched());

  Reference reference{mlp.sizes(),
                      options.last_relu,
                      options.bias,
                      {mlp.values().begin(), mlp.values().end()},
                      options.precision};
  CHECK(distance(flat(y, batch, out), reference.forward(flat(x, batch, in), batch)) < tolerance);
  std::vector<double> g = flat(dy, batch, out);
  const std::vector<double> gradients = reference.backward(g, batch);
  CHECK(distance({mlp.gradients().begin(), mlp.gradients().end()}, gradients) < tolerance);
  CHECK(distance(flat(dx, batch, in), g) < tolerance);

  // Without an input gradient the parameters' stay the same, to the bit.
  const std::vector<float> before(mlp.gradients().begin(), mlp.gradients().end());
  mlp.backward(dy.view());
  CHECK(std::equal(before.begin(), before.end(), mlp.gradients().begin()));
}

void check_shape(const Sizes& sizes, MlpOptions options,
                 std::initializer_list<std::int64_t> batches, double tolerance, int threads = 1) {
  CAPTURE(sizes.size());
  CAPTURE(sizes.front());
  CAPTURE(sizes.back());
  CAPTURE(threads);
  CAPTURE(options.last_relu);
  Mlp<> mlp(Host({.threads = threads}), sizes, options);
  DenseParameters parameters(42, mlp);
  for (const std::int64_t batch : batches) check_mlp(mlp, options, batch, tolerance);
}

constexpr double kFloat = 1e-5, kBFloat16 = 5e-3;

}  // namespace

TEST_CASE("any batch, any sizes, one object after another batch") {
  for (const bool last_relu : {false, true}) {
    check_shape({13, 64, 16}, {.last_relu = last_relu}, {0, 1, 5, 33, 5, 600, 1}, kFloat);
    check_shape({1, 1}, {.last_relu = last_relu}, {0, 1, 5, 33}, kFloat);
    check_shape({130, 100, 3, 1}, {.last_relu = last_relu}, {1, 33, 517}, kFloat);
    check_shape({7, 5}, {.last_relu = last_relu, .bias = false}, {1, 33}, kFloat);
    check_shape({3, 16, 17, 1, 33, 12}, {.last_relu = last_relu}, {5, 33}, kFloat);
  }
}

TEST_CASE("several chunks, several threads") {
  for (const int threads : {1, 2, 3})
    check_shape({13, 40, 24, 1}, {}, {2100, 1024, 33, 5, 1, 0, 2100}, kFloat, threads);
}

TEST_CASE("a sample's output does not depend on its batch, to the last bit") {
  const std::int64_t batch = 700;
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{13, 512, 16}, {368, 64, 1}, {16, 16}, {40, 1}}) {
    Mlp<> mlp(sizes);
    const DenseParameters parameters(3, mlp);
    const std::int64_t in = sizes.front(), out = sizes.back();
    std::vector<float> x(static_cast<std::size_t>(batch * in)),
        whole(static_cast<std::size_t>(batch * out)), parts(whole.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<int>(i * 7919 % 2003) - 1001) / 700;
    mlp.forward({x.data(), batch, in}, {whole.data(), batch, out});
    for (const std::int64_t size : {1, 2, 3, 7, 8, 31, 64, 126, 128, 150, 233, 512}) {
      for (std::int64_t begin = 0; begin < batch; begin += size) {
        const std::int64_t rows = std::min(size, batch - begin);
        mlp.forward({x.data() + begin * in, rows, in}, {parts.data() + begin * out, rows, out});
      }
      CHECK(parts == whole);
    }
  }
}

TEST_CASE("weights that are kept are packed again when that is said again") {
  const Host host({.threads = 2});
  const MlpOptions options{.last_relu = true};
  Mlp<> kept(host, {13, 64, 16}, options), plain(host, {13, 64, 16}, options);
  const DenseParameters of_kept(4, kept), of_plain(4, plain);
  const std::int64_t batch = 100;
  const Matrix<float> x(batch, 13, 0, 11), dy(batch, 16, 0, 12);
  const auto run = [&](Mlp<>& mlp) {
    Matrix<float> y(batch, 16, 0), dx(batch, 13, 0);
    mlp.forward(x.view(), y.view());
    mlp.backward(dy.view(), dx.view());
    std::vector<double> all = flat(y, batch, 16);
    for (const double v : flat(dx, batch, 13)) all.push_back(v);
    all.insert(all.end(), mlp.gradients().begin(), mlp.gradients().end());
    return all;
  };
  for (int step = 0; step < 3; ++step) {
    CAPTURE(step);
    kept.keep_weights(step < 2);
    const std::vector<double> expected = run(plain);
    CHECK(run(kept) == expected);
    CHECK(run(kept) == expected);  // from what the first run packed
    for (Mlp<>* mlp : {&kept, &plain})
      for (float& w : mlp->values()) w *= 1.5f;
    if (step == 0) CHECK(run(kept) != run(plain));  // not said again: the old weights
  }
}

TEST_CASE("layers whose weights' gradients are several products") {
  for (const int threads : {1, 2})
    check_shape({7, 384, 256, 130, 1}, {}, {33, 1030}, kFloat, threads);
}

TEST_CASE("gradients are announced from the last layer to the first, when they are final") {
  // One chunk, several chunks of one thread, several threads, no sample.
  for (const auto& [batch, threads] :
       {std::pair<std::int64_t, int>{40, 1}, {1100, 1}, {200, 2}, {0, 1}}) {
    const std::int64_t samples = batch;  // clang captures no structured binding
    CAPTURE(samples);
    Mlp<> mlp(Host({.threads = threads}), {5, 7, 3});
    DenseParameters parameters(1, mlp);
    std::vector<float> x(static_cast<std::size_t>(batch * 5)),
        y(static_cast<std::size_t>(batch * 3)), dy(y.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 11) - 5.0f;
    for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<float>(i % 7) - 3.0f;
    std::fill(parameters.gradients().begin(), parameters.gradients().end(), -1.0f);
    mlp.forward({x.data(), batch, 5}, {y.data(), batch, 3});
    std::vector<std::pair<std::ptrdiff_t, std::vector<float>>> announced;
    mlp.backward({dy.data(), batch, 3}, {}, [&](std::span<const float> part) {
      announced.emplace_back(part.data() - parameters.gradients().data(),
                             std::vector<float>(part.begin(), part.end()));
    });
    REQUIRE(announced.size() == 2);
    CHECK(announced[0].first == 5 * 7 + 7);
    CHECK(announced[1].first == 0);
    std::vector<float> all = announced[1].second;
    all.insert(all.end(), announced[0].second.begin(), announced[0].second.end());
    CHECK(all == std::vector<float>(parameters.gradients().begin(), parameters.gradients().end()));
  }
}

TEST_CASE("sizes at compile time") {
  Mlp<Host, 13, 32, 8> mlp{{.last_relu = true}};
  static_assert(Mlp<Host, 13, 32, 8>::kSizes.back() == 8);
  DenseParameters parameters(1, mlp);
  CHECK(parameters.size() == 13 * 32 + 32 + 32 * 8 + 8);
  check_mlp(mlp, {.last_relu = true}, 20, kFloat);
}

TEST_CASE("a linear layer") {
  Linear linear(9, 4, {.bias = false, .relu = true});
  DenseParameters parameters(1, linear);
  CHECK(parameters.size() == 36);
  check_mlp(linear, {.last_relu = true, .bias = false}, 20, kFloat);
}

TEST_CASE("bfloat16 activations and products") {
  if (!detail::supported(DensePrecision::bfloat16)) {
    CHECK_THROWS_WITH_AS(Mlp<>({2, 1}, {.precision = DensePrecision::bfloat16}),
                         "Mlp: oneDNN multiplies no bfloat16 on this processor (it needs AVX-512); "
                         "use DensePrecision::float32",
                         InvalidArgument);
    return;
  }
  for (const int threads : {1, 2}) {
    check_shape({13, 64, 32, 16}, {.last_relu = true, .precision = DensePrecision::bfloat16},
                {0, 1, 5, 33, 1100}, kBFloat16, threads);
    check_shape({33, 17, 1}, {.precision = DensePrecision::bfloat16}, {5, 33}, kBFloat16, threads);
  }
}

TEST_CASE("inputs and outputs of 16 bits: what floats give, rounded once") {
  constexpr std::int64_t batch = 40;
  Matrix<BFloat16> x(batch, 13, 3, 1), y(batch, 6, 1), dx(batch, 13, 2);
  const Matrix<BFloat16> dy(batch, 6, 0, 2);
  Matrix<float> wide_x(batch, 13, 0), wide_dy(batch, 6, 0), wide_y(batch, 6, 2),
      wide_dx(batch, 13, 0);
  for (std::int64_t s = 0; s < batch; ++s) {
    for (std::int64_t k = 0; k < 13; ++k) wide_x(s, k) = to_float(x(s, k));
    for (std::int64_t k = 0; k < 6; ++k) wide_dy(s, k) = to_float(dy(s, k));
  }
  Mlp<> floats({13, 6});
  DenseParameters of_floats(3, floats);
  CHECK_THROWS_WITH_AS(
      floats.forward(x.view(), wide_y.view()),
      "Mlp: an input or output of 16 bits needs .precision = DensePrecision::bfloat16",
      InvalidArgument);
  if (!detail::supported(DensePrecision::bfloat16)) return;
  for (const bool last_relu : {false, true}) {
    Mlp<> mlp({13, 20, 6}, {.last_relu = last_relu, .precision = DensePrecision::bfloat16});
    DenseParameters parameters(3, mlp);
    mlp.forward(wide_x.view(), wide_y.view());
    CHECK_THROWS_WITH_AS(
        mlp.backward(dy.view(), dx.view()),
        "Mlp: an output of 16 bits has a gradient of 16 bits, one of floats has one of floats",
        InvalidArgument);
    mlp.backward(wide_dy.view(), wide_dx.view());
    const std::vector<float> gradients(parameters.gradients().begin(),
                                       parameters.gradients().end());
    mlp.forward(x.view(), y.view());
    CHECK_THROWS_AS(mlp.backward(wide_dy.view(), wide_dx.view()), InvalidArgument);
    int layers = 0;
    mlp.backward(dy.view(), dx.view(), [&](std::span<const float>) { ++layers; });
    CHECK(layers == 2);
    CHECK(y.margin_untouched());
    CHECK(dx.margin_untouched());
    bool same = true;
    for (std::int64_t s = 0; s < batch; ++s) {
      for (std::int64_t k = 0; k < 6; ++k)
        same = same && y(s, k).bits == from_float<BFloat16>(wide_y(s, k)).bits;
      for (std::int64_t k = 0; k < 13; ++k)
        same = same && dx(s, k).bits == from_float<BFloat16>(wide_dx(s, k)).bits;
    }
    CHECK(same);
    CHECK(std::equal(gradients.begin(), gradients.end(), parameters.gradients().begin()));
    // one end alone
    Matrix<float> again(batch, 6, 0);
    mlp.forward(x.view(), again.view());
    mlp.backward(wide_dy.view(), dx.view());
    for (std::int64_t s = 0; s < batch; ++s)
      for (std::int64_t k = 0; k < 6; ++k) same = same && again(s, k) == wide_y(s, k);
    CHECK(same);
    mlp.forward(wide_x.view(), y.view());
    mlp.backward(dy.view());
    CHECK(std::equal(gradients.begin(), gradients.end(), parameters.gradients().begin()));
  }
}

TEST_CASE("cross layers multiply in bfloat16") {
  const CrossOptions options{.layers = 2, .rank = 8, .precision = DensePrecision::bfloat16};
  if (!detail::supported(DensePrecision::bfloat16)) {
    CHECK_THROWS_AS(CrossInteraction<Linear<>>(40, options), InvalidArgument);
    return;
  }
  CrossInteraction<Linear<>> narrow(40, options), wide(40, {.layers = 2, .rank = 8});
  DenseParameters of_narrow(3, narrow), of_wide(3, wide);
  constexpr std::int64_t batch = 50;
  const Matrix<float> x(batch, 40, 3, 1), dy(batch, 40, 0, 2);
  Matrix<float> y(batch, 40, 1), dx(batch, 40, 2), exact_y(batch, 40, 0), exact_dx(batch, 40, 0);
  narrow.forward(x.view(), y.view());
  narrow.backward(dy.view(), dx.view());
  wide.forward(x.view(), exact_y.view());
  wide.backward(dy.view(), exact_dx.view());
  // the root of the mean square difference, as a share of the numbers' own
  const auto apart = [&](const auto& a, const auto& b) {
    double difference = 0, all = 0;
    for (std::int64_t s = 0; s < batch; ++s)
      for (std::int64_t k = 0; k < 40; ++k) {
        difference += std::pow(static_cast<double>(a(s, k)) - static_cast<double>(b(s, k)), 2);
        all += std::pow(static_cast<double>(b(s, k)), 2);
      }
    return std::sqrt(difference / all);
  };
  CHECK(apart(y, exact_y) < 0.02);
  CHECK(apart(y, exact_y) > 1e-4);
  CHECK(apart(dx, exact_dx) < 0.02);
}

TEST_CASE("gradients are the forward pass's central differences") {
  Mlp<> mlp({5, 6, 4, 2});
  DenseParameters parameters(3, mlp);
  constexpr std::int64_t batch = 4;
  const Matrix<float> x(batch, 5, 0, 1), dy(batch, 2, 0, 2);
  Matrix<float> y(batch, 2, 0), dx(batch, 5, 0);
  mlp.forward(x.view(), y.view());
  mlp.backward(dy.view(), dx.view());
  Reference reference{mlp.sizes(), false, true, {mlp.values().begin(), mlp.values().end()}};
  std::vector<double> input = flat(x, batch, 5);
  const std::vector<double> up = flat(dy, batch, 2);
  const auto derivative = [&](double& at) {
    const double middle = at;
    double sum = 0.0;
    for (const double step : {1e-6, -1e-6}) {
      at = middle + step;
      const std::vector<double>& out = reference.forward(input, batch);
      for (std::size_t i = 0; i < up.size(); ++i) sum += up[i] * out[i] / (2 * step);
    }
    at = middle;
    return sum;
  };
  for (std::size_t i = 0; i < reference.parameters.size(); ++i)
    CHECK(mlp.gradients()[i] == doctest::Approx(derivative(reference.parameters[i])).epsilon(1e-4));
  for (std::size_t i = 0; i < input.size(); ++i)
    CHECK(dx(static_cast<std::int64_t>(i / 5), static_cast<std::int64_t>(i % 5)) ==
          doctest::Approx(derivative(input[i])).epsilon(1e-4));
}

TEST_CASE("initial values depend on seed, layer and index alone, and have the right spread") {
  Mlp<> a({300, 200, 100}), b({300, 200, 100}), tail({200, 100});
  DenseParameters first(7, a), second(7, tail, b), third(8, a);
  CHECK(std::equal(b.values().begin(), b.values().end(), b.values().begin()));
  const DenseParameters again(7, a);
  CHECK(std::equal(again.values().begin(), again.values().end(), first.values().begin()));
  CHECK_FALSE(std::equal(third.values().begin(), third.values().end(), first.values().begin()));
  // Layer 1 of `second` is b's first, of `first` a's second: other shapes, the same random stream.
  CHECK(b.weight(0)(0, 0) / std::sqrt(2.0f / 500) ==
        doctest::Approx(a.weight(1)(0, 0) / std::sqrt(2.0f / 300)));
  double mean = 0.0, square = 0.0;
  for (std::int64_t i = 0; i < 200 * 300; ++i) {
    mean += a.weight(0).data[i] / 60000.0;
    square += a.weight(0).data[i] * a.weight(0).data[i] / 60000.0;
  }
  CHECK(std::abs(mean) < 3 * std::sqrt(2.0 / 500 / 60000));
  CHECK(square == doctest::Approx(2.0 / 500).epsilon(0.03));
  double bias_square = 0.0;
  for (const float value : a.bias(0)) bias_square += value * value / 200.0;
  CHECK(bias_square == doctest::Approx(1.0 / 200).epsilon(0.4));
}

TEST_CASE("what cannot work says so") {
  CHECK_THROWS_WITH_AS(Mlp<>({3}), "Mlp: needs an input and at least one layer, got 1 sizes",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(Mlp<>({3, 0}), "Mlp: sizes must be positive, got 0", InvalidArgument);
  CHECK_THROWS_WITH_AS(Mlp<>(Host({.threads = 0}), {3, 2}), "Host: 0 threads; give 1 to 4,096",
                       InvalidArgument);
  Mlp<> mlp({3, 2});
  Matrix<float> x(4, 3, 0, 1), y(4, 2, 0, 1), other(4, 5, 0, 1);
  CHECK_THROWS_WITH_AS(
      mlp.forward(x.view(), y.view()),
      "Mlp: has no parameters yet; construct DenseParameters with it, or call bind",
      InvalidArgument);
  DenseParameters parameters(1, mlp);
  CHECK_THROWS_WITH_AS(mlp.forward(other.view(), y.view()),
                       "Mlp: input has 5 columns, the first layer takes 3", InvalidArgument);
  CHECK_THROWS_WITH_AS(mlp.forward(x.view(), other.view()), "Mlp: output is 4 x 5, must be 4 x 2",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(mlp.forward(x.view(), {nullptr, 4, 2}),
                       "Mlp: input or output has no memory, or a stride below its columns",
                       InvalidArgument);
  mlp.forward(x.view(), y.view());
  CHECK_THROWS_WITH_AS(mlp.backward({y.view().data, 4, 2, 1}),
                       "Mlp: a gradient has no memory, or a stride below its columns",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(mlp.backward(other.view()),
                       "Mlp: output gradient is 4 x 5, the last forward gave 4 x 2",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(mlp.backward(y.view(), other.view()),
                       "Mlp: input gradient is 4 x 5, must be 4 x 3", InvalidArgument);
  std::vector<float> few(3);
  CHECK_THROWS_WITH_AS(mlp.bind(few, few),
                       "Mlp: bind needs 8 parameters, got 3 values and 3 gradients",
                       InvalidArgument);
}

TEST_CASE("numbers that become NaN on the way are NaN behind every ReLU") {
  Mlp<> mlp({2, 2, 2, 1}, {.last_relu = true});
  // layers of [out, in], then biases: the second takes one number from the other
  std::vector<float> values{1, 1, 1, 1, 0, 0, 1, -1, 1, 1, 0, 0, 1, 1, 0}, gradients(values.size());
  mlp.bind(values, gradients);
  std::vector<float> x, y(70);
  for (int s = 0; s < 70; ++s) x.insert(x.end(), 2, s == 40 ? 3e38f : 1.0f);
  mlp.forward({x.data(), 70, 2}, {y.data(), 70, 1});
  for (int s = 0; s < 70; ++s) CHECK((s == 40 ? std::isnan(y[s]) : y[s] == 4));
}
