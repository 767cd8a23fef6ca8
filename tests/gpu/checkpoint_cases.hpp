// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/async_save.hpp>
#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/tessera.cuh>

#include <doctest/doctest.h>
#include <gpu/array.hpp>
#include <support/temporary_folder.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

// Checkpoints between the host and the GPU, and between layouts. Every number is a function of its global place.

namespace {

using namespace tessera;

/// What element (row, column) of state `array` (-1: the weights) of a table is in the model `salt`.
float value(std::uint64_t salt, std::string_view table, int array, std::int64_t row, std::int64_t column) {
  return unit_float(random_word(salt, name_key(table), array, row, column)) - 0.5f;
}

template <class Backend>
using TablesOn = ShardedCollection<Widths<>, RowWiseAdagrad, Backend, typename ThreadRanks<Backend>::type>;

/// Visits the model's arrays as whole tables: visit(table, array, rows, columns).
template <class Visit>
void for_each_array(const Layout& layout, Visit&& visit) {
  for (const TableSpec& table : layout.tables)
    for (int array = -1; array < RowWiseAdagrad::row_states; ++array)
      visit(table.name, array, table.rows, array < 0 ? table.width : std::int64_t{1});
}

template <class Backend>
void fill(TablesOn<Backend>& tables, std::uint64_t salt) {
  for_each_array(tables.layout(), [&](std::string_view table, int array, std::int64_t rows, std::int64_t columns) {
    std::vector<float> whole(static_cast<std::size_t>(rows * columns));
    for (std::int64_t i = 0; i < rows * columns; ++i)
      whole[static_cast<std::size_t>(i)] = value(salt, table, array, i / columns, i % columns);
    const MatrixView<const float> view(whole.data(), rows, columns);
    array < 0 ? tables.tables().set(table, view) : tables.tables().set_state(table, array, view);
  });
}

/// How many numbers of this rank `is(value, table, array, row, column)` does not accept.
template <class Backend, class Is>
std::int64_t wrong(TablesOn<Backend>& tables, Is&& is) {
  std::int64_t count = 0, seen = 0;
  for_each_array(tables.layout(), [&](std::string_view table, int array, std::int64_t rows, std::int64_t columns) {
    std::vector<float> whole(static_cast<std::size_t>(rows * columns), std::numeric_limits<float>::quiet_NaN());
    const MatrixView<float> view(whole.data(), rows, columns);
    array < 0 ? tables.tables().get(table, view) : tables.tables().get_state(table, array, view);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      if (std::isnan(whole[static_cast<std::size_t>(i)])) continue;  // another rank's
      ++seen;
      count += !is(whole[static_cast<std::size_t>(i)], table, array, i / columns, i % columns);
    }
  });
  return seen == 0 && !tables.tables().local_shards().empty() ? -1 : count;
}
template <class Backend>
std::int64_t differences(TablesOn<Backend>& tables, std::uint64_t salt) {
  return wrong(tables, [&](float x, auto... place) { return x == value(salt, place...); });
}

/// Runs f(tables, contents, dense, communicator) on the ranks of a layout, with a model `salt`.
template <class Backend, class F>
void on_ranks(const Layout& layout, std::uint64_t salt, F&& f) {
  run_ranks(layout.ranks(), [&](ThreadCommunicator& host) {
    const Backend backend;
    auto communicator = ThreadRanks<Backend>::make(host, backend);
    TablesOn<Backend> tables(communicator, backend, layout, {.seed = salt});
    fill(tables, salt);
    tables.set_steps(static_cast<std::int64_t>(salt) + 7);
    const Array<float, Backend> dense(backend, std::vector<float>(600, static_cast<float>(salt)));
    CheckpointContents contents;
    contents.add(tables);
    contents.add(backend, "mlp.weight", {30, 20}, dense.span());
    f(tables, contents, dense, communicator);
  });
}

/// A table of several blocks, cut both ways; a replicated one; a small one.
const std::vector<TableSpec> kTables{{"big", 40'000, 13}, {"copied", 10, 4}, {"one", 1, 1}};
Layout three_ranks() {
  return make_layout({3}, kTables, {},
                     {{0, {0, 21'111, 0, 5}, 0},
                      {0, {0, 21'111, 5, 13}, 1},
                      {0, {21'111, 40'000, 0, 13}, 2},
                      {1, {0, 10, 0, 4}, every_rank},
                      {2, {0, 1, 0, 1}, 1}});
}
Layout two_ranks() {
  return make_layout({2}, kTables, {{"feature", "big"}},
                     {{0, {0, 17, 0, 13}, 0}, {0, {17, 40'000, 0, 13}, 1}, {1, {0, 10, 0, 4}, 0}, {2, {0, 1, 0, 1}, 0}});
}

template <class From, class To>
void moves(const Layout& from, const Layout& to) {
  const TemporaryFolder folder;
  on_ranks<From>(from, 3, [&](auto&, CheckpointContents& contents, auto&, auto& c) { save_checkpoint(c, folder.path, contents, 12); });
  std::atomic<int> good = 0;
  on_ranks<To>(to, 99, [&](auto& tables, CheckpointContents& contents, auto& dense, auto& c) {
    load_checkpoint(c, folder.path / "step-000000000012", contents);
    good +=
        differences(tables, 3) == 0 && dense.read() == std::vector<float>(600, 3.0f) && tables.steps() == 10 && tables.tables().seed() == 3;
  });
  CHECK(good == to.ranks());
}

}  // namespace

TEST_CASE("a checkpoint moves between the host and the GPU, under other layouts") {
  moves<Cuda, Host>(three_ranks(), two_ranks());
  moves<Host, Cuda>(two_ranks(), three_ranks());
  moves<Cuda, Cuda>(three_ranks(), two_ranks());
}

TEST_CASE("a full checkpoint of the host and an increment load onto the GPU") {
  const TemporaryFolder folder;
  const std::vector<std::int64_t> rows{0, 1, 2, 16, 17, 9'999, 30'000, 39'999};
  std::string increment;
  on_ranks<Host>(two_ranks(), 3, [&](TablesOn<Host>& tables, CheckpointContents& contents, auto&, auto& c) {
    const CheckpointBase base = save_checkpoint(c, folder.path, contents, 1);
    ChangedRows changed(contents);
    // An update tells which rows it changes; what they hold afterwards is made up.
    const std::vector<std::int64_t> mine(rows.begin() + 4 * c.rank(), rows.begin() + 4 * c.rank() + 4);
    const std::vector<float> gradient(4 * 13, 1.0f);
    tables.backward(tables.forward(KeyedJagged<std::int64_t>{1, 4, mine, {}, {}}), {gradient.data(), 4, 13});
    fill(tables, 4);
    const CheckpointBase top = save_increment(c, folder.path, changed, base, 2);
    if (c.rank() == 0) increment = top.name;
  });
  std::atomic<int> good = 0;
  on_ranks<Cuda>(three_ranks(), 99, [&](TablesOn<Cuda>& tables, CheckpointContents& contents, auto&, auto& c) {
    load_checkpoint(c, folder.path / increment, contents);
    good += wrong(tables, [&](float x, std::string_view table, int array, std::int64_t row, std::int64_t column) {
              const bool is_changed = table == "big" && std::find(rows.begin(), rows.end(), row) != rows.end();
              return x == value(is_changed ? 4 : 3, table, array, row, column);
            }) == 0;
  });
  CHECK(good == 3);
}

TEST_CASE("what a checkpoint lacks of a table on the GPU stays as it is") {
  const TemporaryFolder folder;
  const auto narrow = make_layout({1}, {{"big", 30'000, 9}}, {}, {{0, {0, 30'000, 0, 9}, 0}});
  on_ranks<Host>(narrow, 3, [&](auto&, CheckpointContents& contents, auto&, auto& c) { save_checkpoint(c, folder.path, contents, 1); });
  on_ranks<Cuda>(three_ranks(), 99, [&](TablesOn<Cuda>& tables, CheckpointContents& contents, auto&, auto& c) {
    load_checkpoint(c, folder.path / "step-000000000001", contents, {.allow_missing = true, .allow_shapes = true});
    const std::int64_t bad = wrong(tables, [&](float x, std::string_view table, int array, std::int64_t row, std::int64_t column) {
      return x == value(table == "big" && row < 30'000 && column < 9 ? 3 : 99, table, array, row, column);
    });
    if (c.rank() == 2) CHECK(bad == 0);
    if (c.rank() != 2 && bad != 0) throw Error("another rank's rows are wrong");
  });
}

TEST_CASE("a save in the background holds the model on the GPU as it was") {
  const TemporaryFolder folder;
  on_ranks<Cuda>(three_ranks(), 3, [&](TablesOn<Cuda>& tables, CheckpointContents& contents, auto& dense, auto& c) {
    AsyncSave save(c, folder.path, contents, 12);
    fill(tables, 5);
    tables.backend().fill_zero(dense.data(), 600 * sizeof(float));
    save.finish(c);
  });
  std::atomic<int> good = 0;
  on_ranks<Host>(two_ranks(), 99, [&](TablesOn<Host>& tables, CheckpointContents& contents, auto& dense, auto& c) {
    load_checkpoint(c, folder.path / "step-000000000012", contents);
    good += differences(tables, 3) == 0 && dense.read() == std::vector<float>(600, 3.0f);
  });
  CHECK(good == 2);
}

TEST_CASE("increments of tables on the GPU are refused") {
  on_ranks<Cuda>(two_ranks(), 3, [&](auto&, CheckpointContents& contents, auto&, auto&) {
    try {
      const ChangedRows changed(contents);
      throw Error("increments of device memory were taken");
    } catch (const InvalidArgument& error) {
      if (std::string_view(error.what()).find("save in full") == std::string_view::npos) throw;
    }
  });
}
