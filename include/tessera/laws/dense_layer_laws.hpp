// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/dense_layer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/laws/backend_floats.hpp>
#include <tessera/laws/faults.hpp>
#include <tessera/laws/slopes.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tessera { inline namespace v0 { namespace laws {

/// How many samples dense_layer_laws tries, and what it tolerates.
struct DenseLayerLawsOptions {
  std::int64_t batch = 7;   ///< samples that are tried; at least 2
  double tolerance = 2e-2;  ///< of slopes, relative
  double apart = 1e-4;      ///< of a sample's output alone and in a batch, relative
};

/// Checks a dense layer (docs/concepts/dense.md) whose memory is the backend's. It is bound to
/// parameters of the laws: bind it again before you use it. Needs no test framework; returns what
/// it found wrong, repeated faults counted.
template <class L, class Backend>
std::vector<std::string> dense_layer_laws(const Backend& backend, L& layer,
                                          DenseLayerLawsOptions options = {}) {
  static_assert(explain_dense_layer<L>());
  require(options.batch >= 2, "dense_layer_laws: batch is {}, must be at least 2", options.batch);
  detail::Faults faults;
  using Floats = std::vector<float>;
  using Memory = detail::BackendFloats<Backend>;
  const std::int64_t in = layer.input_size(), out = layer.output_size(), batch = options.batch;
  // every matrix is a part of a wider one, whose other columns do not change
  constexpr std::int64_t margin = 3;
  constexpr float untouched = -7.0f;
  const auto count = static_cast<std::size_t>(layer.parameter_count());
  Memory values(backend, Floats(count)), gradients(backend, Floats(count));
  layer.bind(values.span(), gradients.span());
  const int next = layer.initialize(3, 5);
  const Floats first = values.read();
  values.write(Floats(count, 9.0f));
  faults.expect(layer.initialize(3, 5) == next && values.read() == first,
                "initialize: the same seed and number give other values");
  Floats held = first;  // away from values at which a gradient is zero
  for (std::size_t i = 0; i < count; ++i) held[i] += 0.25f * detail::number(1, i);
  values.write(held);

  const auto wide = [&](const Floats& matrix, std::int64_t columns) {
    Floats padded;
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      padded.push_back(matrix[i]);
      if ((static_cast<std::int64_t>(i) + 1) % columns == 0)
        padded.insert(padded.end(), margin, untouched);
    }
    return padded;
  };
  const auto narrow = [&](const Floats& padded, std::int64_t columns, const char* what) {
    Floats matrix;
    bool same = true;
    for (std::size_t i = 0; i < padded.size(); ++i)
      if (static_cast<std::int64_t>(i) % (columns + margin) < columns)
        matrix.push_back(padded[i]);
      else
        same = same && padded[i] == untouched;
    faults.expect(same, "{}: writes beside the columns of its view", what);
    return matrix;
  };
  const auto size = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(rows * columns);
  };
  /// The memory of one forward, which backward may read again.
  struct Pass {
    Memory x, y;
  };
  const auto run = [&](Pass& pass, std::int64_t rows) {
    layer.forward({pass.x.data(), rows, in, in + margin}, {pass.y.data(), rows, out, out + margin});
    return narrow(pass.y.read(), out, "forward");
  };
  const auto forward = [&](const Floats& x) {
    const std::int64_t rows = std::ssize(x) / in;
    Pass pass{{backend, wide(x, in)}, {backend, Floats(size(rows, out + margin), untouched)}};
    return run(pass, rows);
  };

  Floats x(size(batch, in)), dy(size(batch, out));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = detail::number(2, i);
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = detail::number(3, i);
  const Floats y = forward(x);
  faults.expect(y == forward(x), "forward: the same batch, other bits");
  for (std::int64_t s = 0; s < batch; ++s) {
    const Floats alone = forward(Floats(x.begin() + s * in, x.begin() + (s + 1) * in));
    double worst = 0;
    for (std::int64_t c = 0; c < out; ++c) {
      const double whole = y[size(s, out) + static_cast<std::size_t>(c)],
                   single = alone[static_cast<std::size_t>(c)];
      const double apart = std::abs(whole - single) / (1 + std::abs(whole));
      worst = std::isnan(apart) || apart > worst ? apart : worst;
    }
    faults.expect(worst <= options.apart, "forward: sample {} depends on the others, by {}", s,
                  worst);
  }

  // what looks for NaN in a model's output must find it
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto is_nan = [](float number) { return std::isnan(number); };
  const auto nan_of = [&](const Floats& found_y, std::int64_t s) {
    return std::any_of(found_y.begin() + s * out, found_y.begin() + (s + 1) * out, is_nan);
  };
  for (std::int64_t c = 0; c < in; ++c) {
    const std::int64_t one = c % batch;
    Floats spoiled = x;
    spoiled[size(one, in) + static_cast<std::size_t>(c)] = nan;
    const Floats found_y = forward(spoiled);
    faults.expect(nan_of(found_y, one), "forward: NaN in column {} of the input gives no NaN", c);
    for (std::int64_t s = 0; s < batch; ++s)
      faults.expect(s == one || !nan_of(found_y, s),
                    "forward: NaN in column {} of the input gives NaN to other samples", c);
  }
  if (count != 0) {
    values.write(Floats(count, nan));
    const Floats found_y = forward(x);
    values.write(held);
    for (std::int64_t s = 0; s < batch; ++s)
      faults.expect(nan_of(found_y, s), "forward: parameters of NaN give sample {} no NaN", s);
  }

  Pass pass{{backend, wide(x, in)}, {backend, Floats(size(batch, out + margin), untouched)}};
  const Memory given(backend, wide(dy, out)),
      taken(backend, Floats(size(batch, in + margin), untouched));
  const auto backward = [&] {
    run(pass, batch);
    gradients.write(Floats(count, 77.0f));  // overwritten, not added to
    layer.backward({given.data(), batch, out, out + margin},
                   {taken.data(), batch, in, in + margin});
    return gradients.read();
  };
  const Floats found = backward(), dx = narrow(taken.read(), in, "backward");
  faults.expect(found == backward() && dx == narrow(taken.read(), in, "backward"),
                "backward: the same batch, other bits");
  faults.expect(pass.x.read() == wide(x, in), "x: is written to");
  faults.expect(given.read() == wide(dy, out), "backward: dy is written to");
  faults.expect(values.read() == held, "forward or backward: parameters are written to");
  for (std::uint64_t direction = 20; direction < 26; ++direction) {
    const bool of_input = direction % 2 == 0;
    if (!of_input && count == 0) continue;
    detail::expect_slope(faults, of_input ? "input" : "parameters", direction,
                         of_input ? dx : found, options.tolerance, 5e-4, [&](float step) {
                           Floats moved = of_input ? x : held;
                           for (std::size_t i = 0; i < moved.size(); ++i)
                             moved[i] += step * detail::number(direction, i);
                           if (!of_input) values.write(moved);
                           const Floats at = forward(of_input ? moved : x);
                           values.write(held);
                           double sum = 0;
                           for (std::size_t i = 0; i < at.size(); ++i) sum += double{at[i]} * dy[i];
                           return sum;
                         });
  }

  Floats spoiled = x;
  for (std::int64_t c = 0; c < in; ++c) spoiled[static_cast<std::size_t>(c)] = nan;
  pass.x.write(wide(spoiled, in));
  const Floats of_nan = backward(), dx_of_nan = taken.read();
  faults.expect(std::any_of(of_nan.begin(), of_nan.end(), is_nan) ||
                    std::any_of(dx_of_nan.begin(), dx_of_nan.end(), is_nan),
                "backward: NaN in the input gives no gradient of NaN");

  layer.forward({pass.x.data(), 0, in}, {pass.y.data(), 0, out});
  gradients.write(Floats(count, 77.0f));
  layer.backward({given.data(), 0, out}, {taken.data(), 0, in});
  faults.expect(gradients.read() == Floats(count),
                "backward: a batch of no samples has gradients other than 0");
  return faults.take();
}

}}}  // namespace tessera::v0::laws
