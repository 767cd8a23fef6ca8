// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A program of the companions: a metric and a schema of data, a row's code and lookups of serving.
#include <tessera_data/metrics.hpp>
#include <tessera_serving/frozen_lookup.hpp>
#include <tessera_serving/quantized_rows.hpp>
#ifdef WITH_DATA
#include <tessera_data/schema.hpp>
#endif

#include <array>
#include <cmath>
#include <cstddef>

namespace ts = tessera;
template class tessera::FrozenLookup<int>;  // its header includes all that it calls

int main() {
  ts::Auc auc;
  auc.add(std::array{0.1f, 0.4f, 0.35f, 0.8f}, std::array{0.0f, 1.0f, 0.0f, 1.0f});
  if (auc.value() != 1) return 1;
  const std::array row{-1.0f, 0.2f, 0.5f, 1.0f};
  std::array<std::byte, ts::Int8Row::bytes(4)> coded;
  std::array<float, 4> decoded;
  ts::Int8Row::encode(row.data(), 4, coded.data());
  ts::Int8Row::decode(coded.data(), 4, decoded.data());
  for (std::size_t c = 0; c < 4; ++c)
    if (std::abs(decoded[c] - row[c]) > 2.0f / 510) return 2;
#ifdef WITH_DATA
  const ts::Schema schema = ts::parse_schema("label: clicked\ncategorical: [city]\n", "schema");
  if (schema.label != "clicked") return 3;
#endif
  return 0;
}
