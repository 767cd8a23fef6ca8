// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/update.hpp>

#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace op {

/// Bags, the gradients of their vectors, and where those of their weights go.
template <IdType Id, Element G = float>
struct WeightGradientGroup {
  GradientGroup<Id, G> source;
  float* output = nullptr;  ///< parallel to source.bags.ids
  /// or to the entries of these bags, at most entry_bound of them
  bool from_first_entry = false;
};

/// Gradients of per-id weights: for entry i of bag b of a group, the dot product of the bag's
/// gradient with the entry's row, in float, columns ascending in 16 lanes (lane c % 16 adds column
/// c, one multiply-add each; then lanes are added as a tree: i with i+8, i+4, i+2, i+1). Written to
/// output + position in ids. Must run before the update changes the rows.
template <Element T, IdType Id, int Width, Element G = float>
struct WeightGradients {
  using Group = WeightGradientGroup<Id, G>;
  struct Parameters {
    const T* arena = nullptr;
    int width = Width;
    std::span<const Group> groups{};
  };
};

/// Adds one float per entry at its place in the batch: with e = entries[i] (or first +
/// i where null), values[i] goes to target[positions[e]] (or target[base + e] where null). Jobs run
/// in order; within a job no two entries meet.
struct AddEntryValues {
  struct Job {
    const float* values = nullptr;
    std::int64_t count = 0;
    const std::int64_t* entries = nullptr;
    std::int64_t first = 0;
    /// In the backend's memory, [bags + 1], if given, and with entries null: `first` is offsets[0],
    /// and the last entry is before offsets[bags].
    const std::int64_t* offsets = nullptr;
    std::int64_t bags = 0;
    const std::int64_t* positions = nullptr;
    std::int64_t base = 0;
    float* target = nullptr;

    /// Returns the entry of values[i]; -1 behind the last.
    TESSERA_HOST_DEVICE constexpr std::int64_t entry(std::int64_t i) const {
      if (entries != nullptr) return entries[i];
      if (offsets == nullptr) return first + i;
      return offsets[0] + i < offsets[bags] ? offsets[0] + i : -1;
    }
  };
  struct Parameters {
    std::span<const Job> jobs;
  };
};

/// Multiplies the values of each bag's entries, placed as in AddEntryValues, by the bag's
/// factor.
struct ScaleEntryValues {
  struct Job {
    const std::int64_t* offsets = nullptr;  ///< [bags + 1]
    const float* factors = nullptr;
    std::int64_t bags = 0;
    const std::int64_t* positions = nullptr;
    std::int64_t base = 0;
    float* target = nullptr;
  };
  struct Parameters {
    std::span<const Job> jobs;
  };
};

}}}  // namespace tessera::v0::op
