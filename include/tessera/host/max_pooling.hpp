// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/max_pooling.hpp>

#include <algorithm>
#include <array>
#include <cstdint>

namespace tessera { inline namespace v0 {
namespace detail {

/// Calls f(bag) for all bags, in parts of so many that a part is worth a thread's while.
template <class Parameters, class F>
void for_each_max_bag(const Host& backend, const Parameters& p, const F& f) {
  if (p.bags.bags == 0) return;
  const int threads = worthwhile_threads(
      backend.threads(), p.bags.entries() * p.width * static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t parts = threads == 1 ? 1 : std::min<std::int64_t>(p.bags.bags, 8 * threads);
  parallel_for(threads, parts, [&](std::int64_t part, int) {
    const std::int64_t end = p.bags.bags * (part + 1) / parts;
    for (std::int64_t bag = p.bags.bags * part / parts; bag < end; ++bag) f(bag);
  });
}

}  // namespace detail

template <>
struct op::Kernel<op::PoolMax, Host> {
  static void run(const Host& backend, const op::PoolMax::Parameters& p) {
    detail::for_each_max_bag(backend, p, [&](std::int64_t bag) {
      float* const output = p.output + bag * p.output_stride;
      std::int64_t i = p.bags.begin(bag);
      const std::int64_t end = p.bags.end(bag);
      if (i == end) return std::fill_n(output, p.width, 0.0f), void();
      const float* const first = row(p, i);
      const float first_weight = weight(p, i);
      for (int c = 0; c < p.width; ++c) output[c] = first[c] * first_weight;
      while (++i < end) {
        const float* const from = row(p, i);
        const float of = weight(p, i);
        for (int c = 0; c < p.width; ++c) {
          const float x = from[c] * of;
          output[c] = op::exceeds(x, output[c]) ? x : output[c];
        }
      }
    });
  }

 private:
  static const float* row(const op::PoolMax::Parameters& p, std::int64_t i) {
    return p.rows + std::int64_t{p.bags.ids[i]} * p.width;
  }
  static float weight(const op::PoolMax::Parameters& p, std::int64_t i) {
    return p.bags.weights == nullptr ? 1.0f : p.bags.weights[i];
  }
};

template <>
struct op::Kernel<op::PoolMaxBackward, Host> {
  static void run(const Host& backend, const op::PoolMaxBackward::Parameters& p) {
    const std::int64_t first = p.bags.bags == 0 ? 0 : p.bags.begin(0);
    detail::for_each_max_bag(backend, p, [&](std::int64_t bag) {
      const float* const gradient = p.gradient + bag * p.gradient_stride;
      for (int c = 0; c < p.width; c += chunk)
        spread(p, bag, c, std::min(chunk, p.width - c), gradient + c, p.to - first * p.width);
    });
  }

 private:
  static constexpr int chunk = 64;

  /// Spreads columns [column, column + count) of one bag.
  static void spread(const op::PoolMaxBackward::Parameters& p, std::int64_t bag, int column,
                     int count, const float* gradient, float* to) {
    const std::int64_t begin = p.bags.begin(bag), end = p.bags.end(bag);
    std::array<float, chunk> largest;
    std::array<std::int64_t, chunk> winner;
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const from = p.rows + std::int64_t{p.bags.ids[i]} * p.width + column;
      const float weight = p.bags.weights == nullptr ? 1.0f : p.bags.weights[i];
      for (int c = 0; c < count; ++c) {
        const float x = from[c] * weight;
        const bool wins = i == begin || op::exceeds(x, largest[c]);
        largest[c] = wins ? x : largest[c];
        winner[c] = wins ? i : winner[c];
      }
    }
    for (std::int64_t i = begin; i < end; ++i)
      for (int c = 0; c < count; ++c)
        to[i * p.width + column + c] = winner[c] == i ? gradient[c] : 0.0f;
  }
};

}}  // namespace tessera::v0
