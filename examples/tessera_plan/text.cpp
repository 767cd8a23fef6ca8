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

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string text_of(const Report& report, std::size_t most_tables) {
  const Candidate& best = report.chosen();
  const Layout& layout = best.layout;
  std::vector<std::size_t> order(layout.tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto bytes = [&](std::size_t t) { return report.workload.memory.of({0, layout.tables[t].rows, 0, layout.tables[t].width}); };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return bytes(a) > bytes(b); });
  std::string out = fmt::format("{:<20} {:>13} {:>6} {:>10}  {:<12} {}\n", "table", "rows", "width", "bytes", "cut", "ranks");
  for (std::size_t i = 0; i < std::min(order.size(), most_tables); ++i) {
    const std::size_t t = order[i];
    const TableCut& cut = best.choice.tables[t];
    std::vector<int> ranks;
    for (const Shard& s : layout.shards)
      if (s.table == static_cast<int>(t) && s.rank >= 0) ranks.push_back(s.rank);
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    const bool all = cut.cut == Cut::replicated || ranks.size() == static_cast<std::size_t>(layout.ranks());
    const std::string how = cut.parts > 1 ? fmt::format("{} {}", to_string(cut.cut), cut.parts) : std::string(to_string(cut.cut));
    out += fmt::format("{:<20} {:>13} {:>6} {:>10}  {:<12} {}\n", layout.tables[t].name, layout.tables[t].rows, layout.tables[t].width,
                       bytes_text(static_cast<double>(bytes(t))), how, all ? "all" : fmt::format("{}", fmt::join(ranks, ",")));
  }
  if (order.size() > most_tables) out += fmt::format("... and {} smaller tables\n", order.size() - most_tables);
  out += fmt::format("\n{:<24} {:>9} {:>7} {:>7} {:>9} {:>9} {:>7} {:>10} {:>7} {:>7}\n", "plan", "step ms", "route", "lookup", "exchanges",
                     "assemble", "update", "most bytes", "memory", "time");
  for (const Candidate& c : report.candidates) {
    const StageTimes& s = c.prediction.stages;
    out += fmt::format("{:<24} {:>9.3f} {:>7.3f} {:>7.3f} {:>9.3f} {:>9.3f} {:>7.3f} {:>10} {:>7.3f} {:>7.3f}{}\n", c.name,
                       1e3 * c.prediction.step_seconds, 1e3 * s.route, 1e3 * s.lookup, 1e3 * (s.exchange + s.exchange_gradients),
                       1e3 * s.assemble, 1e3 * s.update, bytes_text(static_cast<double>(c.prediction.most_bytes())),
                       c.prediction.memory_imbalance(), c.prediction.time_imbalance(), c.fits ? "" : "  does not fit");
  }
  const StageTimes& s = best.prediction.stages;
  out +=
      fmt::format("step: dense layers {:.3f} ms and the sum of their gradients {:.3f} ms included; memory, time: max/mean over the ranks\n",
                  1e3 * s.dense, 1e3 * s.all_reduce);
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
  std::string s = fmt::format("{{.name = {}, .rows = {}, .width = {}", quoted(t.name), t.rows, t.width);
  if (t.pooling == Pooling::mean) s += ", .pooling = tessera::Pooling::mean";
  if (t.hotness != 1) s += fmt::format(", .hotness = {}", t.hotness);
  if (t.skew >= 0) s += fmt::format(", .skew = {}", t.skew);
  return s + "}";
}

}  // namespace

std::string header_of(const Report& report) {
  const Candidate& best = report.chosen();
  // Tables that are cut and placed alike share a policy.
  std::map<std::tuple<Cut, int, std::vector<int>>, std::vector<std::size_t>> groups;
  for (std::size_t t = 0; t < best.choice.tables.size(); ++t) {
    const TableCut& c = best.choice.tables[t];
    groups[{c.cut, c.parts, c.places}].push_back(t);
  }
  std::string arrays, entries;
  int number = 0;
  for (const auto& [how, tables] : groups) {
    const auto& [cut, parts, places] = how;
    const std::string name = fmt::format("kTables{}", number++);
    arrays += fmt::format("inline constexpr std::array<tessera::TableSpec, {}> {}{{{{\n", tables.size(), name);
    for (const std::size_t t : tables) arrays += "    " + spec(best.layout.tables[t]) + ",\n";
    arrays += "}};\n";
    const std::string list = fmt::format("{}", fmt::join(places, ", "));
    const std::string policy = cut == Cut::replicated    ? "Replicated<"
                               : cut == Cut::row_wise    ? "RowWise<"
                               : cut == Cut::table_wise  ? fmt::format("TableWise<tessera::OnRank<{}>, ", list)
                               : cut == Cut::column_wise ? fmt::format("ColumnWiseOn<tessera::OnRanks<{}>, ", list)
                                                         : fmt::format("GridOn<tessera::OnNodes<{}>, ", list);
    entries += fmt::format("    tessera::{}tessera::Tables<{}>>,\n", policy, name);
  }
  arrays += fmt::format("inline constexpr std::array<tessera::FeatureSpec, {}> kFeatures{{{{\n", best.layout.features.size());
  for (const FeatureSpec& f : best.layout.features) {
    arrays += fmt::format("    {{.name = {}, .table = {}", quoted(f.name), quoted(f.table));
    if (f.pooling == Pooling::mean) arrays += ", .pooling = tessera::Pooling::mean";
    if (f.hotness > 0) arrays += fmt::format(", .hotness = {}", f.hotness);
    arrays += "},\n";
  }
  arrays += "}};\n";
  return fmt::format(R"(// Written by tessera_plan: {} on {} ranks, predicted step {:.3f} ms.
#pragma once

#include <tessera/sharding/plan.hpp>

#include <array>

namespace planned {{

{}
using Plan = tessera::Plan<
{}    tessera::Features<tessera::FeatureArray<kFeatures>>>;

inline constexpr auto kCluster = {};

}}  // namespace planned
)",
                     report.model.name, report.cluster.ranks, 1e3 * best.prediction.step_seconds, arrays, entries, to_cpp(report.cluster));
}

}  // namespace plan
