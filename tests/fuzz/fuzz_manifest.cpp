// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No text may do more harm to the reader of manifests than a DataError; what it accepts is
// consistent, and survives being written and read again. The checksum is made right here, as no
// mutation would find it.
#include <tessera/checkpoint/manifest.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <string>

using namespace tessera;

namespace {

void check(std::string_view text) {
  try {
    const detail::Manifest manifest = detail::parse_manifest(text, "fuzz");
    for (const detail::StoredTensor& tensor : manifest.tensors) {
      if (tensor.rows() < 0 || tensor.row_bytes() < 0) std::abort();
      std::int64_t rows = 0;
      for (const detail::TensorPiece& piece : tensor.pieces) {
        if (piece.row_begin != rows || piece.file < 0 ||
            piece.file >= static_cast<std::int64_t>(manifest.files.size()))
          std::abort();
        rows = piece.row_end;
      }
      if (rows != tensor.rows() || tensor.name.empty()) std::abort();
      if (tensor.row_numbers.empty()) continue;
      const detail::StoredTensor* numbers = manifest.find(tensor.row_numbers);
      if (numbers == nullptr || numbers->type != detail::TensorType::i64 ||
          numbers->rows() != tensor.rows() || manifest.base.empty())
        std::abort();
    }
    for (const detail::StoredFile& file : manifest.files)
      if (file.name.empty() || file.name[0] == '.' || file.name.find('/') != std::string::npos ||
          file.crcs.size() != detail::chunks_of(file.bytes))
        std::abort();
    const std::string written = detail::format_manifest(manifest);
    if (detail::format_manifest(detail::parse_manifest(written, "again")) != written) std::abort();
  } catch (const DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check(text);
  if (const std::size_t tail = text.rfind(detail::kManifestTail); tail != std::string::npos)
    check(fmt::format("{}{}{}}}\n", text.substr(0, tail), detail::kManifestTail,
                      detail::crc32(std::string_view(text).substr(0, tail))));
  return 0;
}
