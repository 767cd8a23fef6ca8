// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/mask_and_sum.hpp>
#include <tessera/dense/matmul.hpp>
#include <tessera/dense/mlp_ends.hpp>
#include <tessera/dense/mlp_layers.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/host/backend.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// A stack of fully connected layers, y = x W^T + b with W [out, in], ReLU between them; sizes
/// known at run time. Each thread takes its samples through all layers in blocks small enough for
/// its cache, so that a block's activations, their masks and bias gradients are served from there.
/// One object serves one caller at a time.
template <>
class Mlp<Host> : public detail::MlpLayers, public detail::MlpEnds<Mlp<Host>> {
  friend detail::MlpEnds<Mlp>;

 public:
  /// Makes layers of `sizes`: the input's width, then every layer's output width. Samples are
  /// divided over the backend's threads. Throws InvalidArgument unless there are two or more sizes,
  /// all positive.
  Mlp(const Host& backend, std::vector<std::int64_t> sizes, MlpOptions options = {})
      : detail::MlpLayers("Mlp", std::move(sizes), options.bias),
        detail::MlpEnds<Mlp>(backend),
        threads_(backend.threads()),
        options_(options) {
    require(detail::supported(options_.precision),
            "Mlp: oneDNN multiplies no bfloat16 on this processor (it needs AVX-512); use "
            "DensePrecision::float32");
    activations_.resize(static_cast<std::size_t>(layers() - 1));
    for (int i = 0; i < threads_; ++i) workers_.push_back(std::make_unique<Worker>());
  }
  explicit Mlp(std::vector<std::int64_t> sizes, MlpOptions options = {})
      : Mlp(Host(), std::move(sizes), options) {}

  /// Takes the gradients of one layer, weights and biases.
  using Ready = std::function<void(std::span<const float>)>;

  /// Initializes weights Glorot normal, biases normal of variance 1/out, from (seed, layer number,
  /// index). Returns the next layer's number.
  int initialize(std::uint64_t seed, int first_layer = 0) {
    require_bound();
    first_values(values_, seed, first_layer);
    return first_layer + layers();
  }

  /// Says that the bound parameters do not change from here on, until this is called again: forward
  /// and backward pack them once, not at every call.
  void keep_weights(bool keep = true) {
    constant_ = keep;
    packed_ = {};
  }

  /// Computes y [batch, output_size()] from x [batch, input_size()]; both may be columns of wider
  /// matrices. Remembers the views: x and y must not change until backward. Nothing is allocated
  /// unless the batch is larger than, or divided differently from, earlier ones.
  void forward(MatrixView<const float> x, MatrixView<float> y) {
    gave_floats();
    forward_floats(x, y);
  }
  using detail::MlpEnds<Mlp>::forward;

  /// Computes, after forward, from dy, the gradient of its y, the gradients of all parameters
  /// (overwritten) and of x, written to dx unless dx is an empty view. dx may not overlap dy, x or
  /// y. `ready` is called with the gradients of the last layer, then of the one before it, and so
  /// on, each once it is final: with one thread while the layers before it are yet to come.
  void backward(MatrixView<const float> dy, MatrixView<float> dx = {}, const Ready& ready = {}) {
    check_output_gradient(false, dy.rows);
    backward_floats(dy, dx, ready);
  }
  using detail::MlpEnds<Mlp>::backward;

 private:
  bool multiplies_bfloat16() const { return options_.precision == DensePrecision::bfloat16; }

  void forward_floats(MatrixView<const float> x, MatrixView<float> y) {
    start_forward(x, y);
    require_sound("input or output", x, y);
    if (x.rows == 0) return;
    const Division division(x.rows, threads_);
    for (int l = 1; l < layers(); ++l)
      activations_[static_cast<std::size_t>(l - 1)].reserve(
          static_cast<std::size_t>(x.rows * size(l)) * element_bytes());
    for_each_kernels(division,
                     [&](Worker& worker, std::int64_t rows) { prepare_forward(worker, rows); });
    pack(forward_weights_, packed_.forward);
    detail::for_each_worker(division.workers, [&](int w) {
      for (std::int64_t chunk = division.first(w); chunk < division.first(w + 1); ++chunk)
        forward_chunk(*workers_[static_cast<std::size_t>(w)], division.begin(chunk),
                      division.rows(chunk));
    });
  }

  void backward_floats(MatrixView<const float> dy, MatrixView<float> dx, const Ready& ready) {
    check_backward(dy, dx);
    require_sound("a gradient", dy, dx.data == nullptr ? MatrixView<const float>() : dx);
    if (dy.rows == 0) {
      std::fill(gradients_.begin(), gradients_.end(), 0.0f);
      announce_all(ready);
      return;
    }
    const Division division(dy.rows, threads_);
    dx_ = dx;
    for (int w = 1; w < division.workers; ++w)
      workers_[static_cast<std::size_t>(w)]->gradients.resize(
          static_cast<std::size_t>(parameter_count()));
    for_each_kernels(division,
                     [&](Worker& worker, std::int64_t rows) { prepare_backward(worker, rows); });
    pack(backward_weights_, packed_.backward);
    const Ready none;
    detail::for_each_worker(division.workers, [&](int w) {
      Worker& worker = *workers_[static_cast<std::size_t>(w)];
      float* gradients = w == 0 ? gradients_.data() : worker.gradients.data();
      for (int l = 0; l < layers(); ++l)
        std::fill_n(gradients + bias_offset(l), bias_size(l), 0.0f);
      for (std::int64_t chunk = division.first(w); chunk < division.first(w + 1); ++chunk)
        backward_chunk(worker, dy, division.begin(chunk), division.rows(chunk), gradients,
                       chunk == division.first(w),
                       division.workers == 1 && chunk + 1 == division.chunks ? ready : none);
    });
    if (division.workers == 1) return;
    add_gradients(division.workers);
    announce_all(ready);
  }

  static bool avx512() {
    static const bool has = static_cast<unsigned>(dnnl::get_effective_cpu_isa()) >=
                            static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
    return has;
  }
  /// Without AVX-512, oneDNN multiplies 6 rows at once, of blocks that it may halve, and adds the
  /// products of a last 1, 2 or 3 in another order than those of other rows.
  static constexpr std::int64_t kBlock = 12;
  /// Returns the last rows of a chunk that run as a block of their own, filled up with zeros, so
  /// that a sample's output does not depend on the batch that it is in.
  std::int64_t tail_of(std::int64_t rows) const {
    return avx512() || options_.precision != DensePrecision::float32 ? 0 : rows % kBlock;
  }
  /// Returns the samples in a chunk. With AVX-512, oneDNN's products read packed weights and gain
  /// nothing from more; without it they pack both sides again for every product, which 1,024
  /// samples make worth it (8 % of a training step with AVX2).
  static std::int64_t largest_chunk() { return avx512() ? 512 : 1024; }

  /// How a batch is divided: equal chunks (the last may be smaller), a run of them per worker.
  struct Division {
    Division(std::int64_t batch_, int threads) : batch(batch_) {
      const std::int64_t most = std::clamp<std::int64_t>(batch / 16, 1, threads),
                         largest = largest_chunk();
      const std::int64_t per_worker = (batch + most * largest - 1) / (most * largest),
                         multiple = avx512() ? 16 : 4 * kBlock;
      chunk = std::max<std::int64_t>(
          1, ((batch + most * per_worker - 1) / (most * per_worker) + multiple - 1) / multiple *
                 multiple);
      chunks = (batch + chunk - 1) / chunk;
      chunks_per_worker = per_worker;
      workers = static_cast<int>((chunks + per_worker - 1) / per_worker);
    }
    std::int64_t first(int worker) const { return std::min(chunks, worker * chunks_per_worker); }
    std::int64_t begin(std::int64_t i) const { return i * chunk; }
    std::int64_t rows(std::int64_t i) const { return std::min(chunk, batch - i * chunk); }

    std::int64_t batch, chunk = 0, chunks = 0, chunks_per_worker = 0;
    int workers = 0;
  };

  struct BackwardLayer {
    std::optional<detail::MatMul> data;
    detail::MatMul weights_first, weights_add;
  };

  /// The matrix products of one chunk size, all on dense rows: oneDNN's fast kernels take no
  /// others.
  struct Kernels {
    std::int64_t rows = 0;
    bool input_gradient = false;
    std::vector<detail::MatMul> forward;
    std::vector<BackwardLayer> backward;
  };

  /// What one thread works with.
  struct Worker {
    dnnl::stream stream{detail::cpu_engine()};
    std::vector<std::unique_ptr<Kernels>> forward, backward;
    detail::DenseBuffer scratch, input, output;
    std::array<detail::DenseBuffer, 2> block;     ///< of forward_block
    std::array<detail::DenseBuffer, 2> gradient;  ///< of a chunk's activations
    /// of the parameters; worker 0 writes to the bound span
    std::vector<float> gradients;
  };

  std::size_t element_bytes() const { return detail::element_size(options_.precision); }
  bool relu(int layer) const { return layer + 1 < layers() || options_.last_relu; }
  bool copies_input() const {
    return options_.precision != DensePrecision::float32 || !x_.contiguous();
  }

  detail::MatMulShape forward_shape(int l, std::int64_t rows) const {
    const bool last = l + 1 == layers();
    return {.m = rows,
            .n = size(l + 1),
            .k = size(l),
            .a_strides = {size(l), 1},
            .b_strides = {1, size(l)},
            .c_stride = size(l + 1),
            .inputs = options_.precision,
            .output = last ? DensePrecision::float32 : options_.precision,
            .bias = options_.bias,
            .relu = relu(l)};
  }

  detail::MatMulShape data_shape(int l, std::int64_t rows) const {
    return {.m = rows,
            .n = size(l),
            .k = size(l + 1),
            .a_strides = {size(l + 1), 1},
            .b_strides = {size(l), 1},
            .c_stride = size(l),
            .inputs = options_.precision,
            .output = l == 0 ? DensePrecision::float32 : options_.precision};
  }

  /// Returns the number of outputs whose weights' gradients are one product. oneDNN copies the
  /// transposed gradients of one, which then stay in a second-level cache: 4-6 % of a step of
  /// DLRM's small MLPs in float. With 16-bit gradients it costs 2 %, without AVX-512, where each
  /// product packs the activations again, half of a step of large ones.
  std::int64_t weights_panel(int l) const {
    constexpr std::int64_t panel = 128;
    return avx512() && options_.precision == DensePrecision::float32 && size(l + 1) % panel == 0
               ? panel
               : size(l + 1);
  }

  detail::MatMulShape weights_shape(int l, std::int64_t rows, bool accumulate) const {
    return {.m = weights_panel(l),
            .n = size(l),
            .k = rows,
            .a_strides = {1, size(l + 1)},
            .b_strides = {size(l), 1},
            .c_stride = size(l),
            .inputs = options_.precision,
            .accumulate = accumulate};
  }

  /// Builds what is missing, before any thread starts. `prepare(worker, rows)` is called for every
  /// size of chunk that a worker has.
  template <class Prepare>
  void for_each_kernels(const Division& division, const Prepare& prepare) {
    for (int w = 0; w < division.workers; ++w)
      for (std::int64_t chunk = division.first(w); chunk < division.first(w + 1); ++chunk)
        prepare(*workers_[static_cast<std::size_t>(w)], division.rows(chunk));
  }

  static Kernels* find(std::vector<std::unique_ptr<Kernels>>& cache, std::int64_t rows,
                       bool input_gradient) {
    for (auto& kernels : cache) {
      if (kernels->rows == rows && kernels->input_gradient == input_gradient) {
        std::swap(kernels, cache.back());
        return cache.back().get();
      }
    }
    return nullptr;
  }

  /// Returns a new entry; one that was not used last makes room for it.
  static Kernels& insert(std::vector<std::unique_ptr<Kernels>>& cache, std::int64_t rows,
                         bool input_gradient) {
    constexpr std::size_t kEntries = 24;  // a batch needs four at most, a FrozenModel 22
    if (cache.size() == kEntries) cache.erase(cache.begin());
    cache.push_back(std::make_unique<Kernels>());
    cache.back()->rows = rows;
    cache.back()->input_gradient = input_gradient;
    return *cache.back();
  }

  void prepare_forward(Worker& worker, std::int64_t rows) {
    const std::int64_t tail = tail_of(rows);
    if (tail > 0) {
      const std::int64_t widest = *std::max_element(sizes().begin(), sizes().end());
      for (detail::DenseBuffer& buffer : worker.block)
        buffer.reserve(static_cast<std::size_t>(kBlock * widest) * sizeof(float));
      prepare_rows(worker, kBlock);
    }
    if (rows > tail) prepare_rows(worker, rows - tail);
  }

  void prepare_rows(Worker& worker, std::int64_t rows) {
    if (copies_input())
      worker.input.reserve(static_cast<std::size_t>(rows * input_size()) * element_bytes());
    if (!y_.contiguous())
      worker.output.reserve(static_cast<std::size_t>(rows * output_size()) * sizeof(float));
    if (find(worker.forward, rows, false)) return;
    Kernels& kernels = insert(worker.forward, rows, false);
    for (int l = 0; l < layers(); ++l) {
      const detail::MatMulShape shape = forward_shape(l, rows);
      if (forward_weights_.size() == static_cast<std::size_t>(l))
        forward_weights_.emplace_back(shape);
      worker.scratch.reserve(
          kernels.forward.emplace_back(shape, &forward_weights_[static_cast<std::size_t>(l)].desc())
              .scratch_bytes());
    }
  }

  void prepare_backward(Worker& worker, std::int64_t rows) {
    const bool input_gradient = dx_.data != nullptr;
    if (copies_input())
      worker.input.reserve(static_cast<std::size_t>(rows * input_size()) * element_bytes());
    if (input_gradient && !dx_.contiguous())
      worker.output.reserve(static_cast<std::size_t>(rows * input_size()) * sizeof(float));
    if (find(worker.backward, rows, input_gradient)) return;
    Kernels& kernels = insert(worker.backward, rows, input_gradient);
    for (int l = layers() - 1; l >= 0; --l) {
      BackwardLayer layer{std::nullopt, detail::MatMul(weights_shape(l, rows, false)),
                          detail::MatMul(weights_shape(l, rows, true))};
      if (l > 0 || input_gradient) {
        const detail::MatMulShape shape = data_shape(l, rows);
        auto& packed = backward_weights_;
        if (packed.size() == static_cast<std::size_t>(layers() - 1 - l)) packed.emplace_back(shape);
        layer.data.emplace(shape, &packed[static_cast<std::size_t>(layers() - 1 - l)].desc());
        worker.scratch.reserve(layer.data->scratch_bytes());
      }
      worker.scratch.reserve(
          std::max(layer.weights_first.scratch_bytes(), layer.weights_add.scratch_bytes()));
      kernels.backward.push_back(std::move(layer));
    }
    const std::int64_t widest = *std::max_element(sizes().begin() + 1, sizes().end());
    for (auto& buffer : worker.gradient)
      buffer.reserve(static_cast<std::size_t>(rows * widest) * element_bytes());
  }

  /// Packs weights. Forward ones are first layer first, backward ones last layer first (the first
  /// layer's may be missing). `done`: how many of them hold weights that are kept.
  void pack(std::vector<detail::PackedMatrix>& packed, int& done) {
    const bool forward = &packed == &forward_weights_;
    const int count = static_cast<int>(packed.size()), threads = std::min(threads_, count);
    if (done == count) return;
    if (constant_) done = count;
    detail::for_each_worker(threads, [&](int w) {
      for (int i = w; i < count; i += threads)
        packed[static_cast<std::size_t>(i)].pack(
            workers_[static_cast<std::size_t>(w)]->stream,
            values_.data() + offset(forward ? i : layers() - 1 - i));
    });
  }

  std::byte* activation(int layer, std::int64_t row) const {
    return activations_[static_cast<std::size_t>(layer - 1)].data() +
           static_cast<std::size_t>(row * size(layer)) * element_bytes();
  }

  /// Returns the first layer's input as dense rows: x itself, or a copy in the worker's own buffer.
  const void* input(Worker& worker, std::int64_t begin, std::int64_t rows) const {
    if (!copies_input()) return x_.row(begin);
    const auto copy = [&](auto* out) {
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < input_size(); ++j)
          out[i * input_size() + j] =
              from_float<std::remove_pointer_t<decltype(out)>>(x_(begin + i, j));
    };
    options_.precision == DensePrecision::float32
        ? copy(reinterpret_cast<float*>(worker.input.data()))
        : copy(reinterpret_cast<BFloat16*>(worker.input.data()));
    return worker.input.data();
  }

  /// Returns where a product's result goes on its way to rows of `to`: there at once if they are
  /// dense.
  static void* result(Worker& worker, MatrixView<float> to, std::int64_t begin) {
    return to.contiguous() ? static_cast<void*>(to.row(begin)) : worker.output.data();
  }

  static void deliver(const Worker& worker, MatrixView<float> to, std::int64_t begin,
                      std::int64_t rows) {
    if (to.contiguous()) return;
    const float* from = reinterpret_cast<const float*>(worker.output.data());
    for (std::int64_t i = 0; i < rows; ++i)
      std::copy_n(from + i * to.columns, to.columns, to.row(begin + i));
  }

  void forward_chunk(Worker& worker, std::int64_t begin, std::int64_t rows) {
    const std::int64_t tail = tail_of(rows);
    if (rows > tail) forward_rows(worker, begin, rows - tail);
    if (tail > 0) forward_block(worker, begin + rows - tail, tail);
  }

  /// Runs at most kBlock rows, by way of buffers that hold as many.
  void forward_block(Worker& worker, std::int64_t begin, std::int64_t rows) {
    const Kernels& kernels = *find(worker.forward, kBlock, false);
    float* in = reinterpret_cast<float*>(worker.block[0].data());
    float* out = reinterpret_cast<float*>(worker.block[1].data());
    std::fill_n(in, kBlock * input_size(), 0.0f);
    for (std::int64_t i = 0; i < rows; ++i)
      std::copy_n(x_.row(begin + i), input_size(), in + i * input_size());
    for (int l = 0; l < layers(); ++l) {
      const auto i = static_cast<std::size_t>(l);
      kernels.forward[i].run(worker.stream, in, forward_weights_[i].data(),
                             values_.data() + bias_offset(l), out, worker.scratch.data());
      const std::int64_t width = size(l + 1);
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(out + r * width, width,
                    l + 1 == layers() ? y_.row(begin + r)
                                      : reinterpret_cast<float*>(activation(l + 1, begin + r)));
      std::swap(in, out);
    }
  }

  void forward_rows(Worker& worker, std::int64_t begin, std::int64_t rows) {
    const Kernels& kernels = *find(worker.forward, rows, false);
    const void* in = input(worker, begin, rows);
    for (int l = 0; l < layers(); ++l) {
      void* out = l + 1 == layers() ? result(worker, y_, begin) : activation(l + 1, begin);
      const auto i = static_cast<std::size_t>(l);
      kernels.forward[i].run(worker.stream, in, forward_weights_[i].data(),
                             values_.data() + bias_offset(l), out, worker.scratch.data());
      in = out;
    }
    deliver(worker, y_, begin, rows);
  }

  template <Element T>
  void mask_chunk(int l, std::byte* gradient, MatrixView<const float> dy, std::int64_t begin,
                  std::int64_t rows, float* sums) const {
    T* g = reinterpret_cast<T*>(gradient);
    if (l + 1 == layers()) {
      detail::mask_and_sum<float, float, T>(
          dy.row_range(begin, rows),
          options_.last_relu ? y_.row_range(begin, rows) : MatrixView<float>{}, g, sums);
    } else {
      const MatrixView<const T> activations(reinterpret_cast<const T*>(activation(l + 1, begin)),
                                            rows, size(l + 1));
      detail::mask_and_sum<T, T, T>({g, rows, size(l + 1)}, activations, g, sums);
    }
  }

  void backward_chunk(Worker& worker, MatrixView<const float> dy, std::int64_t begin,
                      std::int64_t rows, float* gradients, bool first, const Ready& ready) {
    const Kernels& kernels = *find(worker.backward, rows, dx_.data != nullptr);
    for (int l = layers() - 1; l >= 0; --l) {
      const auto i = static_cast<std::size_t>(layers() - 1 - l);
      const BackwardLayer& layer = kernels.backward[i];
      std::byte* gradient = worker.gradient[static_cast<std::size_t>(l % 2)].data();
      float* sums = options_.bias ? gradients + bias_offset(l) : nullptr;
      options_.precision == DensePrecision::float32
          ? mask_chunk<float>(l, gradient, dy, begin, rows, sums)
          : mask_chunk<BFloat16>(l, gradient, dy, begin, rows, sums);
      const void* in = l == 0 ? input(worker, begin, rows) : activation(l, begin);
      const detail::MatMul& weights = first ? layer.weights_first : layer.weights_add;
      for (std::int64_t output = 0; output < size(l + 1); output += weights_panel(l))
        weights.run(worker.stream, gradient + static_cast<std::size_t>(output) * element_bytes(),
                    in, nullptr, gradients + offset(l) + output * size(l), worker.scratch.data());
      announce(ready, l);
      if (layer.data) {
        void* out = l == 0 ? result(worker, dx_, begin)
                           : worker.gradient[static_cast<std::size_t>((l + 1) % 2)].data();
        layer.data->run(worker.stream, gradient, backward_weights_[i].data(), nullptr, out,
                        worker.scratch.data());
      }
    }
    if (dx_.data) deliver(worker, dx_, begin, rows);
  }

  void announce(const Ready& ready, int l) const {
    if (ready)
      ready(gradients_.subspan(static_cast<std::size_t>(offset(l)),
                               static_cast<std::size_t>(offset(l + 1) - offset(l))));
  }
  void announce_all(const Ready& ready) const {
    for (int l = layers() - 1; l >= 0; --l) announce(ready, l);
  }

  /// Adds the other workers' parameter gradients in the workers' order.
  void add_gradients(int workers) {
    const std::int64_t count = parameter_count();
    if (workers == 1) return;
    detail::for_each_worker(workers, [&](int part) {
      const std::int64_t begin = count * part / workers, end = count * (part + 1) / workers;
      for (int w = 1; w < workers; ++w) {
        const float* __restrict other = workers_[static_cast<std::size_t>(w)]->gradients.data();
        float* __restrict sum = gradients_.data();
        for (std::int64_t i = begin; i < end; ++i) sum[i] += other[i];
      }
    });
  }

  int threads_;
  MlpOptions options_;
  bool constant_ = false;  ///< parameters that were packed stay
  struct {
    int forward = 0, backward = 0;
  } packed_;  ///< where they stay
  MatrixView<float> dx_;
  /// outputs of all layers but the last, whole batch
  std::vector<detail::DenseBuffer> activations_;
  std::vector<detail::PackedMatrix> forward_weights_, backward_weights_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}}  // namespace tessera::v0
