// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"

#include <tessera_serving/quantized_rows.hpp>

#include <fmt/format.h>

#include <string>
#include <vector>

namespace golden {

/// Encoded bytes are FBGEMM's, and decoded rows agree to the last bit but one.
template <class Row>
void run_row_format(Tally& tally, const ts::SafetensorsReader& file, const std::string& name,
                    int width) {
  if (!file.contains(name)) return;
  tally.run(name, [&](Verdict& verdict) {
    const std::vector<float> rows = floats(file, "rows"),
                             expected_floats = floats(file, name + ".float");
    const std::vector<std::uint8_t> expected = file.read<std::uint8_t>(name);
    std::vector<std::byte> bytes(expected.size());
    ts::quantize_rows<Row>(rows, width, bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != static_cast<std::byte>(expected[i]))
        return verdict.fail(fmt::format("row {}: byte {} is {}, expected {}", i / Row::bytes(width),
                                        i % Row::bytes(width), static_cast<int>(bytes[i]),
                                        expected[i]));
    std::vector<float> found(rows.size());
    for (std::size_t r = 0; r < rows.size() / width; ++r)
      Row::decode(bytes.data() + r * Row::bytes(width), width, found.data() + r * width);
    for (std::size_t i = 0; i < found.size(); ++i)
      if (!(std::abs(found[i] - expected_floats[i]) <= 1e-6f * std::abs(expected_floats[i])))
        return verdict.fail(
            fmt::format("element {} is {}, expected {}", i, found[i], expected_floats[i]));
  });
}

inline int run_quantized(int argc, char** argv, int width) {
  if (argc < 2) return 2;
  const ts::SafetensorsReader file(argv[1]);
  Tally tally;
  run_row_format<ts::Int8Row>(tally, file, "rows8", width);
  run_row_format<ts::Int8HalfRow>(tally, file, "rows8half", width);
  run_row_format<ts::Int4Row>(tally, file, "rows4", width);
  return tally.finish();
}

}  // namespace golden
