// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No bytes may do more harm to FrozenTables than a DataError that names the file; of what is
// accepted every table can be read to its last row, and any key looked up. Checksums are left out:
// they would hide all else.
#include <tessera_serving/frozen_tables.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // As a mapped file: aligned.
  std::vector<std::uint64_t> words(size / 8 + 1);
  if (size > 0) std::memcpy(words.data(), data, size);
  try {
    const FrozenTables tables(std::as_bytes(std::span(words)).first(size), "fuzz",
                              {.verify = false});
    for (const FrozenTables::Table& table : tables.tables()) {
      std::vector<std::int64_t> ids{0, table.rows - 1};
      if (table.keys != nullptr)
        for (const std::int64_t key :
             {std::int64_t{0}, table.rows, std::numeric_limits<std::int64_t>::min()}) {
          ids.push_back(-1);
          tables.find<std::int64_t>(table.name, {&key, 1}, {&ids.back(), 1});
        }
      std::vector<float> rows(ids.size() * static_cast<std::size_t>(table.width));
      tables.rows<std::int64_t>(table.name, ids, {rows.data(), std::ssize(ids), table.width});
    }
  } catch (const DataError& error) {
    if (std::string(error.what()).find("fuzz") == std::string::npos) std::abort();
  }
  return 0;
}
