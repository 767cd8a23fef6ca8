// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/gradients.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera { inline namespace v0 {

template <>
struct op::Kernel<op::AddSquares, Host> {
  static void run(const Host& backend, const op::AddSquares::Parameters& p) {
    const int parts = detail::worthwhile_threads(backend.threads(), p.count * 4);
    detail::PodVector<op::SquareDigits> sums(static_cast<std::size_t>(parts));
    detail::parallel_for(parts, parts, [&](std::int64_t part, int) {
      op::SquareDigits sum{};
      for (std::int64_t i = p.count * part / parts; i < p.count * (part + 1) / parts; ++i)
        op::add_square(p.values[i], [&](int place, std::int64_t amount) { sum[place] += amount; });
      sums[part] = sum;
    });
    for (const op::SquareDigits& sum : sums)
      for (std::size_t k = 0; k < sum.size(); ++k) p.digits[k] += sum[k];
  }
};

template <>
struct op::Kernel<op::ClipValues, Host> {
  static void run(const Host& backend, const op::ClipValues::Parameters& p) {
    if (p.clipped != nullptr) *p.clipped += held_back(p);
    const int parts = detail::worthwhile_threads(backend.threads(), p.count * 4);
    detail::parallel_for(parts, parts, [&](std::int64_t part, int) {
      for (std::int64_t i = p.count * part / parts; i < p.count * (part + 1) / parts; ++i)
        p.values[i] = op::ClipValues::clipped(p.values[i], p.factor, p.limit);
    });
  }

 private:
  static std::int64_t held_back(const op::ClipValues::Parameters& p) {
    return std::count_if(p.values, p.values + p.count,
                         [&](float x) { return op::ClipValues::held_back(x * p.factor, p.limit); });
  }
};

template <>
struct op::Kernel<op::ClipRows, Host> {
  static void run(const Host& backend, const op::ClipRows::Parameters& p) {
    const int parts = detail::worthwhile_threads(backend.threads(), p.count * p.width * 4);
    std::atomic<std::int64_t> clipped = 0;
    detail::parallel_for(parts, parts, [&](std::int64_t part, int) {
      std::int64_t found = 0;
      for (std::int64_t k = p.count * part / parts; k < p.count * (part + 1) / parts; ++k) {
        const float factor =
            op::ClipRows::factor(p.rows[k], p.mean_squares[k], p.limit, p.segments.data(),
                                 static_cast<int>(p.segments.size()));
        if (factor == 1) continue;
        ++found;
        for (int c = 0; c < p.width; ++c) p.gradients[k * p.width + c] *= factor;
      }
      clipped += found;
    });
    if (p.clipped != nullptr) *p.clipped += clipped;
  }
};

template <>
struct op::Kernel<op::AddValues, Host> {
  static void run(const Host& backend, const op::AddValues::Parameters& p) {
    const int parts = detail::worthwhile_threads(backend.threads(), p.count * 4);
    detail::parallel_for(parts, parts, [&](std::int64_t part, int) {
      for (std::int64_t i = p.count * part / parts; i < p.count * (part + 1) / parts; ++i)
        p.to[i] += p.values[i];
    });
  }
};

}}  // namespace tessera::v0
