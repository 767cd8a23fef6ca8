// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <cstdint>
#include <span>
#include <type_traits>

namespace tessera { inline namespace v0 {

/// Types of ids: row numbers of a table, before any check.
template <class T>
concept IdType = std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int64_t>;

/// A batch of bags of ids for several features: `features x batch` bags, feature by feature
/// (TorchRec's KeyedJaggedTensor). Bag (f, s) holds `ids[offsets[f*batch + s] .. offsets[f*batch +
/// s + 1])`. Without offsets every bag holds exactly one id: `ids[f*batch + s]` (one-hot).
/// `weights`, if any, are parallel to ids. A view: the caller keeps the memory alive.
///
///     // 2 features, 2 samples: bags {7, 9}, {} of the first, {9}, {3, 4} of the second
///     const std::vector<std::int32_t> ids{7, 9, 9, 3, 4};
///     const std::vector<std::int64_t> offsets{0, 2, 2, 3, 5};
///     const KeyedJagged<std::int32_t> batch{2, 2, ids, offsets, {}};
template <IdType Id>
struct KeyedJagged {
  std::int64_t features = 0;
  std::int64_t batch = 0;
  std::span<const Id> ids;
  /// features*batch + 1 of them, the first 0, never decreasing; empty: one-hot
  std::span<const std::int64_t> offsets;
  std::span<const float> weights;  ///< as many as ids, or none
  /// Where ids and offsets are in device memory: at most so many ids per feature, in host memory;
  /// or empty. `ids` and `weights` may then have room for more than the offsets tell of, so that a
  /// step captured in a CUDA graph takes batches of any size up to it. See DeviceAdmission.
  std::span<const std::int64_t> bounds = {};

  constexpr bool one_hot() const { return offsets.empty(); }
  constexpr std::int64_t begin(std::int64_t feature) const {
    return one_hot() ? feature * batch : offsets[feature * batch];
  }
  constexpr std::int64_t end(std::int64_t feature) const { return begin(feature + 1); }
  constexpr std::int64_t bag_begin(std::int64_t feature, std::int64_t sample) const {
    const std::int64_t bag = feature * batch + sample;
    return one_hot() ? bag : offsets[bag];
  }
  constexpr std::int64_t bag_end(std::int64_t feature, std::int64_t sample) const {
    return bag_begin(feature, sample + 1);
  }

  /// Checks sizes alone. Throws InvalidArgument that names the first fault.
  void validate_sizes() const {
    require(features >= 0 && batch >= 0,
            "KeyedJagged: features ({}) and batch ({}) must not be negative", features, batch);
    std::int64_t bags = 0;
    require(
        !__builtin_mul_overflow(features, batch, &bags) && !__builtin_add_overflow(bags, 1, &bags),
        "KeyedJagged: {} features x {} samples are too many bags", features, batch);
    const std::int64_t count = static_cast<std::int64_t>(ids.size());
    require(count == 0 || (features != 0 && batch != 0),
            "KeyedJagged: {} ids for {} features x {} samples; set the members features and batch, "
            "or what they are taken from",
            count, features, batch);
    if (one_hot()) {
      require(count == features * batch,
              "KeyedJagged: one-hot batch of {} features x {} samples needs {} ids, got {}",
              features, batch, features * batch, count);
    } else {
      require(static_cast<std::int64_t>(offsets.size()) == features * batch + 1,
              "KeyedJagged: {} features x {} samples need {} offsets, got {}", features, batch,
              features * batch + 1, offsets.size());
    }
    require(weights.empty() || weights.size() == ids.size(),
            "KeyedJagged: {} weights for {} ids; give one per id or none", weights.size(),
            ids.size());
    require(bounds.empty() || static_cast<std::int64_t>(bounds.size()) == features,
            "KeyedJagged: {} bounds for {} features", bounds.size(), features);
    for (const std::int64_t bound : bounds)
      require(bound >= 0, "KeyedJagged: bounds must not be negative, one is {}", bound);
  }

  /// Checks sizes and offsets, O(features*batch). Throws InvalidArgument that names the first
  /// fault.
  void validate() const {
    validate_sizes();
    const std::int64_t count = static_cast<std::int64_t>(ids.size());
    if (!one_hot()) {
      require(offsets.front() == 0, "KeyedJagged: the first offset must be 0, is {}",
              offsets.front());
      for (std::int64_t i = 0; i < features * batch; ++i)
        if (offsets[i + 1] < offsets[i])
          throw InvalidArgument(detail::formatted(
              "KeyedJagged: offsets go backwards at feature {}, sample {}: {} after {}", i / batch,
              i % batch, offsets[i + 1], offsets[i]));
      require(offsets.back() == count, "KeyedJagged: the last offset is {} but there are {} ids",
              offsets.back(), count);
    }
  }
};

}}  // namespace tessera::v0
