// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What a collection says of its steps, on any backend: bodies of test_step_report.cpp and
// gpu/twin_cases.hpp.
#pragma once

#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace step_reports {

using namespace tessera;      // NOLINT: a header of tests
using namespace on_backend;   // NOLINT
using namespace small_model;  // NOLINT

/// What a step of these batches reads and changes on all ranks together, by the layout.
struct Expected {
  std::int64_t read = 0, changed = 0, moved = 0, weights = 0;

  Expected(const Layout& layout, const std::vector<Batch>& batches) {
    std::set<std::array<std::int64_t, 4>> weighted;  // table, rank, rows: columns share weights
    for (const Shard& shard : layout.shards) {
      const bool copies = shard.rank == every_rank;
      const Rectangle& part = shard.rectangle;
      const bool whole = part.rows() == layout.tables[static_cast<std::size_t>(shard.table)].rows;
      const bool first =
          weighted.insert({shard.table, shard.rank, part.row_begin, part.row_end}).second;
      std::set<std::int64_t> rows;
      for (std::size_t f = 0; f < layout.features.size(); ++f) {
        if (layout.feature_table[f] != shard.table) continue;
        for (std::size_t rank = 0; rank < batches.size(); ++rank) {
          const Batch& batch = batches[rank];
          for (std::int64_t s = 0; s < batch.samples; ++s) {
            const std::size_t bag =
                f * static_cast<std::size_t>(batch.samples) + static_cast<std::size_t>(s);
            bool needed = whole;  // of bags that come whole, empty ones get a vector, too
            for (std::int64_t i = batch.offsets[bag]; i < batch.offsets[bag + 1]; ++i) {
              const std::int64_t id = batch.ids[static_cast<std::size_t>(i)];
              if (id < part.row_begin || id >= part.row_end) continue;
              ++read;
              rows.insert(id);
              needed = true;
              weights += layout.features[f].weighted && first;
            }
            moved += needed && !copies && shard.rank != static_cast<int>(rank);
          }
        }
      }
      changed += std::ssize(rows) * (copies ? layout.ranks() : 1);
    }
  }
};

/// Messages, rows and steps are those that there were, and the model is that of a collection that
/// reports nothing.
template <class Backend>
void reports_are_what_happened() {
  for (const int ranks : {1, 3})
    for (const bool replicated : {false, true}) {
      if (!Backend::host_readable && (ranks == 1 || !replicated)) continue;  // for the emulator
      CAPTURE(ranks);
      CAPTURE(replicated);
      const std::vector<Result> silent =
          train_ranks_on<Backend>(ranks, enough_steps<Backend>, replicated);
      const Layout layout = small_model::layout(ranks, replicated);
      on_ranks<Backend>(ranks, [&](CountingOn<Backend>& c, const Backend& backend) {
        EmbeddingsOn<Backend, CountingOn<Backend>, ReportSteps> e(
            c, backend, layout, {.learning_rate = 0.125f, .seed = 7});
        Result result;
        for (int step = 0; step < enough_steps<Backend>; ++step) {
          std::vector<Batch> all;
          for (int r = 0; r < ranks; ++r)
            all.emplace_back(r, step, samples_of(r, step), e.columns());
          const Batch& batch = all[static_cast<std::size_t>(c.rank())];
          const Given given(backend, batch, e.columns());
          c.reset();
          const auto pooled = e.forward(given.keyed());
          e.backward(pooled, given.gradient, given.of_weights.span());
          const auto sent = static_cast<std::int64_t>(c.total().bytes);
          const StepReport report = e.step_report();
          CHECK(report.bytes() == sent);
          CHECK(report.step == step + 1);
          CHECK(report.batches == 1);
          CHECK(report.norm != report.norm);
          CHECK(report.clipped_share == 0);
          CHECK(report[ReportedStage::route].rows == std::ssize(batch.ids));
          REQUIRE(report.spans.size() == detail::reported_stages.size());
          for (std::size_t i = 0; i < report.spans.size(); ++i) {
            CHECK(report.spans[i].stage == static_cast<ReportedStage>(i));
            CHECK(report.spans[i].begin <= report.spans[i].end);
            if (i > 0 && Backend::host_readable)
              CHECK(report.spans[i - 1].end <= report.spans[i].begin);
          }
          const std::vector<StepReport> of_all = gather_reports(c, report);
          REQUIRE(std::ssize(of_all) == ranks);
          const StepReport& mine = of_all[static_cast<std::size_t>(c.rank())];
          CHECK(mine.bytes() == report.bytes());
          CHECK(mine.seconds() == report.seconds());
          CHECK(mine.step == report.step);
          const Expected expected(layout, all);
          const auto rows_of = [&](ReportedStage stage) {
            std::int64_t rows = 0;
            for (const StepReport& other : of_all) rows += other[stage].rows;
            return rows;
          };
          CHECK(rows_of(ReportedStage::lookup) == expected.read);
          CHECK(rows_of(ReportedStage::update) == expected.changed);
          for (const ReportedStage stage :
               {ReportedStage::exchange, ReportedStage::assemble, ReportedStage::split,
                ReportedStage::exchange_gradients})
            CHECK(rows_of(stage) == expected.moved);
          CHECK(rows_of(ReportedStage::weight_gradients) == expected.weights);
          CHECK(report.imbalance == 0);
          CHECK(mine.imbalance == balance(of_all).imbalance());
          CHECK(mine.imbalance >= 1);
          for (const ReportedStage stage : {ReportedStage::route, ReportedStage::update})
            CHECK(mine[stage].imbalance == balance(of_all, stage).imbalance());
        }
        const std::vector<float> shards = shards_of(e);
        CHECK(same_bits(shards, silent[static_cast<std::size_t>(c.rank())].shards));
      });
    }
}

/// Batches of one step count together; what clipping held back is told.
template <class Backend>
void reports_of_accumulated_steps() {
  Alone<Backend> alone;
  LayoutCollection<Widths<>, Sgd, Backend, typename Alone<Backend>::Comm, ReportSteps> e(
      alone.communicator, alone.backend,
      make_layout({1}, {{"t", 8, 4}}, {{"f", "t"}}, {{0, {0, 8, 0, 4}, 0}}), {});
  const std::vector<std::int64_t> ids{2, 0, 2, 5};
  // row 2: (2, 0, 0, 6) of both batches; row 0: (0, 2, 0, 0); row 5: (0, 0, 0, 0)
  const std::vector<float> gradient{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0};
  const BatchOn<std::int64_t, Backend> batch(alone.backend, {1, 4, ids, {}, {}});
  const Array<float, Backend> values(alone.backend, gradient);
  const auto step = [&](const auto& clip) {
    for (int k = 0; k < 2; ++k)
      e.accumulate(e.forward(batch.keyed()), MatrixView<const float>{values.data(), 4, 4});
    e.apply(clip);
    return e.step_report();
  };
  const StepReport by_value = step(ClipByValue{1.5f});
  CHECK(by_value.step == 1);
  CHECK(by_value.batches == 2);
  CHECK(by_value[ReportedStage::route].rows == 8);
  CHECK(by_value[ReportedStage::lookup].rows == 8);
  CHECK(by_value.merged_rows() == 3);
  CHECK(by_value.clipped_share == 3.0 / 12);
  // route to exchange_gradients and the merging of each batch, and the optimizer's step
  CHECK(by_value.spans.size() == 2 * 7 + 1);
  CHECK(step(ClipByRowNorm{2.5f}).clipped_share == 1.0 / 3);
  const StepReport by_norm = step(ClipByGlobalNorm{1});
  CHECK(by_norm.clipped_share == 1);
  CHECK(by_norm.norm == doctest::Approx(6.6332496));
  CHECK(step(ClipByGlobalNorm{7}).clipped_share == 0);
  CHECK(step(KeepGradients{}).merged_rows() == 3);
  e.report_steps(false);
  CHECK(step(KeepGradients{}).step == 5);
  e.report_steps(true);
  CHECK(step(KeepGradients{}).step == 7);
}

}  // namespace step_reports
