// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "cluster_file.hpp"
#include "output.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace plan {

using namespace tessera;

std::vector<int> largest_tables(const Model& model, const Workload& workload, std::size_t most) {
  std::vector<int> order(model.tables.size());
  std::iota(order.begin(), order.end(), 0);
  const auto bytes = [&](int t) {
    const TableSpec& table = model.tables[static_cast<std::size_t>(t)];
    return workload.memory.of({0, table.rows, 0, table.width});
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return bytes(a) > bytes(b); });
  order.resize(std::min(order.size(), most));
  return order;
}

std::string ranks_text(const Report& report, int table) {
  const Layout& layout = report.chosen().layout;
  std::vector<int> ranks;
  for (const Shard& s : layout.shards)
    if (s.table == table) ranks.push_back(s.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (ranks.empty() || ranks.front() == every_rank ||
      ranks.size() == static_cast<std::size_t>(layout.ranks()))
    return "all";
  std::string text;
  for (std::size_t i = 0, next = 0; i < ranks.size(); i = next) {
    for (next = i + 1; next < ranks.size() && ranks[next] == ranks[next - 1] + 1;) ++next;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (next - i > 1) text += fmt::format("{}{}", next - i > 2 ? '-' : ',', ranks[next - 1]);
  }
  constexpr std::size_t most = 40;
  if (text.size() <= most) return text;
  text.resize(text.rfind(',', most));
  return fmt::format("{},... ({} ranks)", text, ranks.size());
}

std::string features_text(const Report& report, int table) {
  std::string text;
  const TableSpec& spec = report.model.tables[static_cast<std::size_t>(table)];
  for (const FeatureSpec& f : report.model.features)
    if (f.table == spec.name)
      text += fmt::format("{}{}{}", text.empty() ? "" : ", ", f.name,
                          f.hotness == 1 ? "" : fmt::format(" x {}", f.hotness));
  return text;
}

std::string elsewhere_text(const detail::Prediction& prediction) {
  std::string text;
  if (const std::int64_t bytes = prediction.most_host_bytes(); bytes > 0)
    text += fmt::format(", and {} on the host", detail::bytes_text(bytes));
  if (const std::int64_t bytes = prediction.most_file_bytes(); bytes > 0)
    text += fmt::format(", and {} in files", detail::bytes_text(bytes));
  return text;
}

std::string text_of(const Report& report) {
  const Candidate& best = report.chosen();
  std::string out = fmt::format("{:<20} {:>13} {:>6} {:>10}  {:<14} {}\n", "table", "rows", "width",
                                "bytes", "cut", "ranks");
  for (const detail::CutReason& reason : report.reasons) {
    const TableSpec& table = report.model.tables[static_cast<std::size_t>(reason.table)];
    out += fmt::format("{:<20} {:>13} {:>6} {:>10}  {:<14} {}\n", table.name, table.rows,
                       table.width, detail::bytes_text(reason.bytes), describe(reason.cut),
                       ranks_text(report, reason.table));
  }
  if (report.model.tables.size() > report.reasons.size())
    out += fmt::format("... and {} smaller tables\n",
                       report.model.tables.size() - report.reasons.size());
  out += "\nwhy each table is cut so, with the other tables unchanged:\n";
  for (const detail::CutReason& reason : report.reasons)
    out += fmt::format("{}: {}: {}\n",
                       report.model.tables[static_cast<std::size_t>(reason.table)].name,
                       describe(reason.cut), describe(reason));
  out +=
      fmt::format("\n{:<24} {:>9} {:>7} {:>7} {:>9} {:>9} {:>7} {:>7} {:>9} {:>10} {:>7} {:>7}\n",
                  "plan", "step ms", "route", "lookup", "exchanges", "assemble", "update", "dense",
                  "dense sum", "most bytes", "memory", "time");
  const auto ms = detail::milliseconds_text;
  for (const Candidate& c : report.candidates) {
    const detail::StageTimes& s = c.prediction.stages;
    out += fmt::format(
        "{:<24} {:>9} {:>7} {:>7} {:>9} {:>9} {:>7} {:>7} {:>9} {:>10} {:>7.3f} {:>7.3f}{}\n",
        c.name, ms(c.prediction.step_seconds), ms(s.route), ms(s.lookup),
        ms(s.exchange + s.exchange_gradients), ms(s.assemble), ms(s.update), ms(s.dense),
        ms(s.all_reduce), detail::bytes_text(c.prediction.most_bytes()),
        c.prediction.memory_imbalance(), c.prediction.time_imbalance(),
        !c.fits ? "  does not fit" : elsewhere_text(c.prediction));
  }
  if (report.constrained) out += "plain strategies keep no pins and forbid no cuts\n";
  out +=
      "memory, time: max/mean over the ranks; dense sum: of the dense layers' gradients over the "
      "ranks\n\n";
  out += fmt::format(
      "predicted step: {}\n{}\nconstants: {}\n",
      detail::describe_step(best.prediction, report.workload),
      detail::describe_margin(report.runner_up, best.prediction.step_seconds, report.measured),
      report.source);
  return out;
}

namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string spec(const TableSpec& t) {
  std::string s =
      fmt::format("{{.name = {}, .rows = {}, .width = {}", quoted(t.name), t.rows, t.width);
  if (t.pooling != Pooling::sum)
    s += fmt::format(", .pooling = tessera::Pooling::{}", to_string(t.pooling));
  if (t.hotness != 1) s += fmt::format(", .hotness = {}", t.hotness);
  if (t.skew >= 0) s += fmt::format(", .skew = {}", t.skew);
  return s + "}";
}

}  // namespace

std::string header_of(const Report& report, const std::string& name_space) {
  const Candidate& best = report.chosen();
  // Tables that are cut and placed alike share a policy.
  std::map<std::tuple<Cut, int, std::vector<int>, Tier, std::int64_t>, std::vector<std::size_t>>
      groups;
  for (std::size_t t = 0; t < best.choice.tables.size(); ++t) {
    const detail::TableCut& c = best.choice.tables[t];
    groups[{c.cut, c.parts, c.places, c.tier, c.cache_rows}].push_back(t);
  }
  std::string arrays, entries;
  int number = 0;
  for (const auto& [how, tables] : groups) {
    const auto& [cut, parts, places, tier, cache_rows] = how;
    const std::string name = fmt::format("kTables{}", number++);
    arrays += fmt::format("inline constexpr std::array<tessera::TableSpec, {}> {}{{{{\n",
                          tables.size(), name);
    for (const std::size_t t : tables) arrays += "    " + spec(best.layout.tables[t]) + ",\n";
    arrays += "}};\n";
    const std::string list = fmt::format("{}", fmt::join(places, ", "));
    const std::string policy =
        cut == Cut::replicated    ? "Replicated<"
        : cut == Cut::row_wise    ? "RowWise<"
        : cut == Cut::interleaved ? "RowWise<tessera::Interleaved, "
        : cut == Cut::hot_rows
            ? fmt::format("HotRows<{}, tessera::RowWise<tessera::Interleaved, ", parts)
        : cut == Cut::table_wise  ? fmt::format("TableWise<tessera::OnRank<{}>, ", list)
        : cut == Cut::column_wise ? fmt::format("ColumnWiseOn<tessera::OnRanks<{}>, ", list)
                                  : fmt::format("GridOn<tessera::OnNodes<{}>, ", list);
    const std::string adapter =
        tier == Tier::host && cache_rows != 0 ? fmt::format("tessera::Cached<{}, ", cache_rows)
        : tier == Tier::host                  ? "tessera::OnHost<"
        : tier == Tier::file ? fmt::format("tessera::Cached<{}, tessera::OnFile<", cache_rows)
                             : "";
    entries += fmt::format("    {}tessera::{}tessera::Tables<{}>>{},\n", adapter, policy, name,
                           tier == Tier::host || cut == Cut::hot_rows ? ">"
                           : tier == Tier::file                       ? ">>"
                                                                      : "");
  }
  arrays += fmt::format("inline constexpr std::array<tessera::FeatureSpec, {}> kFeatures{{{{\n",
                        best.layout.features.size());
  for (const FeatureSpec& f : best.layout.features) {
    arrays += fmt::format("    {{.name = {}, .table = {}", quoted(f.name), quoted(f.table));
    if (f.pooling != Pooling::sum)
      arrays += fmt::format(", .pooling = tessera::Pooling::{}", to_string(f.pooling));
    if (f.hotness > 0) arrays += fmt::format(", .hotness = {}", f.hotness);
    arrays += "},\n";
  }
  arrays += "}};\n";
  return fmt::format(R"(// Written by tessera_plan: {} on {} ranks, predicted step {} ms.
#pragma once

#include <tessera/optimizer/optimizers.hpp>
#include <tessera/sharding/plan.hpp>

#include <array>
#include <cstdint>

namespace {} {{

{}
using Plan = tessera::Plan<
{}    tessera::Features<tessera::FeatureArray<kFeatures>>>;

using Optimizer = tessera::{};

inline constexpr auto kCluster = {};
inline constexpr std::int64_t kBatch = {};  // of a step, over all ranks

}}  // namespace {}
)",
                     report.model.name, report.cluster.ranks,
                     detail::milliseconds_text(best.prediction.step_seconds), name_space, arrays,
                     entries, report.optimizer, to_cpp(report.cluster), report.workload.batch,
                     name_space);
}

}  // namespace plan
