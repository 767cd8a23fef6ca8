// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No input may do more harm than a DataError; a specification that is accepted survives being
// written and read again, and refers to nothing that it does not hold.
#include <tessera_data/feature_spec.hpp>

#include <cstdint>
#include <cstdlib>

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const DatasetSpec spec =
        parse_feature_spec({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const auto& [channel, features] : spec.channels)
      for (const std::string& f : features) (void)spec.feature(f);
    for (const auto& [source, chunks] : spec.sources)
      for (const DatasetChunk& chunk : chunks)
        for (const std::string& f : chunk.features)
          if (spec.feature(f).cardinality < 0) std::abort();
    const std::string text = format_feature_spec(spec);
    if (format_feature_spec(parse_feature_spec(text, "again")) != text) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
