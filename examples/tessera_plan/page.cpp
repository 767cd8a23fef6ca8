// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace plan {
namespace {

using namespace tessera;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

/// Neighbouring ranks get unlike colours.
std::string colour(int rank) {
  if (rank < 0) return "#c8c8c8";
  const double hue = std::fmod(rank * 137.508, 360.0);
  return fmt::format("hsl({:.0f},{}%,{}%)", hue, 55 + rank / 3 % 3 * 10, 62 - rank / 9 % 3 * 9);
}

constexpr double kPageWidth = 1000;

struct Fragment {
  std::string svg;
  double height = 0;
};

/// Every table as a box, its height by the logarithm of its rows and its width by that of its columns, cut as the plan cuts it.
Fragment tables_fragment(const Report& report) {
  const Layout& layout = report.chosen().layout;
  std::vector<std::vector<const Shard*>> shards(layout.tables.size());
  for (const Shard& s : layout.shards) shards[static_cast<std::size_t>(s.table)].push_back(&s);
  const double unit = layout.tables.size() > 400 ? 0.35 : layout.tables.size() > 100 ? 0.6 : 1;
  std::vector<std::size_t> order(layout.tables.size());
  for (std::size_t t = 0; t < order.size(); ++t) order[t] = t;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return layout.tables[a].rows > layout.tables[b].rows; });
  const double label = unit < 1 ? 2 : 13;
  Fragment f;
  double x = 0, y = 0, row_height = 0;
  for (const std::size_t t : order) {
    const TableSpec& table = layout.tables[t];
    const double w = unit * (10 + 10 * std::log2(1.0 + table.width)), h = unit * (8 + 14 * std::log10(static_cast<double>(table.rows)));
    if (x + w > kPageWidth) {
      x = 0;
      y += row_height + label + 6;
      row_height = 0;
    }
    row_height = std::max(row_height, h);
    for (const Shard* s : shards[t]) {
      const Rectangle& r = s->rectangle;
      const double rows = static_cast<double>(table.rows);
      f.svg += fmt::format(
          R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}" stroke="#fff" stroke-width=".6"><title>{}: rows [{}, {}), columns [{}, {}), {}, {}</title></rect>)",
          x + w * r.column_begin / table.width, y + h * static_cast<double>(r.row_begin) / rows, w * r.width() / table.width,
          h * static_cast<double>(r.rows()) / rows, colour(s->rank), escaped(table.name), r.row_begin, r.row_end, r.column_begin,
          r.column_end, s->rank < 0 ? "every rank" : fmt::format("rank {}", s->rank),
          bytes_text(static_cast<double>(report.workload.memory.of(r))));
    }
    if (unit == 1) f.svg += fmt::format(R"(<text x="{:.1f}" y="{:.1f}">{}</text>)", x, y + h + 11, escaped(table.name));
    f.svg += '\n';
    x += w + 4;
  }
  f.height = y + row_height + label;
  return f;
}

using Stage = std::pair<double StageTimes::*, const char*>;
constexpr std::array<Stage, 6> kStages{Stage{&StageTimes::route, "#4e79a7"},
                                       Stage{&StageTimes::lookup, "#f28e2b"},
                                       Stage{&StageTimes::exchange, "#e15759"},
                                       Stage{&StageTimes::assemble, "#76b7b2"},
                                       Stage{&StageTimes::exchange_gradients, "#b07aa1"},
                                       Stage{&StageTimes::update, "#59a14f"}};
constexpr std::array<const char*, 6> kStageNames{"route", "lookup", "exchange", "assemble", "exchange of gradients", "update"};

/// Memory (left) and predicted time by stage (right) of every rank.
Fragment ranks_fragment(const Report& report) {
  const Prediction& p = report.chosen().prediction;
  const std::size_t ranks = p.bytes.size();
  const double bar = ranks > 64 ? 3 : ranks > 16 ? 8 : 14, half = kPageWidth / 2 - 40;
  double most_time = 1e-30;
  for (const StageTimes& s : p.ranks) most_time = std::max(most_time, s.embeddings());
  const double capacity = std::max(static_cast<double>(report.cluster.memory_per_rank), static_cast<double>(p.most_bytes()));
  Fragment f;
  f.svg = fmt::format(
      R"(<text x="30" y="10">memory per rank (most: {}{})</text><text x="{}" y="10">predicted time per rank (most: {:.3f} ms)</text>)",
      bytes_text(static_cast<double>(p.most_bytes())),
      report.cluster.memory_per_rank > 0 ? " of " + bytes_text(static_cast<double>(report.cluster.memory_per_rank)) : "",
      kPageWidth / 2 + 30, 1e3 * most_time);
  for (std::size_t r = 0; r < ranks; ++r) {
    const double y = 18 + static_cast<double>(r) * (bar + 1);
    if (bar > 4)
      f.svg += fmt::format(R"(<text x="0" y="{0:.1f}">{1}</text><text x="{2}" y="{0:.1f}">{1}</text>)", y + bar - 1, r, kPageWidth / 2);
    f.svg += fmt::format(R"(<rect x="30" y="{:.1f}" width="{:.1f}" height="{}" fill="{}"><title>rank {}: {}</title></rect>)", y,
                         half * static_cast<double>(p.bytes[r]) / capacity, bar, colour(static_cast<int>(r)), r,
                         bytes_text(static_cast<double>(p.bytes[r])));
    double x = kPageWidth / 2 + 30;
    for (std::size_t s = 0; s < kStages.size(); ++s) {
      const double seconds = p.ranks[r].*kStages[s].first, w = half * seconds / most_time;
      f.svg +=
          fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" fill="{}"><title>rank {}, {}: {:.3f} ms</title></rect>)", x,
                      y, w, bar, kStages[s].second, r, kStageNames[s], 1e3 * seconds);
      x += w;
    }
    f.svg += '\n';
  }
  f.height = 24 + static_cast<double>(ranks) * (bar + 1);
  double x = kPageWidth / 2 + 30;
  for (std::size_t s = 0; s < kStages.size(); ++s) {
    f.svg += fmt::format(R"(<rect x="{0}" y="{1}" width="9" height="9" fill="{2}"/><text x="{3}" y="{4}">{5}</text>)", x, f.height,
                         kStages[s].second, x + 12, f.height + 9, kStageNames[s]);
    x += 22 + 5 * static_cast<double>(std::char_traits<char>::length(kStageNames[s]));
  }
  f.height += 14;
  return f;
}

/// Bytes from rank (down) to rank (right): ids, vectors and gradients of a step.
Fragment traffic_fragment(const Report& report) {
  const Prediction& p = report.chosen().prediction;
  const std::size_t ranks = p.bytes.size();
  const double cell = std::clamp(560.0 / static_cast<double>(ranks), 3.0, 34.0);
  std::vector<double> bytes(ranks * ranks);
  double most = 1;
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::size_t i = from * ranks + to;
      bytes[i] = from == to ? 0 : p.id_traffic[i] + p.vector_traffic[i] + p.vector_traffic[to * ranks + from];
      most = std::max(most, bytes[i]);
    }
  Fragment f;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    f.svg += fmt::format(
        R"svg(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="rgb({},{},255)"><title>{} to {}: {}</title></rect>)svg",
        static_cast<double>(i % ranks) * cell, static_cast<double>(i / ranks) * cell, cell - 0.5, cell - 0.5,
        static_cast<int>(245 - 200 * bytes[i] / most), static_cast<int>(248 - 150 * bytes[i] / most), i / ranks, i % ranks,
        bytes_text(bytes[i]));
  f.height = cell * static_cast<double>(ranks);
  return f;
}

std::string svg(const std::string& body, double height) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" font-family="sans-serif" font-size="10" fill="#333">
{2}</svg>
)",
      kPageWidth, height, body);
}

}  // namespace

std::string svg_of(const Report& report) {
  const Fragment tables = tables_fragment(report), ranks = ranks_fragment(report);
  const std::string background =
      fmt::format(R"(<rect x="-10" y="-10" width="{}" height="{:.0f}" fill="#fff"/>)", kPageWidth + 20, tables.height + ranks.height + 60);
  return svg(background + tables.svg + fmt::format("<g transform=\"translate(0,{:.0f})\">{}</g>", tables.height + 12, ranks.svg),
             tables.height + ranks.height + 20);
}

std::string page_of(const Report& report) {
  const Fragment tables = tables_fragment(report), ranks = ranks_fragment(report), traffic = traffic_fragment(report);
  double slowest = 1e-30;
  for (const Candidate& c : report.candidates)
    if (c.fits) slowest = std::max(slowest, c.prediction.step_seconds);
  std::string rows;
  for (const Candidate& c : report.candidates) {
    const Prediction& p = c.prediction;
    rows += fmt::format(
        R"(<tr><td>{}</td><td>{:.3f}</td><td><div style="background:{};height:.8em;width:{:.0f}px"></div></td><td>{}</td><td>{:.3f}</td><td>{:.3f}</td><td>{}</td></tr>
)",
        escaped(c.name), 1e3 * p.step_seconds, c.fits ? "#4e79a7" : "#ccc", std::min(300.0, 300 * p.step_seconds / slowest),
        bytes_text(static_cast<double>(p.most_bytes())), p.memory_imbalance(), p.time_imbalance(), c.fits ? "" : "does not fit");
  }
  return fmt::format(R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{0} on {1} ranks</title>
<style>body{{font:14px sans-serif;color:#333;max-width:1040px;margin:2em auto}}table{{border-collapse:collapse}}td,th{{padding:2px 10px;text-align:left}}svg{{max-width:100%}}</style></head><body>
<h1>{0} on {1} ranks</h1>
<p>{2} tables, {3} features, batch {4}; predicted step {5:.3f} ms. Predictions are those of Tessera's cost model.</p>
<h2>Tables</h2><p>Boxes: rows (logarithm) by columns (logarithm), coloured by rank; grey: a copy on every rank. Point at a part to read what it is.</p>
{6}
<h2>Ranks</h2>
{7}
<h2>Traffic of a step</h2><p>From rank (down) to rank (right): ids, vectors and gradients.</p>
{8}
<h2>Comparison</h2>
<table><tr><th>plan</th><th>step, ms</th><th></th><th>fullest rank</th><th>memory, max/mean</th><th>time, max/mean</th><th></th></tr>
{9}</table>
</body></html>
)",
                     escaped(report.model.name), report.cluster.ranks, report.model.tables.size(), report.model.features.size(),
                     report.workload.batch, 1e3 * report.chosen().prediction.step_seconds, svg(tables.svg, tables.height + 4),
                     svg(ranks.svg, ranks.height + 4), svg(traffic.svg, traffic.height + 4), rows);
}

}  // namespace plan
