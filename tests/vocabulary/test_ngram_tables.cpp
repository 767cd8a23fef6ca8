// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables of n-grams under any plan: one model, to the bit, that a plain loop trains, too; and what
// travels for it.
#include <tessera/checkpoint.hpp>
#include <tessera/ngram.hpp>
#include <tessera/tessera.hpp>

#include <tessera/comm/counting_communicator.hpp>

#include <doctest/doctest.h>
#include <support/same_bits.hpp>
#include <support/temporary_folder.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace tessera;
namespace ts = tessera;

namespace {

constexpr int kWidth = 8, kBlocks = 4, kLength = 16, kSteps = 3;
constexpr std::int64_t kPositions = 8 * kLength;  // of a global batch of 8 documents
constexpr std::array<std::int64_t, 4> kRows{61, 67, 71, 73};
using Hash = NgramHash<Orders<2, 3>, Heads<2>>;
using A = Table<"2.0", kRows[0], kWidth>;
using B = Table<"2.1", kRows[1], kWidth>;
using C = Table<"3.0", kRows[2], kWidth>;
using D = Table<"3.1", kRows[3], kWidth>;

/// A plan's layout, each table read by a sequence: rows travel once.
template <class PlanT>
Layout layout_of(int ranks) {
  const Layout layout = PlanT::layout({ranks, ranks > 1 ? ranks / 2 : 0});
  std::vector<FeatureSpec> features;
  for (const TableSpec& table : layout.tables)
    features.push_back({table.name, table.name, Pooling::none});
  return make_layout(layout.topology, layout.tables, features, layout.shards);
}

/// Documents [begin, end) of a step's 8: letters of a small alphabet, so that n-grams repeat.
std::vector<std::int32_t> tokens_of(int step, int begin, int end) {
  std::vector<std::int32_t> tokens;
  for (int d = begin; d < end; ++d)
    for (int p = 0; p < kLength; ++p)
      tokens.push_back(static_cast<std::int32_t>(random_word(8, step, d, p) % 5));
  return tokens;
}
std::vector<std::int64_t> documents_of(int count) {
  std::vector<std::int64_t> documents;
  for (int d = 0; d <= count; ++d) documents.push_back(d * kLength);
  return documents;
}
/// The gradient of a position's vector from table t, column c: a multiple of a quarter.
float gradient_of(std::int64_t position, int t, int c) {
  return static_cast<float>(static_cast<int>(random_word(9, position, t, c) % 9) - 4) / 4;
}

struct Model {
  std::vector<std::vector<float>> tables = std::vector<std::vector<float>>(kRows.size());
  std::vector<float> vectors;  // of the last step: [table][position][column]
};

/// Trains from step `begin` to `end`; what was saved in `saved` by then is read, and written after it.
Model train(const Layout& layout, int end, const std::string& folder = "",
            const std::string& saved = "", int begin = 0) {
  const Hash hash(5, kRows);
  Model model;
  for (std::size_t t = 0; t < kRows.size(); ++t)
    model.tables[t].resize(static_cast<std::size_t>(kRows[t] * kWidth));
  model.vectors.resize(kRows.size() * kPositions * kWidth);
  std::mutex mutex;
  run_ranks(layout.ranks(), [&](ThreadCommunicator& c) {
    LayoutCollection<Widths<>, Sgd, Host, ThreadCommunicator> e{
        c,
        Host{},
        layout,
        {.learning_rate = 0.125f,
         .seed = 7,
         .gradient_blocks = kBlocks,
         .files = {.folder = folder, .cache_bytes = 1 << 20}}};
    const int own = 8 / c.size(), first = c.rank() * own;
    const std::int64_t positions = own * kLength;
    CheckpointContents contents;
    contents.add(e);
    if (begin > 0) load_checkpoint(c, latest_checkpoint(saved).value(), contents);
    for (int step = begin; step < end; ++step) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(hash.tables() * positions));
      const auto found = e.forward(hash.batch(Host(), tokens_of(step, first, first + own),
                                              documents_of(own), std::span(ids)));
      std::vector<SequenceGradient> gradients;
      std::vector<Matrix<float>> kept;
      for (int t = 0; t < hash.tables(); ++t) {
        float* const to =
            model.vectors.data() + (t * kPositions + first * kLength) * kWidth;  // this rank's part
        found.sequence(t).materialize({to, positions, kWidth});
        Matrix<float>& gradient = kept.emplace_back(positions, kWidth);
        for (std::int64_t p = 0; p < positions; ++p)
          for (int column = 0; column < kWidth; ++column)
            gradient.view()(p, column) = gradient_of(first * kLength + p, t, column);
        gradients.push_back(found.sequence(t).per_id(gradient.view()));
      }
      e.backward(found, gradients);
    }
    if (!saved.empty()) save_checkpoint(c, saved, contents, end);
    const std::lock_guard lock(mutex);
    for (std::size_t t = 0; t < kRows.size(); ++t)
      e.tables().get(layout.tables[t].name, {model.tables[t].data(), kRows[t], kWidth});
  });
  return model;
}

using Whole = Plan<TableWise<A, B, C, D>>;

// [plan]
static constexpr ts::TableSpec kNgrams[] = {
    {.name = "2.0", .rows = kRows[0], .width = kWidth, .pooling = ts::Sequence},
    {.name = "2.1", .rows = kRows[1], .width = kWidth, .pooling = ts::Sequence},
    {.name = "3.0", .rows = kRows[2], .width = kWidth, .pooling = ts::Sequence},
    {.name = "3.1", .rows = kRows[3], .width = kWidth, .pooling = ts::Sequence}};
using Rows = ts::Plan<ts::RowWise<ts::Tables<kNgrams>>>;
// [plan end]

}  // namespace

TEST_CASE("tables of n-grams: any plan, any tier and any number of ranks is one model") {
  const Layout one = layout_of<Whole>(1);
  const Model base = train(one, kSteps);
  using Layouts = std::vector<Layout (*)(int)>;
  const Layouts layouts{
      &layout_of<Whole>, &layout_of<Rows>, &layout_of<Plan<ColumnWise<2, A, B, C, D>>>,
      &layout_of<Plan<Grid<2, A, B>, RowWise<C>, OnHost<TableWise<D>>>>,
      &layout_of<Plan<OnFile<RowWise<A, B>>, Cached<70, OnFile<TableWise<C, D>>>>>};
  const TemporaryFolder folder;
  for (std::size_t plan = 0; plan < layouts.size(); ++plan)
    for (const int ranks : {1, 2, 4}) {
      if (plan == 3 && ranks == 1) continue;  // two nodes
      CAPTURE(plan);
      CAPTURE(ranks);
      const Model found = train(layouts[plan](ranks), kSteps, folder.path.string());
      CHECK(same_bits(found.vectors, base.vectors));
      for (std::size_t t = 0; t < kRows.size(); ++t)
        CHECK(same_bits(found.tables[t], base.tables[t]));
    }

  // saved on two ranks, in files; read on four and on one, cut otherwise
  const std::string saved = (folder.path / "saved").string(),
                    files = (folder.path / "files").string();
  train(layouts[4](2), kSteps - 1, files, saved);
  for (const Layout& layout : {layouts[2](4), layouts[1](4), one}) {
    const TemporaryFolder copy;
    std::filesystem::copy(saved, copy.path, std::filesystem::copy_options::recursive);
    const Model found = train(layout, kSteps, files, copy.path.string(), kSteps - 1);
    for (std::size_t t = 0; t < kRows.size(); ++t)
      CHECK(same_bits(found.tables[t], base.tables[t]));
  }

  // the same by hand, from the first values on
  const Hash hash(5, kRows);
  Model expected = train(one, 0);
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<std::int32_t> tokens = tokens_of(step, 0, 8);
    for (std::size_t t = 0; t < kRows.size(); ++t) {
      const std::vector<float> before = expected.tables[t];
      for (std::int64_t p = 0; p < kPositions; ++p) {
        const std::int64_t row =
            hash.row(static_cast<int>(t), hash.window(tokens.data(), p / kLength * kLength, p));
        for (int c = 0; c < kWidth; ++c) {
          const auto at = static_cast<std::size_t>(row * kWidth + c);
          expected.vectors[(t * kPositions + static_cast<std::size_t>(p)) * kWidth +
                           static_cast<std::size_t>(c)] = before[at];
          expected.tables[t][at] -= 0.125f * gradient_of(p, static_cast<int>(t), c);
        }
      }
    }
  }
  const auto far = [](const std::vector<float>& a, const std::vector<float>& b) {
    float most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
  };
  CHECK(far(base.vectors, expected.vectors) < 1e-5f);
  for (std::size_t t = 0; t < kRows.size(); ++t) {
    CHECK(far(base.tables[t], expected.tables[t]) < 1e-5f);
    CHECK(far(base.tables[t], train(one, 0).tables[t]) > 0.1f);  // it was trained
  }
}

TEST_CASE("tables of n-grams: a row travels once to each rank that has its n-gram, and no more") {
  constexpr int ranks = 4;
  const Layout layout = Rows::layout({ranks});
  std::array<std::uint64_t, ranks> asked{}, vectors{}, gradients{}, expected_asked{};
  std::array<std::uint64_t, ranks> sent_vectors{}, owned{};
  std::mutex mutex;
  run_ranks(ranks, [&](ThreadCommunicator& threads) {
    using Counting = CountingCommunicator<ThreadCommunicator>;
    Counting c(threads);
    LayoutCollection<Widths<>, Sgd, Host, Counting> e{c, Host{}, layout, {.learning_rate = 0.125f}};
    const Hash hash(5, kRows);
    const auto rank = static_cast<std::size_t>(c.rank());
    // long documents: 2,048 positions of 25 pairs and 125 triples of letters
    std::vector<std::int32_t> tokens;
    for (int step = 0; step < 16; ++step)
      for (const std::int32_t token : tokens_of(step, 0, 8)) tokens.push_back(token);
    const std::int64_t positions = std::ssize(tokens);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(hash.tables() * positions));
    const auto batch = hash.batch(Host(), tokens, {}, std::span(ids));
    std::array<std::set<std::pair<int, std::int32_t>>, ranks> rows;  // by owner
    for (int t = 0; t < hash.tables(); ++t)
      for (std::int64_t p = 0; p < positions; ++p) {
        const std::int32_t row = batch.ids[static_cast<std::size_t>(t * positions + p)];
        std::size_t owner = 0;
        while (row >= even_cut(kRows[static_cast<std::size_t>(t)], ranks,
                               static_cast<std::int64_t>(owner) + 1))
          ++owner;
        rows[owner].insert({t, row});
      }
    decltype(e)::StepState<std::int32_t> step;
    const MatrixView<float> output(nullptr, positions, 0);
    e.route(step, batch);
    const std::uint64_t routed = c.total().bytes;
    c.reset();
    e.lookup(step, output);
    e.exchange(step);
    e.assemble(step, output);
    const std::uint64_t looked_up = c.total().bytes;
    c.reset();
    Matrix<float> gradient(positions, kWidth);
    std::vector<SequenceGradient> all;
    for (int t = 0; t < hash.tables(); ++t) all.push_back(step.sequence(t).per_id(gradient.view()));
    e.split(step, output, all);
    e.exchange_gradients(step);
    const std::uint64_t returned = c.total().bytes;
    e.update(step, output);
    const std::lock_guard lock(mutex);
    asked[rank] = routed, vectors[rank] = looked_up, gradients[rank] = returned;
    for (std::size_t owner = 0; owner < ranks; ++owner) {
      if (owner == rank) continue;
      expected_asked[rank] += rows[owner].size();
      sent_vectors[owner] += rows[owner].size();
    }
    owned[rank] = rows[rank].size();
  });
  for (std::size_t r = 0; r < ranks; ++r) {
    CAPTURE(r);
    CHECK(owned[r] > 20);
    CHECK(vectors[r] == sent_vectors[r] * kWidth * sizeof(float));
    CHECK(gradients[r] == expected_asked[r] * kWidth * sizeof(float));
    // ids, and the sizes of what comes: far fewer than the 8,192 ids of the batch
    CHECK(asked[r] >= expected_asked[r] * sizeof(std::int32_t));
    CHECK(asked[r] < expected_asked[r] * sizeof(std::int32_t) + 1024);
  }
}
