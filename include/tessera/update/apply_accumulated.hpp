// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/optimizer/clip.hpp>
#include <tessera/update/accumulator.hpp>
#include <tessera/update/training_steps.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace detail {

/// What clipping did.
struct Clipped {
  double norm = std::numeric_limits<double>::quiet_NaN();  ///< of all, before; if it is needed
  std::int64_t looked_at = 0;                              ///< values or rows of this rank
  bool all = false;                                        ///< every value became smaller
};

/// Clips what an Accumulator has, and `dense`; `counter`: null, or in the backend's memory, for how
/// many values or rows became smaller. Throws InvalidArgument on every rank if the norm is not
/// finite.
template <class Accumulated, class Clip>
Clipped clip_accumulated([[maybe_unused]] Accumulated& gradients, const Clip& clip,
                         std::span<float> dense, [[maybe_unused]] std::int64_t* counter) {
  if constexpr (std::is_same_v<Clip, ClipByGlobalNorm>) {
    const double norm = gradients.norm(dense);
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
    return {.norm = norm, .all = norm > clip.max};
  } else if constexpr (std::is_same_v<Clip, ClipByValue>) {
    return {.looked_at =
                gradients.clip(1, clip.max, counter) + gradients.clip(dense, 1, clip.max, counter)};
  } else if constexpr (std::is_same_v<Clip, ClipByRowNorm>) {
    return {.looked_at = gradients.clip_rows(clip.max, counter)};
  } else {
    static_assert(std::is_same_v<Clip, KeepGradients>,
                  "apply: need KeepGradients, ClipByGlobalNorm, ClipByValue or ClipByRowNorm");
    return {};
  }
}

/// Makes one optimizer step with what an Accumulator has; `steps` counts it. `clip`: KeepGradients,
/// ClipByGlobalNorm, ClipByValue or ClipByRowNorm. `dense`: gradients of dense layers in the
/// backend's memory, alike on all ranks; they count in the norm, and are clipped in place. Does
/// nothing if NonFinite::reject refused every batch. Throws InvalidArgument if nothing was
/// accumulated, if `clip` has no positive number or ranks have other rates or another clip: then
/// the gradients wait for another call; and where the norm is not finite: then, as by all that
/// throws later, they are dropped, as merged copies must not be merged again. Collective.
template <class Accumulated, class Kernels, class Clip>
Clipped apply_accumulated(Accumulated& gradients, AnyTrainingSteps& steps, std::uint64_t seed,
                          const Kernels& kernels, const Clip& clip, std::span<float> dense,
                          std::int64_t* counter = nullptr) {
  if constexpr (requires { clip.max; })
    require(clip.max > 0, "apply: clipping to {}; give a positive number", clip.max);
  if (!gradients.gather(steps.rates(), clip)) return {};
  try {
    gradients.merge_copies(kernels);
    const Clipped clipped = clip_accumulated(gradients, clip, dense, counter);
    gradients.apply(steps.next(), kernels, [&] { steps.advance(seed); });
    return clipped;
  } catch (...) {
    gradients.clear();
    throw;
  }
}

}  // namespace detail

}}  // namespace tessera::v0
