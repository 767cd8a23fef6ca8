// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "plans.hpp"

#include "table_optimizers.hpp"

#include "../tessera_plan/cluster_file.hpp"

#include <tessera/core/error.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/explain_plan.hpp>
#include <tessera/planner/keep_on_host.hpp>
#include <tessera/planner/plan_file.hpp>
#include <tessera/planner/plan_layout.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera/sharding/table.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <type_traits>
#include <utility>

namespace dlrm {
namespace {

using namespace tessera;

/// The tables of the given categories (from 1, as in Criteo's description); rows are known at run
/// time.
template <int Width, int... Categories>
constexpr std::array<TableSpec, sizeof...(Categories)> kSpecs{
    TableSpec{kNames[Categories - 1], dynamic_rows, Width}...};
template <int Width, int... Categories>
using Some = Tables<kSpecs<Width, Categories...>>;
template <int Width>
using All = Some<Width, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                 22, 23, 24, 25, 26>;

/// Outputs stand in the order of the categories, whatever the order of the plan.
constexpr auto kFeatureSpecs = [] {
  std::array<FeatureSpec, kFeatures> features;
  for (std::size_t i = 0; i < kFeatures; ++i) features[i] = {.name = kNames[i], .table = kNames[i]};
  return features;
}();
using InOrder = Features<FeatureArray<kFeatureSpecs>>;

template <int Width>
using AllTableWise = Plan<TableWise<All<Width>>, InOrder>;
template <int Width>
using AllColumnWise = Plan<ColumnWise<2, All<Width>>, InOrder>;
template <int Width>
using AllRowWise = Plan<RowWise<All<Width>>, InOrder>;
template <int Width>
using AllGrid = Plan<Grid<2, All<Width>>, InOrder>;
template <int Width>
using AllReplicated = Plan<Replicated<All<Width>>, InOrder>;

/// Every policy at once, each where it fits the table sizes of Criteo's 1 TB logs: the largest
/// tables are cut by rows, by columns, or both; tiny ones are copied to every rank; the rest stay
/// whole, spread over the ranks, two of them together.
template <int Width>
using Mixed = Plan<
    RowWise<Some<Width, 1, 20>>, Grid<2, Some<Width, 22>>, ColumnWise<2, Some<Width, 10, 11, 21>>,
    Replicated<Some<Width, 6, 9, 13, 16, 17, 19, 25, 26>>,
    TableWise<Some<Width, 2, 3, 4, 5, 7, 12, 15, 18, 23, 24>, Fused<Some<Width, 8, 14>>>, InOrder>;

template <template <int> class PlanOfWidth>
Layout layout_of(int width, const Topology& topology, const std::vector<TableRows>& rows) {
  Layout layout;
  bool found = false;
  const auto try_width = [&]<int Width>(std::integral_constant<int, Width>) {
    if (width == Width) {
      layout = PlanOfWidth<Width>::layout(topology, rows);
      found = true;
    }
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (try_width(std::integral_constant<int, kWidths[I]>{}), ...);
  }(std::make_index_sequence<kWidths.size()>{});
  require(found, "plans of width {} are not compiled in", width);
  return layout;
}

/// What bench_sharding measured on this machine, else another host's. Processes on several
/// machines, which must agree on a plan, take the latter unless all are told of one file.
plan::Constants constants_of(const Options& options, int ranks) {
  if (options.backend == "cuda") {
    plan::Constants constants{hgx_h200(ranks), "hgx-h200, from data sheets: never measured here"};
    constants.cluster.ranks_per_node = 0;
    constants.cluster.concurrent_ranks = 1;  // all ranks share one GPU
    constants.cluster.memory_per_rank = options.device_memory;
    constants.cluster.host_memory_per_rank = options.device_memory == 0 ? 0
                                             : options.host_memory == 0 ? std::int64_t{1} << 60
                                                                        : options.host_memory;
    return constants;
  }
  const int cores =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / options.threads_per_rank);
  plan::Constants constants{cpu_host(ranks, cores),
                            "of a 2-core x86-64 server, not of this machine: run bench_sharding "
                            "once, which measures and keeps them"};
  const bool shared = std::getenv("TESSERA_MACHINE") != nullptr;
  if (options.communicator == "threads" || shared)
    if (auto measured = plan::cached_constants()) constants = std::move(*measured);
  constants.cluster.ranks = ranks;
  constants.cluster.ranks_per_node = 0;
  constants.cluster.concurrent_ranks = cores;
  return constants;
}

Workload workload_of(const Options& options) {
  const auto wire_bytes = [](std::string_view codec) {
    return codec == "fp32" ? 4.0 : codec == "int8" ? 1.0 : 2.0;
  };
  return {.batch = options.batch_size,
          .skew = options.power,
          .id_bytes = sizeof(std::int32_t),
          .wire_bytes = (wire_bytes(options.codec) + wire_bytes(options.gradient_codec)) / 2,
          .memory = memory_cost(options.optimizer)};
}

std::vector<TableSpec> tables_of(const Options& options, const DataShape& shape) {
  std::vector<TableSpec> tables;
  for (const DataShape::Table& table : shape.tables)
    tables.push_back({.name = table.name, .rows = table.rows, .width = options.embedding_width});
  return tables;
}
std::vector<FeatureSpec> features_of(const DataShape& shape) {
  std::vector<FeatureSpec> features;
  for (const DataShape::Feature& feature : shape.features)
    features.push_back({.name = feature.name,
                        .table = shape.tables[feature.table].name,
                        .pooling = feature.pooling});
  return features;
}

Layout planned(const Options& options, int ranks, const DataShape& shape) {
  return plan_layout(tables_of(options, shape), features_of(shape),
                     constants_of(options, ranks).cluster, workload_of(options));
}

/// Of data that are not of Criteo's shape: what needs no plan that is compiled in.
Layout layout_of_any(const Options& options, int ranks, const DataShape& shape) {
  if (options.plan == "auto" || options.plan == "mixed") return planned(options, ranks, shape);
  require(options.plan == "table-wise" || options.plan == "row-wise",
          "--plan {} is for 26 categories with a table each; choose auto, table-wise or row-wise",
          options.plan);
  std::vector<Shard> shards;
  for (int t = 0; t < std::ssize(shape.tables); ++t) {
    const std::int64_t rows = shape.tables[static_cast<std::size_t>(t)].rows;
    const std::int32_t width = options.embedding_width;
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t begin = even_cut(rows, ranks, r), end = even_cut(rows, ranks, r + 1);
      if (options.plan == "row-wise" && begin < end)
        shards.push_back({t, {begin, end, 0, width}, r});
    }
    if (options.plan == "table-wise") shards.push_back({t, {0, rows, 0, width}, t % ranks});
  }
  return tessera::make_layout(Topology{ranks}, tables_of(options, shape), features_of(shape),
                              std::move(shards));
}

}  // namespace

namespace {

Layout any_memory_layout(const Options& options, int ranks, const DataShape& shape) {
  if (!options.plan_file.empty())
    return read_plan_file(options.plan_file, tables_of(options, shape), features_of(shape),
                          Topology{ranks});
  if (!shape.is_criteo()) return layout_of_any(options, ranks, shape);
  const std::string_view plan = options.plan;
  const int width = options.embedding_width;
  const Topology topology{ranks};
  std::vector<TableRows> named;
  for (std::size_t f = 0; f < kFeatures; ++f) named.push_back({kNames[f], shape.tables[f].rows});
  if (plan == "auto") return planned(options, ranks, shape);
  if (plan == "table-wise") return layout_of<AllTableWise>(width, topology, named);
  if (plan == "column-wise") return layout_of<AllColumnWise>(width, topology, named);
  if (plan == "row-wise") return layout_of<AllRowWise>(width, topology, named);
  if (plan == "grid") return layout_of<AllGrid>(width, topology, named);
  if (plan == "replicated") return layout_of<AllReplicated>(width, topology, named);
  if (plan == "mixed") return layout_of<Mixed>(width, topology, named);
  throw InvalidArgument(fmt::format("there is no plan '{}'", plan));
}

}  // namespace

Layout make_layout(const Options& options, int ranks, const DataShape& shape) {
  Layout layout = any_memory_layout(options, ranks, shape);
  if (options.device_memory == 0 || options.plan == "auto") return layout;
  return keep_on_host(std::move(layout), memory_cost(options.optimizer), options.device_memory,
                      options.host_memory);
}

std::string explain_plan(const Options& options, const Layout& layout) {
  if (options.plan != "auto") return {};
  const plan::Constants constants = constants_of(options, layout.ranks());
  const Workload workload = workload_of(options);
  const CostModel model(layout.tables, layout.features, layout.feature_table, constants.cluster,
                        workload);
  const Prediction prediction = predict(layout, model);
  std::vector<int> tables(layout.tables.size());
  std::iota(tables.begin(), tables.end(), 0);
  std::string text = "why each table is cut so, with the other tables as they are:\n";
  for (const CutReason& reason : explain_cuts(layout, model, {}, tables))
    text +=
        fmt::format("{:<6} {}: {}\n", layout.tables[static_cast<std::size_t>(reason.table)].name,
                    describe(reason.cut), describe(reason));
  return text + fmt::format("predicted step of the embeddings: {}\n{}\nconstants: {}\n",
                            describe_step(prediction, workload),
                            describe_margin(runner_up(layout, model, 0), prediction.step_seconds,
                                            constants.measured),
                            constants.source);
}

}  // namespace dlrm
