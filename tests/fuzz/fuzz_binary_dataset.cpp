// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Three bytes say where the files of labels, numbers and ids end, the rest is their bytes and then
// a specification that replaces the usual one if it is not empty. No folder may do more harm than a
// DataError, and whatever is read keeps what the dataset promises.
#include <tessera_data/binary_dataset.hpp>

#include <unistd.h>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

using namespace tessera;

namespace {

const std::filesystem::path& folder() {
  static const std::filesystem::path path = [] {
    const auto made =
        std::filesystem::temp_directory_path() / ("tessera_fuzz_" + std::to_string(getpid()));
    std::filesystem::create_directories(made);
    std::atexit([] { std::filesystem::remove_all(folder()); });
    return made;
  }();
  return path;
}

constexpr std::string_view kSpec =
    "channel_spec: {categorical: [c, d], label: [y], numerical: [n]}\n"
    "feature_spec: {c: {cardinality: 5, dtype: int8}, d: {cardinality: 70, dtype: int16}, y: "
    "{dtype: bool}, n: {dtype: float16}}\n"
    "source_spec: {train: [{features: [y], files: [y], type: split_binary}, {features: [n], files: "
    "[n], type: split_binary},\n"
    "  {features: [c], files: [c], type: split_binary}, {features: [d], files: [n], type: "
    "split_binary}]}\n";

template <class Id>
void read(const BinaryDataset& data) {
  try {
    ClickBatch<Id> batch;
    data.read(0, data.size(), batch);
    batch.keyed().validate();
    for (std::int64_t f = 0; f < batch.features; ++f)
      for (std::int64_t s = 0; s < batch.size; ++s) {
        const std::int64_t id = batch.ids[static_cast<std::size_t>(f * batch.size + s)];
        if (id < 0 || id >= data.rows()[static_cast<std::size_t>(f)]) std::abort();
      }
    for (const float x : batch.dense)
      if (!std::isfinite(x)) std::abort();
    for (const float y : batch.labels)
      if (y != 0 && y != 1) std::abort();
  } catch (const DataError&) {
  } catch (const InvalidArgument&) {  // more rows than 32-bit ids can number
    if (sizeof(Id) == 8) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 3, size - 3);
  int i = 0;
  for (const char* name : {"y", "n", "c"}) {
    const std::string_view bytes = rest.substr(0, data[i++]);
    std::ofstream(folder() / name, std::ios::binary) << bytes;
    rest.remove_prefix(bytes.size());
  }
  try {
    const BinaryDataset dataset(folder(), parse_feature_spec(rest.empty() ? kSpec : rest, "fuzz"),
                                "train");
    read<std::int32_t>(dataset);
    read<std::int64_t>(dataset);
  } catch (const DataError&) {
  }
  return 0;
}
