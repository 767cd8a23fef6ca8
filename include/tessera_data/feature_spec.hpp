// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/regular_file.hpp>
#include <tessera/io/text.hpp>
#include <tessera_data/yaml.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Element types of a dataset's files, little-endian.
enum class DatasetType : std::uint8_t { int8, int16, int32, int64, float16, float32, boolean };

namespace detail {

/// As NumPy and the feature specification write them.
inline constexpr std::array<std::string_view, 7> kDatasetTypes{
    "int8", "int16", "int32", "int64", "float16", "float32", "bool"};

constexpr int size_of(DatasetType type) {
  return std::array<int, 7>{1, 2, 4, 8, 2, 4, 1}[static_cast<std::size_t>(type)];
}

constexpr bool is_integer(DatasetType type) { return type <= DatasetType::int64; }

/// Returns the most rows that ids of an integer type can number.
constexpr std::int64_t rows_of(DatasetType type) {
  return type == DatasetType::int64 ? std::numeric_limits<std::int64_t>::max()
                                    : std::int64_t{1} << (8 * size_of(type) - 1);
}

/// Returns the type in which NVIDIA's tools write the ids of a feature: the first whose largest
/// value is above the cardinality.
constexpr DatasetType id_type_of(std::int64_t cardinality) {
  for (const DatasetType type : {DatasetType::int8, DatasetType::int16, DatasetType::int32})
    if (cardinality < rows_of(type) - 1) return type;
  return DatasetType::int64;
}

static_assert(id_type_of(126) == DatasetType::int8 && id_type_of(127) == DatasetType::int16 &&
              id_type_of(32767) == DatasetType::int32);

constexpr std::string_view name_of(DatasetType type) {
  return detail::kDatasetTypes[static_cast<std::size_t>(type)];
}

}  // namespace detail

/// Ids that a feature may have per sample.
inline constexpr std::int64_t kMostHotness = 1 << 20;

/// A feature of a dataset: its type, its ids and how many a sample has.
struct DatasetFeature {
  DatasetType type = DatasetType::float32;
  std::int64_t cardinality = 0;  ///< ids are in [0, cardinality); 0: not given
  std::int64_t hotness = 1;      ///< ids per sample, side by side
  /// Samples may have fewer ids: the rest of their `hotness` places holds -1 (key `padding: -1`).
  /// An addition to the specification, which NVIDIA's readers do not know.
  bool padded = false;
};

/// Files that hold some features of one part of the data.
struct DatasetChunk {
  std::string type;  ///< "split_binary" and others
  std::vector<std::string> features;
  std::vector<std::string> files;  ///< inside the specification's folder, relative to it
};

/// What a feature specification says: the file feature_spec.yaml of NVIDIA's DeepLearningExamples,
/// which describes the features, which of them are categorical, numerical or the label, and which
/// files hold them for each part of the data.
///
///     const DatasetSpec spec = read_feature_spec("folder");
///     const BinaryDataset train("folder", spec, "train");
struct DatasetSpec {
  std::string name;  ///< of the file, for messages
  std::map<std::string, DatasetFeature, std::less<>> features;
  std::map<std::string, std::vector<std::string>, std::less<>>
      channels;  ///< "categorical", "numerical", "label"; features in order
  std::map<std::string, std::vector<DatasetChunk>, std::less<>> sources;  ///< "train", "test"

  /// Throws DataError if there is none of that name.
  const DatasetFeature& feature(std::string_view feature) const {
    return at(features, "feature", feature);
  }
  const std::vector<std::string>& channel(std::string_view channel) const {
    return at(channels, "channel", channel);
  }
  const std::vector<DatasetChunk>& source(std::string_view source) const {
    return at(sources, "source", source);
  }

 private:
  template <class Map>
  const typename Map::mapped_type& at(const Map& map, std::string_view kind,
                                      std::string_view key) const {
    const auto found = map.find(key);
    require<DataError>(found != map.end(), "file '{}': there is no {} '{}'", name, kind, key);
    return found->second;
  }
};

namespace detail {

class FeatureSpecParser {
 public:
  FeatureSpecParser(std::string_view text, std::string name) : yaml_(text, std::move(name)) {
    spec_.name = yaml_.name();
  }

  DatasetSpec parse() {
    const YamlNode& root = mapping(yaml_.root(), "the file");
    for (const auto& [name, node] : mapping(member(root, "feature_spec"), "feature_spec").pairs)
      spec_.features[name] = feature(name, node);
    for (const auto& [name, node] : mapping(member(root, "channel_spec"), "channel_spec").pairs) {
      std::vector<std::string>& features = spec_.channels[name] =
          texts(yaml_[node], "channel '" + name + "'");
      check_features(features, yaml_[node]);
      if (name == "categorical")
        for (const std::string& f : features)
          if (const DatasetFeature& feature = spec_.feature(f);
              feature.cardinality == 0 || !is_integer(feature.type))
            fail(yaml_[node], "categorical feature '{}' needs an integer dtype and a cardinality",
                 f);
    }
    const YamlNode& sources = mapping(member(root, "source_spec"), "source_spec");
    if (sources.pairs.size() > kMaxSources) fail(sources, "more than {} sources", kMaxSources);
    for (const auto& [name, node] : sources.pairs) {
      std::set<std::string, std::less<>> seen;
      std::vector<DatasetChunk>& chunks = spec_.sources[name];
      for (const std::size_t item : sequence(yaml_[node], "source '" + name + "'").items) {
        const YamlNode& chunk = mapping(yaml_[item], "a chunk of source '" + name + "'");
        chunks.push_back({scalar(member(chunk, "type"), "type"),
                          texts(member(chunk, "features"), "features"),
                          texts(member(chunk, "files"), "files")});
        check_features(chunks.back().features, chunk);
        for (const std::string& file : chunks.back().files)
          if (!stays_inside(file))
            fail(chunk, "files must be paths inside the specification's folder, without '..': '{}'",
                 file);
        for (const std::string& f : chunks.back().features)
          if (!seen.insert(f).second)
            fail(chunk, "feature '{}' is in two chunks of source '{}'", f, name);
      }
    }
    return std::move(spec_);
  }

 private:
  static constexpr std::size_t kMaxSources = 64;
  template <class... Args>
  [[noreturn]] void fail(const YamlNode& node, detail::FormatText<Args...> text,
                         const Args&... args) const {
    throw DataError(formatted("file '{}', line {}: {}", spec_.name,
                              std::max<std::int64_t>(node.line, 1),
                              printable(formatted<Args...>(text, args...), 1000)));
  }

  const YamlNode& of_kind(const YamlNode& node, YamlNode::Kind kind, std::string_view what,
                          std::string_view must) const {
    if (node.kind != kind) fail(node, "{} must be {}", what, must);
    return node;
  }
  const YamlNode& mapping(const YamlNode& node, std::string_view what) const {
    return of_kind(node, YamlNode::Kind::mapping, what, "a mapping");
  }
  const YamlNode& sequence(const YamlNode& node, std::string_view what) const {
    return of_kind(node, YamlNode::Kind::sequence, what, "a list");
  }
  const std::string& scalar(const YamlNode& node, std::string_view what) const {
    return of_kind(node, YamlNode::Kind::scalar, what, "a single value").text;
  }
  const YamlNode& member(const YamlNode& node, std::string_view key) const {
    const YamlNode* found = yaml_.find(node, key);
    if (found == nullptr) fail(node, "the key '{}' is missing", key);
    return *found;
  }
  std::vector<std::string> texts(const YamlNode& node, std::string_view what) const {
    std::vector<std::string> found;
    for (const std::size_t item : sequence(node, what).items)
      found.push_back(scalar(yaml_[item], what));
    return found;
  }

  DatasetFeature feature(const std::string& name, std::size_t index) const {
    const YamlNode& node = mapping(yaml_[index], "feature '" + name + "'");
    DatasetFeature feature;
    const std::string& type = scalar(member(node, "dtype"), "dtype");
    const auto found = std::find(kDatasetTypes.begin(), kDatasetTypes.end(), type);
    if (found == kDatasetTypes.end())
      fail(node,
           "feature '{}': dtype '{}' is none of int8, int16, int32, int64, float16, float32, bool",
           name, type);
    feature.type = static_cast<DatasetType>(found - kDatasetTypes.begin());
    if (const YamlNode* given = yaml_.find(node, "cardinality")) {
      feature.cardinality = number(*given, name, "cardinality");
      const std::int64_t most = is_integer(feature.type) ? rows_of(feature.type)
                                                         : std::numeric_limits<std::int64_t>::max();
      if (feature.cardinality < 1 || feature.cardinality > most)
        fail(*given, "feature '{}': cardinality {} is not in 1 .. {}, what {} can number", name,
             feature.cardinality, most, type);
    }
    if (const YamlNode* given = yaml_.find(node, "hotness")) {
      feature.hotness = number(*given, name, "hotness");
      if (feature.hotness < 1 || feature.hotness > kMostHotness)
        fail(*given, "feature '{}': hotness {} is not in 1 .. {}", name, feature.hotness,
             kMostHotness);
      if (feature.hotness != 1 && !is_integer(feature.type))
        fail(*given, "feature '{}': hotness {} is for features of ids; dtype {} has one value",
             name, feature.hotness, type);
    }
    if (const YamlNode* given = yaml_.find(node, "padding")) {
      if (scalar(*given, "padding") != "-1" || !is_integer(feature.type))
        fail(*given, "feature '{}': padding must be -1, of a feature of ids", name);
      feature.padded = true;
    }
    return feature;
  }

  std::int64_t number(const YamlNode& node, const std::string& feature,
                      std::string_view key) const {
    const std::string& text = scalar(node, key);
    std::int64_t value = 0;
    bool good = !text.empty() && !node.quoted;
    for (const char c : text)
      good = good && c >= '0' && c <= '9' && !__builtin_mul_overflow(value, 10, &value) &&
             !__builtin_add_overflow(value, c - '0', &value);
    if (!good)
      fail(node, "feature '{}': {} '{}' is not a whole number of 64 bits", feature, key, text);
    return value;
  }

  void check_features(const std::vector<std::string>& features, const YamlNode& node) const {
    std::set<std::string_view> seen;
    for (const std::string& f : features) {
      if (!spec_.features.contains(f)) fail(node, "feature '{}' is not in feature_spec", f);
      if (!seen.insert(f).second) fail(node, "feature '{}' is listed twice", f);
    }
  }

  /// Returns whether a file stays inside the folder. Specifications may come from strangers:
  /// nothing outside their folder is opened.
  static bool stays_inside(const std::filesystem::path& file) {
    return !file.empty() && file.is_relative() && file.native().find('\0') == std::string::npos &&
           std::find(file.begin(), file.end(), "..") == file.end();
  }

  YamlDocument yaml_;
  DatasetSpec spec_;
};

/// Returns a scalar that every YAML reader takes for this text.
inline std::string yaml_text(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '/' || c == '-';
  };
  // Words without one of these characters might be numbers or yes, no, null.
  const bool marked =
      text.find('_') != std::string_view::npos || text.find(".bin") != std::string_view::npos;
  const bool letter =
      !text.empty() && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
  if (letter && marked && std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += formatted("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + '"';
}

}  // namespace detail

/// Checks as it reads: every fault is a DataError that names the file and the line. `name` is
/// the file's.
inline DatasetSpec parse_feature_spec(std::string_view text, std::string name) {
  return detail::FeatureSpecParser(text, std::move(name)).parse();
}

/// Reads a feature specification, or the file feature_spec.yaml of a folder.
inline DatasetSpec read_feature_spec(std::filesystem::path path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    require<DataError>(std::filesystem::exists(path / "feature_spec.yaml", ignored),
                       "folder '{}' has no feature_spec.yaml", path.string());
    path /= "feature_spec.yaml";
  }
  const detail::RegularFile file(path);
  return parse_feature_spec(file.text(), file.name());
}

/// Returns the text of a specification. Reading it gives the same again.
inline std::string format_feature_spec(const DatasetSpec& spec) {
  std::string out = "channel_spec:";
  const auto append = [&out](std::string_view text, auto&&... args) {
    out += detail::make_text(text, {args...});
  };
  const auto list = [&](const std::vector<std::string>& texts, std::string_view indent) {
    if (texts.empty()) out += " []";
    for (const std::string& text : texts) append("\n{}- {}", indent, detail::yaml_text(text));
  };
  if (spec.channels.empty()) out += " {}";
  for (const auto& [name, features] : spec.channels) {
    append("\n  {}:", detail::yaml_text(name));
    list(features, "  ");
  }
  out += "\nfeature_spec:";
  if (spec.features.empty()) out += " {}";
  for (const auto& [name, feature] : spec.features) {
    append("\n  {}:", detail::yaml_text(name));
    if (feature.cardinality != 0) append("\n    cardinality: {}", feature.cardinality);
    append("\n    dtype: {}", detail::name_of(feature.type));
    if (feature.hotness != 1) append("\n    hotness: {}", feature.hotness);
    if (feature.padded) out += "\n    padding: -1";
  }
  out += "\nmetadata: {}\nsource_spec:";
  if (spec.sources.empty()) out += " {}";
  for (const auto& [name, chunks] : spec.sources) {
    append("\n  {}:", detail::yaml_text(name));
    if (chunks.empty()) out += " []";
    for (const DatasetChunk& chunk : chunks) {
      out += "\n  - features:";
      list(chunk.features, "    ");
      out += "\n    files:";
      list(chunk.files, "    ");
      append("\n    type: {}", detail::yaml_text(chunk.type));
    }
  }
  return out + '\n';
}

/// Returns the specification that NVIDIA's tools write by default: features cat_0.bin .., num_0 ..,
/// label; files train/cat_0.bin .., train/numerical.bin, train/label.bin, and the same for test.
/// `hotness` empty: 1 each. `padded` empty: none is.
inline DatasetSpec make_feature_spec(int numerical, std::span<const std::int64_t> cardinalities,
                                     std::span<const std::int64_t> hotness = {},
                                     const std::vector<bool>& padded = {}) {
  DatasetSpec spec;
  std::vector<std::string>& label = spec.channels["label"] = {"label"};
  std::vector<std::string>& numbers = spec.channels["numerical"];
  std::vector<std::string>& categories = spec.channels["categorical"];
  spec.features["label"] = {DatasetType::boolean};
  for (int i = 0; i < numerical; ++i)
    spec.features[numbers.emplace_back(detail::formatted("num_{}", i))] = {DatasetType::float16};
  for (std::size_t f = 0; f < cardinalities.size(); ++f)
    spec.features[categories.emplace_back(detail::formatted("cat_{}.bin", f))] = {
        detail::id_type_of(cardinalities[f]), cardinalities[f], hotness.empty() ? 1 : hotness[f],
        !padded.empty() && padded[f]};
  for (const char* part : {"train", "test"}) {
    std::vector<DatasetChunk>& chunks = spec.sources[part];
    if (numerical > 0)
      chunks.push_back({"split_binary", numbers, {detail::formatted("{}/numerical.bin", part)}});
    chunks.push_back({"split_binary", label, {detail::formatted("{}/label.bin", part)}});
    for (const std::string& f : categories)
      chunks.push_back({"split_binary", {f}, {detail::formatted("{}/{}", part, f)}});
  }
  return spec;
}

}}  // namespace tessera::v0
