// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plan {

struct CategoricalFeature {
  std::string name;
  std::int64_t cardinality = 0;
  double hotness = 1, skew = -1;
};

/// The categorical features of a feature specification as NVIDIA's DeepLearningExamples write it
/// (channel_spec.categorical and feature_spec.NAME.cardinality, optionally hotness and alpha), in
/// the channel's order. Reads the YAML that such files are made of: nested mappings, lists of
/// scalars with or without indent, [a, b], comments, anchors. Throws tessera::DataError with the
/// line.
std::vector<CategoricalFeature> read_feature_spec(std::string_view text, const std::string& path);

}  // namespace plan
