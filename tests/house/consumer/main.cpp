// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/collection.hpp>
#include <tessera/laws.hpp>
#include <tessera/plan.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace ts = tessera;

int main() {
  if (!ts::laws::sharding_policy_laws<ts::RowWise<>>().empty()) return 2;
  const std::vector<std::int64_t> ids{0, 1, 2};
  const ts::KeyedJagged<std::int64_t> batch{.features = 1, .batch = 2, .ids = ids};
  try {
    batch.validate();
  } catch (const ts::InvalidArgument& error) {
    std::printf("%s\n", error.what());
    return 0;
  }
  return 1;
}
