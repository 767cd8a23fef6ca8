// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Snapshots that are written while updates go on hold the model as it was; a full checkpoint and an
// increment hold it as it is. Random layouts, saved on some ranks and loaded on others.
#include <checkpoint/models.hpp>

#include <tessera/checkpoint/async_save.hpp>
#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/non_finite.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

using namespace models;
using namespace random_layouts;

namespace {

using O = RowWiseAdagrad;
using Sharded = LayoutCollection<Widths<>, O, Host, ThreadCommunicator>;

/// Every number of the tables, by its place; of all ranks.
struct Values {
  std::map<std::tuple<std::string, int, std::int64_t, std::int64_t>, float> all;
  std::mutex mutex;
  void add(Sharded& tables) {
    const std::lock_guard lock(mutex);
    visit(tables, [&](std::string_view table, int array, std::int64_t row, std::int64_t column,
                      float& x) { all[{std::string(table), array, row, column}] = x; });
  }
};

/// How a step changes rows.
enum class Way { backward, accumulate, clip };

/// One step of random one-hot ids; only some of the rows are met.
void train(Sharded& tables, const Model& model, unsigned step, int rank, Way way = Way::backward) {
  std::mt19937 random(1000 * step + static_cast<unsigned>(rank));
  const std::int64_t batch = 5;
  std::vector<std::int64_t> ids;
  for (const FeatureSpec& feature : model.features)
    for (int s = 0; s < batch; ++s)
      for (const TableSpec& table : model.tables)
        if (table.name == feature.table)
          ids.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(table.rows)));
  const auto pooled = tables.forward(
      KeyedJagged<std::int64_t>{.features = static_cast<std::int64_t>(model.features.size()),
                                .batch = batch,
                                .ids = ids,
                                .offsets = {},
                                .weights = {}});
  std::vector<float> gradient(static_cast<std::size_t>(batch * tables.columns()));
  for (float& g : gradient) g = static_cast<float>(random() % 100) * 0.01f;
  const MatrixView<const float> view(gradient.data(), batch, tables.columns());
  if (way == Way::backward) return tables.backward(pooled, view);
  tables.accumulate(pooled, view);
  tables.accumulate(pooled, view);
  way == Way::clip ? tables.apply(ClipByRowNorm{0.5f}) : tables.apply();
}

/// Counts changes of rows that lie outside updates, and of rows that it was not told of.
struct ChangeObserver final : RowObserver {
  explicit ChangeObserver(Sharded& tables_) : tables(tables_), before(now()) {
    tables.observe(*this);
  }
  ~ChangeObserver() override { tables.unobserve(*this); }
  void begin_update() override {
    wrong += open || now() != before;
    open = true;
    ++updates;
  }
  void touch(int arena, std::span<const std::int64_t> rows) override {
    wrong += !open;
    for (const std::int64_t row : rows) touched.emplace(arena, row);
  }
  void end_update() noexcept override {
    wrong += !open;
    open = false;
    const auto after = now();
    std::size_t changed = 0;
    for (std::size_t r = 0; r < after.size(); ++r) changed += after[r] != before[r];
    wrong += changed > touched.size();
    changed_rows += changed;
    touched.clear();
    before = after;
  }
  /// The numbers of each row of each shard.
  std::vector<std::vector<float>> now() {
    std::vector<std::vector<float>> rows;
    std::tuple<std::string_view, std::int64_t, std::int64_t> last{"", -1, -1};
    visit(tables, [&](std::string_view table, int array, std::int64_t row, std::int64_t, float& x) {
      if (array == 0 && last != std::tuple(table, row, std::int64_t{0})) {
        last = {table, row, 0};
        rows.emplace_back();
      }
      rows.back().push_back(x);
    });
    return rows;
  }

  Sharded& tables;
  std::vector<std::vector<float>> before;
  std::set<std::pair<int, std::int64_t>> touched;
  bool open = false;
  std::int64_t wrong = 0, updates = 0;
  std::size_t changed_rows = 0;
};

/// Adds what a checkpoint holds, read under another layout.
void load_into(Values& values, const std::filesystem::path& checkpoint, const Layout& layout,
               std::int64_t steps) {
  run_ranks(layout.ranks(), [&](ThreadCommunicator& c) {
    Sharded tables(c, Host{}, layout, {.seed = 4});
    std::vector<float> dense(10);
    CheckpointContents contents;
    contents.add(tables);
    contents.add("dense", {10}, std::span(dense));
    load_checkpoint(c, checkpoint, contents);
    CHECK(tables.steps() == steps);
    CHECK(dense == std::vector<float>(10, static_cast<float>(steps)));
    values.add(tables);
  });
}

}  // namespace

TEST_CASE("observers that had begun are told of the end if a later one throws") {
  struct Counts final : RowObserver {
    void begin_update() override {
      if (throws) throw std::runtime_error("the observer failed");
      ++open;
    }
    void end_update() noexcept override { --open; }
    void touch(int, std::span<const std::int64_t>) override {}
    bool throws = false;
    int open = 0;
  } first, second;
  second.throws = true;
  const detail::PodVector<RowObserver*> both{&first, &second};
  CHECK_THROWS_WITH(detail::ObservedUpdate{both}, "the observer failed");
  CHECK(first.open == 0);
}

TEST_CASE("tensors that hold NaN or infinite numbers are named, states are not") {
  SelfCommunicator c;
  const Model model{{{"a", 6, 4}, {"b", 9000, 4}, {"c", 3, 2}},
                    {{"a", "a"}, {"b", "b"}, {"c", "c"}}};
  LayoutCollection<Widths<>, O, Host, SelfCommunicator> tables(
      c, Host{},
      make_layout({1}, model.tables, model.features,
                  {{0, {0, 6, 0, 4}, 0},
                   {1, {0, 9000, 0, 1}, 0},
                   {1, {0, 9000, 1, 4}, 0},
                   {2, {0, 3, 0, 2}, 0}}),
      {});
  std::vector<float> dense(10);
  CheckpointContents contents;
  contents.add(tables);
  contents.add("top.0.weight", {10}, std::span(dense));
  CHECK(detail::non_finite_tensors(contents).empty());
  dense[9] = std::numeric_limits<float>::infinity();
  visit(tables,
        [](std::string_view table, int array, std::int64_t row, std::int64_t column, float& x) {
          if (table == "b" && array == 0 && row == 8000 && column == 3) x = std::nanf("");
          if (table == "c" && array == 1) x = std::nanf("");
        });
  CHECK(detail::non_finite_tensors(contents) ==
        std::vector<std::string>{"b.weight", "top.0.weight"});
}

TEST_CASE("rows change between begin_update and end_update alone, however they do") {
  for (unsigned seed = 1; seed < 20; ++seed) {
    Random random(seed);
    const Model model = random_model(random, false);
    const Layout layout =
        random_layout(random, model, pick(random, 1, 4), static_cast<Shape>(pick(random, 0, 3)));
    std::atomic<std::size_t> changed = 0;
    run_ranks(layout.ranks(), [&](ThreadCommunicator& c) {
      INFO("seed " << seed << ", rank " << c.rank());
      Sharded tables(c, Host{}, layout, {.learning_rate = 0.1f, .seed = seed});
      ChangeObserver observer(tables);
      std::int64_t steps = 0;
      for (const Way way : {Way::backward, Way::accumulate, Way::clip, Way::backward}) {
        train(tables, model, static_cast<unsigned>(steps), c.rank(), way);
        CHECK(observer.updates == ++steps);
      }
      for (std::size_t t = 0; t < model.tables.size(); ++t) {
        const std::vector<std::int64_t> rows{0, model.tables[t].rows - 1};
        tables.reset_rows(static_cast<int>(t), rows);
        CHECK(observer.updates == ++steps);
      }
      CHECK(observer.wrong == 0);
      CHECK(observer.now() == observer.before);
      changed += observer.changed_rows;
    });
    CHECK(changed != 0);
  }
}

TEST_CASE("an asynchronous save holds the step at which it began, however long it takes") {
  for (unsigned seed = 1; seed < 20; ++seed) {
    Random random(seed);
    Model model = random_model(random, false);
    for (TableSpec& table : model.tables) table.rows *= 40;
    const Layout layout =
        random_layout(random, model, pick(random, 1, 4), static_cast<Shape>(pick(random, 0, 3)));
    // room for a few rows: updates must wait
    const std::size_t memory = pick(random, 0, 1) ? std::size_t{1} << 20 : 600;
    const TemporaryFolder folder;
    Values then;
    std::atomic<std::int64_t> copied = 0;
    run_ranks(layout.ranks(), [&](ThreadCommunicator& c) {
      Sharded tables(c, Host{}, layout, {.learning_rate = 0.1f, .seed = seed});
      std::vector<float> dense(10, 2.0f);
      CheckpointContents contents;
      contents.add(tables);
      contents.add("dense", {10}, std::span(dense));
      for (unsigned step = 0; step < 2; ++step) train(tables, model, step, c.rank());
      then.add(tables);
      AsyncSave save(c, folder.path, contents, 2,
                     {.save = {.max_file_bytes = 50'000}, .memory_bytes = memory});
      dense.assign(10, -1.0f);
      for (unsigned step = 2; step < 12; ++step)
        train(tables, model, step, c.rank(), static_cast<Way>((seed + step) % 3));
      CHECK(tables.steps() == 12);
      bool published = false;
      for (int i = 0; i < 10 && !published; ++i) {
        if (const auto base = save.poll(c)) {
          published = true;
          CHECK(base->name == detail::checkpoint_name(2));
        }
      }
      if (!published) save.finish(c);
      CHECK(save.snapshot().most_bytes() <= std::max<std::size_t>(memory, 1000));
      copied += save.snapshot().rows_copied();
    });
    Values loaded;
    load_into(
        loaded, folder.path / detail::checkpoint_name(2),
        random_layout(random, model, pick(random, 1, 4), static_cast<Shape>(pick(random, 0, 3))),
        2);
    INFO("seed " << seed << ", " << copied << " rows copied aside");
    CHECK(loaded.all == then.all);
  }
}

TEST_CASE("rows are copied aside before they change, and the writer gets them as they were") {
  SelfCommunicator c;
  const Model model{{{"t", 1000, 4}}, {{"t", "t"}}};
  LayoutCollection<Widths<>, O, Host, SelfCommunicator> tables(
      c, Host{}, make_layout({1}, model.tables, {}, {{0, {0, 1000, 0, 4}, 0}}), {});
  fill(tables, 3);
  CheckpointContents contents;
  contents.add(tables);
  detail::Snapshot snapshot(contents, 1 << 20);
  const std::vector<std::int64_t> ids{5, 7, 5, 999};
  const std::vector<float> gradient(16, 1.0f);
  for (int step = 0; step < 2; ++step) {
    const auto pooled = tables.forward(KeyedJagged<std::int64_t>{
        .features = 1, .batch = 4, .ids = ids, .offsets = {}, .weights = {}});
    tables.backward(pooled, MatrixView<const float>(gradient.data(), 4, 4));
  }
  CHECK(differences<float>(tables, 3) == 3 * 5);
  CHECK(snapshot.rows_copied() == 3);
  CHECK(snapshot.most_bytes() == 3 * (16 + 4));
  const std::vector<std::int64_t> row_bytes{16, 4};
  std::int64_t wrong = 0;
  for (std::int64_t first = 0; first < 1000; first += 300) {
    const std::int64_t count = std::min<std::int64_t>(300, 1000 - first);
    const std::vector<detail::RowBlock>& blocks =
        snapshot(contents.rows()[0], row_bytes, first, count);
    for (std::int64_t r = 0; r < count; ++r)
      for (int column = 0; column < 5; ++column) {
        float x;
        const detail::RowBlock& block = blocks[column == 4];
        std::memcpy(&x, block.data + r * block.stride + (column == 4 ? 0 : 4 * column), 4);
        wrong += x != value<float>(3, "t", column == 4, first + r, column == 4 ? 0 : column);
      }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a save that is given up leaves the earlier ones, and training goes on") {
  const TemporaryFolder folder;
  run_ranks(2, [&](ThreadCommunicator& c) {
    std::vector<float> dense(1 << 20);
    CheckpointContents contents;
    contents.add("dense", {1 << 20}, std::span(dense));
    save_checkpoint(c, folder.path, contents, 1);
    {
      const AsyncSave save(c, folder.path, contents, 2);
    }
    c.barrier();
    CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{1});
    c.barrier();
    AsyncSave save(c, folder.path, contents, 3);
    save.finish(c);
    CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{1, 3});
  });
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path),
                      std::filesystem::directory_iterator()) == 2);
}

TEST_CASE("a full checkpoint and an increment") {
  std::uintmax_t full = 0, increment = 0;
  for (unsigned seed = 1; seed < 20; ++seed) {
    Random random(seed);
    Model model = random_model(random, false);
    for (TableSpec& table : model.tables) table.rows *= 20;
    const Layout layout =
        random_layout(random, model, pick(random, 1, 4), static_cast<Shape>(pick(random, 0, 3)));
    const TemporaryFolder folder;
    const SaveOptions options{.keep = 2,
                              .max_file_bytes = pick(random, 0, 1) ? std::uint64_t{1} << 30 : 5000};
    Values first, second;
    run_ranks(layout.ranks(), [&](ThreadCommunicator& c) {
      Sharded tables(c, Host{}, layout, {.learning_rate = 0.1f, .seed = seed});
      std::vector<float> dense(10, 1.0f);
      CheckpointContents contents;
      contents.add(tables);
      contents.add("dense", {10}, std::span(dense));
      train(tables, model, 0, c.rank());
      const CheckpointBase base = save_checkpoint(c, folder.path, contents, 1, options);
      ChangedRows changed(contents);
      for (unsigned step = 1; step < 4; ++step) {
        train(tables, model, step, c.rank());
        dense.assign(10, static_cast<float>(step + 1));
        if (step == 2) first.add(tables);
        if (step > 1) save_increment(c, folder.path, changed, base, step + 1, options);
      }
      second.add(tables);
    });
    INFO("seed " << seed);
    const Layout other =
        random_layout(random, model, pick(random, 1, 4), static_cast<Shape>(pick(random, 0, 3)));
    Values loaded;
    load_into(loaded, folder.path / detail::checkpoint_name(3), other, 3);
    CHECK(loaded.all == first.all);
    load_into(loaded, folder.path / detail::checkpoint_name(4), other, 4);
    CHECK(loaded.all == second.all);
    // The full one stays as long as an increment needs it.
    CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{1, 3, 4});
    for (const auto& entry :
         std::filesystem::directory_iterator(folder.path / detail::checkpoint_name(1)))
      full += entry.file_size();
    for (const auto& entry :
         std::filesystem::directory_iterator(folder.path / detail::checkpoint_name(3)))
      increment += entry.file_size();
    // It cannot be replaced, and another full checkpoint of the same name is not the base.
    SelfCommunicator c;
    std::vector<float> dense(10);
    CheckpointContents contents;
    contents.add("dense", {10}, std::span(dense));
    CHECK_THROWS_WITH_AS(save_checkpoint(c, folder.path, contents, 1),
                         doctest::Contains("'step-000000000003' beside it is an increment"),
                         DataError);
    load_into(loaded, folder.path / detail::checkpoint_name(4), other, 4);
    std::filesystem::remove_all(folder.path / detail::checkpoint_name(1));
    save_checkpoint(c, folder.path, contents, 1);
    CHECK_THROWS_WITH_AS(load_checkpoint(c, folder.path / detail::checkpoint_name(4), contents),
                         doctest::Contains("is an increment of another"), DataError);
  }
  CHECK(increment < full * 3 / 4);
}

TEST_CASE(
    "a user's tensors of any name come back from an increment as they were saved; so do the "
    "tables") {
  const TemporaryFolder folder;
  SelfCommunicator c;
  const Model model{{{"t", 30, 4}}, {{"t", "t"}}};
  LayoutCollection<Widths<>, O, Host, SelfCommunicator> tables(
      c, Host{}, make_layout({1}, model.tables, {}, {{0, {0, 30, 0, 4}, 0}}), {});
  std::vector<float> gate{1, 2, 3, 4, 5, 6}, own{7, 8};
  std::vector<std::int64_t> numbers{2, 0, 1}, table_numbers{29};
  CheckpointContents contents;
  contents.add(tables);
  contents.add("gate.weight", {3, 2}, std::span(gate));
  contents.add("gate.rows", {3}, std::span(numbers));
  contents.add("t.rows", {1}, std::span(table_numbers));
  contents.add("scale", {1, 2}, std::span(own), "t");  // in the table's files
  fill(tables, 3);
  const CheckpointBase base = save_checkpoint(c, folder.path, contents, 1);
  ChangedRows changed(contents);
  const auto train_two_rows = [&] {
    const std::vector<std::int64_t> ids{28, 5};
    const std::vector<float> gradient(8, 1.0f);
    const auto pooled = tables.forward(KeyedJagged<std::int64_t>{
        .features = 1, .batch = 2, .ids = ids, .offsets = {}, .weights = {}});
    tables.backward(pooled, MatrixView<const float>(gradient.data(), 2, 4));
  };
  train_two_rows();
  std::map<std::tuple<std::string, int, std::int64_t, std::int64_t>, float> then, now;
  const auto note = [&](auto& values) {
    visit(tables, [&](std::string_view table, int array, std::int64_t row, std::int64_t column,
                      float& x) { values[{std::string(table), array, row, column}] = x; });
  };
  note(then);
  CHECK_THROWS_WITH_AS(save_increment(c, folder.path, changed, base, 1),
                       doctest::Contains("has the same step"), DataError);
  CheckpointBase other = base;
  ++other.crc;
  CHECK_THROWS_WITH_AS(save_increment(c, folder.path, changed, other, 2),
                       doctest::Contains("is not the base that the increment was given"),
                       DataError);
  CHECK_THROWS_WITH_AS(save_increment(c, folder.path / "elsewhere", changed, base, 2),
                       doctest::Contains("step-000000000001"), DataError);
  save_increment(c, folder.path, changed, base, 2);
  const auto reload = [&] {
    fill(tables, 99);
    gate.assign(6, 0.0f);
    own.assign(2, 0.0f);
    numbers.assign(3, 0);
    load_checkpoint(c, folder.path / detail::checkpoint_name(2), contents);
    note(now);
    CHECK(now == then);
    CHECK(gate == std::vector<float>{1, 2, 3, 4, 5, 6});
    CHECK(own == std::vector<float>{7, 8});
    CHECK(numbers == std::vector<std::int64_t>{2, 0, 1});
    CHECK(table_numbers == std::vector<std::int64_t>{29});
  };
  reload();

  // A mark that does not fit the base is refused.
  const auto file = folder.path / detail::checkpoint_name(2) / "manifest.json";
  const auto write = [&](const detail::Manifest& manifest) {
    std::ofstream(file, std::ios::binary) << detail::format_manifest(manifest);
  };
  const detail::Manifest good =
      detail::read_manifest(folder.path / detail::checkpoint_name(2)).first;
  CHECK(good.version == detail::Manifest::kIncrements);
  CHECK(detail::read_manifest(folder.path / detail::checkpoint_name(1)).first.version ==
        detail::Manifest::kWhole);
  const auto tensor = [](detail::Manifest& manifest,
                         std::string_view name) -> detail::StoredTensor& {
    return *std::find_if(manifest.tensors.begin(), manifest.tensors.end(),
                         [&](const detail::StoredTensor& t) { return t.name == name; });
  };
  CHECK(tensor(const_cast<detail::Manifest&>(good), "t.weight").row_numbers == "t.rows_");
  const auto refused = [&](const char* what, auto change) {
    detail::Manifest bad = good;
    change(bad);
    write(bad);
    CHECK_THROWS_WITH_AS(load_checkpoint(c, folder.path / detail::checkpoint_name(2), contents),
                         doctest::Contains(what), DataError);
  };
  refused("the base 'step-000000000001' has no such tensor",
          [&](detail::Manifest& bad) { tensor(bad, "t.weight").type = detail::TensorType::u8; });
  refused("the base 'step-000000000001' has no such tensor",
          [&](detail::Manifest& bad) { tensor(bad, "t.weight").shape[1] = 3; });
  refused("its row numbers 'gate.rows' must be",
          [&](detail::Manifest& bad) { tensor(bad, "t.weight").row_numbers = "gate.rows"; });
  refused("its row numbers 'none' must be",
          [&](detail::Manifest& bad) { tensor(bad, "t.sum").row_numbers = "none"; });
  refused("must be another tensor",
          [&](detail::Manifest& bad) { bad.version = detail::Manifest::kWhole; });
  write(good);
  reload();
}

TEST_CASE("increments of the first version, which mark nothing, are read") {
  const TemporaryFolder folder;
  const Model model{{{"t", 30, 4}}, {{"t", "t"}}};
  const Layout layout = make_layout({2}, model.tables, {{"t", "t", Pooling::sum, false}},
                                    {{0, {0, 11, 0, 4}, 0}, {0, {11, 30, 0, 4}, 1}});
  Values then, now;
  run_ranks(2, [&](ThreadCommunicator& c) {
    Sharded tables(c, Host{}, layout, {.learning_rate = 0.1f, .seed = 1});
    std::vector<float> dense(10, 1.0f), gate{1, 2, 3};
    std::vector<std::int64_t> numbers{2, 0, 1};
    CheckpointContents contents;
    contents.add(tables);
    contents.add("dense", {10}, std::span(dense));
    contents.add("gate.weight", {3}, std::span(gate));
    contents.add("gate.rows", {3}, std::span(numbers));
    const CheckpointBase base = save_checkpoint(c, folder.path, contents, 1);
    ChangedRows changed(contents);
    train(tables, model, 0, c.rank());
    save_increment(c, folder.path, changed, base, 2);
    then.add(tables);
    c.barrier();
    const auto top = folder.path / detail::checkpoint_name(2);
    if (c.rank() == 0) {
      detail::Manifest manifest = detail::read_manifest(top).first;
      manifest.version = detail::Manifest::kWhole;
      for (detail::StoredTensor& tensor : manifest.tensors) tensor.row_numbers.clear();
      std::ofstream(top / "manifest.json", std::ios::binary) << detail::format_manifest(manifest);
    }
    c.barrier();
    fill(tables, 99);
    gate.assign(3, 0.0f);
    load_checkpoint(c, top, contents);
    now.add(tables);
    CHECK(gate == std::vector<float>{1, 2, 3});
  });
  CHECK(now.all == then.all);
}
