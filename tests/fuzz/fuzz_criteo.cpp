// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The first byte chooses the chunk size, the rest is the file. No input may do more harm than a
// DataError, what is read must not depend on the chunk size, and what was read must survive being
// written and read again.
#include <tessera_data/criteo.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

using namespace tessera;

namespace {

struct Result {
  std::vector<CriteoRecord> records;
  std::int64_t lines = 0;
  std::int64_t bad_lines = 0;
  friend bool operator==(const Result&, const Result&) = default;
};

Result read(std::string_view text, std::size_t chunk_bytes) {
  const ByteSource source = [text](std::span<char> chunk) mutable {
    const std::size_t bytes = std::min(chunk.size(), text.size());
    std::memcpy(chunk.data(), text.data(), bytes);
    text.remove_prefix(bytes);
    return bytes;
  };
  CriteoReader reader(source, "fuzz", {.bad_lines = BadLines::skip, .chunk_bytes = chunk_bytes});
  Result result;
  std::vector<CriteoRecord> records(5);
  while (const std::size_t count = reader.read(records))
    result.records.insert(result.records.end(), records.begin(),
                          records.begin() + static_cast<std::ptrdiff_t>(count));
  result.lines = reader.lines();
  result.bad_lines = reader.bad_lines();
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Result result = read(text, 1 + data[0]);
  if (!(result == read(text, 1 << 16))) std::abort();
  if (result.lines != result.bad_lines + static_cast<std::int64_t>(result.records.size()))
    std::abort();
  std::string again;
  for (const CriteoRecord& record : result.records) append_criteo_line(again, record);
  if (read(again, 100).records != result.records) std::abort();
  return 0;
}
