// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// As much of cuBLASLt as tessera/dense/gemm.cuh calls: column-major products of floats or bfloat16, added to another matrix, with bias and
// ReLU, a column at a time. It has no algorithms to choose from; alignments that were promised are checked.
#include <tessera/core/element.hpp>

#include <simt/runtime.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_RELU_BIAS = 6,
  CUBLASLT_EPILOGUE_RELU_AUX = 130,
  CUBLASLT_EPILOGUE_RELU_AUX_BIAS = 134,
  CUBLASLT_EPILOGUE_DRELU = 136,
  CUBLASLT_EPILOGUE_BGRADB = 512
};
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_TRANSA,
  CUBLASLT_MATMUL_DESC_TRANSB,
  CUBLASLT_MATMUL_DESC_EPILOGUE,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD
};
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
};
struct cublasLtContext {};
using cublasLtHandle_t = cublasLtContext*;
struct cublasLtMatmulDescOpaque {
  cublasOperation_t transpose[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;           // of D's type
  unsigned char* mask = nullptr;  // a bit per element of D
  std::int64_t mask_stride = 0;   // in bits
};
using cublasLtMatmulDesc_t = cublasLtMatmulDescOpaque*;
struct cublasLtMatrixLayoutOpaque {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t stride;
};
using cublasLtMatrixLayout_t = cublasLtMatrixLayoutOpaque*;
struct cublasLtMatmulPreferenceOpaque {
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};
using cublasLtMatmulPreference_t = cublasLtMatmulPreferenceOpaque*;
struct cublasLtMatmulAlgo_t {
  std::uint32_t alignment[4];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  cublasStatus_t state;
};

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t) {
  *desc = new cublasLtMatmulDescOpaque;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
                                                     std::size_t bytes) {
  void* to = attribute == CUBLASLT_MATMUL_DESC_TRANSA                 ? static_cast<void*>(&desc->transpose[0])
             : attribute == CUBLASLT_MATMUL_DESC_TRANSB               ? static_cast<void*>(&desc->transpose[1])
             : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE             ? static_cast<void*>(&desc->epilogue)
             : attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER         ? static_cast<void*>(&desc->bias)
             : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ? static_cast<void*>(&desc->mask)
                                                                      : static_cast<void*>(&desc->mask_stride);
  if (bytes != (attribute >= CUBLASLT_MATMUL_DESC_BIAS_POINTER ? std::size_t{8} : std::size_t{4})) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                                 std::uint64_t columns, std::int64_t stride) {
  if (stride < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublasLtMatrixLayoutOpaque{type, rows, columns, stride};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                           cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                           std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return bytes == 8 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 4) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, 4);
  return CUBLAS_STATUS_SUCCESS;
}
namespace simt {
/// Products given to a stream so far, and those with a matrix whose columns do not begin at multiples of 16 bytes, which are slow.
inline std::atomic<int> products = 0, unaligned_products = 0;
/// Epilogues of gradients are refused where a width of the result is no multiple of this.
inline int gradient_epilogue_multiple = 1;
}  // namespace simt

inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                                     int wanted, cublasLtMatmulHeuristicResult_t* result, int* count) {
  const auto multiple = static_cast<std::uint64_t>(simt::gradient_epilogue_multiple);
  const bool sums = desc->epilogue == CUBLASLT_EPILOGUE_BGRADB;
  const bool masks = desc->epilogue == CUBLASLT_EPILOGUE_RELU_AUX || desc->epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS ||
                     desc->epilogue == CUBLASLT_EPILOGUE_DRELU;
  if (((sums || masks) && d->rows % multiple != 0) || (sums && d->columns % multiple != 0)) {
    *count = 0;
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *count = std::min(wanted, 3);  // all alike
  for (int i = 0; i < *count; ++i) {
    std::memcpy(result[i].algo.alignment, preference->alignment, sizeof(preference->alignment));
    result[i].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}
namespace simt {
inline float number(const void* data, cudaDataType_t type, std::uint64_t i) {
  return type == CUDA_R_32F ? static_cast<const float*>(data)[i] : tessera::to_float(static_cast<const tessera::BFloat16*>(data)[i]);
}
inline void set_number(void* data, cudaDataType_t type, std::uint64_t i, double x) {
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[i] = static_cast<float>(x);
  else
    static_cast<tessera::BFloat16*>(data)[i] = tessera::from_float<tessera::BFloat16>(static_cast<float>(x));
}

/// The product itself: epilogues, too.
inline void multiply_matrices(const cublasLtMatmulDescOpaque& product, const void* a_data, const cublasLtMatrixLayoutOpaque& a,
                              const void* b_data, const cublasLtMatrixLayoutOpaque& b, float scale, const void* c_data,
                              const cublasLtMatrixLayoutOpaque& c, void* d_data, const cublasLtMatrixLayoutOpaque& d, std::uint64_t inner) {
  const simt::DeviceAccess access;
  const bool at = product.transpose[0] == CUBLAS_OP_T, bt = product.transpose[1] == CUBLAS_OP_T;
  const bool keeps_mask = product.epilogue == CUBLASLT_EPILOGUE_RELU_AUX || product.epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
  const bool applies_mask = product.epilogue == CUBLASLT_EPILOGUE_DRELU;
  const auto element = [](const void* data, const cublasLtMatrixLayoutOpaque& layout, std::uint64_t row, std::uint64_t column) {
    return number(data, layout.type, row + column * static_cast<std::uint64_t>(layout.stride));
  };
  // The factors as [inner, rows] and [inner, columns], so that sums of a column are taken side by side, each in the order of `inner`.
  const auto unpacked = [&](const void* data, const cublasLtMatrixLayoutOpaque& layout, bool by_columns, std::uint64_t count) {
    std::vector<double> values(inner * count);
    double* to = values.data();
    for (std::uint64_t k = 0; k < inner; ++k)
      for (std::uint64_t i = 0; i < count; ++i) *to++ = static_cast<double>(by_columns ? element(data, layout, k, i) : element(data, layout, i, k));
    return values;
  };
  const std::vector<double> of_a = unpacked(a_data, a, at, d.rows), of_b = unpacked(b_data, b, !bt, d.columns);
  std::vector<double> of_column(d.rows);
  double* const sums = of_column.data();
  for (std::uint64_t column = 0; column < d.columns; ++column) {
    std::fill(of_column.begin(), of_column.end(), 0.0);
    for (std::uint64_t k = 0; k < inner; ++k) {
      const double* const from = of_a.data() + k * d.rows;
      const double factor = of_b.data()[k * d.columns + column];
      for (std::uint64_t row = 0; row < d.rows; ++row) sums[row] += from[row] * factor;
    }
    for (std::uint64_t row = 0; row < d.rows; ++row) {
      double sum = sums[row];
      if (scale != 0) sum += static_cast<double>(element(c_data, c, row, column));
      if ((product.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) sum += static_cast<double>(number(product.bias, d.type, row));
      if ((product.epilogue & CUBLASLT_EPILOGUE_RELU) != 0 && !(sum > 0)) sum = 0;  // of NaN, too, as cuBLASLt does
      if (keeps_mask || applies_mask) {
        const std::uint64_t bit = row + column * static_cast<std::uint64_t>(product.mask_stride);
        unsigned char& byte = product.mask[bit / 8];
        const auto one = static_cast<unsigned char>(1u << bit % 8);
        if (keeps_mask) byte = static_cast<unsigned char>(sum > 0 ? byte | one : byte & ~one);
        if (applies_mask && (byte & one) == 0) sum = 0;
      }
      set_number(d_data, d.type, row + column * static_cast<std::uint64_t>(d.stride), sum);
    }
  }
  for (std::uint64_t column = 0; column < d.columns && product.epilogue == CUBLASLT_EPILOGUE_BGRADB; ++column) {
    double sum = 0;
    for (std::uint64_t k = 0; k < inner; ++k) sum += of_b.data()[k * d.columns + column];
    set_number(product.bias, d.type, column, sum);
  }
}
}  // namespace simt

inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a_data,
                                     cublasLtMatrixLayout_t a, const void* b_data, cublasLtMatrixLayout_t b, const void* beta,
                                     const void* c_data, cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d,
                                     const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_bytes,
                                     cudaStream_t stream) {
  const void* pointers[] = {a_data, b_data, c_data, d_data};
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<std::uintptr_t>(pointers[i]) % algorithm->alignment[i] != 0) return CUBLAS_STATUS_INVALID_VALUE;
  // Not promised by a preference: algorithms take vectors of the bias as it suits them.
  if (((desc->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 || desc->epilogue == CUBLASLT_EPILOGUE_BGRADB) &&
      reinterpret_cast<std::uintptr_t>(desc->bias) % 16 != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const float scale = *static_cast<const float*>(beta);
  if (*static_cast<const float*>(alpha) != 1 || (scale != 0 && scale != 1)) return CUBLAS_STATUS_INVALID_VALUE;
  if (a->type != b->type || c->type != d->type) return CUBLAS_STATUS_INVALID_VALUE;
  if (c->rows != d->rows || c->columns != d->columns || (c_data == d_data && c->stride != d->stride)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool at = desc->transpose[0] == CUBLAS_OP_T, bt = desc->transpose[1] == CUBLAS_OP_T;
  const std::uint64_t inner = at ? a->rows : a->columns;
  if ((at ? a->columns : a->rows) != d->rows || (bt ? b->rows : b->columns) != d->columns || (bt ? b->columns : b->rows) != inner)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool keeps_mask = desc->epilogue == CUBLASLT_EPILOGUE_RELU_AUX || desc->epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
  const bool applies_mask = desc->epilogue == CUBLASLT_EPILOGUE_DRELU;
  if ((keeps_mask || applies_mask) &&
      (desc->mask == nullptr || desc->mask_stride % 128 != 0 || desc->mask_stride < static_cast<std::int64_t>(d->rows) ||
       reinterpret_cast<std::uintptr_t>(desc->mask) % 16 != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  ++simt::products;
  const auto off = [](const cublasLtMatrixLayoutOpaque& m) { return m.stride * (m.type == CUDA_R_32F ? 4 : 2) % 16 != 0; };
  simt::unaligned_products += off(*a) || off(*b) || off(*d);
  // What describes the product may change before a captured one is done.
  simt::enqueue(stream, [=, product = *desc, la = *a, lb = *b, lc = *c, ld = *d] {
    simt::DeviceHeap::instance().reserve_workspace(workspace, workspace_bytes);
    simt::multiply_matrices(product, a_data, la, b_data, lb, scale, c_data, lc, d_data, ld, inner);
  });
  return CUBLAS_STATUS_SUCCESS;
}
