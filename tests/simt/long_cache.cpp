// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Caches of 5 % of the rows through 200 steps, in emulation and on the host: every optimizer, 1, 2
// and 4 ranks, float and bf16, with and without routing ahead, tables of the host and in files. Takes
// minutes, so that it is built when it is asked for:
//   cmake --build --preset release --target simt_long_cache && build/release/bin/simt_long_cache
#include <simt/every_order.hpp>

#include <gpu/cache_cases.hpp>

using namespace tessera;

template <class Backend, class... Policies>
void every_optimizer(const std::string& folder, const std::vector<Tier>& tiers) {
  for (const Tier tier : tiers)
    caches::one_model<Backend, caches::AllOptimizers, Policies...>(tier, folder, {1, 2, 4},
                                                                   caches::long_run);
}

TEST_CASE("float on the GPU") { every_optimizer<Cuda>("", {Tier::host}); }

TEST_CASE("bf16 on the GPU") {
  const TemporaryFolder folder;
  every_optimizer<Cuda, Storage<BFloat16>>(folder.path.string(), {Tier::host, Tier::file});
}

TEST_CASE("float and bf16 on the host") {
  const TemporaryFolder folder;
  every_optimizer<Host>(folder.path.string(), {Tier::file});
  every_optimizer<Host, Storage<BFloat16>>(folder.path.string(), {Tier::file});
}
