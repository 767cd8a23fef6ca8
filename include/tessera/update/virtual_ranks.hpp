// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/op/gradients.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera/tables/buffer.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A global batch in a fixed number of parts, whatever the number of ranks: the sums of the parts'
/// dense gradients and losses are associated as one binary tree, of which every rank holds a
/// branch, so that a model has the same bits on any number of ranks. Each part runs through the
/// dense layers as a batch of its own:
///
///   for (int k = 0; k < parts.count(); ++k) {
///     ... forward and backward of the samples [parts.begin(global, k), parts.begin(global, k + 1))
///     parts.add(parameters.gradients());
///   }
///   parts.all_reduce(communicator, parameters.gradients());
///
/// What tables need besides: with_fixed_sums.
template <class Backend>
class VirtualRanks {
 public:
  /// Throws InvalidArgument unless both numbers are powers of two and each rank has a part.
  VirtualRanks(const Backend& backend, int parts, int rank, int ranks)
      : backend_(backend), parts_(parts), rank_(rank), ranks_(ranks) {
    require(parts >= 1 && std::has_single_bit(static_cast<unsigned>(parts)),
            "VirtualRanks: {} parts; give a power of two, such as 8", parts);
    require(std::has_single_bit(static_cast<unsigned>(ranks)) && ranks <= parts,
            "VirtualRanks: {} parts for {} ranks; the number of ranks must be a power of two, at "
            "most that of the parts",
            parts, ranks);
  }

  /// Returns the number of this rank's parts.
  int count() const { return parts_ / ranks_; }
  /// Returns the first sample of this rank in a global batch.
  std::int64_t first(std::int64_t global_batch) const {
    return even_cut(global_batch, parts_, rank_ * std::int64_t{count()});
  }
  /// Returns the first sample of this rank's k-th part, counted from `first`; of k = count() the
  /// end.
  std::int64_t begin(std::int64_t global_batch, int k) const {
    return even_cut(global_batch, parts_, rank_ * std::int64_t{count()} + k) - first(global_batch);
  }

  /// Adds the values of the next part, in the backend's memory.
  void add(std::span<const float> values) {
    const int level = std::countr_one(static_cast<unsigned>(added_++));
    if (level == 0) return take(values);
    // parts in pairs, pairs in pairs: `values` closes as many as there are ones
    add_to(levels_[0].data(), values.data(), values.size());
    for (int l = 1; l < level; ++l)
      add_to(levels_[0].data(), levels_[static_cast<std::size_t>(l)].data(), values.size());
    if (std::ssize(levels_) <= level) levels_.emplace_back();
    std::swap(levels_[0], levels_[static_cast<std::size_t>(level)]);
  }

  /// Writes the sum of what was added on all ranks, to `values`, which has as many. Throws
  /// InvalidArgument unless all parts of this rank were. Collective: two messages between any two
  /// ranks.
  template <class Comm>
  void all_reduce(Comm& communicator, std::span<float> values) {
    require(added_ == count(), "VirtualRanks: {} of this rank's {} parts were added", added_,
            count());
    added_ = 0;
    const float* const own =
        levels_[static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(count())))].data();
    if (ranks_ == 1) return backend_.copy(values.data(), own, values.size_bytes());
    const auto ranks = static_cast<std::size_t>(ranks_), mine = static_cast<std::size_t>(rank_);
    std::vector<std::size_t> slices(ranks);
    const auto cut = [&](std::size_t r) {
      return even_cut(std::ssize(values), ranks_, static_cast<std::int64_t>(r));
    };
    for (std::size_t r = 0; r < ranks; ++r)
      slices[r] = static_cast<std::size_t>(cut(r + 1) - cut(r));
    const std::size_t slice = slices[mine];
    float* const all = slices_.resize(backend_, ranks * slice).data();
    communicator.all_to_all(std::span<const float>(own, values.size()), slices,
                            std::span<float>(all, ranks * slice),
                            std::vector<std::size_t>(ranks, slice));
    for (std::size_t step = 1; step < ranks; step *= 2)
      for (std::size_t r = 0; r < ranks; r += 2 * step)
        add_to(all + r * slice, all + (r + step) * slice, slice);
    communicator.all_gather(std::span<const float>(all, slice), values, slices);
  }

  /// Returns the sum of one number of each part, such as losses: this rank's `own`, in their order.
  /// The same on all ranks. Collective.
  template <class Comm>
  double sum(Comm& communicator, std::span<const double> own) const {
    require(std::ssize(own) == count(), "VirtualRanks: {} numbers for {} parts", own.size(),
            count());
    std::vector<double> all(static_cast<std::size_t>(parts_));
    communicator.all_gather(own, std::span<double>(all),
                            std::vector<std::size_t>(static_cast<std::size_t>(ranks_), own.size()));
    for (std::size_t step = 1; step < all.size(); step *= 2)
      for (std::size_t i = 0; i < all.size(); i += 2 * step) all[i] += all[i + step];
    return all[0];
  }

 private:
  void take(std::span<const float> values) {
    if (levels_.empty()) levels_.emplace_back();
    float* const to = levels_[0].resize(backend_, values.size()).data();
    backend_.copy(to, values.data(), values.size_bytes());
  }
  void add_to(float* to, const float* values, std::size_t size) {
    if (size != 0) op::run<op::AddValues>(backend_, {to, values, static_cast<std::int64_t>(size)});
  }

  Backend backend_;
  int parts_, rank_, ranks_;
  int added_ = 0;  ///< parts of this rank
  /// of each number of parts 1, 2, 4, ...: the sum of so many, where it waits for as many others
  std::vector<Buffer<float, Backend>> levels_;
  Buffer<float, Backend> slices_;
};

}}}  // namespace tessera::v0::detail
