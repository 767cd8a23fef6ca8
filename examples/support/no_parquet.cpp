// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "parquet.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/regular_file.hpp>
#include <tessera_data/criteo.hpp>

#include <array>
#include <filesystem>

namespace support {
namespace {

constexpr const char* kWhatToDo =
    "this program was built without Apache Arrow: do 'pip install pyarrow', configure CMake with "
    "-DArrowCpp_PYTHON=, the python3 that has it, and build again";

}  // namespace

tessera::OpenRecords open_records() {
  return [](const std::filesystem::path& path, std::span<const tessera::WantedColumn>,
            std::int64_t) -> tessera::RecordSource {
    std::array<char, 16> begin{};
    const std::size_t bytes =
        tessera::detail::RegularFile(path).read(begin.data(), begin.size(), 0);
    const std::string_view kind = tessera::detail::file_kind({begin.data(), bytes}).format;
    tessera::require<tessera::DataError>(kind != "Parquet" && kind != "Arrow",
                                         "file '{}': this is a {} file, and {}; or write it as CSV "
                                         "or TSV text",
                                         path.string(), kind, kWhatToDo);
    return {};
  };
}

struct ParquetWriter::Content {};
ParquetWriter::ParquetWriter(std::span<const std::string>, const std::string&,
                             std::function<void(std::string_view)>) {
  throw tessera::InvalidArgument(std::string("Parquet is not written: ") + kWhatToDo);
}
ParquetWriter::~ParquetWriter() = default;
void ParquetWriter::add(std::span<const std::string>, float) {}
void ParquetWriter::finish() {}

}  // namespace support
