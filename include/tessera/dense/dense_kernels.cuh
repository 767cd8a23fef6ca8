// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/cuda/backend.cuh>

#include <cstdint>
#include <span>

namespace tessera::inline v0::gpu {

inline constexpr int dense_threads = 256;
inline constexpr int sum_rows = 512;  ///< of a column, by one block
inline constexpr int sum_columns = 32;

/// A block takes 32 columns of up to 512 rows: 8 threads a column, each every eighth row; then
/// these 8 sums in order. The gradient is zeroed where the activation, if there is one, is not
/// positive.
template <Element G, Element A, Element M>
__global__ void __launch_bounds__(dense_threads)
    mask_and_sum_rows(const MatrixView<const G> gradient, const MatrixView<const A> activation,
                      const MatrixView<M> masked, float* partial, const int column_blocks) {
  constexpr int rows_at_once = dense_threads / sum_columns;
  auto& sums = block_shared<float[rows_at_once][sum_columns]>();
  const std::int64_t chunk = blockIdx.x / column_blocks,
                     column = static_cast<std::int64_t>(blockIdx.x % column_blocks) * sum_columns +
                              threadIdx.x % sum_columns;
  const int first = static_cast<int>(threadIdx.x) / sum_columns;
  const std::int64_t end =
      (chunk + 1) * sum_rows < gradient.rows ? (chunk + 1) * sum_rows : gradient.rows;
  float sum = 0;
  if (column < gradient.columns)
    for (std::int64_t row = chunk * sum_rows + first; row < end; row += rows_at_once) {
      float g = to_float(gradient(row, column));
      if (activation.data != nullptr && !(to_float(activation(row, column)) > 0.0f)) g = 0.0f;
      if (masked.data != nullptr) masked(row, column) = from_float<M>(g);
      sum += g;
    }
  sums[first][threadIdx.x % sum_columns] = sum;
  __syncthreads();
  if (first != 0 || column >= gradient.columns || partial == nullptr) return;
  for (int i = 1; i < rows_at_once; ++i) sum += sums[i][threadIdx.x];
  partial[chunk * gradient.columns + column] = sum;
}

template <int = 0>
__global__ void __launch_bounds__(dense_threads)
    sum_chunks(const float* partial, const std::int64_t chunks, const std::int64_t columns,
               float* sums) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * dense_threads + threadIdx.x;
  if (column >= columns) return;
  float sum = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * columns + column];
  sums[column] = sum;
}

/// `masked` (or nothing, where it is empty) = gradient where activation > 0 (everywhere, where it
/// is empty), else 0; `sums` (or nothing) = its column sums, always added in the same order.
/// Scratch slot 19.
template <Element G, Element A, Element M>
void mask_and_sum(const Cuda& backend, MatrixView<const G> gradient, MatrixView<const A> activation,
                  MatrixView<M> masked, float* sums) {
  const std::int64_t chunks = ceil_divide(gradient.rows, sum_rows),
                     column_blocks = ceil_divide(gradient.columns, sum_columns);
  auto* partial =
      sums == nullptr ? nullptr : backend.scratch_for<float>(19, chunks * gradient.columns);
  backend.launch("mask_and_sum_rows", chunks * column_blocks, dense_threads,
                 mask_and_sum_rows<G, A, M>, gradient, activation, masked, partial,
                 static_cast<int>(column_blocks));
  if (sums != nullptr)
    backend.launch("sum_chunks", ceil_divide(gradient.columns, dense_threads), dense_threads,
                   sum_chunks<>, static_cast<const float*>(partial), chunks, gradient.columns,
                   sums);
}

template <Element T>
__global__ void __launch_bounds__(dense_threads)
    narrow_rows(const MatrixView<const float> from, T* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * dense_threads + threadIdx.x;
  if (i < from.rows * from.columns) to[i] = from_float<T>(from(i / from.columns, i % from.columns));
}

/// A matrix in fewer bits, its rows side by side.
template <Element T>
void narrow(const Cuda& backend, MatrixView<const float> from, T* to) {
  backend.launch("narrow_rows", ceil_divide(from.rows * from.columns, dense_threads), dense_threads,
                 narrow_rows<T>, from, to);
}

/// The sum of the values of the block's threads, in a fixed order; for thread 0 alone.
template <int Threads>
__device__ double sum_of_block(double value) {
  auto& sums = block_shared<double[Threads]>();
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int half = Threads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

/// A thread per sample; losses are summed in double, per block. A label outside [0, 1] makes the
/// loss NaN.
template <int = 0>
__global__ void __launch_bounds__(dense_threads)
    binary_cross_entropy(const MatrixView<const float> logits, const float* labels,
                         const MatrixView<float> gradient, const double scale,
                         double* block_losses) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * dense_threads + threadIdx.x;
  double loss = 0;
  if (i < logits.rows) {
    const double x = logits(i, 0), y = labels[i];
    const double small = exp(-fabs(x));
    loss = y >= 0 && y <= 1 ? (x > 0 ? x : 0) - x * y + log1p(small) : nan("");
    if (gradient.data != nullptr)
      gradient(i, 0) = static_cast<float>(((x >= 0 ? 1.0 : small) / (1.0 + small) - y) * scale);
  }
  loss = sum_of_block<dense_threads>(loss);
  if (threadIdx.x == 0) block_losses[blockIdx.x] = loss;
}

/// One block.
template <int = 0>
__global__ void __launch_bounds__(dense_threads)
    add_losses(const double* block_losses, const int blocks, const double scale, double* loss) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += dense_threads)
    sum += block_losses[i];
  sum = sum_of_block<dense_threads>(sum);
  if (threadIdx.x == 0) *loss += sum * scale;
}

/// The optimizer's formula for every element of a whole array of parameters.
template <Optimizer O>
__global__ void __launch_bounds__(dense_threads)
    update_parameters(const typename O::Step step, float* values, const float* gradients,
                      float* states, const std::int64_t count, const float weight_decay) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * dense_threads + threadIdx.x;
  if (i >= count) return;
  const typename O::Step::Row row = step.row(nullptr, 0.0f);
  float state[O::element_states > 0 ? O::element_states : 1];
  for (int s = 0; s < O::element_states; ++s) state[s] = states[s * count + i];
  const float weight = values[i];
  values[i] = step.element(weight, gradients[i] + weight_decay * weight, state, row);
  for (int s = 0; s < O::element_states; ++s) states[s * count + i] = state[s];
}

}  // namespace tessera::inline v0::gpu
