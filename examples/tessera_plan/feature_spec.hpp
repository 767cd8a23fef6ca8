// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plan {

/// Rows of a table, and ids that a feature may have per sample, of a model in any format.
inline constexpr std::int64_t kMostRows = std::int64_t{1} << 40;
inline constexpr double kMostHotness = 1e5;

struct CategoricalFeature {
  std::string name;
  std::int64_t cardinality = 0;
  double hotness = 1, skew = -1;
};

/// The categorical features of a feature specification as NVIDIA's DeepLearningExamples write it
/// (channel_spec.categorical and feature_spec.NAME.cardinality, optionally hotness and alpha), in
/// the channel's order. Throws tessera::DataError, for a wrong number with the line.
std::vector<CategoricalFeature> read_feature_spec(std::string_view text, const std::string& path);

}  // namespace plan
