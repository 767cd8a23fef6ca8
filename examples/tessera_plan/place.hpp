// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Where a value of a JSON or YAML file begins. It is looked for when an error is told: values carry
// their path alone.
#pragma once

#include "json_text.hpp"

#include <tessera_data/yaml.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plan {

/// A file that was read.
struct Source {
  std::string file, text;
  bool yaml = false;
};

/// Returns the path of a key, as tables[3].rows.
inline std::string path_of(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}
inline std::string path_of(const std::string& path, std::size_t item) {
  return fmt::format("{}[{}]", path, item);
}

namespace detail {

/// Takes a JSON text's values in order until the one of a path has begun.
class JsonLine : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonLine(const std::string& text, const std::string& path) : path_(path) {
    const CountedText begin{text.data(), &read_}, end{text.data() + text.size(), &read_};
    nlohmann::json::sax_parse(begin, end, this);
  }
  std::int64_t line() const { return line_; }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return value() && open(false); }
  bool start_array(std::size_t) override { return value() && open(true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    open_.back().key = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  struct Level {
    std::string path, key;
    bool list;
    std::size_t next = 0;
  };

  bool value() {
    if (!open_.empty()) {
      Level& level = open_.back();
      at_ = level.list ? path_of(level.path, level.next++) : path_of(level.path, level.key);
    }
    if (at_ != path_) return true;
    line_ = read_.line;
    return false;
  }
  bool open(bool list) {
    open_.push_back({at_, {}, list});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& path_;
  std::string at_;
  std::vector<Level> open_;
  LineCount read_;
  std::int64_t line_ = 0;
};

}  // namespace detail

/// Returns the line where the value of a path begins; 0: there is none.
inline std::int64_t line_of(const Source& source, const std::string& path) {
  if (!source.yaml) return detail::JsonLine(source.text, path).line();
  using Node = tessera::detail::YamlNode;
  const tessera::detail::YamlDocument document(source.text, source.file);
  const auto find = [&](const auto& self, const Node& node, const std::string& at) -> std::int64_t {
    if (at == path) return node.line;
    if (path.compare(0, at.size(), at) != 0) return 0;
    for (std::size_t i = 0; i < node.items.size(); ++i)
      if (const auto line = self(self, document[node.items[i]], path_of(at, i))) return line;
    for (const auto& [key, item] : node.pairs)
      if (const auto line = self(self, document[item], path_of(at, key))) return line;
    return 0;
  };
  return find(find, document.root(), "");
}

/// Returns "model.yaml:7: tables[3].rows".
inline std::string place_text(const Source& source, const std::string& path) {
  const std::int64_t line = line_of(source, path);
  return fmt::format("{}{}{}{}", source.file, line > 0 ? fmt::format(":{}", line) : "",
                     path.empty() ? "" : ": ", path);
}

/// Returns "model.json:8: " and what is wrong with a text that is no JSON.
inline std::string not_json(const Source& source, const nlohmann::json::exception& error) {
  std::string_view text = error.what();  // [json.exception...] parse error at line 8, column 5: ...
  std::string line;
  if (const auto at = text.find("line "), end = text.find(", column"); end != text.npos) {
    line = fmt::format(":{}", text.substr(at + 5, end - at - 5));
    text.remove_prefix(text.find(": ", end) + 2);
  }
  return fmt::format("{}{}: not JSON: {}", source.file, line, text);
}

}  // namespace plan
