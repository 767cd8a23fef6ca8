// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Every file of the golden folder can be read, and is still the same after it was written again.
#include <tessera/io/safetensors.hpp>

#include <doctest/doctest.h>
#include <data/shared_folder.hpp>

#include <algorithm>

using namespace tessera;

TEST_CASE("golden files") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(shared_folder("golden"))) {
    if (entry.path().extension() != ".safetensors") continue;
    CAPTURE(entry.path());
    ++files;
    const SafetensorsReader reader(entry.path());
    CHECK(reader.metadata().at("case").starts_with("{\"kind\": \""));
    CHECK(reader.tensors().size() > 4);
    CHECK(reader.read<float>(reader.contains("step0.output") ? "step0.output" : "step0.logit")
              .size() > 0);

    SafetensorsWriter writer;
    for (const auto& [key, text] : reader.metadata()) writer.set_metadata(key, text);
    for (const detail::TensorInfo& t : reader.tensors())
      writer.add_bytes(t.name, t.type, t.shape, reader.bytes(t.name));
    const TestFile copy("tessera_test_golden_copy");
    writer.write(copy.path);
    const SafetensorsReader again(copy.path);
    CHECK(again.metadata() == reader.metadata());
    REQUIRE(again.tensors().size() == reader.tensors().size());
    for (const detail::TensorInfo& t : reader.tensors()) {
      CHECK(again.info(t.name).type == t.type);
      CHECK(again.info(t.name).shape == t.shape);
      CHECK(std::ranges::equal(again.bytes(t.name), reader.bytes(t.name)));
    }
  }
  CHECK(files > 0);
}
