// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No input may do more harm than a DataError; a file that is accepted keeps its promises: tensors
// lie inside, side by side, as large as their shapes say, and can be read.
#include <tessera/io/safetensors.hpp>

#include <cstdint>
#include <cstdlib>

using namespace tessera;

namespace {

void read(const SafetensorsReader& reader, const detail::TensorInfo& t) {
  switch (t.type) {
    case detail::TensorType::f32:
      reader.read<float>(t.name);
      break;
    case detail::TensorType::f16:
      reader.read<Half>(t.name);
      break;
    case detail::TensorType::bf16:
      reader.read<BFloat16>(t.name);
      break;
    case detail::TensorType::f64:
      reader.read<double>(t.name);
      break;
    case detail::TensorType::i64:
      reader.read<std::int64_t>(t.name);
      break;
    case detail::TensorType::i32:
      reader.read<std::int32_t>(t.name);
      break;
    case detail::TensorType::u8:
      reader.read<std::uint8_t>(t.name);
      break;
    case detail::TensorType::boolean:
      reader.read<bool>(t.name);
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const SafetensorsReader reader(std::as_bytes(std::span(data, size)), "fuzz");
    std::uint64_t at = 0;
    for (const detail::TensorInfo& t : reader.tensors()) {
      if (t.begin != at || !reader.contains(t.name)) std::abort();
      at = t.end;
      std::uint64_t elements = 1;
      for (const std::int64_t extent : t.shape) elements *= static_cast<std::uint64_t>(extent);
      if (elements != static_cast<std::uint64_t>(t.elements()) ||
          reader.bytes(t.name).size() != t.end - t.begin)
        std::abort();
      read(reader, t);
    }
  } catch (const DataError&) {
  }
  return 0;
}
