// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Operations of vector_ops.hpp on a GPU, and how numbers come there. A thread makes one number.
#pragma once

#include "../support/for_each_element.cuh"
#include "../support/outbox.cuh"
#include "outbox.hpp"
#include "vector_ops.hpp"

#include <tessera/cuda/backend.cuh>
#include <tessera/dense/dense_kernels.cuh>
#include <tessera/dense/gemm.cuh>
#include <tessera/tables/buffer.hpp>

#include <cstddef>
#include <cstdint>

namespace sequence {

template <class T>
class Outbox<T, tessera::Cuda> : public support::Outbox<T> {
 public:
  explicit Outbox(const tessera::Cuda& backend) : support::Outbox<T>(backend, 0, true) {}
};

template <>
class Products<tessera::Cuda> {
 public:
  explicit Products(const tessera::Cuda& backend) : backend_(backend), gemm_(backend) {}
  void run(tessera::MatrixView<const float> a, tessera::MatrixView<const float> b, float* to) {
    const auto count = static_cast<std::size_t>(a.rows * b.rows);
    gemm_.run({.rows = a.rows,
               .columns = b.rows,
               .inner = b.columns,
               .a_stride = a.stride,
               .b_stride = b.stride,
               .c_stride = b.rows,
               .b_transposed = true},
              a.data, b.data, nullptr, products_.resize(backend_, count).data());
    backend_.copy(to, products_.data(), count * sizeof(float));
    backend_.synchronize();
  }

 private:
  tessera::Cuda backend_;
  tessera::gpu::Gemm gemm_;
  tessera::Buffer<float, tessera::Cuda> products_;
};

namespace kernels {

using support::launch;

struct FillInput {
  sequence::FillInput::Parameters p;
  __device__ void operator()(std::int64_t row, std::int64_t c) const {
    float x = p.vectors(p.sources[row], c) + p.places(p.place_of[row], c);
    if (p.labels[row] != 0) x += p.labels[row] * p.label_vector[c];
    p.x(row, c) = x;
  }
};

struct AddIndexed {
  sequence::AddIndexed::Parameters p;
  __device__ void operator()(std::int64_t i, std::int64_t c) const {
    p.to(p.index[i], c) += p.from(i, c);
  }
};

struct PlaceGradients {
  sequence::PlaceGradients::Parameters p;
  __device__ void operator()(std::int64_t place, std::int64_t c) const {
    float sum = 0;
    for (std::int64_t i = p.begins[place]; i < p.begins[place + 1]; ++i) sum += p.d(p.rows[i], c);
    p.of_places(place, c) = sum;
  }
};

/// Of four columns.
struct Drop {
  sequence::Drop::Parameters p;
  __device__ void operator()(std::int64_t row, std::int64_t four) const {
    const std::int64_t end = 4 * four + 4 < p.x.columns ? 4 * four + 4 : p.x.columns;
    std::uint64_t word = p.zeros.word(p.keys[row], p.layer, 4 * four);
    for (std::int64_t c = 4 * four; c < end; ++c, word >>= 16) p.x(row, c) *= p.zeros.factor(word);
  }
};

struct DropAdded {
  sequence::DropAdded::Parameters p;
  __device__ void operator()(std::int64_t row, std::int64_t four) const {
    const sequence::Drop::Parameters& drop = p.drop;
    const std::int64_t end = 4 * four + 4 < p.x.columns ? 4 * four + 4 : p.x.columns;
    std::uint64_t word = drop.zeros.word(drop.keys[row], drop.layer, 4 * four);
    for (std::int64_t c = 4 * four; c < end; ++c, word >>= 16)
      drop.x(row, c) = (drop.x(row, c) - p.x(row, c)) * drop.zeros.factor(word) + p.x(row, c);
  }
};

struct AddDifference {
  sequence::AddDifference::Parameters p;
  __device__ void operator()(std::int64_t, std::int64_t i) const {
    p.d[i] += p.more[i] - p.less[i];
  }
};

}  // namespace kernels
}  // namespace sequence

template <>
struct tessera::op::Kernel<sequence::FillInput, tessera::Cuda> {
  static void run(const Cuda& backend, const sequence::FillInput::Parameters& p) {
    sequence::kernels::launch(backend, "fill_input", p.x.rows, p.x.columns,
                              sequence::kernels::FillInput{p});
  }
};

template <>
struct tessera::op::Kernel<sequence::AddIndexed, tessera::Cuda> {
  static void run(const Cuda& backend, const sequence::AddIndexed::Parameters& p) {
    sequence::kernels::launch(backend, "add_indexed", p.from.rows, p.from.columns,
                              sequence::kernels::AddIndexed{p});
  }
};

template <>
struct tessera::op::Kernel<sequence::PlaceGradients, tessera::Cuda> {
  static void run(const Cuda& backend, const sequence::PlaceGradients::Parameters& p) {
    sequence::kernels::launch(backend, "place_gradients", p.of_places.rows, p.of_places.columns,
                              sequence::kernels::PlaceGradients{p});
    gpu::one_output_backward(backend, p.d, MatrixView<const float>(p.labels, p.d.rows, 1),
                             p.label_vector, MatrixView<float>{}, p.of_label);
  }
};

template <>
struct tessera::op::Kernel<sequence::Drop, tessera::Cuda> {
  static void run(const Cuda& backend, const sequence::Drop::Parameters& p) {
    if (p.zeros.below != 0)
      sequence::kernels::launch(backend, "drop", p.x.rows, gpu::ceil_divide(p.x.columns, 4),
                                sequence::kernels::Drop{p});
  }
};

template <>
struct tessera::op::Kernel<sequence::DropAdded, tessera::Cuda> {
  static void run(const Cuda& backend, const sequence::DropAdded::Parameters& p) {
    sequence::kernels::launch(backend, "drop_added", p.x.rows, gpu::ceil_divide(p.x.columns, 4),
                              sequence::kernels::DropAdded{p});
  }
};

template <>
struct tessera::op::Kernel<sequence::AddDifference, tessera::Cuda> {
  static void run(const Cuda& backend, const sequence::AddDifference::Parameters& p) {
    sequence::kernels::launch(backend, "add_difference", 1, p.count,
                              sequence::kernels::AddDifference{p});
  }
};
