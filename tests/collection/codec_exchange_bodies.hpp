// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Codecs under the collection, on any backend: bodies of test_codec_exchange.cpp and
// gpu/twin_cases.hpp.
#pragma once

#include <support/mirrored_codec.hpp>
#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace encoded {

using namespace tessera;      // NOLINT: a header of tests
using namespace on_backend;   // NOLINT
using namespace small_model;  // NOLINT

template <class Backend>
void a_users_codec_that_loses_nothing() {
  for (const int ranks : {1, 3})
    for (const bool replicated : {false, true}) {
      const auto plain = train_ranks_on<Backend>(ranks, enough_steps<Backend>, replicated);
      const auto coded = train_ranks_on<Backend, EncodeWith<Mirrored>>(ranks, enough_steps<Backend>,
                                                                       replicated, 2);
      for (std::size_t r = 0; r < plain.size(); ++r) {
        CHECK(same_bits(coded[r].outputs, plain[r].outputs));
        CHECK(same_bits(coded[r].weight_gradients, plain[r].weight_gradients));
        CHECK(same_bits(coded[r].shards, plain[r].shards));
      }
    }
}

struct Measured {
  std::vector<float> first_output, shards;
  Traffic vectors;
};

/// One step of three ranks: what rank 0 sees, and what all send in the two exchanges of vectors.
template <class Backend, class... Policies>
Measured one_step() {
  Measured result;
  on_ranks<Backend>(3, [&](CountingOn<Backend>& c, const Backend& backend) {
    using E = EmbeddingsOn<Backend, CountingOn<Backend>, Policies...>;
    typename E::Options options;
    options.learning_rate = 0.125f;
    options.seed = 7;
    E e(c, backend, layout(3), options);
    const Batch batch(c.rank(), 0, 400, e.columns());
    const Given given(backend, batch, e.columns());
    const Array<float, Backend> output(backend, std::vector<float>(batch.gradient.size()));
    const MatrixView<float> out{output.data(), 400, e.columns()};
    typename E::template StepState<std::int64_t> step;
    e.route(step, given.keyed());
    c.reset();
    e.lookup(step, out);
    e.exchange(step);
    e.assemble(step, out);
    e.split(step, given.gradient);
    e.exchange_gradients(step);
    std::int64_t sent[] = {static_cast<std::int64_t>(c.traffic(Collective::all_to_all).messages),
                           static_cast<std::int64_t>(c.traffic(Collective::all_to_all).bytes)};
    c.all_reduce(std::span<std::int64_t>(sent));
    if (c.rank() == 0)
      result.vectors = {2, static_cast<std::uint64_t>(sent[0]),
                        static_cast<std::uint64_t>(sent[1])};
    if (c.rank() == 0) result.first_output = output.read();
    e.update(step, given.gradient);
    if (c.rank() == 0) result.shards = shards_of(e);
  });
  return result;
}

template <class Backend>
void errors_and_bytes() {
  const Measured plain = one_step<Backend>();
  const auto check = [&](const Measured& coded, double output_error, double update_error,
                         double share) {
    CHECK(coded.vectors.messages == plain.vectors.messages);
    CHECK(static_cast<double>(coded.vectors.bytes) / static_cast<double>(plain.vectors.bytes) ==
          doctest::Approx(share).epsilon(0.02));
    const double first = largest_difference(coded.first_output, plain.first_output);
    const double second = largest_difference(coded.shards, plain.shards);
    CHECK(first <= output_error);
    CHECK((first > 0) == (output_error > 0));  // the codec was at work
    CHECK(second <= update_error);
    CHECK((second > 0) == (update_error > 0));
  };
  // Outputs are below 2 (sums of up to 3 rows within 1/sqrt(5) times weights up to 2, in up to 2
  // parts); an update is a sum of some hundreds of gradients of up to 1 in size, weighted by up to
  // 2, whose errors are of both signs.
  check(one_step<Backend, EncodeWith<Bf16>>(), 2 * 2 * 0x1p-8, 0.5, 0.5);
  check(one_step<Backend, EncodeWith<Fp32, Bf16>>(), 0, 0.5, 0.75);
  check(one_step<Backend, EncodeWith<Int8, Fp16>>(), 2 * 4.0 / 510, 0.1, (0.39 + 0.5) / 2);
}

/// The upper half of a float's bits, rounded to nearest even; not of NaN.
inline std::uint16_t bf16_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rest = bits & 0xffffu, kept = bits >> 16;
  return static_cast<std::uint16_t>(kept + (rest > 0x8000u || (rest == 0x8000u && kept % 2 != 0)));
}
inline float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline bool are_rounded(const std::vector<BFloat16>& found, const std::vector<float>& floats) {
  bool same = found.size() == floats.size();
  for (std::size_t i = 0; same && i < found.size(); ++i)
    same = std::bit_cast<std::uint16_t>(found[i]) == bf16_bits(floats[i]);
  return same;
}

/// Every table whole on one rank, or a copy on each of several: lookups store 16 bits, updates and
/// merges read them. `genres`: how they are pooled.
inline Layout whole_tables(int ranks, Pooling genres = Pooling::sqrtn) {
  const std::vector<TableSpec> specs = tables();
  std::vector<FeatureSpec> read = features();
  read[3].pooling = genres;
  std::vector<Shard> shards;
  for (int t = 0; t < static_cast<int>(specs.size()); ++t) {
    const TableSpec& table = specs[static_cast<std::size_t>(t)];
    const int middle = t == 1 && ranks == 1 ? 16 : table.width, rank = ranks == 1 ? 0 : every_rank;
    shards.push_back({t, {0, table.rows, 0, middle}, rank});
    if (middle != table.width) shards.push_back({t, {0, table.rows, middle, table.width}, rank});
  }
  return make_layout({ranks}, specs, read, shards);
}

/// Outputs in bf16 are those in float, rounded once; given the same gradients, everything else has
/// the same bits.
template <class Backend>
void outputs_in_bf16(int ranks, const Layout& cuts, bool deduplicate, bool stored = true) {
  on_ranks<Backend>(ranks, [&](CountingOn<Backend>& c, const Backend& backend) {
    using Wide = EmbeddingsOn<Backend, CountingOn<Backend>>;
    using Narrow = EmbeddingsOn<Backend, CountingOn<Backend>, OutputType<BFloat16>>;
    const auto options = [&]<class E>(E*) {
      return typename E::Options{.learning_rate = 0.125f,
                                 .seed = 7,
                                 .non_finite = NonFinite::reject,
                                 .deduplicate = deduplicate};
    };
    Wide wide(c, backend, cuts, options(static_cast<Wide*>(nullptr)));
    Narrow narrow(c, backend, cuts, options(static_cast<Narrow*>(nullptr)));
    const std::int64_t columns = wide.columns(), stride = columns + 3;
    const bool unpooled = cuts.features[3].pooling == Pooling::none;
    // of a sequence, its own vectors
    const auto sequences = [&](const auto& pooled) {
      std::vector<SequenceGradient> gradients;
      if (unpooled) gradients.push_back(pooled.sequence(3).per_row(pooled.sequence(3).rows()));
      return gradients;
    };
    for (int step = 0; step < enough_steps<Backend>; ++step) {
      Batch batch(c.rank(), step, samples_of(c.rank(), step), columns);
      std::vector<BFloat16> gradient(batch.gradient.size());
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const std::uint16_t bits = bf16_bits(batch.gradient[i]);
        gradient[i] = std::bit_cast<BFloat16>(bits);
        batch.gradient[i] = float_of_bf16(bits);
      }
      const Given given(backend, batch, columns);
      const Array<BFloat16, Backend> narrow_gradient(backend, gradient);
      const MatrixView<const BFloat16> of_narrow(narrow_gradient.data(), batch.samples, columns);
      const auto expected = wide.forward(given.keyed());
      const std::vector<float> floats = read(backend, expected.values.data, gradient.size());
      const auto evaluated = narrow.evaluate(given.keyed());
      require(are_rounded(read(backend, evaluated.data, gradient.size()), floats),
              "rank {}, step {}: evaluate gives other bits than float rounded", c.rank(), step);
      // a wider matrix of the caller's: what lies between its rows stays
      const std::size_t room = static_cast<std::size_t>(batch.samples * stride);
      const Array<BFloat16, Backend> output(
          backend, std::vector<BFloat16>(room, from_float<BFloat16>(5.0f)));
      const auto pooled =
          narrow.forward(given.keyed(), {output.data(), batch.samples, columns, stride});
      require(batch.samples == 0 || pooled.step->narrow.stored() == stored,
              "rank {}, step {}: are lookups stored in 16 bits?", c.rank(), step);
      const std::vector<BFloat16> rows = output.read();
      std::vector<BFloat16> found;
      bool kept = true;
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (static_cast<std::int64_t>(i) % stride < columns)
          found.push_back(rows[i]);
        else
          kept = kept && to_float(rows[i]) == 5.0f;
      require(kept && are_rounded(found, floats),
              "rank {}, step {}: forward gives other bits than float rounded", c.rank(), step);
      if (!gradient.empty()) gradient.back() = from_float<BFloat16>(std::nanf(""));
      const Array<BFloat16, Backend> bad(backend, gradient);
      narrow.backward(pooled, {bad.data(), batch.samples, columns}, sequences(pooled));  // refused
      const Array<float, Backend> of_weights(backend, std::vector<float>(batch.ids.size(), 1.0f));
      narrow.backward(pooled, of_narrow, of_weights.span(), sequences(pooled));
      wide.backward(expected, given.gradient, given.of_weights.span(), sequences(expected));
      require(same_bits(of_weights.read(), given.of_weights.read()),
              "rank {}, step {}: weights have other gradients", c.rank(), step);
    }
    require(narrow.rejected_steps() == enough_steps<Backend>, "rank {}: {} steps are rejected",
            c.rank(), narrow.rejected_steps());
    const Batch last(c.rank(), 9, 5, columns);
    const Given given(backend, last, columns);
    const Array<BFloat16, Backend> ones(
        backend, std::vector<BFloat16>(last.gradient.size(), from_float<BFloat16>(1.0f)));
    const Array<float, Backend> float_ones(backend, std::vector<float>(last.gradient.size(), 1.0f));
    const auto pooled = narrow.forward(given.keyed());
    narrow.accumulate(pooled, {ones.data(), 5, columns}, sequences(pooled));
    const auto expected = wide.forward(given.keyed());
    wide.accumulate(expected, {float_ones.data(), 5, columns}, sequences(expected));
    narrow.apply();
    wide.apply();
    require(same_bits(shards_of(narrow), shards_of(wide)), "rank {}: tables differ", c.rank());
  });
}

template <class Backend>
void outputs_in_bf16() {
  for (const int ranks : {1, 2, 3}) {
    if (!Backend::host_readable && ranks == 2) continue;
    outputs_in_bf16<Backend>(ranks, layout(ranks, ranks == 2), ranks == 3, false);
    outputs_in_bf16<Backend>(ranks, whole_tables(ranks), false);
  }
  outputs_in_bf16<Backend>(1, whole_tables(1, Pooling::none), false);
  outputs_in_bf16<Backend>(1, whole_tables(1, Pooling::max), false, false);
}

template <class Backend>
using Chosen = EmbeddingsOn<Backend, CountingOn<Backend>, EncodeWithOneOf<Fp32, Bf16, Int8>>;

template <class Backend, class... Policies>
void expect_chosen(const char* forward, const char* backward, bool deduplicate) {
  on_ranks<Backend>(3, [&](CountingOn<Backend>& c, const Backend& backend) {
    using ByType = EmbeddingsOn<Backend, CountingOn<Backend>, Policies...>;
    typename ByType::Options by_type;
    by_type.learning_rate = 0.125f;
    by_type.seed = 7;
    by_type.deduplicate = deduplicate;
    typename Chosen<Backend>::Options by_name;
    by_name.learning_rate = 0.125f;
    by_name.seed = 7;
    by_name.forward_codec = forward;
    by_name.backward_codec = backward;
    by_name.deduplicate = deduplicate;
    ByType expected(c, backend, layout(3), by_type);
    Chosen<Backend> found(c, backend, layout(3), by_name);
    const int steps = enough_steps<Backend> - 1;
    const Result a = train(expected, c.rank(), steps), b = train(found, c.rank(), steps);
    require(same_bits(a.outputs, b.outputs) && same_bits(a.weight_gradients, b.weight_gradients) &&
                same_bits(a.shards, b.shards),
            "rank {}: codecs '{}' and '{}' give other bits when chosen by name", c.rank(), forward,
            backward);
  });
}

template <class Backend>
void chosen_by_name() {
  expect_chosen<Backend, EncodeWith<Fp32>>("", "", false);
  expect_chosen<Backend, EncodeWith<Bf16, Int8>>("bf16", "int8", false);
  expect_chosen<Backend, EncodeWith<Int8, Fp32>>("int8", "fp32", true);
  expect_chosen<Backend, EncodeWith<Fp32, Bf16>>("fp32", "bf16", true);
}

template <class Backend>
void wrong_choices_are_refused() {
  Alone<Backend> alone;
  using E = EmbeddingsOn<Backend, typename Alone<Backend>::Comm, EncodeWithOneOf<Fp32, Bf16>>;
  typename E::Options wrong;
  wrong.forward_codec = "int8";
  CHECK_THROWS_WITH_AS(E(alone.communicator, alone.backend, layout(1), wrong),
                       "there is no codec 'int8' to choose here, only 'fp32', 'bf16'; name more in "
                       "EncodeWithOneOf<...>",
                       InvalidArgument);
  // Ranks that choose differently are told so.
  on_ranks<Backend>(2, [](CountingOn<Backend>& c, const Backend& backend) {
    for (const bool codec : {true, false}) {
      typename Chosen<Backend>::Options options;
      options.backward_codec = codec && c.rank() == 1 ? "bf16" : "";
      options.deduplicate = !codec && c.rank() == 1;
      try {
        Chosen<Backend> e(c, backend, layout(2), options);
        throw Error("ranks differ, and nobody says so");
      } catch (const InvalidArgument& error) {
        const std::string_view text = error.what(), what = codec
                                                               ? "rank 1 does not have the codecs"
                                                               : "the option deduplicate of rank 0";
        if (text.find(what) == std::string_view::npos) throw;
      }
    }
  });
}

/// What each of four ranks sends in a whole step. One table of 8 rows x 8; rank r looks rows r and
/// 7 - r up, so that all are asked for once.
template <class Backend, class... Policies>
std::vector<Traffic> step_traffic(const std::vector<Shard>& shards) {
  std::vector<Traffic> sent(4);
  on_ranks<Backend>(4, [&](CountingOn<Backend>& c, const Backend& backend) {
    EmbeddingsOn<Backend, CountingOn<Backend>, Policies...> e(
        c, backend, make_layout({4}, {{"t", 8, 8}}, {}, shards), {});
    c.reset();  // the construction's
    const Array<std::int64_t, Backend> ids(backend,
                                           std::vector<std::int64_t>{c.rank(), 7 - c.rank()});
    const Array<float, Backend> gradient(backend, std::vector<float>(16, 1.0f));
    const auto pooled = e.forward(KeyedJagged<std::int64_t>{1, 2, ids.span(), {}, {}});
    e.backward(pooled, {gradient.data(), 2, 8});
    const Traffic total = c.total();
    sent[static_cast<std::size_t>(c.rank())] = {0, total.messages, total.bytes};
  });
  return sent;
}

template <class Backend>
void traffic_counted_by_hand() {
  // A slot has a header of 32 bytes, an id 8, a vector of 8 columns 32. Row-wise Adagrad needs
  // whole rows' gradients: shards that hold less than 16 columns of them tell each other theirs
  // (op/mean_square.hpp), never encoded.
  const auto check = [](const std::vector<Shard>& shards, const std::vector<Traffic>& expected,
                        const std::vector<Traffic>& encoded) {
    CHECK(step_traffic<Backend>(shards) == expected);
    CHECK(step_traffic<Backend, EncodeWith<Bf16>>(shards) == encoded);
  };
  static_assert(sizeof(detail::IdMessageHeader) == 32);
  // which sends two vectors to each; the others a header, two ids, two gradients
  SUBCASE("table-wise, on rank 0") {
    check({{0, {0, 8, 0, 8}, 0}}, {{0, 3, 192}, {0, 3, 112}, {0, 3, 112}, {0, 3, 112}},
          {{0, 3, 96}, {0, 3, 80}, {0, 3, 80}, {0, 3, 80}});
  }
  SUBCASE("column-wise, on ranks 0 and 1") {
    // They: a header, two ids and two half gradients to the other, two half vectors to all others,
    // half of 8 rows' gradients.
    check({{0, {0, 8, 0, 4}, 0}, {0, {0, 8, 4, 8}, 1}},
          {{0, 7, 304}, {0, 7, 304}, {0, 6, 160}, {0, 6, 160}},
          {{0, 7, 240}, {0, 7, 240}, {0, 6, 128}, {0, 6, 128}});
  }
  SUBCASE("row-wise, two rows on each") {
    // Headers to three. Ranks 0 and 2 own one of their ids and are asked for one by another rank;
    // ranks 1 and 3: none and two.
    check({{0, {0, 2, 0, 8}, 0}, {0, {2, 4, 0, 8}, 1}, {0, {4, 6, 0, 8}, 2}, {0, {6, 8, 0, 8}, 3}},
          {{0, 6, 168}, {0, 9, 240}, {0, 6, 168}, {0, 9, 240}},
          {{0, 6, 136}, {0, 9, 176}, {0, 6, 136}, {0, 9, 176}});
  }
  SUBCASE("grid: two columns on two nodes of two ranks") {
    // A header, an id, half a vector and half a gradient to each of the others; half of 4 rows'
    // gradients to the rank with these rows.
    check({{0, {0, 4, 0, 4}, 0}, {0, {4, 8, 0, 4}, 1}, {0, {0, 4, 4, 8}, 2}, {0, {4, 8, 4, 8}, 3}},
          std::vector<Traffic>(4, {0, 13, 280}), std::vector<Traffic>(4, {0, 13, 232}));
  }
  SUBCASE("replicated") {  // to each: how many rows at which rate, which two, their gradients
    check({{0, {0, 8, 0, 8}, every_rank}}, std::vector<Traffic>(4, {0, 9, 288}),
          std::vector<Traffic>(4, {0, 9, 288}));
  }
}

}  // namespace encoded
