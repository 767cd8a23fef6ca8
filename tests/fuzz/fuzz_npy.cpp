// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No bytes may do more harm to the reader of .npy headers than a DataError; what it accepts fills
// the file exactly, and is understood again when it is written.
#include <tessera/io/npy_header.hpp>

#include <cstdint>
#include <cstdlib>

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const detail::NpyHeader header =
        detail::parse_npy_header(std::as_bytes(std::span(data, size)), size, "fuzz");
    std::uint64_t bytes = detail::tensor_type_size(header.type);
    for (const std::int64_t extent : header.shape) bytes *= static_cast<std::uint64_t>(extent);
    if (header.data_offset + bytes != size) std::abort();
    const std::string written = detail::format_npy_header(header.type, header.shape);
    const detail::NpyHeader again = detail::parse_npy_header(std::as_bytes(std::span(written)),
                                                             written.size() + bytes, "again");
    if (again.type != header.type || again.shape != header.shape ||
        again.data_offset != written.size())
      std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
