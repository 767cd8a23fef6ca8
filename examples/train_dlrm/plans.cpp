// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "plans.hpp"

#include "table_optimizers.hpp"

#include "../tessera_plan/cluster_file.hpp"

#include <tessera/comm/job.hpp>
#include <tessera/core/error.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/explain_plan.hpp>
#include <tessera/planner/keep_on_host.hpp>
#include <tessera/planner/plan_file.hpp>
#include <tessera/planner/plan_layout.hpp>
#include <tessera/planner/strategies.hpp>
#include <tessera/sharding/placement.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace dlrm {
namespace {

using namespace tessera;

/// A table's cut, and the table that must lie on the same rank.
struct TablePolicy {
  detail::TableCut cut;
  std::size_t fused_with;  ///< itself: none
};

/// Rectangles and ranks of tables that have policies, as Plan works them out of types.
Layout cut_by(const std::vector<TablePolicy>& policies, Layout layout) {
  std::vector<detail::PlacementRequest> requests;
  std::vector<int> first_unit;
  int units = 0;
  for (std::size_t t = 0; t < policies.size(); ++t) {
    const TableSpec& table = layout.tables[t];
    const std::size_t leader = policies[t].fused_with;
    first_unit.push_back(leader == t ? units : first_unit[leader]);
    const int count = detail::shard_count(policies[t].cut, table, layout.topology);
    for (int i = 0; i < count; ++i) {
      const ShardRequest request =
          detail::shard_request(policies[t].cut, table, layout.topology, i);
      if (request.rectangle.empty()) continue;
      const bool member = request.place.kind == Place::Kind::node_member;
      const int unit = first_unit[t] + (member ? request.place.group : i);
      units = std::max(units, unit + 1);
      requests.push_back({static_cast<int>(t), request, unit});
      layout.shards.push_back(
          {static_cast<int>(t), request.rectangle, detail::unplaced_rank, request.tier});
    }
  }
  const detail::Placement placement(layout, requests);
  layout.fault = detail::check_cover(layout);
  return layout;
}

/// What --plan makes of a table. One column cannot be cut in two, nor can an odd number.
detail::TableCut cut_of(std::string_view plan, int hot_rows, const TableSpec& table) {
  const bool even = table.width % 2 == 0;
  if (plan == "table-wise") return {.cut = Cut::table_wise};
  if (plan == "replicated") return {.cut = Cut::replicated};
  if (plan == "column-wise" && even) return {.cut = Cut::column_wise, .parts = 2};
  if (plan == "column-wise") return {.cut = Cut::table_wise};
  if (plan == "grid" && even) return {.cut = Cut::grid, .parts = 2};
  if (plan == "interleaved") return {.cut = Cut::interleaved};
  if (plan == "hot-rows") return {.cut = Cut::hot_rows, .parts = hot_rows};
  require(plan == "row-wise" || plan == "grid", "there is no plan '{}'", plan);
  return {.cut = Cut::row_wise};
}

/// Every policy at once, each where it fits the table sizes of Criteo's 1 TB logs: the largest
/// tables are cut by rows, by columns, or both; tiny ones are copied to every rank; the rest stay
/// whole, spread over the ranks.
constexpr std::string_view mixed(std::size_t category) {
  constexpr std::array<std::string_view, kFeatures> plans{
      "row-wise",   "table-wise", "table-wise",  "table-wise",  "table-wise",  "replicated",
      "table-wise", "table-wise", "replicated",  "column-wise", "column-wise", "table-wise",
      "replicated", "table-wise", "table-wise",  "replicated",  "replicated",  "table-wise",
      "replicated", "row-wise",   "column-wise", "grid",        "table-wise",  "table-wise",
      "replicated", "replicated"};
  return plans[category];
}
/// Two of the tables that stay whole are fused: categories 8 and 14.
constexpr std::size_t kFused = 13, kFusedWith = 7;

/// Whether this machine's file may be read: by processes, which must agree on a plan, only if all
/// are told of one file.
bool reads_machine(const Options& options) {
  return options.communicator == "threads" || std::getenv("TESSERA_MACHINE") != nullptr ||
         (options.communicator == "nccl" && rank_from_environment().size == 1);
}

/// What --check-links found of the communicator takes the place of what is assumed.
plan::Constants with_links(plan::Constants constants, const Options& options) {
  if (!reads_machine(options)) return constants;
  const auto links =
      plan::cached_links(options.communicator, rank_from_environment().one_machine());
  if (!links) return constants;
  constants.cluster.node_bandwidth = links->bandwidth;
  constants.source += fmt::format("; links as --check-links found them ({}, {} ranks, {})",
                                  links->name(), links->ranks, links->measured.date);
  return constants;
}

/// What bench_sharding measured on this machine, else another host's.
plan::Constants constants_of(const Options& options, int ranks) {
  if (options.backend == "cuda") {
    plan::Constants constants{hgx_h200(ranks), "hgx-h200, from data sheets: never measured here"};
    constants.cluster.ranks_per_node = 0;
    // all ranks share one GPU, or have one each
    constants.cluster.concurrent_ranks = options.communicator == "nccl" ? 0 : 1;
    constants.cluster.memory_per_rank = options.device_memory;
    if (!options.table_files.empty())
      constants.cluster.file_memory_per_rank = std::int64_t{1} << 60;
    else if (options.device_memory != 0)
      constants.cluster.host_memory_per_rank =
          options.host_memory == 0 ? std::int64_t{1} << 60 : options.host_memory;
    return with_links(std::move(constants), options);
  }
  const int cores =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / options.threads_per_rank);
  plan::Constants constants{cpu_host(ranks, cores),
                            "of a 2-core x86-64 server, not of this machine: run bench_sharding "
                            "once, which measures and keeps them"};
  if (reads_machine(options))
    if (auto measured = plan::cached_constants()) constants = std::move(*measured);
  constants.cluster.ranks = ranks;
  constants.cluster.ranks_per_node = 0;
  constants.cluster.concurrent_ranks = cores;
  if (!options.table_files.empty()) {
    constants.cluster.memory_per_rank = options.host_memory;
    constants.cluster.file_memory_per_rank = std::int64_t{1} << 60;
  }
  return with_links(std::move(constants), options);
}

Workload workload_of(const Options& options) {
  const auto wire_bytes = [](std::string_view codec) {
    return codec == "fp32" ? 4.0 : codec == "int8" ? 1.0 : 2.0;
  };
  return {.batch = options.batch_size,
          .skew = options.power,
          .id_bytes = sizeof(std::int32_t),
          .element_bytes = options.table_precision == "fp32" ? 4 : 2,
          .wire_bytes = (wire_bytes(options.codec) + wire_bytes(options.gradient_codec)) / 2,
          .memory = {.mean_squares = true}};  // of tables that keep a state for each row
}

/// Each table with what its optimizer and the precision make it cost.
Layout uncut(const Options& options, int ranks, const DataShape& shape) {
  std::vector<TableSpec> tables;
  std::vector<FeatureSpec> features;
  for (const DataShape::Table& table : shape.tables)
    tables.push_back({.name = table.name, .rows = table.rows, .width = table.width});
  for (const DataShape::Feature& feature : shape.features)
    features.push_back({.name = feature.name,
                        .table = shape.tables[feature.table].name,
                        .pooling = feature.pooling,
                        .hotness = static_cast<double>(feature.hotness)});
  Layout layout = uncut_layout(Topology{ranks}, std::move(tables), std::move(features));
  const std::vector<int> optimizers = optimizers_of(options.optimizer, layout);
  for (std::size_t t = 0; t < optimizers.size(); ++t) {
    const detail::MemoryCost cost = memory_cost(optimizers[t], options.table_precision);
    layout.tables[t].bytes_per_element = static_cast<std::int32_t>(cost.per_element);
    layout.tables[t].bytes_per_row = static_cast<std::int32_t>(cost.per_row);
  }
  return layout;
}

Layout any_memory_layout(const Options& options, int ranks, const ModelShape& shape) {
  Layout layout = uncut(options, ranks, shape);
  if (!options.plan_file.empty())
    return read_plan_file(options.plan_file, layout.tables, layout.features, layout.topology);
  const bool mix = options.plan == "mixed";
  if (options.plan == "auto" || (mix && !shape.criteo)) {
    layout =
        plan_layout(std::move(layout), constants_of(options, ranks).cluster, workload_of(options));
    require(
        layout.fault.ok() || options.table_files.empty(),
        "{} {}: too little for the caches of tables in --table-files under --plan {}, which needs "
        "room for the rows of four batches in each; give more, or a plan such as table-wise, "
        "which caches what there is room for ({})",
        options.backend == "cuda" ? "--device-memory" : "--host-memory",
        detail::bytes_text(options.memory_before_files()), options.plan, describe(layout.fault));
    return layout;
  }
  std::vector<TablePolicy> policies;
  for (std::size_t t = 0; t < layout.tables.size(); ++t)
    policies.push_back(
        {cut_of(mix ? mixed(t % kFeatures) : options.plan, options.hot_rows, layout.tables[t]),
         mix && t == kFused ? kFusedWith : t});
  return cut_by(policies, std::move(layout));
}

}  // namespace

Layout make_layout(const Options& options, int ranks, const ModelShape& shape) {
  Layout layout = any_memory_layout(options, ranks, shape);
  for (Shard& shard : layout.shards) {
    if (shard.tier != Tier::file) continue;
    require(!options.table_files.empty(),
            "--plan-file {}: table '{}' is in a file; add --table-files DIR {} SIZE",
            options.plan_file, layout.tables[static_cast<std::size_t>(shard.table)].name,
            options.backend == "cuda" ? "--device-memory" : "--host-memory");
    if (options.plan_file.empty()) shard.cache_rows = 0;  // all that is left: see files_of
  }
  if (!options.table_files.empty())
    return detail::keep_on_file(std::move(layout), {}, options.memory_before_files());
  if (options.device_memory == 0 || options.plan == "auto") return layout;
  return detail::keep_on_host(std::move(layout), {}, options.device_memory, options.host_memory);
}

int file_queue_depth() {
  const auto measured = plan::cached_constants();
  return (measured ? measured->cluster : Cluster{}).file_queue_depth;
}

StepTraffic step_traffic(const Options& options, const Layout& layout) {
  plan::Constants constants = constants_of(options, layout.ranks());
  detail::Prediction prediction =
      predict(layout, constants.cluster, workload_of(options), /*traffic=*/true);
  return {std::move(prediction.id_traffic), std::move(prediction.vector_traffic), constants.cluster,
          std::move(constants.source)};
}

std::string explain_plan(const Options& options, const Layout& layout) {
  if (options.plan != "auto") return {};
  const plan::Constants constants = constants_of(options, layout.ranks());
  const Workload workload = workload_of(options);
  const detail::CostModel model(layout.tables, layout.features, layout.feature_table,
                                constants.cluster, workload);
  const detail::Prediction prediction = predict(layout, model);
  std::vector<int> tables(layout.tables.size());
  std::iota(tables.begin(), tables.end(), 0);
  std::string text = "why each table is cut so, with the other tables unchanged:\n";
  for (const detail::CutReason& reason : detail::explain_cuts(layout, model, {}, tables))
    text +=
        fmt::format("{:<6} {}: {}\n", layout.tables[static_cast<std::size_t>(reason.table)].name,
                    describe(reason.cut), describe(reason));
  return text + fmt::format("predicted step of the embeddings: {}\n{}\nconstants: {}\n",
                            detail::describe_step(prediction, workload),
                            detail::describe_margin(detail::runner_up(layout, model, {}),
                                                    prediction.step_seconds, constants.measured),
                            constants.source);
}

}  // namespace dlrm
