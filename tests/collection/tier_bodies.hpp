// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables in the memory of the host beside tables in that of the device, on any backend: bodies of
// test_tiers.cpp and gpu/twin_cases.hpp.
#pragma once

#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace tiers {

using namespace tessera;      // NOLINT: a header of tests
using namespace on_backend;   // NOLINT
using namespace small_model;  // NOLINT

/// Bit t of `on_host` (modulo eight): the rectangles of table t are in the host's memory; of a table
/// with more than one, every other one.
inline Layout with_tiers(Layout layout, unsigned on_host) {
  for (std::size_t s = 0; s < layout.shards.size(); ++s) {
    Shard& shard = layout.shards[s];
    const bool alone =
        std::count_if(layout.shards.begin(), layout.shards.end(),
                      [&](const Shard& other) { return other.table == shard.table; }) == 1;
    if ((on_host >> shard.table & 1) != 0 && (alone || s % 2 == 0)) shard.tier = Tier::host;
  }
  return layout;
}

/// This rank's rectangles by table and place, whatever their arenas.
template <class Embeddings>
auto local_shards_by_place(const Embeddings& embeddings) {
  auto shards = embeddings.tables().local_shards();
  std::sort(shards.begin(), shards.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.table, a.rectangle.row_begin, a.rectangle.column_begin) <
           std::tuple(b.table, b.rectangle.row_begin, b.rectangle.column_begin);
  });
  return shards;
}

/// Their weights and states.
template <class Embeddings>
std::vector<float> rectangles_of(const Embeddings& embeddings) {
  std::vector<float> all;
  const auto append = [&](const auto& matrix) {
    for (const float x : read(embeddings.backend(), matrix.data,
                              static_cast<std::size_t>(matrix.rows * matrix.columns)))
      all.push_back(x);
  };
  for (const auto& shard : local_shards_by_place(embeddings)) {
    append(shard.weights);
    for (const auto& state : shard.states) append(state);
  }
  return all;
}

template <class Backend>
void any_memory_gives_one_model() {
  for (const int ranks : {1, 3})
    for (const bool replicated : {false, true}) {
      if (!Backend::host_readable && replicated != (ranks == 3)) continue;  // for the emulator
      std::vector<Result> device;
      for (const unsigned on_host : {0u, 0b01011u, 0b11111u}) {
        CAPTURE(ranks);
        CAPTURE(on_host);
        std::vector<Result> results(static_cast<std::size_t>(ranks));
        on_ranks<Backend>(ranks, [&](CountingOn<Backend>& c, const Backend& backend) {
          using E = EmbeddingsOn<Backend, CountingOn<Backend>>;
          typename E::Options options;
          options.learning_rate = 0.125f;
          options.seed = 7;
          E e(c, backend, with_tiers(layout(ranks, replicated), on_host), options);
          Result& mine = results[static_cast<std::size_t>(c.rank())];
          mine = train(e, c.rank(), enough_steps<Backend>);
          mine.shards = rectangles_of(e);
        });
        if (on_host == 0) device = results;
        for (std::size_t r = 0; r < results.size(); ++r) {
          CHECK(same_bits(results[r].outputs, device[r].outputs));
          CHECK(same_bits(results[r].weight_gradients, device[r].weight_gradients));
          CHECK(same_bits(results[r].shards, device[r].shards));
        }
      }
    }
}

}  // namespace tiers
