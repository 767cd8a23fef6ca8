// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "feature_spec.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>
#include <tessera_data/yaml.hpp>

#include <fmt/format.h>

namespace plan {
namespace {

using namespace tessera;
using tessera::detail::YamlNode;

/// Reads a member's number. Throws DataError with the line.
template <class T>
T number(const YamlNode& node, std::string_view key, T least, T most, const std::string& path) {
  T value{};
  require<DataError>(
      parse_number(node.text, value) == NumberText::number && value >= least && value <= most,
      "{}:{}: {} '{}' is not a number from {} to {}", path, node.line, key, node.text, least, most);
  return value;
}

}  // namespace

std::vector<CategoricalFeature> read_feature_spec(std::string_view text, const std::string& path) {
  const tessera::detail::YamlDocument yaml(text, path);
  const auto section = [&](const YamlNode& of, std::string_view key) -> const YamlNode& {
    const YamlNode* const found = yaml.find(of, key);
    require<DataError>(found != nullptr, "{}: there is no {}", path, key);
    return *found;
  };
  const YamlNode& features = section(yaml.root(), "feature_spec");
  std::vector<CategoricalFeature> result;
  for (const std::size_t item :
       section(section(yaml.root(), "channel_spec"), "categorical").items) {
    CategoricalFeature& feature = result.emplace_back();
    feature.name = yaml[item].text;
    const YamlNode* const found = yaml.find(features, feature.name);
    require<DataError>(found != nullptr, "{}: channel_spec names '{}', which feature_spec lacks",
                       path, feature.name);
    for (const auto& [key, member] : found->pairs) {
      const YamlNode& node = yaml[member];
      if (key == "cardinality" && !node.text.empty() && node.text != "null" && node.text != "~")
        feature.cardinality = number(node, key, std::int64_t{1}, kMostRows, path);
      else if (key == "hotness")
        feature.hotness = number(node, key, 0.001, kMostHotness, path);
      else if (key == "alpha")
        feature.skew = number(node, key, 0.0, 16.0, path);
    }
    require<DataError>(feature.cardinality > 0, "{}: feature '{}' has no cardinality", path,
                       feature.name);
  }
  require<DataError>(!result.empty(), "{}: channel_spec lists no categorical features", path);
  return result;
}

}  // namespace plan
