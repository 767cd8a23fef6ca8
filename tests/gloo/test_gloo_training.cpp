// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Models of ranks that are processes, over Gloo: this program starts itself as each of them.
#include <gloo/engine.hpp>

#include <processes/checkpoint_cases.hpp>
#include <processes/collection_cases.hpp>

TEST_CASE("three processes train and save as thread ranks do") {
  const processes::Outcome all = engine::run_job("ranks: *");
  INFO(all.output);
  CHECK(all.status == 0);
  CHECK(all.has("2 passed"));
}
