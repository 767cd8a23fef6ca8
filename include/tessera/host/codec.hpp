// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/codec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// Calls move(job, first row, last row) so that every row of every job is moved. Rows are shared
/// out among the threads, each of which takes its rows of all jobs in order: jobs that add to the
/// same target row do so in order, on one thread. Packed targets have no order to keep; with
/// `Scattered`, jobs with samples are cut by target row.
template <bool Scattered, class Job, class Move>
void for_rows_of_jobs(const Host& backend, std::span<const Job> jobs, const Move& move) {
  if (backend.threads() == 1) {
    for (const Job& job : jobs) move(job, 0, job.rows);
    return;
  }
  const auto scattered = [&](const Job& job) { return Scattered && job.samples != nullptr; };
  std::int64_t target_rows = 0;
  for (const Job& job : jobs)
    if (job.rows != 0)
      target_rows = std::max<std::int64_t>(
          target_rows, scattered(job) ? job.samples[job.rows - 1] + 1 : job.rows);
  parallel_for(backend.threads(), backend.threads(), [&](std::int64_t thread, int) {
    const std::int64_t low = target_rows * thread / backend.threads(),
                       high = target_rows * (thread + 1) / backend.threads();
    for (const Job& job : jobs) {
      const auto at = [&](std::int64_t row) {
        return scattered(job)
                   ? std::lower_bound(job.samples, job.samples + job.rows, row) - job.samples
                   : std::min(row, job.rows);
      };
      move(job, at(low), at(high));
    }
  });
}

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
  static void run(const Host& backend, const typename op::EncodeRows<C>::Parameters& p) {
    detail::for_rows_of_jobs<false>(backend, p.jobs, encode);
  }

 private:
  static void encode(const op::EncodeJob& job, std::int64_t begin, std::int64_t end) {
    detail::with_constant_width(job.width, [&](auto width) {
      for (std::int64_t i = begin; i < end; ++i)
        C::encode(job.row(i), width, job.target + static_cast<std::size_t>(i) * C::bytes(width));
    });
  }
};

template <Codec C>
struct op::Kernel<op::DecodeRows<C>, Host> {
  static void run(const Host& backend, const typename op::DecodeRows<C>::Parameters& p) {
    detail::for_rows_of_jobs<true>(backend, p.jobs, decode);
  }

 private:
  static void decode(const op::DecodeJob& job, std::int64_t begin, std::int64_t end) {
    if (job.add) return decode_and_add(job, begin, end);
    detail::with_constant_width(job.width, [&](auto width) {
      for (std::int64_t i = begin; i < end; ++i)
        C::decode(job.source + static_cast<std::size_t>(i) * C::bytes(width), width, job.row(i));
    });
  }

  static void decode_and_add(const op::DecodeJob& job, std::int64_t begin, std::int64_t end) {
    constexpr int largest = 1024;
    float decoded[largest];
    std::vector<float> wider(job.width > largest ? static_cast<std::size_t>(job.width) : 0);
    float* const room = job.width > largest ? wider.data() : decoded;
    detail::with_constant_width(job.width, [&](auto width) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::byte* const from = job.source + static_cast<std::size_t>(i) * C::bytes(width);
        const float* row = room;
        if constexpr (std::is_same_v<C, Fp32>)
          row = reinterpret_cast<const float*>(from);
        else
          C::decode(from, width, room);
        float* const target = job.row(i);
        for (int c = 0; c < width; ++c) target[c] += row[c];
      }
    });
  }
};

}}  // namespace tessera::v0
