// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/cuda/step_counter.cuh>

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace gpu {

inline constexpr int dense_threads = 256;
inline constexpr int sum_rows = 128;        ///< of a column, by one block
inline constexpr int chunk_threads = 1024;  ///< that add what blocks have summed
inline constexpr int sum_columns = 32;

/// Neighbouring elements of a row that a thread loads or stores at once.
template <Element T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Elements {
  T value[N];

  __device__ static const Elements& at(const MatrixView<const T>& m, std::int64_t row,
                                       std::int64_t column) {
    return *reinterpret_cast<const Elements*>(&m(row, column));
  }
};

/// Returns whether rows of `matrix` can be read `N` elements at a time; an empty matrix is never
/// read.
template <int N, class T>
TESSERA_HOST_DEVICE bool rows_of(const MatrixView<T>& matrix) {
  using Vector = Elements<std::remove_const_t<T>, N>;
  return matrix.data == nullptr ||
         (reinterpret_cast<std::uintptr_t>(matrix.data) % alignof(Vector) == 0 &&
          matrix.stride % N == 0 && matrix.columns % N == 0);
}

inline constexpr int dense_vector = 8;  ///< elements of a thread where rows allow it

/// Rows of a gradient: zero if the activation, if there is one, is not positive. `masked`, where
/// there is one, may be `gradient`.
template <Element G, Element A, Element M>
struct MaskedRows {
  MatrixView<const G> gradient;
  MatrixView<const A> activation;
  MatrixView<M> masked;

  // what a thread loads of a row
  template <int N>
  using First = Elements<G, N>;
  template <int N>
  using Second = Elements<A, N>;
  static constexpr int bytes = sizeof(G);  ///< of an element that is loaded
  __device__ std::int64_t rows() const { return gradient.rows; }
  __device__ std::int64_t columns() const { return gradient.columns; }
  template <int N>
  __device__ void load(Elements<G, N>& g, Elements<A, N>& a, std::int64_t row,
                       std::int64_t column) const {
    g = Elements<G, N>::at(gradient, row, column);
    if (activation.data != nullptr) a = Elements<A, N>::at(activation, row, column);
  }
  template <int N>
  __device__ void add(const Elements<G, N>& g, const Elements<A, N>& a, std::int64_t row,
                      std::int64_t column, float (&sum)[N]) const {
    Elements<M, N> kept;
    for (int i = 0; i < N; ++i) {
      const bool keeps = activation.data == nullptr || !(to_float(a.value[i]) <= 0.0f);
      const float value = keeps ? to_float(g.value[i]) : 0.0f;
      kept.value[i] = from_float<M>(value);
      sum[i] += value;
    }
    if (masked.data != nullptr) *reinterpret_cast<Elements<M, N>*>(&masked(row, column)) = kept;
  }
};

/// The inputs of a layer with one output, times its gradient; `of_inputs`, if there is one, is
/// the gradient times the weights. Products of such shapes take cuBLASLt several times as long as
/// memory does.
template <Element T, Element D>
struct OneOutputRows {
  MatrixView<const T> inputs;
  MatrixView<const T> gradient;
  const T* weights = nullptr;
  MatrixView<D> of_inputs;

  template <int N>
  using First = Elements<T, N>;
  template <int N>
  using Second = float;
  static constexpr int bytes = sizeof(T);
  __device__ std::int64_t rows() const { return inputs.rows; }
  __device__ std::int64_t columns() const { return inputs.columns; }
  template <int N>
  __device__ void load(Elements<T, N>& x, float& g, std::int64_t row, std::int64_t column) const {
    x = Elements<T, N>::at(inputs, row, column);
    g = to_float(gradient(row, 0));
  }
  template <int N>
  __device__ void add(const Elements<T, N>& x, float g, std::int64_t row, std::int64_t column,
                      float (&sum)[N]) const {
    Elements<D, N> below;
    for (int i = 0; i < N; ++i) {
      sum[i] = fmaf(g, to_float(x.value[i]), sum[i]);
      below.value[i] = from_float<D>(g * to_float(weights[column + i]));
    }
    if (of_inputs.data != nullptr)
      *reinterpret_cast<Elements<D, N>*>(&of_inputs(row, column)) = below;
  }
};

/// Adds rows up. A block takes 32 N columns of up to 128 rows: 8 threads a column, each every
/// eighth row; then these 8 sums in order, which does not depend on N. A thread loads
/// rows_in_flight rows before it stores the first.
template <class Rows, int N>
__global__ void __launch_bounds__(dense_threads)
    add_rows(const Rows rows, float* partial, const int column_blocks) {
  constexpr int rows_at_once = dense_threads / sum_columns,
                rows_in_flight = N == 1 ? 4 : 64 / (N * Rows::bytes);
  auto& sums = block_shared<float[rows_at_once][sum_columns * N]>();
  const std::int64_t chunk = blockIdx.x / column_blocks,
                     column = (static_cast<std::int64_t>(blockIdx.x % column_blocks) * sum_columns +
                               threadIdx.x % sum_columns) *
                              N;
  const int first = static_cast<int>(threadIdx.x) / sum_columns,
            lane = static_cast<int>(threadIdx.x) % sum_columns;
  const std::int64_t end =
      (chunk + 1) * sum_rows < rows.rows() ? (chunk + 1) * sum_rows : rows.rows();
  float sum[N] = {};
  if (column < rows.columns())
    for (std::int64_t row = chunk * sum_rows + first; row < end;
         row += rows_at_once * rows_in_flight) {
      // Not an array of pairs: their constructor would construct arrays in turn, and ptxas, where
      // nothing is inlined, finds no bound of its stack.
      typename Rows::template First<N> first_of[rows_in_flight];
      typename Rows::template Second<N> second_of[rows_in_flight];
      for (int r = 0; r < rows_in_flight; ++r)
        if (row + r * rows_at_once < end)
          rows.load(first_of[r], second_of[r], row + r * rows_at_once, column);
      for (int r = 0; r < rows_in_flight; ++r) {
        if (row + r * rows_at_once >= end) break;
        rows.add(first_of[r], second_of[r], row + r * rows_at_once, column, sum);
      }
    }
  if (partial == nullptr) return;
  for (int i = 0; i < N; ++i) sums[first][i * sum_columns + lane] = sum[i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < sum_columns * N; i += dense_threads) {
    const std::int64_t to =
        (static_cast<std::int64_t>(blockIdx.x % column_blocks) * sum_columns + i % sum_columns) *
            N +
        i / sum_columns;
    if (to >= rows.columns()) continue;
    float total = sums[0][i];
    for (int r = 1; r < rows_at_once; ++r) total += sums[r][i];
    partial[chunk * rows.columns() + to] = total;
  }
}

/// Sums chunks. A block takes 32 columns: 32 threads a column, each every 32nd chunk; then these 32
/// sums in order.
template <int = 0>
__global__ void __launch_bounds__(chunk_threads)
    sum_chunks(const float* partial, const std::int64_t chunks, const std::int64_t columns,
               float* sums) {
  constexpr int chunks_at_once = chunk_threads / sum_columns;
  auto& parts = block_shared<float[chunks_at_once][sum_columns]>();
  const int lane = static_cast<int>(threadIdx.x) % sum_columns,
            first = static_cast<int>(threadIdx.x) / sum_columns;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * sum_columns + lane;
  float sum = 0;
  if (column < columns)
    for (std::int64_t chunk = first; chunk < chunks; chunk += chunks_at_once)
      sum += partial[chunk * columns + column];
  parts[first][lane] = sum;
  __syncthreads();
  if (first != 0 || column >= columns) return;
  for (int i = 1; i < chunks_at_once; ++i) sum += parts[i][lane];
  sums[column] = sum;
}

inline void add_chunks(const Cuda& backend, const float* partial, std::int64_t chunks,
                       std::int64_t columns, float* sums) {
  backend.launch("sum_chunks", ceil_divide(columns, sum_columns), chunk_threads, sum_chunks<>,
                 partial, chunks, columns, sums);
}

/// Computes `sums` (or nothing) = the column sums of what `rows` gives, always added in the same
/// order. `vectors`: its matrices are read 8 elements at a time.
template <class Rows>
void sum_of_rows(const Cuda& backend, std::string_view name, const Rows& rows, bool vectors,
                 std::int64_t count, std::int64_t columns, float* sums) {
  const std::int64_t chunks = ceil_divide(count, sum_rows);
  auto* partial = sums == nullptr
                      ? nullptr
                      : backend.scratch_for<float>(ScratchSlot::column_sums, chunks * columns);
  const auto launch = [&]<int N>(std::integral_constant<int, N>) {
    const std::int64_t column_blocks = ceil_divide(columns, sum_columns * N);
    backend.launch(name, chunks * column_blocks, dense_threads, add_rows<Rows, N>, rows, partial,
                   static_cast<int>(column_blocks));
  };
  if (vectors)
    launch(std::integral_constant<int, dense_vector>());
  else
    launch(std::integral_constant<int, 1>());
  if (sums != nullptr) add_chunks(backend, partial, chunks, columns, sums);
}

/// Computes `masked` (or nothing, if it is empty) = gradient, 0 if activation is 0 or less
/// (nowhere, where it is empty); `sums` (or nothing) = its column sums.
template <Element G, Element A, Element M>
void mask_and_sum(const Cuda& backend, MatrixView<const G> gradient, MatrixView<const A> activation,
                  MatrixView<M> masked, float* sums) {
  sum_of_rows(backend, "mask_and_sum_rows", MaskedRows<G, A, M>{gradient, activation, masked},
              rows_of<dense_vector>(gradient) && rows_of<dense_vector>(activation) &&
                  rows_of<dense_vector>(masked),
              gradient.rows, gradient.columns, sums);
}

/// Computes a layer of one output backward: gradients of its weights and, unless it is empty, of
/// its inputs.
template <Element T, Element D>
void one_output_backward(const Cuda& backend, MatrixView<const T> inputs,
                         MatrixView<const T> gradient, const T* weights, MatrixView<D> of_inputs,
                         float* of_weights) {
  sum_of_rows(backend, "one_output_backward",
              OneOutputRows<T, D>{inputs, gradient, weights, of_inputs},
              rows_of<dense_vector>(inputs) && rows_of<dense_vector>(of_inputs), inputs.rows,
              inputs.columns, of_weights);
}

/// Stores up to N neighbouring elements of a row, from `column` on, in fewer bits; zeros behind the
/// columns of `from`. `vectors`: they can be read at once.
template <Element T, int N>
__device__ void narrow_part(const MatrixView<const float>& from, const MatrixView<T>& to,
                            std::int64_t row, std::int64_t column, bool vectors) {
  T* const out = to.row(row) + column;
  if (vectors && column + N <= from.columns) {
    const Elements<float, N> values = Elements<float, N>::at(from, row, column);
    Elements<T, N> narrow;
    for (int e = 0; e < N; ++e) narrow.value[e] = from_float<T>(values.value[e]);
    *reinterpret_cast<Elements<T, N>*>(out) = narrow;
  } else {
    for (std::int64_t e = 0; e < N && column + e < to.columns; ++e)
      out[e] = from_float<T>(column + e < from.columns ? from(row, column + e) : 0.0f);
  }
}

/// Converts rows: a thread takes N neighbouring elements of one, which has `parts` such.
template <Element T, int N>
__global__ void __launch_bounds__(dense_threads)
    narrow_rows(const MatrixView<const float> from, const MatrixView<T> to,
                const std::uint32_t parts) {
  const std::uint32_t i = blockIdx.x * dense_threads + threadIdx.x, row = i / parts;
  if (row < from.rows)
    narrow_part<T, N>(from, to, row, static_cast<std::int64_t>(i - row * parts) * N, true);
}

/// Writes a matrix in fewer bits into one whose rows begin at multiples of 16 bytes, and which may
/// have more columns: zeros. Fewer than 2^32 elements.
template <Element T>
void narrow(const Cuda& backend, MatrixView<const float> from, MatrixView<T> to) {
  if (from.contiguous() && to.contiguous() && from.columns == to.columns) {
    from = {from.data, 1, from.rows * from.columns};
    to = {to.data, 1, from.columns};
  }
  require(to.rows * to.columns < std::int64_t{1} << 32,
          "narrow: {} x {} elements; at most 2^32 - 1", to.rows, to.columns);
  MatrixView<const float> first_row = from;
  first_row.columns = first_row.stride = dense_vector;
  const bool vectors = rows_of<dense_vector>(from.rows == 1 ? first_row : from);
  const auto launch = [&]<int N>(std::integral_constant<int, N>) {
    const std::int64_t parts = ceil_divide(to.columns, N);
    backend.launch("narrow_rows", ceil_divide(from.rows * parts, dense_threads), dense_threads,
                   narrow_rows<T, N>, from, to, static_cast<std::uint32_t>(parts));
  };
  if (vectors)
    launch(std::integral_constant<int, dense_vector>());
  else
    launch(std::integral_constant<int, 1>());
}

// cuBLASLt's ReLU turns NaN into 0 (forums.developer.nvidia.com, topic 329783), and a ReLU of our own
// would read and write all that a product has just written. So the input and the parameters of a
// stack of layers are measured, and rows are looked at again only where their numbers may leave the
// range of floats on the way.

inline constexpr int most_blocks = 1024;           ///< of kernels that go over a matrix in turns
inline constexpr int columns_at_once = 1024;       ///< of a row, by one block
inline constexpr float far_from_overflow = 1e37f;  ///< room for what 16 bits and TF32 round

/// Returns the bits of a float without its sign: of NaN they are above infinity's.
template <Element T>
__device__ std::uint32_t magnitude(T x) {
  return __float_as_uint(to_float(x)) & 0x7fffffffu;
}

/// Raises `*most` to the largest magnitude, if it is smaller.
template <Element T>
__global__ void __launch_bounds__(dense_threads)
    measure_magnitude(const MatrixView<const T> matrix, std::uint32_t* most, const int blocks) {
  const std::int64_t parts = ceil_divide(matrix.columns, columns_at_once);
  std::uint32_t found = 0;
  for (std::int64_t i = blockIdx.x; i < matrix.rows * parts; i += blocks) {
    const std::int64_t row = i / parts, begin = (i - row * parts) * columns_at_once;
    const std::int64_t end =
        begin + columns_at_once < matrix.columns ? begin + columns_at_once : matrix.columns;
    for (std::int64_t c = begin + threadIdx.x; c < end; c += dense_threads) {
      const std::uint32_t own = magnitude(matrix(row, c));
      found = own > found ? own : found;
    }
  }
  auto& of_block = block_shared<std::uint32_t>();
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  if (found != 0) atomicMax(&of_block, found);
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(most, of_block);
}

template <Element T>
void measure(const Cuda& backend, MatrixView<const T> matrix, std::uint32_t* most) {
  if (matrix.contiguous()) matrix = {matrix.data, 1, matrix.rows * matrix.columns};
  const std::int64_t jobs = matrix.rows * ceil_divide(matrix.columns, columns_at_once);
  if (jobs == 0) return;
  const int blocks = static_cast<int>(jobs < most_blocks ? jobs : most_blocks);
  backend.launch("measure_magnitude", blocks, dense_threads, measure_magnitude<T>, matrix, most,
                 blocks);
}

/// Writes NaN to `out`, a layer's ReLU of `in` times `weights` transposed, if the product is
/// NaN. `most`: the largest magnitudes of the input of the stack and of its parameters, `layers` of
/// which, of `widest` inputs at most, end here. A block takes a row at a time.
template <Element T, Element Out>
__global__ void __launch_bounds__(dense_threads)
    keep_nan_rows(const MatrixView<const T> in, const MatrixView<const T> weights, const Out* bias,
                  const MatrixView<Out> out, const std::uint32_t* most, const int layers,
                  const float widest, const int blocks) {
  const float parameter = __uint_as_float(most[1]);
  float bound = __uint_as_float(most[0]);
  for (int l = 0; l < layers; ++l) bound = (bound * widest + 1.0f) * parameter;
  if (bound < far_from_overflow) return;
  auto& of_row = block_shared<std::uint32_t>();
  for (std::int64_t row = blockIdx.x; row < out.rows; row += blocks) {
    __syncthreads();
    if (threadIdx.x == 0) of_row = 0;
    __syncthreads();
    for (std::int64_t k = threadIdx.x; k < in.columns; k += dense_threads)
      atomicMax(&of_row, magnitude(in(row, k)));
    __syncthreads();
    if ((__uint_as_float(of_row) * widest + 1.0f) * parameter < far_from_overflow) continue;
    for (std::int64_t c = threadIdx.x; c < out.columns; c += dense_threads) {
      float sum = bias == nullptr ? 0.0f : to_float(bias[c]);
      for (std::int64_t k = 0; k < in.columns; ++k)
        sum = fmaf(to_float(in(row, k)), to_float(weights(c, k)), sum);
      if (sum != sum) out(row, c) = from_float<Out>(sum);
    }
  }
}

template <Element T, Element Out>
void keep_nan(const Cuda& backend, MatrixView<const T> in, MatrixView<const T> weights,
              const std::type_identity_t<Out>* bias, MatrixView<Out> out, const std::uint32_t* most,
              int layers, std::int64_t widest) {
  if (out.rows == 0) return;
  const int blocks = static_cast<int>(out.rows < most_blocks ? out.rows : most_blocks);
  backend.launch("keep_nan_rows", blocks, dense_threads, keep_nan_rows<T, Out>, in, weights, bias,
                 out, most, layers, static_cast<float>(widest), blocks);
}

/// Returns the sum of the values of the block's threads, in a fixed order; for thread 0 alone.
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

/// Computes losses, a thread per sample; they are summed in double, per block. A label outside [0,
/// 1] makes the loss NaN. `shares`: of samples, or null.
template <int = 0>
__global__ void __launch_bounds__(dense_threads)
    binary_cross_entropy(const MatrixView<const float> logits, const float* labels,
                         const double* shares, const MatrixView<float> gradient, const double scale,
                         double* block_losses) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * dense_threads + threadIdx.x;
  double loss = 0;
  if (i < logits.rows) {
    const double x = logits(i, 0), y = labels[i];
    const double share = shares == nullptr ? 1.0 : shares[i], small = exp(-fabs(x));
    loss = y >= 0 && y <= 1 ? (x > 0 ? x : 0) - x * y + log1p(small) : nan("");
    loss = share == 0 ? 0 : loss * share;
    const double slope = (x >= 0 ? 1.0 : small) / (1.0 + small) - y;
    if (gradient.data != nullptr)
      gradient(i, 0) = share == 0 ? 0.0f : static_cast<float>(slope * (share * scale));
  }
  loss = sum_of_block<dense_threads>(loss);
  if (threadIdx.x == 0) block_losses[blockIdx.x] = loss;
}

/// Adds the blocks' losses up, in one block.
template <int = 0>
__global__ void __launch_bounds__(dense_threads)
    add_losses(const double* block_losses, const int blocks, const double scale, double* loss) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += dense_threads)
    sum += block_losses[i];
  sum = sum_of_block<dense_threads>(sum);
  if (threadIdx.x == 0) *loss += sum * scale;
}

/// Applies the optimizer's formula to every element of a whole array of parameters.
template <Optimizer O>
__global__ void __launch_bounds__(dense_threads)
    update_parameters(const typename O::Step given, const op::StepValues<O>* now, float* values,
                      const float* gradients, float* states, const std::int64_t count,
                      const float weight_decay) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * dense_threads + threadIdx.x;
  if (i >= count) return;
  const typename O::Step step = now != nullptr ? now->step : given;
  const typename O::Step::Row row = step.row(nullptr, 0.0f);
  float state[O::element_states > 0 ? O::element_states : 1];
  for (int s = 0; s < O::element_states; ++s) state[s] = states[s * count + i];
  const float weight = values[i];
  values[i] =
      step.element(weight, math::multiply_add(weight_decay, weight, gradients[i]), state, row);
  for (int s = 0; s < O::element_states; ++s) states[s * count + i] = state[s];
}

}}}  // namespace tessera::v0::gpu
