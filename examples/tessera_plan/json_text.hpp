// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads the JSON of models, clusters and results, in which no key may be given twice.
#pragma once

#include <tessera/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace plan {

/// Counts the lines of a text that is read: `line` is that of the character that was read last.
struct LineCount {
  std::int64_t line = 1;
  bool ended = false;
};

/// The characters of a text, counted as they are read.
struct CountedText {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  LineCount* count = nullptr;

  const char& operator*() const { return *at; }
  CountedText& operator++() {
    count->line += count->ended;
    count->ended = *at == '\n';
    ++at;
    return *this;
  }
  CountedText operator++(int) {
    const CountedText before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountedText& other) const { return at == other.at; }
};

/// Parses a file's JSON. Throws tessera::DataError for a key that an object has twice, of which the
/// parser would keep the last, and for values nested so deep that copying or printing them, which
/// recurses, would end the program; and what the parser throws.
template <class Json>
Json parse_json(const std::string& text, const std::string& file) {
  LineCount count;
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, typename Json::parse_event_t event, Json& parsed) {
    tessera::require<tessera::DataError>(depth <= 64, "{}:{}: the values are nested too deep", file,
                                         count.line);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event != Json::parse_event_t::key) return true;
    const std::string key = parsed.template get<std::string>();
    tessera::require<tessera::DataError>(keys.back().insert(key).second,
                                         "{}:{}: the key was there before: '{}'", file, count.line,
                                         key);
    return true;
  };
  const CountedText begin{text.data(), &count}, end{text.data() + text.size(), &count};
  return Json::parse(begin, end, check);
}

}  // namespace plan
