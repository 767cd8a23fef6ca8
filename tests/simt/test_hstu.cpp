// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <gpu/golden_embeddings.hpp>
#include <gpu/golden_hstu_cases.hpp>
#include <gpu/hstu_cases.hpp>
#include <gpu/softmax_cases.hpp>
#include <support/message_of.hpp>
#include <support/temporary_folder.hpp>

TEST_CASE("golden cases that say what is not known are refused, at any depth") {
  const auto refusal = [](const char* text) {
    return message_of<InvalidArgument>(
        [&] { golden_known("the case", nlohmann::json::parse(text)); });
  };
  CHECK(refusal(R"({"kind": "hstu", "batch": 1, "alpha": 2, "max_attn_len": null})") == "");
  CHECK(refusal(R"({"kind": "accumulate", "clip": null, "tables": [{"name": "a",
                   "optimizer": {"kind": "adam", "lr": 1}}, {"name": "b"}]})") == "");
  CHECK(refusal(R"({"kind": "hstu", "dropout": 0})") ==
        "the case has 'dropout', which is not known here");
  CHECK(refusal(R"({"kind": "distilled"})") == "the case: the kind 'distilled' is not known here");
  CHECK(refusal(R"({"kind": "embedding", "features": [{"name": "a"}, {"hashed": true}]})") ==
        "the case, feature has 'hashed', which is not known here");
  CHECK(refusal(R"({"kind": "accumulate", "clip": {"kind": "value", "per": "row"}})") ==
        "the case, clip has 'per', which is not known here");
  CHECK(refusal(R"({"kind": "embedding", "tables": [{"optimizer": {"kind": "lion"}}]})") ==
        "the case, table, optimizer: the kind 'lion' is not known here");
  CHECK(refusal(R"({"kind": "dlrm", "tables": [{"optimizer": {"kind": "sgd"}}]})") ==
        "the case, plain table has 'optimizer', which is not known here");
}

TEST_CASE("the reader of golden files asks, and names the file") {
  const TemporaryFolder folder;
  const auto write = [&](const char* said) {
    SafetensorsWriter file;
    file.set_metadata("case", said);
    file.write(folder.path / "hstu_odd.safetensors");
  };
  const std::filesystem::path file = folder.path / "hstu_odd.safetensors";
  write(R"({"kind": "hstu", "dropout": 0.1})");
  CHECK_THROWS_WITH_AS(golden_hstu::run_file(file),
                       "the case hstu_odd has 'dropout', which is not known here", InvalidArgument);
  write(R"({"kind": "accumulate", "tables": [], "features": [], "decay": 1})");
  CHECK_THROWS_WITH_AS(GoldenCase{file}, "the case hstu_odd has 'decay', which is not known here",
                       InvalidArgument);
}
