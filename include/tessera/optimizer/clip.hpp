// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string_view>

namespace tessera { inline namespace v0 {

// How gradients are limited before an optimizer gets them: what LayoutCollection::apply takes.

/// Not at all.
struct KeepGradients {
  static constexpr std::string_view name = "KeepGradients";
};

/// All gradients of tables and dense layers times min(1, max / norm), their Euclidean norm
/// together. As torch.nn.utils.clip_grad_norm_, without its 1e-6. The norm is exact up to one
/// rounding: the same gradients have the same norm under any plan, on any number of ranks. (Those
/// of replicated tables are summed by ranks first, which may change their last bits.)
///
///     embeddings.accumulate(pooled, gradient);
///     const double norm = embeddings.apply(ClipByGlobalNorm{1.0f}, parameters.gradients());
struct ClipByGlobalNorm {
  static constexpr std::string_view name = "ClipByGlobalNorm";
  float max = std::numeric_limits<float>::infinity();
};

/// The gradient of a row, merged over the batch, times min(1, max / norm), its Euclidean norm: rows
/// are clipped each on their own, whole ones also if columns are cut. Dense layers have no rows:
/// their gradients stay. The same bits under any plan, but for replicated tables as above. A gradient
/// whose squares sum to more than a float holds (a norm of 1.8e19) becomes 0.
///
///     embeddings.apply(ClipByRowNorm{0.1f});
struct ClipByRowNorm {
  static constexpr std::string_view name = "ClipByRowNorm";
  float max = std::numeric_limits<float>::infinity();
};

/// Every element is limited to [-max, max].
///
///     embeddings.apply(ClipByValue{0.01f}, parameters.gradients());
struct ClipByValue {
  static constexpr std::string_view name = "ClipByValue";
  float max = std::numeric_limits<float>::infinity();
};

}}  // namespace tessera::v0
