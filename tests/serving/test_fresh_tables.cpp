// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Increments on frozen tables while other threads look up: each batch against all versions' rows;
// damaged, foreign and partial increments; a vocabulary; following a training's folder.
#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/checkpoint/snapshot.hpp>
#include <tessera/checkpoint/vocabulary.hpp>
#include <tessera/tessera.hpp>
#include <tessera/vocabulary/vocabulary.hpp>
#include <tessera_serving/fresh_tables.hpp>
#include <tessera_serving/frozen_lookup.hpp>

#include <support/message_of.hpp>
#include <support/temporary_folder.hpp>
#include <support/text_of.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace tessera;
using namespace std::chrono_literals;

namespace {

constexpr int kRows = 700, kWidth = 12, kBatch = 40;
using Item = Table<"item", kRows, kWidth>;
using Tag = Table<"tag", 65, 3>;
using Embeddings = EmbeddingCollection<Plan<TableWise<Item, Tag>>, Sgd, Host, SelfCommunicator>;

/// A training that saves a checkpoint and increments of it.
struct Training {
  explicit Training(std::filesystem::path to, unsigned seed = 1)
      : folder(std::move(to)), embeddings(rank, Host(), {.learning_rate = 0.1f, .seed = seed}) {
    contents.add(embeddings);
    changed.emplace(contents);
  }

  /// Changes the rows of some ids; `every`: all rows of items.
  void step(bool every = false) {
    std::vector<std::int64_t> ids;
    const int batch = every ? kRows : kBatch;
    for (int i = 0; i < batch; ++i) ids.push_back(every ? i : static_cast<int>(random() % kRows));
    for (int i = 0; i < batch; ++i) ids.push_back(static_cast<int>(random() % 65));
    const auto pooled = embeddings.forward(KeyedJagged<std::int64_t>{2, batch, ids, {}, {}});
    std::vector<float> gradient;
    for (int i = 0; i < batch * (kWidth + 3); ++i)
      gradient.push_back(static_cast<float>(static_cast<int>(random() % 200) - 100) * 0.01f);
    embeddings.backward(pooled, MatrixView<const float>(gradient.data(), batch, kWidth + 3));
  }
  std::filesystem::path save_whole(std::int64_t at) {
    base = save_checkpoint(rank, folder, contents, at);
    changed->clear();
    return folder / detail::checkpoint_name(at);
  }
  std::filesystem::path save_changes(std::int64_t at) {
    save_increment(rank, folder, *changed, base, at);
    return folder / detail::checkpoint_name(at);
  }
  std::vector<float> items() {
    std::vector<float> all(kRows * kWidth);
    embeddings.tables().get("item", {all.data(), kRows, kWidth});
    return all;
  }

  SelfCommunicator rank;
  std::filesystem::path folder;
  Embeddings embeddings;
  CheckpointContents contents;
  std::optional<ChangedRows> changed;
  CheckpointBase base;
  std::minstd_rand random{5};
};

/// What a format makes of rows.
std::vector<float> decoded(RowFormat format, const std::vector<float>& rows) {
  std::vector<float> all(rows.size());
  for (std::size_t r = 0; r < rows.size(); r += kWidth) {
    std::byte bytes[64];
    if (format == RowFormat::int8) {
      Int8Row::encode(&rows[r], kWidth, bytes);
      Int8Row::decode(bytes, kWidth, &all[r]);
    } else {
      std::copy_n(&rows[r], kWidth, &all[r]);
    }
  }
  return all;
}

std::vector<float> served(const FrozenTables& tables) {
  std::vector<std::int64_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> all(kRows * kWidth);
  tables.rows<std::int64_t>("item", ids, {all.data(), kRows, kWidth});
  return all;
}

bool same_bits(const float* a, const float* b, std::size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), a.size());
}

/// Changes a tensor of a checkpoint, and its checksums with it.
template <class T, class F>
void edit_tensor(const std::filesystem::path& checkpoint, const std::string& name, F&& edit) {
  detail::Manifest manifest = detail::read_manifest(checkpoint).first;
  detail::StoredFile& file =
      manifest.files[static_cast<std::size_t>(manifest.find(name)->pieces.front().file)];
  std::string bytes = text_of(checkpoint / file.name);
  const std::span<const std::byte> view = std::as_bytes(std::span(bytes));
  const SafetensorsReader reader(view, "edited");
  const std::span<const std::byte> tensor = reader.bytes(name);
  std::vector<T> values(tensor.size() / sizeof(T));
  std::memcpy(values.data(), tensor.data(), tensor.size());
  edit(values);
  std::memcpy(bytes.data() + (tensor.data() - view.data()), values.data(), tensor.size());
  for (std::size_t c = 0; c < file.crcs.size(); ++c)
    file.crcs[c] = detail::crc32(
        view.subspan(c << 20, std::min<std::size_t>(1 << 20, bytes.size() - (c << 20))));
  write_text(checkpoint / file.name, bytes);
  write_text(checkpoint / detail::Manifest::kFile, detail::format_manifest(manifest));
}

}  // namespace

TEST_CASE("100 increments under two reading threads: each batch has the bits of one version") {
  constexpr int kVersions = 100;
  for (const RowFormat format : {RowFormat::fp32, RowFormat::int8}) {
    CAPTURE(to_string(format));
    const TemporaryFolder folder;
    Training training(folder.path / "run");
    freeze_checkpoint(training.save_whole(0), folder.path / "frozen", {.format = format});
    FreshTables tables(FrozenTables(folder.path / "frozen"));
    std::vector<std::vector<float>> versions{decoded(format, training.items())};
    std::vector<std::filesystem::path> increments;
    for (int v = 1; v <= kVersions; ++v) {
      training.step(v % 10 == 0);
      increments.push_back(training.save_changes(v));
      versions.push_back(decoded(format, training.items()));
    }
    std::atomic<bool> end = false;
    std::atomic<int> started = 0, torn = 0;
    std::atomic<std::int64_t> batches = 0, met = 0;
    const auto read = [&](unsigned seed) {
      std::minstd_rand random(seed);
      FrozenLookup<std::int32_t> lookup(
          tables,
          std::vector<FrozenFeature>{{.name = "pooled", .table = "item"},
                                     {.name = "each", .table = "item", .pooling = Pooling::none}});
      std::vector<std::int32_t> ids(2 * kBatch);
      std::vector<float> rows(kBatch * kWidth);
      ++started;
      for (std::size_t newest = 0; !end; ++batches) {
        for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % kRows);
        lookup.pool({2, kBatch, ids, {}, {}}, {rows.data(), kBatch, kWidth});
        const MatrixView<const float> each = lookup.sequence(1);
        // Versions only become newer.
        std::size_t v = newest;
        const auto fits = [&](const std::vector<float>& version) {
          for (std::size_t i = 0; i < kBatch; ++i) {
            const float* const first = &version[static_cast<std::size_t>(ids[i]) * kWidth];
            const float* const other = &version[static_cast<std::size_t>(ids[kBatch + i]) * kWidth];
            if (!same_bits(&rows[i * kWidth], first, kWidth) ||
                !same_bits(each.data + static_cast<std::int64_t>(i) * each.stride, other, kWidth))
              return false;
          }
          return true;
        };
        while (v < versions.size() && !fits(versions[v])) ++v;
        torn += v == versions.size();
        met += v != newest;
        newest = std::min(v, versions.size() - 1);
      }
    };
    std::thread first(read, 1u), second(read, 2u);
    while (started < 2) std::this_thread::yield();
    for (const std::filesystem::path& increment : increments) {
      // so that each version is read, whatever the machine's speed
      for (const std::int64_t before = batches; batches < before + 4;) std::this_thread::yield();
      tables.apply(increment);
    }
    for (const std::int64_t before = batches; batches < before + 4;) std::this_thread::yield();
    end = true;
    first.join();
    second.join();
    CHECK(torn == 0);
    CHECK(met >= kVersions);
    CHECK(same_bits(served(*tables.current()), versions.back()));
    CHECK(tables.current()->checkpoint().step == kVersions);
    CHECK(tables.current()->changed_rows() == kRows + 65);
    // Back to the base, and forth over all between.
    tables.apply(folder.path / "run" / detail::checkpoint_name(0));
    CHECK(same_bits(served(*tables.current()), versions.front()));
    CHECK(tables.current()->changed_rows() == 0);
    tables.apply(increments[7]);
    CHECK(same_bits(served(*tables.current()), versions[8]));
  }
}

TEST_CASE("a version lives as long as a reader has it, and no longer") {
  struct Counted {
    explicit Counted(int& living_) : living(living_) { ++living; }
    ~Counted() { --living; }
    int& living;
  };
  int living = 0;
  Published<Counted> published(std::make_shared<const Counted>(living));
  Published<Counted>::Reader a(published), b(published);
  {
    const auto first = a.pin();
    published.publish(std::make_shared<const Counted>(living));
    CHECK(living == 2);
    const auto second = b.pin();
    CHECK(&*first != &*second);
    published.publish(std::make_shared<const Counted>(living));
    CHECK(living == 3);
  }
  CHECK(published.collect() == 0);
  CHECK(living == 1);
  const auto kept = published.current();
  published.publish(std::make_shared<const Counted>(living));
  CHECK(living == 2);
}

TEST_CASE("what is damaged, partial, or of another base is refused, and the old version stays") {
  const TemporaryFolder folder;
  Training training(folder.path / "run"), other(folder.path / "other", 2);
  freeze_checkpoint(training.save_whole(0), folder.path / "frozen", {.format = RowFormat::int8});
  FreshTables tables{FrozenTables(folder.path / "frozen")};
  training.step();
  tables.apply(training.save_changes(1));
  const std::vector<float> before = served(*tables.current());
  training.step(true);
  const std::filesystem::path good = training.save_changes(2);
  const auto fault = [&](const std::filesystem::path& checkpoint) {
    const std::string message = message_of<DataError>([&] { tables.apply(checkpoint); });
    CHECK(tables.current()->checkpoint().step == 1);
    CHECK(same_bits(served(*tables.current()), before));
    return message;
  };
  const auto has = [](const std::string& text, std::string_view part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  other.save_whole(0);
  other.step();
  has(fault(other.save_changes(2)), "was made of another checkpoint, of step 0");
  has(fault(other.save_whole(3)), "is a whole one, and file");
  has(fault(folder.path / "nowhere"), "nowhere");

  const std::filesystem::path bad = folder.path / "bad" / detail::checkpoint_name(2);
  const auto anew = [&] {
    std::filesystem::remove_all(folder.path / "bad");
    std::filesystem::create_directories(folder.path / "bad");
    std::filesystem::copy(good, bad);
  };
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(good))
    files.push_back(entry.path().filename());
  std::sort(files.begin(), files.end());
  std::minstd_rand random(3);
  for (const std::filesystem::path& file : files) {
    anew();
    std::filesystem::remove(bad / file);
    has(fault(bad), "bad");
    const std::string bytes = text_of(good / file);
    for (int i = 0; i < 100; ++i) {
      std::string changed = bytes;
      if (i % 4 == 0)
        changed.resize(random() % bytes.size());
      else
        changed[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
      anew();
      write_text(bad / file, changed);
      has(fault(bad), "bad");
    }
  }
  // Well-formed files that say what no training says.
  const auto edited = [&](auto&& edit) {
    anew();
    edit();
    return fault(bad);
  };
  has(edited([&] {
        edit_tensor<std::int64_t>(bad, "item.rows", [](auto& rows) { rows.back() = kRows; });
      }),
      "row 700 behind row 698, of 700");
  has(edited([&] {
        edit_tensor<std::int64_t>(bad, "item.rows",
                                  [](auto& rows) { std::swap(rows[0], rows[1]); });
      }),
      "row 0 behind row 1");
  has(edited([&] { edit_tensor<float>(bad, "item.weight", [](auto& x) { x[5] = INFINITY; }); }),
      "table 'item', row 0, column 5: inf");
  tables.apply(good);
  CHECK(same_bits(served(*tables.current()), decoded(RowFormat::int8, training.items())));
  CHECK_THROWS_WITH_AS(
      [&] {
        freeze_checkpoint(other.folder / detail::checkpoint_name(3), folder.path / "items",
                          {.tables = {"item"}});
        tables.replace(FrozenTables(folder.path / "items"));
      }(),
      doctest::Contains("has other tables than"), InvalidArgument);
}

TEST_CASE("with a vocabulary: raw keys find the rows of the training's, increment by increment") {
  const TemporaryFolder folder;
  SelfCommunicator rank;
  Embeddings embeddings(rank, Host(), {.learning_rate = 0.1f, .seed = 3});
  // Few rows, so that keys lose them to others: rows that change by no update.
  Vocabulary<SelfCommunicator> vocabulary(
      rank, {.tables = {{.rows = kRows, .eviction = Eviction::oldest},
                        {.rows = 65, .admit_after = 2, .eviction = Eviction::least_frequent}}});
  CheckpointContents contents;
  contents.add(embeddings);
  ChangedRows changed(contents);
  std::minstd_rand random(7);
  int reused = 0;
  const auto draw = [&](int batch, int newest) {
    std::vector<std::int64_t> keys;
    for (int i = 0; i < 2 * batch; ++i)
      keys.push_back((newest + static_cast<int>(random() % 400)) * 1'000'003 - 5);
    return keys;
  };
  const auto train = [&](int newest) {
    constexpr int batch = 200;
    const std::vector<std::int64_t> keys = draw(batch, newest);
    std::vector<std::int64_t> rows(keys.size());
    for (const detail::ReusedRow& row :
         vocabulary.learn<std::int64_t>({2, batch, keys, {}, {}}, rows)) {
      embeddings.reset_rows(static_cast<int>(row.table), {&row.row, 1});
      ++reused;
    }
    const auto pooled = embeddings.forward(KeyedJagged<std::int64_t>{2, batch, rows, {}, {}});
    const std::vector<float> gradient(batch * (kWidth + 3), 0.5f);
    embeddings.backward(pooled, MatrixView<const float>(gradient.data(), batch, kWidth + 3));
  };
  const auto save = [&](int step, const CheckpointBase* base) {
    CheckpointContents whole = contents;
    const SavedVocabulary saved(whole, vocabulary);
    return base == nullptr ? save_checkpoint(rank, folder.path / "run", whole, step)
                           : save_increment(rank, folder.path / "run", whole, changed, *base, step);
  };
  for (int i = 0; i < 5; ++i) train(0);
  const CheckpointBase base = save(0, nullptr);
  changed.clear();
  freeze_checkpoint(folder.path / "run" / detail::checkpoint_name(0), folder.path / "frozen",
                    {.vocabulary = {"item", "tag"}});
  FreshTables tables{FrozenTables(folder.path / "frozen")};
  const std::vector<FrozenFeature> features{{.name = "item", .table = "item"},
                                            {.name = "tag", .table = "tag"}};
  FrozenLookup<std::int64_t> lookup(tables, features);
  const auto check = [&](int newest) {
    constexpr int batch = 300;
    const std::vector<std::int64_t> keys = draw(batch, newest);
    std::vector<std::int64_t> rows(keys.size()), found(keys.size());
    vocabulary.find<std::int64_t>({2, batch, keys, {}, {}}, rows);
    tables.current()->find<std::int64_t>("item", std::span(keys).first(batch),
                                         std::span(found).first(batch));
    tables.current()->find<std::int64_t>("tag", std::span(keys).last(batch),
                                         std::span(found).last(batch));
    CHECK(found == rows);
    CHECK(std::count(rows.begin(), rows.end(), detail::KeyTable::kSharedRow) > 0);
    CHECK(std::count(rows.begin(), rows.end(), detail::KeyTable::kSharedRow) < 2 * batch);
    const auto expected = embeddings.evaluate(KeyedJagged<std::int64_t>{2, batch, rows, {}, {}});
    std::vector<float> values(batch * (kWidth + 3));
    lookup.pool_keys({2, batch, keys, {}, {}}, {values.data(), batch, kWidth + 3});
    CHECK(same_bits(values.data(), expected.data, values.size()));
  };
  check(100);
  for (int step = 1; step <= 6; ++step) {
    for (int i = 0; i < 3; ++i) train(step * 150);
    // Rows that changed hands and were not looked up since.
    const std::int64_t forgotten[] = {step, 100 + step};
    embeddings.reset_rows(0, forgotten);
    save(step, &base);
    tables.apply(folder.path / "run" / detail::checkpoint_name(step));
    CHECK(same_bits(served(*tables.current()), [&] {
      std::vector<float> all(kRows * kWidth);
      embeddings.tables().get("item", {all.data(), kRows, kWidth});
      return all;
    }()));
    check(step * 150 + 100);
  }
  CHECK(reused > 300);
  // The training can go on from the increment, too.
  Embeddings again(rank, Host(), {});
  Vocabulary<SelfCommunicator> known(
      rank, {.tables = {{.rows = kRows, .eviction = Eviction::oldest},
                        {.rows = 65, .admit_after = 2, .eviction = Eviction::least_frequent}}});
  CheckpointContents whole;
  whole.add(again);
  const SavedVocabulary empty(whole, known);
  const std::filesystem::path last = folder.path / "run" / detail::checkpoint_name(6);
  load_checkpoint(rank, last, whole);
  load_vocabulary(last, known);
  CHECK(known.export_records(0).rows == vocabulary.export_records(0).rows);
  // An increment that lacks the vocabulary leaves keys without their rows.
  save_increment(rank, folder.path / "run", changed, base, 7);
  CHECK(message_of<DataError>([&] {
          tables.apply(folder.path / "run" / detail::checkpoint_name(7));
        }).find("no tensor 'vocabulary.0.keys'") != std::string::npos);
  CHECK_THROWS_AS(FrozenTables(folder.path / "frozen").find<std::int64_t>("nobody", {}, {}),
                  InvalidArgument);
}

TEST_CASE("a snapshot keeps rows that are reset while it is written") {
  const TemporaryFolder folder;
  Training training(folder.path / "run");
  training.step(true);
  const std::vector<float> then = training.items();
  detail::Snapshot snapshot(training.contents, 1 << 20);
  const std::int64_t rows[] = {3, 699, 3};
  training.embeddings.reset_rows(0, rows);
  CHECK(snapshot.rows_copied() == 2);
  CHECK(!same_bits(training.items(), then));
  snapshot.stop();
}

TEST_CASE("watchers follow a training, each at its own pace, over whole saves and bad ones") {
  const TemporaryFolder folder;
  Training training(folder.path / "run");
  training.save_whole(0);
  const FollowOptions options{.freeze = {.tables = {"*"}, .formats = {{"tag", RowFormat::int4}}},
                              .files = folder.path / "frozen"};
  const auto first = [&] {
    return frozen_tables_of(training.folder / detail::checkpoint_name(0), options);
  };
  FreshTables quick(first()), slow(first());
  CHECK(std::distance(std::filesystem::directory_iterator(options.files), {}) == 1);
  FrozenLookup<std::int64_t> lookup(quick,
                                    std::vector<FrozenFeature>{{.name = "item", .table = "item"}});
  const auto watch = quick.watch(training.folder, options, 2ms);
  const auto reached = [&](const CheckpointWatch& of, std::int64_t step) {
    return of.wait(20s, [&](const CheckpointWatch::Status& s) { return s.step == step; });
  };
  CHECK(reached(*watch, 0));
  const auto looked_up = [&] {
    std::vector<std::int64_t> ids(kRows);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> all(kRows * kWidth);
    lookup.pool({1, kRows, ids, {}, {}}, {all.data(), kRows, kWidth});
    return all;
  };
  for (int step = 1; step <= 12; ++step) {
    training.step();
    if (step % 5 == 0) {
      // cut short on its way
      const auto good = training.save_changes(step * 10);
      const std::filesystem::path partial = good / detail::Manifest::kFile;
      const std::string whole = text_of(partial);
      const bool taken = reached(*watch, step * 10);
      CHECK(taken);
      std::string half = whole;
      half.resize(half.size() / 2);
      write_text(folder.path / "half", half);
      std::filesystem::rename(folder.path / "half",
                              partial);  // another file: it is looked at again
      CHECK(watch->wait(20s, [](const auto& s) { return !s.error.empty(); }));
      CHECK(watch->status().error.find(partial.string()) != std::string::npos);
      CHECK(same_bits(looked_up(), training.items()));
      write_text(folder.path / "half", whole);
      std::filesystem::rename(folder.path / "half", partial);
      CHECK(watch->wait(20s, [](const auto& s) { return s.error.empty(); }));
    } else if (step % 4 == 0) {
      training.save_whole(step * 10);
    } else {
      training.save_changes(step * 10);
    }
    CHECK(reached(*watch, step * 10));
    CHECK(same_bits(looked_up(), training.items()));
  }
  CHECK(std::distance(std::filesystem::directory_iterator(options.files), {}) == 1);
  // One that looks for the first time has not missed anything.
  {
    const auto late = slow.watch(training.folder, options, 2ms);
    CHECK(reached(*late, 120));
    CHECK(late->status().taken == 1);
  }
  CHECK(same_bits(served(*slow.current()), training.items()));
  CHECK(slow.current()->file() == quick.current()->file());
  CHECK_THROWS_AS(CheckpointWatch(training.folder, {}, 0ms), InvalidArgument);
  CHECK_THROWS_AS(slow.follow(training.save_whole(130), {}), InvalidArgument);
}
