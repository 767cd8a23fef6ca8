// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables behind caches against tables in memory, on any backend: bodies of test_cache.cpp and
// gpu/cache_cases.hpp.
#pragma once

#include <tessera/tessera.hpp>

#include <support/on_backend.hpp>
#include <support/same_bits.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace caches {

using namespace tessera;     // NOLINT: a header of tests
using namespace on_backend;  // NOLINT

inline constexpr std::int64_t table_rows = 1000;

/// How long ranks train, behind what caches.
struct Size {
  int steps;
  std::int64_t samples = 7;          ///< of rank 0; others may have a few more
  std::int64_t cache_rows = 160;     ///< of a rectangle, at most
  std::int64_t cache_percent = 100;  ///< of its rows, at most
};
/// Samples enough to need most of a cache of 5 % of the rows.
inline constexpr Size long_run{.steps = 200, .samples = 1, .cache_rows = 1000, .cache_percent = 5};

inline constexpr std::array<std::string_view, 10> names{"a", "b", "c", "d", "e",
                                                        "f", "g", "h", "i", "j"};

/// One feature per table; every other one is weighted, its table pooled by mean.
inline std::vector<FeatureSpec> features() {
  std::vector<FeatureSpec> all;
  for (std::size_t t = 0; t < names.size(); ++t)
    all.push_back({names[t], names[t], t % 3 == 0 ? Pooling::mean : Pooling::sum, t % 2 == 1});
  return all;
}

/// Cut number (t + shift) % 5 for table t: by rows, by columns, by both, whole, a copy on every rank.
/// With `tier` all but every fourth table are behind caches; those in files may share a cache.
inline Layout layout(int ranks, int shift, std::optional<Tier> tier,
                     const Size& size = {.steps = 0}) {
  std::vector<TableSpec> tables;
  std::vector<Shard> shards;
  const auto n = static_cast<std::int32_t>(names.size());
  for (std::int32_t t = 0; t < n; ++t) {
    const int width = t % 2 == 0 ? 16 : 20, last = ranks - 1, half = width == 16 ? 8 : 4;
    tables.push_back({names[static_cast<std::size_t>(t)], table_rows, width});
    const auto add = [&](Rectangle r, int rank) {
      Shard shard{t, r, rank};
      if (tier && (t + shift) % 4 != 3) {
        shard.tier = *tier;
        shard.cache_rows = std::min(size.cache_rows, size.cache_percent * r.rows() / 100);
      }
      shards.push_back(shard);
    };
    switch ((t + shift) % 5) {
      case 0:
        for (int r = 0; r < ranks; ++r)
          add({even_cut(table_rows, ranks, r), even_cut(table_rows, ranks, r + 1), 0, width}, r);
        break;
      case 1:
        add({0, table_rows, 0, half}, 0);
        add({0, table_rows, half, width}, last);
        break;
      case 2:
        add({0, 400, 0, width}, last);
        add({400, table_rows, 0, half}, 0);
        add({400, table_rows, half, width}, ranks / 2);
        break;
      case 3:
        add({0, table_rows, 0, width}, t % ranks);
        break;
      default:
        add({0, table_rows, 0, width}, every_rank);
    }
  }
  return make_layout({ranks}, tables, features(), shards);
}

struct Batch {
  std::int64_t samples;
  std::vector<std::int64_t> ids, offsets{0};
  std::vector<float> weights, gradient;

  Batch(int rank, int step, std::int64_t columns, std::int64_t least = 7)
      : samples(rank == 1 && step == 2 ? 0 : least + rank % least) {
    std::minstd_rand random(static_cast<unsigned>(100 * step + rank + 1));
    random.discard(3);
    for (std::size_t f = 0; f < names.size(); ++f)
      for (std::int64_t s = 0; s < samples; ++s) {
        for (unsigned k = random() % 4; k > 0; --k) {
          ids.push_back(static_cast<std::int64_t>(random() % (random() % 3 == 0 ? 8 : table_rows)));
          weights.push_back(static_cast<float>(static_cast<int>(random() % 17) - 8) / 4);
        }
        offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
    gradient.resize(static_cast<std::size_t>(samples * columns));
    for (float& g : gradient)
      g = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000;
  }
  KeyedJagged<std::int64_t> keyed() const {
    return {static_cast<std::int64_t>(names.size()), samples, ids, offsets, weights};
  }
};

/// A batch where a backend reads it, with room for the gradient of its weights.
template <class Backend>
struct Given {
  Given(const Backend& backend, const Batch& batch, std::int64_t columns)
      : ids(backend, batch.keyed()),
        of_gradient(backend, batch.gradient),
        of_weights(backend, std::vector<float>(batch.ids.size(), 1.0f)),
        of_output(backend, std::vector<float>(batch.gradient.size())),
        gradient(of_gradient.data(), batch.samples, columns),
        output(of_output.data(), batch.samples, columns) {}

  BatchOn<std::int64_t, Backend> ids;
  Array<float, Backend> of_gradient, of_weights, of_output;
  MatrixView<const float> gradient;
  MatrixView<float> output;
};

/// What a rank saw: outputs, gradients of weights, tables and states.
using Seen = std::vector<float>;

/// All tables and states of this rank by name, as anybody reads them.
template <class E>
void read_tables(const E& e, Seen& seen) {
  for (int t = 0; t < std::ssize(names); ++t) {
    const TableSpec& table = e.layout().tables[static_cast<std::size_t>(t)];
    std::vector<float> values(static_cast<std::size_t>(table.rows * table.width));
    e.tables().get(table.name, {values.data(), table.rows, table.width});
    seen.insert(seen.end(), values.begin(), values.end());
    int k = 0;
    for (const auto& state : e.tables().states(t)) {
      const std::int64_t columns = state.per_row ? 1 : table.width;
      values.assign(static_cast<std::size_t>(table.rows * columns), 0);
      e.tables().get_state(table.name, k++, {values.data(), table.rows, columns});
      seen.insert(seen.end(), values.begin(), values.end());
    }
  }
}

template <class Backend, class E>
void keep(const Backend& backend, const float* values, std::size_t count, Seen& seen) {
  const std::vector<float> copy = read(backend, values, count);
  seen.insert(seen.end(), copy.begin(), copy.end());
}

/// Trains over all that reads or changes rows. `ahead` routes the next batch meanwhile, or is null.
template <class Backend, class E, class Ahead>
Seen train(E& e, int rank, const Size& size, Ahead* ahead) {
  const int steps = size.steps;
  Seen seen;
  const auto marks = e.mark_rows();
  std::vector<std::unique_ptr<Given<Backend>>> given;
  for (int step = 0; step < steps; ++step)
    given.push_back(std::make_unique<Given<Backend>>(
        e.backend(), Batch(rank, step, e.columns(), size.samples), e.columns()));
  const Batch held_out(rank, 777, e.columns(), size.samples);
  const Given<Backend> other(e.backend(), held_out, e.columns());
  typename E::template StepState<std::int64_t> own;
  if (ahead != nullptr) ahead->start(given[0]->ids.keyed());
  for (int step = 0; step < steps; ++step) {
    Given<Backend>& now = *given[static_cast<std::size_t>(step)];
    auto& routed = ahead != nullptr ? ahead->take() : own;
    if (ahead == nullptr) e.route(routed, now.ids.keyed());
    const int turn = step % 50;
    if (turn == 3) {  // a routed batch meets rows that were set, and rows that begin anew
      std::vector<float> values(static_cast<std::size_t>(table_rows * 16));
      e.tables().get("a", {values.data(), table_rows, 16});
      for (float& x : values) x += 0.25f;
      e.tables().set("a", {values.data(), table_rows, 16});
      const std::vector<std::int64_t> again{1, 5, 500, 999};
      for (int t = 0; t < 3; ++t) e.reset_rows(t, again);
    }
    const auto pooled = e.forward_routed(routed, now.output);
    keep<Backend, E>(e.backend(), pooled.values.data, now.of_gradient.span().size(), seen);
    if (turn == 1)
      keep<Backend, E>(e.backend(), e.evaluate(other.ids.keyed()).data,
                       other.of_gradient.span().size(), seen);
    if (ahead != nullptr && step + 1 < steps)
      ahead->start(given[static_cast<std::size_t>(step) + 1]->ids.keyed());
    if (turn == 4 || turn == 5) {
      e.accumulate(pooled, now.gradient);
      if (turn == 4) e.accumulate(pooled, now.gradient);  // another loss
      if (turn == 5) e.apply();
    } else {
      e.backward(pooled, now.gradient, now.of_weights.span());
      const std::vector<float> of_weights = now.of_weights.read();
      seen.insert(seen.end(), of_weights.begin(), of_weights.end());
    }
  }
  seen.push_back(static_cast<float>(e.count_non_finite_weights()));
  std::vector<std::pair<int, std::int64_t>> marked;  // table, row: arenas differ
  for (const auto& shard : e.tables().local_shards())
    for (const std::int64_t row :
         marks->changed(shard.arena, shard.arena_row, shard.arena_row + shard.rectangle.rows()))
      marked.emplace_back(shard.table, shard.rectangle.row_begin + row);
  std::sort(marked.begin(), marked.end());
  for (const auto& [table, row] : marked) seen.push_back(static_cast<float>(row));
  read_tables(e, seen);
  return seen;
}

using AllOptimizers = TrainingGroups<Train<Sgd>, Train<Adagrad>, Train<RowWiseAdagrad>, Train<Adam>,
                                     Train<AdamW>, Train<PartialRowWiseAdam>, Train<Lamb>,
                                     Train<Ftrl>, Train<Lion>, Train<Momentum>>;

/// A collection whose table t is in training group t modulo their number.
template <class Backend, class Trained, class... Policies>
using Collection =
    LayoutCollection<Widths<>, Trained, Backend, typename ThreadRanks<Backend>::type, Policies...>;
template <class E>
typename E::Options options(const std::string& folder) {
  typename E::Options given;
  given.learning_rate = 0.125f;
  given.seed = 7;
  for (int t = 0; t < std::ssize(names); ++t)
    given.optimizer.group_of_table.push_back(t %
                                             std::tuple_size_v<decltype(given.optimizer.groups)>);
  given.files.folder = folder;
  return given;
}

/// Of a rank, and of its thread that routes.
template <class Backend>
struct TwoBackends {
  Backend first, second;
};

/// Under every cut of tables, with and without routing ahead.
template <class Backend, class Trained, class... Policies>
void one_model(Tier tier, const std::string& folder, std::vector<int> rank_counts,
               const Size& size) {
  using E = Collection<Backend, Trained, Policies...>;
  using Comm = typename ThreadRanks<Backend>::type;
  for (const int ranks : rank_counts) {
    CAPTURE(ranks);
    std::array<std::vector<Seen>, 3> seen;
    std::vector<detail::CacheCounters> counters(static_cast<std::size_t>(ranks));
    for (int run = 0; run < 3; ++run) {  // in memory; behind caches; those, routed ahead
      seen[static_cast<std::size_t>(run)].resize(static_cast<std::size_t>(ranks));
      run_ranks(ranks, [&](ThreadCommunicator& host) {
        const TwoBackends<Backend> own;
        const Backend &backend = own.first, &routing = own.second;
        ThreadCommunicator second_host = host.split(0);
        Comm c = ThreadRanks<Backend>::make(host, backend),
             second = ThreadRanks<Backend>::make(second_host, routing);
        E e(c, backend, layout(ranks, ranks, run == 0 ? std::nullopt : std::optional(tier), size),
            options<E>(folder));
        const auto r = static_cast<std::size_t>(c.rank());
        using Ahead = RouteAhead<E, std::int64_t, Comm, Backend>;
        std::optional<Ahead> ahead;
        if (run == 2) ahead.emplace(e, second, routing);
        seen[static_cast<std::size_t>(run)][r] =
            train<Backend>(e, c.rank(), size, ahead ? &*ahead : nullptr);
        counters[r] = e.tables().cache_counters();
        if (run != 0) {
          CHECK(counters[r].fetched_rows > (size.steps > 6 ? 480 : 160));
          CHECK(counters[r].written_rows > 80);
          CHECK(counters[r].rows > counters[r].fetched_rows);
          CHECK(counters[r].read_bytes > 0);
        }
      });
    }
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
      CHECK(same_bits(seen[1][r], seen[0][r]));
      CHECK(same_bits(seen[2][r], seen[0][r]));
    }
  }
}

}  // namespace caches
