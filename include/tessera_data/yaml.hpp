// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A value in a YAML document: a scalar's text, a list, or a mapping in the order of the file.
/// Items are indices into the document's nodes, so that an alias costs nothing and no document can
/// unfold into more than it holds.
struct YamlNode {
  enum class Kind : std::uint8_t { scalar, sequence, mapping };

  Kind kind = Kind::scalar;
  std::int64_t line = 0;  ///< where it begins, from 1
  std::int64_t column = 0;
  /// of a scalar; empty for a missing value
  std::string text{};
  /// a scalar in quotes is text, whatever it looks like
  bool quoted = false;
  std::vector<std::size_t> items{};                          ///< of a sequence
  std::vector<std::pair<std::string, std::size_t>> pairs{};  ///< of a mapping
};

/// A YAML document, read by yaml-cpp. Of YAML, tags, several documents in a file, keys that are not
/// scalars, and keys given twice are a DataError, which names the source, the line and the column.
class YamlDocument {
 public:
  static constexpr int kMaxDepth = 32;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 24;

  /// Parses a text. `name` is the source's in messages.
  YamlDocument(std::string_view text, std::string name) : name_(std::move(name)) {
    require<DataError>(text.size() <= kMaxBytes, "file '{}': {} bytes; a YAML file has at most {}",
                       name_, text.size(), kMaxBytes);
    // names go on to files that must be UTF-8: of models, of tensors, of requests
    const std::string_view good = text.substr(0, utf8_end(text));
    require<DataError>(
        good.size() == text.size(),
        "file '{}', line {}: the text is not UTF-8; convert it, as by 'iconv -t UTF-8'", name_,
        1 + std::count(good.begin(), good.end(), '\n'));
    Builder builder(*this);
    std::istringstream in{std::string(text)};
    try {
      YAML::Parser parser(in);
      while (parser.HandleNextDocument(builder)) {
      }
    } catch (const YAML::Exception& error) {
      fail(error.mark, error.msg);
    }
    if (nodes_.empty()) nodes_.push_back({.line = 1, .column = 1});
  }

  const std::string& name() const { return name_; }
  const YamlNode& root() const { return nodes_[0]; }
  const YamlNode& operator[](std::size_t node) const { return nodes_[node]; }

  /// Returns the value of a key, or null.
  const YamlNode* find(const YamlNode& mapping, std::string_view key) const {
    for (const auto& [name, value] : mapping.pairs)
      if (name == key) return &nodes_[value];
    return nullptr;
  }

 private:
  using Mark = YAML::Mark;

  [[noreturn]] void fail(const Mark& mark, std::string_view what) const {
    // yaml-cpp counts from 0, and marks with -1 what has no place
    throw DataError(formatted("file '{}', line {}, column {}: {}", name_,
                              mark.line < 0 ? 1 : mark.line + 1,
                              mark.column < 0 ? 1 : mark.column + 1, printable(what, 1000)));
  }

  /// Makes nodes of the parser's events, the root first.
  class Builder final : public YAML::EventHandler {
   public:
    explicit Builder(YamlDocument& document) : document_(document) {}

    void OnDocumentStart(const Mark& mark) override {
      if (!document_.nodes_.empty()) document_.fail(mark, "one document is all that is read");
    }
    void OnDocumentEnd() override {}
    void OnNull(const Mark& mark, YAML::anchor_t anchor) override {
      scalar(mark, anchor, "", false);
    }
    void OnScalar(const Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& value) override {
      check_tag(mark, tag);
      scalar(mark, anchor, value, tag == "!");
    }
    void OnAlias(const Mark& mark, YAML::anchor_t anchor) override {
      const auto found = anchors_.find(anchor);
      if (found == anchors_.end()) document_.fail(mark, "the alias is inside what it names");
      if (expects_key()) document_.fail(mark, "a key must be a scalar, not an alias");
      attach(mark, found->second);
    }
    void OnSequenceStart(const Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
      open(mark, tag, anchor, YamlNode::Kind::sequence);
    }
    void OnSequenceEnd() override { close(); }
    void OnMapStart(const Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value) override {
      open(mark, tag, anchor, YamlNode::Kind::mapping);
    }
    void OnMapEnd() override { close(); }

   private:
    struct Open {
      std::size_t node;
      YAML::anchor_t anchor;
      bool has_key = false;
      std::string key;
    };

    bool expects_key() const {
      return !open_.empty() && !open_.back().has_key &&
             document_.nodes_[open_.back().node].kind == YamlNode::Kind::mapping;
    }
    void check_tag(const Mark& mark, const std::string& tag) const {
      if (!tag.empty() && tag != "?" && tag != "!")
        document_.fail(mark, formatted("tags are not read: remove '{}'", tag));
    }
    std::size_t add(const Mark& mark, YamlNode::Kind kind) {
      document_.nodes_.push_back({.kind = kind, .line = mark.line + 1, .column = mark.column + 1});
      return document_.nodes_.size() - 1;
    }
    void attach(const Mark& mark, std::size_t node) {
      if (open_.empty()) return;
      Open& parent = open_.back();
      YamlNode& into = document_.nodes_[parent.node];
      if (into.kind == YamlNode::Kind::sequence) return into.items.push_back(node);
      if (!parent.has_key) document_.fail(mark, "a key must be a scalar");
      into.pairs.emplace_back(std::move(parent.key), node);
      parent.has_key = false;
    }
    void scalar(const Mark& mark, YAML::anchor_t anchor, const std::string& text, bool quoted) {
      if (expects_key()) {
        Open& parent = open_.back();
        if (!keys_.emplace(std::pair(parent.node, text)).second)
          document_.fail(mark, formatted("the key was there before: '{}'", text));
        parent.has_key = true;
        parent.key = text;
        return;
      }
      const std::size_t node = add(mark, YamlNode::Kind::scalar);
      document_.nodes_[node].text = text;
      document_.nodes_[node].quoted = quoted;
      attach(mark, node);
      if (anchor != 0) anchors_[anchor] = node;
    }
    void open(const Mark& mark, const std::string& tag, YAML::anchor_t anchor,
              YamlNode::Kind kind) {
      check_tag(mark, tag);
      if (open_.size() >= static_cast<std::size_t>(kMaxDepth))
        document_.fail(mark, "nested too deeply");
      const std::size_t node = add(mark, kind);
      attach(mark, node);
      open_.push_back({node, anchor, false, {}});
    }
    void close() {
      if (open_.back().anchor != 0) anchors_[open_.back().anchor] = open_.back().node;
      open_.pop_back();
    }

    YamlDocument& document_;
    std::vector<Open> open_;
    std::map<YAML::anchor_t, std::size_t> anchors_;
    std::set<std::pair<std::size_t, std::string>> keys_;
  };

  std::string name_;
  std::vector<YamlNode> nodes_;
};

}}}  // namespace tessera::v0::detail
