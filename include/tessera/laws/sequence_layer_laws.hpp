// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/sequence_layer.hpp>
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

/// Which sequences sequence_layer_laws tries, and what it tolerates.
struct SequenceLayerLawsOptions {
  std::int64_t max_length = 12;  ///< of the sequences that are tried; at least 6
  bool causal = true;            ///< no position of the history sees a later one
  bool targets = true;           ///< the layer takes candidates
  double tolerance = 1e-2;       ///< of slopes, relative
};

/// Checks a sequence layer (docs/concepts/sequence.md), which is bound to parameters of the laws:
/// bind it again before you use it. Needs no test framework; returns what it found wrong, repeated
/// faults counted.
template <class L>
std::vector<std::string> sequence_layer_laws(L& layer, SequenceLayerLawsOptions options = {}) {
  static_assert(explain_sequence_layer<L>());
  require(options.max_length >= 6, "sequence_layer_laws: max_length is {}, must be at least 6",
          options.max_length);
  detail::Faults faults;
  using Floats = std::vector<float>;
  using Offsets = std::vector<std::int64_t>;
  const std::int64_t width = layer.width();
  Floats values(static_cast<std::size_t>(layer.parameter_count())), gradients(values.size());
  layer.bind(values, gradients);
  const int next = layer.initialize(3, 5);
  Floats first = values;
  std::fill(values.begin(), values.end(), 9.0f);
  faults.expect(layer.initialize(3, 5) == next && values == first,
                "initialize: the same seed and number give other values");
  // away from values at which a gradient is zero
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += 0.25f * detail::number(1, i);

  const auto forward = [&](const Floats& x, const Offsets& offsets, const Offsets& targets) {
    Floats y(x.size());
    const std::int64_t rows = offsets.back();
    layer.forward({x.data(), rows, width}, {offsets, targets}, {y.data(), rows, width});
    return y;
  };
  const auto distance = [&](const Floats& a, std::int64_t from_a, const Floats& b,
                            std::int64_t from_b, std::int64_t rows) {
    double worst = 0;
    for (std::int64_t i = 0; i < rows * width; ++i) {
      const double p = a[static_cast<std::size_t>(from_a * width + i)],
                   q = b[static_cast<std::size_t>(from_b * width + i)];
      const double apart = std::abs(p - q) / (1 + std::abs(p));
      worst = std::isnan(apart) || apart > worst ? apart : worst;
      if (std::isnan(worst)) return worst;
    }
    return worst;
  };

  const std::int64_t longest = options.max_length;
  const Offsets offsets{0, longest, longest, longest + 1, 2 * longest - 1};
  const std::int64_t rows = offsets.back();
  std::vector<Offsets> target_lists{{}};
  if (options.targets) target_lists.push_back({3, 0, 1, 2});
  Floats x(static_cast<std::size_t>(rows * width)), dy(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = detail::number(2, i), dy[i] = detail::number(3, i);

  for (const Offsets& targets : target_lists) {
    const Floats y = forward(x, offsets, targets);
    faults.expect(y == forward(x, offsets, targets), "forward: the same batch, other bits");
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
      const std::int64_t begin = offsets[s], length = offsets[s + 1] - begin;
      const std::int64_t count = targets.empty() ? 0 : targets[s], history = length - count;
      const Floats alone(x.begin() + begin * width, x.begin() + (begin + length) * width);
      const Offsets own = targets.empty() ? Offsets{} : Offsets{count};
      const double apart = distance(y, begin, forward(alone, {0, length}, own), 0, length);
      faults.expect(apart < 1e-4, "forward: a sequence of {} positions depends on others, by {}",
                    length, apart);
      // another input at one position, and who may see it
      for (std::int64_t at = 0; at < length; ++at) {
        Floats changed = alone;
        for (std::int64_t c = 0; c < width; ++c)
          changed[static_cast<std::size_t>(at * width + c)] =
              detail::number(4, static_cast<std::size_t>(c));
        const Floats after = forward(changed, {0, length}, own);
        Floats spoiled = alone;
        spoiled[static_cast<std::size_t>(at * width)] = std::numeric_limits<float>::quiet_NaN();
        const Floats of_nan = forward(spoiled, {0, length}, own);
        faults.expect(std::any_of(of_nan.begin() + at * width, of_nan.begin() + (at + 1) * width,
                                  [](float number) { return std::isnan(number); }),
                      "forward: NaN at position {} of {} ({} targets) gives no NaN there", at,
                      length, count);
        const bool target = at >= history;
        for (std::int64_t i = 0; i < length; ++i) {
          if (i == at || (!target && (i > at || !options.causal))) continue;
          const double moved = distance(y, begin + i, after, i, 1);
          faults.expect(moved < 1e-4, "forward: position {} of {} ({} targets) sees {}, by {}", i,
                        length, count, at, moved);
        }
      }
    }

    // slopes along random directions of parameters and of the input
    Floats dx(x.size());
    std::fill(gradients.begin(), gradients.end(), 77.0f);
    const Floats held = forward(x, offsets, targets);  // layers may read y again
    layer.backward({dy.data(), rows, width}, {dx.data(), rows, width});
    const Floats found = gradients, kept = values;
    std::fill(gradients.begin(), gradients.end(), 77.0f);
    layer.backward({dy.data(), rows, width}, {});
    faults.expect(found == gradients, "backward: without dx the parameters' gradients are others");
    for (std::uint64_t direction = 0; direction < 6; ++direction) {
      const bool of_input = direction % 2 == 0;
      const auto value = [&](float step) {
        Floats moved = x;
        if (of_input)
          for (std::size_t i = 0; i < x.size(); ++i)
            moved[i] += step * detail::number(20 + direction, i);
        else
          for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = kept[i] + step * detail::number(20 + direction, i);
        const Floats at = forward(moved, offsets, targets);
        values = kept;
        double sum = 0;
        for (std::size_t i = 0; i < at.size(); ++i) sum += double{at[i]} * dy[i];
        return sum;
      };
      detail::expect_slope(faults, of_input ? "input" : "parameters", 20 + direction,
                           of_input ? dx : found, options.tolerance, 2e-3, value);
    }
  }

  for (const Offsets& nothing : {Offsets{0}, Offsets{0, 0}}) {
    forward({}, nothing, {});
    std::fill(gradients.begin(), gradients.end(), 77.0f);
    layer.backward({nullptr, 0, width}, {nullptr, 0, width});
    faults.expect(gradients == Floats(gradients.size()),
                  "backward: a batch of no positions has gradients other than 0");
  }
  return faults.take();
}

}}}  // namespace tessera::v0::laws
