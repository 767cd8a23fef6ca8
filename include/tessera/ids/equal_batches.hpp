// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/ids/admitted_batch.hpp>
#include <tessera/ids/agreement.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// What ranks know of each other's batches under Options::equal_batches: all give as many samples,
/// of one-hot ids or of bags with the same KeyedJagged::bounds. So if the host cannot read ids,
/// steps ask no rank for sizes, and the host waits for none; messages have room for what the bounds
/// allow. Bags without bounds ask as ever, as do model-parallel input, and sequences and max
/// pooling whose gradients are summed in several blocks of a rank's samples.
class EqualBatches {
 public:
  /// Turns the promise off for the batches that follow, or on again. On all ranks alike.
  void promise(bool on) { promised_ = on; }
  bool promised() const { return promised_; }

  /// Makes an admitted batch one of fixed sizes, if that is possible. Compares
  /// the sizes with the other ranks' where they are not those of the call before, and throws
  /// InvalidArgument on every rank if they differ. Collective; a rank of new sizes while
  /// others do not waits for them in vain. `fixable`: whether steps of the collection can be such.
  template <IdType Id, class Backend, class Comm>
  void fix_sizes(Comm& communicator, const Layout& layout, const RankLayout& routing,
                 const KeyedJagged<Id>& batch, AdmittedBatch<Id, Backend>& admitted, bool fixable) {
    if (communicator.size() > 1) agree(communicator, batch);
    if (Backend::host_readable || !fixable || (!batch.one_hot() && batch.bounds.empty())) return;
    admitted.fix_sizes(layout, routing.ranks());
  }

 private:
  template <IdType Id, class Comm>
  void agree(Comm& communicator, const KeyedJagged<Id>& batch) {
    next_ = {sizeof(Id), batch.batch, batch.one_hot() ? 0 : 1};
    next_.insert(next_.end(), batch.bounds.begin(), batch.bounds.end());
    if (next_ == agreed_) return;
    std::vector<SharedFact> facts{{"size of an id", formatted("{} bytes", sizeof(Id))},
                                  {"number of samples", formatted("{}", batch.batch)},
                                  {"kind of batch", batch.one_hot() ? "one-hot" : "bags"},
                                  {"number of bounds", formatted("{}", batch.bounds.size())}};
    for (std::size_t f = 0; f < batch.bounds.size(); ++f)
      facts.push_back({formatted("bound of feature {}", f), formatted("{}", batch.bounds[f])});
    agreed_.clear();
    require_agreement(communicator, facts,
                      "option equal_batches says that all ranks give batches of the same sizes");
    agreed_ = next_;
  }

  bool promised_ = true;
  std::vector<std::int64_t> agreed_, next_;
};

}  // namespace detail

}}  // namespace tessera::v0
