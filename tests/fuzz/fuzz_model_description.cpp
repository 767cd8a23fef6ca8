// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No text may do more harm than a DataError; a description that is accepted is written as one that
// says the same.
#include <tessera_serving/model_description.hpp>

#include <cstdint>
#include <cstdlib>

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ModelDescription model =
        parse_model_description({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const CategoryInput& input : model.features)
      if (model.table(input.table).rows < 1) std::abort();
    const std::string text = format_model_description(model);
    if (format_model_description(parse_model_description(text, "again")) != text) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
