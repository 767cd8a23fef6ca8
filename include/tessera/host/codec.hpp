// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/host/exchange.hpp>
#include <tessera/op/codec.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace tessera::inline v0 {

namespace detail {

/// Calls f(width) with a constant where the width is a usual one: the codec's loops are then
/// vectorized for it. Not for 16: g++ 12 unrolls a loop of 16 altogether, and then makes no
/// vectors.
template <class F>
[[gnu::always_inline]] inline void with_constant_width(int width, const F& f) {
  switch (width) {
    case 32:
      return f(std::integral_constant<int, 32>{});
    case 64:
      return f(std::integral_constant<int, 64>{});
    case 128:
      return f(std::integral_constant<int, 128>{});
    default:
      return f(width);
  }
}

}  // namespace detail

template <Codec C>
struct op::Kernel<op::EncodeRows<C>, Host> {
  using Job = typename op::EncodeRows<C>::Job;

  static void run(const Host& backend, const typename op::EncodeRows<C>::Parameters& p) {
    detail::for_rows_of_jobs(backend, p.jobs, [](const Job&) { return false; }, encode);
  }

 private:
  static void encode(const Job& job, std::int64_t begin, std::int64_t end) {
    detail::with_constant_width(job.width, [&](auto width) {
      for (std::int64_t i = begin; i < end; ++i)
        C::encode(job.source + (job.samples != nullptr ? job.samples[i] : i) * job.source_stride,
                  width, job.target + static_cast<std::size_t>(i) * C::bytes(width));
    });
  }
};

template <Codec C>
struct op::Kernel<op::DecodeRows<C>, Host> {
  using Job = typename op::DecodeRows<C>::Job;

  static void run(const Host& backend, const typename op::DecodeRows<C>::Parameters& p) {
    detail::for_rows_of_jobs(backend, p.jobs, [](const Job&) { return true; }, decode);
  }

 private:
  static void decode(const Job& job, std::int64_t begin, std::int64_t end) {
    if (job.add) return decode_and_add(job, begin, end);
    detail::with_constant_width(job.width, [&](auto width) {
      for (std::int64_t i = begin; i < end; ++i)
        C::decode(job.source + static_cast<std::size_t>(i) * C::bytes(width), width,
                  job.target + (job.samples != nullptr ? job.samples[i] : i) * job.target_stride);
    });
  }

  static void decode_and_add(const Job& job, std::int64_t begin, std::int64_t end) {
    constexpr int largest = 1024;
    float decoded[largest];
    std::vector<float> wider(job.width > largest ? static_cast<std::size_t>(job.width) : 0);
    float* const row = job.width > largest ? wider.data() : decoded;
    detail::with_constant_width(job.width, [&](auto width) {
      for (std::int64_t i = begin; i < end; ++i) {
        C::decode(job.source + static_cast<std::size_t>(i) * C::bytes(width), width, row);
        float* const target =
            job.target + (job.samples != nullptr ? job.samples[i] : i) * job.target_stride;
        for (int c = 0; c < width; ++c) target[c] += row[c];
      }
    });
  }
};

}  // namespace tessera::inline v0
