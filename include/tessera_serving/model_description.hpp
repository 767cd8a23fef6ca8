// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/table_spec.hpp>
#include <tessera/io/json_reader.hpp>
#include <tessera/io/safetensors_header.hpp>
#include <tessera/io/text.hpp>
#include <tessera_data/standardized.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// What becomes of a number first: itself, log1p(max(x, 0)), or log(1 + max(x, 0)), whose last bits
/// differ; at_least: 1 from `shift` on, else 0, and nothing else.
enum class NumberTransform : std::uint8_t { none, log1p, log, at_least };
/// How the text of a category becomes a key: a hexadecimal number of 32 bits (Criteo's), the hash
/// of any text, or a decimal number.
enum class CategoryKey : std::uint8_t { hex, text, integer };
/// Which row a key has: that of a list of the training data's keys, a hash's, that of the training
/// run's Vocabulary, or the key itself.
enum class KeyRows : std::uint8_t { list, hash, vocabulary, key };

/// A numeric column: (transform(x) - shift) * scale, in double, of `log` in float.
struct NumberInput {
  std::string name;
  NumberTransform transform = NumberTransform::none;
  double shift = 0, scale = 1;
  bool may_be_empty = true;
  /// what an empty field counts as, in place of transform(x); none: 0 at the end
  std::optional<float> empty{};
  bool list = false;  ///< one for each event of a history

  /// Returns whether its numbers must be doubles, as seconds since 1970.
  bool needs_double() const { return detail::needs_double(shift, scale); }
};

/// A table, and how the fields of columns that read it become rows.
struct TableInput {
  std::string name;
  std::int64_t rows = 0;
  std::int32_t width = 0;
  CategoryKey keys = CategoryKey::text;
  KeyRows rows_by = KeyRows::list;
  std::uint64_t hash_seed = 0;  ///< KeyRows::hash; for others a checksum of what keys mean, if any
  std::optional<std::int64_t> unknown_row{};  ///< of keys that a list lacks; none: refused
  std::optional<std::int64_t> empty_row{};    ///< of an empty field; none: refused
  std::optional<std::int64_t> empty_key{};    ///< of an empty field, for a vocabulary
};

/// A categorical column.
struct CategoryInput {
  std::string name;
  std::string table;
  Pooling pooling = Pooling::sum;
  bool list = false;     ///< any number of entries per sample, else one
  char separator = '|';  ///< between a list's entries, in texts
};

/// The keys of a table whose rows are those of a list. Key i has row rows[i], or 2 + i if `rows`
/// is empty.
struct KeyList {
  std::vector<std::int64_t> keys;
  std::vector<std::int32_t> rows{};
};

/// HSTU blocks that rank candidates for a history of events. A position is its item's vector, that
/// of its place (the history's last `max_length` events count from 0, candidates have the place
/// after them) and, of events, its number times one vector more; a candidate's result goes through
/// a linear layer. The tensor `dense` holds, one after another: vectors of places [max_length + 1,
/// vector_width], of the number [vector_width], the blocks' parameters as AnyHstuLayer orders them,
/// and weight and bias of the layer.
struct HistoryLayers {
  std::int64_t blocks = 0, heads = 0;
  std::int64_t max_length = 0;        ///< events of a history that are read, its last ones
  std::int64_t attention_length = 0;  ///< attention is divided by it
};

/// What a program must know to score with a checkpoint: the layers between its tensors and how the
/// columns of the data become numbers and rows. Saved as `model.json`.
struct ModelDescription {
  static constexpr std::string_view kFile = "model.json", kKeysFile = "inputs.safetensors";
  static constexpr std::uint64_t kVersion = 1;

  /// Or "cross"; "concat": vectors side by side; "hstu": `history`, of which the first feature is
  /// the list of items and the second, of the same table, the candidate.
  std::string interaction = "dot";
  /// Of the bottom MLP's output, and of all vectors of the dot interaction: those of tables of
  /// other widths go through a layer without bias, `projection.WIDTH.weight` [vector_width, WIDTH].
  std::int64_t vector_width = 0;
  /// Sizes, the input's first. No bottom MLP: numbers come before the vectors, unchanged.
  std::vector<std::int64_t> bottom_mlp{}, top_mlp{};
  std::int64_t cross_layers = 0, cross_rank = 0;
  /// Wide & Deep: each table has a second one of one column, `wide.TABLE`, read by the same columns
  /// of the data with the same pooling; what comes of it is added to the logit.
  bool wide = false;
  std::string dense_precision = "fp32";
  std::optional<HistoryLayers> history{};
  std::vector<NumberInput> numeric{};  ///< empty: the bottom MLP's input is a 1
  std::vector<TableInput> tables{};
  std::vector<CategoryInput> features{};  ///< in the order of their vectors

  /// Returns the inputs of the first layers; a 1 if there is no numeric column.
  std::int64_t numbers() const { return std::max<std::int64_t>(1, std::ssize(numeric)); }
  /// Returns the columns of what comes before the features' vectors.
  std::int64_t first_columns() const { return bottom_mlp.empty() ? numbers() : vector_width; }
  /// Returns the columns of a sample's vectors side by side, with those.
  std::int64_t columns() const {
    std::int64_t sum = first_columns();
    for (const CategoryInput& feature : features) sum += table(feature.table).width;
    return sum;
  }

  /// Returns the widths of tables whose vectors go through a layer before their products.
  std::set<std::int64_t> projected_widths() const {
    std::set<std::int64_t> widths;
    for (const CategoryInput& feature : features)
      if (interaction == "dot") widths.insert(table(feature.table).width);
    widths.erase(vector_width);
    return widths;
  }

  /// Throws InvalidArgument if there is none of that name.
  const TableInput& table(std::string_view name) const {
    const auto found = std::find_if(tables.begin(), tables.end(),
                                    [&](const TableInput& t) { return t.name == name; });
    require(found != tables.end(), "the model has no table '{}'", name);
    return *found;
  }
};

/// Returns the name of a table's second one with a weight for each row.
inline std::string wide_table(std::string_view table) {
  return detail::formatted("wide.{}", table);
}

namespace detail {

inline constexpr std::array<std::string_view, 3> kCategoryKeys{"hex", "text", "integer"};
inline constexpr std::array<std::string_view, 4> kInteractions{"dot", "cross", "concat", "hstu"},
    kNumberTransforms{"none", "log1p", "log", "at_least"},
    kKeyRows{"list", "hash", "vocabulary", "key"};

class ModelDescriptionParser {
 public:
  ModelDescriptionParser(std::string_view text, std::string_view file) : json_(text, file) {}

  ModelDescription parse() {
    std::string format;
    std::uint64_t version = 0;
    members("", [&](const std::string& key, std::size_t at) {
      if (key == "format") {
        format = json_.string();
      } else if (key == "version") {
        version = json_.number();
        json_.check(version == ModelDescription::kVersion, at,
                    "this version of the description is not known; a newer release may have "
                    "written it");
      } else if (key == "interaction") {
        model_.interaction = json_.string();
        json_.check(std::ranges::find(kInteractions, model_.interaction) != kInteractions.end(), at,
                    "the interaction must be dot, cross, concat or hstu");
      } else if (key == "vector_width") {
        model_.vector_width = size(1);
      } else if (key == "bottom_mlp") {
        sizes(model_.bottom_mlp);
      } else if (key == "top_mlp") {
        sizes(model_.top_mlp);
      } else if (key == "cross_layers") {
        model_.cross_layers = size(0);
      } else if (key == "cross_rank") {
        model_.cross_rank = size(0);
      } else if (key == "wide") {
        model_.wide = json_.boolean();
      } else if (key == "dense_precision") {
        model_.dense_precision = json_.string();
      } else if (key == "history") {
        history();
      } else if (key == "numeric") {
        json_.array([&](std::size_t) { number(); });
      } else if (key == "tables") {
        json_.array([&](std::size_t place) { table(place); });
      } else if (key == "features") {
        json_.array([&](std::size_t place) { feature(place); });
      } else {
        json_.check(false, at, formatted("the key {} is not known", detail::quoted(key)));
      }
    });
    json_.end();
    json_.check(format == "tessera model", 0, "this is no description of a model");
    json_.check(version == ModelDescription::kVersion, 0, "the key 'version' is missing");
    check();
    return std::move(model_);
  }

 private:
  static constexpr std::int64_t kMost = std::int64_t{1} << 31;

  /// Reads an object's members, each of them once.
  template <class Member>
  void members(std::string_view context, Member member) {
    if (!context.empty()) json_.set_context(std::string(context));
    std::set<std::string> seen;
    json_.object([&](const std::string& key, std::size_t at) {
      json_.check(seen.insert(key).second, at, "the key appears twice");
      member(key, at);
    });
    json_.set_context("");
  }
  std::int64_t size(std::int64_t least) {
    const std::size_t at = json_.next_position();
    const std::int64_t value = json_.count("the number is too large");
    json_.check(value >= least && value <= kMost, at,
                formatted("the number must be {} .. {}", least, kMost));
    return value;
  }
  void sizes(std::vector<std::int64_t>& list) {
    json_.array([&](std::size_t) { list.push_back(size(1)); });
  }
  float real() {
    const std::size_t at = json_.next_position();
    const auto value = static_cast<float>(json_.real());
    json_.check(std::isfinite(value), at, "the number is no finite float");
    return value;
  }
  std::optional<std::int64_t> optional_number() {
    if (json_.null()) return {};
    const std::size_t at = json_.next_position();
    const double value = json_.real();
    json_.check(value == std::floor(value) && std::abs(value) <= 0x1p53, at,
                "a whole number is expected here");
    return static_cast<std::int64_t>(value);
  }
  template <class Enum, class Names>
  Enum one_of(const Names& names) {
    const std::size_t at = json_.next_position();
    const auto found = std::find(names.begin(), names.end(), json_.string());
    json_.check(found != names.end(), at, "the word is not known here");
    return static_cast<Enum>(found - names.begin());
  }

  void history() {
    HistoryLayers& layers = model_.history.emplace();
    members("the history's layers", [&](const std::string& key, std::size_t at) {
      if (key == "blocks") {
        layers.blocks = size(0);
      } else if (key == "heads") {
        layers.heads = size(1);
      } else if (key == "max_length") {
        layers.max_length = size(1);
      } else if (key == "attention_length") {
        layers.attention_length = size(1);
      } else {
        json_.check(false, at, formatted("a history's layers have no key {}", detail::quoted(key)));
      }
    });
  }
  void number() {
    NumberInput input;
    members("a numeric column", [&](const std::string& key, std::size_t at) {
      if (key == "name") {
        input.name = json_.string();
      } else if (key == "transform") {
        input.transform = one_of<NumberTransform>(kNumberTransforms);
      } else if (key == "shift") {
        input.shift = json_.real();
      } else if (key == "scale") {
        input.scale = json_.real();
      } else if (key == "empty") {
        if (json_.next() == '"') {
          json_.check(json_.string() == "refused", at, "empty must be null, a number or 'refused'");
          input.may_be_empty = false;
        } else if (!json_.null()) {
          input.empty = real();
        }
      } else if (key == "list") {
        input.list = json_.boolean();
      } else {
        json_.check(false, at, formatted("a numeric column has no key {}", detail::quoted(key)));
      }
    });
    model_.numeric.push_back(std::move(input));
  }
  void table(std::size_t begin) {
    TableInput input;
    members("a table", [&](const std::string& key, std::size_t at) {
      if (key == "name") {
        input.name = json_.string();
      } else if (key == "rows") {
        input.rows = size(1);
      } else if (key == "width") {
        input.width = static_cast<std::int32_t>(std::min<std::int64_t>(size(1), 1 << 20));
      } else if (key == "keys") {
        input.keys = one_of<CategoryKey>(kCategoryKeys);
      } else if (key == "rows_by") {
        input.rows_by = one_of<KeyRows>(kKeyRows);
      } else if (key == "hash_seed") {
        input.hash_seed = json_.number();
      } else if (key == "unknown_row") {
        input.unknown_row = optional_number();
      } else if (key == "empty_row") {
        input.empty_row = optional_number();
      } else if (key == "empty_key") {
        input.empty_key = optional_number();
      } else {
        json_.check(false, at, formatted("a table has no key {}", detail::quoted(key)));
      }
    });
    for (const std::optional<std::int64_t>& row : {input.unknown_row, input.empty_row})
      json_.check(!row || (*row >= 0 && *row < input.rows), begin,
                  formatted("table '{}': a row outside its {} rows", input.name, input.rows));
    json_.check(input.rows_by != KeyRows::hash || input.rows >= 2, begin,
                formatted("table '{}': a hash needs two rows", input.name));
    model_.tables.push_back(std::move(input));
  }
  void feature(std::size_t) {
    CategoryInput input;
    members("a categorical column", [&](const std::string& key, std::size_t at) {
      if (key == "name") {
        input.name = json_.string();
      } else if (key == "table") {
        input.table = json_.string();
      } else if (key == "pooling") {
        const std::optional<Pooling> pooling = find_pooling(json_.string());
        json_.check(pooling.has_value(), at, "pooling must be sum, mean, sqrtn, max or none");
        input.pooling = *pooling;
      } else if (key == "list") {
        const std::string separator = json_.next() == '"' ? json_.string() : std::string();
        json_.check(separator.size() < 2, at, "a list is true or its separator");
        input.list = !separator.empty() || json_.boolean();
        if (!separator.empty()) input.separator = separator[0];
      } else {
        json_.check(false, at,
                    formatted("a categorical column has no key {}", detail::quoted(key)));
      }
    });
    model_.features.push_back(std::move(input));
  }

  /// Checks what the keys say of each other.
  void check() const {
    const auto fault = [&](bool good, std::string_view text) { json_.check(good, 0, text); };
    fault(model_.vector_width >= 1, "the key 'vector_width' is missing");
    fault(model_.top_mlp.size() >= 2 && model_.top_mlp.back() == 1,
          "top_mlp needs an input and a layer, and one output");
    fault(model_.bottom_mlp.empty()
              ? model_.interaction == "concat" || model_.interaction == "hstu"
              : model_.bottom_mlp.size() >= 2 && model_.bottom_mlp.front() == model_.numbers() &&
                    model_.bottom_mlp.back() == model_.vector_width,
          "bottom_mlp must take the numeric columns (or a 1) and give vector_width numbers; only "
          "concat and hstu can do without");
    fault(model_.interaction != "cross" || model_.cross_layers >= 1,
          "cross layers need cross_layers");
    fault(!model_.features.empty(), "there is no categorical column");
    std::set<std::string> columns, tables;
    for (const NumberInput& input : model_.numeric)
      fault(!input.name.empty() && columns.insert(input.name).second,
            formatted("two columns '{}', or one without a name", input.name));
    for (const TableInput& table : model_.tables)
      fault(!table.name.empty() && table.rows > 0 && table.width > 0 &&
                tables.insert(table.name).second,
            formatted("table '{}': its name is there twice, or name, rows or width is missing",
                      table.name));
    for (const CategoryInput& input : model_.features) {
      fault(!input.name.empty() && columns.insert(input.name).second,
            formatted("two columns '{}', or one without a name", input.name));
      fault(tables.contains(input.table),
            formatted("column '{}': there is no table '{}'", input.name, input.table));
    }
    check_history();
  }

  void check_history() const {
    const auto fault = [&](bool good, std::string_view text) { json_.check(good, 0, text); };
    const bool ranks = model_.interaction == "hstu";
    fault(ranks == model_.history.has_value(), "hstu has a 'history', and nothing else has");
    for (const CategoryInput& input : model_.features)
      fault((input.pooling == Pooling::none) == ranks,
            formatted("column '{}': hstu pools none, and all else pools", input.name));
    for (const NumberInput& input : model_.numeric)
      fault(input.list == ranks,
            formatted("column '{}': lists of numbers are of hstu alone", input.name));
    if (!ranks) return;
    const HistoryLayers& layers = *model_.history;
    fault(layers.blocks <= 1024 && layers.heads > 0 && layers.max_length > 0 &&
              layers.attention_length > 0 && layers.max_length < kMost / 2 &&
              model_.vector_width % layers.heads == 0,
          "a history needs at most 1,024 blocks, heads that divide vector_width, max_length and "
          "attention_length");
    const auto& features = model_.features;
    fault(features.size() == 2 && features[0].list && !features[1].list &&
              features[0].table == features[1].table &&
              model_.table(features[0].table).width == model_.vector_width &&
              model_.numeric.size() <= 1 && model_.bottom_mlp.empty() && !model_.wide &&
              model_.top_mlp.size() == 2 && model_.top_mlp.front() == model_.vector_width,
          "hstu takes the list of items and the candidate, of a table of vector_width columns, "
          "perhaps a list of numbers, and has one top layer");
  }

  JsonReader json_;
  ModelDescription model_;
};

}  // namespace detail

/// Throws DataError, naming `file` and the offset, for everything that a description must not be.
inline ModelDescription parse_model_description(std::string_view text, std::string_view file) {
  return detail::ModelDescriptionParser(text, file).parse();
}

/// Returns the text that `parse_model_description` reads.
inline std::string format_model_description(const ModelDescription& model) {
  std::string out = "{\"format\":\"tessera model\",\n";
  const auto text = [](std::string_view value) {
    std::string quoted;
    detail::append_json_string(quoted, value);
    return quoted;
  };
  const auto number = [](const auto& value) {
    return value ? detail::formatted("{}", *value) : std::string("null");
  };
  const auto list = [&](std::string_view key, const auto& items, std::string_view between,
                        const auto& item) {
    out += detail::formatted(",\n\"{}\":[", key);
    bool first = true;
    for (const auto& i : items) {
      out.append(std::exchange(first, false) ? "" : ",").append(between);
      out += item(i);
    }
    out += ']';
  };
  const auto size = [](std::int64_t n) { return detail::formatted("{}", n); };
  out += detail::formatted("\"version\":{},\n\"interaction\":{},\n\"vector_width\":{}",
                           ModelDescription::kVersion, text(model.interaction), model.vector_width);
  list("bottom_mlp", model.bottom_mlp, "", size);
  list("top_mlp", model.top_mlp, "", size);
  out += detail::formatted(",\n\"cross_layers\":{},\n\"cross_rank\":{},\n\"dense_precision\":{}",
                           model.cross_layers, model.cross_rank, text(model.dense_precision));
  if (model.wide) out += ",\n\"wide\":true";
  if (const auto& history = model.history)
    out += detail::formatted(
        ",\n\"history\":{{\"blocks\":{},\"heads\":{},\"max_length\":{},\"attention_length\":{}}}",
        history->blocks, history->heads, history->max_length, history->attention_length);
  list("numeric", model.numeric, "\n", [&](const NumberInput& input) {
    return detail::formatted(
        "{{\"name\":{},\"transform\":\"{}\",\"shift\":{},\"scale\":{},\"empty\":{}{}}}",
        text(input.name), detail::kNumberTransforms[static_cast<std::size_t>(input.transform)],
        input.shift, input.scale, input.may_be_empty ? number(input.empty) : "\"refused\"",
        input.list ? ",\"list\":true" : "");
  });
  list("tables", model.tables, "\n", [&](const TableInput& table) {
    return detail::formatted(
        "{{\"name\":{},\"rows\":{},\"width\":{},\"keys\":\"{}\",\"rows_by\":\"{}\",\"hash_seed\":{}"
        ",\"unknown_row\":{},\"empty_row\":{},\"empty_key\":{}}}",
        text(table.name), table.rows, table.width,
        detail::kCategoryKeys[static_cast<std::size_t>(table.keys)],
        detail::kKeyRows[static_cast<std::size_t>(table.rows_by)], table.hash_seed,
        number(table.unknown_row), number(table.empty_row), number(table.empty_key));
  });
  list("features", model.features, "\n", [&](const CategoryInput& input) {
    return detail::formatted("{{\"name\":{},\"table\":{},\"pooling\":\"{}\",\"list\":{}}}",
                             text(input.name), text(input.table), to_string(input.pooling),
                             input.list && input.separator != '|' ? text({&input.separator, 1})
                             : input.list                         ? "true"
                                                                  : "false");
  });
  return out + "}\n";
}

namespace detail {

/// Adds lists of keys, by table, to what a checkpoint will hold: inputs.safetensors with tensors
/// TABLE.keys (I64) and, if rows are not 2, 3, ..., TABLE.rows (I32).
inline void add_key_lists(CheckpointContents& contents,
                          const std::map<std::string, KeyList>& lists) {
  if (lists.empty()) return;
  std::vector<TensorInfo> infos;
  std::string data;
  const auto add = [&](std::string name, TensorType type, const auto& values) {
    const std::uint64_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
    infos.push_back({std::move(name), type, {std::ssize(values)}, begin, data.size()});
  };
  for (const auto& [table, list] : lists) add(table + ".keys", TensorType::i64, list.keys);
  for (const auto& [table, list] : lists)
    if (!list.rows.empty()) add(table + ".rows", TensorType::i32, list.rows);
  contents.set_file(std::string(ModelDescription::kKeysFile),
                    format_safetensors_header({}, infos) + data);
}

}  // namespace detail

/// Adds a description to what a checkpoint will hold, as model.json, and lists of keys.
inline void add_model_description(CheckpointContents& contents, const ModelDescription& model,
                                  const std::map<std::string, KeyList>& lists = {}) {
  contents.set_file(std::string(ModelDescription::kFile), format_model_description(model));
  detail::add_key_lists(contents, lists);
}

/// Returns what a checkpoint says of its model. Throws DataError, naming the checkpoint, if it
/// says nothing: one of an earlier version, an increment, or of another program.
inline ModelDescription read_model_description(CheckpointReader& reader) {
  require<DataError>(reader.has_file(ModelDescription::kFile),
                     "checkpoint '{}' does not say what its model is ('{}'): {}",
                     reader.folder().string(), ModelDescription::kFile,
                     reader.manifest().base.empty()
                         ? "it is of a model that has no description, as --synthetic-model, or of "
                           "an earlier version: go on with a trainer of this one (--resume)"
                         : "it is an increment; give the whole one that it belongs to");
  const std::string file = (reader.folder() / ModelDescription::kFile).string();
  return parse_model_description(reader.read_file(ModelDescription::kFile), file);
}

}}  // namespace tessera::v0
