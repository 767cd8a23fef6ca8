// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/data/criteo.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

struct CsvReaderOptions {
  char separator = ',';
  std::size_t chunk_bytes = std::size_t{1} << 18;       ///< asked of the source at a time, at least
  std::size_t max_record_bytes = std::size_t{1} << 28;  ///< a longer record is a DataError
  std::int64_t first_line = 1;  ///< the number of the source's first line, for messages
};

/// Where a column stands in a header. `where` stands for the header in messages, `who` for what
/// names the column. Throws DataError for one that is missing or there twice.
inline std::size_t column_place(std::span<const std::string_view> header, std::string_view column,
                                std::string_view where, std::string_view who) {
  const auto found = std::find(header.begin(), header.end(), column);
  if (found == header.end()) {
    std::string there;
    for (const std::string_view name : header.first(std::min<std::size_t>(header.size(), 20)))
      there += fmt::format("{}'{}'", there.empty() ? "" : ", ", name);
    throw DataError(fmt::format("{}: there is no column '{}', which {} names; there are {}{}",
                                where, column, who, there, header.size() > 20 ? ", ..." : ""));
  }
  require<DataError>(std::find(found + 1, header.end(), column) == header.end(),
                     "{}: two columns are named '{}'; rename one", where, column);
  return static_cast<std::size_t>(found - header.begin());
}

namespace detail {

/// The whole field as a finite number, with spaces around it or a plus before it.
template <class T>
bool parse_number(std::string_view field, T& number) {
  while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
  while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
  if (!field.empty() && field.front() == '+') field.remove_prefix(1);
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error != std::errc() || end != field.data() + field.size()) return false;
  if constexpr (std::floating_point<T>) return std::isfinite(number);
  return true;
}

}  // namespace detail

/// Reads records of fields with a separator between two. A field may stand in double quotes; it may
/// then hold separators, ends of lines, and quotes, each written twice. A quote inside a field
/// without quotes is a character like others. Lines end in \n or \r\n; the last may lack it; empty
/// lines are passed over, and so is UTF-8's mark at the beginning. Text is taken as it is. Memory
/// is a chunk, or twice the longest record.
class CsvReader {
 public:
  /// `name` stands for the source in messages.
  CsvReader(ByteSource source, std::string name, CsvReaderOptions options = {})
      : source_(std::move(source)),
        name_(std::move(name)),
        options_(options),
        next_line_(options.first_line),
        buffer_(options.chunk_bytes) {
    require(options.chunk_bytes > 0 && options.max_record_bytes > 0,
            "CsvReader: chunk_bytes and max_record_bytes must be positive");
    while (end_ < kMark && fill()) {
    }
    const std::string_view begin(buffer_.data(), end_);
    require<DataError>(!begin.starts_with("\xff\xfe") && !begin.starts_with("\xfe\xff"),
                       "file '{}': the text is UTF-16; convert it to UTF-8", name_);
    if (begin.starts_with("\xef\xbb\xbf")) at_ = begin_ = kMark;
  }

  /// The fields of the next record, until the one after it is read; none at the end. Throws
  /// DataError, with file and line, for quotes that are wrong and for a record that is too long.
  std::span<const std::string_view> next() {
    for (;;) {
      if (begin_ == end_ && !fill()) return {};
      line_ = next_line_;
      const char* const end = scan();
      if (end == nullptr) {
        if (!fill()) ended_ = true;  // the rest is the last record
        continue;
      }
      const auto record = static_cast<std::size_t>(end - (buffer_.data() + begin_));
      next_line_ += lines_;
      offset_ = at_;
      at_ += static_cast<std::int64_t>(record);
      const bool empty =
          extents_.size() == 1 && extents_[0].begin == extents_[0].end && !extents_[0].quoted;
      if (!empty) take_fields();
      begin_ += record;
      if (!empty) return fields_;
    }
  }

  /// Where the last record begins: its line, from 1; its place in the source.
  std::int64_t line() const { return line_; }
  std::int64_t offset() const { return offset_; }
  const std::string& name() const { return name_; }

 private:
  static constexpr std::size_t kMark = 3;
  struct Extent {  // from the record's beginning
    std::size_t begin, end;
    bool quoted, doubled;
  };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw DataError(fmt::format("file '{}', line {}: {}", name_, line_,
                                fmt::format(text, std::forward<Args>(args)...)));
  }

  /// Gets more bytes behind those held; false at the end of the source.
  bool fill() {
    const std::size_t held = end_ - begin_;
    if (begin_ > 0 && held > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, held);
    begin_ = 0;
    end_ = held;
    if (held > options_.max_record_bytes)
      fail("the record is longer than {} bytes; is a quote not closed?", options_.max_record_bytes);
    if (2 * held > buffer_.size()) buffer_.resize(2 * buffer_.size());
    // as much as there is room for, so that a long record is looked at a few times only
    while (end_ < buffer_.size()) {
      const std::size_t bytes = source_(std::span(buffer_).subspan(end_));
      if (bytes == 0) break;
      end_ += bytes;
    }
    return end_ > held;
  }

  /// Finds the fields of the record at begin_. Returns its end, or null where more bytes are
  /// needed.
  const char* scan() {
    const char* const begin = buffer_.data() + begin_;
    const char* const end = buffer_.data() + end_;
    extents_.clear();
    lines_ = 1;
    for (const char* p = begin;; ++p) {
      Extent field{static_cast<std::size_t>(p - begin), 0, false, false};
      if (p != end && *p == '"') {
        p = closing_quote(p, end, field.doubled);
        if (p == nullptr) return nullptr;
        ++field.begin;
        field.quoted = true;
        field.end = static_cast<std::size_t>(p++ - begin);
        if (p == end && !ended_) return nullptr;
        if (p != end && *p == '\r') {
          if (p + 1 == end && !ended_) return nullptr;
          p += p + 1 == end || p[1] == '\n';
        }
        if (p != end && *p != options_.separator && *p != '\n')
          fail("field {}: text behind the closing quote; write a quote inside quotes twice",
               extents_.size() + 1);
      } else {
        while (p != end && *p != options_.separator && *p != '\n') ++p;
        if (p == end && !ended_) return nullptr;
        field.end = static_cast<std::size_t>(p - begin);
        if ((p == end || *p == '\n') && field.end > field.begin && p[-1] == '\r') --field.end;
      }
      extents_.push_back(field);
      if (p == end) return p;
      if (*p == '\n') return p + 1;
    }
  }

  /// From an opening quote to the closing one; null where more bytes are needed.
  const char* closing_quote(const char* p, const char* end, bool& doubled) {
    for (;;) {
      const char* const from = ++p;
      p = static_cast<const char*>(std::memchr(p, '"', static_cast<std::size_t>(end - p)));
      if (p == nullptr && ended_)
        fail("field {}: the quote is not closed before the file ends", extents_.size() + 1);
      if (p == nullptr) return nullptr;
      lines_ += std::count(from, p, '\n');
      if (p + 1 == end) return ended_ ? p : nullptr;
      if (p[1] != '"') return p;
      doubled = true;
      ++p;
    }
  }

  void take_fields() {
    fields_.clear();
    for (const Extent& field : extents_) {
      char* const begin = buffer_.data() + begin_ + field.begin;
      char* end = buffer_.data() + begin_ + field.end;
      if (field.doubled) {
        char* to = begin;
        for (const char* from = begin; from != end; ++from) {
          *to++ = *from;
          if (*from == '"') ++from;
        }
        end = to;
      }
      fields_.emplace_back(begin, static_cast<std::size_t>(end - begin));
    }
  }

  ByteSource source_;
  std::string name_;
  CsvReaderOptions options_;
  std::int64_t line_ = 0, next_line_, lines_ = 1, at_ = 0, offset_ = 0;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  bool ended_ = false;
  std::vector<Extent> extents_;
  std::vector<std::string_view> fields_;
};

}}  // namespace tessera::v0
