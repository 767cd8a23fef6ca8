// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/cuda/backend.cuh>

#include <cublasLt.h>

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace gpu {

/// C = A B, or A B + D, for row-major matrices, by cuBLASLt: C [rows, columns] from A [rows, inner]
/// (or its transpose, stored) and B [inner, columns] (likewise). Strides in elements.
struct GemmShape {
  std::int64_t rows = 0, columns = 0, inner = 0;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool a_transposed = false, b_transposed = false;
  bool bias = false;  ///< C += bias[columns] in every row
  bool relu = false;
  bool keep_mask = false;   ///< with relu: writes where it let numbers through
  bool apply_mask = false;  ///< zeros in C where such a mask has none
  /// with a_transposed: bias[rows] becomes the sums of A's stored columns, over `inner`
  bool sum_a = false;
  std::int64_t addend_stride = 0;  ///< of D [rows, columns], which may be C; 0: there is none
};

template <Element T>
  requires(!std::is_same_v<T, Half>)
inline constexpr cudaDataType_t cublas_type = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;

/// Returns the bits of a row of a matrix' mask: one per element, in rows of whole 16 bytes.
constexpr std::int64_t mask_row_bits(std::int64_t columns) { return (columns + 127) / 128 * 128; }

inline void check(cublasStatus_t status, const char* doing) {
  require<Error>(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: {}: status {}", doing,
                 static_cast<int>(status));
}

/// Matrix products on a backend's stream, of floats or BFloat16 (A and B alike; C, D and the bias
/// alike), summed in float. Keeps the algorithm that cuBLASLt chose for every shape, or the fastest
/// of its first `candidates`, which the first product of that shape times outside captures. `tf32`:
/// floats may be rounded to 10 bits of mantissa, on the tensor cores. Used by one thread at a time.
class Gemm {
 public:
  explicit Gemm(const Cuda& backend, bool tf32 = false, int candidates = 1)
      : backend_(backend), tf32_(tf32), candidates_(candidates) {
    require(candidates >= 1 && candidates <= most_candidates,
            "Gemm: {} candidates; 1 to {} algorithms can be timed", candidates, most_candidates);
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "creating a handle");
    handle_.reset(handle);
  }

  /// Returns whether cuBLASLt has an algorithm for what `run` with these arguments would do;
  /// pointers matter as far as they are aligned. It has not every epilogue for every shape.
  template <Element In, Element Out>
  bool offers(const GemmShape& s, const In* a, const In* b, const std::type_identity_t<Out>* bias,
              Out* c, std::byte* mask = nullptr) {
    if (s.rows == 0 || s.columns == 0) return true;
    if (alignment(bias) < 16) bias = nullptr;  // `run` moves it
    return plan_for({cublas_type<In>, cublas_type<Out>}, s, b, a, bias, c, c, mask).offered;
  }

  /// Throws Error if cuBLASLt has no algorithm.
  template <Element In, Element Out>
  void run(const GemmShape& s, const In* a, const In* b, const std::type_identity_t<Out>* bias,
           Out* c, const std::type_identity_t<Out>* addend = nullptr, std::byte* mask = nullptr) {
    if (s.rows == 0 || s.columns == 0) return;
    if (addend == nullptr) addend = c;
    // Epilogues may take the bias in vectors, and no preference tells cuBLASLt how far it is
    // aligned: one that is not, to 16 bytes, is moved behind the workspace, and sums back from
    // there.
    const std::type_identity_t<Out>* const given_bias = bias;
    const std::size_t bias_bytes =
        static_cast<std::size_t>(s.sum_a ? s.rows : s.columns) * sizeof(Out);
    const bool moves_bias = (s.bias || s.sum_a) && alignment(bias) < 16;
    auto* const workspace = static_cast<std::byte*>(backend_.scratch(
        ScratchSlot::products, workspace_bytes + (moves_bias ? bias_bytes : std::size_t{0})));
    if (moves_bias) bias = reinterpret_cast<const Out*>(workspace + workspace_bytes);
    if (moves_bias && s.bias) backend_.copy(workspace + workspace_bytes, given_bias, bias_bytes);
    // Row-major C is column-major C^T = B^T A^T: cuBLASLt's A is our B, its C our D, its D our C.
    Plan& plan = plan_for({cublas_type<In>, cublas_type<Out>}, s, b, a, bias, addend, c, mask);
    require<Error>(plan.offered, "cuBLASLt has no algorithm for a product of [{}, {}] and [{}, {}]",
                   s.rows, s.inner, s.inner, s.columns);
    if (s.bias || s.sum_a)
      check(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                           sizeof(bias)),
            "setting the bias");
    if (s.keep_mask || s.apply_mask)
      check(cublasLtMatmulDescSetAttribute(
                plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &mask, sizeof(mask)),
            "setting the mask");
    const float one = 1.0f, beta = s.addend_stride != 0 ? 1.0f : 0.0f;
    const auto multiply = [&](const cublasLtMatmulAlgo_t& algorithm) {
      check(cublasLtMatmul(handle_.get(), plan.operation, &one, b, plan.a, a, plan.b, &beta, addend,
                           plan.c, c, plan.d, &algorithm, workspace, workspace_bytes,
                           backend_.stream()),
            "a matrix product");
    };
    // What adds to its own addend cannot be done twice.
    if (plan.candidates.size() > 1 && !(beta != 0 && addend == c) && !backend_.recording())
      keep_fastest(plan, multiply);
    multiply(plan.algorithm);
    if (moves_bias && s.sum_a) backend_.copy(const_cast<Out*>(given_bias), bias, bias_bytes);
  }

 private:
  static constexpr int most_candidates = 16;
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };

  struct Candidate {
    cublasLtMatmulAlgo_t
        algorithm;  // has no name of its own: nvcc's front end dies of a vector of it
  };
  /// What cuBLASLt keeps of a shape.
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    std::vector<Candidate> candidates;  ///< to be timed, the best guess first
    bool offered = false;               ///< there is an algorithm

    Plan() = default;
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    ~Plan() {
      for (const cublasLtMatrixLayout_t layout : {a, b, c, d})
        if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
      if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
    }
  };
  struct Types {
    cudaDataType_t in, out;
    friend auto operator<=>(const Types&, const Types&) = default;
  };
  struct Key {
    Types types;
    std::int64_t rows, columns, inner, a_stride, b_stride, c_stride, addend_stride;
    int flags;
    std::uint32_t alignment[5];  ///< of cuBLASLt's a, b, c, d and of the bias
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  /// Returns how far a pointer is aligned, up to 256 bytes: algorithms that load vectors need it.
  static std::uint32_t alignment(const void* p) {
    const auto address = reinterpret_cast<std::uintptr_t>(p) | 256u;
    return std::uint32_t{1} << std::countr_zero(address);
  }

  /// Gives every candidate's product to the stream, the first time to warm up, and waits.
  template <class Multiply>
  void keep_fastest(Plan& plan, const Multiply& multiply) const {
    const TimedEvent begin, end;
    float best = 0;
    for (const auto& [algorithm] : plan.candidates) {
      constexpr int times = 3;
      multiply(algorithm);
      begin.record(backend_.stream());
      for (int i = 0; i < times; ++i) multiply(algorithm);
      end.record(backend_.stream());
      const float milliseconds = begin.until(end);
      if (&algorithm != &plan.candidates.front().algorithm && !(milliseconds < best)) continue;
      best = milliseconds;
      plan.algorithm = algorithm;
    }
    plan.candidates.clear();
  }

  Plan& plan_for(const Types& types, const GemmShape& s, const void* a, const void* b,
                 const void* bias, const void* c, const void* d, const std::byte* mask) {
    const int flags = s.a_transposed | s.b_transposed << 1 | s.bias << 2 | s.relu << 3 |
                      s.keep_mask << 4 | s.apply_mask << 5 | s.sum_a << 6;
    const Key key{types,
                  s.rows,
                  s.columns,
                  s.inner,
                  s.a_stride,
                  s.b_stride,
                  s.c_stride,
                  s.addend_stride,
                  flags,
                  {alignment(a), alignment(b), alignment(c), alignment(d),
                   s.bias || s.sum_a ? alignment(bias) : 256u}};
    std::unique_ptr<Plan>& plan = plans_[key];
    if (!plan) plan = make_plan(s, key, bias, mask);
    return *plan;
  }

  std::unique_ptr<Plan> make_plan(const GemmShape& s, const Key& key, const void* bias,
                                  const std::byte* mask) const {
    auto plan = std::make_unique<Plan>();
    const bool tf32 = tf32_ && key.types.in == CUDA_R_32F;
    check(
        cublasLtMatmulDescCreate(
            &plan->operation, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing a product");
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulDescSetAttribute(plan->operation, attribute, &value, sizeof(value)),
            "describing a product");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(s));
    if (s.bias || s.sum_a) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (s.keep_mask || s.apply_mask) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, mask_row_bits(s.columns));
    }
    const auto layout = [](cublasLtMatrixLayout_t& l, cudaDataType_t type, std::int64_t rows,
                           std::int64_t columns, std::int64_t stride) {
      check(cublasLtMatrixLayoutCreate(&l, type, static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), stride),
            "describing a matrix");
    };
    layout(plan->a, key.types.in, s.b_transposed ? s.inner : s.columns,
           s.b_transposed ? s.columns : s.inner, s.b_stride);
    layout(plan->b, key.types.in, s.a_transposed ? s.rows : s.inner,
           s.a_transposed ? s.inner : s.rows, s.a_stride);
    layout(plan->c, key.types.out, s.columns, s.rows,
           s.addend_stride != 0 ? s.addend_stride : s.c_stride);
    layout(plan->d, key.types.out, s.columns, s.rows, s.c_stride);
    choose(*plan, key);
    return plan;
  }

  static cublasLtEpilogue_t epilogue(const GemmShape& s) {
    if (s.apply_mask) return CUBLASLT_EPILOGUE_DRELU;
    if (s.sum_a) return CUBLASLT_EPILOGUE_BGRADB;
    if (s.keep_mask) return s.bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX;
    if (s.relu) return s.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return s.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }

  void choose(Plan& plan, const Key& key) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "asking for an algorithm");
    const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                          decltype(&cublasLtMatmulPreferenceDestroy)>
        owner(preference, &cublasLtMatmulPreferenceDestroy);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
            "asking for an algorithm");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment[0]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment[1]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment[2]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment[3]);
    cublasLtMatmulHeuristicResult_t found[most_candidates]{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.operation, plan.a, plan.b, plan.c,
                                       plan.d, preference, candidates_, found, &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "asking for an algorithm");
    plan.offered = status == CUBLAS_STATUS_SUCCESS && count > 0;
    plan.algorithm = found[0].algo;
    for (int i = 0; plan.offered && i < count; ++i)
      if (found[i].state == CUBLAS_STATUS_SUCCESS) plan.candidates.push_back({found[i].algo});
  }

  Cuda backend_;
  bool tf32_;
  int candidates_;
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy> handle_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}}}  // namespace tessera::v0::gpu
