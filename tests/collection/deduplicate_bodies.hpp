// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Duplicate removal before the exchange, on any backend: bodies of test_deduplicate.cpp and
// gpu/twin_cases.hpp.
#pragma once

#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace without_duplicates {

using namespace tessera;      // NOLINT: a header of tests
using namespace on_backend;   // NOLINT
using namespace small_model;  // NOLINT

template <class Backend>
void as_with_them() {
  for (const bool one_hot : {false, true})
    for (const int ranks : {1, 3})
      for (const bool replicated : {false, true}) {
        // half of them, for the emulator's sake
        if (!Backend::host_readable && replicated != one_hot) continue;
        CAPTURE(one_hot);
        CAPTURE(ranks);
        const auto plain = train_ranks_on<Backend>(ranks, enough_steps<Backend>, replicated, 1,
                                                   one_hot),
                   distinct = train_ranks_on<Backend>(ranks, enough_steps<Backend>, replicated, 2,
                                                      one_hot, true);
        for (std::size_t r = 0; r < plain.size(); ++r) {
          CHECK(largest_difference(distinct[r].outputs, plain[r].outputs) < 2e-5);
          CHECK(largest_difference(distinct[r].weight_gradients, plain[r].weight_gradients) < 1e-4);
          CHECK(largest_difference(distinct[r].shards, plain[r].shards) < 1e-4);
        }
      }
}

template <class Backend>
void bags_are_summed_in_the_order_of_ids() {
  // The first step's outputs, before any update: sample by sample those of one rank that has the
  // same batch.
  const auto distinct = train_ranks_on<Backend>(3, 1, false, 1, false, true);
  const std::vector<float>& mine = distinct[2].outputs;
  std::vector<Shard> whole;
  for (int t = 0; t < static_cast<int>(tables().size()); ++t)
    whole.push_back({t, {0, tables()[t].rows, 0, tables()[t].width}, 0});
  std::vector<float> alone;
  on_ranks<Backend>(1, [&](CountingOn<Backend>& c, const Backend& backend) {
    using E = EmbeddingsOn<Backend, CountingOn<Backend>>;
    typename E::Options options;
    options.learning_rate = 0.125f;
    options.seed = 7;
    E e(c, backend, make_layout({1}, tables(), features(), whole), options);
    const Batch batch(2, 0, samples_of(2, 0), e.columns());
    const Given given(backend, batch, e.columns());
    const auto pooled = e.forward(given.keyed());
    alone = read(backend, pooled.values.data, batch.gradient.size());
  });
  CHECK(same_bits(mine, alone));
}

template <class Backend>
void rows_travel_encoded() {
  const auto plain = train_ranks_on<Backend>(3, 1),
             coded = train_ranks_on<Backend, EncodeWith<Bf16>>(3, 1, false, 1, false, true);
  for (std::size_t r = 0; r < 3; ++r) {
    // Up to 3 rows of elements up to 1/sqrt(5), weighted by up to 2.
    CHECK(largest_difference(coded[r].outputs, plain[r].outputs) < 3 * 2 * 0.45 * 0x1p-8);
    CHECK(largest_difference(coded[r].outputs, plain[r].outputs) > 0);
  }
}

template <class Backend>
void each_distinct_id_travels_once() {
  on_ranks<Backend>(2, [](CountingOn<Backend>& c, const Backend& backend) {
    using E = EmbeddingsOn<Backend, CountingOn<Backend>>;
    E e(c, backend, make_layout({2}, {{"t", 100, 8}}, {}, {{0, {0, 100, 0, 8}, 0}}),
        {.deduplicate = true});
    const std::vector<std::int64_t> ids{5, 5, 7, 5, 9, 7, 5, 5}, offsets{0, 3, 3, 8};
    const BatchOn<std::int64_t, Backend> batch(backend, {1, 3, ids, offsets, {}});
    typename E::template StepState<std::int64_t> step;
    const Array<float, Backend> of_gradient(backend, std::vector<float>(24, 1.0f)),
        of_output(backend, std::vector<float>(24));
    const MatrixView<const float> gradient(of_gradient.data(), 3, 8);
    const MatrixView<float> output(of_output.data(), 3, 8);
    c.reset();
    e.route(step, batch.keyed());
    const Traffic routed = c.total();
    e.lookup(step, output);
    e.exchange(step);
    e.assemble(step, output);
    const Traffic forward = c.total() - routed;
    e.split(step, gradient);
    e.exchange_gradients(step);
    const Traffic backward = c.total() - routed - forward;
    e.update(step, gradient);
    if (c.rank() == 1) {  // three ids, one header
      CHECK(routed.bytes == 3 * 8 + sizeof(detail::IdMessageHeader));
      CHECK(forward.bytes == 0);
      CHECK(backward.bytes == 3 * 8 * 4);
    } else {
      CHECK(forward.bytes == 3 * 8 * 4);
      CHECK(backward.bytes == 0);
    }
  });
}

}  // namespace without_duplicates
