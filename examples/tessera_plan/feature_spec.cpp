// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "feature_spec.hpp"

#include <tessera/core/error.hpp>

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>

namespace plan {
namespace {

using namespace tessera;

struct Line {
  int number = 0;
  std::size_t indent = 0;
  bool item = false;  // of a list
  std::string key{}, value{};
};

std::string_view trimmed(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r"), last = s.find_last_not_of(" \t\r");
  return first == s.npos ? std::string_view{} : s.substr(first, last - first + 1);
}

std::string unquoted(std::string_view s) {
  s = trimmed(s);
  // an anchor says nothing here
  if (!s.empty() && s.front() == '&') s = trimmed(s.substr(std::min(s.find(' '), s.size())));
  if (s.size() >= 2 && (s.front() == '"' || s.front() == '\'') && s.back() == s.front())
    s = s.substr(1, s.size() - 2);
  return std::string(s);
}

std::vector<Line> lines_of(std::string_view text, const std::string& path) {
  std::vector<Line> lines;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view raw = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (const auto comment = raw.find(" #"); comment != raw.npos) raw = raw.substr(0, comment);
    if (trimmed(raw).empty() || trimmed(raw).front() == '#' || trimmed(raw) == "---") continue;
    require<DataError>(raw.find('\t') == raw.npos, "{}:{}: YAML is not indented by tabs", path,
                       number);
    Line line{.number = number, .indent = raw.find_first_not_of(' ')};
    raw = trimmed(raw);
    if (raw.front() == '-' && (raw.size() == 1 || raw[1] == ' ')) {
      line.item = true;
      raw = trimmed(raw.substr(1));
    }
    const auto colon = raw.find(": ");
    if (colon != raw.npos || (!raw.empty() && raw.back() == ':')) {
      const auto at = colon != raw.npos ? colon : raw.size() - 1;
      line.key = unquoted(raw.substr(0, at));
      line.value = unquoted(raw.substr(at + 1));
    } else {
      line.value = unquoted(raw);
      require<DataError>(line.item, "{}:{}: neither 'key: value' nor '- item'", path, number);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

template <class T>
T number(const Line& line, const std::string& path) {
  T value{};
  const auto [end, error] =
      std::from_chars(line.value.data(), line.value.data() + line.value.size(), value);
  require<DataError>(
      error == std::errc() && end == line.value.data() + line.value.size() && value > 0,
      "{}:{}: {} '{}' is not a positive number", path, line.number, line.key, line.value);
  return value;
}

}  // namespace

std::vector<CategoricalFeature> read_feature_spec(std::string_view text, const std::string& path) {
  const std::vector<Line> lines = lines_of(text, path);
  std::vector<std::string> order;
  std::map<std::string, CategoricalFeature> features;
  std::string section, feature, channel;
  std::size_t feature_indent = 0;
  for (const Line& line : lines) {
    if (line.indent == 0 && !line.item) {
      section = line.key;
      feature.clear();
      channel.clear();
    } else if (section == "channel_spec") {
      if (!line.item) channel = line.key;
      if (channel != "categorical" || line.value.empty()) continue;
      if (line.item) {
        order.push_back(line.value);
      } else if (line.value.front() == '[' && line.value.back() == ']') {
        std::string_view rest = std::string_view(line.value).substr(1, line.value.size() - 2);
        while (!trimmed(rest).empty()) {
          const auto comma = std::min(rest.find(','), rest.size());
          order.push_back(unquoted(rest.substr(0, comma)));
          rest.remove_prefix(std::min(comma + 1, rest.size()));
        }
      }
    } else if (section == "feature_spec") {
      if (feature.empty() || line.indent <= feature_indent) {
        feature = line.key;
        feature_indent = line.indent;
        features[feature].name = feature;
      } else if (line.key == "cardinality") {
        if (line.value != "null" && line.value != "~")
          features[feature].cardinality = number<std::int64_t>(line, path);
      } else if (line.key == "hotness") {
        features[feature].hotness = number<double>(line, path);
      } else if (line.key == "alpha") {
        features[feature].skew = number<double>(line, path);
      }
    }
  }
  require<DataError>(!features.empty(), "{}: there is no feature_spec", path);
  require<DataError>(!order.empty(), "{}: channel_spec lists no categorical features", path);
  std::vector<CategoricalFeature> result;
  for (const std::string& name : order) {
    const auto found = features.find(name);
    require<DataError>(found != features.end(),
                       "{}: channel_spec names '{}', which feature_spec lacks", path, name);
    require<DataError>(found->second.cardinality > 0, "{}: feature '{}' has no cardinality", path,
                       name);
    result.push_back(found->second);
  }
  return result;
}

}  // namespace plan
