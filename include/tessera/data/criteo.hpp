// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
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

namespace tessera::inline v0 {

inline constexpr int kCriteoIntegers = 13;
inline constexpr int kCriteoCategories = 26;

/// One line of a Criteo click file, as it stands there.
struct CriteoRecord {
  static constexpr std::int32_t kMissing = std::numeric_limits<std::int32_t>::min();

  std::uint32_t missing_categories = 0;                       ///< bit f: category f is empty
  std::array<std::int32_t, kCriteoIntegers> integers{};       ///< kMissing where the field is empty
  std::array<std::uint32_t, kCriteoCategories> categories{};  ///< 0 where the field is empty; 0 is also a value: see the bits
  std::uint8_t label = 0;                                     ///< 0 or 1

  bool missing(int category) const { return (missing_categories >> category & 1u) != 0; }
  friend bool operator==(const CriteoRecord&, const CriteoRecord&) = default;
};

/// What to do about a line that is not a Criteo record: throw DataError, or count it and go on.
enum class BadLines : std::uint8_t { fatal, skip };

struct CriteoReaderOptions {
  std::int64_t first_line = 0;                                       ///< lines [first_line, end_line) of the file, counted from 0,
  std::int64_t end_line = std::numeric_limits<std::int64_t>::max();  ///< bad ones included
  BadLines bad_lines = BadLines::fatal;
  std::size_t chunk_bytes = std::size_t{1} << 20;  ///< asked of the source at a time; any positive number gives the same records
};

namespace detail {

/// The values of hexadecimal digits; 255 for every other character.
inline constexpr std::array<std::uint8_t, 256> kHexDigits = [] {
  std::array<std::uint8_t, 256> digits{};
  digits.fill(255);
  for (std::uint8_t i = 0; i < 10; ++i) digits['0' + i] = i;
  for (std::uint8_t i = 0; i < 6; ++i) digits['a' + i] = digits['A' + i] = static_cast<std::uint8_t>(10 + i);
  return digits;
}();

/// Parses one line, without its newline but with a byte behind it that is neither digit nor tab. Returns nullptr if it is good,
/// else what is wrong with it; `field` is then the number of the field at fault (1..40).
inline const char* parse_criteo_line(const char* p, const char* end, CriteoRecord& record, int& field) {
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
    for (unsigned digit; (digit = static_cast<unsigned char>(*p) - unsigned{'0'}) < 10 && p != end; ++p) {
      value = value * 10 + digit;
      if (value > std::uint64_t{std::numeric_limits<std::int32_t>::max()}) return "the integer does not fit 32 bits";
    }
    if (p == digits || (p != end && *p != '\t')) return "the field is not an integer";
    record.integers[i] = negative ? -static_cast<std::int32_t>(value) : static_cast<std::int32_t>(value);
  }
  for (int i = 0; i < kCriteoCategories; ++i) {
    ++field;
    if (p == end) return "the line ends too early: 40 fields are needed";
    ++p;
    const char* const digits = p;
    std::uint32_t value = 0;
    for (std::uint8_t digit; p != end && (digit = kHexDigits[static_cast<unsigned char>(*p)]) != 255; ++p) value = value << 4 | digit;
    if (p - digits > 8 || (p != end && *p != '\t')) return "the category is not a hexadecimal number of at most 8 digits";
    record.categories[i] = value;
    record.missing_categories |= std::uint32_t{p == digits} << i;
  }
  if (p != end) return "more than 40 fields";
  return nullptr;
}

}  // namespace detail

/// Fills the span from the front and returns how many bytes it gave; 0 only at the end. May give fewer than asked for.
using ByteSource = std::function<std::size_t(std::span<char>)>;

/// The bytes of a file from `offset` on. Throws DataError, naming the file, if it can't be opened or read.
inline ByteSource file_source(const std::filesystem::path& path, std::int64_t offset = 0) {
  std::error_code ignored;
  require<DataError>(!std::filesystem::is_directory(path, ignored), "cannot read '{}': it is a directory", path.string());
  const std::shared_ptr<std::FILE> file(std::fopen(path.c_str(), "rb"), [](std::FILE* f) {
    if (f != nullptr) std::fclose(f);
  });
  require<DataError>(file != nullptr, "cannot open '{}': {}", path.string(), std::strerror(errno));
  std::setvbuf(file.get(), nullptr, _IONBF, 0);  // the readers ask for big chunks into buffers of their own
  require<DataError>(offset == 0 || fseeko(file.get(), offset, SEEK_SET) == 0, "cannot seek in '{}': {}", path.string(),
                     std::strerror(errno));
  return [file, name = path.string()](std::span<char> chunk) {
    const std::size_t bytes = std::fread(chunk.data(), 1, chunk.size(), file.get());
    require<DataError>(bytes == chunk.size() || std::ferror(file.get()) == 0, "cannot read '{}': {}", name, std::strerror(errno));
    return bytes;
  };
}

/// Where the lines of a file begin: one pass counts them and keeps the place of every `stride`-th, so that a rank can start
/// reading at any line. A last line without a newline counts.
class LineIndex {
 public:
  explicit LineIndex(const std::filesystem::path& path, std::int64_t stride = 4096) : stride_(stride) {
    require(stride > 0, "LineIndex: stride ({}) must be positive", stride);
    const ByteSource source = file_source(path);
    std::vector<char> chunk(std::size_t{1} << 20);
    std::int64_t at = 0;
    bool open = false;  // the last byte seen belongs to a line that has not ended
    while (const std::size_t bytes = source(chunk)) {
      const char* const begin = chunk.data();
      const char* const end = begin + bytes;
      for (const char* p = begin; p != end;) {
        const char* const newline = static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p)));
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
  /// The last indexed line that is not behind `line`: its number and its place in the file.
  std::pair<std::int64_t, std::int64_t> at_or_before(std::int64_t line) const {
    const std::int64_t i = std::clamp<std::int64_t>(line / stride_, 0, static_cast<std::int64_t>(offsets_.size()) - 1);
    return {i * stride_, offsets_[static_cast<std::size_t>(i)]};
  }

 private:
  std::int64_t stride_;
  std::int64_t lines_ = 0;
  std::vector<std::int64_t> offsets_ = {0};
};

/// Streams a Criteo click file: per line a label, 13 integers, 26 hexadecimal categories, separated by tabs; all but the label may
/// be empty. Lines end in \n or \r\n; the last may lack it. Memory is one chunk, whatever the file's size. A bad line (also one
/// longer than 4096 bytes) is a DataError that names file, line (from 1) and field, or is counted and skipped.
class CriteoReader {
 public:
  static constexpr std::size_t kMaxLine = 4096;

  /// With an index of the same file, reading starts near `first_line`; without, the lines before it are read over.
  explicit CriteoReader(const std::filesystem::path& path, CriteoReaderOptions options = {}, const LineIndex* index = nullptr)
      : CriteoReader(file_source(path, index == nullptr ? 0 : index->at_or_before(options.first_line).second), path.string(), options) {
    if (index != nullptr) line_ = index->at_or_before(options.first_line).first;
  }

  /// Reads from any source of bytes; `name` stands for the file in messages.
  CriteoReader(ByteSource source, std::string name, CriteoReaderOptions options = {})
      : source_(std::move(source)), name_(std::move(name)), options_(options), buffer_(kMaxLine + 2 + options.chunk_bytes) {
    require(options.chunk_bytes > 0, "CriteoReader: chunk_bytes must be positive");
    require(options.first_line >= 0 && options.first_line <= options.end_line, "CriteoReader: lines [{}, {}) are no range",
            options.first_line, options.end_line);
  }

  /// Fills the span from the front with the next good records; returns how many. Fewer than asked for: the range is at its end.
  std::size_t read(std::span<CriteoRecord> records) {
    std::size_t count = 0;
    while (count < records.size() && line_ < options_.end_line) {
      const Line line = next_line();
      if (line.begin == nullptr) break;
      if (line_++ < options_.first_line) continue;
      int field = 0;
      const char* fault = "the line is longer than 4096 bytes";
      if (!line.too_long) fault = detail::parse_criteo_line(line.begin, line.end, records[count], field);
      if (fault == nullptr) {
        ++count;
        continue;
      }
      ++bad_lines_;
      if (options_.bad_lines == BadLines::fatal) throw DataError(describe(field, fault));
      if (first_bad_line_.empty()) first_bad_line_ = describe(field, fault);
    }
    return count;
  }

  /// Lines passed so far, counted from the file's beginning.
  std::int64_t lines() const { return line_; }
  /// Bad lines so far.
  std::int64_t bad_lines() const { return bad_lines_; }
  /// What was wrong with the first line skipped; empty if there was none.
  const std::string& first_bad_line() const { return first_bad_line_; }

 private:
  struct Line {
    const char* begin = nullptr;
    const char* end = nullptr;
    bool too_long = false;
  };

  std::string describe(int field, const char* fault) const {
    return field == 0 ? fmt::format("file '{}', line {}: {}", name_, line_, fault)
                      : fmt::format("file '{}', line {}, field {}: {}", name_, line_, field, fault);
  }

  /// The next line without its end; begin is null at the end of the source. Of a line that is too long only a part is kept.
  Line next_line() {
    bool too_long = false;
    for (std::size_t searched = 0;;) {
      char* const begin = buffer_.data() + begin_;
      const std::size_t held = end_ - begin_;
      char* newline = static_cast<char*>(std::memchr(begin + searched, '\n', held - searched));
      if (newline == nullptr && ended_) {
        if (held == 0 && !too_long) return {};
        newline = begin + held;  // a last line without newline; the buffer has room for one byte more
        *newline = '\n';
        begin_ = end_;
      } else if (newline != nullptr) {
        begin_ = static_cast<std::size_t>(newline + 1 - buffer_.data());
      } else {
        // Enough of an endless line is dropped for the buffer to stay as it is.
        if (held > kMaxLine + 1) {
          too_long = true;
          begin_ = end_;
        }
        searched = end_ - begin_;
        fill();
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
  std::int64_t line_ = 0;
  std::int64_t bad_lines_ = 0;
  std::string first_bad_line_;
};

/// All good records of a file or of a range of its lines. For files that fit into memory (164 bytes a record).
inline std::vector<CriteoRecord> read_criteo(const std::filesystem::path& path, CriteoReaderOptions options = {},
                                             const LineIndex* index = nullptr) {
  CriteoReader reader(path, options, index);
  std::vector<CriteoRecord> records;
  std::vector<CriteoRecord> block(4096);
  while (const std::size_t count = reader.read(block))
    records.insert(records.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count));
  return records;
}

/// Appends the record as one line of a Criteo file, newline included.
inline void append_criteo_line(std::string& out, const CriteoRecord& record) {
  out.push_back(static_cast<char>('0' + record.label));
  for (const std::int32_t value : record.integers) {
    out.push_back('\t');
    if (value != CriteoRecord::kMissing) out += fmt::format("{}", value);
  }
  for (int f = 0; f < kCriteoCategories; ++f) {
    out.push_back('\t');
    if (!record.missing(f)) out += fmt::format("{:08x}", record.categories[f]);
  }
  out.push_back('\n');
}

}  // namespace tessera::inline v0
