// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// A value in a YAML document: a scalar's text, a list, or a mapping in the order of the file.
/// Items are indices into the document's nodes, so that an alias costs nothing and no document can
/// unfold into more than it holds.
struct YamlNode {
  enum class Kind : std::uint8_t { scalar, sequence, mapping };

  Kind kind = Kind::scalar;
  std::int64_t line = 0;  ///< where it begins, from 1
  /// of a scalar; empty for a missing value
  std::string text;
  /// a scalar in quotes is text, whatever it looks like
  bool quoted = false;
  std::vector<std::size_t> items;                          ///< of a sequence
  std::vector<std::pair<std::string, std::size_t>> pairs;  ///< of a mapping
};

/// Reads the part of YAML 1.1 that data descriptions are written in: block and flow lists and
/// mappings, plain and quoted scalars of one line, comments, anchors and aliases. Everything else
/// (tags, block scalars, several documents, keys that are not scalars) is a DataError that names
/// the source and the line.
class YamlDocument {
 public:
  static constexpr int kMaxDepth = 32;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 24;

  /// `name` stands for the source in messages.
  YamlDocument(std::string_view text, std::string name) : name_(std::move(name)) {
    require<DataError>(text.size() <= kMaxBytes, "file '{}': {} bytes; a YAML file has at most {}",
                       name_, text.size(), kMaxBytes);
    split(text);
    if (lines_.empty()) {
      root_ = add(YamlNode::Kind::scalar);
      return;
    }
    root_ = block(lines_[0].indent, 0);
    if (at_ < lines_.size()) fail("the indentation fits nothing above");
  }

  const std::string& name() const { return name_; }
  const YamlNode& root() const { return nodes_[root_]; }
  const YamlNode& operator[](std::size_t node) const { return nodes_[node]; }

  /// The value of a key, or null.
  const YamlNode* find(const YamlNode& mapping, std::string_view key) const {
    for (const auto& [name, value] : mapping.pairs)
      if (name == key) return &nodes_[value];
    return nullptr;
  }

 private:
  struct Line {
    std::int64_t number;
    int indent;
    std::string_view text;  // without indentation, not empty, not a comment
  };

  [[noreturn]] void fail(std::string_view what) const {
    const std::int64_t line = at_ < lines_.size() ? lines_[at_].number
                              : lines_.empty()    ? 1
                                                  : lines_.back().number;
    throw DataError(fmt::format("file '{}', line {}: {}", name_, line, what));
  }
  void check(bool good, std::string_view what) const {
    if (!good) fail(what);
  }

  std::size_t add(YamlNode::Kind kind) {
    nodes_.push_back({.kind = kind,
                      .line = at_ < lines_.size() ? lines_[at_].number : 0,
                      .text = {},
                      .items = {},
                      .pairs = {}});
    return nodes_.size() - 1;
  }

  static std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t");
    return begin == std::string_view::npos
               ? std::string_view()
               : text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
  }

  void split(std::string_view text) {
    std::int64_t number = 0;
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++number;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      const std::size_t indent = line.find_first_not_of(' ');
      if (indent == std::string_view::npos || line[indent] == '#' || trimmed(line).empty())
        continue;
      if (lines_.empty() && trimmed(line) == "---") continue;
      if (trimmed(line) == "...") break;
      lines_.push_back({number, static_cast<int>(indent), trimmed(line)});
      at_ = lines_.size() - 1;
      check(line[indent] != '\t', "indentation is made of spaces, not tabs");
      check(line.substr(0, 3) != "---", "one document is all that is read");
      for (const char c : line)
        check(static_cast<unsigned char>(c) >= 0x20 || c == '\t', "a control character");
    }
    at_ = 0;
  }

  static bool is_item(std::string_view text) { return text == "-" || text.substr(0, 2) == "- "; }

  /// A list or mapping whose lines begin at `indent`, or a scalar.
  std::size_t block(int indent, int depth) {
    check(depth < kMaxDepth, "nested too deeply");
    if (is_item(lines_[at_].text)) return sequence(indent, depth);
    if (key_end(lines_[at_].text) != std::string_view::npos) return mapping(indent, depth);
    return inline_value(lines_[at_].text, depth);
  }

  std::size_t sequence(int indent, int depth) {
    const std::size_t node = add(YamlNode::Kind::sequence);
    while (at_ < lines_.size() && lines_[at_].indent == indent && is_item(lines_[at_].text)) {
      const std::string_view rest = trimmed(lines_[at_].text.substr(1));
      std::size_t item;
      if (!rest.empty() && (is_item(rest) || key_end(rest) != std::string_view::npos)) {
        // A list or mapping that begins on the line of its dash: as if it stood alone, further in.
        lines_[at_].indent += static_cast<int>(rest.data() - lines_[at_].text.data());
        lines_[at_].text = rest;
        item = block(lines_[at_].indent, depth + 1);
      } else {
        item = value(rest, indent, false, depth);
      }
      nodes_[node].items.push_back(item);
    }
    return node;
  }

  std::size_t mapping(int indent, int depth) {
    const std::size_t node = add(YamlNode::Kind::mapping);
    std::set<std::string> keys;
    while (at_ < lines_.size() && lines_[at_].indent == indent && !is_item(lines_[at_].text)) {
      const std::string_view text = lines_[at_].text;
      const std::size_t end = key_end(text);
      check(end != std::string_view::npos, "neither 'key: value' nor a list");
      std::string key = scalar(text.substr(0, end)).first;
      check(key != "<<", "merge keys are not read");
      check(keys.insert(key).second, "the key was there before");
      const std::size_t item = value(trimmed(text.substr(end + 1)), indent, true, depth);
      nodes_[node].pairs.emplace_back(std::move(key), item);
    }
    return node;
  }

  /// What stands behind a dash or a key, or on the lines below. A list below a key may begin at the
  /// key's own indentation.
  std::size_t value(std::string_view rest, int indent, bool of_key, int depth) {
    std::string anchor;
    if (!rest.empty() && rest[0] == '&') {
      const std::size_t end = std::min(rest.find_first_of(" \t"), rest.size());
      anchor = rest.substr(1, end - 1);
      check(!anchor.empty(), "an anchor needs a name");
      rest = trimmed(rest.substr(end));
    }
    std::size_t node;
    if (!rest.empty() && rest[0] != '#') {
      node = inline_value(rest, depth);
    } else {
      ++at_;
      const bool below = at_ < lines_.size() &&
                         (lines_[at_].indent > indent ||
                          (of_key && lines_[at_].indent == indent && is_item(lines_[at_].text)));
      node = below ? block(lines_[at_].indent, depth + 1) : add(YamlNode::Kind::scalar);
    }
    if (!anchor.empty()) anchors_[anchor] = node;
    return node;
  }

  /// A scalar, an alias or a flow collection that begins in this line; goes on to the line behind
  /// it.
  std::size_t inline_value(std::string_view text, int depth) {
    std::size_t node;
    if (text[0] == '[' || text[0] == '{') {
      node = flow(text, depth + 1);
      check(text.empty() || text[0] == '#', "text behind the closing bracket");
    } else {
      node = leaf(text);
    }
    ++at_;
    return node;
  }

  std::size_t leaf(std::string_view text) {
    if (text[0] == '*') {
      const auto found = anchors_.find(std::string(without_comment(text).substr(1)));
      check(found != anchors_.end(), "no anchor of this name stands above");
      return found->second;
    }
    auto [words, quoted] = scalar(text);
    const std::size_t node = add(YamlNode::Kind::scalar);
    nodes_[node].text = std::move(words);
    nodes_[node].quoted = quoted;
    return node;
  }

  /// [a, b] or {a: b}, over several lines if need be. Takes what it reads from `text`.
  std::size_t flow(std::string_view& text, int depth) {
    check(depth < kMaxDepth, "nested too deeply");
    const bool list = text[0] == '[';
    const std::size_t node = add(list ? YamlNode::Kind::sequence : YamlNode::Kind::mapping);
    std::set<std::string> keys;
    text.remove_prefix(1);
    for (bool first = true;; first = false) {
      skip(text);
      if (text[0] == (list ? ']' : '}')) break;
      if (!first) {
        check(text[0] == ',', "a comma or the closing bracket is missing");
        text.remove_prefix(1);
        skip(text);
        if (text[0] == (list ? ']' : '}')) break;
      }
      std::string key;
      if (!list) {
        key = scalar(flow_scalar(text, true)).first;
        check(keys.insert(key).second, "the key was there before");
        skip(text);
        check(text[0] == ':', "a colon is missing");
        text.remove_prefix(1);
        skip(text);
      }
      const std::size_t item =
          text[0] == '[' || text[0] == '{' ? flow(text, depth + 1) : leaf(flow_scalar(text, false));
      if (list) {
        nodes_[node].items.push_back(item);
      } else {
        nodes_[node].pairs.emplace_back(std::move(key), item);
      }
    }
    text = trimmed(text.substr(1));
    return node;
  }

  /// Goes to the next character of a flow collection, in this line or a later one.
  void skip(std::string_view& text) {
    text = trimmed(text);
    while (text.empty() || text[0] == '#') {
      check(at_ + 1 < lines_.size(), "a bracket is not closed");
      text = lines_[++at_].text;
    }
  }

  std::string_view flow_scalar(std::string_view& text, bool key) const {
    std::size_t end = 0;
    if (text[0] == '"' || text[0] == '\'') {
      end = quoted_end(text);
    } else {
      while (end < text.size() &&
             std::string_view(",[]{}").find(text[end]) == std::string_view::npos &&
             !(text[end] == ':' && (key || end + 1 == text.size() || text[end + 1] == ' ')) &&
             !(text[end] == '#' && end > 0 && text[end - 1] == ' '))
        ++end;
    }
    check(end > 0, "a value is missing");
    const std::string_view found = trimmed(text.substr(0, end));
    text.remove_prefix(end);
    return found;
  }

  /// Where the colon of `key: value` stands; npos: there is none.
  std::size_t key_end(std::string_view text) const {
    if (text[0] == '[' || text[0] == '{' || text[0] == '*' || text[0] == '#' || text[0] == '&')
      return std::string_view::npos;
    std::size_t at = 0;
    if (text[0] == '"' || text[0] == '\'') {
      at = text.find_first_not_of(" \t", quoted_end(text));
      return at != std::string_view::npos && text[at] == ':' &&
                     (at + 1 == text.size() || text[at + 1] == ' ')
                 ? at
                 : std::string_view::npos;
    }
    for (; at < text.size(); ++at) {
      if (text[at] == '#' && at > 0 && text[at - 1] == ' ') break;
      if (text[at] == ':' && (at + 1 == text.size() || text[at + 1] == ' ' || text[at + 1] == '\t'))
        return at;
    }
    return std::string_view::npos;
  }

  std::size_t quoted_end(std::string_view text) const {
    const char quote = text[0];
    for (std::size_t i = 1; i < text.size(); ++i) {
      if (quote == '"' && text[i] == '\\') {
        ++i;
      } else if (text[i] == quote) {
        if (quote == '"' || i + 1 == text.size() || text[i + 1] != '\'') return i + 1;
        ++i;
      }
    }
    fail("the quote is not closed in this line");
  }

  static std::string_view without_comment(std::string_view text) {
    for (std::size_t i = 1; i < text.size(); ++i)
      if (text[i] == '#' && (text[i - 1] == ' ' || text[i - 1] == '\t'))
        return trimmed(text.substr(0, i));
    return trimmed(text);
  }

  /// The text of a scalar, and whether it stood in quotes.
  std::pair<std::string, bool> scalar(std::string_view text) const {
    text = trimmed(text);
    check(!text.empty(), "a value is missing");
    if (text[0] == '"' || text[0] == '\'') {
      const std::size_t end = quoted_end(text);
      const std::string_view rest = trimmed(text.substr(end));
      check(rest.empty() || rest[0] == '#', "text behind the closing quote");
      return {unquoted(text.substr(0, end)), true};
    }
    check(std::string_view("!&*|>%@`,[]{}?").find(text[0]) == std::string_view::npos,
          "only plain and quoted scalars, lists, mappings, anchors and aliases are read");
    text = without_comment(text);
    check(text.find(": ") == std::string_view::npos, "a mapping inside a scalar");
    return {std::string(text), false};
  }

  std::string unquoted(std::string_view text) const {
    std::string out;
    const char quote = text[0];
    for (std::size_t i = 1; i + 1 < text.size(); ++i) {
      if (quote == '\'' && text[i] == '\'') ++i;  // doubled
      if (quote == '"' && text[i] == '\\') {
        constexpr std::string_view from = "0abtnvfre\"/\\ ";
        constexpr std::string_view to("\0\a\b\t\n\v\f\r\x1b\"/\\ ", from.size());
        const std::size_t found = from.find(text[++i]);
        if (text[i] == 'x') {
          check(i + 3 < text.size(), "\\x needs two digits");
          unsigned value = 0;
          for (int digit = 0; digit < 2; ++digit) {
            const char c = text[++i];
            check((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'),
                  "\\x needs two digits");
            value = value * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
          }
          check(value < 0x80, "escapes beyond ASCII are not read");
          out.push_back(static_cast<char>(value));
          continue;
        }
        check(found != std::string_view::npos, "an escape that is not read");
        out.push_back(to[found]);
        continue;
      }
      out.push_back(text[i]);
    }
    return out;
  }

  std::string name_;
  std::vector<Line> lines_;
  std::size_t at_ = 0;  // the line being read
  std::vector<YamlNode> nodes_;
  std::map<std::string, std::size_t> anchors_;
  std::size_t root_ = 0;
};

}  // namespace tessera::inline v0
