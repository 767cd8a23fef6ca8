// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <gpu/need_gpu.hpp>

#include <gpu/cache_cases.hpp>

TEST_CASE("tables of the host and in files behind caches on the GPU: one model, to the bit") {
  for (const tessera::Tier tier : {tessera::Tier::host, tessera::Tier::file})
    cache_cases::one_model(tier, {1, 2, 4}, caches::long_run);
}

TEST_CASE("checkpoints of tables in files behind caches on the GPU") { cache_cases::checkpoints(); }
