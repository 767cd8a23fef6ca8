// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan.hpp>
#include <tessera/version.hpp>

#include <cstdio>

namespace ts = tessera;
using Model = ts::Plan<ts::RowWise<ts::Table<"user", 1'000, 16>>>;

int main() {
  const ts::Layout layout = Model::layout(ts::Topology{.ranks = 4});
  std::printf("tessera %d.%d.%d cuts the table into %zu shards\n", TESSERA_VERSION_MAJOR,
              TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH, layout.shards.size());
  return layout.shards.size() == 4 ? 0 : 1;
}
