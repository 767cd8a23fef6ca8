// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/collection/embedding_collection.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/measure.hpp>
#include <tessera/tables/matrix.hpp>

#include <support/temporary_folder.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <support/message_of.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace tessera;

using Item = Table<"item", 1000, 8>;
using Kind = Table<"kind", 10, 4>;
using ByRows = Plan<RowWise<Item>, RowWise<Kind>>;
using Turned = Plan<TableWise<Kind>, ColumnWise<2, Item>>;  // the other order of features
using Larger = Plan<RowWise<Table<"item", 1001, 8>>, RowWise<Kind>>;
using OnFiles = Plan<RowWise<Item>, Cached<10, OnFile<RowWise<Kind>>>>;
using Alone = Plan<RowWise<Item>>;
using Listed = Plan<RowWise<Item>, RowWise<Table<"kind", 10, 4, Sequence>>>;

constexpr int kSamples = 24;

/// Bags of three items, and one kind, of each sample.
struct Batches {
  std::vector<int> ids;
  std::vector<std::int64_t> offsets{0};
  std::vector<KeyedJagged<int>> all;

  Batches() {
    for (int i = 0; i < 3 * kSamples; ++i) ids.push_back(i * 37 % 1000);
    for (int s = 0; s < kSamples; ++s) ids.push_back(s % 10);
    for (int s = 0; s < kSamples; ++s) offsets.push_back(3 * s + 3);
    for (int s = 0; s < kSamples; ++s) offsets.push_back(3 * kSamples + s + 1);
    all.assign(1, {2, kSamples, ids, offsets, {}});
  }
};

/// What the rank that sends most sends in a step of Turned's collection, on two ranks.
std::uint64_t bytes_of_turned(const Batches& batches) {
  std::vector<std::uint64_t> sent(2);
  run_ranks(2, [&](ThreadCommunicator& rank) {
    CountingCommunicator counted(rank);
    EmbeddingCollection<Turned, RowWiseAdagrad, Host, CountingCommunicator<ThreadCommunicator>>
        tables(counted, Host(), {.learning_rate = 0.1f});
    const int mine = kSamples / 2, first = mine * rank.rank();
    std::vector<int> ids;
    std::vector<std::int64_t> offsets{0};
    for (int s = first; s < first + mine; ++s) {
      ids.push_back(batches.ids[3 * kSamples + s]);
      offsets.push_back(std::ssize(ids));
    }
    for (int s = first; s < first + mine; ++s) {
      for (int i = 0; i < 3; ++i) ids.push_back(batches.ids[3 * s + i]);
      offsets.push_back(std::ssize(ids));
    }
    counted.reset();
    const auto pooled = tables.forward(KeyedJagged<int>{2, mine, ids, offsets, {}});
    const Matrix<float> gradient(mine, 12);
    tables.backward(pooled, gradient);
    sent[rank.rank()] = counted.total().bytes;
  });
  return std::max(sent[0], sent[1]);
}

}  // namespace

TEST_CASE("plans are measured with the same batches, beside their predictions") {
  const Batches batches;
  MeasureOptions<RowWiseAdagrad> options;
  options.steps = 3;
  options.names = {"rows", "turned"};
  const auto plans = measure_plans<ByRows, Turned>(batches.all, 2, options);
  REQUIRE(plans.size() == 2);
  for (const MeasuredPlan& plan : plans) {
    CAPTURE(plan.name);
    for (const auto stage : detail::embedding_stages) CHECK(plan.measured.stages.*stage > 0);
    CHECK(plan.measured.step_seconds > 0);
    CHECK(plan.measured.time_imbalance >= 1);
    CHECK(plan.predicted.step_seconds > 0);
    CHECK(plan.predicted_imbalance() >= 1);
    CHECK(plan.workload.batch == kSamples);
    CHECK(plan.workload.id_bytes == 4);
    CHECK(plan.workload.memory.per_row == 4);
    for (const FeatureSpec& feature : plan.layout.features)
      CHECK(feature.hotness == (feature.name == "item" ? 3 : 1));
  }
  CHECK(plans[1].layout.features[0].name == "kind");
  CHECK(plans[1].measured.traffic.bytes == bytes_of_turned(batches));
  CHECK(plans[0].predicted.bytes ==
        std::vector<std::int64_t>{(32 + 4) * 500 + (16 + 4) * 5, (32 + 4) * 500 + (16 + 4) * 5});
  const std::string text = describe_plans(plans);
  for (const std::string& name :
       {std::string("rows  "), std::string("turned  "), detail::bytes_text(36 * 500 + 20 * 5),
        detail::bytes_text(static_cast<std::int64_t>(plans[1].measured.traffic.bytes))})
    CHECK(text.find(name) != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 6);
}

TEST_CASE("plans with tables in files are measured in a folder that is named") {
  const Batches batches;
  const TemporaryFolder folder;
  MeasureOptions<> options;
  options.steps = 1;
  CHECK(message_of([&] {
          measure_plans<OnFiles>(batches.all, 2, options);
        }).find("table 'kind' is OnFile; give Options::files.folder") != std::string::npos);
  options.files.folder = folder.path.string();
  CHECK(measure_plans<OnFiles>(batches.all, 2, options)[0].measured.step_seconds > 0);
}

TEST_CASE("what cannot be measured is told") {
  const Batches batches;
  CHECK(message_of<InvalidArgument>([&] {
          measure_plans<ByRows>(std::vector<KeyedJagged<int>>{}, 2);
        }) == "measure_plans: there are no batches; give at least one");
  for (const int ranks : {0, -1})
    CHECK(message_of<InvalidArgument>([&] { measure_plans<ByRows>(batches.all, ranks); }) ==
          fmt::format("measure_plans: {} ranks; give 1 to 32767", ranks));
  CHECK(message_of<InvalidArgument>([&] { measure_plans<ByRows>(batches.all, 5); }) ==
        "measure_plans: batch 0 has 24 samples, which do not part among 5 ranks; give a multiple "
        "of 5");
  CHECK(message_of<InvalidArgument>([&] { measure_plans<ByRows, Larger>(batches.all, 2); }) ==
        "measure_plans: table 'item' of 'plan 2' is not the same in 'plan 1'; give plans of the "
        "same tables and features");
  CHECK(message_of<InvalidArgument>([&] { measure_plans<ByRows, Alone>(batches.all, 2); }) ==
        "measure_plans: 'plan 2' has 1 tables, 'plan 1' has 2");
  CHECK(message_of<InvalidArgument>([&] { measure_plans<Alone>(batches.all, 2); }) ==
        "measure_plans: batch 0 has 2 features, the plans 1");
  CHECK(message_of<InvalidArgument>([&] { measure_plans<Listed>(batches.all, 2); }) ==
        "measure_plans: feature 'kind' has pooling 'none'; sums, means and sqrtn are measured");
  MeasureOptions<> options;
  options.steps = 0;
  CHECK(message_of<InvalidArgument>([&] { measure_plans<ByRows>(batches.all, 2, options); }) ==
        "measure_plans: 0 steps; give at least one");
  options.steps = 1;
  options.names = {"one", "two"};
  CHECK(message_of<InvalidArgument>([&] { measure_plans<ByRows>(batches.all, 2, options); }) ==
        "measure_plans: 2 names for 1 plans");
}
