// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Parquet and Arrow files, by Apache Arrow's C++ library, which parquet.cpp alone includes. A program built without it has
// no_parquet.cpp in its place, which refuses such files and says what to install.
#pragma once

#include <tessera_data/record_source.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace support {

/// Opens Parquet files and Arrow's own (IPC, also called Feather 2) for what reads CSV. Rows come a
/// few thousand at a time; columns that nobody wants are not read. Numbers become their shortest
/// text; true and false 1 and 0; dates and times the whole numbers that the file holds, in the
/// column's unit; nulls and NaN empty fields.
tessera::OpenRecords open_records();

/// Writes a Parquet file: columns of texts, and one of floats.
class ParquetWriter {
 public:
  /// `write` gets the file's bytes, in order. Throws tessera::Error where the program has no Arrow.
  ParquetWriter(std::span<const std::string> texts, const std::string& number,
                std::function<void(std::string_view)> write);
  ~ParquetWriter();
  /// Adds a row.
  void add(std::span<const std::string> texts, float number);
  /// Writes what the end of the file needs.
  void finish();

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace support
