// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The shape of MLPerf's DLRMv4 at a thousandth: 11 tables of 293,000 rows in all, width 64, 1,000
// users with histories of up to 512 positions of three features, an HSTU block, and a candidate
// that is to be told from others. Trains under several plans and numbers of ranks, and compares the
// bits of all tables: docs/train_sequence.md.
#include <tessera/dense.hpp>
#include <tessera/sequence.hpp>
#include <tessera/tessera.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace ts = tessera;

namespace {

constexpr int kWidth = 64, kUsers = 1'000, kLongest = 512, kBatch = 32, kBlocks = 4;
/// the features of a position come first; the others are of the user and of what is asked
constexpr int kOfPositions = 3;
constexpr std::array<std::pair<std::string_view, std::int64_t>, 11> kTables{{{"track", 200'000},
                                                                             {"artist", 60'000},
                                                                             {"action", 16},
                                                                             {"user", kUsers},
                                                                             {"country", 250},
                                                                             {"device", 100},
                                                                             {"age", 100},
                                                                             {"hour", 24},
                                                                             {"day", 7},
                                                                             {"referrer", 2'000},
                                                                             {"playlist", 29'503}}};
constexpr int kOfUser = static_cast<int>(kTables.size()) - kOfPositions;
using Embeddings = ts::LayoutCollection<ts::Widths<kWidth / 2, kWidth>, ts::Adagrad, ts::Host,
                                        ts::ThreadCommunicator, ts::InitializeWith<ts::Normal>>;

/// Rows, columns or both of each table cut, or tables whole, or a bit of all.
ts::Layout layout_of(std::string_view plan, int ranks) {
  std::vector<ts::TableSpec> tables;
  std::vector<ts::FeatureSpec> features;
  std::vector<ts::Shard> shards;
  int next = 0;
  for (int t = 0; t < std::ssize(kTables); ++t) {
    const auto [name, rows] = kTables[t];
    tables.push_back({.name = name, .rows = rows, .width = kWidth});
    features.push_back({.name = name,
                        .table = name,
                        .pooling = t < kOfPositions ? ts::Pooling::none : ts::Pooling::sum});
    const std::string_view cut = plan != "mixed" ? plan
                                 : t == 0        ? "row-wise"
                                 : t == 1        ? "grid"
                                                 : "table-wise";
    const int columns = cut == "column-wise" || cut == "grid" ? 2 : 1,
              parts = cut == "row-wise" || cut == "grid" ? ranks : 1;
    for (int r = 0; r < parts; ++r)
      for (int c = 0; c < columns; ++c) {
        const ts::Rectangle part{ts::even_cut(rows, parts, r), ts::even_cut(rows, parts, r + 1),
                                 kWidth / columns * c, kWidth / columns * (c + 1)};
        if (part.row_begin < part.row_end) shards.push_back({t, part, next++ % ranks});
      }
  }
  return ts::make_layout(ts::Topology{ranks}, std::move(tables), std::move(features),
                         std::move(shards));
}

/// Sample n of a run: a user's history, and after it the candidate. A user has a taste, one of two
/// kinds of tracks; he likes a candidate of his kind.
struct Samples {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets{0}, lengths;  ///< lengths: of each sample, with the candidate
  std::vector<float> labels;

  Samples(std::int64_t first, std::int64_t count) {
    std::vector<std::vector<std::int32_t>> tracks;
    for (std::int64_t n = first; n < first + count; ++n) {
      const auto draw = [&](auto... what) { return ts::random_word(5, n, what...); };
      const std::uint64_t user = draw(0) % kUsers, taste = ts::random_word(6, user) % 2,
                          shown = draw(1) % 2, length = 1 + draw(2) % (kLongest - 1);
      std::vector<std::int32_t> own;
      for (std::uint64_t i = 0; i <= length; ++i) {
        const std::uint64_t kind = i < length ? taste : shown;
        // few tracks are much heard
        const float u = ts::unit_float(draw(3, i));
        own.push_back(static_cast<std::int32_t>(2 * static_cast<int>(u * u * u * 99'999) + kind));
      }
      lengths.push_back(std::ssize(own));
      labels.push_back(taste == shown ? 1.0f : 0.0f);
      tracks.push_back(std::move(own));
    }
    for (int t = 0; t < std::ssize(kTables); ++t)
      for (std::int64_t s = 0; s < count; ++s) {
        const std::vector<std::int32_t>& own = tracks[s];
        const auto rows = static_cast<std::uint64_t>(kTables[t].second);
        if (t >= kOfPositions) {
          const std::uint64_t user = ts::random_word(5, first + s, 0) % kUsers;
          ids.push_back(static_cast<std::int32_t>(
              kTables[t].first == "user" ? user : ts::random_word(7, user, t) % rows));
        }
        for (std::size_t i = 0; t < kOfPositions && i < own.size(); ++i)
          ids.push_back(t == 0   ? own[i]
                        : t == 1 ? own[i] % 60'000
                                 : static_cast<std::int32_t>(ts::random_word(8, first + s, i) %
                                                             (i + 1 < own.size() ? 15 : 1)));
        offsets.push_back(std::ssize(ids));
      }
  }
};

struct Outcome {
  std::uint64_t bits = 0;  ///< of all tables
  double first_loss = 0, last_loss = 0;
};

/// One rank. The global batch is cut into four blocks whatever the number of ranks: gradients of
/// the tables (Options::gradient_blocks) and of the HSTU block are summed block by block.
Outcome train(ts::ThreadCommunicator& ranks, std::string_view plan, int steps) {
  Embeddings embeddings(ranks, ts::Host(), layout_of(plan, ranks.size()),
                        {.learning_rate = 0.02f,
                         .seed = 3,
                         .initialize = {.standard_deviation = 0.1f},
                         .gradient_blocks = kBlocks});
  ts::HstuLayer<2, 32, 32> block(kWidth, {.max_length = kLongest});
  ts::DenseParameters parameters(7, block);
  ts::DenseOptimizer<ts::Adam> adam;
  const int own_blocks = kBlocks / ranks.size(), per_block = kBatch / kBlocks;
  std::vector<float> gradients(static_cast<std::size_t>(parameters.size() * own_blocks)),
      all_gradients(static_cast<std::size_t>(parameters.size() * kBlocks));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const std::int64_t samples = own_blocks * per_block;
    const Samples batch(static_cast<std::int64_t>(step) * kBatch + ranks.rank() * samples, samples);
    const auto found = embeddings.forward(
        ts::KeyedJagged<std::int32_t>{std::ssize(kTables), samples, batch.ids, batch.offsets, {}});
    // a position is the sum of its features' vectors
    const std::int64_t positions = found.sequence(0).ids();
    std::vector<float> x(positions * kWidth), part(x.size()), y(x.size()), dx(x.size()),
        dy(x.size()), d_user(samples * kOfUser * kWidth);
    for (int f = 0; f < kOfPositions; ++f) {
      found.sequence(f).materialize({part.data(), positions, kWidth});
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += part[i];
    }
    std::vector<double> losses(own_blocks), all_losses(kBlocks);
    std::int64_t at = 0;  // positions of the blocks before
    for (int b = 0; b < own_blocks; ++b) {
      std::vector<std::int64_t> offsets{0};
      const std::vector<std::int64_t> targets(per_block, 1);
      for (int s = 0; s < per_block; ++s)
        offsets.push_back(offsets.back() + batch.lengths[b * per_block + s]);
      const auto rows = [&](std::vector<float>& matrix) {
        return ts::MatrixView<float>(matrix.data() + at * kWidth, offsets.back(), kWidth);
      };
      block.forward(rows(x), {offsets, targets}, rows(y));
      // logit: what the candidate became, times the sum of the user's vectors and it
      for (int s = 0; s < per_block; ++s) {
        const std::int64_t sample = b * per_block + s, row = offsets[s + 1] - 1;
        const float* const user = found.values.row(sample);
        const float* const out = rows(y).row(row);
        float logit = 0;
        for (int c = 0; c < kWidth; ++c) {
          float sum = 1;
          for (int f = 0; f < kOfUser; ++f) sum += user[f * kWidth + c];
          logit += out[c] * sum;
        }
        float d = 0;
        losses[b] += ts::BinaryCrossEntropyWithLogits{kBatch}.forward_backward(
            {&logit, 1, 1}, std::span(batch.labels).subspan(sample, 1), {&d, 1, 1});
        for (int c = 0; c < kWidth; ++c) {
          float sum = 1;
          for (int f = 0; f < kOfUser; ++f) {
            sum += user[f * kWidth + c];
            d_user[(sample * kOfUser + f) * kWidth + c] = d * out[c];
          }
          rows(dy).row(row)[c] = d * sum;
        }
      }
      block.backward(rows(dy), rows(dx));
      std::ranges::copy(parameters.gradients(), gradients.begin() + b * parameters.size());
      at += offsets.back();
    }
    const ts::MatrixView<const float> d(dx.data(), positions, kWidth);
    embeddings.backward(
        found, {d_user.data(), samples, kOfUser * kWidth},
        {found.sequence(0).per_id(d), found.sequence(1).per_id(d), found.sequence(2).per_id(d)});
    const std::vector<std::size_t> sizes(ranks.size(), gradients.size()),
        counts(ranks.size(), losses.size());
    ranks.all_gather(std::span<const float>(gradients), std::span(all_gradients), sizes);
    ranks.all_gather(std::span<const double>(losses), std::span(all_losses), counts);
    std::ranges::fill(parameters.gradients(), 0.0f);
    for (int b = 0; b < kBlocks; ++b)
      for (std::int64_t i = 0; i < parameters.size(); ++i)
        parameters.gradients()[i] += all_gradients[b * parameters.size() + i];
    adam.step(parameters, 0.002f);
    double loss = 0;
    for (const double of_block : all_losses) loss += of_block;
    if (step == 0) outcome.first_loss = loss;
    outcome.last_loss = loss;
  }
  // every row of every table, a few thousand at a time
  constexpr std::int64_t kRows = 8'192;
  for (std::int64_t first = 0; first < kTables[0].second; first += kRows) {
    std::vector<std::int32_t> ids;
    std::vector<std::int64_t> offsets{0};
    for (const auto& [name, rows] : kTables)
      for (std::int64_t row = first; row < first + kRows; ++row) {
        if (row < rows) ids.push_back(static_cast<std::int32_t>(row));
        offsets.push_back(std::ssize(ids));
      }
    const auto seen = embeddings.evaluate(
        ts::KeyedJagged<std::int32_t>{std::ssize(kTables), kRows, ids, offsets, {}});
    const auto add = [&](const float* values, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i)
        outcome.bits = ts::mix64(outcome.bits ^ std::bit_cast<std::uint32_t>(values[i]));
    };
    for (int f = 0; f < kOfPositions; ++f) {
      std::vector<float> vectors(seen.sequence(f).ids() * kWidth);
      seen.sequence(f).materialize({vectors.data(), seen.sequence(f).ids(), kWidth});
      add(vectors.data(), std::ssize(vectors));
    }
    // no table of a user's features has more rows than the last one
    for (std::int64_t s = 0; s < std::min(kRows, kTables.back().second - first); ++s)
      add(seen.row(s), kOfUser * kWidth);
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2;
  std::vector<Outcome> outcomes;
  for (const std::string_view plan : {"row-wise", "table-wise", "column-wise", "grid", "mixed"})
    for (const int size : {4, 2, 1}) {
      if (size == 1 && plan != "row-wise") continue;  // one rank has all of it
      Outcome outcome;
      ts::run_ranks(size, [&](ts::ThreadCommunicator& ranks) {
        const Outcome own = train(ranks, plan, steps);
        if (ranks.rank() == 0) outcome = own;
      });
      fmt::print("{:<11}  {} ranks  loss {:.4f} -> {:.4f}  bits of the tables {:016x}\n", plan,
                 size, outcome.first_loss, outcome.last_loss, outcome.bits);
      outcomes.push_back(outcome);
    }
  return std::ranges::all_of(
             outcomes,
             [&](const Outcome& outcome) { return outcome.bits == outcomes.front().bits; })
             ? 0
             : 1;
}
