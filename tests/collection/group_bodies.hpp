// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Training groups against collections with one optimizer each, on any backend: bodies of
// test_groups.cpp and gpu/twin_cases.hpp.
#pragma once

#include <collection/tier_bodies.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace groups {

using namespace tessera;      // NOLINT: a header of tests
using namespace on_backend;   // NOLINT
using namespace small_model;  // NOLINT

/// Of three element types, and with 16-bit states.
using Four = TrainingGroups<Train<Ftrl>, Train<RowWiseAdagrad>::with<Storage<BFloat16>>,
                            Train<NarrowStates<Lamb>>, Frozen<>::with<Storage<Half>>>;
inline constexpr std::array<float, 4> rates{0.25f, 0.125f, 0.0625f, 0};
inline constexpr int frozen = 3;

/// Two tables have copies on every rank.
inline Layout two_replicated(int ranks) {
  Layout of_all = layout(ranks, true);
  for (Shard& shard : of_all.shards)
    if (shard.table == 2) shard.rank = every_rank;
  return make_layout({ranks}, of_all.tables, of_all.features, of_all.shards);
}

/// What one rank saw, by feature and by table.
struct Seen {
  std::vector<std::vector<float>> outputs, weight_gradients;  // by feature, of all steps
  std::vector<std::vector<float>> weights{}, states{};        // by table, at the end
  std::uint64_t calls = 0, bytes = 0;
};

template <class E>
void see_tables(const E& e, Seen& seen) {
  seen.weights.resize(e.layout().tables.size());
  seen.states.resize(e.layout().tables.size());
  for (const auto& shard : tiers::local_shards_by_place(e)) {
    const auto append = [&](std::vector<float>& to, const auto& given) {
      with_matrix(given, [&](const auto& matrix) {
        for (const auto x :
             read(e.backend(), matrix.data, static_cast<std::size_t>(matrix.rows * matrix.columns)))
          to.push_back(to_float(x));
      });
    };
    const auto table = static_cast<std::size_t>(shard.table);
    append(seen.weights[table], shard.weights);
    for (const auto& state : shard.states) append(seen.states[table], state);
  }
}

template <class E>
Seen train_by_feature(E& e, int rank, int steps) {
  const std::size_t features = e.layout().features.size();
  Seen seen{.outputs = std::vector<std::vector<float>>(features),
            .weight_gradients = std::vector<std::vector<float>>(features)};
  for (int step = 0; step < steps; ++step) {
    const Batch batch(rank, step, samples_of(rank, step), e.columns());
    const Given given(e.backend(), batch, e.columns());
    const auto pooled = e.forward(given.keyed());
    const std::vector<float> output = read(e.backend(), pooled.values.data, batch.gradient.size());
    e.backward(pooled, given.gradient, given.of_weights.span());
    const std::vector<float> of_weights = given.of_weights.read();
    for (std::size_t f = 0; f < features; ++f) {
      for (std::int64_t s = 0; s < batch.samples; ++s)
        for (std::int64_t c = e.layout().feature_column[f]; c < e.layout().feature_column[f + 1];
             ++c)
          seen.outputs[f].push_back(output[static_cast<std::size_t>(s * e.columns() + c)]);
      const auto at = [&](std::size_t feature) {
        return batch.offsets[feature * static_cast<std::size_t>(batch.samples)];
      };
      for (std::int64_t i = at(f); i < at(f + 1); ++i)
        seen.weight_gradients[f].push_back(of_weights[static_cast<std::size_t>(i)]);
    }
  }
  see_tables(e, seen);
  return seen;
}

/// Every rank's, of training under one optimizer, or groups.
template <class Backend, class... Policies, class Trained>
std::vector<Seen> train_all(int ranks, const Layout& layout, const Trained& training, float rate,
                            bool deduplicate = false) {
  std::vector<Seen> seen(static_cast<std::size_t>(ranks));
  on_ranks<Backend>(ranks, [&](CountingOn<Backend>& c, const Backend& backend) {
    using E = LayoutCollection<Widths<>, Trained, Backend, CountingOn<Backend>,
                               InitializeWith<UniformByRows>, Policies...>;
    typename E::Options options;
    options.learning_rate = rate;
    options.seed = 7;
    options.optimizer = training;
    options.deduplicate = deduplicate;
    E e(c, backend, layout, options);
    c.reset();
    Seen& mine = seen[static_cast<std::size_t>(c.rank())];
    mine = train_by_feature(e, c.rank(), enough_steps<Backend>);
    for (const Collective kind :
         {Collective::all_to_all, Collective::all_gather, Collective::all_reduce}) {
      mine.calls += c.traffic(kind).calls;
      mine.bytes += c.traffic(kind).bytes;
    }
  });
  return seen;
}

/// A table's bits are those of a collection in which its optimizer trains all tables, and no step
/// has more collectives.
template <class Backend, class... Policies>
void tables_train_as_apart(bool deduplicate = false) {
  for (const int ranks : {1, 3}) {
    if (!Backend::host_readable && ranks == 1) continue;  // for the emulator
    const Layout layout = two_replicated(ranks);
    const std::array apart{
        train_all<Backend, Policies...>(ranks, layout, Ftrl{.l1 = 0.01f}, rates[0], deduplicate),
        train_all<Backend, Storage<BFloat16>, Policies...>(ranks, layout, RowWiseAdagrad{},
                                                           rates[1], deduplicate),
        train_all<Backend, Policies...>(ranks, layout, NarrowStates<Lamb>{}, rates[2], deduplicate),
        train_all<Backend, Storage<Half>, Policies...>(ranks, layout, Sgd{}, rates[3],
                                                       deduplicate)};
    // query, user, genre, word, country
    for (const std::vector<int>& group_of_table :
         {std::vector<int>{frozen, 1, 0, 2, 1}, std::vector<int>{0, frozen, 2, 1, frozen},
          std::vector<int>{2, 2, frozen, frozen, 0}}) {
      CAPTURE(ranks);
      CAPTURE(group_of_table[0]);
      Four training;
      std::get<0>(training.groups) = {Ftrl{.l1 = 0.01f}, rates[0]};
      std::get<1>(training.groups).learning_rate = rates[1];
      training.group_of_table = group_of_table;
      const std::vector<Seen> together = train_all<Backend, Policies...>(
          ranks, layout, training, rates[2], deduplicate);  // the third has the collection's
      for (std::size_t r = 0; r < together.size(); ++r) {
        for (std::size_t f = 0; f < layout.features.size(); ++f) {
          CAPTURE(f);
          const int group = group_of_table[static_cast<std::size_t>(layout.feature_table[f])];
          const Seen& alone = apart[static_cast<std::size_t>(group)][r];
          CHECK(same_bits(together[r].outputs[f], alone.outputs[f]));
          CHECK(same_bits(together[r].weight_gradients[f], alone.weight_gradients[f]));
        }
        for (std::size_t t = 0; t < layout.tables.size(); ++t) {
          CAPTURE(t);
          const int group = group_of_table[t];
          const Seen& alone = apart[static_cast<std::size_t>(group)][r];
          CHECK(same_bits(together[r].weights[t], alone.weights[t]));
          if (group == frozen)
            CHECK(together[r].states[t].empty());
          else
            CHECK(same_bits(together[r].states[t], alone.states[t]));
        }
        // Lamb's is the collection with the most collectives
        CHECK(together[r].calls <= apart[2][r].calls);
        if (ranks > 1) CHECK(together[r].bytes < apart[2][r].bytes);
      }
    }
  }
}

/// Two losses on one forward are one whose gradient is their sum: to the bit where sums are exact, as
/// those of small multiples of 1/8 are, but for features that are scaled (query's, genre's, word's).
template <class Backend, class... Policies>
void losses_of_one_forward_add_up() {
  using Comm = CountingOn<Backend>;
  using E =
      LayoutCollection<Widths<>, Four, Backend, Comm, InitializeWith<UniformByRows>, Policies...>;
  for (const int ranks : {1, 3}) {
    if (!Backend::host_readable && ranks == 1) continue;  // for the emulator
    CAPTURE(ranks);
    on_ranks<Backend>(ranks, [&](Comm& c, const Backend& backend) {
      typename E::Options options;
      options.learning_rate = rates[1];
      options.seed = 7;
      options.optimizer.group_of_table = {1, 0, 2, 2, 0};  // query, user, genre, word, country
      const Layout layout = two_replicated(ranks);
      E once(c, backend, layout, options), twice(c, backend, layout, options);
      for (int step = 0; step < 2; ++step) {
        const std::int64_t columns = once.columns();
        Batch first(c.rank(), step, samples_of(c.rank(), step), columns),
            second(c.rank(), step + 50, first.samples, columns), both = first;
        for (std::size_t i = 0; i < first.gradient.size(); ++i) {
          first.gradient[i] = std::round(8 * first.gradient[i]) / 8;
          second.gradient[i] = std::round(8 * second.gradient[i]) / 8;
          both.gradient[i] = first.gradient[i] + second.gradient[i];
        }
        const Given given(backend, both, columns), one(backend, first, columns);
        const Array<float, Backend> values(backend, second.gradient);
        const MatrixView<const float> other{values.data(), first.samples, columns};
        once.backward(once.forward(given.keyed()), given.gradient);
        const auto pooled = twice.forward(one.keyed());
        twice.accumulate(pooled, one.gradient);
        check_message([&] { twice.backward(pooled, other); },
                      "backward: gradients of this forward are accumulated");
        check_message([&] { twice.split(*pooled.step, other); },
                      "split: this step's gradients are accumulated");
        twice.accumulate(pooled, other);
        twice.apply();
        check_message([&] { twice.accumulate(pooled, other); },
                      "accumulate: apply has used the gradients of this forward");
        check_message([&] { twice.backward(pooled, other); }, "are accumulated");
        CHECK(twice.steps() == step + 1);
      }
      CHECK(twice.forwards_without_backward() == 0);
      Seen expected, found;
      see_tables(once, expected);
      see_tables(twice, found);
      for (std::size_t t = 0; t < layout.tables.size(); ++t) {
        CAPTURE(t);
        if (t == 1 || t == 4) {
          CHECK(same_bits(found.weights[t], expected.weights[t]));
          CHECK(same_bits(found.states[t], expected.states[t]));
        }
        CHECK(largest_difference(found.weights[t], expected.weights[t]) < 1e-3);  // bf16, too
      }
    });
  }
}

/// Two steps of two batches each, clipped: norms, and this rank's tables and states.
template <class Comm, class Backend>
std::vector<float> accumulate_and_clip(Comm& c, const Backend& backend) {
  using E = LayoutCollection<Widths<>, Four, Backend, Comm, InitializeWith<UniformByRows>>;
  typename E::Options options;
  options.learning_rate = rates[1];
  options.seed = 7;
  options.optimizer.group_of_table = {1, 0, 2, frozen, 0};  // query, user, genre, word, country
  E e(c, backend, two_replicated(c.size()), options);
  std::vector<float> all;
  for (int step = 0; step < 4; ++step) {
    const Batch batch(c.rank(), step, samples_of(c.rank(), step), e.columns());
    const Given given(backend, batch, e.columns());
    e.accumulate(e.forward(given.keyed()), given.gradient);
    if (step % 2 == 1) all.push_back(static_cast<float>(e.apply(ClipByGlobalNorm{2})));
  }
  Seen seen;
  see_tables(e, seen);
  for (const auto* tables : {&seen.weights, &seen.states})
    for (const std::vector<float>& values : *tables)
      all.insert(all.end(), values.begin(), values.end());
  return all;
}

}  // namespace groups
