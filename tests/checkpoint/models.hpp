// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Models whose every number is a function of its global place, so that what a checkpoint should
// hold is known without one.
#pragma once

#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/tessera.hpp>

#include <support/random_layouts.hpp>
#include <support/temporary_folder.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace models {

using namespace tessera;

/// The value of an element of state `array` (0: weights) of a table, in the table's precision.
/// `salt` tells models apart.
template <class T>
T value(std::uint64_t salt, std::string_view table, int array, std::int64_t row,
        std::int64_t column) {
  return from_float<T>(unit_float(random_word(salt, detail::name_key(table), array, row, column)) -
                       0.5f);
}

/// Visits every number of this rank: element(table, array, row, column, number), array 0 the
/// weights, then the optimizer's states.
template <class Collection, class Element>
void visit(Collection& collection, Element&& element) {
  using O = typename Collection::optimizer;
  for (const auto& shard : collection.tables().local_shards()) {
    const std::string_view table =
        collection.layout().tables[static_cast<std::size_t>(shard.table)].name;
    const Rectangle& r = shard.rectangle;
    for (std::int64_t i = 0; i < r.rows(); ++i) {
      for (std::int64_t j = 0; j < r.width(); ++j)
        element(table, 0, r.row_begin + i, r.column_begin + j, shard.weights(i, j));
      for (int k = 0; k < static_cast<int>(shard.states.size()); ++k)
        for (std::int64_t j = 0; j < shard.states[k].columns; ++j)
          element(table, 1 + k, r.row_begin + i, k < O::element_states ? r.column_begin + j : 0,
                  shard.states[k](i, j));
    }
  }
}

template <class Collection>
void fill(Collection& collection, std::uint64_t salt) {
  visit(collection,
        [&](std::string_view table, int array, std::int64_t row, std::int64_t column, auto& x) {
          x = value<std::remove_reference_t<decltype(x)>>(salt, table, array, row, column);
        });
}

/// Numbers that are not, bit for bit, those of `fill`. `Stored`: the weights went through this
/// precision.
template <class Stored, class Collection>
std::int64_t differences(Collection& collection, std::uint64_t salt) {
  std::int64_t count = 0;
  visit(collection,
        [&](std::string_view table, int array, std::int64_t row, std::int64_t column, auto& x) {
          using X = std::remove_reference_t<decltype(x)>;
          const X expected =
              array == 0 ? from_float<X>(to_float(value<Stored>(salt, table, array, row, column)))
                         : value<X>(salt, table, array, row, column);
          count += std::memcmp(&x, &expected, sizeof(X)) != 0;
        });
  return count;
}

/// A collection, dense parameters and numbers, on one rank.
template <Optimizer O, Element T, class Comm>
struct Trained {
  LayoutCollection<Widths<>, O, Host, Comm, Storage<T>> tables;
  std::vector<float> dense = std::vector<float>(3'000);
  std::int64_t epoch = 0;
  CheckpointContents contents;

  Trained(Comm& communicator, const Layout& layout, std::uint64_t salt)
      : tables(communicator, Host{}, layout, {.seed = salt}) {
    fill(tables, salt);
    for (std::size_t i = 0; i < dense.size(); ++i)
      dense[i] = static_cast<float>(salt) + static_cast<float>(i);
    tables.set_steps(static_cast<std::int64_t>(salt) + 7);
    epoch = static_cast<std::int64_t>(salt) + 8;
    contents.add(tables);
    contents.add("mlp.weight", {30, 100}, std::span(dense));
    contents.add_number("epoch", epoch);
  }

  /// Whether it is what `Trained<O, Stored>(.., salt)` was.
  template <class Stored>
  bool is(std::uint64_t salt) {
    bool same = tables.steps() == static_cast<std::int64_t>(salt) + 7 &&
                tables.tables().seed() == salt && epoch == static_cast<std::int64_t>(salt) + 8 &&
                differences<Stored>(tables, salt) == 0;
    for (std::size_t i = 0; i < dense.size(); ++i)
      same = same && dense[i] == static_cast<float>(salt) + static_cast<float>(i);
    return same;
  }
};

}  // namespace models
