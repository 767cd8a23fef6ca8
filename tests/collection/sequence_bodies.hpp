// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Sequences and max pooling beside pooled features, on any backend: bodies of test_sequences.cpp and
// gpu/twin_cases.hpp.
#pragma once

#include <fmt/format.h>
#include <collection/weighted_values.hpp>
#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sequences {

using namespace tessera;     // NOLINT: a header of tests
using namespace on_backend;  // NOLINT
using small_model::CountingOn, small_model::EmbeddingsOn, small_model::largest_difference,
    small_model::on_ranks, small_model::shards_of;

inline std::vector<TableSpec> tables() {
  return {{"item", 200, 16}, {"user", 60, 12}, {"tag", 9, 8}};
}
inline std::vector<FeatureSpec> features() {
  return {{"history", "item", Pooling::none},
          {"shown", "item", Pooling::sum},
          {"best", "item", Pooling::max},
          {"users", "user", Pooling::none},
          {"tags", "tag", Pooling::max}};
}
constexpr int feature_count = 5;
constexpr std::int64_t columns = 16 + 16 + 8;

/// `grid`: both, on the first two ranks alone.
enum class Cut { whole, rows, columns, both, replicated, grid };

inline Layout layout(int ranks, Cut cut) {
  std::vector<Shard> shards;
  for (int t = 0; t < 3; ++t) {
    const TableSpec table = tables()[static_cast<std::size_t>(t)];
    const int half = table.width / 2;
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t begin = even_cut(table.rows, ranks, r),
                         end = even_cut(table.rows, ranks, r + 1);
      if (cut == Cut::grid && r < 2)
        for (const int c : {0, half}) {
          const std::int64_t from = even_cut(table.rows, 2, r), to = even_cut(table.rows, 2, r + 1);
          shards.push_back({t, {from, to, c, c + half}, c == 0 ? r : 1 - r});
        }
      if (cut == Cut::rows) shards.push_back({t, {begin, end, 0, table.width}, r});
      if (cut != Cut::both) continue;
      shards.push_back({t, {begin, end, 0, half}, r});
      shards.push_back({t, {begin, end, half, table.width}, (r + 1) % ranks});
    }
    if (cut == Cut::whole) shards.push_back({t, {0, table.rows, 0, table.width}, t % ranks});
    if (cut == Cut::replicated) shards.push_back({t, {0, table.rows, 0, table.width}, every_rank});
    if (cut != Cut::columns) continue;
    shards.push_back({t, {0, table.rows, 0, half}, t % ranks});
    shards.push_back({t, {0, table.rows, half, table.width}, (t + 1) % ranks});
  }
  return make_layout({ranks}, tables(), features(), shards);
}

/// The ids of a feature of one sample of the global batch: many repeat, bags of all lengths; at step
/// 1 the first samples have no history at all.
inline std::vector<std::int64_t> ids_of(int step, int feature, std::int64_t sample) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + 100 * feature + sample));
  const bool sequence = features()[static_cast<std::size_t>(feature)].pooling == Pooling::none;
  if (step == 1 && sequence && sample < 6) return {};
  const auto rows = static_cast<unsigned>(tables()[feature < 3 ? 0 : feature == 3 ? 1 : 2].rows);
  std::vector<std::int64_t> ids(random() % (sequence ? 9 : 4));
  for (std::int64_t& id : ids) id = random() % 3 == 0 ? random() % rows : random() % 5;
  return ids;
}
/// A number for each element of a gradient, with sums that are rounded.
inline float gradient_of(int step, int feature, std::int64_t sample, std::size_t position, int c) {
  const std::uint64_t key = static_cast<std::uint64_t>(((step * 8 + feature) * 64 + sample) * 16) +
                            static_cast<std::uint64_t>(position);
  return static_cast<float>(mix64(key * 64 + static_cast<std::uint64_t>(c)) % 20011) / 10007 - 1;
}

constexpr std::int64_t samples = 16;

/// A rank's samples [begin, end) of a step, and the gradients to feed back.
struct Batch {
  static constexpr std::array<int, feature_count> all_features{0, 1, 2, 3, 4};
  std::int64_t begin, end, features;
  std::vector<std::int64_t> ids, offsets{0}, bounds;
  std::vector<float> gradient;
  std::map<int, std::vector<float>> of_ids;  // of sequences, by feature

  Batch(int step, std::int64_t begin_, std::int64_t end_, std::span<const int> which = all_features)
      : begin(begin_),
        end(end_),
        features(std::ssize(which)),
        bounds(which.size(), 8 * (end - begin)) {
    for (const int f : which)
      for (std::int64_t s = begin; s < end; ++s) {
        const std::vector<std::int64_t> bag = ids_of(step, f, s);
        ids.insert(ids.end(), bag.begin(), bag.end());
        offsets.push_back(std::ssize(ids));
        for (std::size_t i = 0; (f == 0 || f == 3) && i < bag.size(); ++i)
          for (int c = 0; c < (f == 0 ? 16 : 12); ++c)
            of_ids[f].push_back(gradient_of(step, f, s, i, c));
      }
    for (std::int64_t s = begin; s < end; ++s)
      for (int c = 0; c < columns; ++c) gradient.push_back(gradient_of(step, 7, s, 0, c));
  }
  KeyedJagged<std::int64_t> keyed() const { return {features, end - begin, ids, offsets, {}}; }
};

/// Samples [first, second) of a rank: at step 2 the last rank has all.
inline std::pair<std::int64_t, std::int64_t> own_samples(int step, int ranks, int rank) {
  if (step == 2) return {rank == ranks - 1 ? 0 : samples, samples};
  return {even_cut(samples, ranks, rank), even_cut(samples, ranks, rank + 1)};
}

struct Seen {
  std::vector<float> pooled, vectors;  // of all steps, all ranks' samples in order
  std::map<std::string, std::vector<float>> tables;
};

enum class Give { ids, rows };

/// What a rank feeds back for its sequences: gradients of ids, or merged by row in double.
template <class Backend>
class Fed {
 public:
  template <class Found>
  Fed(const Backend& backend, const Found& found, const Batch& batch, Give give) {
    for (const int f : {3, 0}) {  // any order will do
      const auto view = found.sequence(f);
      std::vector<float> values;
      if (const auto at = batch.of_ids.find(f); at != batch.of_ids.end()) values = at->second;
      // a step of fixed sizes has room for more, which does not count
      values.resize(static_cast<std::size_t>(view.ids() * view.width()), 5);
      if (give == Give::rows) values = by_row(backend, view, values);
      const auto& memory = memory_.emplace_back(backend, values);
      const std::int64_t rows = std::ssize(values) / view.width();
      const MatrixView<const float> matrix(memory.data(), rows, view.width());
      all.push_back(give == Give::rows ? view.per_row(matrix) : view.per_id(matrix));
    }
  }
  std::vector<SequenceGradient> all;

 private:
  static std::vector<float> by_row(const Backend& backend, const SequenceView<Backend>& view,
                                   const std::vector<float>& of_ids) {
    const std::vector<std::int32_t> index = read(backend, view.index().data(), view.index().size());
    std::vector<double> sums(static_cast<std::size_t>(view.rows().rows * view.width()));
    for (std::size_t i = 0; i < of_ids.size(); ++i) {
      const auto width = static_cast<std::size_t>(view.width());
      sums[static_cast<std::size_t>(index[i / width]) * width + i % width] += of_ids[i];
    }
    return {sums.begin(), sums.end()};
  }

  std::list<Array<float, Backend>> memory_;
};

template <class Backend>
std::vector<float> vectors_of(const Backend& backend, const SequenceView<Backend>& view) {
  const Array<float, Backend> out(
      backend, std::vector<float>(static_cast<std::size_t>(view.ids() * view.width()), -7));
  view.materialize({out.data(), view.ids(), view.width()});
  std::vector<float> vectors = out.read();
  // room for more, in a step of fixed sizes: zeros
  const auto ids = read(backend, view.offsets().data(), view.offsets().size()).back();
  const auto end = vectors.begin() + ids * view.width();
  CHECK(std::all_of(end, vectors.end(), [](float x) { return x == 0; }));
  vectors.erase(end, vectors.end());
  return vectors;
}

/// What a rank saw, step by step.
struct OfRank {
  std::vector<std::vector<float>> pooled, vectors;
};

/// `bounded`: own samples, with bounds of how many ids a feature has at most.
/// `written`: own samples, vectors are written where they are wanted. `model_parallel`: those of
/// one sequence are, by turns.
enum class Input { own, bounded, model_parallel, written };
inline bool is_written(Input input, int step, int feature) {
  return input == Input::written ||
         (input == Input::model_parallel && feature == (step == 0 ? 0 : 3));
}

/// The batch of a step as `input` says.
template <class E>
auto batch_on(const E& embeddings, int step, const Batch& own, Input input) {
  KeyedJagged<std::int64_t> keyed = own.keyed();
  const Batch all(step, 0, samples, embeddings.local_features());
  if (input == Input::bounded) keyed.bounds = own.bounds;
  if (input == Input::model_parallel) keyed = all.keyed();
  using Backend = std::remove_cvref_t<decltype(embeddings.backend())>;
  return BatchOn<std::int64_t, Backend>(embeddings.backend(), keyed);
}
/// What a rank's forward gives for its samples of a step.
template <class E>
auto look_up(E& embeddings, int step, int ranks, const KeyedJagged<std::int64_t>& batch,
             Input input, const std::vector<SequenceVectors>& targets) {
  if (input == Input::written) return embeddings.forward(batch, targets);
  if (input != Input::model_parallel) return embeddings.forward(batch);
  if (step != 2) return embeddings.forward_model_parallel(batch, {}, targets);
  std::vector<std::int64_t> begins(static_cast<std::size_t>(ranks));  // the last has all
  begins.push_back(samples);
  return embeddings.forward_model_parallel(batch, begins, targets);
}

/// A rank's steps with samples of the global batch, and their gradients.
template <class E>
OfRank train_rank(E& embeddings, int ranks, int rank, int steps, Give give,
                  Input input = Input::own) {
  OfRank seen;
  const auto& backend = embeddings.backend();
  using Backend = std::remove_cvref_t<decltype(backend)>;
  for (int step = 0; step < steps; ++step) {
    const auto [begin, end] = own_samples(step, ranks, rank);
    const Batch batch(step, begin, end);
    const auto ids = batch_on(embeddings, step, batch, input);
    std::map<int, Array<float, Backend>> written;
    std::vector<SequenceVectors> targets;
    for (const int f : {0, 3}) {
      if (give == Give::rows || !is_written(input, step, f)) continue;
      const int width = f == 0 ? 16 : 12;
      const auto at = batch.of_ids.find(f);
      const std::size_t count = at == batch.of_ids.end() ? 0 : at->second.size();
      const auto& to = written.try_emplace(f, backend, std::vector<float>(count)).first->second;
      targets.push_back({f, {to.data(), static_cast<std::int64_t>(count) / width, width}});
    }
    const auto found = look_up(embeddings, step, ranks, ids.keyed(), input, targets);
    seen.pooled.push_back(read(backend, found.values.data, batch.gradient.size()));
    std::vector<float>& vectors = seen.vectors.emplace_back();
    for (const int f : {0, 3}) {
      const auto at = written.find(f);
      const std::vector<float> some =
          at != written.end() ? at->second.read() : vectors_of(backend, found.sequence(f));
      vectors.insert(vectors.end(), some.begin(), some.end());
    }
    const Array<float, Backend> gradient(backend, batch.gradient);
    const Fed<Backend> fed(backend, found, batch, give);
    embeddings.backward(found, {gradient.data(), end - begin, columns}, fed.all);
  }
  return seen;
}

/// Trains, and answers what all ranks saw. Input::bounded: with option equal_batches, too.
template <class Backend, class... Policies>
Seen train(int ranks, Cut cut, int steps, Give give = Give::ids, int gradient_blocks = 0,
           Input input = Input::own) {
  Seen seen;
  std::vector<OfRank> of_ranks(static_cast<std::size_t>(ranks));
  for (const TableSpec& table : tables())
    seen.tables[std::string(table.name)].resize(static_cast<std::size_t>(table.rows * table.width));
  on_ranks<Backend>(ranks, [&](CountingOn<Backend>& c, const Backend& backend) {
    EmbeddingsOn<Backend, CountingOn<Backend>, Policies...> embeddings(
        c, backend, layout(ranks, cut),
        {.learning_rate = 0.125f,
         .seed = 7,
         .equal_batches = input == Input::bounded,
         .gradient_blocks = gradient_blocks});
    of_ranks[static_cast<std::size_t>(c.rank())] =
        train_rank(embeddings, ranks, c.rank(), steps, give, input);
    for (int rank = 0; rank < ranks; ++rank, c.barrier())
      for (const TableSpec& table : tables())
        if (rank == c.rank())
          embeddings.tables().get(
              table.name, {seen.tables[std::string(table.name)].data(), table.rows, table.width});
  });
  const auto append = [](std::vector<float>& all, const std::vector<float>& some) {
    all.insert(all.end(), some.begin(), some.end());
  };
  for (std::size_t step = 0; step < static_cast<std::size_t>(steps); ++step)
    for (const OfRank& of_rank : of_ranks) {
      append(seen.pooled, of_rank.pooled[step]);
      append(seen.vectors, of_rank.vectors[step]);
    }
  return seen;
}

/// One batch on some ranks: vectors, index and offsets by definition, max pooling by definition, the
/// update of Sgd by definition in double.
template <class Backend>
void by_definition() {
  for (const Cut cut : {Cut::whole, Cut::both}) {
    if (!Backend::host_readable && cut == Cut::whole) continue;  // for the emulator's sake
    on_ranks<Backend>(3, [&](CountingOn<Backend>& c, const Backend& backend) {
      LayoutCollection<Widths<>, Sgd, Backend, CountingOn<Backend>> embeddings(
          c, backend, layout(3, cut), {.learning_rate = 1, .seed = 3});
      std::vector<std::vector<float>> before;
      for (const TableSpec& table : tables()) {
        std::vector<float>& values = before.emplace_back();
        for (std::int64_t i = 0; i < table.rows * table.width; ++i)  // many ties
          values.push_back(static_cast<float>(mix64(static_cast<std::uint64_t>(i)) % 7) - 3);
        embeddings.tables().set(table.name, {values.data(), table.rows, table.width});
      }
      const Batch batch(1, even_cut(samples, 3, c.rank()), even_cut(samples, 3, c.rank() + 1));
      const BatchOn<std::int64_t, Backend> ids(backend, batch.keyed());
      const auto found = embeddings.forward(ids.keyed());
      const std::vector<float> pooled = read(backend, found.values.data, batch.gradient.size());
      for (const int f : {0, 3}) {
        const auto view = found.sequence(f);
        const int width = f == 0 ? 16 : 12;
        const std::vector<float> vectors = vectors_of(backend, view);
        const auto index = read(backend, view.index().data(), view.index().size());
        const auto offsets = read(backend, view.offsets().data(), view.offsets().size());
        REQUIRE(std::ssize(offsets) == batch.end - batch.begin + 1);
        CHECK(view.width() == width);
        std::vector<std::int64_t> all;
        for (std::int64_t s = batch.begin; s < batch.end; ++s) {
          CHECK(offsets[static_cast<std::size_t>(s - batch.begin)] == std::ssize(all));
          const std::vector<std::int64_t> bag = ids_of(1, f, s);
          all.insert(all.end(), bag.begin(), bag.end());
        }
        CHECK(offsets.back() == std::ssize(all));
        REQUIRE(view.ids() == std::ssize(all));
        std::vector<float> expected;
        std::map<std::int64_t, std::set<std::int32_t>> places;
        for (std::size_t i = 0; i < all.size(); ++i) {
          const auto row = before[f == 0 ? 0 : 1].begin() + all[i] * width;
          expected.insert(expected.end(), row, row + width);
          places[all[i]].insert(index[i]);
        }
        CHECK(vectors == expected);
        // on a GPU a row of zeros stands behind them
        CHECK(view.rows().rows == std::ssize(places) + (Backend::host_readable ? 0 : 1));
        for (const auto& [id, of_id] : places) CHECK(of_id.size() == 1);
      }
      // max pooling, and the update that it gives
      std::vector<std::vector<double>> sums;
      for (const std::vector<float>& table : before) sums.emplace_back(table.size());
      for (std::int64_t s = 0; s < samples; ++s)
        for (int f = 0, column = 0; f < feature_count; ++f) {
          const std::size_t t = f < 3 ? 0 : f == 3 ? 1 : 2;
          const int width = tables()[t].width;
          const std::vector<std::int64_t> bag = ids_of(1, f, s);
          for (int c = 0; c < width; ++c) {
            const float up = gradient_of(1, 7, s, 0, column + c);
            double expected = 0;
            std::size_t best = 0;
            for (std::size_t i = 0; i < bag.size(); ++i) {
              const auto element = static_cast<std::size_t>(bag[i] * width + c);
              if (f == 0 || f == 3)
                sums[t][element] += gradient_of(1, f, s, i, c);
              else if (f == 1)
                sums[t][element] += up, expected += before[t][element];
              else if (i == 0 || before[t][element] > expected)
                best = i, expected = before[t][element];
            }
            if ((f == 2 || f == 4) && !bag.empty())
              sums[t][static_cast<std::size_t>(bag[best] * width + c)] += up;
            if (f == 0 || f == 3 || s < batch.begin || s >= batch.end) continue;
            CHECK(pooled[static_cast<std::size_t>((s - batch.begin) * columns + column + c)] ==
                  expected);
          }
          column += f == 0 || f == 3 ? 0 : width;
        }
      const Array<float, Backend> gradient(backend, batch.gradient);
      const Fed<Backend> fed(backend, found, batch, Give::ids);
      embeddings.backward(found, {gradient.data(), batch.end - batch.begin, columns}, fed.all);
      for (std::size_t t = 0; t < 3; ++t) {
        std::vector<float> after = before[t];
        embeddings.tables().get(tables()[t].name,
                                {after.data(), tables()[t].rows, tables()[t].width});
        double largest = 0;
        for (std::size_t i = 0; i < after.size(); ++i)
          if (after[i] != before[t][i])  // this rank's shard, or a row that no gradient reached
            largest = std::max(largest, std::abs(before[t][i] - sums[t][i] - after[i]));
        CHECK(largest < 1e-5);
      }
    });
  }
}

template <class Backend>
void the_same_bits_under_every_plan() {
  const int steps = Backend::host_readable ? 4 : 3, ranks = 3;
  const Seen whole = train<Backend>(ranks, Cut::whole, steps);
  for (const Cut cut : {Cut::rows, Cut::columns, Cut::both, Cut::replicated}) {
    if (!Backend::host_readable && cut == Cut::columns) continue;
    const Seen other = train<Backend>(ranks, cut, steps);
    CAPTURE(static_cast<int>(cut));
    for (const auto& table : whole.tables) {
      const auto& [name, values] = table;
      CAPTURE(table.first);
      // several features on a replicated table: a rank adds its own gradients of all first
      if (cut == Cut::replicated && name == "item")
        CHECK(largest_difference(other.tables.at(name), values) < 1e-4);
      else
        CHECK(same_bits(other.tables.at(name), values));
    }
    if (cut == Cut::replicated) continue;
    CHECK(same_bits(other.vectors, whole.vectors));
  }
  // vectors that are written where they are wanted, by ranks that have the table and others
  for (const Cut cut : {Cut::whole, Cut::replicated}) {
    const Seen packed = cut == Cut::whole ? whole : train<Backend>(ranks, cut, steps),
               written = train<Backend>(ranks, cut, steps, Give::ids, 0, Input::written);
    CHECK(same_bits(written.vectors, packed.vectors));
    CHECK(same_bits(written.pooled, packed.pooled));
    for (const auto& [name, values] : packed.tables)
      CHECK(same_bits(written.tables.at(name), values));
    if (!Backend::host_readable) break;
  }
  // rows that others merged, in double
  const Seen by_row = train<Backend>(ranks, Cut::rows, steps, Give::rows);
  for (const auto& [name, values] : whole.tables)
    CHECK(largest_difference(by_row.tables.at(name), values) < 1e-4);
}

template <class Backend>
void the_same_bits_on_any_number_of_ranks() {
  const int steps = 2;
  const Seen alone = train<Backend>(1, Cut::whole, steps, Give::ids, 4);
  for (const int ranks : {2, 4}) {
    const bool two = ranks == 2;  // they have equal batches, say so and say bounds
    const Seen many = train<Backend>(ranks, two ? Cut::both : Cut::rows, steps, Give::ids, 4,
                                     two ? Input::bounded : Input::own);
    CAPTURE(ranks);
    for (const auto& [name, values] : alone.tables) CHECK(same_bits(many.tables.at(name), values));
    CHECK(same_bits(many.vectors, train<Backend>(ranks, Cut::whole, steps, Give::ids, 4).vectors));
  }
  // one block a rank: on a GPU a step of fixed sizes, with room for more rows than there are
  for (const Give give : {Give::ids, Give::rows}) {
    const Seen asked = train<Backend>(2, Cut::both, steps, give, 2),
               fixed = train<Backend>(2, Cut::both, steps, give, 2, Input::bounded);
    CHECK(same_bits(fixed.vectors, asked.vectors));
    CHECK(same_bits(fixed.pooled, asked.pooled));
    for (const auto& [name, values] : asked.tables) CHECK(same_bits(fixed.tables.at(name), values));
  }
}

/// The global batch's ids where the rows are: what own samples give, whoever holds what.
template <class Backend>
void model_parallel_has_the_same_bits() {
  const auto same = [](const Seen& one, const Seen& other) {
    CHECK(same_bits(one.pooled, other.pooled));
    CHECK(same_bits(one.vectors, other.vectors));
    for (const auto& [name, values] : one.tables) CHECK(same_bits(values, other.tables.at(name)));
  };
  const int steps = 3, ranks = 3;
  for (const Cut cut :
       {Cut::grid, Cut::columns, Cut::whole, Cut::rows, Cut::both, Cut::replicated}) {
    if (!Backend::host_readable && cut != Cut::grid && cut != Cut::columns) continue;
    CAPTURE(static_cast<int>(cut));
    same(train<Backend>(ranks, cut, steps),
         train<Backend>(ranks, cut, steps, Give::ids, 0, Input::model_parallel));
  }
  // blocks of samples; one rank; gradients of rows
  same(train<Backend>(2, Cut::whole, 2, Give::ids, 4),
       train<Backend>(2, Cut::whole, 2, Give::ids, 4, Input::model_parallel));
  same(train<Backend>(1, Cut::columns, 2, Give::rows),
       train<Backend>(1, Cut::columns, 2, Give::rows, 0, Input::model_parallel));
}

/// Ranks that hold parts of a table and disagree on its ids, or on the samples, are named.
template <class Backend>
void model_parallel_ranks_that_differ() {
  const auto seen = [](bool of_samples) {
    std::vector<std::string> texts(3);
    const auto rank = [&](CountingOn<Backend>& c, const Backend& backend) {
      EmbeddingsOn<Backend, CountingOn<Backend>> e(c, backend, layout(3, Cut::columns), {});
      Batch all(0, 0, 12, e.local_features());
      std::vector<std::int64_t> begins{0, 4, 8, 12};
      if (c.rank() == 1 && of_samples) begins[1] = 2;
      if (c.rank() == 1 && !of_samples)  // it has the history's ids, as rank 0 has
        std::fill(all.ids.begin(), all.ids.begin() + all.offsets[12], 3);
      const BatchOn<std::int64_t, Backend> ids(backend, all.keyed());
      try {
        e.forward_model_parallel(ids.keyed(), begins);
      } catch (const std::exception& error) {
        texts[static_cast<std::size_t>(c.rank())] = error.what();
        throw;
      }
    };
    CHECK_THROWS(on_ranks<Backend>(3, rank));
    return texts;
  };
  for (const std::string& text : seen(false)) {
    CAPTURE(text);
    CHECK(text.find("of feature 'history' rank") != std::string::npos);
    CHECK(text.find("give every rank that holds a part of the table the same ids") !=
          std::string::npos);
  }
  const std::vector<std::string> texts = seen(true);
  CAPTURE(texts[0]);
  CHECK(texts[0].find("rank 0: rank 1 has 2 samples for this rank, this rank says 4") !=
        std::string::npos);
  CHECK(texts[1].find("rank 1: rank 0 has 4 samples for this rank, this rank says 6") !=
        std::string::npos);
  CHECK(!texts[2].empty());
}

template <class Backend>
void what_backward_and_views_refuse() {
  Alone<Backend> alone;
  const Backend& backend = alone.backend;
  using Comm = typename Alone<Backend>::Comm;
  EmbeddingsOn<Backend, Comm> e(alone.communicator, backend, layout(1, Cut::whole), {.seed = 7});
  using E = EmbeddingsOn<Backend, Comm>;
  const Batch batch(0, 0, samples);
  const BatchOn<std::int64_t, Backend> ids(backend, batch.keyed());
  typename E::template StepState<std::int64_t> unused;
  check_message([&] { unused.sequence(0); }, "sequence: this step has no vectors");
  const auto found = e.forward(ids.keyed());
  const auto history = found.template sequence<"history">(), users = found.sequence("users");
  check_message([&] { found.sequence("histroy"); },
                "no feature has the name 'histroy'; sequences are 'users', 'history'");
  check_message([&] { found.sequence(1); }, "feature 1 is no sequence");
  check_message([&] { found.sequence(9); }, "feature 9 is no sequence");
  const std::vector<float> before = shards_of(e);
  const Array<float, Backend> some(backend, std::vector<float>(100 * 40, 1.0f));
  const MatrixView<float> wrong(some.data(), history.ids() + 1, 16);
  const MatrixView<const float> gradient(some.data(), samples, columns);
  const auto ids_gradient = history.per_id({some.data(), history.ids(), 16});
  const auto users_gradient = users.per_id({some.data(), users.ids(), 12});
  check_message([&] { history.materialize(wrong); },
                fmt::format("materialize: out is [{0}, 16], must be [{1}, 16]", history.ids() + 1,
                            history.ids()));
  check_message([&] { history.per_id(wrong); }, "per_id: gradient is");
  check_message([&] { history.per_row({some.data(), history.ids(), 16}); }, "per_row: gradient is");
  check_message([&] { e.backward(found, gradient); },
                "backward: sequence 'history' has no gradient");
  check_message([&] { e.backward(found, gradient, {ids_gradient}); },
                "sequence 'users' has no gradient");
  check_message([&] { e.backward(found, gradient, {ids_gradient, ids_gradient}); },
                "sequence 'history' is given two gradients");
  check_message([&] { e.accumulate(found, gradient, {ids_gradient, {1, gradient}}); },
                "feature 1, which is no sequence; those are 'users', 'history'");
  check_message(
      [&] { e.backward(found, gradient, {users_gradient, {0, users_gradient.values, true}}); },
      "the gradient of sequence 'history' is");
  check_message(
      [&] {
        e.backward(found, gradient,
                   {users_gradient, {0, {static_cast<const float*>(nullptr), history.ids(), 16}}});
      },
      "but its data is null");
  check_message([&] { e.backward(found, {ids_gradient, users_gradient}); },
                "backward: gradient is [16, 0], must be [16, 40]");
  CHECK(same_bits(shards_of(e), before));
  check_message([&] { static_cast<void>(decltype(e.forward(ids.keyed()))().sequence(0)); },
                "sequence: call forward first");
  CHECK(message_of([&] { static_cast<void>(found.sequence(0)); }) == "");
  e.forward(ids.keyed());
  check_message([&] { static_cast<void>(found.sequence(0)); },
                "another batch was looked up since this forward");
  check_message(
      [&] { E(alone.communicator, backend, layout(1, Cut::whole), {.gradient_blocks = -1}); },
      "option gradient_blocks is -1");
  // a batch of nothing
  const Batch nothing(0, 0, 0);
  const BatchOn<std::int64_t, Backend> no_ids(backend, nothing.keyed());
  const auto none = e.forward(no_ids.keyed());
  CHECK(none.sequence(0).ids() == 0);
  CHECK(vectors_of(backend, none.sequence(0)).empty());
  e.backward(none, {some.data(), 0, columns},
             {none.sequence(0).per_id({some.data(), 0, 16}),
              none.sequence(3).per_id({some.data(), 0, 12})});
  CHECK(same_bits(shards_of(e), before));
}

/// Weighted sequences and max pooling: what PyTorch makes of them, to the bit, under any plan and
/// number of ranks, whether vectors are written where they are asked for or not.
template <class Backend>
void weights_as_pytorch() {
  namespace golden = weighted_values;
  constexpr int width = 8;
  constexpr std::int64_t rows = 9;
  const std::vector<std::vector<std::int64_t>> bags{{1, 4, 1}, {},  {7}, {4, 8, 8, 0},   // history
                                                    {2, 4, 5}, {3}, {},  {4, 1, 2, 8}};  // best
  const std::vector<FeatureSpec> features{{"history", "tag", Pooling::none, true},
                                          {"best", "tag", Pooling::max, true}};
  for (const auto& [number, cut] : {std::pair(1, Cut::whole), std::pair(2, Cut::rows),
                                    std::pair(2, Cut::columns), std::pair(4, Cut::rows)})
    for (const bool written : {false, true}) {
      const int ranks = number;  // a lambda of clang 14 takes no structured binding
      CAPTURE(ranks);
      CAPTURE(written);
      std::vector<Shard> shards;
      for (int r = 0; r < ranks; ++r) {
        if (cut == Cut::rows)
          shards.push_back(
              {0, {even_cut(rows, ranks, r), even_cut(rows, ranks, r + 1), 0, width}, r});
        if (cut == Cut::columns) shards.push_back({0, {0, rows, 4 * r, 4 * r + 4}, r});
        if (cut == Cut::whole) shards.push_back({0, {0, rows, 0, width}, r});
      }
      const Layout layout = make_layout({ranks}, {{"tag", rows, width}}, features, shards);
      std::vector<float> after(std::size_t{rows} * width);
      on_ranks<Backend>(ranks, [&](CountingOn<Backend>& c, const Backend& backend) {
        EmbeddingsOn<Backend, CountingOn<Backend>> embeddings(c, backend, layout,
                                                              {.learning_rate = 0.5f});
        embeddings.tables().set("tag", {golden::table, rows, width});
        const std::size_t first = static_cast<std::size_t>(4 / ranks * c.rank()),
                          batch = static_cast<std::size_t>(4 / ranks);
        std::vector<std::int64_t> ids, offsets{0};
        std::vector<std::size_t> places;
        std::vector<float> weights;
        std::size_t place = 0;
        for (std::size_t b = 0; b < bags.size(); place += bags[b++].size()) {
          if (b % 4 < first || b % 4 >= first + batch) continue;
          for (std::size_t i = 0; i < bags[b].size(); ++i) {
            ids.push_back(bags[b][i]);
            places.push_back(place + i);
            weights.push_back(golden::weights[place + i]);
          }
          offsets.push_back(std::ssize(ids));
        }
        const std::size_t own = static_cast<std::size_t>(offsets[batch]);
        std::vector<float> of_vectors, vectors(own * width);
        for (std::size_t i = 0; i < own; ++i)
          of_vectors.insert(of_vectors.end(), golden::of_vectors + places[i] * width,
                            golden::of_vectors + (places[i] + 1) * width);
        const std::vector<float> of_output(golden::of_output + first * width,
                                           golden::of_output + (first + batch) * width);
        const Array<std::int64_t, Backend> on_ids(backend, ids), on_offsets(backend, offsets);
        const Array<float, Backend> on_weights(backend, weights), on_vectors(backend, vectors),
            given_vectors(backend, of_vectors), given_output(backend, of_output),
            of_weights(backend, std::vector<float>(ids.size()));
        const KeyedJagged<std::int64_t> keyed{2,
                                              static_cast<std::int64_t>(batch),
                                              {on_ids.data(), ids.size()},
                                              {on_offsets.data(), offsets.size()},
                                              {on_weights.data(), weights.size()}};
        const auto rows_of = static_cast<std::int64_t>(own);
        const auto found =
            written ? embeddings.forward(keyed, {{0, {on_vectors.data(), rows_of, width}}})
                    : embeddings.forward(keyed);
        if (!written) {
          require<Error>(found.sequence(0).weights().size() == own, "the view has no weights");
          found.sequence(0).materialize({on_vectors.data(), rows_of, width});
        }
        const std::vector<float> output = read(backend, found.values.data, batch * width);
        vectors = on_vectors.read();
        const std::vector<float> given(static_cast<std::size_t>(rows_of + 4) * width);
        const Array<float, Backend> per_row(backend, given);
        bool refused = written;
        try {
          if (!written)
            embeddings.backward(found,
                                {given_output.data(), static_cast<std::int64_t>(batch), width},
                                {found.sequence(0).per_row(
                                    {per_row.data(), found.sequence(0).rows().rows, width})});
        } catch (const InvalidArgument&) {
          refused = true;
        }
        require<Error>(refused, "a gradient per row of weighted vectors was taken");
        embeddings.backward(found, {given_output.data(), static_cast<std::int64_t>(batch), width},
                            std::span<float>(of_weights.data(), ids.size()),
                            {found.sequence(0).per_id({given_vectors.data(), rows_of, width})});
        const std::vector<float> grads = of_weights.read();
        for (std::size_t i = 0; i < ids.size(); ++i)
          require<Error>(grads[i] == golden::of_weights[places[i]],
                         "weight {} gets {}, PyTorch has {}", places[i], grads[i],
                         golden::of_weights[places[i]]);
        for (std::size_t i = 0; i < vectors.size(); ++i)
          require<Error>(vectors[i] == golden::vectors[places[i / width] * width + i % width],
                         "vector {} differs", places[i / width]);
        require<Error>(std::equal(output.begin(), output.end(), golden::output + first * width),
                       "the output of rank {} differs", c.rank());
        for (int rank = 0; rank < ranks; ++rank, c.barrier())
          if (rank == c.rank()) embeddings.tables().get("tag", {after.data(), rows, width});
      });
      for (std::size_t i = 0; i < after.size(); ++i)
        CHECK(std::abs(after[i] - golden::after[i]) < 1e-6);
    }
}

/// History that is user-major: each rank's ids are few and repeat.
template <class Backend>
void a_row_travels_once_per_rank() {
  constexpr int ranks = 4, width = 16;
  constexpr std::int64_t users = 8, length = 125, rows = 4000;
  std::vector<std::uint64_t> forward(ranks), backward(ranks), distinct(ranks);
  on_ranks<Backend>(ranks, [&](CountingOn<Backend>& c, const Backend& backend) {
    std::vector<Shard> shards;
    for (int r = 0; r < ranks; ++r)
      shards.push_back({0, {rows * r / ranks, rows * (r + 1) / ranks, 0, width}, r});
    EmbeddingsOn<Backend, CountingOn<Backend>> e(
        c, backend,
        make_layout({ranks}, {{"item", rows, width}}, {{"history", "item", Pooling::none}}, shards),
        {});
    std::mt19937 random(static_cast<unsigned>(c.rank() + 1));
    std::vector<std::int64_t> few(20), ids, offsets{0};
    for (std::size_t i = 0; i < few.size(); ++i) few[i] = static_cast<std::int64_t>(197 * i + 13);
    for (std::int64_t u = 0; u < users; ++u) {
      for (std::int64_t i = 0; i < length; ++i) ids.push_back(few[random() % few.size()]);
      offsets.push_back(std::ssize(ids));
    }
    const std::size_t rank = static_cast<std::size_t>(c.rank());
    distinct[rank] = std::set<std::int64_t>(ids.begin(), ids.end()).size();
    const BatchOn<std::int64_t, Backend> batch(backend, {1, users, ids, offsets, {}});
    typename decltype(e)::template StepState<std::int64_t> step;
    const MatrixView<float> output(nullptr, users, 0);
    e.route(step, batch.keyed());
    c.reset();
    e.lookup(step, output);
    e.exchange(step);
    e.assemble(step, output);
    forward[rank] = static_cast<std::uint64_t>(c.total().bytes);
    const Array<float, Backend> gradient(
        backend, std::vector<float>(static_cast<std::size_t>(users * length * width), 1.0f));
    c.reset();
    e.split(step, output, {step.sequence(0).per_id({gradient.data(), users * length, width})});
    e.exchange_gradients(step);
    backward[rank] = static_cast<std::uint64_t>(c.total().bytes);
    e.update(step, output);
  });
  std::uint64_t rows_asked = 0, vectors = 0, gradients = 0;
  for (std::size_t r = 0; r < ranks; ++r)
    rows_asked += distinct[r], vectors += forward[r], gradients += backward[r];
  CHECK(rows_asked == 80);  // 2 % of the ids
  CHECK(static_cast<double>(vectors) <= 1.05 * static_cast<double>(rows_asked) * width * 4);
  CHECK(static_cast<double>(gradients) <= 1.05 * static_cast<double>(rows_asked) * width * 4);
  CHECK(vectors > 0);
}

/// Bad ids, gradients that are NaN, a codec and 16-bit tables at once. Values are small integers,
/// which all of them keep.
template <class Backend, Element T = BFloat16>
void policies_go_along() {
  on_ranks<Backend>(2, [&](CountingOn<Backend>& c, const Backend& backend) {
    LayoutCollection<Widths<>, Sgd, Backend, CountingOn<Backend>, EncodeWith<Bf16>, Storage<T>> e(
        c, backend,
        make_layout({2}, {{"t", 10, 4}},
                    {{"s", "t", Pooling::none}, {"m", "t", Pooling::max}, {"p", "t"}},
                    {{0, {0, 5, 0, 4}, 0}, {0, {5, 10, 0, 4}, 1}}),
        {.learning_rate = 1,
         .bad_ids = BadIds::zero_vector,
         .non_finite = NonFinite::reject,
         .deduplicate = true});
    std::vector<float> before(40);
    for (std::size_t i = 0; i < 40; ++i) before[i] = static_cast<float>(i % 7);
    e.tables().set("t", {before.data(), 10, 4});
    // s: {1, -1}, {7, 1, 10}; m: {-1, 8}, {12}; p: {3}, {}
    const std::vector<std::int64_t> ids{1, -1, 7, 1, 10, -1, 8, 12, 3},
        offsets{0, 2, 5, 7, 8, 9, 9};
    const BatchOn<std::int64_t, Backend> batch(backend, {3, 2, ids, offsets, {}});
    const auto row = [&](std::int64_t id) {
      return std::vector<float>(before.begin() + 4 * id, before.begin() + 4 * id + 4);
    };
    const auto joined = [](std::initializer_list<std::vector<float>> rows) {
      std::vector<float> all;
      for (const std::vector<float>& r : rows) all.insert(all.end(), r.begin(), r.end());
      return all;
    };
    const std::vector<float> zeros(4), expected = joined({row(1), zeros, row(7), row(1), zeros});
    const auto evaluated = e.evaluate(batch.keyed());
    CHECK(vectors_of(backend, evaluated.template sequence<"s">()) == expected);
    // as the global batch: both ranks' samples
    const std::vector<std::int64_t> all{1,  -1, 7, 1,  10, 1, -1, 7, 1,
                                        10, -1, 8, 12, -1, 8, 12, 3, 3},
        all_offsets{0, 2, 5, 7, 10, 12, 13, 15, 16, 17, 17, 18, 18};
    const BatchOn<std::int64_t, Backend> global(backend, {3, 4, all, all_offsets, {}});
    const auto parallel = e.forward_model_parallel(global.keyed());
    CHECK(parallel.sequence("s").rows().rows == 3);
    CHECK(vectors_of(backend, parallel.sequence("s")) == expected);
    CHECK(read(backend, parallel.values.data, 16) == joined({row(8), row(3), zeros, zeros}));
    const auto found = e.forward(batch.keyed());
    const auto view = found.sequence("s");
    CHECK(view.rows().rows == 3);  // two, and the zeros
    CHECK(read(backend, view.index().data(), 5)[1] == 2);
    CHECK(vectors_of(backend, view) == expected);
    CHECK(read(backend, found.values.data, 16) == joined({row(8), row(3), zeros, zeros}));
    CHECK(e.bad_ids()[0] == 16);  // of two batches, and of both ranks' samples
    std::vector<float> of_ids(20, 1), pooled(16, 2);
    if (c.rank() == 1) of_ids[7] = std::nanf("");
    const Array<float, Backend> wrong(backend, of_ids), gradient(backend, pooled),
        good(backend, std::vector<float>(20, 1.0f));
    const MatrixView<const float> up(gradient.data(), 2, 8);
    e.backward(found, up, {view.per_id({wrong.data(), 5, 4})});
    CHECK(e.rejected_steps() == 1);
    e.backward(found, up, {view.per_id({good.data(), 5, 4})});
    std::vector<float> after = before;
    e.tables().get("t", {after.data(), 10, 4});
    for (std::int64_t id = 0; id < 10; ++id) {
      if ((id < 5) != (c.rank() == 0)) continue;  // another rank's
      // of two ranks: 1 stands twice in a history; 8 has a maximum, 3 is pooled
      const float sum = id == 1 ? 4 : id == 7 ? 2 : id == 8 || id == 3 ? 4 : 0;
      for (int i = 0; i < 4; ++i)
        CHECK(after[static_cast<std::size_t>(4 * id + i)] ==
              before[static_cast<std::size_t>(4 * id + i)] - sum);
    }
  });
}

/// The vectors of ids beyond the table under each policy.
template <class Backend>
void bad_ids_under_every_policy() {
  Alone<Backend> alone;
  const Backend& backend = alone.backend;
  const std::vector<std::int64_t> ids{1, -1, 12, 3}, offsets{0, 3, 4};
  const BatchOn<std::int64_t, Backend> batch(backend, {1, 2, ids, offsets, {}});
  const auto first_elements = [&](BadIds policy) {
    EmbeddingsOn<Backend, typename Alone<Backend>::Comm> e(
        alone.communicator, backend,
        make_layout({1}, {{"t", 10, 4}}, {{"s", "t", Pooling::none}}, {{0, {0, 10, 0, 4}, 0}}),
        {.bad_ids = policy});
    std::vector<float> rows(40);
    for (std::size_t i = 0; i < 40; ++i) rows[i] = static_cast<float>(i / 4);
    e.tables().set("t", {rows.data(), 10, 4});
    const std::vector<float> all = vectors_of(backend, e.evaluate(batch.keyed()).sequence(0));
    std::vector<float> first;
    for (std::size_t i = 0; i < all.size(); i += 4) first.push_back(all[i]);
    return first;
  };
  CHECK(first_elements(BadIds::clamp) == std::vector<float>{1, 0, 9, 3});
  CHECK(first_elements(BadIds::wrap) == std::vector<float>{1, 9, 2, 3});
  CHECK(first_elements(BadIds::zero_vector) == std::vector<float>{1, 0, 0, 3});
  const std::string text = message_of([&] { first_elements(BadIds::throw_error); });
  CAPTURE(text);
  CHECK(text.find("'s'") != std::string::npos);
  CHECK(text.find("-1") != std::string::npos);
}

/// A policy of a user's own: the first rows have a copy on every rank, the others are cut into a
/// block for each.
template <std::int64_t HotRows, class... Sources>
struct HotRowsOnAll {
  using tables = TableList<Sources...>;

  static constexpr int count(const TableSpec&, const Topology& topology) {
    return 1 + topology.ranks;
  }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    if (i == 0) return {{0, HotRows, 0, table.width}, {.kind = Place::Kind::every}};
    const std::int64_t rest = table.rows - HotRows;
    return {{HotRows + even_cut(rest, topology.ranks, i - 1),
             HotRows + even_cut(rest, topology.ranks, i), 0, table.width},
            {.kind = Place::Kind::rank, .index = i - 1}};
  }
};

/// A table for each optimizer of the library, and a feature for each table.
using EveryOptimizer =
    TrainingGroups<Train<Sgd>, Train<Adagrad>, Train<RowWiseAdagrad>, Train<Adam>, Train<AdamW>,
                   Train<PartialRowWiseAdam>, Train<Lamb>, Train<Ftrl>, Train<Lion>,
                   Train<Momentum>, Train<RowWiseAdagradL2>, Train<RowWiseAdagradDecoupled>,
                   Train<CountedRowWiseAdagrad>, Train<NarrowStates<Adam>>,
                   Train<CountedRowWiseAdagradL2>>;
template <FixedString... Names>
struct Models {
  using Pooled = Plan<TableWise<Table<Names, 40, 8>>...>;
  using ByRows =
      Plan<Features<Feature<Names, Names, Sequence>...>, RowWise<Table<Names, 40, 8>...>>;
  using Hot =
      Plan<Features<Feature<Names, Names, Sequence>...>, HotRowsOnAll<13, Table<Names, 40, 8>...>>;
};
using Fifteen = Models<"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o">;

struct SeenOfModel {
  std::vector<float> vectors, tables;
  bool operator==(const SeenOfModel&) const = default;
};

/// Steps with an id per sample and feature, many of them equal.
template <class Backend>
SeenOfModel train_every_optimizer(const Layout& layout, int gradient_blocks) {
  constexpr std::int64_t all = Backend::host_readable ? 24 : 12, width = 8;
  constexpr int steps = Backend::host_readable ? 3 : 2;
  const auto tables = std::ssize(layout.tables);
  SeenOfModel seen;
  seen.vectors.resize(static_cast<std::size_t>(steps * tables * all * width));
  seen.tables.resize(static_cast<std::size_t>(tables * 40 * width));
  on_ranks<Backend>(layout.ranks(), [&](CountingOn<Backend>& c, const Backend& backend) {
    using E = LayoutCollection<Widths<>, EveryOptimizer, Backend, CountingOn<Backend>>;
    typename E::Options options;
    options.learning_rate = 0.125f;
    options.seed = 5;
    options.gradient_blocks = gradient_blocks;
    for (int t = 0; t < tables; ++t) options.optimizer.group_of_table.push_back(t);
    E e(c, backend, layout, options);
    const std::int64_t begin = even_cut(all, c.size(), c.rank()),
                       samples = even_cut(all, c.size(), c.rank() + 1) - begin;
    for (int step = 0; step < steps; ++step) {
      std::vector<std::int32_t> ids;
      std::vector<std::vector<float>> of_ids(static_cast<std::size_t>(tables));
      std::vector<float> pooled(static_cast<std::size_t>(samples * tables * width));
      for (int t = 0; t < tables; ++t)
        for (std::int64_t s = begin; s < begin + samples; ++s) {
          const auto key = static_cast<std::uint64_t>((step * 20 + t) * all + s);
          ids.push_back(static_cast<std::int32_t>(mix64(key) % (s % 3 == 0 ? 40 : 6)) +
                        10 * (s % 2));
          ids.back() %= 40;
          for (int i = 0; i < width; ++i) {
            const float g = gradient_of(step, t % 8, s + 24 * (t / 8), 0, i);
            of_ids[static_cast<std::size_t>(t)].push_back(g);
            pooled[static_cast<std::size_t>(((s - begin) * tables + t) * width + i)] = g;
          }
        }
      const BatchOn<std::int32_t, Backend> batch(backend, {tables, samples, ids, {}, {}});
      const auto found = e.forward(batch.keyed());
      const std::vector<float> values =
          read(backend, found.values.data, static_cast<std::size_t>(samples * layout.columns()));
      std::list<Array<float, Backend>> memory;
      std::vector<SequenceGradient> gradients;
      for (int t = 0; t < tables; ++t) {
        float* const to = seen.vectors.data() + ((step * tables + t) * all + begin) * width;
        if (layout.columns() != 0) {
          for (std::int64_t s = 0; s < samples; ++s)
            std::copy_n(values.data() + (s * tables + t) * width, width, to + s * width);
        } else {
          std::ranges::copy(vectors_of(backend, found.sequence(t)), to);
          const auto& of_table = memory.emplace_back(backend, of_ids[static_cast<std::size_t>(t)]);
          gradients.push_back(found.sequence(t).per_id({of_table.data(), samples, width}));
        }
      }
      const Array<float, Backend> of_values(backend, pooled);
      e.backward(found, {of_values.data(), samples, layout.columns()}, gradients);
    }
    for (int rank = 0; rank < c.size(); ++rank, c.barrier())
      for (int t = 0; rank == c.rank() && t < tables; ++t)
        e.tables().get(layout.tables[static_cast<std::size_t>(t)].name,
                       {seen.tables.data() + t * 40 * width, 40, width});
  });
  return seen;
}

template <class Backend>
void every_optimizer_has_the_same_bits() {
  const auto train = []<class P>(P, int ranks, int blocks) {
    return train_every_optimizer<Backend>(P::layout(Topology{ranks}), blocks);
  };
  const SeenOfModel pooled = train(Fifteen::Pooled{}, 1, 0);
  CHECK(train(Fifteen::Hot{}, 1, 0) == pooled);
  const SeenOfModel two = train(Fifteen::Hot{}, 2, 2);
  CHECK(train(Fifteen::ByRows{}, 2, 2) == two);
  if (Backend::host_readable) CHECK(train(Fifteen::Hot{}, 1, 2) == two);
  CHECK_FALSE(two == pooled);  // sums of ranks are rounded
}

/// Other ways through a step, of the same bits: stages, accumulated gradients, another id type,
/// without offsets.
template <class Backend>
void other_ways_have_the_same_bits() {
  Alone<Backend> alone;
  const Backend& backend = alone.backend;
  using E = EmbeddingsOn<Backend, typename Alone<Backend>::Comm>;
  const std::vector<std::int64_t> ids{5, 7, 5, 1, 2, 3, 9, 9, 5, 0, 8, 8, 4, 4, 2};
  const std::vector<std::int32_t> short_ids(ids.begin(), ids.end());
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i <= std::ssize(ids); ++i) offsets.push_back(i);
  std::vector<float> numbers;
  for (int i = 0; i < 3 * 40; ++i) numbers.push_back(gradient_of(0, 0, i, 0, 0));
  const Array<float, Backend> memory(backend, numbers);
  const MatrixView<const float> gradient(memory.data(), 3, columns);
  const BatchOn<std::int64_t, Backend> bags(backend, {5, 3, ids, offsets, {}}),
      one_hot(backend, {5, 3, ids, {}, {}});
  const BatchOn<std::int32_t, Backend> of_short_ids(backend, {5, 3, short_ids, offsets, {}});
  const auto fed = [&](const auto& found) {
    return std::vector<SequenceGradient>{found.sequence(0).per_id({memory.data(), 3, 16}),
                                         found.sequence(3).per_id({memory.data(), 3, 12})};
  };
  const auto trained = [&](const auto& train) {
    E e(alone.communicator, backend, layout(1, Cut::both), {.seed = 7});
    for (int step = 0; step < 2; ++step) train(e);
    return shards_of(e);
  };
  const std::vector<float> expected = trained([&](E& e) {
    const auto found = e.forward(bags.keyed());
    e.backward(found, gradient, fed(found));
  });
  CHECK(same_bits(expected, trained([&](E& e) {
                    const auto found = e.forward(one_hot.keyed());
                    CHECK(read(backend, found.sequence(0).offsets().data(), 4) ==
                          std::vector<std::int64_t>{0, 1, 2, 3});
                    e.backward(found, gradient, fed(found));
                  })));
  CHECK(same_bits(expected, trained([&](E& e) {
                    const auto found = e.forward(of_short_ids.keyed());
                    e.backward(found, gradient, fed(found));
                  })));
  CHECK(same_bits(expected, trained([&](E& e) {
                    const auto found = e.forward(bags.keyed());
                    e.accumulate(found, gradient, fed(found));
                    e.apply();
                  })));
  // vectors written where they are wanted
  const auto vectors_as_told = [&](E& e, bool check) {
    const Array<float, Backend> x(backend, std::vector<float>(3 * 20)),
        y(backend, std::vector<float>(3 * 12));
    const MatrixView<float> history(x.data(), 3, 16, 20);
    std::vector<float> expected_x, expected_y;
    if (check) {
      const auto looked_up = e.evaluate(bags.keyed());
      expected_x = vectors_of(backend, looked_up.sequence(0));
      expected_y = vectors_of(backend, looked_up.sequence(3));
    }
    const auto found = e.forward(bags.keyed(), {{3, {y.data(), 3, 12}}, {0, history}});
    if (check) {
      const std::vector<float> seen = x.read();
      for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t c = 0; c < 20; ++c)
          CHECK(seen[20 * i + c] == (c < 16 ? expected_x[16 * i + c] : 0));
      CHECK(y.read() == expected_y);
      const auto view = found.sequence(0);
      CHECK(view.ids() == 3);
      CHECK(read(backend, view.offsets().data(), 4) == std::vector<std::int64_t>{0, 1, 2, 3});
      for (const char* call : {"rows", "index", "materialize", "per_row"})
        check_message(
            [&] {
              if (call == std::string("rows")) view.rows();
              if (call == std::string("index")) view.index();
              if (call == std::string("materialize")) view.materialize(history);
              if (call == std::string("per_row")) view.per_row(history);
            },
            call + std::string(": the vectors of this sequence are where `forward` was told"));
    }
    e.backward(found, gradient, fed(found));
  };
  for (const bool check : {false, true})
    CHECK(same_bits(expected, trained([&](E& e) { vectors_as_told(e, check); })));
  {
    E e(alone.communicator, backend, layout(1, Cut::both), {.seed = 7});
    const MatrixView<float> some(memory.data(), 3, 12);
    check_message([&] { e.forward(bags.keyed(), {{0, some}}); },
                  "the vectors of sequence 'history' go to [3, 12], must be [3, 16]: one per id");
    check_message([&] { e.forward(bags.keyed(), {{3, some}, {3, some}}); },
                  "vectors of sequence 'users' are asked for twice");
    check_message([&] { e.forward(bags.keyed(), {{1, some}}); },
                  "vectors of feature 1 are asked for, which is no sequence");
    CHECK(e.forward(bags.keyed()).sequence(0).rows().rows > 0);  // what was asked is forgotten
    check_message([&] { e.forward_model_parallel(bags.keyed(), {}, {{0, some}}); },
                  "the vectors of sequence 'history' go to [3, 12], must be [3, 16]: one per id");
    CHECK(e.forward_model_parallel(bags.keyed()).sequence(0).rows().rows > 0);
    KeyedJagged<std::int64_t> fewer = bags.keyed();  // refused before anything is looked up
    fewer.features = 1;
    const Array<float, Backend> untouched(backend, std::vector<float>(3 * 16, -7.0f));
    const MatrixView<float> there(untouched.data(), 3, 16);
    CHECK_THROWS_AS(e.forward(fewer, {{0, there}}), InvalidArgument);
    CHECK(e.forward(bags.keyed()).sequence(0).rows().rows > 0);
    CHECK_THROWS_AS(e.forward_model_parallel(fewer, {}, {{0, there}}), InvalidArgument);
    CHECK(e.forward(bags.keyed()).sequence(0).rows().rows > 0);
    CHECK(untouched.read() == std::vector<float>(3 * 16, -7.0f));
  }
  typename E::template StepState<std::int64_t> step;
  const Array<float, Backend> output(backend, std::vector<float>(3 * columns));
  const MatrixView<float> values(output.data(), 3, columns);
  CHECK(same_bits(expected, trained([&](E& e) {
                    e.route(step, bags.keyed());
                    e.lookup(step, values);
                    e.exchange(step);
                    e.assemble(step, values);
                    e.split(step, gradient, fed(step));
                    e.exchange_gradients(step);
                    e.update(step, gradient);
                  })));
}

}  // namespace sequences
