// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables of the host's memory behind caches on the GPU. Included by simt/test_cache.cpp and
// gpu/test_cache.cu.
#pragma once

#include <collection/cache_bodies.hpp>
#include <gpu/array.hpp>

#include <doctest/doctest.h>

template <>
struct caches::TwoBackends<tessera::Cuda> {
  tessera::gpu::Stream stream, routing;
  tessera::Cuda first{{.stream = stream.get()}}, second{{.stream = routing.get()}};
};

namespace {

using namespace tessera;
using Groups = TrainingGroups<Train<RowWiseAdagrad>, Train<Adam>, Train<Lamb>>;

TEST_CASE("tables of the host behind caches on the GPU: one model, to the bit") {
  caches::one_model<Cuda, Groups, Storage<BFloat16>>(Tier::host, "", {1, 2}, 6);
}

TEST_CASE("tables OnFile are refused where the host does not read tables") {
  run_ranks(1, [](ThreadCommunicator& host) {
    const Cuda backend;
    auto c = on_backend::ThreadRanks<Cuda>::make(host, backend);
    using E = caches::Collection<Cuda, Groups, Storage<BFloat16>>;
    on_backend::check_message(
        [&] { E(c, backend, caches::layout(1, 1, Tier::file), caches::options<E>("")); },
        "which is for tables that the host reads; give OnHost or Cached<Rows, P>");
  });
}

}  // namespace
