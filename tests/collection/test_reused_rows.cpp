// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Rows that begin anew between the batches of one step lose what was accumulated for them, whatever
// ranks hold them: against AdamW in double, one row after another.
#include <tessera/tessera.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <vector>

using namespace tessera;

namespace {

constexpr std::int64_t rows = 24, width = 4, samples = 8;
constexpr float rate = 0.125f;

struct Batch {
  std::vector<std::int64_t> forgotten;  ///< rows that begin anew before it
  std::vector<std::int64_t> ids;        ///< one per sample
  std::vector<float> gradient;          ///< [samples, width]
};
using Batches = std::vector<Batch>;  // of a step

std::vector<Batches> random_steps(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  std::vector<Batches> steps(40);
  for (Batches& step : steps) {
    step.resize(1 + below(4));
    for (Batch& batch : step) {
      // none, some, or all; the batch may use them at once, a later one, or none
      const std::uint32_t share = below(4) == 0 ? rows : below(6);
      for (std::int64_t row = 0; row < rows; ++row)
        if (below(rows) < share) batch.forgotten.push_back(row);
      for (std::int64_t i = 0; i < samples; ++i)
        batch.ids.push_back(static_cast<std::int64_t>(below(rows)));
      // eighths: sums have no rounding, in whatever order
      for (std::int64_t i = 0; i < samples * width; ++i)
        batch.gradient.push_back(static_cast<float>(below(33)) / 8 - 2);
    }
  }
  return steps;
}

/// The whole table, at first and behind each step.
using Trace = std::vector<std::vector<float>>;

template <class O>
Trace train(const Layout& layout, const std::vector<Batches>& steps) {
  Trace trace(steps.size() + 1, std::vector<float>(rows * width));
  run_ranks(layout.ranks(), [&](ThreadCommunicator& communicator) {
    LayoutCollection<Widths<2, 4>, O, Host, ThreadCommunicator> embeddings{
        communicator, Host{}, layout, {.learning_rate = rate, .seed = 5}};
    const auto keep = [&](std::vector<float>& table) {
      for (int rank = 0; rank < communicator.size(); ++rank, communicator.barrier())
        if (rank == communicator.rank()) embeddings.tables().get("t", {table.data(), rows, width});
    };
    keep(trace[0]);
    const std::int64_t begin = even_cut(samples, communicator.size(), communicator.rank()),
                       count =
                           even_cut(samples, communicator.size(), communicator.rank() + 1) - begin;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      for (const Batch& batch : steps[s]) {
        embeddings.reset_rows(0, batch.forgotten);
        const std::span<const std::int64_t> ids = std::span(batch.ids).subspan(
            static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
        embeddings.accumulate(embeddings.forward(KeyedJagged<std::int64_t>{1, count, ids, {}, {}}),
                              {batch.gradient.data() + begin * width, count, width});
      }
      embeddings.apply();
      keep(trace[s + 1]);
    }
  });
  return trace;
}

/// What `train` gives, but for rounding: a row is three numbers for each column.
Trace reference(const std::vector<float>& first, const std::vector<Batches>& steps) {
  const AdamW adam;
  std::vector<double> w(first.begin(), first.end()), m(w.size()), v(w.size());
  Trace trace{first};
  double t = 0;
  for (const Batches& step : steps) {
    std::map<std::int64_t, std::vector<double>> sums;
    for (const Batch& batch : step) {
      for (const std::int64_t row : batch.forgotten) {
        sums.erase(row);
        for (auto i = static_cast<std::size_t>(row * width), c = i + width; i < c; ++i)
          w[i] = first[i], m[i] = v[i] = 0;
      }
      for (std::size_t i = 0; i < samples; ++i) {
        std::vector<double>& sum = sums.try_emplace(batch.ids[i], width).first->second;
        for (std::size_t c = 0; c < width; ++c) sum[c] += batch.gradient[i * width + c];
      }
    }
    ++t;
    for (const auto& [row, sum] : sums)
      for (std::size_t c = 0; c < width; ++c) {
        const std::size_t i = static_cast<std::size_t>(row) * width + c;
        m[i] = adam.beta1 * m[i] + (1 - adam.beta1) * sum[c];
        v[i] = adam.beta2 * v[i] + (1 - adam.beta2) * sum[c] * sum[c];
        const double mean = m[i] / (1 - std::pow(adam.beta1, t)),
                     square = v[i] / (1 - std::pow(adam.beta2, t));
        w[i] += -rate * adam.weight_decay * w[i] - rate * mean / (std::sqrt(square) + adam.epsilon);
      }
    trace.emplace_back(w.begin(), w.end());
  }
  return trace;
}

Layout layout_of(int ranks, const std::vector<Shard>& shards) {
  return make_layout({ranks}, {{"t", rows, width}}, {{"f", "t"}}, shards);
}

}  // namespace

TEST_CASE("rows that begin anew lose what was accumulated, as a table of rows says, on any ranks") {
  const Layout one = layout_of(1, {{0, {0, rows, 0, 4}, 0}});
  for (const unsigned seed : {1u, 2u, 3u}) {
    CAPTURE(seed);
    const std::vector<Batches> steps = random_steps(seed);
    const Trace alone = train<AdamW>(one, steps), expected = reference(alone.front(), steps),
                by_rows = train<PartialRowWiseAdam>(one, steps);
    REQUIRE(alone.size() == expected.size());
    double worst = 0;
    for (std::size_t s = 0; s < alone.size(); ++s)
      for (std::size_t i = 0; i < alone[s].size(); ++i)
        worst = std::max(worst, std::abs(double{alone[s][i]} - double{expected[s][i]}));
    CHECK(worst < 2e-5);
    for (const Layout& layout :
         {layout_of(2, {{0, {0, 11, 0, 4}, 1}, {0, {11, rows, 0, 4}, 0}}),
          layout_of(2, {{0, {0, rows, 0, 2}, 0}, {0, {0, rows, 2, 4}, 1}}),
          layout_of(2, {{0, {0, rows, 0, 4}, every_rank}}),
          layout_of(2, {{0, {0, rows, 0, 2}, every_rank}, {0, {0, rows, 2, 4}, 1}}),
          layout_of(4, {{0, {0, 5, 0, 4}, 3},
                        {0, {5, rows, 0, 2}, 0},
                        {0, {5, 17, 2, 4}, 1},
                        {0, {17, rows, 2, 4}, 2}}),
          layout_of(4, {{0, {0, rows, 0, 4}, every_rank}})}) {
      CHECK(train<AdamW>(layout, steps) == alone);
      // ranks that hold columns of a row tell each other what they have of its mean square
      CHECK(train<PartialRowWiseAdam>(layout, steps) == by_rows);
    }
  }
}

TEST_CASE("rows that begin anew: one that gets no gradient behind it is not touched by the step") {
  SelfCommunicator self;
  LayoutCollection<Widths<4>, AdamW, Host, SelfCommunicator> embeddings{
      self, Host{}, layout_of(1, {{0, {0, rows, 0, 4}, 0}}), {.learning_rate = 1}};
  std::vector<float> first(rows * width), last = first;
  embeddings.tables().get("t", {first.data(), rows, width});
  const std::vector<std::int64_t> ids{7, 3, 3};
  const std::vector<float> gradient(3 * width, 1.0f);
  embeddings.accumulate(embeddings.forward(KeyedJagged<std::int64_t>{1, 3, ids, {}, {}}),
                        {gradient.data(), 3, width});
  const std::vector<std::int64_t> all{3, 7, 3};  // in any order, and twice
  embeddings.reset_rows(0, all);
  CHECK(embeddings.apply(ClipByGlobalNorm{1}) == 0);
  CHECK(embeddings.steps() == 1);
  embeddings.tables().get("t", {last.data(), rows, width});
  CHECK(last == first);  // with a gradient of zeros they would decay
}
