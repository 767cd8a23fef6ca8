// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Operations of vector_ops.hpp on a GPU. A thread makes one number, as the host does to the bit.
#pragma once

#include "../support/for_each_element.cuh"
#include "vector_ops.hpp"

#include <tessera/cuda/backend.cuh>

#include <cstdint>

namespace dlrm::kernels {

using support::launch;

struct TakeAverages {
  dlrm::TakeAverages::Parameters p;
  __device__ void operator()(std::int64_t s, std::int64_t column) const {
    const Averages& a = p.averages;
    if (column < a.kept) {
      p.to(s, column) = p.from(s, column);
      return;
    }
    const std::int64_t i = column - a.kept, begin = a.begin(i), end = a.end(i);
    const float* const vectors = p.from.row(s) + a.kept;
    float sum = 0;
    for (std::int64_t c = begin; c < end; ++c) sum += vectors[c];
    p.to(s, column) = sum / static_cast<float>(end - begin);
  }
};

struct SpreadAverages {
  dlrm::SpreadAverages::Parameters p;
  __device__ void operator()(std::int64_t s, std::int64_t column) const {
    const Averages& a = p.averages;
    if (column < a.kept) {
      p.to(s, column) = p.from(s, column);
      return;
    }
    const std::int64_t i = (column - a.kept + a.lacking) / a.stride;
    p.to(s, column) = p.from(s, a.kept + i) / static_cast<float>(a.end(i) - a.begin(i));
  }
};

struct AddRowSums {
  dlrm::AddRowSums::Parameters p;
  __device__ void operator()(std::int64_t s, std::int64_t) const {
    float sum = 0;
    for (std::int64_t c = 0; c < p.from.columns; ++c) sum += p.from(s, c);
    p.to(s, 0) += sum;
  }
};

struct SpreadColumn {
  dlrm::SpreadColumn::Parameters p;
  __device__ void operator()(std::int64_t s, std::int64_t column) const {
    p.to(s, column) = p.from(s, 0);
  }
};

struct CopyVectors {
  dlrm::CopyVectors::Parameters p;
  __device__ void operator()(std::int64_t s, std::int64_t i) const {
    const std::int64_t k = i / p.width, column = i % p.width;
    p.to(s, p.to_columns[k] + column) = p.from(s, p.from_columns[k] + column);
  }
};

}  // namespace dlrm::kernels

template <>
struct tessera::op::Kernel<dlrm::TakeAverages, tessera::Cuda> {
  static void run(const Cuda& backend, const dlrm::TakeAverages::Parameters& p) {
    dlrm::kernels::launch(backend, "take_averages", p.to.rows, p.to.columns,
                          dlrm::kernels::TakeAverages{p});
  }
};

template <>
struct tessera::op::Kernel<dlrm::SpreadAverages, tessera::Cuda> {
  static void run(const Cuda& backend, const dlrm::SpreadAverages::Parameters& p) {
    dlrm::kernels::launch(backend, "spread_averages", p.to.rows, p.to.columns,
                          dlrm::kernels::SpreadAverages{p});
  }
};

template <>
struct tessera::op::Kernel<dlrm::AddRowSums, tessera::Cuda> {
  static void run(const Cuda& backend, const dlrm::AddRowSums::Parameters& p) {
    dlrm::kernels::launch(backend, "add_row_sums", p.to.rows, 1, dlrm::kernels::AddRowSums{p});
  }
};

template <>
struct tessera::op::Kernel<dlrm::SpreadColumn, tessera::Cuda> {
  static void run(const Cuda& backend, const dlrm::SpreadColumn::Parameters& p) {
    dlrm::kernels::launch(backend, "spread_column", p.to.rows, p.to.columns,
                          dlrm::kernels::SpreadColumn{p});
  }
};

template <>
struct tessera::op::Kernel<dlrm::CopyVectors, tessera::Cuda> {
  static void run(const Cuda& backend, const dlrm::CopyVectors::Parameters& p) {
    dlrm::kernels::launch(backend, "copy_vectors", p.from.rows, p.count * p.width,
                          dlrm::kernels::CopyVectors{p});
  }
};
