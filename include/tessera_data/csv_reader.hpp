// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>
#include <tessera_data/criteo.hpp>
#include <tessera_data/record_source.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// What separates and encloses fields, and how much a record may hold.
struct CsvReaderOptions {
  std::string separator = ",";  ///< between fields; kBlanks: any number of spaces and tabs
  char quote = '"';             ///< around a field; 0: it is a character like others
  std::vector<std::string> columns = {};      ///< of a source without a line of names; else empty
  std::vector<std::string> empty_words = {};  ///< fields without quotes that count as empty
  std::size_t chunk_bytes = std::size_t{1} << 18;       ///< asked of the source at a time, at least
  std::size_t max_record_bytes = std::size_t{1} << 28;  ///< a longer record is a DataError
  std::int64_t first_line = 1;  ///< the number of the source's first line, for messages
  std::size_t fields = 0;       ///< of a record; 0: of the first one

  static constexpr std::string_view kBlanks = "blanks";
};

/// Returns what a program's user or a schema calls a separator: `tab`, `blanks`, or the text
/// itself, 1 to 8 bytes without quotes and ends of lines. Empty: it is none.
inline std::string separator_named(std::string_view name) {
  if (name == "tab") return "\t";
  if (name == CsvReaderOptions::kBlanks) return std::string(name);
  return name.size() > 8 || name.find_first_of("\"\n\r") != std::string_view::npos
             ? std::string()
             : std::string(name);
}

/// Returns what a program's user or a schema calls the character around fields: `none`, or itself,
/// which is ASCII. Throws InvalidArgument.
inline char quote_named(std::string_view name) {
  if (name == "none") return 0;
  require(name.size() == 1 && name[0] > ' ' && name[0] < 0x7f,
          "the quote {} must be one visible ASCII character, or none", detail::quoted(name));
  return name[0];
}

/// Returns where a column is in a header, by its name, or by its name and one of the types that
/// RecBole writes behind it, as in `user_id:token`. `where` names the header in messages, `who`
/// what names the column. Throws DataError for one that is missing or there twice.
inline std::size_t column_place(std::span<const std::string_view> header, std::string_view column,
                                std::string_view where, std::string_view who) {
  const auto is_column = [&](std::string_view name) { return detail::names_column(name, column); };
  const auto found = std::find_if(header.begin(), header.end(), is_column);
  if (found == header.end()) {
    std::string there;
    bool utf8 = true, names = true;
    double number = 0;
    for (const std::string_view name : header) {
      utf8 = utf8 && detail::is_utf8(name);
      names = names && parse_number(name, number) != NumberText::number;
    }
    for (const std::string_view name : header.first(std::min<std::size_t>(header.size(), 20)))
      there += detail::formatted("{}{}", there.empty() ? "" : ", ", detail::quoted(name));
    if (header.size() > 20) there += ", ...";
    if (!utf8) there += "; the names are not UTF-8: convert the file, as by 'iconv -t UTF-8'";
    if (header.size() == 1)
      there +=
          "; if something else separates the fields, give 'separator' (an option: --separator)";
    if (header.size() == 1 || !names)
      there += "; if this is no line of names, give 'columns' (--columns)";
    throw DataError(detail::formatted("{}: there is no column {}, which {} names; there {} {}",
                                      where, detail::quoted(column), who,
                                      header.size() == 1 ? "is one column," : "are", there));
  }
  require<DataError>(std::find_if(found + 1, header.end(), is_column) == header.end(),
                     "{}: two columns are named {}; rename one", where, detail::quoted(column));
  return static_cast<std::size_t>(found - header.begin());
}

/// Reads records of fields with a separator between two. A field may be in quotes; it may then
/// hold separators, ends of lines, and quotes, each written twice. A quote inside a field without
/// quotes is a character like others. Lines end in \n or \r\n; the last may lack it; empty lines
/// are passed over, and so is UTF-8's mark at the beginning. Text is not changed. Memory is a
/// chunk, or twice the longest record: of a record with too many fields they are counted only.
class CsvReader {
 public:
  /// Reads from a source. `name` is the source's in messages.
  CsvReader(ByteSource source, std::string name, CsvReaderOptions options = {})
      : source_(std::move(source)),
        name_(std::move(name)),
        options_(std::move(options)),
        next_line_(options_.first_line),
        buffer_(options_.chunk_bytes) {
    require(options_.chunk_bytes > 0 && options_.max_record_bytes > 0,
            "CsvReader: chunk_bytes and max_record_bytes must be positive");
    require(!options_.separator.empty() &&
                options_.separator.find_first_of("\n\r") == std::string::npos &&
                options_.separator.find(options_.quote) == std::string::npos,
            "CsvReader: the separator {} is empty, or holds the quote or an end of a line",
            detail::quoted(options_.separator));
    blanks_ = options_.separator == CsvReaderOptions::kBlanks;
    most_fields_ = options_.fields != 0 ? options_.fields : options_.columns.size();
    if (options_.first_line != 1) return;  // a file's beginning alone has a mark
    while (end_ < kMark && fill()) {
    }
    const std::string_view begin(buffer_.data(), end_);
    require<DataError>(!begin.starts_with("\xff\xfe") && !begin.starts_with("\xfe\xff"),
                       "file '{}': the text is UTF-16; convert it to UTF-8", name_);
    if (begin.starts_with("\xef\xbb\xbf")) at_ = begin_ = kMark;
  }

  /// Reads from rows that are no text; of the options it takes `empty_words`, and `first_line` as
  /// the number of the first row.
  CsvReader(RecordSource records, std::string name, CsvReaderOptions options)
      : records_(std::move(records)),
        name_(std::move(name)),
        options_(std::move(options)),
        next_line_(options_.first_line) {
    options_.columns = std::move(records_.columns);
  }

  /// Returns the names of the columns: those of the options, else the first record. Throws
  /// DataError if there is none. Valid until the next record is read.
  std::span<const std::string_view> header() {
    if (options_.columns.empty()) {
      next();
      require<DataError>(!fields_.empty(), "file '{}' is empty; it needs a line of column names",
                         name_);
    } else {
      fields_.assign(options_.columns.begin(), options_.columns.end());
    }
    return fields_;
  }

  /// Returns the fields of the next record, until the one after it is read; none at the end. Of a
  /// record with more fields than there should be, one more than that. Throws DataError, with file
  /// and line, for quotes that are wrong and for a record that is too long.
  std::span<const std::string_view> next() {
    if (records_.next) return next_row();
    for (;;) {
      if (begin_ == end_ && !fill()) return fields_.clear(), fields_;
      line_ = next_line_;
      const char* const end = scan();
      if (end == nullptr) {
        if (!fill()) ended_ = true;  // the rest is the last record
        continue;
      }
      const auto record = static_cast<std::size_t>(end - (buffer_.data() + begin_));
      if (line_ == 1 && end[-1] != '\n') check_line_ends({end - record, record});
      next_line_ += lines_;
      offset_ = at_;
      at_ += static_cast<std::int64_t>(record);
      const bool empty = extents_.empty() || (count_ == 1 && extents_[0].begin == extents_[0].end &&
                                              !extents_[0].quoted);
      if (!empty) take_fields();
      begin_ += record;
      if (empty) continue;
      if (most_fields_ == 0) most_fields_ = fields_.size();
      return fields_;
    }
  }

  /// Returns the number of fields of the last record; it may be more than were given.
  std::size_t field_count() const { return count_; }
  /// Says that the last record has another number of fields than it should.
  std::string wrong_field_count() const {
    return detail::formatted("the record has {} field{}, {} {}", count_, count_ == 1 ? "" : "s",
                             options_.columns.empty() ? "the header has" : "'columns' names",
                             most_fields_);
  }
  /// Returns where the last record begins: its line, from 1; its place in the source.
  std::int64_t line() const { return line_; }
  std::int64_t offset() const { return offset_; }
  const std::string& name() const { return name_; }
  /// Returns whether records are rows of a file that is no text; then `line` is a row, from 1.
  bool rows() const { return records_.next != nullptr; }
  /// Returns file and line, or row, of the last record, for messages.
  std::string where() const {
    return detail::formatted("file '{}', {} {}", name_, rows() ? "row" : "line", line_);
  }

 private:
  static constexpr std::size_t kMark = 3;
  static constexpr std::size_t kMostColumns = std::size_t{1} << 17;  ///< of a header
  struct Extent {                                                    // from the record's beginning
    std::size_t begin, end;
    bool quoted, doubled;
  };

  template <class... Args>
  [[noreturn]] void fail(detail::FormatText<Args...> text, const Args&... args) const {
    throw DataError(
        detail::formatted("{}: {}", where(), detail::formatted<Args...>(text, args...)));
  }

  std::span<const std::string_view> next_row() {
    const std::span<const std::string_view> row = records_.next();
    fields_.assign(row.begin(), row.end());
    count_ = fields_.size();
    line_ = next_line_++;
    const auto& words = options_.empty_words;
    if (!words.empty())
      for (std::string_view& field : fields_)
        if (std::find(words.begin(), words.end(), field) != words.end()) field = {};
    return fields_;
  }

  /// Gets more bytes behind those held; false at the end of the source.
  bool fill() {
    const std::size_t held = end_ - begin_;
    if (begin_ > 0 && held > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, held);
    begin_ = 0;
    end_ = held;
    if (held > options_.max_record_bytes) {
      if (line_ == 1) check_line_ends({buffer_.data(), held});
      fail("the record is longer than {} bytes; is a quote not closed?", options_.max_record_bytes);
    }
    if (2 * held > buffer_.size())
      buffer_.resize(
          std::max(buffer_.size(),
                   std::min(2 * buffer_.size(), options_.max_record_bytes + options_.chunk_bytes)));
    // as much as there is room for, so that a long record is looked at a few times only
    while (end_ < buffer_.size()) {
      const std::size_t bytes = source_(std::span(buffer_).subspan(end_));
      if (bytes == 0) break;
      end_ += bytes;
    }
    return end_ > held;
  }

  /// Throws for a text without \n in which \r is alone, but at its end: an old Mac's lines.
  void check_line_ends(std::string_view text) const {
    const std::size_t mac = text.find('\r');
    if (mac != std::string_view::npos && mac + 1 < text.size() &&
        text.find('\n') == std::string_view::npos)
      fail("lines end in CR alone, as on old Macs; convert them, as by tr '\\r' '\\n'");
  }

  /// Returns whether a separator is at p. No value: more bytes are needed to know.
  std::optional<bool> separates(const char* p, const char* end) const {
    if (blanks_) return *p == ' ' || *p == '\t';
    const std::string& separator = options_.separator;
    if (*p != separator[0]) return false;
    if (separator.size() == 1) return true;
    const auto there = static_cast<std::size_t>(end - p);
    if (there < separator.size() && !ended_) return std::nullopt;
    return std::string_view(p, there).starts_with(separator);
  }
  /// Passes over a separator that is at p, of blanks all; null: more bytes are needed.
  const char* pass(const char* p, const char* end) const {
    if (!blanks_) return p + options_.separator.size();
    while (p != end && (*p == ' ' || *p == '\t')) ++p;
    return p == end && !ended_ ? nullptr : p;
  }

  /// Finds the fields of the record at begin_. Returns its end, or null if more bytes are
  /// needed.
  const char* scan() {
    const char* const begin = buffer_.data() + begin_;
    const char* const end = buffer_.data() + end_;
    extents_.clear();
    count_ = 0;
    lines_ = 1;
    const char* p = begin;
    const char first = options_.separator[0], quote = options_.quote;
    const std::size_t most = most_fields_ == 0 ? kMostColumns : most_fields_;
    const bool one = !blanks_ && options_.separator.size() == 1;
    if (blanks_ && (p = pass(p, end)) == nullptr) return nullptr;
    for (;;) {
      // blanks at the end of a line separate nothing
      const bool behind = blanks_ && count_ > 0;
      if (behind && (p == end || *p == '\n')) return p == end ? p : p + 1;
      if (behind && *p == '\r' && (p + 1 == end || p[1] == '\n'))
        return p + 1 == end && !ended_ ? nullptr : p + 1 == end ? p + 1 : p + 2;
      Extent field{static_cast<std::size_t>(p - begin), 0, false, false};
      if (p != end && quote != 0 && *p == quote) {
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
        const std::optional<bool> ends =
            p == end || *p == '\n' || (one && *p == first) ? true : separates(p, end);
        if (!ends) return nullptr;
        if (!*ends)
          fail("field {}: text behind the closing quote; write a quote inside quotes twice",
               count_ + 1);
      } else {
        if (one)  // the usual case, by itself for its speed
          while (p != end && *p != first && *p != '\n') ++p;
        else
          for (; p != end && *p != '\n'; ++p) {
            const std::optional<bool> ends = separates(p, end);
            if (!ends) return nullptr;
            if (*ends) break;
          }
        if (p == end && !ended_) return nullptr;
        field.end = static_cast<std::size_t>(p - begin);
        if ((p == end || *p == '\n') && field.end > field.begin && p[-1] == '\r') --field.end;
      }
      // of too many fields one more than there should be
      if (extents_.size() <= most)
        extents_.push_back(field);
      else if (most_fields_ == 0)
        fail("the line has more than {} fields, which no line of names has", kMostColumns);
      ++count_;
      if (p == end) return p;
      if (*p == '\n') return p + 1;
      if ((p = one ? p + 1 : pass(p, end)) == nullptr) return nullptr;
    }
  }

  /// Goes from an opening quote to the closing one; null if more bytes are needed.
  const char* closing_quote(const char* p, const char* end, bool& doubled) {
    for (;;) {
      const char* const from = ++p;
      p = static_cast<const char*>(
          std::memchr(p, options_.quote, static_cast<std::size_t>(end - p)));
      if (p == nullptr && ended_)
        fail("field {}: the quote is not closed before the file ends", count_ + 1);
      if (p == nullptr) return nullptr;
      lines_ += std::count(from, p, '\n');
      if (p + 1 == end) return ended_ ? p : nullptr;
      if (p[1] != options_.quote) return p;
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
          if (*from == options_.quote) ++from;
        }
        end = to;
      }
      const std::string_view text(begin, static_cast<std::size_t>(end - begin));
      const auto& words = options_.empty_words;
      const bool empty = !words.empty() && !field.quoted &&
                         std::find(words.begin(), words.end(), text) != words.end();
      fields_.push_back(empty ? std::string_view() : text);
    }
  }

  ByteSource source_;
  RecordSource records_;
  std::string name_;
  CsvReaderOptions options_;
  std::int64_t line_ = 0, next_line_, lines_ = 1, at_ = 0, offset_ = 0;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  bool ended_ = false, blanks_ = false;
  std::size_t most_fields_ = 0;  ///< of a record; 0: not known yet
  std::size_t count_ = 0;        ///< fields of the last record; extents_ may hold fewer
  std::vector<Extent> extents_;
  std::vector<std::string_view> fields_;
};

}}  // namespace tessera::v0
