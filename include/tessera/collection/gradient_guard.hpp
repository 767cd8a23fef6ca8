// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/options.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/stage/sequence_view.hpp>
#include <tessera/tables/non_finite_count.hpp>

#include <cstdint>
#include <span>

namespace tessera::inline v0 {

/// Looks for gradients that are NaN or infinite before a step uses them, as the policy says.
template <NonFinite policy, class Backend>
class GradientGuard {
 public:
  explicit GradientGuard(const Backend& backend) : count_(backend) {}

  /// Whether the step may change the tables: the same answer on every rank. Under `reject`
  /// collective, and the host waits.
  template <class Comm>
  bool accept([[maybe_unused]] Comm& communicator, MatrixView<const float> gradient,
              SequenceGradients sequences) {
    count_.add(gradient);
    for (const SequenceGradient& sequence : sequences) count_.add(sequence.values);
    if constexpr (policy == NonFinite::reject) {
      auto found = static_cast<std::int64_t>(counted() - seen_);
      seen_ += static_cast<std::uint64_t>(found);
      if (communicator.size() > 1) communicator.all_reduce(std::span<std::int64_t>(&found, 1));
      rejected_ += found != 0;
      return found == 0;
    }
    return true;
  }

  /// Of this rank, so far. The host waits.
  std::uint64_t counted() const { return count_.read(); }
  /// Steps.
  std::uint64_t rejected() const { return rejected_; }

 private:
  NonFiniteCount<Backend> count_;
  std::uint64_t seen_ = 0;  ///< of them, by earlier steps
  std::uint64_t rejected_ = 0;
};

template <class Backend>
class GradientGuard<NonFinite::use, Backend> {
 public:
  explicit GradientGuard(const Backend&) {}

  template <class Comm>
  bool accept(Comm&, MatrixView<const float>, SequenceGradients) {
    return true;
  }
  std::uint64_t counted() const { return 0; }
  std::uint64_t rejected() const { return 0; }
};

}  // namespace tessera::inline v0
