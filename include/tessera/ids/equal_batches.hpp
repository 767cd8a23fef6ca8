// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/ids/admitted_batch.hpp>
#include <tessera/ids/agreement.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// What a step of Options::equal_batches has compared with the other ranks' last: all give as many
/// samples, of one-hot ids or of bags with the same KeyedJagged::bounds. So if the host cannot read
/// ids, steps ask no rank for sizes, and the host waits for none; messages have room for what the
/// bounds allow. Bags without bounds ask as ever, as do model-parallel input, and sequences and max
/// pooling whose gradients are summed in several blocks of a rank's samples.
class EqualSizes {
 public:
  /// Makes an admitted batch one of fixed sizes, if that is possible. Compares the sizes with the
  /// other ranks' if they are not those of the step before, and throws InvalidArgument on every
  /// rank if they differ. Collective; a rank of new sizes while others do not waits for them in
  /// vain. `fixable`: whether steps of the collection can be such.
  template <IdType Id, class Backend, class Comm>
  void fix(Comm& communicator, const Layout& layout, const RankLayout& routing,
           const KeyedJagged<Id>& batch, AdmittedBatch<Id, Backend>& admitted, bool fixable) {
    if (communicator.size() > 1 && !agreed(batch)) agree(communicator, batch);
    if (Backend::host_readable || !fixable || (!batch.one_hot() && batch.bounds.empty())) return;
    admitted.fix_sizes(layout, routing.ranks());
  }

 private:
  template <IdType Id>
  bool agreed(const KeyedJagged<Id>& batch) const {
    return agreed_.size() == 2 + batch.bounds.size() && agreed_[0] == batch.batch &&
           agreed_[1] == (batch.one_hot() ? 0 : 1) &&
           std::equal(batch.bounds.begin(), batch.bounds.end(), agreed_.begin() + 2);
  }

  template <IdType Id, class Comm>
  void agree(Comm& communicator, const KeyedJagged<Id>& batch) {
    std::vector<SharedFact> facts{{"size of an id", formatted("{} bytes", sizeof(Id))},
                                  {"number of samples", formatted("{}", batch.batch)},
                                  {"kind of batch", batch.one_hot() ? "one-hot" : "bags"},
                                  {"number of bounds", formatted("{}", batch.bounds.size())}};
    for (std::size_t f = 0; f < batch.bounds.size(); ++f)
      facts.push_back({formatted("bound of feature {}", f), formatted("{}", batch.bounds[f])});
    agreed_.clear();
    require_agreement(communicator, facts,
                      "option equal_batches says that all ranks give batches of the same sizes");
    agreed_ = {batch.batch, batch.one_hot() ? 0 : 1};
    agreed_.insert(agreed_.end(), batch.bounds.begin(), batch.bounds.end());
  }

  std::vector<std::int64_t> agreed_;
};

}  // namespace detail

}}  // namespace tessera::v0
