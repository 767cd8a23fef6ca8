// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/optimizer/clip.hpp>
#include <tessera/stage/accumulator.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

namespace tessera::inline v0 {

/// Clips what an Accumulator has, and `dense`. Returns the norm before, where it is asked for; throws
/// InvalidArgument on every rank where that is not finite: then the gradients are dropped.
template <class Accumulated, class Clip>
double clip_accumulated([[maybe_unused]] Accumulated& gradients, const Clip& clip,
                        std::span<float> dense) {
  if constexpr (requires { clip.max; })
    require(clip.max > 0, "apply: clipping to {}; give a positive number", clip.max);
  if constexpr (std::is_same_v<Clip, ClipByGlobalNorm>) {
    const double norm = gradients.norm(dense);
    if (!std::isfinite(norm)) gradients.clear();
    require(
        std::isfinite(norm),
        "apply: the norm of the gradients is {}: some are NaN or infinite; they are dropped, no "
        "table has changed",
        norm);
    if (norm > clip.max) {
      const auto factor = static_cast<float>(clip.max / norm);
      gradients.clip(factor, std::numeric_limits<float>::infinity());
      gradients.clip(dense, factor, std::numeric_limits<float>::infinity());
    }
    return norm;
  } else if constexpr (std::is_same_v<Clip, ClipByValue>) {
    gradients.clip(1, clip.max);
    gradients.clip(dense, 1, clip.max);
  } else {
    static_assert(std::is_same_v<Clip, KeepGradients>,
                  "apply: need KeepGradients, ClipByGlobalNorm or ClipByValue");
  }
  return std::nan("");
}

/// One optimizer step with what an Accumulator has; `steps` counts it. `clip`: KeepGradients,
/// ClipByGlobalNorm or ClipByValue. `dense`: gradients of dense layers in the backend's memory, alike
/// on all ranks; they count in the norm, and are clipped in place. Returns the norm of all gradients
/// before clipping; NaN but under ClipByGlobalNorm. Does nothing where RejectNonFiniteGradients
/// refused every batch. Throws InvalidArgument where nothing was
/// accumulated, or where the norm is not finite. Collective.
template <class Accumulated, class Trained, class Steps, class Clip>
double apply_accumulated(Accumulated& gradients, const Trained& training, Steps& steps,
                         std::uint64_t seed, const Clip& clip, std::span<float> dense) {
  if (!gradients.finish(steps.rates())) return std::nan("");
  const double norm = clip_accumulated(gradients, clip, dense);
  gradients.apply(steps.next(training), [&](auto& now) { steps.advance(training, seed, now); });
  return norm;
}

}  // namespace tessera::inline v0
