// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace op {

/// A run of bags that read one shard of an arena: one feature, the samples of one rank. Ids are
/// checked before they come here: they are rows of the shard, or negative where AdmitIds took a bad
/// one out. Only backends whose memory the host cannot read see such; there a negative id adds
/// nothing, gets no gradient, and the gradient of its weight is 0.
/// Bag b holds ids[offsets[b] .. offsets[b+1]), or ids[b] alone if offsets is null (one-hot).
/// The arena row of an id is id + row_bias. The coefficient of an entry is weights[i] where there
/// are weights, else bag_scale[b] if there is one (mean), else 1.
template <IdType Id>
struct Bags {
  const Id* ids = nullptr;
  /// bags + 1, not necessarily from 0: they index ids and weights; or null
  const std::int64_t* offsets = nullptr;
  const float* weights = nullptr;    ///< parallel to ids, or null
  const float* bag_scale = nullptr;  ///< one per bag, or null; never together with weights
  std::int64_t bags = 0;
  std::int64_t row_bias = 0;
  /// at least as many as there are entries, for hosts that cannot read offsets
  std::int64_t entry_bound = 0;
  /// offsets[0] (0: one-hot), for the same; only where entry_bound is exact
  std::int64_t first_entry = 0;

  /// In place of first_entry: entry_bound is that of a whole batch, and these bags are one of its
  /// parts, which come in their order.
  static constexpr std::int64_t part_of_batch = -1;

  TESSERA_HOST_DEVICE constexpr std::int64_t begin(std::int64_t bag) const {
    return offsets == nullptr ? bag : offsets[bag];
  }
  TESSERA_HOST_DEVICE constexpr std::int64_t end(std::int64_t bag) const {
    return offsets == nullptr ? bag + 1 : offsets[bag + 1];
  }
  TESSERA_HOST_DEVICE constexpr bool of_batch() const { return first_entry == part_of_batch; }
  TESSERA_HOST_DEVICE constexpr std::int64_t entries() const { return end(bags - 1) - begin(0); }
  TESSERA_HOST_DEVICE constexpr float coefficient(std::int64_t bag, std::int64_t i) const {
    return weights != nullptr ? weights[i] : bag_scale != nullptr ? bag_scale[bag] : 1.0f;
  }
};

}}}  // namespace tessera::v0::op
