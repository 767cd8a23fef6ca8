// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables OnFile behind caches: the model of tables in memory; what is refused.
#include <tessera/checkpoint/async_save.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/optimizer/narrow_states.hpp>

#include <collection/cache_bodies.hpp>
#include <support/temporary_folder.hpp>
#include <support/text_of.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

using namespace tessera;

namespace {

using Three = TrainingGroups<Train<RowWiseAdagrad>, Train<Adam>, Train<Lamb>>;

}  // namespace

TEST_CASE("tables in files behind caches: one model, to the bit, with every optimizer") {
  const TemporaryFolder folder;
  caches::one_model<Host, caches::AllOptimizers>(Tier::file, folder.path.string(), {1, 2, 4},
                                                 {.steps = 8});
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("tables of 16 bits, rounded by chance, in files: one model, to the bit") {
  const TemporaryFolder folder;
  caches::one_model<Host, Three, Storage<BFloat16>>(Tier::file, folder.path.string(), {1, 2},
                                                    {.steps = 7});
}

namespace {

using E = caches::Collection<Host, Three, Storage<BFloat16>>;

/// A collection of one rank whose tables are in files behind caches of so many rows.
E small(ThreadCommunicator& c, const std::string& folder, std::int64_t rows,
        std::int64_t bytes = 0) {
  Layout layout = caches::layout(1, 1, Tier::file);
  for (Shard& shard : layout.shards)
    if (shard.tier == Tier::file) shard.cache_rows = std::min(rows, shard.rectangle.rows());
  auto options = caches::options<E>(folder);
  options.files.cache_bytes = bytes;
  return E(c, Host{}, layout, options);
}

}  // namespace

TEST_CASE("a cache that is too small for a batch says what it needs, and nothing has changed") {
  const TemporaryFolder folder;
  run_ranks(1, [&](ThreadCommunicator& c) {
    E e = small(c, folder.path.string(), 40);
    caches::Seen before, after;
    caches::read_tables(e, before);
    std::vector<std::int64_t> ids;
    for (std::size_t f = 0; f < caches::names.size(); ++f)
      for (std::int64_t i = 0; i < 50; ++i) ids.push_back(f == 0 ? i : 7);
    const std::vector<float> ones(ids.size(), 1.0f);
    const KeyedJagged<std::int64_t> batch{10, 50, ids, {}, ones};
    on_backend::check_message([&] { e.forward(batch); }, "the cache of 'a'");
    on_backend::check_message(
        [&] { e.forward(batch); },
        "holds 80 rows, but this batch, the one before it and those in flight "
        "use 100 different ones");
    caches::read_tables(e, after);
    CHECK(same_bits(before, after));
    std::vector<float> gradient(static_cast<std::size_t>(e.columns()), 0.5f);
    const std::vector<std::int64_t> one(caches::names.size(), 3);
    const std::vector<float> weights(one.size(), 1.0f);
    const auto pooled = e.forward(KeyedJagged<std::int64_t>{10, 1, one, {}, weights});
    e.backward(pooled, {gradient.data(), 1, e.columns()});
  });
}

TEST_CASE("a batch that was refused uses no rows of the cache") {
  const TemporaryFolder folder;
  using Ten = Plan<Cached<10, OnFile<TableWise<Table<"a", 100, 4>>>>>;
  using E = EmbeddingCollection<Ten, NarrowStates<Adam>, Host, SelfCommunicator>;
  SelfCommunicator self;
  E::Options options;
  options.files.folder = folder.path.string();
  E e(self, Host{}, options);
  const auto train = [&](std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(last - first));
    std::iota(ids.begin(), ids.end(), first);
    const std::vector<float> gradient(ids.size() * 4, 1.0f);
    e.backward(e.forward(KeyedJagged<std::int64_t>{1, last - first, ids, {}, {}}),
               {gradient.data(), last - first, 4});
  };
  train(0, 5);
  train(5, 10);
  CHECK_THROWS_AS(train(0, 11), InvalidArgument);
  train(20, 21);
  CHECK(e.steps() == 3);
  const SafetensorsReader file(std::filesystem::directory_iterator(folder.path)->path());
  CHECK(file.metadata().at("weights") == "F32 at 0, 16 bytes");
  CHECK(file.metadata().at("v") == "BF16 at 24, 8 bytes");
}

TEST_CASE("tables in files whose policy copies few rows and cuts many, rows known when it runs") {
  const TemporaryFolder folder;
  using Hot = Plan<HotRows<5000, OnFile<RowWise<Table<"a", dynamic_rows, 4>>>>>;
  using E = EmbeddingCollection<Hot, Sgd, Host, ThreadCommunicator>;
  for (const std::int64_t rows : {4000, 20000})
    run_ranks(2, [&](ThreadCommunicator& c) {
      E::Options options;
      options.rows = {{"a", rows}};
      options.files = {folder.path.string(), 1 << 20};
      E e(c, Host{}, options);
      const std::vector<std::int64_t> ids{c.rank(), rows - 1};
      const std::vector<float> gradient(8, 1.0f);
      e.backward(e.forward(KeyedJagged<std::int64_t>{1, 2, ids, {}, {}}), {gradient.data(), 2, 4});
      CHECK(e.steps() == 1);
    });
}

TEST_CASE("tables in files: what is missing or has no room is an error that names it") {
  const TemporaryFolder folder;
  const std::string path = folder.path.string();
  std::ofstream(folder.path / "taken") << "a file";
  run_ranks(1, [&](ThreadCommunicator& c) {
    using on_backend::check_message;
    check_message([&] { small(c, "", 40); }, "table 'a' is OnFile; give Options::files.folder");
    check_message([&] { small(c, path, 0); },
                  "is OnFile without a size for its cache; give Options::files.cache_bytes");
    check_message([&] { small(c, path + "/taken/tables", 40); },
                  "cannot make the folder of table files");
    {
      const E made = small(c, path + "/folders/that/are/new/", 40);
      CHECK(!std::filesystem::is_empty(folder.path / "folders" / "that" / "are" / "new"));
    }
    std::filesystem::remove_all(folder.path / "folders");
    const E first = small(c, path, 40);
    check_message([&] { small(c, path, 40); }, "is in use by another process or collection");
    check_message([&] { detail::DirectFile(folder.path / "large", std::size_t{1} << 50); },
                  "no room for the table file");
    CHECK(!std::filesystem::exists(folder.path / "large"));
  });
  std::filesystem::remove(folder.path / "taken");
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("tables in files share the memory for caches by their bytes") {
  const TemporaryFolder folder;
  run_ranks(1, [&](ThreadCommunicator& c) {
    const E e = small(c, folder.path.string(), 0, 400'000);
    std::int64_t bytes = 0;
    for (std::size_t a = 0; a < e.tables().arenas().size(); ++a)
      if (const auto& cache = e.tables().cache(a); cache != nullptr)
        bytes += cache->slots() * (cache->format().bytes + detail::RowCache<Host>::slot_overhead);
    CHECK(bytes > 380'000);
    CHECK(bytes <= 400'000);
  });
}

TEST_CASE(
    "checkpoints of tables in files are those of tables in memory; training goes on from them") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path / name).string(); };
  run_ranks(2, [&](ThreadCommunicator& c) {
    const Layout resident = caches::layout(2, 2, std::nullopt),
                 on_file = caches::layout(2, 2, Tier::file);
    E memory(c, Host{}, resident, caches::options<E>("")),
        file(c, Host{}, on_file, caches::options<E>(path("first"))),
        loaded(c, Host{}, on_file, caches::options<E>(path("second")));
    const auto train = [&](E& e, int first, int last) {
      for (int step = first; step < last; ++step) {
        const caches::Batch batch(c.rank(), step, e.columns());
        const auto pooled = e.forward(batch.keyed());
        e.backward(pooled, {batch.gradient.data(), batch.samples, e.columns()});
      }
    };
    const auto tables_of = [](const E& e) {
      caches::Seen seen;
      caches::read_tables(e, seen);
      return seen;
    };
    CheckpointContents of_memory, of_file, of_loaded;
    of_memory.add(memory);
    of_file.add(file);
    of_loaded.add(loaded);
    CHECK(!of_memory.has_caches());
    train(memory, 0, 3);
    train(file, 0, 3);
    const caches::Seen at_3 = tables_of(memory);
    {  // training goes on while its writer reads the files
      AsyncSave save(c, path("saved"), of_file, 3, {.memory_bytes = 100'000});
      train(file, 3, 6);
      save.finish(c);
    }
    train(memory, 3, 6);
    CHECK(same_bits(tables_of(memory), tables_of(file)));
    train(loaded, 10, 12);  // whose rows, changed ones in its caches too, all go
    load_checkpoint(c, folder.path / "saved" / detail::checkpoint_name(3), of_loaded);
    CHECK(same_bits(tables_of(loaded), at_3));
    train(loaded, 3, 6);
    CHECK(same_bits(tables_of(memory), tables_of(loaded)));
    save_checkpoint(c, path("saved"), of_memory, 6);
    save_checkpoint(c, path("again"), of_loaded, 6);
  });
  // byte for byte
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder.path / "saved" / detail::checkpoint_name(6))) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    CHECK(text_of(entry.path()) ==
          text_of(folder.path / "again" / detail::checkpoint_name(6) / entry.path().filename()));
  }
  CHECK(files == caches::names.size());
}
