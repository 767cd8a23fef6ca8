// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <tessera/ngram.cuh>

#include <gpu/array.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using NgramBackend = tessera::Cuda;

#include <vocabulary/ngram_cases.hpp>

TEST_CASE("n-grams: a collection takes them from device memory, and reports those of bad tokens") {
  using Alone = on_backend::Alone<NgramBackend>;
  Alone alone;
  const NgramHash<Orders<2>, Heads<2>> hash(6, 11, {.vocabulary = 256});
  const Layout layout = make_layout({1}, {{"a", 11, 4}, {"b", 11, 4}},
                                    {{"a", "a", Pooling::none}, {"b", "b", Pooling::none}},
                                    {{0, {0, 11, 0, 4}, 0}, {1, {0, 11, 0, 4}, 0}});
  LayoutCollection<Widths<4>, Sgd, NgramBackend, Alone::Comm> embeddings(
      alone.communicator, alone.backend, layout, {.bad_ids = BadIds::zero_vector});
  const std::vector<std::int32_t> tokens{3, 250, 256, 7, 0, 9};
  const Array<std::int32_t, NgramBackend> given(alone.backend, tokens),
      ids(alone.backend, std::vector<std::int32_t>(12));
  const auto found = embeddings.forward(hash.batch(alone.backend, given.span(), {}, ids.span()));
  const std::vector<std::int32_t> rows = ids.read();
  for (int t = 0; t < 2; ++t) {
    std::vector<float> weights(11 * 4), expected;
    embeddings.tables().get(t == 0 ? "a" : "b", {weights.data(), 11, 4});
    for (std::size_t p = 0; p < 6; ++p)
      for (std::size_t c = 0; c < 4; ++c) {
        const std::int32_t row = rows[static_cast<std::size_t>(t) * 6 + p];
        expected.push_back(row < 0 ? 0.0f : weights[static_cast<std::size_t>(row) * 4 + c]);
      }
    const Array<float, NgramBackend> out(alone.backend, std::vector<float>(24, -7.0f));
    found.sequence(t).materialize({out.data(), 6, 4});
    CHECK(out.read() == expected);
    CHECK(embeddings.bad_ids()[static_cast<std::size_t>(t)] == 2);  // n-grams of a bad token
  }
}
