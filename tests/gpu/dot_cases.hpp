// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/interaction/concat.cuh>
#include <tessera/interaction/dot.cuh>
#include <tessera/tessera.hpp>

#include <doctest/doctest.h>
#include <gpu/device.hpp>

#include <cmath>

namespace {

using namespace tessera;

/// Equal within the rounding of sums in float, of `magnitude` (the sum of absolute values), and of
/// the stored type. `tf32`: factors were rounded to 10 bits, too.
template <class T>
bool close(T got, double expected, double magnitude, bool tf32) {
  const double unit = std::is_same_v<T, float>  ? 0
                      : std::is_same_v<T, Half> ? 0x1p-11
                                                : 0x1p-8,
               factors = tf32 ? 0x1.01p-10 : 0;
  return std::fabs(static_cast<double>(to_float(got)) - expected) <=
         1.01 * unit * std::fabs(expected) + (factors + 1e-6) * magnitude + 1e-6;
}

/// Forward and backward, of floats also of a shape known at run time, against sums in double. `shift` and `padding` move matrices off their
/// alignment; what lies around them must stay.
template <int Vectors, int Width, int PadTo, class T, bool Tf32 = false>
void check_dot(std::int64_t batch, int shift, int padding) {
  INFO("vectors ", Vectors, ", width ", Width, ", bytes per element ", sizeof(T), ", shift ", shift,
       ", padding ", padding);
  using Dot = DotInteraction<Vectors, Width, PadTo, T, Tf32>;
  Random random(Vectors * 1000 + Width);
  const std::int64_t in_stride = Dot::input_columns() + padding,
                     out_stride = Dot::columns() + padding;
  std::vector<T> x = random_elements<T>(random, shift + batch * in_stride),
                 dz = random_elements<T>(random, shift + batch * out_stride);
  if constexpr (Tf32)  // more bits than are kept
    for (std::vector<T>* values : {&x, &dz})
      for (T& value : *values) value *= 1.1f;
  const T mark = from_float<T>(-77.0f);
  const std::vector<T> z_before(dz.size(), mark), dx_before(x.size(), mark);
  const auto at = [](const std::vector<T>& m, std::int64_t i) {
    return static_cast<double>(to_float(m[static_cast<std::size_t>(i)]));
  };

  const auto check = [&](const auto& dot) {
    const Cuda backend;
    const OnGpu<T> device_x(backend, x), device_dz(backend, dz), device_z(backend, z_before),
        device_dx(backend, dx_before);
    const MatrixView<const T> x_view(device_x.data() + shift, batch, Dot::input_columns(),
                                     in_stride);
    dot(backend, x_view, MatrixView<T>(device_z.data() + shift, batch, Dot::columns(), out_stride),
        MatrixView<const T>(device_dz.data() + shift, batch, Dot::columns(), out_stride),
        MatrixView<T>(device_dx.data() + shift, batch, Dot::input_columns(), in_stride));
    const std::vector<T> z = device_z.read(), dx = device_dx.read();
    std::int64_t wrong = 0;
    const auto expect = [&](const T& got, double expected, double magnitude) {
      wrong += !close(got, expected, magnitude, Tf32);
    };
    for (std::int64_t s = 0; s < batch; ++s) {
      const std::int64_t in = shift + s * in_stride, out = shift + s * out_stride;
      std::vector<double> matrix(Vectors * Vectors);
      std::int64_t pair = out + Width;
      for (int i = 0; i < Vectors; ++i)
        for (int j = 0; j < i; ++j, ++pair) {
          double sum = 0, magnitude = 0;
          for (int k = 0; k < Width; ++k) {
            const double product = at(x, in + i * Width + k) * at(x, in + j * Width + k);
            sum += product;
            magnitude += std::fabs(product);
          }
          expect(z[static_cast<std::size_t>(pair)], sum, magnitude);
          matrix[static_cast<std::size_t>(i * Vectors + j)] =
              matrix[static_cast<std::size_t>(j * Vectors + i)] = at(dz, pair);
        }
      for (int k = 0; k < Width; ++k)
        wrong += !(z[static_cast<std::size_t>(out + k)] == x[static_cast<std::size_t>(in + k)]);
      for (; pair < out + Dot::columns(); ++pair)
        wrong += !(z[static_cast<std::size_t>(pair)] == T{});
      for (; pair < out + out_stride && pair < std::ssize(z); ++pair)
        wrong += !(z[static_cast<std::size_t>(pair)] == mark);
      for (int i = 0; i < Vectors; ++i)
        for (int k = 0; k < Width; ++k) {
          double sum = i == 0 ? at(dz, out + k) : 0, magnitude = std::fabs(sum);
          for (int j = 0; j < Vectors; ++j) {
            const double product =
                matrix[static_cast<std::size_t>(i * Vectors + j)] * at(x, in + j * Width + k);
            sum += product;
            magnitude += std::fabs(product);
          }
          expect(dx[static_cast<std::size_t>(in + i * Width + k)], sum, magnitude);
        }
      for (std::int64_t c = in + Dot::input_columns(); c < in + in_stride; ++c)
        wrong += !(dx[static_cast<std::size_t>(c)] == mark);
    }
    CHECK(wrong == 0);
  };
  in_every_order([&] {
    check([](const Cuda& backend, auto x, auto z, auto dz, auto dx) {
      Dot::forward(backend, x, z);
      Dot::backward(backend, x, dz, dx);
    });
    if constexpr (std::is_same_v<T, float> && !Tf32)
      check([](const Cuda& backend, auto x, auto z, auto dz, auto dx) {
        AnyDotInteraction any(backend, Vectors, Width, PadTo);
        CHECK(any.columns() == Dot::columns());
        any.forward(x, z);
        any.backward(x, dz, dx);
      });
  });
}

}  // namespace

TEST_CASE_TEMPLATE("dot interaction: DLRM's shapes", T, float, BFloat16) {
  check_dot<27, 128, 32, T>(5, 0, 0);
  check_dot<27, 16, 1, T>(9, 0, 8);
}

TEST_CASE_TEMPLATE(
    "dot interaction: few and many vectors, widths that fill no register, any alignment", T, float,
    Half) {
  check_dot<1, 5, 4, T>(3, 0, 0);
  check_dot<2, 3, 1, T>(6, 1, 1);
  check_dot<16, 8, 1, T>(2, 0, 0);
  check_dot<17, 33, 8, T>(3, 3, 5);
  check_dot<40, 136, 1, T>(2, 1, 0);
}

TEST_CASE("dot interaction: floats on the tensor cores") {
  check_dot<27, 128, 32, float, true>(5, 0, 0);
  check_dot<2, 3, 1, float, true>(6, 1, 1);
  check_dot<17, 33, 8, float, true>(3, 3, 5);
  check_dot<40, 136, 1, float, true>(2, 4, 4);
}

TEST_CASE("dot interaction: samples that shared memory does not hold") {
  check_dot<261, 3, 8, float>(2, 1, 3);
  check_dot<314, 8, 1, BFloat16>(1, 0, 0);
  check_dot<314, 2, 4, float, true>(1, 0, 0);
  check_dot<9, 6002, 1, Half>(2, 1, 1);
}

TEST_CASE(
    "dot interaction: the host's, in a program that nvcc compiles, has the device's bits where "
    "sums are exact") {
  constexpr std::int64_t kBatch = 5;
  using HostDot = DotInteraction<27, 16, 8>;
  Random random(7);
  const auto integers = [&](std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = static_cast<float>(random_below(random, 9) - 4);
    return values;
  };
  std::vector<float> x = integers(kBatch * HostDot::input_columns()),
                     dz = integers(kBatch * HostDot::columns()), z(dz.size()), dx(x.size());
  HostDot::forward(Host(), {x.data(), kBatch, HostDot::input_columns()},
                   {z.data(), kBatch, HostDot::columns()});
  HostDot::backward(Host(), {x.data(), kBatch, HostDot::input_columns()},
                    {dz.data(), kBatch, HostDot::columns()},
                    {dx.data(), kBatch, HostDot::input_columns()});

  const Cuda backend;
  const OnGpu<float> device_x(backend, x), device_dz(backend, dz),
      device_z(backend, std::vector<float>(dz.size(), -77.0f)),
      device_dx(backend, std::vector<float>(x.size(), -77.0f));
  const MatrixView<const float> x_view(device_x.data(), kBatch, HostDot::input_columns());
  DotInteraction<27, 16, 8>::forward(backend, x_view,
                                     {device_z.data(), kBatch, HostDot::columns()});
  DotInteraction<27, 16, 8>::backward(backend, x_view,
                                      {device_dz.data(), kBatch, HostDot::columns()},
                                      {device_dx.data(), kBatch, HostDot::input_columns()});
  CHECK(device_z.read() == z);
  CHECK(device_dx.read() == dx);
}

TEST_CASE("dot interaction: an empty batch, and matrices of the wrong shape") {
  using Dot = DotInteraction<3, 4>;
  const Cuda backend;
  float* const none = nullptr;
  float some = 0;
  Dot::forward(backend, {none, 0, 12}, {none, 0, 7});
  CHECK_THROWS_AS(Dot::forward(backend, {&some, 2, 12}, {&some, 2, 8}), InvalidArgument);
  CHECK_THROWS_WITH_AS(Dot::forward(backend, {none, 2, 12}, {&some, 2, 7}),
                       doctest::Contains("input has no memory"), InvalidArgument);
  CHECK_THROWS_AS(Dot::backward(backend, {&some, 2, 12}, {&some, 2, 7}, {&some, 1, 12}),
                  InvalidArgument);
  AnyDotInteraction any(backend, 3, 4);
  any.forward({none, 0, 12}, {none, 0, 7});
  CHECK_THROWS_WITH_AS(any.forward({&some, 2, 12}, {&some, 2, 8}),
                       doctest::Contains("output is 2 x 8, must be 2 x 7"), InvalidArgument);
}

TEST_CASE(
    "concat: parts of any stride side by side, and their gradients back; what lies between stays") {
  const Cuda backend;
  Random random(12);
  constexpr std::int64_t batch = 5, strides[] = {5, 1, 20}, columns[] = {3, 1, 17},
                         whole_stride = 25;
  std::vector<std::vector<float>> parts;
  std::vector<OnGpu<float>> on_device, gradients;
  for (const std::int64_t stride : strides) {
    parts.push_back(random_elements<float>(random, batch * stride));
    on_device.emplace_back(backend, parts.back());
    gradients.emplace_back(backend, std::vector<float>(parts.back().size(), -7.0f));
  }
  const OnGpu<float> whole(backend, std::vector<float>(batch * whole_stride, -7.0f));
  std::vector<MatrixView<const float>> from;
  std::vector<MatrixView<float>> back;
  for (std::size_t p = 0; p < 3; ++p) {
    from.push_back({on_device[p].data(), batch, columns[p], strides[p]});
    back.push_back({gradients[p].data(), batch, columns[p], strides[p]});
  }
  const MatrixView<float> y{whole.data(), batch, 21, whole_stride};
  Concat::forward<float>(backend, from, y);
  Concat::backward<float>(backend, y, back);
  const std::vector<float> got = whole.read();
  std::int64_t first = 0;
  for (std::size_t p = 0; p < 3; first += columns[p++]) {
    const std::vector<float> gradient = gradients[p].read();
    for (std::int64_t row = 0; row < batch; ++row)
      for (std::int64_t c = 0; c < strides[p]; ++c) {
        const float value = parts[p][static_cast<std::size_t>(row * strides[p] + c)];
        const bool in = c < columns[p];
        CHECK(gradient[static_cast<std::size_t>(row * strides[p] + c)] == (in ? value : -7.0f));
        if (in) CHECK(got[static_cast<std::size_t>(row * whole_stride + first + c)] == value);
      }
  }
  for (std::int64_t row = 0; row < batch; ++row)
    for (std::int64_t c = 21; c < whole_stride; ++c)
      CHECK(got[static_cast<std::size_t>(row * whole_stride + c)] == -7.0f);

  from.pop_back();
  CHECK_THROWS_WITH_AS(Concat::forward<float>(backend, from, y),
                       "Concat: the parts have 4 columns together, the whole has 21",
                       InvalidArgument);
  from.push_back({on_device[2].data(), 4, 17, 20});
  CHECK_THROWS_WITH_AS(Concat::forward<float>(backend, from, y),
                       "Concat: part 2 has 4 rows, the whole has 5", InvalidArgument);
}
