// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Schemas good and bad; CSV fields against values written out by hand, from whole and from single
// bytes; files larger than the window, from any rank, against the same file read at once.
#include <tessera_data/tabular_file.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <support/bytes_of.hpp>
#include <support/message_of.hpp>
#include <support/temporary_folder.hpp>
#include <support/text_of.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace tessera;

namespace {

const std::string kSchema =
    "label: clicked\n"
    "numeric: [age, {name: price, transform: log1p}, {name: score, transform: standardize}]\n"
    "categorical: [device, {name: city, rows: 1000}, {name: user, rows: 4096, width: 8},\n"
    "  {name: tags, list: \"|\", pooling: mean, rows: 1024}, {name: last, list: \"|\", table: "
    "tags}]\n";

std::string fault(const std::string& text) {
  return message_of<DataError>([&] { parse_schema(text, "s.yaml"); });
}

using Records = std::vector<std::vector<std::string>>;
Records records(const std::string& text, std::size_t at_a_time, std::size_t chunk = 1) {
  CsvReader reader(bytes_of(text, at_a_time), "a.csv", {.chunk_bytes = chunk});
  Records all;
  for (auto fields = reader.next(); !fields.empty(); fields = reader.next())
    all.emplace_back(fields.begin(), fields.end());
  return all;
}
void check_records(const std::string& text, const Records& expected) {
  CAPTURE(text);
  for (const std::size_t bytes : {1, 2, 3, 1000}) {
    CHECK(records(text, bytes) == expected);
    CHECK(records(text, bytes, 4096) == expected);
  }
}
std::string csv_fault(const std::string& text) {
  return message_of<DataError>([&] { records(text, 3); });
}

TabularBlock block_of(const Schema& schema, const std::string& text) {
  TabularReader reader(bytes_of(text, 7), "a.csv", schema, ",");
  TabularBlock block;
  reader.read(1 << 20, block);
  return block;
}
std::string read_fault(const Schema& schema, const std::string& text) {
  return message_of<DataError>([&] { block_of(schema, text); });
}

/// `lines` samples that can be told apart by their number; tags repeat.
void write(const std::filesystem::path& path, int lines, int first = 0) {
  std::ofstream file(path);
  file << "id,clicked,tags\n";
  for (int i = first; i < first + lines; ++i)
    file << i << ',' << i % 2 << ",a" << i % 7 << (i % 3 == 0 ? "|b" : "") << '\n';
}
const Schema kTags =
    parse_schema("label: clicked\nnumeric: [id]\ncategorical: [{name: tags, list: '|'}]", "t.yaml");

struct Epoch {
  std::vector<float> ids;
  std::vector<std::int32_t> rows;
};
Epoch epoch_of(const TabularFile& file, int epoch, std::int64_t batch_size) {
  Epoch all;
  ClickBatch<std::int32_t> batch;
  for (std::int64_t i = 0; i < file.train_samples(); i += batch_size) {
    file.train_batch(epoch, i, std::min(batch_size, file.train_samples() - i), batch);
    all.ids.insert(all.ids.end(), batch.dense.begin(), batch.dense.end());
    all.rows.insert(all.rows.end(), batch.ids.begin(), batch.ids.end());
  }
  return all;
}

}  // namespace

TEST_CASE("a schema") {
  const Schema schema = parse_schema(kSchema, "s.yaml");
  CHECK(schema.label == "clicked");
  REQUIRE(schema.numeric.size() == 3);
  CHECK((!schema.numeric[0].log1p && schema.numeric[1].log1p && schema.numeric[2].standardize));
  REQUIRE(schema.categorical.size() == 5);
  REQUIRE(schema.tables.size() == 4);
  CHECK(schema.tables[0].rows_by == RowsBy::appearance);
  CHECK(schema.tables[1].rows == 1000);
  CHECK(schema.tables[2].width == 8);
  CHECK(schema.categorical[3].list == '|');
  CHECK(schema.categorical[3].pooling == Pooling::mean);
  CHECK(schema.categorical[4].table == 3);
}

TEST_CASE("what is wrong with a schema, and where") {
  const std::pair<const char*, const char*> kFaults[] = {
      {"", "line 1, column 1: a schema must be a mapping"},
      {"label: y\ncategorical: []", "line 2, column 14: there must be at least one"},
      {"label: y\ncategorical: a", "column 14: 'categorical' must be a list"},
      {"categorical: [a]", "'label' is missing"},
      {"label: y", "'categorical' is missing"},
      {"label: y\ncategorical: [a]\nnumbers: [b]", "line 3, column 10: a schema has no key"},
      {"label: y\ncategorical: [a, a]", "line 2, column 18: column 'a' is given twice"},
      {"label: y\ncategorical: [y]", "column 'y' is given twice"},
      {"label: y\ncategorical: [{name: a, rows: ten}]",
       "line 2, column 31: rows 'ten' must be a whole number from 3"},
      {"label: y\ncategorical: [{name: a, rows: 99999999999999999999}]", "must be a whole number"},
      {"label: y\ncategorical: [{name: a, width: 1025}]", "from 1 to 1024"},
      {"label: y\ncategorical: [{name: a, list: '||'}]", "must be one ASCII character"},
      {"label: y\ncategorical: [{name: a, pooling: none}]", "must be sum, mean, sqrtn or max"},
      {"label: y\ncategorical: [{name: a, pooling: sum}]",
       "line 2, column 34: column 'a': pooling is for lists; say what separates"},
      {"label: y\ncategorical: [a]\nquote: ab", "must be one visible ASCII character, or none"},
      {"label: y\ncategorical: [a]\nquote: x\nseparator: x", "separator and quote are the same"},
      {"label: y\ncategorical: [a]\nempty_words: NA", "'empty_words' must be a list"},
      {"label: y\nnumeric: [{name: x, empty: 1e39}]\ncategorical: [a]",
       "must be a finite number, at most 3.4e38"},
      {"label: y\ncategorical: [{name: a, vocabulary: true}]", "a vocabulary needs 'rows'"},
      {"label: y\ncategorical: [{name: a, unknown: huh}]", "must be shared, bad_id or error"},
      {"label: y\ncategorical: [{name: a, rows: 5, unknown: error}]", "is for columns without"},
      {"label: y\ncategorical: [{name: a, rows: 5, min_count: 2}]", "is for columns without"},
      {"label: y\ncategorical: [{name: a, unknown: error}, {name: b, table: a, unknown: shared}]",
       "unknown differs from what was given for the table 'a'"},
      {"label: y\ncategorical: [{name: a, rows: 5, vocabulary: true}, "
       "{name: b, table: a, vocabulary: false}]",
       "vocabulary differs from what was given for the table 'a'"},
      {"label: y\ncategorical: [{name: a, rows: 5}, {name: b, table: a, rows: 6}]",
       "column 'b': rows differs"},
      {"label: y\nnumeric: [{name: x, transform: sqrt}]\ncategorical: [a]",
       "line 2, column 32: column 'x': transform 'sqrt' must be"},
      {"label: y\nnumeric: [{name: x, empty: none}]\ncategorical: [a]",
       "line 2, column 28: column 'x': empty 'none' must be a finite number"},
      {"label: y\ncategorical: [a]\ncolumns: [y, b]", "columns lacks 'a'"},
      {"label: y\ncategorical: [a]\nseparator: '123456789'",
       "must be tab, blanks, or 1 to 8 bytes"},
      {"label: [y\ncategorical: [a]", "line 2"},
  };
  for (const auto& item : kFaults) {
    const std::string text = item.first, part = item.second;
    CAPTURE(text);
    const std::string found = fault(text);
    CAPTURE(found);
    CHECK(found.find(part) != std::string::npos);
    CHECK(found.find("file 's.yaml', line ") == 0);
  }
  CHECK(fault("label: y\n\ncategorical: [\"\xb3\xc7\xca\xd0\"]") ==
        "file 's.yaml', line 3: the text is not UTF-8; convert it, as by 'iconv -t UTF-8'");
}

TEST_CASE("CSV: quotes, ends of lines, empty fields") {
  check_records("", {});
  check_records("a", {{"a"}});
  check_records("a,b\n1,2\n", {{"a", "b"}, {"1", "2"}});
  check_records("a,b\r\n\r\n1,\r\n,", {{"a", "b"}, {"1", ""}, {"", ""}});
  check_records("\xef\xbb\xbf\"x,\"\"y\"\"\",\"two\nlines\"\n\"\",q\"q\n",
                {{"x,\"y\"", "two\nlines"}, {"", "q\"q"}});
  check_records(
      "a\n\xef\xbb\xbf"
      "b\n",
      {{"a"},
       {"\xef\xbb\xbf"
        "b"}});
  check_records("\"\"\n\"\"\"\"\r\n\"a\"\r", {{""}, {"\""}, {"a"}});
  check_records("Z\xc3\xbcrich,\xe6\x9d\xb1\n", {{"Z\xc3\xbcrich", "\xe6\x9d\xb1"}});
}

TEST_CASE("CSV: what is wrong, and where") {
  CHECK(csv_fault("a\n\"b\nc\"d\n") ==
        "file 'a.csv', line 2: field 1: text behind the closing quote; write a quote inside quotes "
        "twice");
  CHECK(csv_fault("a\n1,\"b\n\n") ==
        "file 'a.csv', line 2: field 2: the quote is not closed before the file ends");
  CHECK(csv_fault("\xff\xfe\x41").find("UTF-16") != std::string::npos);
  CsvReader small(bytes_of("a\n\"" + std::string(5000, 'x'), 100), "a.csv",
                  {.chunk_bytes = 16, .max_record_bytes = 1000});
  CHECK(small.next().size() == 1);
  CHECK_THROWS_WITH_AS(small.next(),
                       "file 'a.csv', line 2: the record is longer than 1000 bytes; is a quote not "
                       "closed?",
                       DataError);
}

TEST_CASE("CSV: fields beyond the header's are counted, and take no memory") {
  // three million commas: each would take 40 bytes
  const std::string text = "a,b\n" + std::string(3'000'000, ',') + "\n1,2\n";
  CsvReader reader(bytes_of(text, 1 << 16), "a.csv");
  CHECK(reader.header().size() == 2);
  const auto held = [] {
    return static_cast<std::int64_t>(::mallinfo2().uordblks + ::mallinfo2().hblkhd);
  };
  const std::int64_t before = held();
  CHECK(reader.next().size() == 3);
  CHECK(held() - before < 2 * std::ssize(text));
  CHECK(reader.field_count() == 3'000'001);
  CHECK(reader.wrong_field_count() == "the record has 3000001 fields, the header has 2");
  CHECK(reader.next().size() == 2);
  CHECK(reader.next().empty());
  CHECK(csv_fault(std::string(200'000, ',') + "\n").find("more than 131072 fields") !=
        std::string::npos);
  const Schema schema = parse_schema("label: a\ncategorical: [b]", "s.yaml");
  CHECK(read_fault(schema, "a,b\n1,x,,,,,\n") ==
        "file 'a.csv', line 2: the record has 7 fields, the header has 2");
  const Schema columns = parse_schema("label: a\ncategorical: [b]\ncolumns: [a, b]", "s.yaml");
  CHECK(read_fault(columns, "1,x,\n") ==
        "file 'a.csv', line 1: the record has 3 fields, 'columns' names 2");
}

TEST_CASE("CSV: separators, quotes, columns and words for empty fields that are given") {
  const auto read = [](const std::string& text, CsvReaderOptions options) {
    Records all;
    for (const std::size_t bytes : {1, 2, 3, 1000}) {
      options.chunk_bytes = bytes;
      CsvReader reader(bytes_of(text, bytes), "a.csv", options);
      Records found;
      for (auto fields = reader.next(); !fields.empty(); fields = reader.next())
        found.emplace_back(fields.begin(), fields.end());
      if (bytes > 1) CHECK(found == all);
      all = found;
    }
    return all;
  };
  CHECK(read("a::b:c::\"d::e\"\n::::\n1::2::3", {.separator = "::"}) ==
        Records{{"a", "b:c", "d::e"}, {"", "", ""}, {"1", "2", "3"}});
  CHECK(read("  a  b\t c \r\n\n \n\"\" \"x y\" z\t\nlast one  two  ", {.separator = "blanks"}) ==
        Records{{"a", "b", "c"}, {"", "x y", "z"}, {"last", "one", "two"}});
  CHECK(read("'a,b',\"c\nd,'it''s'", {.quote = '\''}) == Records{{"a,b", "\"c"}, {"d", "it's"}});
  CHECK(read("\"a,b\n", {.quote = 0}) == Records{{"\"a", "b"}});
  CHECK(read("NA,\"NA\",N\nNULL,-,NULL\n", {.empty_words = {"NA", "NULL"}}) ==
        Records{{"", "NA", "N"}, {"", "-", ""}});
  CHECK(separator_named("tab") == "\t");
  CHECK(separator_named("::") == "::");
  for (const char* bad : {"", "\n", "a\"", "123456789"}) CHECK(separator_named(bad).empty());
  CHECK(quote_named("none") == 0);
  CHECK_THROWS_AS(quote_named("''"), InvalidArgument);
  CHECK_THROWS_AS(CsvReader(bytes_of("", 1), "a.csv", {.separator = "\""}), InvalidArgument);

  const Schema schema = parse_schema(
      "label: rating\nnumeric: [age]\ncategorical: [user]\nseparator: '::'\nquote: none\n"
      "empty_words: [NA]\ncolumns: [user, age, rating]",
      "s.yaml");
  TabularReader reader(bytes_of("u\"1::NA::1\nu2::7::0\n", 5), "a.dat", schema,
                       separator_of(schema, "a.dat"));
  TabularBlock block;
  CHECK(reader.read(10, block) == 2);
  CHECK(std::isnan(block.numbers[0]));
  CHECK(block.keys[0] == category_key("u\"1"));
  // names with types, as RecBole's files have them
  const Schema typed = parse_schema("label: rating\ncategorical: [user_id]", "s.yaml");
  CHECK(block_of(typed, "user_id:token,rating:float\nu,1\n").keys[0] == category_key("u"));
  CHECK(read_fault(typed, "user_id:token,user_id:float,rating:float\n").find("two columns") !=
        std::string::npos);
  CHECK(read_fault(typed, "user_id::rating\nu::1\n")
            .find("there is one column, 'user_id::rating'; if something else separates the fields, "
                  "give 'separator' (an option: --separator); if this is no line of names, give "
                  "'columns' (--columns)") != std::string::npos);
}

TEST_CASE("files of other kinds are named, and their bytes are not printed") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "a.csv";
  const auto fault_of = [&](const std::string& bytes) {
    std::ofstream(path) << bytes;
    try {
      TabularFile(path, kTags);
      return std::string();
    } catch (const DataError& error) {
      return std::string(error.what());
    }
  };
  using namespace std::string_literals;
  for (const auto& [bytes, name] :
       {std::pair("PAR1\x15\x04\x15"s, "Parquet"), std::pair("ORC\x0a\x03\0"s, "ORC"),
        std::pair("ARROW1\0\0"s, "Arrow"), std::pair("\x89HDF\r\n\x1a\n"s, "HDF5"),
        std::pair("\x04\x22\x4d\x18"s, "lz4"), std::pair("\x93NUMPY\x01"s, "NumPy"),
        std::pair("Obj\x01\x04"s, "Avro"), std::pair("SQLite format 3\0"s, "SQLite")}) {
    const std::string found = fault_of(bytes + "rest");
    CAPTURE(found);
    CHECK(found.find(name) != std::string::npos);
  }
  CHECK(fault_of("PAR1,id,clicked,tags\nx,1,1,a\nx,2,0,b\n").empty());  // names of columns
  CHECK(fault_of("id,clicked,tags\r1,0,a\r2,1,b\r").find("lines end in CR alone") !=
        std::string::npos);
  CHECK(fault_of("\xc3\xfb,\x1b[31m,tags\n")
            .find("there are '\\xc3\\xfb', '\\x1b[31m', 'tags'; the names are not UTF-8") !=
        std::string::npos);
  const std::string long_one = fault_of("id,clicked,tags\n1," + std::string(1000, '\xff') + ",a\n");
  CHECK(long_one.find("'\\xff\\xff") != std::string::npos);
  CHECK(long_one.size() < 500);
  CHECK(detail::quoted("a'\xe6\x9d\xb1\n\x7f") == "'a'\xe6\x9d\xb1\\x0a\\x7f'");
  CHECK(detail::quoted(std::string(79, 'x') + "\xe6\x9d\xb1") ==
        "'" + std::string(79, 'x') + "...'");
  for (const char* bad : {"\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe6\x9d", "\x80",
                          "\xf5\x80\x80\x80", "\xe0\x80\x80"})
    CHECK(!detail::is_utf8(bad));
  CHECK(detail::is_utf8("\xf4\x8f\xbf\xbf\xed\x9f\xbf\xc2\x80 a"));
}

TEST_CASE("numbers: what is smaller than a float is 0, what is larger says so") {
  const Schema schema =
      parse_schema("label: y\nnumeric: [x, {name: z, empty: 1e-400}]\ncategorical: [c]", "s.yaml");
  CHECK(*schema.numeric[1].empty == 0.0f);
  const auto of = [&](const std::string& text) {
    return block_of(schema, "y,x,z,c\n1," + text + ",,a\n").numbers[0];
  };
  // the C library reads the same texts
  for (const char* text :
       {"1e-10", "2.5E+3", "1e-46", "-5.47382e-48", "1e-400", "1e-38", "1e-45", "1.4e-45", "0.1",
        "-1e-99999999999999999999", "0.0000000000000000000000000000000000000000000000001e-300",
        "3.4028234e38", "0e999999999999999999999", "+7", " 7 "})
    CHECK(static_cast<float>(of(text)) == std::strtof(text, nullptr));
  for (const char* text : {"1e39", "-1e400", "1e99999999999999999999", "3.5e38"}) {
    const std::string found = read_fault(schema, "y,x,z,c\n1," + std::string(text) + ",,a\n");
    CAPTURE(found);
    CHECK(found.find("line 2, column 'x': '" + std::string(text) +
                     "' is too large for a float, whose largest number is 3.4e38") !=
          std::string::npos);
  }
  for (const char* text : {"inf", "nan", "+-1", "1e", "1e5x", "0x1p3", ".", "--1"})
    CHECK(read_fault(schema, "y,x,z,c\n1," + std::string(text) + ",,a\n")
              .find("is not a finite number") != std::string::npos);
  float small = 7;
  CHECK(parse_number("1e-400", small) == NumberText::number);
  CHECK(small == 0.0f);
  double wide = 7;
  CHECK(parse_number("1e-400", wide) == NumberText::number);
  CHECK(wide == 0.0);
  CHECK(parse_number("1e400", wide) == NumberText::too_large);
  CHECK(wide == 0.0);
  std::int64_t whole = 7;
  CHECK(parse_number("9223372036854775808", whole) == NumberText::too_large);
  CHECK(parse_number("1e3", whole) == NumberText::no_number);
  CHECK(whole == 7);
}

TEST_CASE("standardized numbers: dates, seconds since 1970, small prices, a constant") {
  const Schema schema = parse_schema(
      "label: y\nnumeric: [{name: date, transform: standardize}, {name: second, transform: "
      "standardize},\n  {name: price, transform: standardize}, {name: same, transform: "
      "standardize}]\ncategorical: [c]",
      "s.yaml");
  // ten days of 2018, ten seconds of one minute, ten prices
  std::string text = "y,date,second,price,same,c\n";
  for (int i = 0; i < 10; ++i)
    text += fmt::format("1,{},{},{}e-8,20180131.1,a\n", 20180113 + i, 1517356830 + i, 1 + i * i);
  TabularBlock block = block_of(schema, text);
  TabularStatistics statistics(schema);
  statistics.add(block);
  const TabularEncoder encoder(statistics);
  encoder.encode(block);
  ClickBatch<std::int32_t> batch;
  to_batch(block, 1, batch);
  // (x - x.mean()) / x.std(), by numpy 2.4.6
  const double kEqualSteps[] = {-1.5666989036012806, -1.2185435916898848,  -0.8703882797784892,
                                -0.5222329678670935, -0.17407765595569785, 0.17407765595569785,
                                0.5222329678670935,  0.8703882797784892,   1.2185435916898848,
                                1.5666989036012806},
               kPrices[] = {-1.06135866390148,   -1.0241180090277437, -0.9123960444065355,
                            -0.7261927700378548, -0.4655081859217018, -0.13034229205807643,
                            0.2793049115530212,  0.7634334249115909,  1.3220432480176334,
                            1.9551343808711479};
  for (int i = 0; i < 10; ++i) {
    CHECK(batch.dense_view()(i, 0) == doctest::Approx(kEqualSteps[i]).epsilon(1e-6));
    CHECK(batch.dense_view()(i, 1) == doctest::Approx(kEqualSteps[i]).epsilon(1e-6));
    CHECK(batch.dense_view()(i, 2) == doctest::Approx(kPrices[i]).epsilon(1e-6));
    CHECK(batch.dense_view()(i, 3) == 0.0f);
  }
  CHECK(encoder.shift_and_scale(0).first == 20180117.5);
  CHECK(encoder.shift_and_scale(1).first == 1517356834.5);
  TabularBlock far = block_of(schema, "y,date,second,price,same,c\n1,1,1,3e38,1,a\n");
  CHECK_THROWS_WITH_AS(encoder.encode(far, "file 'a.csv'"),
                       doctest::Contains("file 'a.csv', sample 0, column 'price': 3e+38 is too far "
                                         "from the training data's numbers"),
                       DataError);
}

TEST_CASE("samples: columns in any order, lists, empty fields, numbers") {
  const Schema schema = parse_schema(kSchema, "s.yaml");
  const std::string header = "tags,more,clicked,score,price,age,user,city,device,last\n";
  TabularBlock block =
      block_of(schema, header + "a|b||a,x,1,2,0,,u1,Rome,tv,b\n,x,0.5,4,-3,7,u2,,pc,\n");
  CHECK(block.labels == std::vector<float>{1, 0.5f});
  CHECK(std::isnan(block.numbers[0]));
  CHECK(block.numbers[1] == 0.0f);
  CHECK(block.numbers[4] == -3.0);  // which counts as 0
  CHECK(block.ends == std::vector<std::size_t>{1, 2, 3, 6, 7, 8, 9, 10, 10, 10});
  TabularStatistics statistics(schema);
  statistics.add(block);
  const TabularEncoder encoder(statistics);
  CHECK(encoder.rows() == std::vector<std::int64_t>{4, 1000, 4096, 1024});
  encoder.encode(block);
  CHECK(block.numbers == std::vector<double>{0, 0, -1, 7, 0, 1});
  ClickBatch<std::int32_t> batch;
  to_batch(block, 5, batch);
  CHECK(batch.offsets == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 9, 9, 10, 10});
  CHECK(batch.ids[0] == 2);
  CHECK(batch.ids[1] == 3);
  CHECK(batch.ids[3] == TabularEncoder::kMissingRow);
  CHECK(batch.ids[6] == batch.ids[8]);
  CHECK(batch.ids[7] == batch.ids[9]);  // one table, one text

  const auto check_fault = [&](const std::string& text, const char* part) {
    const std::string found = read_fault(schema, text);
    CAPTURE(found);
    CHECK(found.find(part) != std::string::npos);
  };
  check_fault("", "is empty; it needs a line of column names");
  check_fault("clicked,age\n", "line 1: there is no column 'price', which 's.yaml' names");
  check_fault("age," + header, "two columns are named 'age'");
  check_fault(header + ",x,1,2,0,,u1,Rome\n", "line 2: the record has 8 fields, the header has 10");
  for (const char* label : {"2", "-0.1", "yes", "", "nan"})
    check_fault(header + ",x," + label + ",2,0,,u1,Rome,tv,\n", "line 2, column 'clicked': '");
  for (const char* number : {"1e99", "inf", "nan", "1,5", "x"})
    check_fault(header + ",x,1,2,0,\"" + number + "\",u1,Rome,tv,\n", "line 2, column 'age': '");
  TabularReader skipping(bytes_of(header + ",x,7,2,0,,u,R,t,\n,x,1,2,0,,u,R,t,\n", 50), "a.csv",
                         schema, ",", BadLines::skip);
  CHECK(skipping.read(10, block) == 1);
  CHECK(skipping.bad_lines() == 1);
  CHECK(skipping.first_bad_line().find("line 2, column 'clicked'") != std::string::npos);
}

TEST_CASE("empty numbers: 0 at the end, or a number of their own") {
  const auto numbers = [](const std::string& empty) {
    const Schema schema = parse_schema(
        "label: y\nnumeric: [{name: x, transform: standardize" + empty + "}]\ncategorical: [a]",
        "s.yaml");
    TabularBlock block = block_of(schema, "y,x,a\n0,1,p\n1,,p\n1,3,p\n1,,p\n");
    TabularStatistics statistics(schema);
    statistics.add(block);
    TabularEncoder(statistics).encode(block);
    return block.numbers;
  };
  CHECK(numbers("") == std::vector<double>{-1, 0, 1, 0});
  const std::vector<double> own = numbers(", empty: -1");  // of mean 0.5
  CHECK(own[1] == own[3]);
  CHECK(own[1] * 0.5f == doctest::Approx(-1.5f * own[0]));
}

TEST_CASE("unknown texts: shared row, bad id, error") {
  const auto encoded = [](const std::string& unknown) {
    const Schema schema =
        parse_schema("label: y\ncategorical: [{name: a, min_count: 2" + unknown + "}]", "s.yaml");
    TabularStatistics statistics(schema);
    statistics.add(block_of(schema, "y,a\n0,p\n1,p\n1,rare\n"));
    TabularBlock block = block_of(schema, "y,a\n0,p\n1,rare\n0,new\n1,\n");
    TabularEncoder(statistics).encode(block, "file 'a.csv'");
    return std::vector<std::int64_t>(block.keys.begin(), block.keys.end());
  };
  CHECK(encoded("") == std::vector<std::int64_t>{2, 1, 1, 0});
  CHECK(encoded(", unknown: bad_id") == std::vector<std::int64_t>{2, -1, -1, 0});
  CHECK_THROWS_WITH_AS(encoded(", unknown: error"),
                       doctest::Contains("file 'a.csv', sample 1, column 'a': the text is not in"),
                       DataError);
}

TEST_CASE("a list of ten million entries") {
  std::string text = "clicked,id,tags\n1,0,";
  for (int i = 0; i < 10'000'000; ++i) text += "1|";
  text += '\n';
  TabularReader reader(bytes_of(text, std::size_t{1} << 20), "a.csv", kTags, ",");
  TabularBlock block;
  CHECK(reader.read(2, block) == 1);
  CHECK(block.keys.size() == 10'000'000);
}

TEST_CASE("a file in windows: each sample once an epoch, the same for any batches and threads") {
  const TemporaryFolder folder;
  write(folder.path / "a.csv", 1000);
  const TabularFileOptions small{.block = 16, .window = 64, .seed = 5};
  const TabularFile file(folder.path / "a.csv", kTags, small);
  CHECK(file.train_samples() == 900);
  CHECK(file.test_samples() == 100);
  const Epoch first = epoch_of(file, 0, 50), second = epoch_of(file, 1, 50);
  CHECK(first.ids != second.ids);
  std::vector<float> sorted = first.ids;
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < 900; ++i)
    REQUIRE(sorted[static_cast<std::size_t>(i)] == static_cast<float>(i));
  CHECK(std::abs(first.ids[0] - first.ids[1]) + std::abs(first.ids[1] - first.ids[63]) > 64);
  TabularFileOptions threads = small;
  threads.threads = 3;
  const TabularFile again(folder.path / "a.csv", kTags, threads);
  const Epoch same = epoch_of(again, 0, 7);
  CHECK(same.ids == first.ids);
  ClickBatch<std::int32_t> batch;
  file.test_batch(10, 90, batch);
  for (int i = 0; i < 90; ++i)
    CHECK(batch.dense[static_cast<std::size_t>(i)] == static_cast<float>(910 + i));
  // Ranks that ask at once for parts of the same batches.
  std::vector<std::vector<float>> parts(4);
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < 4; ++r)
    ranks.emplace_back([&, r] {
      ClickBatch<std::int64_t> part;
      for (std::int64_t i = static_cast<std::int64_t>(r) * 5; i < 900; i += 20) {
        again.train_batch(0, i, 5, part);
        parts[r].insert(parts[r].end(), part.dense.begin(), part.dense.end());
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (std::size_t i = 0; i < 900; ++i)
    REQUIRE(parts[i / 5 % 4][i / 20 * 5 + i % 5] == first.ids[i]);
  // As a whole in memory.
  const TabularFile whole(folder.path / "a.csv", kTags, {.block = 16, .seed = 5});
  CHECK(whole.checksum() == file.checksum());
  CHECK(epoch_of(whole, 0, 50).ids != epoch_of(whole, 1, 50).ids);
}

TEST_CASE("rows of files that are no text: samples of the same CSV file, from any row on") {
  const TemporaryFolder folder;
  const std::filesystem::path text = folder.path / "a.csv", path = folder.path / "a.rows";
  write(text, 1000);
  std::ofstream(path) << "no text";
  Records rows;
  for (int i = 0; i < 1000; ++i)
    rows.push_back({std::to_string(i), "unread", std::to_string(i % 2),
                    fmt::format("a{}{}", i % 7, i % 3 == 0 ? "|b" : "")});
  std::mutex mutex;  // a window is read ahead by a thread
  std::vector<std::int64_t> begins;
  std::vector<std::string> wanted_names;
  const OpenRecords open = [&](const std::filesystem::path& file,
                               std::span<const WantedColumn> wanted, std::int64_t first) {
    RecordSource source;
    if (file.extension() != ".rows") return source;
    const std::lock_guard lock(mutex);
    begins.push_back(first);
    wanted_names.clear();
    for (const WantedColumn& column : wanted)
      wanted_names.push_back(column.name + (column.list != 0 ? " list" : ""));
    source.columns = {"id", "other", "clicked", "tags"};
    source.next = [&rows, at = static_cast<std::size_t>(first),
                   fields = std::vector<std::string_view>()]() mutable {
      fields.clear();
      if (at < rows.size()) fields.assign(rows[at].begin(), rows[at].end()), ++at;
      return std::span<const std::string_view>(fields);
    };
    return source;
  };
  // All in memory: the order of text. In windows: the file's order, as of compressed text.
  const TabularFile whole(text, kTags, {.block = 16, .seed = 5}),
      same(path, kTags, {.block = 16, .threads = 2, .seed = 5, .open = open});
  CHECK(wanted_names == std::vector<std::string>{"clicked", "id", "tags list"});
  CHECK(same.checksum() == whole.checksum());
  CHECK(epoch_of(same, 3, 50).ids == epoch_of(whole, 3, 50).ids);
  CHECK(epoch_of(same, 3, 50).rows == epoch_of(whole, 3, 50).rows);
  ClickBatch<std::int32_t> batch;
  {
    const TabularFile file(path, kTags, {.block = 16, .window = 64, .seed = 5, .open = open});
    CHECK(file.checksum() == whole.checksum());
    const Epoch first = epoch_of(file, 0, 50);
    std::vector<float> window(first.ids.begin(), first.ids.begin() + 64);
    CHECK(first.ids != epoch_of(file, 1, 50).ids);
    std::sort(window.begin(), window.end());
    for (std::size_t i = 0; i < 64; ++i) CHECK(window[i] == static_cast<float>(i));
    // What is read again is read from its own row on, not from the beginning.
    {
      const std::lock_guard lock(mutex);
      begins.clear();
    }
    file.test_batch(0, 100, batch);
    CHECK(batch.dense[99] == 999.0f);
    CHECK(epoch_of(file, 0, 50).ids == first.ids);
    const std::lock_guard lock(mutex);
    CHECK(std::find(begins.begin(), begins.end(), 896) != begins.end());
  }  // its thread has ended: the rows may change
  // Faults name the row.
  rows[2][2] = "2";
  CHECK_THROWS_WITH_AS(
      TabularFile(path, kTags, {.open = open}),
      doctest::Contains("a.rows', row 3, column 'clicked': '2' is no label: a number from 0 to 1"),
      DataError);
  const TabularFile skipping(path, kTags, {.bad_lines = BadLines::skip, .open = open});
  CHECK(skipping.bad_lines() == 1);
  CHECK(epoch_of(skipping, 0, 50).ids.size() == 899);
  rows[2][2] = "0";
  // A file that changes meanwhile.
  rows[950][0] = "7";
  const TabularFile changes(path, kTags, {.block = 16, .window = 64, .open = open});
  rows[950][0] = "8";
  CHECK_THROWS_WITH_AS(changes.test_batch(0, 100, batch),
                       doctest::Contains("a.rows' changed while it was read, near row 945"),
                       DataError);
}

TEST_CASE("compressed files, and files that are cut off or change") {
  const TemporaryFolder folder;
  const std::filesystem::path plain = folder.path / "a.csv";
  write(plain, 1000);
  const TabularFileOptions small{.block = 16, .window = 64};
  const std::uint64_t checksum = TabularFile(plain, kTags, small).checksum();
  const auto compressed = [&](const char* name, const auto& compress) {
    const std::string text = text_of(plain), half = text.substr(0, text.size() / 2);
    // two parts behind each other
    const std::string bytes = compress(half) + compress(text.substr(half.size()));
    const std::filesystem::path path = folder.path / name;
    std::ofstream(path) << bytes;
    const TabularFile file(path, kTags, small);
    CHECK(file.checksum() == checksum);
    CHECK(epoch_of(file, 1, 50).ids.size() == 900);
    std::ofstream(path) << bytes.substr(0, bytes.size() - 9);
    CHECK_THROWS_WITH_AS(TabularFile(path, kTags, small), doctest::Contains("is cut off"),
                         DataError);
    std::string damaged = bytes;
    for (std::size_t i = 40; i < 60; ++i) damaged[i] = static_cast<char>(~damaged[i]);
    std::ofstream(path) << damaged;
    CHECK_THROWS_AS(TabularFile(path, kTags, small), DataError);
  };
  const auto gzip = [](const std::string& text) {
    std::string out(compressBound(text.size()) + 64, '\0');
    z_stream stream{};
    REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  };
  const auto zstd = [](const std::string& text) {
    std::string out(ZSTD_compressBound(text.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
    return out;
  };
  compressed("a.csv.gz", gzip);
  compressed("a.csv.zst", zstd);
  const std::string text = text_of(plain);
  const auto checksum_of = [&](const std::string& bytes) {
    std::ofstream(folder.path / "c.csv") << bytes;
    return TabularFile(folder.path / "c.csv", kTags, small).checksum();
  };
  // as tar and tapes fill blocks up; longer than what is read at a time
  for (const std::size_t zeros : {1, 511, 300'000})
    CHECK(checksum_of(gzip(text) + std::string(zeros, '\0')) == checksum);
  CHECK_THROWS_WITH_AS(checksum_of(gzip(text) + std::string(512, '\0') + gzip(text)),
                       doctest::Contains("other bytes follow the zeros"), DataError);
  CHECK_THROWS_AS(checksum_of(gzip(text) + "junk"), DataError);
  // frames that readers pass over, before, between and after
  const std::string skipped("\x5a\x2a\x4d\x18\x03\0\0\0abc", 11);
  CHECK(checksum_of(skipped + zstd(text.substr(0, 100)) + skipped + zstd(text.substr(100)) +
                    skipped) == checksum);
  std::ofstream(folder.path / "b.csv") << "BZh91AY&SY";
  CHECK_THROWS_WITH_AS(TabularFile(folder.path / "b.csv", kTags),
                       doctest::Contains("compressed by bzip2"), DataError);
  const TabularFile file(plain, kTags, small);
  write(plain, 1000, 1000);
  ClickBatch<std::int32_t> batch;
  CHECK_THROWS_WITH_AS(file.train_batch(0, 0, 50, batch), doctest::Contains("changed while"),
                       DataError);
  write(plain, 30);
  CHECK_THROWS_WITH_AS(epoch_of(file, 1, 50), doctest::Contains("changed while"), DataError);
}

TEST_CASE("a file ten times as large as the memory that may be used") {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  statm >> pages;
  const std::int64_t now = pages * ::sysconf(_SC_PAGESIZE);
  if (now > std::int64_t{1} << 33) {
    MESSAGE("a sanitizer has reserved what a limit would take away");
    return;
  }
  constexpr std::int64_t kAllowed = std::int64_t{28} << 20;  // two stacks of 8 MiB among it
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("tessera_large_" + std::to_string(::getpid()) + ".csv");
  {
    std::ofstream file(path);
    file << "id,text,clicked,tags\n";
    const std::string text(16'000, 'x');
    for (int i = 0; i < 18'500; ++i) file << i << ",\"" << text << "\"," << i % 2 << ",a|b\n";
  }
  CHECK(static_cast<std::int64_t>(std::filesystem::file_size(path)) > 10 * kAllowed);
  const pid_t child = ::fork();
  if (child == 0) {
    ::mallopt(M_ARENA_MAX, 1);
    const rlimit limit{static_cast<rlim_t>(now + kAllowed), static_cast<rlim_t>(now + kAllowed)};
    ::setrlimit(RLIMIT_AS, &limit);
    int status = 3;
    try {
      const TabularFile file(path, kTags, {.block = 128, .window = 1024});
      double sum = 0;
      for (const float id : epoch_of(file, 0, 50).ids) sum += id;
      status = sum == 16'649.0 * 16'650 / 2 ? 0 : 1;
    } catch (const std::bad_alloc&) {
      status = 2;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::_Exit(status);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  std::filesystem::remove(path);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
