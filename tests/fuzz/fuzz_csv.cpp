// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No input may do more harm than a DataError, and how the bytes come in changes nothing: neither
// the fields nor the error. Samples that are read have labels, finite numbers and keys in order.
#include <tessera_data/tabular.hpp>

#include "../support/bytes_of.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

using namespace tessera;

namespace {

/// Every field with its length, or what was wrong.
std::string fields(std::string_view text, std::size_t at_a_time, CsvReaderOptions options) {
  std::string all;
  try {
    options.chunk_bytes = at_a_time;
    CsvReader reader(bytes_of(std::string(text), at_a_time), "fuzz", options);
    for (auto record = reader.next(); !record.empty(); record = reader.next()) {
      all += fmt::format("\n{}", reader.line());
      for (const std::string_view field : record) all += fmt::format(" {}:{}", field.size(), field);
    }
  } catch (const DataError& error) {
    all += error.what();
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Schema schema =
      parse_schema("label: y\nnumeric: [x]\ncategorical: [c, {name: tags, list: '|'}]", "schema");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const CsvReaderOptions& options :
       {CsvReaderOptions{}, CsvReaderOptions{.separator = "::", .quote = '\''},
        CsvReaderOptions{.separator = "blanks", .fields = 2},
        CsvReaderOptions{.quote = 0, .columns = {"a", "b"}, .empty_words = {"NA", "1"}}})
    if (fields(text, 1, options) != fields(text, 1 << 16, options)) std::abort();
  try {
    TabularReader reader(bytes_of(std::string(text), 5), "fuzz", schema, ",", BadLines::skip);
    TabularBlock block;
    while (reader.read(3, block) > 0) {
      if (block.labels.size() != static_cast<std::size_t>(block.size) ||
          block.ends.size() != 2 * block.labels.size() || block.ends.back() != block.keys.size() ||
          !std::is_sorted(block.ends.begin(), block.ends.end()))
        std::abort();
      for (const float label : block.labels)
        if (!(label >= 0 && label <= 1)) std::abort();
      for (const double number : block.numbers)
        if (std::abs(number) > std::numeric_limits<float>::max()) std::abort();
    }
  } catch (const DataError&) {
  }
  return 0;
}
