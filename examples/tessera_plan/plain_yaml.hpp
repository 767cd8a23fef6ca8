// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "json_text.hpp"

#include <tessera_data/yaml.hpp>

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace plan {

/// Returns whether a file's name says that it is YAML.
inline bool is_yaml(std::string_view path) {
  return path.ends_with(".yaml") || path.ends_with(".yml");
}

/// Whether a YAML text is a feature specification, and not tables as in JSON.
inline bool is_feature_spec(std::string_view text) {
  const auto has_section = [&](std::string_view name) {
    const auto at = text.find(name);
    return at == 0 || (at != text.npos && text[at - 1] == '\n');
  };
  return has_section("feature_spec:") || has_section("channel_spec:");
}

/// A YAML document as JSON: scalars without quotes are numbers, true, false or null if they look so.
/// Throws tessera::DataError with the line.
inline nlohmann::ordered_json plain_yaml(std::string_view text, const std::string& path) {
  using Json = nlohmann::ordered_json;
  using Node = tessera::detail::YamlNode;
  const tessera::detail::YamlDocument document(text, path);
  std::size_t left = 1'000'000;  // aliases repeat what they stand for
  const auto value = [&](const auto& self, const Node& node) -> Json {
    tessera::require<tessera::DataError>(left-- > 0, "{}:{}: more than a million values", path,
                                         node.line);
    if (node.kind == Node::Kind::sequence) {
      Json list = Json::array();
      for (const std::size_t item : node.items) list.push_back(self(self, document[item]));
      return list;
    }
    if (node.kind == Node::Kind::mapping) {
      Json object = Json::object();
      for (const auto& [key, item] : node.pairs) object[key] = self(self, document[item]);
      return object;
    }
    if (node.quoted) return node.text;
    if (node.text.empty() || node.text == "~") return nullptr;
    Json plain = Json::parse(node.text, nullptr, false);
    return plain.is_primitive() && !plain.is_string() && !plain.is_discarded() ? plain
                                                                               : Json(node.text);
  };
  return value(value, document.root());
}

/// A file of constants, in YAML or JSON. Throws tessera::DataError, and what the parser throws.
inline nlohmann::json parse_cluster(const std::string& text, const std::string& path) {
  return is_yaml(path) ? nlohmann::json(plain_yaml(text, path))
                       : parse_json<nlohmann::json>(text, path);
}

}  // namespace plan
