// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/groups.cuh>
#include <tessera/dense/dense_kernels.cuh>
#include <tessera/dense/gemm.cuh>
#include <tessera/tables/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace gpu { namespace detail {

/// Returns the stride of rows. This library's own begin at multiples of 16 bytes, as parts of
/// parameters do not: cuBLASLt's fastest kernels take no others.
template <class T>
constexpr std::int64_t row_stride(std::int64_t columns) {
  constexpr std::int64_t unit = 16 / static_cast<std::int64_t>(sizeof(T));
  return (columns + unit - 1) / unit * unit;
}
/// Returns the columns, or inner elements, of a product in 16 bits, with zeros behind a layer's
/// own: where they are no multiple of 8, cuBLASLt rounds to 16 bits once before it adds the bias,
/// and again after it.
template <class T>
constexpr std::int64_t padded_columns(std::int64_t columns) {
  return std::is_same_v<T, float> ? columns : row_stride<T>(columns);
}
template <class T>
bool rows_begin_aligned(MatrixView<T> matrix) {
  return reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 &&
         matrix.stride == row_stride<std::remove_const_t<T>>(matrix.stride);
}

template <class T>
void copy_matrix(const Cuda& backend, MatrixView<const T> from, MatrixView<T> to) {
  const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(T); };
  check(cudaMemcpy2DAsync(to.data, bytes(to.stride), from.data, bytes(from.stride),
                          bytes(from.columns), static_cast<std::size_t>(from.rows),
                          cudaMemcpyDefault, backend.stream()),
        "copying a matrix");
}

/// Puts what a product gives, `multiply(where it goes)`, into a matrix of parameters' gradients: by
/// way of `room` if its rows do not begin aligned.
template <class Multiply>
void multiply_aligned(const Cuda& backend, Buffer<float, Cuda>& room, MatrixView<float> given,
                      const Multiply& multiply) {
  if (rows_begin_aligned(given)) return multiply(given);
  MatrixView<float> aligned = given;
  aligned.stride = row_stride<float>(given.columns);
  room.resize(backend, aligned.rows * aligned.stride);
  aligned.data = room.data();
  multiply(aligned);
  copy_matrix<float>(backend, aligned, given);
}

/// Parameters and where their copies go, whose rows begin aligned.
template <class T>
struct WeightCopy {
  MatrixView<const float> from;
  MatrixView<T> to;

  TESSERA_HOST_DEVICE std::uint32_t parts() const {
    return static_cast<std::uint32_t>((from.columns + dense_vector - 1) / dense_vector);
  }
};

/// Copies all matrices of a stack of layers; a thread takes 8 neighbouring elements of a row.
template <class T>
__global__ void __launch_bounds__(dense_threads)
    copy_weights(const GroupBatch<WeightCopy<T>> __grid_constant__ batch) {
  const int g = batch.find(blockIdx.x);
  const WeightCopy<T>& copy = batch.groups[g];
  const auto i = static_cast<std::uint32_t>(
      (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * dense_threads + threadIdx.x);
  const std::uint32_t row = i / copy.parts();
  if (row >= copy.from.rows) return;
  narrow_part<T, dense_vector>(copy.from, copy.to, row,
                               static_cast<std::int64_t>(i - row * copy.parts()) * dense_vector,
                               rows_of<dense_vector>(copy.from));
}

/// Where a linear map's parameters begin among its layer's: W [out, in], then b [out] if it has one.
struct LinearPlace {
  std::int64_t out = 0, in = 0, weight = 0;
  bool bias = false;
  std::int64_t bias_at() const { return weight + out * in; }
};

/// What products read of linear maps' parameters: these themselves, or copies, in 16 bits or in
/// rows that begin aligned.
class WeightCopies {
 public:
  WeightCopies(const Cuda& backend, std::vector<LinearPlace> maps)
      : backend_(backend), maps_(std::move(maps)) {}

  /// Says that the bound parameters do not change from here on, until this is called again.
  void keep(bool keep) {
    constant_ = keep;
    copied_ = false;
  }

  /// Makes what copies products of T need, unless they are there and kept.
  template <class T>
  void refresh(std::span<const float> values) {
    values_ = values.data();
    const std::int64_t count = offset<T>(maps_.size());
    if (count == 0 || (constant_ && copied_)) return;
    copied_ = true;
    const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
    if (copies_.size() != bytes) {
      copies_.resize(backend_, bytes);
      backend_.fill_zero(copies_.data(), bytes);  // what pads rows and columns stays so
    }
    std::vector<WeightCopy<T>> all;
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      if (!copies<T>(i)) continue;
      const LinearPlace& map = maps_[i];
      const MatrixView<const T> there = weight<T>(i);
      all.push_back({given(i), {const_cast<T*>(there.data), map.out, map.in, there.stride}});
      if (map.bias && !std::is_same_v<T, float>)
        all.push_back(
            {{values_ + map.bias_at(), 1, map.out}, {const_cast<T*>(bias<T>(i)), 1, map.out}});
    }
    launch_by_group<WeightCopy<T>>(
        backend_, "copy_weights", dense_threads, all,
        [](const WeightCopy<T>& copy) {
          return ceil_divide(copy.from.rows * copy.parts(), dense_threads);
        },
        copy_weights<T>);
  }

  // As of the last refresh<T>. Of 16 bits the weights have padded_columns rows.
  template <class T>
  MatrixView<const T> weight(std::size_t i) const {
    if constexpr (std::is_same_v<T, float>)
      if (!copies<T>(i)) return given(i);
    return {reinterpret_cast<const T*>(copies_.data()) + offset<T>(i),
            padded_columns<T>(maps_[i].out), maps_[i].in, row_stride<T>(maps_[i].in)};
  }
  template <class T>
  const T* bias(std::size_t i) const {
    if constexpr (std::is_same_v<T, float>) {
      return values_ + maps_[i].bias_at();
    } else {
      const MatrixView<const T> weights = weight<T>(i);
      return weights.data + weights.rows * weights.stride;
    }
  }

 private:
  MatrixView<const float> given(std::size_t i) const {
    return {values_ + maps_[i].weight, maps_[i].out, maps_[i].in};
  }
  template <class T>
  bool copies(std::size_t i) const {
    return !std::is_same_v<T, float> || !rows_begin_aligned(given(i));
  }
  template <class T>
  std::int64_t offset(std::size_t map) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < map; ++i)
      if (copies<T>(i))
        sum += padded_columns<T>(maps_[i].out) * row_stride<T>(maps_[i].in) +
               (maps_[i].bias ? row_stride<T>(maps_[i].out) : 0);
    return sum;
  }

  Cuda backend_;
  std::vector<LinearPlace> maps_;
  const float* values_ = nullptr;
  Buffer<std::byte, Cuda> copies_;
  bool constant_ = false, copied_ = false;  ///< parameters stay; they are in copies_
};

}}}}  // namespace tessera::v0::gpu::detail
