// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The reader against files written out by hand, good and bad; the writer against the bytes that the
// format demands.
#include <tessera/io/safetensors.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <data/shared_folder.hpp>
#include <support/message_of.hpp>
#include <support/text_of.hpp>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

using namespace tessera;

namespace {

std::string file_of(const std::string& header, const std::string& data, std::uint64_t length) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i)
    file[static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i));
  return file + header + data;
}
std::string file_of(const std::string& header, const std::string& data = "") {
  return file_of(header, data, header.size());
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// The message that reading gives; empty if it succeeds.
std::string fault(const std::string& file) {
  return message_of<DataError>([&] { SafetensorsReader(bytes_of(file), "bad.safetensors"); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every type, read from bytes written by hand") {
  const std::string data(
      "\x00\x00\x80\x3f\x00\x00\x00\xc0"  // F32 1, -2
      "\x00\x3c"                          // F16 1
      "\x80\x3f"                          // BF16 1
      "\x00\x00\x00\x00\x00\x00\xf8\x3f"  // F64 1.5
      "\xff\xff\xff\xff\xff\xff\xff\xff"  // I64 -1
      "\xfe\xff\xff\xff"                  // I32 -2
      "\x07\xff\x01\x00\x01",             // U8 7, 255; BOOL 1, 0, 1
      37);
  const std::string file = file_of(
      R"({"__metadata__":{"case":"{\"kind\": \"a\\b\"}","u":"\u00e9\u20ac\ud83d\ude00\n"},)"
      R"("f":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}, "h" : { "shape":[1] ,"data_offsets":[8,10],"dtype":"F16"},)"
      R"("b":{"dtype":"BF16","shape":[1,1,1],"data_offsets":[10,12]},"d":{"dtype":"F64","shape":[],"data_offsets":[12,20]},)"
      R"("l":{"dtype":"I64","shape":[1],"data_offsets":[20,28]},"i":{"dtype":"I32","shape":[1],"data_offsets":[28,32]},)"
      R"("u":{"dtype":"U8","shape":[2],"data_offsets":[32,34]},"o":{"dtype":"BOOL","shape":[3],"data_offsets":[34,37]},)"
      R"("none":{"dtype":"F32","shape":[4,0],"data_offsets":[37,37]}}   )",
      data);
  const SafetensorsReader reader(bytes_of(file), "hand");
  CHECK(reader.metadata().at("case") == R"({"kind": "a\b"})");
  CHECK(reader.metadata().at("u") == "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\n");
  CHECK(reader.read<float>("f") == std::vector{1.0f, -2.0f});
  CHECK(reader.info("f").shape == std::vector<std::int64_t>{1, 2});
  CHECK(reader.read<Half>("h").at(0) == from_float<Half>(1.0f));
  CHECK(reader.read<BFloat16>("b").at(0) == from_float<BFloat16>(1.0f));
  CHECK(reader.read<double>("d") == std::vector{1.5});
  CHECK(reader.info("d").shape.empty());
  CHECK(reader.info("d").elements() == 1);
  CHECK(reader.read<std::int64_t>("l") == std::vector<std::int64_t>{-1});
  CHECK(reader.read<std::int32_t>("i") == std::vector<std::int32_t>{-2});
  CHECK(reader.read<std::uint8_t>("u") == std::vector<std::uint8_t>{7, 255});
  CHECK(reader.read<bool>("o") == std::vector<bool>{true, false, true});
  CHECK(reader.read<float>("none").empty());
  CHECK(reader.tensors().size() == 9);
  CHECK(reader.contains("none"));
  CHECK_FALSE(reader.contains("nothing"));
  CHECK_THROWS_WITH_AS(reader.info("nothing"), "file 'hand' has no tensor 'nothing'", DataError);
  CHECK_THROWS_WITH_AS(reader.read<double>("f"),
                       "file 'hand', tensor 'f': holds F32, asked for F64", DataError);
}

TEST_CASE("a BOOL that is neither 0 nor 1 is refused where it stands") {
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"o":{"dtype":"BOOL","shape":[2],"data_offsets":[1,3]}})";
  const std::string file = file_of(header, std::string("\x05\x01\x02", 3));
  const SafetensorsReader reader(bytes_of(file), "f");
  CHECK_THROWS_WITH_AS(
      reader.read<bool>("o"),
      fmt::format("file 'f', tensor 'o', offset {}: BOOL byte 2 is neither 0 nor 1",
                  8 + header.size() + 2)
          .c_str(),
      DataError);
}

TEST_CASE("files that are no safetensors files") {
  CHECK(has(fault(""), "file 'bad.safetensors', offset 0: 0 bytes are too few"));
  CHECK(has(fault("1234567"), "offset 0: 7 bytes are too few"));
  CHECK(has(fault(file_of("{}", "", 3)),
            "offset 0: a header of 3 bytes does not fit the file of 10 bytes"));
  CHECK(has(fault(file_of("{}", "", ~std::uint64_t{0})), "a header of 18446744073709551615 bytes"));
  CHECK(has(fault(file_of("{}", "", std::uint64_t{1} << 63)), "does not fit"));
  CHECK(has(fault(file_of(std::string(100'000'001, ' '))), "a header of 100000001 bytes"));
  CHECK(has(fault(file_of("")), "offset 8: the header must begin with an opening brace"));
  CHECK(has(fault(file_of(" {}")), "offset 8: the header must begin"));
  CHECK(has(fault(file_of("[1]")), "offset 8: the header must begin"));
  CHECK(fault(file_of("{}")).empty());
  CHECK(fault(file_of("{ } \n")).empty());
  CHECK(has(fault(file_of("{}", "x")), "offset 10: 1 bytes follow the last tensor"));
}

TEST_CASE(
    "header text that is not what the format allows: the message names the tensor and the offset") {
  const auto t = [](const std::string& tensor) {
    return fault(file_of("{\"w\":" + tensor + "}", "12345678"));
  };
  const std::string good = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  REQUIRE(t(good).empty());
  for (std::size_t length = 0; length + 1 < good.size(); ++length)
    CHECK(has(t(good.substr(0, length)), "file 'bad.safetensors', tensor 'w', offset "));

  CHECK(has(t("5"), "tensor 'w', offset 13: an object is expected here"));
  CHECK(has(t("{}"), "tensor 'w', offset 9: a tensor needs dtype, shape and data_offsets"));
  CHECK(has(t(R"({"dtype":"F32","shape":[2]})"), "a tensor needs dtype"));
  CHECK(has(t(R"({"dtype":"C64","shape":[1],"data_offsets":[0,8]})"),
            "tensor 'w', offset 22: dtype is none of F32"));
  CHECK(has(t(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"),
            "dtype appears twice"));
  CHECK(has(t(R"({"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})"),
            "shape appears twice"));
  CHECK(has(t(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"data_offsets":[0,8]})"),
            "data_offsets appear twice"));
  CHECK(has(t(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1})"),
            "the keys dtype, shape and data_offsets only"));
  CHECK(has(t(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"),
            "a whole number, not negative"));
  CHECK(has(t(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"),
            "a comma or a closing bracket"));
  CHECK(has(t(R"({"dtype":"F32","shape":[02],"data_offsets":[0,8]})"), "a number begins with 0"));
  CHECK(has(t(R"({"dtype":"F32","shape":[2,],"data_offsets":[0,8]})"), "a whole number"));
  CHECK(has(t(R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})"), "a whole number"));
  CHECK(has(t(R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})"), "a whole number"));
  CHECK(has(t(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), "an array is expected here"));
  CHECK(has(t(R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]})"),
            "the number is too large"));
  CHECK(has(t(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]})"),
            "an extent is too large"));
  CHECK(has(t(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"),
            "data_offsets must be two numbers"));
  CHECK(has(t(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})"),
            "data_offsets must be two numbers"));
  CHECK(has(t(R"({"dtype":F32,"shape":[2],"data_offsets":[0,8]})"), "a string is expected"));
  CHECK(
      has(t(R"({"dtype":"F32" "shape":[2],"data_offsets":[0,8]})"), "a comma or a closing brace"));
  CHECK(has(t(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],})"), "a string is expected"));

  CHECK(has(fault(file_of("{\"w\":" + good + ",\"w\":" + good + "}", "12345678")),
            "tensor 'w', offset 62: the key appears twice"));
  CHECK(has(fault(file_of("{\"w\":" + good + "} x", "12345678")), "text follows the last brace"));
  CHECK(has(fault(file_of("{\"w\":" + good, "12345678")), "the text ends too early"));
  CHECK(has(fault(file_of(R"({"__metadata__":{"a":"1","a":"2"}})")),
            "tensor '__metadata__', offset 33: the key appears twice"));
  CHECK(has(fault(file_of(R"({"__metadata__":{"a":1}})")), "a string is expected"));
  CHECK(has(fault(file_of(R"({"__metadata__":{"a":{"b":"c"}}})")), "a string is expected"));
  CHECK(has(fault(file_of(R"({"__metadata__":{},"__metadata__":{}})")), "the key appears twice"));
  CHECK(has(fault(file_of(R"({"__metadata__":[]})")), "an object is expected"));
  for (const char* text : {R"(\x)", R"(\u12)", R"(\u12g4)", R"(\ud800)", R"(\ud800x)",
                           R"(\ud800\u0041)", R"(\udc00)", "\n", "\x01", R"(\)"})
    CHECK_FALSE(fault(file_of(std::string(R"({"__metadata__":{"a":")") + text + "\"}}")).empty());
}

TEST_CASE("nesting without end needs no stack") {
  for (const char c : {'{', '['})
    CHECK_FALSE(fault(file_of("{\"w\":" + std::string(1'000'000, c))).empty());
  std::string deep = "{";
  for (int i = 0; i < 200'000; ++i) deep += "\"a\":{";
  CHECK_FALSE(fault(file_of(deep)).empty());
}

TEST_CASE("tensors that don't fit the data") {
  const auto header = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":)" + a + R"(},"b":{"dtype":"U8","shape":)" + b + "}}";
  };
  const auto two = [&](const std::string& a, const std::string& b) {
    return fault(file_of(header(a, b), "12345678"));
  };
  const std::string front = R"([4],"data_offsets":[0,4])", back = R"([4],"data_offsets":[4,8])";
  CHECK(two(front, back).empty());
  CHECK(two(back, front).empty());
  const std::string long_front = R"([5],"data_offsets":[0,5])";
  CHECK(has(two(long_front, back), fmt::format("tensor 'b', offset {}: its bytes begin at 4 of the "
                                               "data, but the tensor before ends at 5",
                                               8 + header(long_front, back).size() + 4)));
  CHECK(has(two(R"([3],"data_offsets":[0,3])", back), "tensor 'b'"));
  CHECK(has(two(front, front), "tensor 'b'"));
  CHECK(has(two(front, R"([3],"data_offsets":[4,7])"), "1 bytes follow the last tensor"));
  CHECK(has(two(front, R"([5],"data_offsets":[4,9])"),
            "its bytes [4, 9) are outside the 8 bytes of data; is the file truncated?"));
  CHECK(has(two(R"([4],"data_offsets":[4,0])", back), "its bytes [4, 0) are outside"));
  CHECK(has(two(R"([3],"data_offsets":[0,4])", back), "U8 of shape [3] does not fill 4 bytes"));
  CHECK(has(two(front, R"([4],"data_offsets":[4,18446744073709551615])"), "are outside"));

  const auto one = [](const std::string& type, const std::string& shape) {
    return fault(file_of(
        R"({"w":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[0,8]}})",
        "12345678"));
  };
  CHECK(one("F64", "[]").empty());
  CHECK(one("F32", "[2,1,1]").empty());
  CHECK(has(one("F32", "[2,2]"), "F32 of shape [2,2] does not fill 8 bytes"));
  // Products that wrap around to the right number of bytes.
  CHECK_FALSE(one("F64", "[2305843009213693953]").empty());
  CHECK_FALSE(one("U8", "[4294967296,4294967296,8]").empty());
  CHECK_FALSE(one("F32", "[9223372036854775807,9223372036854775807,2]").empty());
  CHECK_FALSE(one("F32", "[4611686018427387904,0]").empty());
}

TEST_CASE("what the writer writes is read back, aligned, and laid out as the format says") {
  const TestFile file("tessera_test_safetensors");
  const std::vector<float> f{1.0f, -0.5f, 3e38f, 1e-40f, 0.0f, -0.0f};
  const std::vector<std::int64_t> l{1, -1};
  const std::vector<std::uint8_t> u{1, 2, 3};
  const std::vector<BFloat16> b{from_float<BFloat16>(2.0f)};
  const bool o[] = {true, false};
  SafetensorsWriter writer;
  writer.add<std::uint8_t>("u \"\\\n\xc3\xa9", {3}, u);
  writer.add<float>("f", {2, 3}, f);
  writer.add<std::int64_t>("l", {2}, l);
  writer.add<BFloat16>("b", {}, b);
  writer.add<bool>("o", {2, 1}, o);
  writer.add<float>("empty", {0, 7}, {});
  writer.set_metadata("case", "{\"kind\": \"x\"}\t");
  writer.write(file.path);

  const SafetensorsReader reader(file.path);
  CHECK(reader.metadata().at("case") == "{\"kind\": \"x\"}\t");
  CHECK(reader.read<float>("f") == f);
  CHECK(reader.read<std::int64_t>("l") == l);
  CHECK(reader.read<std::uint8_t>("u \"\\\n\xc3\xa9") == u);
  CHECK(reader.read<BFloat16>("b") == b);
  CHECK(reader.read<bool>("o") == std::vector<bool>{true, false});
  CHECK(reader.info("empty").shape == std::vector<std::int64_t>{0, 7});
  CHECK(reader.info("b").shape.empty());

  const std::string bytes = text_of(file.path);
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  CHECK((8 + length) % 8 == 0);
  CHECK(bytes.size() == 8 + length + 24 + 16 + 3 + 2 + 2);
  for (const detail::TensorInfo& t : reader.tensors())
    CHECK(t.begin % detail::tensor_type_size(t.type) == 0);
  for (const auto& entry : std::filesystem::directory_iterator(file.path.parent_path()))
    CHECK_FALSE(entry.path().string().starts_with(file.path.string() + ".partial"));

  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    CHECK_FALSE(fault(bytes.substr(0, cut)).empty());
}

TEST_CASE("a writer refuses what makes no file") {
  SafetensorsWriter writer;
  const std::vector<float> values(6);
  writer.add<float>("a", {6}, values);
  CHECK_THROWS_WITH_AS(writer.add<float>("a", {6}, values),
                       "safetensors: tensor 'a' was added before", InvalidArgument);
  CHECK_THROWS_AS(writer.add<float>("__metadata__", {6}, values), InvalidArgument);
  CHECK_THROWS_WITH_AS(
      writer.add<float>("\xb3\xc7", {6}, values),
      "the name of a safetensors file's tensor '\\xb3\\xc7' is not UTF-8; rename it",
      InvalidArgument);
  CHECK_THROWS_WITH_AS(writer.add<float>("b", {2, 2}, values),
                       "safetensors: tensor 'b': its shape needs 16 bytes, got 24",
                       InvalidArgument);
  CHECK_THROWS_AS(writer.add<float>("c", {-1}, values), InvalidArgument);
  CHECK_THROWS_AS(writer.add<float>("d", {1LL << 62, 8}, values), InvalidArgument);
  CHECK_THROWS_AS(writer.write("/nonexistent-folder/x.safetensors"), DataError);
}

TEST_CASE("a file that is not there, or not a file") {
  CHECK_THROWS_WITH_AS(SafetensorsReader("/nonexistent-folder/x"),
                       "cannot open '/nonexistent-folder/x': No such file or directory", DataError);
  CHECK_THROWS_AS(SafetensorsReader{std::filesystem::temp_directory_path()}, DataError);
  const TestFile file("tessera_test_empty");
  std::ofstream(file.path).close();
  CHECK_THROWS_AS(SafetensorsReader{file.path}, DataError);
}
