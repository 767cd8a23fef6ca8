// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/sequence/hstu_parameters.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace tessera;

/// One block in double, position by position, as the class's comment has it.
template <int kHeads, int kAttention, int kHidden, int kWidth>
struct PlainHstu {
  HstuOptions options;
  std::vector<double> p, x;
  std::vector<std::int64_t> offsets, targets;

  static std::vector<double> norm(const double* a, std::int64_t n, const double* w, const double* b,
                                  double epsilon) {
    double mean = 0, variance = 0;
    for (std::int64_t c = 0; c < n; ++c) mean += a[c] / static_cast<double>(n);
    for (std::int64_t c = 0; c < n; ++c)
      variance += (a[c] - mean) * (a[c] - mean) / static_cast<double>(n);
    std::vector<double> y(static_cast<std::size_t>(n));
    for (std::int64_t c = 0; c < n; ++c)
      y[c] = (a[c] - mean) / std::sqrt(variance + epsilon) * w[c] + b[c];
    return y;
  }
  static double silu(double a) { return a / (1.0 + std::exp(-a)); }

  std::vector<double> output() const {
    constexpr int hv = kHeads * kHidden, ha = kHeads * kAttention, columns = 2 * (hv + ha);
    const std::int64_t rows = std::ssize(x) / kWidth;
    const double* const uvqk = p.data() + 2 * kWidth;
    const double* const uvqk_bias = uvqk + columns * kWidth;
    const double* const output_norm = uvqk_bias + columns;
    const double* const out = output_norm + 2 * hv;
    std::vector<double> z(static_cast<std::size_t>(rows * columns)), y = x;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto a =
          norm(&x[r * kWidth], kWidth, p.data(), p.data() + kWidth, options.norm_epsilon);
      for (int c = 0; c < columns; ++c) {
        double sum = uvqk_bias[c];
        for (int i = 0; i < kWidth; ++i) sum += a[i] * uvqk[c * kWidth + i];
        z[r * columns + c] = options.silu_all || c < hv ? silu(sum) : sum;
      }
    }
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
      const std::int64_t n = offsets[s + 1] - offsets[s], t = targets.empty() ? 0 : targets[s];
      const auto place = [&](std::int64_t i) { return std::min(i, n - t); };
      for (std::int64_t i = 0; i < n; ++i) {
        const double* const zi = &z[(offsets[s] + i) * columns];
        std::vector<double> attention(hv);
        for (std::int64_t j = 0; j < n; ++j) {
          const std::int64_t back = place(i) - place(j);
          const bool sees =
              i == j ||
              (back > 0 && (options.attention_window == 0 || back <= options.attention_window));
          if (!sees) continue;
          const double* const zj = &z[(offsets[s] + j) * columns];
          for (int h = 0; h < kHeads; ++h) {
            double dot = 0;
            for (int a = 0; a < kAttention; ++a)
              dot += zi[2 * hv + h * kAttention + a] * zj[2 * hv + ha + h * kAttention + a];
            const double score =
                silu(options.alpha * dot) / static_cast<double>(options.max_length);
            for (int v = 0; v < kHidden; ++v)
              attention[h * kHidden + v] += score * zj[hv + h * kHidden + v];
          }
        }
        const auto normal =
            norm(attention.data(), hv, output_norm, output_norm + hv, options.norm_epsilon);
        std::vector<double> gated;
        if (options.concat_ux) {
          gated.assign(zi, zi + hv);
          gated.insert(gated.end(), attention.begin(), attention.end());
        }
        for (int c = 0; c < hv; ++c) gated.push_back(zi[c] * normal[c]);
        for (int o = 0; o < kWidth; ++o)
          for (std::size_t c = 0; c < gated.size(); ++c)
            y[(offsets[s] + i) * kWidth + o] += gated[c] * out[o * gated.size() + c];
      }
    }
    return y;
  }
};

}  // namespace
