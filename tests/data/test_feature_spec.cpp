// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The YAML reader against values written out by hand and, where Python has PyYAML, against that;
// feature specifications good and bad.
#include <tessera_data/feature_spec.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <support/message_of.hpp>
#include <support/replaced.hpp>
#include <support/temporary_folder.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace tessera;

namespace {

std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out += c == '\t' ? "\\t" : std::string(1, c);
  }
  return out + '"';
}

/// The document as JSON with every scalar as a text.
std::string json(const detail::YamlDocument& yaml, const detail::YamlNode& node) {
  std::string out;
  if (node.kind == detail::YamlNode::Kind::scalar) return json_text(node.text);
  const bool list = node.kind == detail::YamlNode::Kind::sequence;
  for (const std::size_t item : node.items)
    out += (out.empty() ? "" : ", ") + json(yaml, yaml[item]);
  for (const auto& [key, item] : node.pairs)
    out += (out.empty() ? "" : ", ") + json_text(key) + ": " + json(yaml, yaml[item]);
  return (list ? "[" : "{") + out + (list ? "]" : "}");
}
std::string json(const std::string& text) {
  const detail::YamlDocument yaml(text, "x.yaml");
  return json(yaml, yaml.root());
}

std::string output_of(const std::string& command) {
  std::string out;
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char chunk[4096];
  while (const std::size_t bytes = std::fread(chunk, 1, sizeof chunk, pipe))
    out.append(chunk, bytes);
  return pclose(pipe) == 0 ? out : "";
}

void check_fault(const std::string& text, const std::string& part) {
  CAPTURE(text);
  const std::string found = message_of<DataError>([&] { parse_feature_spec(text, "spec.yaml"); });
  CAPTURE(found);
  CHECK(found.find(part) != std::string::npos);
}

const std::string kBlocks =
    "---\n# a comment\nchannels:   # behind a key\n  first: &id001\n  - a\n  - 'it''s'\n  -   "
    "\"tab\\there \\x41\"\n  second:\n      - x: "
    "1\n"
    "        y: [p, \"q, r\", {s: t}]\n      - - deep\n        - deeper\n      -\n        z:\n\n  "
    "again: *id001\n  long: [num_0, num_1,\n"
    "    num_2, num_3]   # and on\n  map: {a: 1, b c: two words,}\n  'quoted key': text # with "
    "#hash\n  url: http://x/#y\nempty: {}\nnone: "
    "[]\n"
    "number: 0x1f\nlast: end\n";
const std::string kBlocksJson =
    R"({"channels": {"first": ["a", "it's", "tab\there A"], "second": [{"x": "1", "y": ["p", "q, r", {"s": "t"}]}, ["deep", "deeper"], )"
    R"({"z": ""}], "again": ["a", "it's", "tab\there A"], "long": ["num_0", "num_1", "num_2", "num_3"], "map": {"a": "1", "b c": )"
    R"("two words"}, "quoted key": "text", "url": "http://x/#y"}, "empty": {}, "none": [], "number": "0x1f", "last": "end"})";

const std::string kSpec =
    "channel_spec:\n  categorical:\n  - shop\n  - 67yu.bin\n  label:\n  - click\n  numerical: "
    "&id001\n  - price\n  - age\n"
    "feature_spec:\n  67yu.bin:\n    cardinality: 100000\n    dtype: int32\n  age:\n    dtype: "
    "float16\n  click:\n    dtype: bool\n"
    "  price: {dtype: float16}\n  shop:\n    cardinality: 126\n    dtype: int8\nmetadata: "
    "{}\nsource_spec:\n  test: []\n  train:\n"
    "  - features: *id001\n    files:\n    - train/numbers.bin\n    type: split_binary\n  - "
    "features: [click]\n    files: "
    "[train/label.bin]\n"
    "    type: split_binary\n  - {features: [shop], files: [a/shop], type: split_binary}\n  - "
    "features:\n    - 67yu.bin\n    files:\n"
    "    - train/67yu.bin\n    type: split_binary\n";

/// Checks what is said of the specification above with `to` in place of `from`.
void check_changed(std::string_view from, std::string_view to, const std::string& part) {
  check_fault(replaced(kSpec, from, to), part);
}

}  // namespace

TEST_CASE("YAML: blocks, flow, quotes, comments, aliases") {
  CHECK(json(kBlocks) == kBlocksJson);
  CHECK(json("") == "\"\"");
  CHECK(json("just text\n") == "\"just text\"");
  CHECK(json("- a\r\n- b") == R"(["a", "b"])");
}

TEST_CASE("PyYAML reads the same") {
  if (std::system("python3 -c 'import yaml' 2> /dev/null") != 0) {
    MESSAGE("no PyYAML here");
    return;
  }
  const TemporaryFolder folder;
  const std::string path = (folder.path / "spec.yaml").string();
  for (const std::string& text :
       {kBlocks, kSpec, format_feature_spec(parse_feature_spec(kSpec, "spec.yaml"))}) {
    std::ofstream(path) << text;
    CHECK(
        output_of("python3 -c 'import json, sys, yaml; "
                  "print(json.dumps(yaml.load(open(sys.argv[1]), yaml.BaseLoader)), end=\"\")' '" +
                  path + "'") == json(text));
  }
  // What PyYAML writes, block style and the older flow style, and this reads.
  const std::vector<std::int64_t> rows{4, 126, 127, 40'000'000};
  std::ofstream(path) << format_feature_spec(make_feature_spec(13, rows));
  for (const std::string style : {"False", "None", "True"}) {
    const std::string written = output_of(
        "python3 -c 'import sys, yaml; print(yaml.dump(yaml.safe_load(open(sys.argv[1])), "
        "default_flow_style=" +
        style + "))' '" + path + "'");
    CHECK(format_feature_spec(parse_feature_spec(written, "x")) ==
          format_feature_spec(make_feature_spec(13, rows)));
  }
}

TEST_CASE("a specification") {
  const DatasetSpec spec = parse_feature_spec(kSpec, "spec.yaml");
  CHECK(spec.features.size() == 5);
  CHECK(spec.feature("shop").type == DatasetType::int8);
  CHECK(spec.feature("shop").cardinality == 126);
  CHECK(spec.feature("price").type == DatasetType::float16);
  CHECK(spec.feature("click").type == DatasetType::boolean);
  CHECK(spec.channel("categorical") == std::vector<std::string>{"shop", "67yu.bin"});
  CHECK(spec.source("test").empty());
  const std::vector<DatasetChunk>& train = spec.source("train");
  REQUIRE(train.size() == 4);
  CHECK(train[0].features == std::vector<std::string>{"price", "age"});
  CHECK(train[2].files == std::vector<std::string>{"a/shop"});
  CHECK(train[3].type == "split_binary");
  CHECK_THROWS_WITH_AS(spec.source("valid"), "file 'spec.yaml': there is no source 'valid'",
                       DataError);
  const std::string text = format_feature_spec(spec);
  CHECK(format_feature_spec(parse_feature_spec(text, "again")) == text);
}

TEST_CASE("the default specification of the format") {
  const std::vector<std::int64_t> rows{126, 127, 32766, 32767, 2147483646, 2147483647};
  const DatasetSpec spec = make_feature_spec(2, rows);
  const DatasetType types[] = {DatasetType::int8,  DatasetType::int16, DatasetType::int16,
                               DatasetType::int32, DatasetType::int32, DatasetType::int64};
  for (std::size_t f = 0; f < rows.size(); ++f) {
    CHECK(spec.feature(fmt::format("cat_{}.bin", f)).type == types[f]);
    CHECK(spec.feature(fmt::format("cat_{}.bin", f)).cardinality == rows[f]);
  }
  CHECK(spec.source("train").size() == 8);
  CHECK(spec.source("test")[0].files[0] == "test/numerical.bin");
  CHECK(spec.source("test")[2].files[0] == "test/cat_0.bin");
}

TEST_CASE("what is wrong with a specification, and where") {
  check_fault("", "the file must be a mapping");
  check_fault("feature_spec: {}\n", "'channel_spec' is missing");
  check_changed("int32", "int33", "line 12: feature '67yu.bin': dtype 'int33' is none of");
  check_changed("cardinality: 126", "cardinality: 129", "cardinality 129 is not in 1 .. 128");
  check_changed("cardinality: 126", "cardinality: 0", "cardinality 0");
  check_changed("cardinality: 126", "cardinality: -1", "'-1' is not a whole number");
  check_changed("cardinality: 126", "cardinality: auto", "'auto' is not a whole number");
  check_changed("cardinality: 126", "cardinality: 99999999999999999999",
                "is not a whole number of 64 bits");
  check_changed("cardinality: 126", "hotness: 0", "hotness 0 is not in 1 ..");
  check_changed("cardinality: 126", "hotness: x", "'x' is not a whole number");
  check_changed("{dtype: float16}", "{dtype: float16, hotness: 2}",
                "hotness 2 is for features of ids");
  check_changed("cardinality: 126", "padding: 0", "padding must be -1, of a feature");
  check_changed("{dtype: float16}", "{dtype: float16, padding: -1}",
                "padding must be -1, of a feature of ids");
  for (const char* file : {"/etc/passwd", "../x", "a/../../x", "a/..", "\"\"", "\"a\\x00b\""})
    check_changed("a/shop", file,
                  "line 33: files must be paths inside the specification's folder, without '..'");
  check_changed("    cardinality: 126\n", "", "categorical feature 'shop' needs");
  check_changed("  - 67yu.bin\n", "  - shop\n", "'shop' is listed twice");
  check_changed("  - 67yu.bin\n", "  - shoes\n", "'shoes' is not in feature_spec");
  check_changed("{features: [shop]", "{features: [click]",
                "'click' is in two chunks of source 'train'");
  check_changed("metadata", "feature_spec", "line 22, column 1: the key was there before");
  check_changed("*id001", "*id002", "the referenced anchor is not defined");
  check_changed("    cardinality: 100000", "\tcardinality: 100000", "line 12, column 2");
  check_changed("  age:", "    age:", "line 15, column 5: the key was there before");
  check_changed("[click]", "[click", "line 31");
  check_changed("dtype: bool", "dtype: !!str bool", "tags are not read");
  check_changed("dtype: bool", "dtype: 'bool", "line 17");
  check_fault(kSpec + "---\na: b\n", "one document");
  check_fault(std::string(100, '[') + std::string(100, ']'), "nested too deeply");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  check_fault(deep, "nested too deeply");
  check_fault(std::string((std::size_t{1} << 24) + 1, ' '), "has at most");
  CHECK_THROWS_AS(read_feature_spec("/no/such/folder"), DataError);
}
