// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/dense/matmul.hpp>
#include <tessera/sequence/attention_mask.hpp>
#include <tessera/sequence/sigmoid.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Computes C = alpha A B + beta C, row-major, on the calling thread. `a_transposed`: A is stored
/// [k, m]; `b_transposed`: B is stored [n, k]. Strides in elements.
inline void gemm(bool a_transposed, bool b_transposed, std::int64_t m, std::int64_t n,
                 std::int64_t k, float alpha, const float* a, std::int64_t a_stride, const float* b,
                 std::int64_t b_stride, float beta, float* c, std::int64_t c_stride) {
  if (m == 0 || n == 0) return;
  check_onednn(dnnl_sgemm(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', m, n, k, alpha, a,
                          a_stride, b, b_stride, beta, c, c_stride),
               "a matrix product");
}

/// Transposes from [rows, columns] to [columns, rows]: oneDNN multiplies by such twice as fast.
inline void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  constexpr std::int64_t block = 16;
  for (std::int64_t r = 0; r < rows; r += block)
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t i = r; i < std::min(rows, r + block); ++i)
        to[c * rows + i] = from[i * columns + c];
}

/// Pointwise attention of one head of one sequence: S = silu(alpha Q K^T) scale under a mask,
/// O = S V (Zhai et al. 2024, HSTU). Blocked over queries and keys: scratch memory does not depend
/// on the length. Rows of q, k, v have one stride, rows of the output another.
struct HstuAttention {
  static constexpr std::int64_t query_block = 128, key_block = 256;

  std::int64_t attention_dim = 0, hidden_dim = 0;
  float alpha = 1, scale = 1;
  AttentionMask mask;
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  std::int64_t stride = 0;

  /// Returns the floats of scratch memory that forward needs; backward needs as many again.
  static constexpr std::int64_t scratch() { return query_block * key_block; }

  /// Computes o, rows [first, first + query_block) of the sequence.
  void forward(std::int64_t first, float* o, std::int64_t o_stride, float* scores) const {
    const std::int64_t rows = std::min(query_block, mask.length - first);
    for (std::int64_t r = 0; r < rows; ++r)
      std::fill_n(o + (first + r) * o_stride, hidden_dim, 0.0f);
    for_each_key_block(first, rows, [&](std::int64_t key, std::int64_t keys) {
      products(first, rows, key, keys, scores);
      for (std::int64_t r = 0; r < rows; ++r)
        on_visible(first + r, key, keys, scores + r * key_block, nullptr,
                   [&](float* s, float*, std::int64_t count) { silu(s, s, count, scale); });
      gemm(false, false, rows, hidden_dim, keys, 1, scores, key_block, v + key * stride, stride, 1,
           o + first * o_stride, o_stride);
    });
  }

  /// Adds the gradients of q, k and v (rows as theirs) to zeros or to what is there. `scores` and
  /// `slopes`: scratch() floats each.
  void backward(const float* d_o, std::int64_t o_stride, float* dq, float* dk, float* dv,
                float* scores, float* slopes) const {
    for (std::int64_t first = 0; first < mask.length; first += query_block) {
      const std::int64_t rows = std::min(query_block, mask.length - first);
      for_each_key_block(first, rows, [&](std::int64_t key, std::int64_t keys) {
        products(first, rows, key, keys, scores);
        gemm(false, true, rows, keys, hidden_dim, scale, d_o + first * o_stride, o_stride,
             v + key * stride, stride, 0, slopes, key_block);
        for (std::int64_t r = 0; r < rows; ++r)
          on_visible(first + r, key, keys, scores + r * key_block, slopes + r * key_block,
                     [&](float* s, float* g, std::int64_t count) {
                       silu_and_slope(s, g, count, scale, alpha);
                     });
        gemm(true, false, keys, hidden_dim, rows, 1, scores, key_block, d_o + first * o_stride,
             o_stride, 1, dv + key * stride, stride);
        gemm(false, false, rows, attention_dim, keys, 1, slopes, key_block, k + key * stride,
             stride, 1, dq + first * stride, stride);
        gemm(true, false, keys, attention_dim, rows, 1, slopes, key_block, q + first * stride,
             stride, 1, dk + key * stride, stride);
      });
    }
  }

 private:
  /// Calls f(first key, keys) for blocks that any of the queries sees.
  template <class F>
  void for_each_key_block(std::int64_t first, std::int64_t rows, const F& f) const {
    const std::int64_t end = first + rows;  // a position sees nothing behind itself
    const std::int64_t history = mask.length - mask.targets;
    for (std::int64_t key = mask.begin(first) / key_block * key_block; key < end; key += key_block)
      if (key < history || key + key_block > first)  // else targets that only see themselves
        f(key, std::min(key_block, end - key));
  }

  void products(std::int64_t first, std::int64_t rows, std::int64_t key, std::int64_t keys,
                float* scores) const {
    gemm(false, true, rows, keys, attention_dim, alpha, q + first * stride, stride,
         k + key * stride, stride, 0, scores, key_block);
  }

  /// Calls f(part, its part of `other`, count) for the parts of a row of scores that query i sees;
  /// the rest becomes 0, in `other`, too, if there is one.
  template <class F>
  void on_visible(std::int64_t i, std::int64_t key, std::int64_t keys, float* row, float* other,
                  const F& f) const {
    const auto clip = [&](std::int64_t j) { return std::clamp<std::int64_t>(j - key, 0, keys); };
    const std::int64_t self = i - key, begin = clip(mask.begin(i)), end = clip(mask.place(i));
    const bool sees_self = self >= 0 && self < keys;
    // The history of a position that is no target ends just before it.
    const std::int64_t joined = sees_self && self == end ? end + 1 : end;
    const bool alone = sees_self && !(self >= begin && self < joined);
    for (float* const values : {row, other}) {
      if (values == nullptr) continue;
      const float own = alone ? values[self] : 0.0f;
      std::fill(values, values + begin, 0.0f);
      std::fill(values + std::max(begin, joined), values + keys, 0.0f);
      if (alone) values[self] = own;
    }
    const auto part = [&](std::int64_t at, std::int64_t count) {
      f(row + at, other == nullptr ? nullptr : other + at, count);
    };
    if (joined > begin) part(begin, joined - begin);
    if (alone) part(self, 1);
  }
};

}}}  // namespace tessera::v0::detail
