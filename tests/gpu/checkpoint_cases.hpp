// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/async_save.hpp>
#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/tessera.cuh>

#include <doctest/doctest.h>
#include <gpu/array.hpp>
#include <gpu/device.hpp>
#include <support/temporary_folder.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Checkpoints between the host and the GPU, and between layouts. Every number is a function of its
// global place.

namespace {

using namespace tessera;

/// What element (row, column) of state `array` (-1: the weights) of a table is in the model `salt`.
float value(std::uint64_t salt, std::string_view table, int array, std::int64_t row,
            std::int64_t column) {
  return unit_float(random_word(salt, detail::name_key(table), array, row, column)) - 0.5f;
}

template <class Backend>
using TablesOn =
    LayoutCollection<Widths<>, RowWiseAdagrad, Backend, typename ThreadRanks<Backend>::type>;

/// Visits the model's arrays as whole tables: visit(table, array, rows, columns).
template <class Visit>
void for_each_array(const Layout& layout, Visit&& visit) {
  for (const TableSpec& table : layout.tables)
    for (int array = -1; array < RowWiseAdagrad::row_states; ++array)
      visit(table.name, array, table.rows, array < 0 ? table.width : std::int64_t{1});
}

template <class Backend>
void fill(TablesOn<Backend>& tables, std::uint64_t salt) {
  for_each_array(tables.layout(), [&](std::string_view table, int array, std::int64_t rows,
                                      std::int64_t columns) {
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
  for_each_array(tables.layout(), [&](std::string_view table, int array, std::int64_t rows,
                                      std::int64_t columns) {
    std::vector<float> whole(static_cast<std::size_t>(rows * columns),
                             std::numeric_limits<float>::quiet_NaN());
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
                     {{0, {0, 17, 0, 13}, 0},
                      {0, {17, 40'000, 0, 13}, 1},
                      {1, {0, 10, 0, 4}, 0},
                      {2, {0, 1, 0, 1}, 0}});
}

template <class From, class To>
void moves(const Layout& from, const Layout& to) {
  const TemporaryFolder folder;
  on_ranks<From>(from, 3, [&](auto&, CheckpointContents& contents, auto&, auto& c) {
    save_checkpoint(c, folder.path, contents, 12);
  });
  std::atomic<int> good = 0;
  on_ranks<To>(to, 99, [&](auto& tables, CheckpointContents& contents, auto& dense, auto& c) {
    load_checkpoint(c, folder.path / "step-000000000012", contents);
    good += differences(tables, 3) == 0 && dense.read() == std::vector<float>(600, 3.0f) &&
            tables.steps() == 10 && tables.tables().seed() == 3;
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
  on_ranks<Host>(two_ranks(), 3,
                 [&](TablesOn<Host>& tables, CheckpointContents& contents, auto&, auto& c) {
                   const CheckpointBase base = save_checkpoint(c, folder.path, contents, 1);
                   ChangedRows changed(contents);
                   // An update tells which rows it changes; what they hold afterwards is made up.
                   const std::vector<std::int64_t> mine(rows.begin() + 4 * c.rank(),
                                                        rows.begin() + 4 * c.rank() + 4);
                   const std::vector<float> gradient(4 * 13, 1.0f);
                   tables.backward(tables.forward(KeyedJagged<std::int64_t>{1, 4, mine, {}, {}}),
                                   {gradient.data(), 4, 13});
                   fill(tables, 4);
                   const CheckpointBase top = save_increment(c, folder.path, changed, base, 2);
                   if (c.rank() == 0) increment = top.name;
                 });
  std::atomic<int> good = 0;
  on_ranks<Cuda>(
      three_ranks(), 99, [&](TablesOn<Cuda>& tables, CheckpointContents& contents, auto&, auto& c) {
        load_checkpoint(c, folder.path / increment, contents);
        good += wrong(tables, [&](float x, std::string_view table, int array, std::int64_t row,
                                  std::int64_t column) {
                  const bool is_changed =
                      table == "big" && std::find(rows.begin(), rows.end(), row) != rows.end();
                  return x == value(is_changed ? 4 : 3, table, array, row, column);
                }) == 0;
      });
  CHECK(good == 3);
}

TEST_CASE("what a checkpoint lacks of a table on the GPU stays as it is") {
  const TemporaryFolder folder;
  const auto narrow = make_layout({1}, {{"big", 30'000, 9}}, {}, {{0, {0, 30'000, 0, 9}, 0}});
  on_ranks<Host>(narrow, 3, [&](auto&, CheckpointContents& contents, auto&, auto& c) {
    save_checkpoint(c, folder.path, contents, 1);
  });
  on_ranks<Cuda>(
      three_ranks(), 99, [&](TablesOn<Cuda>& tables, CheckpointContents& contents, auto&, auto& c) {
        load_checkpoint(c, folder.path / "step-000000000001", contents,
                        {.allow_missing = true, .allow_shapes = true});
        const std::int64_t bad = wrong(tables, [&](float x, std::string_view table, int array,
                                                   std::int64_t row, std::int64_t column) {
          return x == value(table == "big" && row < 30'000 && column < 9 ? 3 : 99, table, array,
                            row, column);
        });
        if (c.rank() == 2) CHECK(bad == 0);
        if (c.rank() != 2 && bad != 0) throw Error("another rank's rows are wrong");
      });
}

TEST_CASE("a save in the background holds the model on the GPU as it was") {
  under_every_deferral([] {
    const TemporaryFolder folder;
    on_ranks<Cuda>(three_ranks(), 3,
                   [&](TablesOn<Cuda>& tables, CheckpointContents& contents, auto& dense, auto& c) {
                     AsyncSave save(c, folder.path, contents, 12);
                     fill(tables, 5);
                     tables.backend().fill_zero(dense.data(), 600 * sizeof(float));
                     save.finish(c);
                   });
    std::atomic<int> good = 0;
    on_ranks<Host>(two_ranks(), 99,
                   [&](TablesOn<Host>& tables, CheckpointContents& contents, auto& dense, auto& c) {
                     load_checkpoint(c, folder.path / "step-000000000012", contents);
                     good += differences(tables, 3) == 0 &&
                             dense.read() == std::vector<float>(600, 3.0f);
                   });
    CHECK(good == 2);
  });
}

namespace {

/// Ids of some bags that rank `rank` looks up in step `step`: on both sides of words of 32 bits,
/// popular ones many times.
std::vector<std::int64_t> ids_of(int step, int rank, int feature, std::int64_t rows) {
  std::vector<std::int64_t> ids;
  for (const std::int64_t i :
       {0, 31, 32, 33, 63, 64, 95, 20'000, 20'000, 20'000, 21'110, 21'111, 39'999})
    ids.push_back((i * (step + 1) + rank * 977 + feature) % rows);
  return ids;
}

/// A step of this rank: bags of one id, or in odd steps of 0 to 4.
template <class Backend>
void train_step(TablesOn<Backend>& tables, int step, int rank) {
  const auto& layout = tables.layout();
  std::vector<std::int64_t> ids, offsets{0};
  for (std::size_t f = 0; f < layout.features.size(); ++f) {
    const auto own = ids_of(step, rank, static_cast<int>(f),
                            layout.tables[static_cast<std::size_t>(layout.feature_table[f])].rows);
    ids.insert(ids.end(), own.begin(), own.end());
    for (const std::int64_t length : {0, 4, 3, 1, 4, 1}) offsets.push_back(offsets.back() + length);
  }
  const std::int64_t batch = step % 2 == 0 ? 13 : 6;
  const Array<std::int64_t, Backend> device_ids(tables.backend(), ids),
      device_offsets(tables.backend(), offsets);
  std::vector<float> values(static_cast<std::size_t>(batch * layout.columns()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 11) * 0.25f - 1;
  const Array<float, Backend> gradient(tables.backend(), values);
  KeyedJagged<std::int64_t> keyed{
      static_cast<int>(layout.features.size()), batch, device_ids.span(), {}, {}};
  if (step % 2 == 1) keyed.offsets = device_offsets.span();
  tables.backward(tables.forward(keyed), {gradient.data(), batch, layout.columns()});
}

/// Increments are full checkpoints with rows left out: those that no update since the base has
/// touched.
template <class Backend>
void full_and_increments(const Layout& layout) {
  const TemporaryFolder folder;
  on_ranks<Backend>(
      layout, 3,
      [&](TablesOn<Backend>& tables, CheckpointContents& contents, auto& dense, auto& c) {
        const auto step = [&](int number) { train_step(tables, number, c.rank()); };
        step(0);
        const CheckpointBase base = save_checkpoint(c, folder.path, contents, 1);
        ChangedRows changed(contents);
        for (int number = 1; number < 4; ++number) {
          step(number);
          tables.backend().fill_zero(dense.data() + number, sizeof(float));
          if (number == 1) continue;
          save_increment(c, folder.path, changed, base, number);
          save_checkpoint(c, folder.path / "whole", contents, number);
        }
        const CheckpointBase next = save_checkpoint(c, folder.path, contents, 4);
        changed.clear();
        save_increment(c, folder.path, changed, next, 5);
        step(6);
        save_increment(c, folder.path, changed, next, 6);
      });
  const auto rows_of = [&](const char* checkpoint, std::string_view table) {
    return CheckpointReader(folder.path / checkpoint)
        .template read<std::int64_t>(std::string(table) + ".rows");
  };
  const auto touched = [&](std::string_view table, std::initializer_list<int> steps) {
    std::set<std::int64_t> rows;
    for (std::size_t f = 0; f < layout.features.size(); ++f) {
      const TableSpec& spec = layout.tables[static_cast<std::size_t>(layout.feature_table[f])];
      for (const int step : steps)
        for (int rank = 0; rank < layout.ranks() && spec.name == table; ++rank)
          for (const std::int64_t id : ids_of(step, rank, static_cast<int>(f), spec.rows))
            rows.insert(id);
    }
    return std::vector<std::int64_t>(rows.begin(), rows.end());
  };
  for (const TableSpec& table : layout.tables) {
    CAPTURE(std::string(table.name));
    CHECK(rows_of("step-000000000002", table.name) == touched(table.name, {1, 2}));
    CHECK(rows_of("step-000000000003", table.name) == touched(table.name, {1, 2, 3}));
    CHECK(rows_of("step-000000000005", table.name).empty());
    CHECK(rows_of("step-000000000006", table.name) == touched(table.name, {6}));
  }
  for (const char* name : {"step-000000000002", "step-000000000003"}) {
    CheckpointReader whole(folder.path / "whole" / name);
    std::map<std::pair<std::string_view, int>, std::vector<float>> expected;
    for_each_array(layout, [&](std::string_view table, int array, std::int64_t, std::int64_t) {
      expected[{table, array}] =
          whole.template read<float>(std::string(table) + (array < 0 ? ".weight" : ".sum"));
    });
    const std::vector<float> dense_expected = whole.template read<float>("mlp.weight");
    std::atomic<int> good = 0;
    on_ranks<Host>(
        two_ranks(), 99,
        [&](TablesOn<Host>& tables, CheckpointContents& contents, auto& dense, auto& c) {
          load_checkpoint(c, folder.path / name, contents);
          good +=
              dense.read() == dense_expected &&
              wrong(tables, [&](float x, std::string_view table, int array, std::int64_t row,
                                std::int64_t column) {
                const std::int64_t columns = array >= 0          ? 1
                                             : table == "big"    ? 13
                                             : table == "copied" ? 4
                                                                 : 1;
                return x == expected.at(
                                {table, array})[static_cast<std::size_t>(row * columns + column)];
              }) == 0;
        });
    CHECK(good == 2);
  }
}

}  // namespace

TEST_CASE(
    "a full checkpoint and increments: the rows that updates touched, on the host and on the GPU, "
    "under any cut") {
  for (const Layout& layout : {three_ranks(), two_ranks()}) {
    CAPTURE(layout.ranks());
    full_and_increments<Host>(layout);
    full_and_increments<Cuda>(layout);
  }
}

TEST_CASE(
    "rows are marked: bags of one id and of many, several groups, negative ids; in every order") {
  const Cuda backend;
  ::Random random(4);
  constexpr std::int64_t rows = 300;
  for (const int longest : {1, 40}) {
    CAPTURE(longest);
    HostBags<std::int32_t> first = random_bags<std::int32_t>(random, 300, longest, 100, 7,
                                                             Coefficients::none, true),
                           second = random_bags<std::int32_t>(random, 257, longest, 90, 205,
                                                              Coefficients::none);
    std::vector<std::uint32_t> expected((rows + 31) / 32);
    expected[9] = 1u << 11;  // what is set stays
    const std::vector<std::uint32_t> before = expected;
    for (HostBags<std::int32_t>* bags : {&first, &second}) {
      for (std::size_t i = 0; i < bags->ids.size(); i += 5) bags->ids[i] = -1;
      for (std::int64_t i = bags->begin(0); i < bags->end(bags->bags - 1); ++i)
        if (const std::int64_t id = bags->ids[static_cast<std::size_t>(i)]; id >= 0)
          expected[static_cast<std::size_t>(id + bags->row_bias) / 32] |=
              1u << ((id + bags->row_bias) % 32);
    }
    const DeviceBags<std::int32_t> a(backend, first), b(backend, second);
    in_every_order([&] {
      const OnGpu<std::uint32_t> bits(backend, before);
      op::Bags<std::int32_t> empty;
      const op::Bags<std::int32_t> all[] = {a.view(), empty, b.view()};
      op::run<op::MarkRows<std::int32_t>>(backend, {all, bits.data()});
      CHECK((bits.read() == expected));
    });
  }
}

TEST_CASE("rows are gathered: of whole words and of half ones") {
  const Cuda backend;
  std::vector<std::uint16_t> values(90);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i * 7 + 1);
  const std::vector<std::int64_t> rows{0, 4, 5, 8};
  const OnGpu<std::uint16_t> source(backend, values);
  const OnGpu<std::int64_t> device_rows(backend, rows);
  // 16-bit elements, in rows of 10 or, where the rows have an odd number, 9
  for (const std::int64_t width : {9, 10}) {
    CAPTURE(width);
    std::vector<std::uint16_t> expected;
    for (const std::int64_t row : rows)
      for (std::int64_t c = 0; c < width; ++c)
        expected.push_back(values[static_cast<std::size_t>(row * width + c)]);
    const OnGpu<std::uint16_t> target(backend, std::vector<std::uint16_t>(expected.size()));
    op::run<op::CopyRows>(
        backend,
        {{reinterpret_cast<const std::byte*>(source.data()), width * 2, device_rows.data()},
         {reinterpret_cast<std::byte*>(target.data()), width * 2, nullptr},
         std::ssize(rows),
         width * 2});
    CHECK((target.read() == expected));
  }
}
