// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/options.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/non_finite.hpp>

#include <cstdint>
#include <span>

namespace tessera::inline v0 {

/// Looks for gradients that are NaN or infinite before a step uses them, as the policy says.
template <NonFinite policy>
class GradientGuard {
 public:
  /// Whether the step may change the tables: the same answer on every rank. Collective under `reject`.
  template <class Backend, class Comm>
  bool accept([[maybe_unused]] const Backend& backend, [[maybe_unused]] Comm& communicator,
              [[maybe_unused]] MatrixView<const float> gradient) {
    if constexpr (policy != NonFinite::use) {
      std::int64_t count = 0;
      run<CountNonFinite<float>>(backend, {gradient, &count});
      counted_ += static_cast<std::uint64_t>(count);
      if constexpr (policy == NonFinite::reject) {
        if (communicator.size() > 1) communicator.all_reduce(std::span<std::int64_t>(&count, 1));
        rejected_ += count != 0;
        return count == 0;
      }
    }
    return true;
  }

  /// Of this rank, so far.
  std::uint64_t counted() const { return counted_; }
  /// Steps.
  std::uint64_t rejected() const { return rejected_; }

 private:
  std::uint64_t counted_ = 0;
  std::uint64_t rejected_ = 0;
};

}  // namespace tessera::inline v0
