// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Real Criteo files: counts that were found by other means.
#include <tessera_data/criteo.hpp>
#include <tessera_data/criteo_encoder.hpp>

#include <doctest/doctest.h>
#include <data/shared_folder.hpp>

#include <cmath>

using namespace tessera;

namespace {

void check(const char* name, std::int64_t rows, double positives, std::int64_t distinct) {
  const auto path = shared_folder("data") / name;
  const LineIndex index(path);
  const auto records = read_criteo(path);
  CHECK(index.lines() == rows);
  CHECK(static_cast<std::int64_t>(records.size()) == rows);
  double ones = 0;
  for (const auto& record : records) ones += record.label;
  CHECK(std::abs(ones / static_cast<double>(rows) - positives) < 0.0005);
  CriteoStatistics statistics;
  statistics.add(records);
  std::int64_t values = 0;
  for (int f = 0; f < kCriteoCategories; ++f) values += statistics.distinct_values(f);
  CHECK(values == distinct);
  // Written out again and read in small chunks, the records are the same.
  std::string text;
  for (const auto& record : records) append_criteo_line(text, record);
  const TestFile copy("tessera_test_real_clicks");
  std::FILE* const file = std::fopen(copy.path.c_str(), "wb");
  REQUIRE(file != nullptr);
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
  CHECK(read_criteo(copy.path, {.chunk_bytes = 1000}) == records);
}

}  // namespace

TEST_CASE("criteo_kaggle_12k5.tsv") { check("criteo_kaggle_12k5.tsv", 12'584, 0.235, 53'585); }
TEST_CASE("criteo_kaggle_45k_7cat.tsv") { check("criteo_kaggle_45k_7cat.tsv", 45'840, 0.257, 76); }
