// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The reader against lines written by hand and against a slow, plain parser; its independence of
// the chunk size; bad lines.
#include <tessera/io/mapped_file.hpp>
#include <tessera_data/criteo.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <data/shared_folder.hpp>
#include <support/message_of.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

using namespace tessera;

namespace {

/// A source that hands out a text in pieces of random size up to `piece`.
ByteSource text_source(std::string text, std::size_t piece = 1 << 20) {
  return [text = std::move(text), piece, at = std::size_t{0},
          random = std::mt19937(7)](std::span<char> chunk) mutable {
    const std::size_t bytes = std::min({chunk.size(), text.size() - at, 1 + random() % piece});
    std::memcpy(chunk.data(), text.data() + at, bytes);
    at += bytes;
    return bytes;
  };
}

struct Result {
  std::vector<CriteoRecord> records;
  std::int64_t lines = 0;
  std::int64_t bad = 0;
  std::string first_bad;
  friend bool operator==(const Result&, const Result&) = default;
};

Result read_all(const std::string& text, CriteoReaderOptions options, std::size_t piece = 1 << 20,
                std::size_t block = 7) {
  CriteoReader reader(text_source(text, piece), "test", options);
  Result result;
  std::vector<CriteoRecord> records(block);
  while (const std::size_t count = reader.read(records))
    result.records.insert(result.records.end(), records.begin(),
                          records.begin() + static_cast<std::ptrdiff_t>(count));
  result.lines = reader.lines();
  result.bad = reader.bad_lines();
  result.first_bad = reader.first_bad_line();
  return result;
}

/// The message of the DataError that reading throws; empty if it succeeds.
std::string fault(const std::string& text) {
  return message_of<DataError>([&] { read_all(text, {}); });
}

/// The independent parser: split at tabs, library conversions. Nothing if the line is bad.
std::optional<CriteoRecord> plain_parse(std::string line) {
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (line.size() > 4096) return {};
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back().push_back(c);
    }
  }
  if (fields.size() != 40 || (fields[0] != "0" && fields[0] != "1")) return {};
  CriteoRecord record;
  record.label = fields[0] == "1";
  for (int i = 0; i < 13; ++i) {
    const std::string& field = fields[static_cast<std::size_t>(1 + i)];
    const std::string digits = field.starts_with('-') ? field.substr(1) : field;
    record.integers[i] = CriteoRecord::kMissing;
    if (field.empty()) continue;
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return {};
    const double value = std::stod(field);
    if (std::abs(value) > 2147483647.0) return {};
    record.integers[i] = static_cast<std::int32_t>(value);
  }
  for (int i = 0; i < 26; ++i) {
    const std::string& field = fields[static_cast<std::size_t>(14 + i)];
    if (field.size() > 8 || field.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      return {};
    if (field.empty()) {
      record.missing_categories |= 1u << i;
    } else {
      record.categories[i] = static_cast<std::uint32_t>(std::stoull(field, nullptr, 16));
    }
  }
  return record;
}

Result plain_read(const std::string& text) {
  Result result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    ++result.lines;
    if (const auto record = plain_parse(line)) {
      result.records.push_back(*record);
    } else {
      ++result.bad;
    }
  }
  return result;
}

CriteoRecord random_record(std::mt19937_64& random) {
  CriteoRecord record;
  record.label = random() % 4 == 0;
  for (auto& value : record.integers) {
    value =
        static_cast<std::int32_t>(random() >> (32 + random() % 31)) * (random() % 8 == 0 ? -1 : 1);
    if (random() % 3 == 0) value = CriteoRecord::kMissing;
  }
  for (int f = 0; f < kCriteoCategories; ++f) {
    if (random() % 4 == 0) {
      record.missing_categories |= 1u << f;
    } else {
      record.categories[f] = static_cast<std::uint32_t>(random() >> (32 + random() % 32));
    }
  }
  return record;
}

const std::string kGood =
    "1\t5\t-2\t\t0\t1700000\t2147483647\t-2147483647\t007\t\t\t\t\t9"
    "\t68fd1e64\t0\tFFFFFFFF\t\ta\t00000001\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\tdeadbeef\n";

std::string with_field(int field, const std::string& value) {
  std::string line = "0";
  for (int i = 1; i < 40; ++i) line += i + 1 == field ? "\t" + value : "\t";
  return line + "\n";
}

}  // namespace

TEST_CASE("a line by hand") {
  const Result result = read_all(kGood, {});
  REQUIRE(result.records.size() == 1);
  const CriteoRecord& r = result.records[0];
  constexpr std::int32_t kMissing = CriteoRecord::kMissing;
  CHECK(r.label == 1);
  CHECK(r.integers == std::array<std::int32_t, 13>{5, -2, kMissing, 0, 1700000, 2147483647,
                                                   -2147483647, 7, kMissing, kMissing, kMissing,
                                                   kMissing, 9});
  CHECK(r.categories[0] == 0x68fd1e64u);
  CHECK(r.categories[1] == 0u);
  CHECK(r.categories[2] == 0xffffffffu);
  CHECK(r.categories[4] == 10u);
  CHECK(r.categories[5] == 1u);
  CHECK(r.categories[25] == 0xdeadbeefu);
  CHECK(r.missing(3));
  CHECK_FALSE(r.missing(1));
  CHECK(r.missing_categories ==
        (0x3ffffffu & ~(1u << 0 | 1u << 1 | 1u << 2 | 1u << 4 | 1u << 5 | 1u << 25)));
}

TEST_CASE("line ends: \\n, \\r\\n, none at the end; no lines at all") {
  const std::string bare = kGood.substr(0, kGood.size() - 1);
  const auto one = read_all(kGood, {}).records;
  CHECK(read_all(bare, {}).records == one);
  CHECK(read_all(bare + "\r\n", {}).records == one);
  CHECK(read_all(bare + "\r", {}).records == one);
  CHECK(read_all(bare + "\r\n" + bare, {}).records.size() == 2);
  CHECK(read_all("", {}) == Result{});
  CHECK(read_all(with_field(1, ""), {}).records.size() == 1);
  // The last field may be empty: the line then ends in a tab, and so may the file.
  std::string empty = with_field(1, "");
  empty.pop_back();
  REQUIRE(empty.back() == '\t');
  CHECK(read_all(empty, {}).records.size() == 1);
}

TEST_CASE("a line of 4096 bytes is the longest, whatever its end and the chunk") {
  for (const std::size_t length : {4095, 4096, 4097, 4098}) {
    const std::string line = "0\t" + std::string(length - 40, '0') + std::string(38, '\t');
    REQUIRE(line.size() == length);
    for (const char* end : {"\n", "\r\n", "\r", ""})
      for (const std::size_t chunk : {1, 2, 3, 100, 4096, 4097, 4098, 1 << 16})
        CHECK(read_all(line + end, {.bad_lines = BadLines::skip, .chunk_bytes = chunk}).bad ==
              (length > 4096));
  }
}

TEST_CASE("a bad line is named by number and field") {
  CHECK(fault(with_field(2, "1").replace(0, 1, "2")) ==
        "file 'test', line 1, field 1: the label must be 0 or 1");
  for (const char* label : {"", "10", "-1", "2", "1.0"})
    CHECK(fault(kGood + kGood + label + std::string(39, '\t') + "\n") ==
          "file 'test', line 3, field 1: the label must be 0 or 1");
  for (const char* value : {"x", "1.5", " 1", "1 ", "+1", "-", "--1", "1-", "1e5", "0x1", "\xff"})
    CHECK(fault(with_field(4, value)) ==
          "file 'test', line 1, field 4: the field is not an integer");
  for (const char* value : {"2147483648", "-2147483648", "99999999999999999999999999"})
    CHECK(fault(with_field(14, value)) ==
          "file 'test', line 1, field 14: the integer does not fit 32 bits");
  for (const char* value : {"g", "123456789", "-1", "0x12", " a", "a ", "\xff"})
    CHECK(fault(with_field(15, value)) ==
          "file 'test', line 1, field 15: the category is not a hexadecimal number of at most 8 "
          "digits");
  CHECK(fault(with_field(40, "z")) ==
        "file 'test', line 1, field 40: the category is not a hexadecimal number of at most 8 "
        "digits");
  CHECK(fault(kGood + std::string(5000, 'x') + "\n" + kGood) ==
        "file 'test', line 2: the line is longer than 4096 bytes");
  CHECK(fault(std::string(10'000'000, 'x')) ==
        "file 'test', line 1: the line is longer than 4096 bytes");
  CHECK(fault(std::string("0\t\0", 3) + std::string(38, '\t')) ==
        "file 'test', line 1, field 2: the field is not an integer");
}

TEST_CASE(
    "a file of another kind: how many fields there are, how many there should be; commas, headers, "
    "compression") {
  const std::string need = "; a Criteo line has 40: a label, 13 integers, 26 categories",
                    schema =
                        "; a CSV or TSV file needs a schema that says what its columns mean: "
                        "--schema FILE";
  CHECK(fault("\n") == "file 'test', line 1: the line has 1 tab-separated field" + need);
  CHECK(fault("0") == "file 'test', line 1: the line has 1 tab-separated field" + need);
  CHECK(fault("0\t1\n") == "file 'test', line 1: the line has 2 tab-separated fields" + need);
  CHECK(fault(kGood + "1\t1\t2\t3\t4\t5\tdog" + std::string(8, '\t')) ==
        "file 'test', line 2: the line has 15 tab-separated fields" + need);
  CHECK(fault(kGood + "1" + std::string(38, '\t') + "\n") ==
        "file 'test', line 2: the line has 39 tab-separated fields" + need);
  CHECK(fault("1" + std::string(40, '\t') + "\n") ==
        "file 'test', line 1: the line has 41 tab-separated fields" + need);
  CHECK(fault("1,2,3\n") ==
        "file 'test', line 1: the line has 1 tab-separated field and 2 commas" + need + schema);
  CHECK(fault("label,price\n1,2\n") ==
        "file 'test', line 1: the line has 1 tab-separated field and 1 commas" + need + schema);
  CHECK(fault("label\tprice\n1\t2\n") ==
        "file 'test', line 1: the line has 2 tab-separated fields" + need + schema);
  CHECK(fault("label" + std::string(39, '\t') + "\n" + kGood) ==
        "file 'test', line 1, field 1: the label must be 0 or 1; if it is a header, remove it");
  using namespace std::string_literals;
  for (const auto& [mark, tool] :
       {std::pair("\x1f\x8b\x08"s, "gzip"), std::pair("BZh9"s, "bzip2"),
        std::pair("\x28\xb5\x2f\xfd"s, "zstd"), std::pair("\x5a\x2a\x4d\x18\x04\0\0\0"s, "zstd"),
        std::pair("\x04\x22\x4d\x18"s, "lz4")})
    for (const std::string& rest : {std::string("\nxyz"), std::string(100'000, 'x')})
      CHECK(fault(mark + rest) ==
            fmt::format("file 'test', line 1: the file looks compressed ({}); decompress it first",
                        tool));
  for (const auto& [mark, format] :
       {std::pair("PAR1\x15\x04"s, "Parquet"), std::pair("ORC\x08\x03"s, "ORC"),
        std::pair("ARROW1\0\0"s, "Arrow"), std::pair("\x89HDF\r\n"s, "HDF5")})
    CHECK(fault(mark + "xyz") ==
          fmt::format("file 'test', line 1: this is a {} file; {}", format,
                      format == "Parquet"s || format == "Arrow"s
                          ? "it needs a schema that says what its columns mean: --schema FILE"
                          : "write it as CSV or TSV text first"));
  CHECK(fault("ORC,PAR1\n").find("2 commas") == std::string::npos);
  CHECK(fault("ORC,PAR1\n").find("1 commas") != std::string::npos);  // names of columns
  CHECK(fault("0\t1\r1\t2\r").find("lines end in CR alone") != std::string::npos);
}

TEST_CASE("a fatal line that never ends is not read to its end") {
  std::size_t given = 0;
  CriteoReader reader(
      [&](std::span<char> chunk) {
        std::fill(chunk.begin(), chunk.end(), 'x');
        given += chunk.size();
        REQUIRE(given < (64u << 20));
        return chunk.size();
      },
      "endless");
  std::vector<CriteoRecord> records(4);
  CHECK_THROWS_WITH_AS(reader.read(records),
                       "file 'endless', line 1: the line is longer than 4096 bytes", DataError);
}

TEST_CASE("bad lines are counted and skipped on request; after a fatal one reading can go on") {
  const std::string text =
      kGood + "nonsense\n" + kGood + "\n" + std::string(100'000, '\t') + "\n" + kGood;
  const Result result = read_all(text, {.bad_lines = BadLines::skip});
  CHECK(result.records == std::vector<CriteoRecord>(3, read_all(kGood, {}).records[0]));
  CHECK(result.lines == 6);
  CHECK(result.bad == 3);
  CHECK(result.first_bad ==
        "file 'test', line 2: the line has 1 tab-separated field; a Criteo line has 40: a label, "
        "13 integers, 26 categories");

  CriteoReader reader(text_source(text), "test");
  std::vector<CriteoRecord> records(10);
  for (int i = 0; i < 3; ++i) CHECK_THROWS_AS(reader.read(records), DataError);
  CHECK(reader.read(records) == 1);
  CHECK(reader.read(records) == 0);
}

TEST_CASE(
    "what is read does not depend on chunks, nor on how the source cuts them, and agrees with a "
    "plain parser") {
  std::mt19937_64 random(3);
  std::string text;
  for (int i = 0; i < 120; ++i) {
    append_criteo_line(text, random_record(random));
    switch (random() % 12) {
      case 0:
        text.insert(text.size() - 1, "\r");
        break;
      case 1:
        text += "\n";
        break;
      case 2:
        text += std::string(random() % 9000, 'a') + "\n";
        break;
      case 3:
        text[text.size() - 1 - random() % 60] = static_cast<char>(random());
        break;
      case 4:  // good but for its length, which is 4094 to 4098: an integer with many leading zeros
        text += "0\t" + std::string(4054 + random() % 5, '0') + std::string(38, '\t') +
                (random() % 2 ? "\r\n" : "\n");
        break;
      default:
        break;
    }
  }
  for (const bool last_newline : {true, false}) {
    if (!last_newline) text.pop_back();
    const Result expected = plain_read(text);
    REQUIRE(expected.records.size() > 20);
    REQUIRE(expected.bad > 5);
    for (const std::size_t chunk : {1, 2, 3, 7, 64, 255, 4095, 4096, 4097, 4098, 10000, 1 << 20}) {
      for (const std::size_t piece : {std::size_t{3}, std::size_t{5000}, std::size_t{1} << 20}) {
        Result result = read_all(text, {.bad_lines = BadLines::skip, .chunk_bytes = chunk}, piece,
                                 1 + chunk % 5);
        result.first_bad.clear();
        CHECK(result == expected);
      }
    }
  }
}

TEST_CASE("records survive writing and reading") {
  std::mt19937_64 random(5);
  std::vector<CriteoRecord> records(3000);
  std::string text;
  for (CriteoRecord& record : records) append_criteo_line(text, record = random_record(random));
  CHECK(read_all(text, {}, 1 << 20, 1000).records == records);
  CHECK(plain_read(text).records == records);
}

TEST_CASE("ranges of lines, with and without an index, cover a file exactly once") {
  std::mt19937_64 random(9);
  std::string text;
  for (int i = 0; i < 1003; ++i) {
    if (i % 100 == 17) text += "bad\n";
    append_criteo_line(text, random_record(random));
  }
  text.pop_back();
  const TestFile file("tessera_test_criteo_ranges");
  std::ofstream(file.path, std::ios::binary) << text;
  const std::vector<CriteoRecord> whole = read_criteo(file.path, {.bad_lines = BadLines::skip});
  REQUIRE(whole.size() == 1003);
  for (const std::int64_t stride : {1, 2, 7, 64, 1000, 5000}) {
    const LineIndex index(file.path, stride);
    REQUIRE(index.lines() == 1013);
    for (const std::int64_t parts : {1, 2, 3, 8, 1013, 2000}) {
      std::vector<CriteoRecord> all;
      for (std::int64_t part = 0; part < parts; ++part) {
        const CriteoReaderOptions options{.first_line = index.lines() * part / parts,
                                          .end_line = index.lines() * (part + 1) / parts,
                                          .bad_lines = BadLines::skip,
                                          .chunk_bytes = 4096};
        const auto records = read_criteo(file.path, options, &index);
        if (parts <= 3) CHECK(records == read_criteo(file.path, options));
        all.insert(all.end(), records.begin(), records.end());
      }
      CHECK(all == whole);
    }
  }
  // Line numbers in messages count from the file's beginning, also behind a seek.
  const LineIndex index(file.path, 50);
  CHECK_THROWS_WITH_AS(read_criteo(file.path, {.first_line = 110}, &index),
                       fmt::format("file '{}', line 119: the line has 1 tab-separated field; a "
                                   "Criteo line has 40: a label, 13 integers, 26 "
                                   "categories",
                                   file.path.string())
                           .c_str(),
                       DataError);
}

TEST_CASE("line counts") {
  const TestFile file("tessera_test_line_count");
  const auto count = [&](const std::string& text) {
    std::ofstream(file.path, std::ios::binary | std::ios::trunc) << text;
    return LineIndex(file.path, 2).lines();
  };
  CHECK(count("") == 0);
  CHECK(count("\n") == 1);
  CHECK(count("a") == 1);
  CHECK(count("a\n\nb") == 3);
  CHECK(count(std::string(3 << 20, 'x') + "\n" + "y\n") == 2);
}

TEST_CASE("pipes and devices are refused at once: nothing waits for them, nor reads them twice") {
  const TestFile pipe("tessera_test_criteo_pipe");
  REQUIRE(::mkfifo(pipe.path.c_str(), 0600) == 0);
  const std::string text = fmt::format(
      "cannot read '{}': it is a pipe, which can be read only once; write its content to a file "
      "first",
      pipe.path.string());
  CHECK_THROWS_WITH_AS(CriteoReader{pipe.path}, text.c_str(), DataError);
  CHECK_THROWS_WITH_AS(LineIndex{pipe.path}, text.c_str(), DataError);
  CHECK_THROWS_WITH_AS(detail::MappedFile{pipe.path}, text.c_str(), DataError);
  CHECK_THROWS_AS(CriteoReader{"/dev/zero"}, DataError);
  CHECK_THROWS_AS(LineIndex{"/dev/zero"}, DataError);
  CHECK_THROWS_AS(detail::MappedFile{"/dev/null"}, DataError);
}

TEST_CASE("passes over one file: each finds the same records, or says that the file changed") {
  const TestFile file("tessera_test_criteo_passes");
  const auto write = [&](const std::string& text) {
    std::ofstream(file.path, std::ios::binary | std::ios::trunc) << text;
  };
  const auto records_of = [](CriteoPasses& passes) {
    std::size_t count = 0;
    passes.read([&](std::span<const CriteoRecord> records) { count += records.size(); });
    return count;
  };
  const std::string text = kGood + "bad\n" + with_field(2, "7");
  for (const std::string& other :
       {std::string(), kGood, text + kGood, kGood + "bad\n" + with_field(2, "8"),
        with_field(2, "7") + kGood}) {
    CAPTURE(other);
    write(text);
    CriteoPasses passes(file.path, BadLines::skip);
    CHECK(records_of(passes) == 2);
    CHECK(records_of(passes) == 2);
    CHECK(passes.records() == 2);
    CHECK(passes.bad_lines() == 1);
    write(other);
    CHECK_THROWS_WITH_AS(
        records_of(passes),
        fmt::format("file '{}' changed while it was read; read a copy that no program writes to",
                    file.path.string())
            .c_str(),
        DataError);
  }
  // Each field counts.
  CriteoRecord a;
  std::vector<std::uint64_t> sums{criteo_checksum({&a, 1})};
  const auto changed = [&](auto change) {
    CriteoRecord b = a;
    change(b);
    sums.push_back(criteo_checksum({&b, 1}));
  };
  changed([](CriteoRecord& r) { r.label = 1; });
  changed([](CriteoRecord& r) { r.missing_categories = 1; });
  for (int i = 0; i < kCriteoIntegers; ++i) changed([i](CriteoRecord& r) { r.integers[i] = 1; });
  for (int i = 0; i < kCriteoCategories; ++i)
    changed([i](CriteoRecord& r) { r.categories[i] = 1; });
  std::sort(sums.begin(), sums.end());
  CHECK(std::unique(sums.begin(), sums.end()) == sums.end());
}

TEST_CASE("files that can't be read, options that can't work") {
  CHECK_THROWS_WITH_AS(CriteoReader("/nonexistent-folder/x"),
                       "cannot open '/nonexistent-folder/x': No such file or directory", DataError);
  CHECK_THROWS_AS(CriteoReader{std::filesystem::temp_directory_path()}, DataError);
  CHECK_THROWS_AS(LineIndex("/nonexistent-folder/x"), DataError);
  CHECK_THROWS_AS(CriteoReader(text_source(""), "test", {.chunk_bytes = 0}), InvalidArgument);
  CHECK_THROWS_AS(CriteoReader(text_source(""), "test", {.first_line = 5, .end_line = 4}),
                  InvalidArgument);
  CHECK_THROWS_AS(CriteoReader(text_source(""), "test", {.first_line = -1}), InvalidArgument);
}
