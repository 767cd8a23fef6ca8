// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/memory.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/sequence_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera { inline namespace v0 {

template <>
struct op::Kernel<op::PlaceIndices, Host> {
  static void run(const Host&, const op::PlaceIndices::Parameters& p) {
    for (std::int64_t i = 0; i < p.count; ++i)
      p.index[i] = p.index[i] < 0 ? p.missing : p.index[i] + p.base;
  }
};

template <>
struct op::Kernel<op::OffsetsFromFirst, Host> {
  static void run(const Host&, const op::OffsetsFromFirst::Parameters& p) {
    for (const op::OffsetsFromFirst::Job& job : p.jobs)
      for (std::int64_t b = 0; b <= job.bags; ++b)
        job.to[b] =
            std::min(job.most, job.offsets == nullptr ? b : job.offsets[b] - job.offsets[0]);
  }
};

template <>
struct op::Kernel<op::GatherIndexed, Host> {
  static void run(const Host& backend, const op::GatherIndexed::Parameters& p) {
    switch (p.to.columns) {  // sizes that are known are copied inline
      case 16:
        return gather<16>(backend, p);
      case 32:
        return gather<32>(backend, p);
      case 64:
        return gather<64>(backend, p);
      case 128:
        return gather<128>(backend, p);
      default:
        return gather<0>(backend, p);
    }
  }

 private:
  template <int Width>
  static void copy_row(float* to, const float* from) {
    constexpr int lanes = Width < detail::native_lanes ? Width : detail::native_lanes;
    for (int c = 0; c < Width; c += lanes) {
      detail::Vector<float, lanes> x;
      detail::load<lanes>(from + c, x);
      std::memcpy(to + c, &x, sizeof(x));
    }
  }

  template <int Width>
  static void gather(const Host& backend, const op::GatherIndexed::Parameters& p) {
    constexpr std::int64_t rows_per_part = 1024;
    const std::size_t bytes = static_cast<std::size_t>(p.to.columns) * sizeof(float);
    const std::int64_t parts = (p.to.rows + rows_per_part - 1) / rows_per_part;
    detail::parallel_for(
        detail::worthwhile_threads(backend.threads(), p.to.rows * static_cast<std::int64_t>(bytes)),
        parts, [&](std::int64_t part, int) {
          const std::int64_t end = std::min(p.to.rows, (part + 1) * rows_per_part);
          for (std::int64_t i = part * rows_per_part; i < end; ++i)
            if constexpr (Width != 0)
              copy_row<Width>(p.to.row(i), p.rows.row(p.index[i]));
            else
              detail::copy_bytes(p.to.row(i), p.rows.row(p.index[i]), bytes);
          if (p.weights == nullptr) return;
          for (std::int64_t i = part * rows_per_part; i < end; ++i)
            for (std::int64_t c = 0; c < p.to.columns; ++c) p.to.row(i)[c] *= p.weights[i];
        });
  }
};

}}  // namespace tessera::v0
