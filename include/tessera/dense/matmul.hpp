// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/dense/mlp_layers.hpp>

#include <omp.h>
#include <sys/mman.h>
#include <dnnl.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Uninitialized bytes on a cache line's boundary, from 2 MiB on in huge pages. They only ever
/// grow; growing loses what was in them.
class DenseBuffer {
 public:
  void reserve(std::size_t bytes) {
    if (bytes <= size_) return;
    const std::size_t alignment = bytes >= huge_page ? huge_page : 64;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    const Free free{std::align_val_t{alignment}};
    data_ = std::unique_ptr<std::byte, Free>(
        static_cast<std::byte*>(::operator new(rounded, free.alignment)), free);
    size_ = rounded;
    // advice: a refusal costs speed only
    if (alignment == huge_page) madvise(data_.get(), rounded, MADV_HUGEPAGE);
  }
  std::byte* data() const { return data_.get(); }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;

  struct Free {
    std::align_val_t alignment;
    void operator()(std::byte* p) const { ::operator delete(p, alignment); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

inline dnnl::memory::data_type onednn_type(DensePrecision precision) {
  return precision == DensePrecision::float32 ? dnnl::memory::data_type::f32
                                              : dnnl::memory::data_type::bf16;
}

inline std::size_t element_size(DensePrecision precision) {
  return precision == DensePrecision::float32 ? 4 : 2;
}

inline const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// Returns whether oneDNN multiplies matrices of this precision on this processor: bfloat16 needs
/// AVX-512.
inline bool supported(DensePrecision precision) {
  if (precision == DensePrecision::float32) return true;
  static const bool bfloat16 = [] {
    const auto type = onednn_type(DensePrecision::bfloat16);
    const dnnl::memory::desc matrix({16, 16}, type, dnnl::memory::format_tag::ab);
    try {
      const dnnl::matmul::primitive_desc tried(dnnl::matmul::desc(matrix, matrix, matrix),
                                               cpu_engine());
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return bfloat16;
}

inline void check_onednn(dnnl_status_t status, const char* what) {
  require<Error>(status == dnnl_success, "oneDNN: {} failed (status {})", what,
                 static_cast<int>(status));
}

/// While it lives, OpenMP regions begun by the calling thread have one thread: oneDNN plans and
/// runs primitives on that thread alone.
class SingleThreadScope {
 public:
  SingleThreadScope() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~SingleThreadScope() { omp_set_num_threads(before_); }
  SingleThreadScope(const SingleThreadScope&) = delete;
  SingleThreadScope& operator=(const SingleThreadScope&) = delete;

 private:
  int before_;
};

/// Runs for_each_worker of any function, compiled once: `call` passes `f` on.
inline void run_workers(int workers, void (*call)(const void* f, int worker), const void* f) {
  if (workers <= 1) {
    const SingleThreadScope scope;
    call(f, 0);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel for num_threads(workers) schedule(static, 1)
  for (int worker = 0; worker < workers; ++worker) {
    const SingleThreadScope scope;
    try {
      call(f, worker);
    } catch (...) {
#pragma omp critical(tessera_dense_error)
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

/// Calls f(0) .. f(workers - 1), each on a thread of its own, and rethrows the first exception.
/// Each call sees one OpenMP thread.
template <class F>
void for_each_worker(int workers, const F& f) {
  run_workers(
      workers, [](const void* given, int worker) { (*static_cast<const F*>(given))(worker); }, &f);
}

/// One matrix product's shape: C[m, n] = A[m, k] B[k, n], optionally + bias[n], + C, and ReLU of
/// it. Strides in elements.
struct MatMulShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::array<std::int64_t, 2> a_strides{}, b_strides{};
  std::int64_t c_stride = 0;
  DensePrecision inputs = DensePrecision::float32;  ///< A and B
  DensePrecision output = DensePrecision::float32;  ///< C
  bool bias = false, relu = false, accumulate = false;
};

/// Puts zeros in place of what is not positive; NaN stays, which oneDNN's ReLU turns into 0.
template <Element T>
void rectify(T* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = to_float(values[i]) <= 0.0f ? from_float<T>(0.0f) : values[i];
}

/// A oneDNN matmul of a fixed shape that runs on the calling thread. Not shared between threads: it
/// keeps the operands' handles.
class MatMul {
 public:
  /// Takes B as `shape.b_strides` says, or in the layout `packed_b` where given (zero desc with
  /// `any`: oneDNN's choice).
  explicit MatMul(const MatMulShape& shape, const dnnl::memory::desc* packed_b = nullptr)
      : rectified_(shape.relu ? shape.m * shape.n : 0), output_(shape.output) {
    require(!shape.relu || shape.c_stride == shape.n, "MatMul: ReLU needs dense rows");
    using dims = dnnl::memory::dims;
    const auto input = onednn_type(shape.inputs), output = onednn_type(shape.output);
    const dnnl::memory::desc a(dims{shape.m, shape.k}, input,
                               dims{shape.a_strides[0], shape.a_strides[1]});
    const dnnl::memory::desc b =
        packed_b ? *packed_b
                 : dnnl::memory::desc(dims{shape.k, shape.n}, input,
                                      dims{shape.b_strides[0], shape.b_strides[1]});
    const dnnl::memory::desc c(dims{shape.m, shape.n}, output, dims{shape.c_stride, 1});
    const dnnl::memory::desc bias(dims{1, shape.n}, dnnl::memory::data_type::f32, dims{shape.n, 1});
    dnnl::post_ops post;
    if (shape.accumulate) post.append_sum(1.0f);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::desc desc =
        shape.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const SingleThreadScope scope;
    const dnnl::matmul::primitive_desc pd(desc, attributes, cpu_engine());
    primitive_ = dnnl::matmul(pd);
    b_desc_ = pd.weights_desc();
    scratch_bytes_ = pd.scratchpad_desc().get_size();
    const auto handle = [](const dnnl::memory::desc& d) {
      return dnnl::memory(d, cpu_engine(), DNNL_MEMORY_NONE);
    };
    memories_ = {handle(pd.src_desc()), handle(b_desc_), handle(pd.dst_desc()),
                 handle(pd.scratchpad_desc())};
    if (shape.bias) bias_ = handle(bias);
  }

  const dnnl::memory::desc& b_desc() const { return b_desc_; }
  std::size_t scratch_bytes() const { return scratch_bytes_; }

  /// Multiplies. `scratch` holds scratch_bytes() and belongs to the calling thread alone.
  void run(const dnnl::stream& stream, const void* a, const void* b, const float* bias, void* c,
           void* scratch) const {
    const std::array<std::pair<int, void*>, 4> operands{{{DNNL_ARG_SRC, const_cast<void*>(a)},
                                                         {DNNL_ARG_WEIGHTS, const_cast<void*>(b)},
                                                         {DNNL_ARG_DST, c},
                                                         {DNNL_ARG_SCRATCHPAD, scratch}}};
    std::array<dnnl_exec_arg_t, 5> arguments{};
    int count = 0;
    for (; count < 4; ++count) {
      const auto i = static_cast<std::size_t>(count);
      check_onednn(
          dnnl_memory_set_data_handle_v2(memories_[i].get(), operands[i].second, stream.get()),
          "setting an operand");
      arguments[i] = {operands[i].first, memories_[i].get()};
    }
    if (bias_) {
      check_onednn(
          dnnl_memory_set_data_handle_v2(bias_.get(), const_cast<float*>(bias), stream.get()),
          "setting the bias");
      arguments[static_cast<std::size_t>(count++)] = {DNNL_ARG_BIAS, bias_.get()};
    }
    check_onednn(dnnl_primitive_execute(primitive_.get(), stream.get(), count, arguments.data()),
                 "a matrix product");
    output_ == DensePrecision::float32 ? rectify(static_cast<float*>(c), rectified_)
                                       : rectify(static_cast<BFloat16*>(c), rectified_);
  }

 private:
  std::int64_t rectified_;  ///< values that get a ReLU
  DensePrecision output_;
  dnnl::primitive primitive_;
  dnnl::memory::desc b_desc_;
  std::size_t scratch_bytes_ = 0;
  std::array<dnnl::memory, 4> memories_;
  dnnl::memory bias_;
};

/// The B of a matrix product in the layout that oneDNN likes best, packed anew from float whenever
/// its source has changed.
class PackedMatrix {
 public:
  /// Packs B[k, n] of `shape` (its m is only a hint) from floats with the strides
  /// `shape.b_strides`.
  explicit PackedMatrix(const MatMulShape& shape) {
    using dims = dnnl::memory::dims;
    const dnnl::memory::desc any(dims{shape.k, shape.n}, onednn_type(shape.inputs),
                                 dnnl::memory::format_tag::any);
    desc_ = MatMul(shape, &any).b_desc();
    const dnnl::memory::desc plain(dims{shape.k, shape.n}, dnnl::memory::data_type::f32,
                                   dims{shape.b_strides[0], shape.b_strides[1]});
    source_ = dnnl::memory(plain, cpu_engine(), DNNL_MEMORY_NONE);
    packed_ = dnnl::memory(desc_, cpu_engine());
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const SingleThreadScope scope;
    const dnnl::reorder::primitive_desc pd(cpu_engine(), plain, cpu_engine(), desc_, attributes);
    scratch_ = dnnl::memory(pd.scratchpad_desc(), cpu_engine());
    reorder_ = dnnl::reorder(pd);
  }

  const dnnl::memory::desc& desc() const { return desc_; }
  const void* data() const { return packed_.get_data_handle(); }

  void pack(const dnnl::stream& stream, const float* source) const {
    check_onednn(
        dnnl_memory_set_data_handle_v2(source_.get(), const_cast<float*>(source), stream.get()),
        "setting the weights");
    const std::array<dnnl_exec_arg_t, 3> arguments{{{DNNL_ARG_FROM, source_.get()},
                                                    {DNNL_ARG_TO, packed_.get()},
                                                    {DNNL_ARG_SCRATCHPAD, scratch_.get()}}};
    check_onednn(dnnl_primitive_execute(reorder_.get(), stream.get(), 3, arguments.data()),
                 "packing the weights");
  }

 private:
  dnnl::memory::desc desc_;
  dnnl::memory source_, packed_, scratch_;
  dnnl::primitive reorder_;
};

}}}  // namespace tessera::v0::detail
