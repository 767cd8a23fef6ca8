// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"

#include <tessera/dense/parameters.hpp>
#include <tessera/sequence/hstu.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace golden {

/// Gradients are sums with much cancellation: the tolerance is that of the tensor's largest value.
inline void compare_gradients(Verdict& verdict, const std::string& what,
                              std::span<const float> found, std::span<const float> expected) {
  double largest = 1;
  for (const float e : expected) largest = std::max(largest, std::abs(double{e}));
  verdict.compare(what, found, expected, kAbsolute * largest);
}

/// One block, forward and backward, with 1 and 3 threads.
template <int Heads, int AttentionDim, int HiddenDim>
int run_hstu(int argc, char** argv, std::int64_t width, ts::HstuOptions options) {
  if (argc < 2) return 2;
  const ts::SafetensorsReader file(argv[1]);
  Tally tally;
  for (const int threads : {1, 3}) {
    tally.run(fmt::format("{} threads", threads), [&](Verdict& verdict) {
      ts::HstuLayer<Heads, AttentionDim, HiddenDim> layer(ts::Host({.threads = threads}), width,
                                                          options);
      ts::DenseParameters parameters(1, layer);
      const std::vector<std::string> names{"norm.weight",  "norm.bias",          "uvqk.weight",
                                           "uvqk.bias",    "output_norm.weight", "output_norm.bias",
                                           "output.weight"};
      std::size_t at = 0;
      for (const std::string& name : names) {
        const std::vector<float> values = floats(file, name);
        std::copy(values.begin(), values.end(), parameters.values().begin() + at);
        at += values.size();
      }
      if (at != parameters.values().size()) return verdict.fail("parameters of another size");
      const std::vector<float> x = floats(file, "x"), dy = floats(file, "grad_output");
      const std::vector<std::int64_t> offsets = file.read<std::int64_t>("offsets"),
                                      targets = file.contains("num_targets")
                                                    ? file.read<std::int64_t>("num_targets")
                                                    : std::vector<std::int64_t>();
      const std::int64_t rows = std::ssize(x) / width;
      std::vector<float> y(x.size()), dx(x.size());
      layer.forward({x.data(), rows, width}, {offsets, targets}, {y.data(), rows, width});
      const auto attention = layer.attention();
      verdict.compare("attention",
                      {attention.data, static_cast<std::size_t>(rows * attention.columns)},
                      floats(file, "attention"));
      verdict.compare("output", y, floats(file, "output"));
      layer.backward({dy.data(), rows, width}, {dx.data(), rows, width});
      compare_gradients(verdict, "grad.x", dx, floats(file, "grad.x"));
      at = 0;
      for (const std::string& name : names) {
        const std::vector<float> expected = floats(file, "grad." + name);
        compare_gradients(verdict, "grad." + name,
                          parameters.gradients().subspan(at, expected.size()), expected);
        at += expected.size();
      }
    });
  }
  return tally.finish();
}

}  // namespace golden
