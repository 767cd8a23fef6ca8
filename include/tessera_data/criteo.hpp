// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/regular_file.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Numbers of a line.
inline constexpr int kCriteoIntegers = 13;
/// Categories of a line.
inline constexpr int kCriteoCategories = 26;

/// One line of a Criteo click file, unchanged.
struct CriteoRecord {
  static constexpr std::int32_t kMissing = std::numeric_limits<std::int32_t>::min();

  std::uint32_t missing_categories = 0;                  ///< bit f: category f is empty
  std::array<std::int32_t, kCriteoIntegers> integers{};  ///< kMissing if the field is empty
  /// 0 if the field is empty; 0 is also a value: see the bits
  std::array<std::uint32_t, kCriteoCategories> categories{};
  std::uint8_t label = 0;  ///< 0 or 1

  bool missing(int category) const { return (missing_categories >> category & 1u) != 0; }
  friend bool operator==(const CriteoRecord&, const CriteoRecord&) = default;
};

/// What to do about a line that is not a Criteo record: throw DataError, or count it and go on.
enum class BadLines : std::uint8_t { fatal, skip };

/// Which lines a CriteoReader reads, and what it makes of bad ones.
struct CriteoReaderOptions {
  /// lines [first_line, end_line) of the file, counted from 0,
  std::int64_t first_line = 0;
  std::int64_t end_line = std::numeric_limits<std::int64_t>::max();  ///< bad ones included
  BadLines bad_lines = BadLines::fatal;
  /// asked of the source at a time; any positive number gives the same records
  std::size_t chunk_bytes = std::size_t{1} << 20;
};

namespace detail {

/// The values of hexadecimal digits; 255 for every other character.
inline constexpr std::array<std::uint8_t, 256> kHexDigits = [] {
  std::array<std::uint8_t, 256> digits{};
  digits.fill(255);
  for (std::uint8_t i = 0; i < 10; ++i) digits['0' + i] = i;
  for (std::uint8_t i = 0; i < 6; ++i)
    digits['a' + i] = digits['A' + i] = static_cast<std::uint8_t>(10 + i);
  return digits;
}();

/// Parses one line, without its newline but with a byte behind it that is neither digit nor tab.
/// Returns nullptr if it is good, else what is wrong with it; `field` is then the number of the
/// field at fault (1..40).
inline const char* parse_criteo_line(const char* p, const char* end, CriteoRecord& record,
                                     int& field) {
  record.missing_categories = 0;
  field = 1;
  if (p == end || (*p != '0' && *p != '1')) return "the label must be 0 or 1";
  record.label = static_cast<std::uint8_t>(*p++ - '0');
  if (p != end && *p != '\t') return "the label must be 0 or 1";
  for (int i = 0; i < kCriteoIntegers; ++i) {
    ++field;
    if (p == end) return "the line ends too early: 40 fields are needed";
    ++p;  // the tab
    if (p == end || *p == '\t') {
      record.integers[i] = CriteoRecord::kMissing;
      continue;
    }
    const bool negative = *p == '-';
    p += negative;
    const char* const digits = p;
    std::uint64_t value = 0;
    for (unsigned digit; (digit = static_cast<unsigned char>(*p) - unsigned{'0'}) < 10 && p != end;
         ++p) {
      value = value * 10 + digit;
      if (value > std::uint64_t{std::numeric_limits<std::int32_t>::max()})
        return "the integer does not fit 32 bits";
    }
    if (p == digits || (p != end && *p != '\t')) return "the field is not an integer";
    record.integers[i] =
        negative ? -static_cast<std::int32_t>(value) : static_cast<std::int32_t>(value);
  }
  for (int i = 0; i < kCriteoCategories; ++i) {
    ++field;
    if (p == end) return "the line ends too early: 40 fields are needed";
    ++p;
    const char* const digits = p;
    std::uint32_t value = 0;
    for (std::uint8_t digit;
         p != end && (digit = kHexDigits[static_cast<unsigned char>(*p)]) != 255; ++p)
      value = value << 4 | digit;
    if (p - digits > 8 || (p != end && *p != '\t'))
      return "the category is not a hexadecimal number of at most 8 digits";
    record.categories[i] = value;
    record.missing_categories |= std::uint32_t{p == digits} << i;
  }
  if (p != end) return "more than 40 fields";
  return nullptr;
}

/// What a file is that begins so. `tool` undoes a compression; `format` is another kind of data;
/// both are empty for text.
struct FileKind {
  std::string_view tool, format;
};

/// Returns the kind by a file's first bytes, 16 or all.
inline FileKind file_kind(std::string_view begin) {
  constexpr std::pair<std::string_view, std::string_view> kTools[] = {
      {"\x1f\x8b", "gzip"},        {"\x28\xb5\x2f\xfd", "zstd"},
      {"\xfd\x37zXZ", "xz"},       {"BZh", "bzip2"},
      {"PK\x03\x04", "zip"},       {"\x04\x22\x4d\x18", "lz4"},
      {"\x02\x21\x4c\x18", "lz4"}, {"7z\xbc\xaf\x27\x1c", "7z"},
      {"\x1f\x9d", "compress"},    {"\xff\x06", "snappy"}};
  constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
      {"PAR1", "Parquet"},    {"ORC", "ORC"},
      {"ARROW1", "Arrow"},    {"FEA1", "Feather"},
      {"\x89HDF", "HDF5"},    {"\x93NUMPY", "NumPy"},
      {"Obj\x01", "Avro"},    {"SQLite format 3", "SQLite"},
      {"\x80\x04", "pickle"}, {"\x80\x05", "pickle"}};
  for (const auto& [mark, tool] : kTools)
    if (begin.starts_with(mark)) return {tool, {}};
  // a frame of zstd that its readers pass over
  if (begin.size() >= 4 && (begin[0] & 0xf0) == 0x50 && begin.substr(1, 3) == "\x2a\x4d\x18")
    return {"zstd", {}};
  // a column may have the name of a format; text has no such bytes
  const bool is_text = std::none_of(begin.begin(), begin.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\t' && c != '\n' && c != '\r';
  });
  for (const auto& [mark, format] : kFormats)
    if (begin.starts_with(mark) && (!is_text || (mark[0] & 0x80) != 0)) return {{}, format};
  return {};
}

/// Returns what to do about a file of another kind than text; empty: it is text.
inline std::string not_text(FileKind kind) {
  if (!kind.tool.empty())
    return formatted("the file looks compressed ({}); decompress it first", kind.tool);
  if (!kind.format.empty())
    return formatted("this is a {} file; write it as CSV or TSV text first", kind.format);
  return {};
}

/// Returns what is wrong with a line that has too few or too many fields; empty: their number is
/// right.
inline std::string wrong_field_count(std::string_view line) {
  constexpr int kFields = 1 + kCriteoIntegers + kCriteoCategories;
  const auto fields = std::count(line.begin(), line.end(), '\t') + 1,
             commas = std::count(line.begin(), line.end(), ',');
  if (fields == kFields) return {};
  return formatted(
      "the line has {} tab-separated field{}{}; a Criteo line has {}: a label, {} integers, {} "
      "categories",
      fields, fields == 1 ? "" : "s",
      fields == 1 && commas > 0 ? formatted(" and {} commas", commas) : "", kFields,
      kCriteoIntegers, kCriteoCategories);
}

/// Returns whether a first line begins with a name instead of a label.
inline bool looks_like_header(std::string_view line) {
  return !line.empty() && ((line[0] >= 'a' && line[0] <= 'z') ||
                           (line[0] >= 'A' && line[0] <= 'Z') || line[0] == '"');
}

}  // namespace detail

/// Fills the span from the front and returns how many bytes it gave; 0 only at the end. May give
/// fewer than asked for.
using ByteSource = std::function<std::size_t(std::span<char>)>;

/// Returns the bytes of a file from `offset` on. Throws DataError, naming the file, if it can't be
/// opened or read, or is no regular file (a pipe gives its bytes only once: read it through a
/// ByteSource of your own).
inline ByteSource file_source(const std::filesystem::path& path, std::int64_t offset = 0) {
  const auto file = std::make_shared<const detail::RegularFile>(path);
  return [file, offset](std::span<char> chunk) mutable {
    const std::size_t bytes = file->read(chunk.data(), chunk.size(), offset);
    offset += static_cast<std::int64_t>(bytes);
    return bytes;
  };
}

/// Where the lines of a file begin: one pass counts them and keeps the place of every `stride`-th,
/// so that a rank can start reading at any line. A last line without a newline counts.
class LineIndex {
 public:
  explicit LineIndex(const std::filesystem::path& path, std::int64_t stride = 4096)
      : stride_(stride) {
    require(stride > 0, "LineIndex: stride ({}) must be positive", stride);
    const ByteSource source = file_source(path);
    std::vector<char> chunk(std::size_t{1} << 20);
    std::int64_t at = 0;
    bool open = false;  // the last byte seen belongs to a line that has not ended
    while (const std::size_t bytes = source(chunk)) {
      const char* const begin = chunk.data();
      const char* const end = begin + bytes;
      for (const char* p = begin; p != end;) {
        const char* const newline =
            static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p)));
        open = newline == nullptr;
        if (open) break;
        p = newline + 1;
        if (++lines_ % stride_ == 0) offsets_.push_back(at + (p - begin));
      }
      at += static_cast<std::int64_t>(bytes);
    }
    lines_ += open;
  }

  std::int64_t lines() const { return lines_; }
  /// Returns the last indexed line that is not behind `line`: its number and its place in the file.
  std::pair<std::int64_t, std::int64_t> at_or_before(std::int64_t line) const {
    const std::int64_t i =
        std::clamp<std::int64_t>(line / stride_, 0, static_cast<std::int64_t>(offsets_.size()) - 1);
    return {i * stride_, offsets_[static_cast<std::size_t>(i)]};
  }

 private:
  std::int64_t stride_;
  std::int64_t lines_ = 0;
  std::vector<std::int64_t> offsets_ = {0};
};

/// Streams a Criteo click file: per line a label, 13 integers, 26 hexadecimal categories, separated
/// by tabs; all but the label may be empty. Lines end in \n or \r\n; the last may lack it. Memory
/// is one chunk, whatever the file's size. A bad line (also one longer than 4096 bytes) is a
/// DataError that names file, line (from 1) and field, or says how many fields there are, or is
/// counted and skipped.
///
///     CriteoReader reader("day_0");
///     std::vector<CriteoRecord> records(4096);
///     while (const std::size_t count = reader.read(records)) total += count;
class CriteoReader {
 public:
  static constexpr std::size_t kMaxLine = 4096;

  /// Opens a file. With an index of the same file, reading starts near `first_line`; without, the
  /// lines before it are read over.
  explicit CriteoReader(const std::filesystem::path& path, CriteoReaderOptions options = {},
                        const LineIndex* index = nullptr)
      : CriteoReader(
            file_source(path,
                        index == nullptr ? 0 : index->at_or_before(options.first_line).second),
            path.string(), options) {
    if (index != nullptr) line_ = index->at_or_before(options.first_line).first;
  }

  /// Reads from any source of bytes; `name` is the file's in messages.
  CriteoReader(ByteSource source, std::string name, CriteoReaderOptions options = {})
      : source_(std::move(source)),
        name_(std::move(name)),
        options_(options),
        buffer_(kMaxLine + 2 + options.chunk_bytes) {
    require(options.chunk_bytes > 0, "CriteoReader: chunk_bytes must be positive");
    require(options.first_line >= 0 && options.first_line <= options.end_line,
            "CriteoReader: lines [{}, {}) are no range", options.first_line, options.end_line);
  }

  /// Fills the span from the front with the next good records; returns how many. Fewer than asked
  /// for: the range is at its end.
  std::size_t read(std::span<CriteoRecord> records) {
    std::size_t count = 0;
    while (count < records.size() && line_ < options_.end_line) {
      const Line line = next_line();
      if (line.begin == nullptr) break;
      if (line_++ < options_.first_line) continue;
      int field = 0;
      const char* fault = "the line is longer than 4096 bytes";
      if (!line.too_long)
        fault = detail::parse_criteo_line(line.begin, line.end, records[count], field);
      if (fault == nullptr) {
        ++count;
        continue;
      }
      ++bad_lines_;
      if (options_.bad_lines == BadLines::fatal) throw DataError(describe(line, field, fault));
      if (first_bad_line_.empty()) first_bad_line_ = describe(line, field, fault);
    }
    return count;
  }

  /// Returns the lines passed so far, counted from the file's beginning.
  std::int64_t lines() const { return line_; }
  std::int64_t bad_lines() const { return bad_lines_; }
  /// Returns what was wrong with the first line skipped; empty if there was none.
  const std::string& first_bad_line() const { return first_bad_line_; }

 private:
  struct Line {
    const char* begin = nullptr;
    const char* end = nullptr;
    bool too_long = false;
  };

  /// Describes a bad line. Often it is one of many: the file is of another kind.
  std::string describe(const Line& line, int field, const char* fault) const {
    const std::string_view text(line.begin, static_cast<std::size_t>(line.end - line.begin));
    const std::string place = detail::formatted("file '{}', line {}", name_, line_);
    const detail::FileKind kind = detail::file_kind(text.substr(0, 16));
    if (line_ == 1 && (kind.format == "Parquet" || kind.format == "Arrow"))
      return detail::formatted(
          "{}: this is a {} file; it needs a schema that says what its columns mean: --schema FILE",
          place, kind.format);
    if (const std::string other = detail::not_text(kind); line_ == 1 && !other.empty())
      return detail::formatted("{}: {}", place, other);
    const std::size_t mac = text.find('\r');
    if (line_ == 1 && mac != std::string_view::npos)
      return detail::formatted(
          "{}: lines end in CR alone, as on old Macs; convert them, as by tr "
          "'\\r' '\\n'",
          place);
    if (field == 0) return detail::formatted("{}: {}", place, fault);
    const std::string count = detail::wrong_field_count(text);
    const bool header = detail::looks_like_header(text);
    const char* const advice =
        line_ != 1 ? ""
        : !count.empty() && (header || text.find(',') != std::string_view::npos)
            ? "; a CSV or TSV file needs a schema that says what its columns mean: --schema FILE"
        : field == 1 && header ? "; if it is a header, remove it"
                               : "";
    return count.empty() ? detail::formatted("{}, field {}: {}{}", place, field, fault, advice)
                         : detail::formatted("{}: {}{}", place, count, advice);
  }

  /// Returns the next line without its end; begin is null at the end of the source. Of a line that
  /// is too long only a part is kept; where it is fatal, the rest is not even read before the next
  /// call.
  Line next_line() {
    // known: the line's beginning was given out before
    bool too_long = false, known = std::exchange(rest_is_known_, false);
    for (std::size_t searched = 0;;) {
      char* const begin = buffer_.data() + begin_;
      const std::size_t held = end_ - begin_;
      char* newline = static_cast<char*>(std::memchr(begin + searched, '\n', held - searched));
      if (newline == nullptr && ended_) {
        if (held == 0 && !too_long) return {};
        // a last line without newline; the buffer has room for one byte more
        newline = begin + held;
        *newline = '\n';
        begin_ = end_;
      } else if (newline != nullptr) {
        begin_ = static_cast<std::size_t>(newline + 1 - buffer_.data());
      } else {
        // Enough of an endless line is dropped for the buffer not to grow.
        if (held > kMaxLine + 1) {
          too_long = true;
          begin_ = end_;
          if (!known && options_.bad_lines == BadLines::fatal && line_ >= options_.first_line) {
            rest_is_known_ = true;
            return {begin, begin + held, true};
          }
        }
        searched = end_ - begin_;
        fill();
        continue;
      }
      if (std::exchange(known, false)) {
        too_long = false;
        searched = 0;
        continue;
      }
      const char* end = newline;
      if (end != begin && end[-1] == '\r') --end;
      return {begin, end, too_long || end - begin > static_cast<std::ptrdiff_t>(kMaxLine)};
    }
  }

  void fill() {
    if (begin_ != 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    const std::size_t room = std::min(options_.chunk_bytes, buffer_.size() - 1 - end_);
    const std::size_t bytes = source_({buffer_.data() + end_, room});
    ended_ = bytes == 0;
    end_ += bytes;
  }

  ByteSource source_;
  std::string name_;
  CriteoReaderOptions options_;
  std::vector<char> buffer_;  // bytes [begin_, end_) are read but not yet parsed
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool ended_ = false;
  bool rest_is_known_ = false;  // the buffer begins within a line that was reported as too long
  std::int64_t line_ = 0;
  std::int64_t bad_lines_ = 0;
  std::string first_bad_line_;
};

/// Returns all good records of a file or of a range of its lines. For files that fit into memory
/// (164 bytes a record).
inline std::vector<CriteoRecord> read_criteo(const std::filesystem::path& path,
                                             CriteoReaderOptions options = {},
                                             const LineIndex* index = nullptr) {
  CriteoReader reader(path, options, index);
  std::vector<CriteoRecord> records;
  std::vector<CriteoRecord> block(4096);
  while (const std::size_t count = reader.read(block))
    records.insert(records.end(), block.begin(),
                   block.begin() + static_cast<std::ptrdiff_t>(count));
  return records;
}

/// Returns a number that tells records apart, in their order; `before`: that of the records before
/// them.
inline std::uint64_t criteo_checksum(std::span<const CriteoRecord> records,
                                     std::uint64_t before = 0) {
  for (const CriteoRecord& record : records) {
    constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15u;
    std::uint64_t sum = std::uint64_t{record.missing_categories} << 8 | record.label;
    for (const std::int32_t value : record.integers)
      sum = sum * kFactor + static_cast<std::uint32_t>(value);
    for (const std::uint32_t value : record.categories) sum = sum * kFactor + value;
    before = mix64(before ^ sum);
  }
  return before;
}

/// Reads all good records of a click file as often as asked. Every pass must find what the first
/// one found: a file that somebody writes to or cuts off meanwhile is a DataError.
class CriteoPasses {
 public:
  explicit CriteoPasses(std::filesystem::path path, BadLines bad_lines = BadLines::fatal)
      : path_(std::move(path)), bad_lines_(bad_lines) {}

  /// Calls visit(records), a span of CriteoRecord, for one block after the other.
  template <class Visit>
  void read(Visit visit) {
    CriteoReader reader(path_, {.bad_lines = bad_lines_});
    std::vector<CriteoRecord> block(4096);
    std::int64_t count = 0;
    std::uint64_t checksum = 0;
    while (const std::size_t found = reader.read(block)) {
      const std::span<const CriteoRecord> records(block.data(), found);
      count += static_cast<std::int64_t>(found);
      checksum = criteo_checksum(records, checksum);
      if (again_ && count > records_) break;
      visit(records);
    }
    require<DataError>(!again_ || (count == records_ && checksum == checksum_),
                       "file '{}' changed while it was read; read a copy that no program writes to",
                       path_.string());
    again_ = true;
    records_ = count;
    checksum_ = checksum;
    skipped_ = reader.bad_lines();
    first_skipped_ = reader.first_bad_line();
  }

  /// Returns the records of the first pass.
  std::int64_t records() const { return records_; }
  /// Return the bad lines of a pass, and what was wrong with the first one.
  std::int64_t bad_lines() const { return skipped_; }
  const std::string& first_bad_line() const { return first_skipped_; }

 private:
  std::filesystem::path path_;
  BadLines bad_lines_;
  bool again_ = false;
  std::int64_t records_ = 0, skipped_ = 0;
  std::uint64_t checksum_ = 0;
  std::string first_skipped_;
};

/// Appends the record as one line of a Criteo file, newline included.
inline void append_criteo_line(std::string& out, const CriteoRecord& record) {
  out.push_back(static_cast<char>('0' + record.label));
  for (const std::int32_t value : record.integers) {
    out.push_back('\t');
    if (value != CriteoRecord::kMissing) out += detail::formatted("{}", value);
  }
  for (int f = 0; f < kCriteoCategories; ++f) {
    out.push_back('\t');
    if (!record.missing(f)) out += detail::formatted("{:08x}", record.categories[f]);
  }
  out.push_back('\n');
}

}}  // namespace tessera::v0
