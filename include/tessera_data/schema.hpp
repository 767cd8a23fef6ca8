// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/table_spec.hpp>
#include <tessera/io/regular_file.hpp>
#include <tessera/io/text.hpp>
#include <tessera_data/csv_reader.hpp>
#include <tessera_data/yaml.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// How the texts of a categorical column get rows of their table: each its own, in the order in
/// which training data show them; by a hash; or by a `Vocabulary`, to which they go as keys.
enum class RowsBy : std::uint8_t { appearance, hash, vocabulary };

/// What becomes of a text that has no row, as training data did not show it (often enough): it gets
/// the row that all such texts share; the id -1, which the collection's bad-id policy treats; or it
/// ends the reading with a DataError.
enum class UnknownCategory : std::uint8_t { shared_row, bad_id, error };

/// A column of numbers, and what becomes of them.
struct NumericColumn {
  std::string name;
  bool log1p = false;        ///< x becomes log(1 + max(x, 0)),
  bool standardize = false;  ///< and then gets mean 0 and deviation 1 over the training data
  /// what an empty field counts as before it is standardized; else it is 0 after that
  std::optional<float> empty{};
};

/// A column of categories, and the table that it reads.
struct CategoricalColumn {
  std::string name;
  std::size_t table = 0;  ///< of the schema's tables
  char list = 0;          ///< what separates the entries of a field; 0: a field is one entry
  Pooling pooling = Pooling::sum;
};

/// A table of embeddings, read by the columns that name it.
struct TableColumns {
  std::string name;
  RowsBy rows_by = RowsBy::appearance;
  std::int64_t rows = 0;       ///< 0: as many as there are
  std::int32_t width = 0;      ///< 0: the model's
  std::int64_t min_count = 0;  ///< texts seen less often in training are unknown; 0: not given
  UnknownCategory unknown = UnknownCategory::shared_row;
};

/// What the columns of a table of samples mean.
struct Schema {
  std::string name;  ///< of the file, for messages
  std::string label;
  std::vector<NumericColumn> numeric;
  std::vector<CategoricalColumn> categorical;
  std::vector<TableColumns> tables;      ///< in the order of the columns that first name them
  std::vector<std::string> columns;      ///< of files that have no header; empty: they have one
  std::string separator;                 ///< between fields; empty: what the file's name says
  char quote = '"';                      ///< around fields; 0: none
  std::vector<std::string> empty_words;  ///< fields that count as empty
};

namespace detail {

class SchemaParser {
 public:
  SchemaParser(std::string_view text, std::string name) : yaml_(text, std::move(name)) {
    schema_.name = yaml_.name();
  }

  Schema parse() {
    const YamlNode& root = yaml_.root();
    check_keys(root, "a schema",
               {"label", "numeric", "categorical", "columns", "separator", "quote", "empty_words"});
    schema_.label = name(member(root, "label", "the column of labels, as in 'label: clicked'"));
    names_.insert(schema_.label);
    if (const YamlNode* numeric = yaml_.find(root, "numeric"))
      for (const std::size_t item : list(*numeric, "numeric").items) add_numeric(yaml_[item]);
    const YamlNode& categorical = list(
        member(root, "categorical", "the columns of categories, as in 'categorical: [device]'"),
        "categorical");
    if (categorical.items.empty())
      fail(categorical, "there must be at least one categorical column");
    for (const std::size_t item : categorical.items) add_categorical(yaml_[item]);
    if (const YamlNode* columns = yaml_.find(root, "columns")) add_columns(*columns);
    if (const YamlNode* words = yaml_.find(root, "empty_words"))
      for (const std::size_t item : list(*words, "empty_words").items)
        schema_.empty_words.push_back(scalar(yaml_[item], "a word for an empty field"));
    read_format(root);
    return std::move(schema_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(const YamlNode& node, detail::FormatText<Args...> text,
                         const Args&... args) const {
    throw DataError(formatted("file '{}', line {}, column {}: {}", schema_.name,
                              std::max<std::int64_t>(node.line, 1),
                              std::max<std::int64_t>(node.column, 1),
                              printable(formatted<Args...>(text, args...), 1000)));
  }

  void check_keys(const YamlNode& node, std::string_view what,
                  std::initializer_list<std::string_view> known) const {
    std::string all;
    for (const std::string_view key : known) all += formatted("{}{}", all.empty() ? "" : ", ", key);
    if (node.kind != YamlNode::Kind::mapping)
      fail(node, "{} must be a mapping with keys of {}", what, all);
    for (const auto& [key, value] : node.pairs)
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail(yaml_[value], "{} has no key {}; known are {}", what, detail::quoted(key), all);
  }
  const YamlNode& member(const YamlNode& node, std::string_view key, std::string_view what) const {
    const YamlNode* found = yaml_.find(node, key);
    if (found == nullptr) fail(node, "the key '{}' is missing: {}", key, what);
    return *found;
  }
  const YamlNode& list(const YamlNode& node, std::string_view key) const {
    if (node.kind != YamlNode::Kind::sequence)
      fail(node, "'{}' must be a list, as in '{}: [first, second]'", key, key);
    return node;
  }
  const std::string& scalar(const YamlNode& node, std::string_view what) const {
    if (node.kind != YamlNode::Kind::scalar || node.text.empty())
      fail(node, "{} must be a single value", what);
    return node.text;
  }
  const std::string& name(const YamlNode& node) const { return scalar(node, "a column's name"); }

  void read_format(const YamlNode& root) {
    if (const YamlNode* given = yaml_.find(root, "separator")) {
      schema_.separator = separator_named(scalar(*given, "separator"));
      if (schema_.separator.empty())
        fail(*given,
             "separator {} must be tab, blanks, or 1 to 8 bytes, no quote and no end of a line",
             detail::quoted(given->text));
    }
    if (const YamlNode* given = yaml_.find(root, "quote")) try {
        schema_.quote = quote_named(scalar(*given, "quote"));
      } catch (const InvalidArgument& error) {
        fail(*given, "{}", error.what());
      }
    if (const YamlNode* given = yaml_.find(root, "separator");
        given != nullptr && schema_.separator.find(schema_.quote) != std::string::npos)
      fail(*given, "separator and quote are the same");
  }

  char character(const YamlNode& node, std::string_view what) const {
    const std::string& text = scalar(node, what);
    const auto c = static_cast<unsigned char>(text[0]);
    if (text.size() != 1 || c == '"' || c == '\n' || c == '\r' || c == 0 || c >= 0x80)
      fail(node, "{} '{}' must be one ASCII character, no quote and no end of a line", what, text);
    return text[0];
  }
  std::int64_t number(const YamlNode& node, std::string_view key, std::int64_t least,
                      std::int64_t most) const {
    const std::string& text = scalar(node, key);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || node.quoted || value < least ||
        value > most)
      fail(node, "{} '{}' must be a whole number from {} to {}", key, text, least, most);
    return value;
  }
  bool flag(const YamlNode& node, std::string_view key) const {
    const std::string& text = scalar(node, key);
    if (text != "true" && text != "false") fail(node, "{} '{}' must be true or false", key, text);
    return text == "true";
  }

  const std::string& new_name(const YamlNode& node) {
    const std::string& text = name(node);
    if (!names_.insert(text).second)
      fail(node, "column '{}' is given twice; a column has one meaning", text);
    return text;
  }

  void add_numeric(const YamlNode& node) {
    NumericColumn column;
    if (node.kind == YamlNode::Kind::scalar) {
      column.name = new_name(node);
    } else {
      check_keys(node, "a numeric column", {"name", "transform", "empty"});
      column.name = new_name(member(node, "name", "the column's"));
      if (const YamlNode* transform = yaml_.find(node, "transform")) {
        if (transform->kind == YamlNode::Kind::sequence)
          for (const std::size_t item : transform->items) add_transform(yaml_[item], column);
        else
          add_transform(*transform, column);
      }
      if (const YamlNode* given = yaml_.find(node, "empty")) {
        const std::string& text = scalar(*given, "empty");
        float x = 0;
        if (parse_number(text, x) != NumberText::number)
          fail(*given, "column '{}': empty {} must be a finite number, at most 3.4e38", column.name,
               detail::quoted(text));
        column.empty = x;
      }
    }
    schema_.numeric.push_back(std::move(column));
  }
  void add_transform(const YamlNode& node, NumericColumn& column) const {
    const std::string& text = scalar(node, "transform");
    if (text == "log1p" && !column.standardize)
      column.log1p = true;
    else if (text == "standardize")
      column.standardize = true;
    else if (text != "none")
      fail(node,
           "column '{}': transform '{}' must be log1p, standardize, none or [log1p, standardize]",
           column.name, text);
  }

  void add_categorical(const YamlNode& node) {
    CategoricalColumn column;
    TableColumns table;
    if (node.kind == YamlNode::Kind::scalar) {
      column.name = table.name = new_name(node);
    } else {
      check_keys(node, "a categorical column",
                 {"name", "rows", "width", "list", "pooling", "table", "vocabulary", "min_count",
                  "unknown"});
      column.name = table.name = new_name(member(node, "name", "the column's"));
      read_table(node, table);
      if (const YamlNode* given = yaml_.find(node, "list")) column.list = character(*given, "list");
      if (const YamlNode* given = yaml_.find(node, "pooling")) {
        const std::string& text = scalar(*given, "pooling");
        const std::optional<Pooling> pooling = find_pooling(text);
        if (!pooling || *pooling == Pooling::none)
          fail(*given, "column '{}': pooling '{}' must be sum, mean, sqrtn or max", column.name,
               text);
        if (column.list == 0)
          fail(
              *given,
              "column '{}': pooling is for lists; say what separates the entries of a field, as in "
              "'list: \"|\"', or remove it",
              column.name);
        column.pooling = *pooling;
      }
    }
    const auto same = std::find_if(schema_.tables.begin(), schema_.tables.end(),
                                   [&](const TableColumns& t) { return t.name == table.name; });
    column.table = static_cast<std::size_t>(same - schema_.tables.begin());
    if (same == schema_.tables.end()) {
      schema_.tables.push_back(std::move(table));
    } else {
      share(node, column.name, table, *same);
    }
    schema_.categorical.push_back(std::move(column));
  }

  void read_table(const YamlNode& node, TableColumns& table) const {
    if (const YamlNode* given = yaml_.find(node, "table")) table.name = scalar(*given, "table");
    if (const YamlNode* given = yaml_.find(node, "rows")) {
      table.rows = number(*given, "rows", 3, std::numeric_limits<std::int64_t>::max());
      table.rows_by = RowsBy::hash;
    }
    if (const YamlNode* given = yaml_.find(node, "width"))
      table.width = static_cast<std::int32_t>(number(*given, "width", 1, 1024));
    if (const YamlNode* given = yaml_.find(node, "vocabulary"))
      if (flag(*given, "vocabulary")) {
        if (table.rows == 0)
          fail(*given, "a vocabulary needs 'rows', the most that it may hand out");
        table.rows_by = RowsBy::vocabulary;
      }
    if (const YamlNode* given = yaml_.find(node, "min_count")) {
      if (table.rows_by == RowsBy::hash)
        fail(*given, "min_count is for columns without rows: a hash knows all texts");
      table.min_count = number(*given, "min_count", 1, std::numeric_limits<std::int32_t>::max());
    }
    if (const YamlNode* given = yaml_.find(node, "unknown")) {
      constexpr std::pair<std::string_view, UnknownCategory> kNames[] = {
          {"shared", UnknownCategory::shared_row},
          {"bad_id", UnknownCategory::bad_id},
          {"error", UnknownCategory::error}};
      const std::string& text = scalar(*given, "unknown");
      const auto* const found =
          std::find_if(std::begin(kNames), std::end(kNames),
                       [&](const auto& known) { return known.first == text; });
      if (found == std::end(kNames))
        fail(*given, "unknown '{}' must be shared, bad_id or error", text);
      if (table.rows_by != RowsBy::appearance)
        fail(*given, "unknown is for columns without rows: a hash and a vocabulary know all texts");
      table.unknown = found->second;
    }
  }

  /// Shares another column's table: one that names it may repeat what was said of it, and nothing
  /// else.
  void share(const YamlNode& node, const std::string& column, const TableColumns& given,
             const TableColumns& table) const {
    const auto check = [&](bool same, std::string_view key) {
      if (!same)
        fail(node, "column '{}': {} differs from what was given for the table '{}'", column, key,
             table.name);
    };
    check(given.rows == 0 || given.rows == table.rows, "rows");
    check(given.width == 0 || given.width == table.width, "width");
    check(yaml_.find(node, "vocabulary") == nullptr ||
              (given.rows_by == RowsBy::vocabulary) == (table.rows_by == RowsBy::vocabulary),
          "vocabulary");
    check(given.min_count == 0 || given.min_count == table.min_count, "min_count");
    check(yaml_.find(node, "unknown") == nullptr || given.unknown == table.unknown, "unknown");
  }

  void add_columns(const YamlNode& node) {
    std::set<std::string_view> seen;
    for (const std::size_t item : list(node, "columns").items) {
      const std::string& column = name(yaml_[item]);
      if (!seen.insert(column).second) fail(yaml_[item], "column '{}' is listed twice", column);
      schema_.columns.push_back(column);
    }
    for (const std::string& needed : names_)
      if (!seen.contains(needed)) fail(node, "columns lacks '{}', which the schema uses", needed);
  }

  YamlDocument yaml_;
  Schema schema_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace detail

/// Returns what a YAML text says of a dataset's columns: docs/your_own_data.md. Every fault is a
/// DataError that names the file, the line and the column. `name` is the file's.
inline Schema parse_schema(std::string_view text, std::string name) {
  return detail::SchemaParser(text, std::move(name)).parse();
}

/// Reads a schema from a file. Throws DataError.
inline Schema read_schema(const std::filesystem::path& path) {
  const detail::RegularFile file(path);
  return parse_schema(file.text(), file.name());
}

}}  // namespace tessera::v0
