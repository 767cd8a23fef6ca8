// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What a model does to the vectors of a sample besides products: operations, and the host's kernels.
// Those of CUDA are in vector_ops.cuh.
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/op/kernel.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace dlrm {

/// The columns of a sample that a concat keeps, and behind them those of the vectors, of which each
/// `stride` neighbours are averaged. Where the stride does not divide them, the first and the last
/// average have fewer columns, the last the odd one ("same" padding).
struct Averages {
  std::int64_t kept, vectors, stride;
  std::int64_t count;    ///< of averages
  std::int64_t lacking;  ///< columns that the first one has fewer

  Averages(std::int64_t kept_, std::int64_t vectors_, std::int64_t stride_)
      : kept(kept_),
        vectors(vectors_),
        stride(stride_),
        count((vectors + stride - 1) / stride),
        lacking((count * stride - vectors) / 2) {}
  /// Returns the first of the vectors' columns that average i has.
  TESSERA_HOST_DEVICE std::int64_t begin(std::int64_t i) const {
    return i == 0 ? 0 : i * stride - lacking;
  }
  /// Returns the one behind its last.
  TESSERA_HOST_DEVICE std::int64_t end(std::int64_t i) const {
    return i + 1 == count ? vectors : (i + 1) * stride - lacking;
  }
};

/// to [samples, kept + averages] from `from` [samples, kept + vectors].
struct TakeAverages {
  struct Parameters {
    Averages averages;
    tessera::MatrixView<const float> from;
    tessera::MatrixView<float> to;
  };
};

/// The gradients of the columns, `to`, from those of TakeAverages's result.
struct SpreadAverages {
  using Parameters = TakeAverages::Parameters;
};

/// Adds the sum of each row of `from` to the row's only column of `to`.
struct AddRowSums {
  struct Parameters {
    tessera::MatrixView<const float> from;
    tessera::MatrixView<float> to;
  };
};

/// Every column of `to` is the only one of `from`: the gradients of AddRowSums.
struct SpreadColumn {
  using Parameters = AddRowSums::Parameters;
};

/// `count` vectors of `width` columns of each sample. Vector k begins at column from_columns[k] of
/// `from`, and comes to to_columns[k] of `to`. The columns are in the backend's memory.
struct CopyVectors {
  struct Parameters {
    std::int64_t count, width;
    tessera::MatrixView<const float> from;
    const std::int64_t* from_columns;
    tessera::MatrixView<float> to;
    const std::int64_t* to_columns;
  };
};

}  // namespace dlrm

template <>
struct tessera::op::Kernel<dlrm::TakeAverages, tessera::Host> {
  static void run(const Host& host, const dlrm::TakeAverages::Parameters& p) {
    const dlrm::Averages& a = p.averages;
#pragma omp parallel for num_threads(host.threads()) schedule(static)
    for (std::int64_t s = 0; s < p.from.rows; ++s) {
      if (a.stride == 1) {
        std::copy_n(p.from.row(s), p.from.columns, p.to.row(s));
        continue;
      }
      const float* const vectors = p.from.row(s) + a.kept;
      float* const to = std::copy_n(p.from.row(s), a.kept, p.to.row(s));
      for (std::int64_t i = 0; i < a.count; ++i)
        to[i] = std::accumulate(vectors + a.begin(i), vectors + a.end(i), 0.0f) /
                static_cast<float>(a.end(i) - a.begin(i));
    }
  }
};

template <>
struct tessera::op::Kernel<dlrm::SpreadAverages, tessera::Host> {
  static void run(const Host& host, const dlrm::SpreadAverages::Parameters& p) {
    const dlrm::Averages& a = p.averages;
#pragma omp parallel for num_threads(host.threads()) schedule(static)
    for (std::int64_t s = 0; s < p.from.rows; ++s) {
      if (a.stride == 1) {
        std::copy_n(p.from.row(s), p.from.columns, p.to.row(s));
        continue;
      }
      const float* const gradients = p.from.row(s) + a.kept;
      float* const to = std::copy_n(p.from.row(s), a.kept, p.to.row(s));
      for (std::int64_t i = 0; i < a.count; ++i)
        std::fill(to + a.begin(i), to + a.end(i),
                  gradients[i] / static_cast<float>(a.end(i) - a.begin(i)));
    }
  }
};

template <>
struct tessera::op::Kernel<dlrm::AddRowSums, tessera::Host> {
  static void run(const Host&, const dlrm::AddRowSums::Parameters& p) {
    for (std::int64_t s = 0; s < p.from.rows; ++s)
      p.to(s, 0) += std::accumulate(p.from.row(s), p.from.row(s) + p.from.columns, 0.0f);
  }
};

template <>
struct tessera::op::Kernel<dlrm::SpreadColumn, tessera::Host> {
  static void run(const Host&, const dlrm::SpreadColumn::Parameters& p) {
    for (std::int64_t s = 0; s < p.from.rows; ++s)
      std::fill_n(p.to.row(s), p.to.columns, p.from(s, 0));
  }
};

template <>
struct tessera::op::Kernel<dlrm::CopyVectors, tessera::Host> {
  static void run(const Host& host, const dlrm::CopyVectors::Parameters& p) {
#pragma omp parallel for num_threads(host.threads()) schedule(static)
    for (std::int64_t s = 0; s < p.from.rows; ++s)
      for (std::int64_t k = 0; k < p.count; ++k)
        std::copy_n(p.from.row(s) + p.from_columns[k], p.width, p.to.row(s) + p.to_columns[k]);
  }
};
