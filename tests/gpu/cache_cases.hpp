// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables of the host's memory and of files behind caches on the GPU. Included by
// simt/test_cache.cpp, simt/long_cache.cpp and gpu/test_cache.cu.
#pragma once

#include <collection/cache_bodies.hpp>
#include <gpu/array.hpp>
#include <support/copy_blocks.hpp>
#include <support/temporary_folder.hpp>

#include <tessera/checkpoint/async_save.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

template <>
struct caches::TwoBackends<tessera::Cuda> {
  tessera::gpu::Stream stream, routing;
  tessera::Cuda first{{.stream = stream.get()}}, second{{.stream = routing.get()}};
};

namespace cache_cases {

using namespace tessera;
using Groups = TrainingGroups<Train<RowWiseAdagrad>, Train<Adam>, Train<Lamb>>;

inline void one_model(Tier tier, const std::vector<int>& ranks, const caches::Size& size) {
  const TemporaryFolder folder;
  caches::one_model<Cuda, Groups, Storage<BFloat16>>(tier, folder.path.string(), ranks, size);
  CHECK(std::filesystem::is_empty(folder.path));
}

/// Of tables in files: saved at once and while training goes on, and loaded into a table in memory
/// and into one in files whose caches hold changed rows.
inline void checkpoints() {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path / name).string(); };
  run_ranks(1, [&](ThreadCommunicator& host) {
    const Cuda backend;
    auto c = on_backend::ThreadRanks<Cuda>::make(host, backend);
    using E = caches::Collection<Cuda, Groups, Storage<BFloat16>>;
    E file(c, backend, caches::layout(1, 1, Tier::file), caches::options<E>(path("first"))),
        other(c, backend, caches::layout(1, 1, Tier::file), caches::options<E>(path("second"))),
        memory(c, backend, caches::layout(1, 1, std::nullopt), caches::options<E>(""));
    const auto train = [&](E& e, int first, int last) {
      for (int step = first; step < last; ++step) {
        const caches::Batch batch(0, step, e.columns());
        caches::Given<Cuda> given(backend, batch, e.columns());
        e.backward(e.forward(given.ids.keyed()), given.gradient);
      }
    };
    const auto tables_of = [](const E& e) {
      caches::Seen seen;
      caches::read_tables(e, seen);
      return seen;
    };
    CheckpointContents of_file, of_other, of_memory;
    of_file.add(file);
    of_other.add(other);
    of_memory.add(memory);
    train(file, 0, 3);
    const caches::Seen at_3 = tables_of(file);
    {
      std::optional<CopiedBlocks> copied(std::in_place);
      AsyncSave clones(c, path("cloned"), of_file, 3);
      CHECK(CopiedBlocks::calls > 0);
      copied.reset();
      AsyncSave save(c, path("saved"), of_file, 3);  // as this folder's file system can
      train(file, 3, 6);
      clones.finish(c);
      save.finish(c);
    }
    save_checkpoint(c, path("saved"), of_file, 6);
    for (const char* const saved : {"cloned", "saved"}) {
      train(other, 10, 12);
      load_checkpoint(c, folder.path / saved / detail::checkpoint_name(3), of_other);
      CHECK(same_bits(tables_of(other), at_3));
    }
    train(other, 3, 6);
    CHECK(same_bits(tables_of(other), tables_of(file)));
    load_checkpoint(c, folder.path / "saved" / detail::checkpoint_name(6), of_memory);
    CHECK(same_bits(tables_of(memory), tables_of(file)));
  });
}

}  // namespace cache_cases
