// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No input may do more harm than a DataError; a schema that is accepted refers to nothing that it
// does not hold.
#include <tessera_data/schema.hpp>

#include <cstdint>
#include <cstdlib>

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const Schema schema = parse_schema({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (schema.label.empty() || schema.categorical.empty()) std::abort();
    for (const CategoricalColumn& column : schema.categorical)
      if (column.table >= schema.tables.size()) std::abort();
    for (const TableColumns& table : schema.tables)
      if (table.rows < 0 || table.width < 0 || table.width > 1024 ||
          (table.rows == 0) != (table.rows_by == RowsBy::appearance))
        std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
