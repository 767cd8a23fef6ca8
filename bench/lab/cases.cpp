// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "cases.hpp"

#include "../../examples/support/files.hpp"
#include "../../examples/tessera_plan/choices.hpp"
#include "../../examples/tessera_plan/id_statistics.hpp"

#include <tessera/core/random.hpp>
#include <tessera/io/text.hpp>
#include <tessera/planner/plan_file.hpp>
#include <tessera/planner/plan_layout.hpp>
#include <tessera/planner/runner_up.hpp>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <optional>
#include <utility>

namespace lab {
namespace {

using namespace tessera;

constexpr std::array<std::pair<const char*, Strategy>, 6> kStrategies{
    {{"table-wise", Strategy::round_robin},
     {"memory-balanced", Strategy::memory_balanced},
     {"memory-optimized", Strategy::memory_optimized},
     {"column-wise", Strategy::column_wise},
     {"row-wise", Strategy::row_wise},
     {"replicated", Strategy::replicated}}};

bool is_file(const std::string& plan) {
  return plan.find('.') != plan.npos || plan.find('/') != plan.npos;
}

/// The ranks that a plan file is for.
int ranks_of(const std::string& path) {
  const std::string text = support::read_file(path, "--plans");
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  require<DataError>(json.is_object() && json.contains("tessera_plan") && json.contains("ranks") &&
                         json.at("ranks").is_number_integer(),
                     "--plans: '{}' is no plan file, as tessera_plan --out writes it", path);
  return json.at("ranks").get<int>();
}

/// Tables by one policy alone.
tessera::detail::PlanConstraints only(const NamedPolicy& policy) {
  tessera::detail::PlanConstraints constraints;
  constraints.forbidden.assign(plan::kCuts.begin(), plan::kCuts.end());
  constraints.policies.push_back(policy.policy);
  return constraints;
}

/// No value: a plan file for other ranks. A layout with a fault is a case that fails.
std::optional<Layout> layout_of(const std::string& name, const Settings& settings,
                                const Layout& uncut, const Cluster& cluster,
                                const Workload& workload) {
  Layout layout = uncut;
  if (name == "auto") {
    layout = plan_layout(uncut, cluster, workload, settings.constraints);
  } else if (const auto* const strategy =
                 std::find_if(kStrategies.begin(), kStrategies.end(),
                              [&](const auto& known) { return name == known.first; });
             strategy != kStrategies.end()) {
    layout.shards = shards_of(strategy_choice(strategy->second, uncut), uncut);
  } else if (name == "grid") {
    tessera::detail::PlanChoice grid;
    for (const TableSpec& table : uncut.tables)
      grid.tables.push_back({Cut::grid, table.width % 2 == 0 ? 2 : 1,
                             std::vector<int>(table.width % 2 == 0 ? 2 : 1, 0)});
    layout.shards = shards_of(grid, uncut);
  } else if (const std::optional<int> hot = plan::hot_rows(name, "--plans");
             hot || name == "interleaved") {
    tessera::detail::PlanChoice dealt;
    dealt.tables.assign(uncut.tables.size(),
                        {.cut = hot ? Cut::hot_rows : Cut::interleaved, .parts = hot.value_or(1)});
    layout.shards = shards_of(dealt, uncut);
  } else if (const auto policy =
                 std::find_if(settings.policies.begin(), settings.policies.end(),
                              [&](const NamedPolicy& known) { return name == known.name; });
             policy != settings.policies.end()) {
    layout = plan_layout(uncut, cluster, workload, only(*policy));
  } else if (is_file(name)) {
    if (ranks_of(name) != uncut.ranks()) return std::nullopt;
    layout = read_plan_file(name, uncut.tables, uncut.features, uncut.topology);
  } else {
    std::vector<std::string> known{"auto", "grid", "interleaved", "hot-rows:N"};
    for (const auto& [known_name, value] : kStrategies) known.emplace_back(known_name);
    for (const NamedPolicy& own : settings.policies) known.push_back(own.name);
    throw InvalidArgument(
        fmt::format("--plans: there is no plan '{}'; there are {}, and plan files", name,
                    fmt::join(known, ", ")));
  }
  for (const Shard& shard : layout.shards)
    require(shard.tier != Tier::file || shard.cache_rows > 0,
            "--plans: '{}' has table '{}' in a file without a cache; give its shards cache_rows",
            name, layout.tables[static_cast<std::size_t>(shard.table)].name);
  return layout;
}

/// Of an element, in a table or on its way.
int element_bytes(const std::string& precision) { return precision == "fp32" ? 4 : 2; }

/// What the case's steps cost, besides what its layout says.
Workload workload_of(const Settings& settings, const Case& c, std::int64_t samples) {
  Workload workload = settings.model.workload;
  workload.batch = samples;
  workload.dense_flops = workload.dense_bytes = 0;  // the embeddings alone are measured
  workload.dense_parameters = 0;
  workload.memory = plan::optimizer_named(c.optimizer).memory;
  workload.element_bytes = element_bytes(c.precision);
  workload.memory.per_element += workload.element_bytes - 4;
  workload.wire_bytes = element_bytes(c.codec);
  return workload;
}

/// One case for each choice of those axes that plans depend on, with neither plan nor layout.
std::vector<Case> axes_of(const Settings& settings) {
  std::vector<Case> all;
  for (const std::string& optimizer : settings.optimizers)
    for (const std::string& codec : settings.codecs)
      for (const std::string& precision : settings.precisions) {
        Case& c = all.emplace_back();
        c.optimizer = optimizer;
        c.codec = codec;
        c.precision = precision;
      }
  return all;
}

/// What an axis that is off or on has.
std::vector<bool> switched(const Settings& settings, const char* axis) {
  return settings.has_axis(axis) ? std::vector{false, true} : std::vector{false};
}

}  // namespace

bool Case::cached() const {
  return std::any_of(layout.shards.begin(), layout.shards.end(),
                     [](const Shard& shard) { return shard.tier == Tier::file; });
}

std::string Case::group() const {
  const std::string alone =  // of another plan the same rank has other work
      ghosts.size() == 1 && ranks > 1 ? fmt::format(" (rank {} alone)", ghosts[0]) : "";
  return fmt::format("{} {}rank{}{}, {}{}{}{}{}", ranks, ghosts.empty() ? "" : "ghost ",
                     ranks == 1 ? "" : "s", alone, optimizer, codec == "fp32" ? "" : ", " + codec,
                     deduplicate ? ", duplicates removed" : "",
                     precision == "fp32" ? "" : ", tables in " + precision,
                     overlap ? ", routed ahead" : "");
}

std::uint64_t Case::ghost_checksum() const {
  if (ghosts.empty()) return 0;
  std::uint64_t sum = static_cast<std::uint64_t>(links.ranks_per_node);
  for (const int rank : ghosts) sum = random_word(sum, static_cast<std::uint64_t>(rank));
  for (const double of : {links.node_bandwidth, links.node_latency, links.network_bandwidth,
                          links.network_latency, links.launch_seconds})
    sum = random_word(sum, std::bit_cast<std::uint64_t>(of));
  return sum;
}

std::vector<Case> cases_of(const Settings& settings, const Batches& batches) {
  std::vector<Case> cases;
  std::vector<bool> used(settings.plans.size(), false);
  for (const std::string& ranks_text : settings.ranks) {
    const RankChoice choice = rank_choice(ranks_text);
    const int ranks = choice.ranks;
    Cluster cluster = settings.constants.cluster;
    cluster.ranks = ranks;
    if (choice.ghosts)
      cluster.concurrent_ranks = 0;  // a ghost has this machine to itself
    else
      cluster.ranks_per_node = 0;  // threads of one process
    std::vector<int> ghosts;
    for (int r = 0; r < ranks && choice.ghosts; ++r)
      if (settings.which == "all" || std::to_string(r) == settings.which) ghosts.push_back(r);
    require(!choice.ghosts || !ghosts.empty(), "--which: there is no rank {} of {}", settings.which,
            ranks);
    Layout uncut = uncut_layout(cluster.topology(), settings.model.tables, settings.model.features);
    require(uncut.fault.ok(), "{}: {}", settings.model_file, describe(uncut.fault));
    for (std::size_t f = 0; f < uncut.features.size(); ++f) {
      require<DataError>(!tessera::detail::keeps_rows(uncut.features[f].pooling),
                         "{}: feature '{}' has pooling '{}'; sums, means and sqrtn are measured",
                         settings.model_file, uncut.features[f].name,
                         to_string(uncut.features[f].pooling));
      uncut.features[f].hotness = std::max(1e-3, batches.hotness[f]);
    }
    for (std::size_t t = 0; t < uncut.tables.size() && !settings.ids.empty(); ++t) {
      uncut.tables[t].frequencies = nullptr;  // what the model's file names is of other ids
      uncut.tables[t].skew = plan::fitted_skew(
          batches.given[t], static_cast<double>(uncut.tables[t].rows), batches.distinct[t]);
    }
    require(batches.samples % ranks == 0,
            "--batch: {} samples do not part among {} ranks; give a multiple of {}",
            batches.samples, ranks, ranks);
    for (const Case& axes : axes_of(settings)) {
      const Workload workload = workload_of(settings, axes, batches.samples);
      for (std::size_t p = 0; p < settings.plans.size(); ++p) {
        const std::string& name = settings.plans[p];
        const std::optional<Layout> layout = layout_of(name, settings, uncut, cluster, workload);
        if (!layout) continue;
        used[p] = true;
        for (const bool overlap : switched(settings, "overlap"))
          for (const bool deduplicate : switched(settings, "deduplicate")) {
            Case& c = cases.emplace_back(axes);
            c.name = fmt::format("ranks:{}/plan:{}/optimizer:{}/codec:{}/deduplicate:{}{}{}",
                                 ranks_text, name, c.optimizer, c.codec, deduplicate ? "on" : "off",
                                 c.precision == "fp32" ? "" : "/precision:" + c.precision,
                                 overlap ? "/overlap:on" : "");
            if (!tessera::detail::is_utf8(c.name))  // JSON would not give it back
              c.name = tessera::detail::printable(c.name, c.name.size());
            c.plan = name;
            c.ranks = ranks;
            c.ghosts = ghosts;
            c.links = {cluster.ranks_per_node,    cluster.node_bandwidth,  cluster.node_latency,
                       cluster.network_bandwidth, cluster.network_latency, cluster.launch_seconds};
            c.overlap = overlap;
            c.deduplicate = deduplicate;
            c.layout = *layout;
            c.files = settings.out + "/table-files.tmp";
            c.predicted = !deduplicate && !overlap;
            if (!c.layout.fault.ok()) continue;
            Workload asked = workload;
            asked.deduplicate = deduplicate;
            c.prediction = predict(c.layout, cluster, asked, true);
            c.fits = tessera::detail::fits_cluster(c.prediction, cluster, 0);
          }
      }
    }
  }
  for (std::size_t p = 0; p < used.size(); ++p)
    require(used[p], "--plans: '{}' is for {} ranks, which --ranks does not name",
            settings.plans[p], is_file(settings.plans[p]) ? ranks_of(settings.plans[p]) : 0);
  return cases;
}

}  // namespace lab
