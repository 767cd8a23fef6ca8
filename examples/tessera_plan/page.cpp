// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"
#include "picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plan {
namespace {

using namespace tessera;

/// Colours of step_parts.
constexpr std::array<const char*, detail::step_parts.size()> kColours{
    "#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#b07aa1", "#59a14f", "#9c755f", "#bab0ac"};

double seconds_of(const detail::StageTimes& s, const Workload& workload) {
  return s.total(workload.overlap_route);
}

/// Memory (left) and predicted time by part (right) of every rank.
Fragment ranks_fragment(const Report& report) {
  const detail::Prediction& p = report.chosen().prediction;
  const std::size_t ranks = p.bytes.size();
  const double bar = ranks > 64 ? 3 : ranks > 16 ? 8 : 14, half = kPageWidth / 2 - 40;
  double most_time = 1e-30;
  for (const detail::StageTimes& s : p.ranks) most_time = std::max(most_time, s.total());
  double capacity = 1;  // of a whole bar: the fullest rank, so that small tables show
  for (std::size_t r = 0; r < ranks; ++r)
    capacity =
        std::max(capacity, static_cast<double>(p.bytes[r] + p.host_bytes[r] + p.file_bytes[r]));
  const std::string elsewhere = elsewhere_text(p);
  Fragment f;
  f.svg = fmt::format(
      R"(<text x="30" y="10">memory per rank (most: {}{}{})</text><text x="{}" y="10">predicted time of each rank by parts (most: {} ms)</text>)",
      detail::bytes_text(p.most_bytes()),
      report.cluster.memory_per_rank > 0
          ? " of " + detail::bytes_text(report.cluster.memory_per_rank)
          : "",
      elsewhere.empty() ? "" : elsewhere + ", paler", kPageWidth / 2 + 30,
      detail::milliseconds_text(most_time));
  for (std::size_t r = 0; r < ranks; ++r) {
    const double y = 18 + static_cast<double>(r) * (bar + 1);
    if (bar > 4)
      f.svg +=
          fmt::format(R"(<text x="0" y="{0:.1f}">{1}</text><text x="{2}" y="{0:.1f}">{1}</text>)",
                      y + bar - 1, r, kPageWidth / 2);
    f.svg += fmt::format(
        R"(<rect x="30" y="{:.1f}" width="{:.1f}" height="{}" fill="{}"><title>rank {}: {}</title></rect>)",
        y, half * static_cast<double>(p.bytes[r]) / capacity, bar, colour(static_cast<int>(r)), r,
        detail::bytes_text(p.bytes[r]));
    double end = 30 + half * static_cast<double>(p.bytes[r]) / capacity;
    for (const Tier tier : {Tier::host, Tier::file}) {
      const std::int64_t bytes = (tier == Tier::host ? p.host_bytes : p.file_bytes)[r];
      if (bytes == 0) continue;
      const double width = half * static_cast<double>(bytes) / capacity;
      f.svg += fmt::format(
          R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" fill="{}" fill-opacity="{}"><title>rank {}: {}{}</title></rect>)",
          end, y, width, bar, colour(static_cast<int>(r)), opacity(tier), r,
          detail::bytes_text(bytes), where_text(tier));
      end += width;
    }
    double x = kPageWidth / 2 + 30;
    for (std::size_t s = 0; s < detail::step_parts.size(); ++s) {
      const double seconds = p.ranks[r].*detail::step_parts[s].seconds,
                   w = half * seconds / most_time;
      if (seconds <= 0) continue;
      f.svg += fmt::format(
          R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" fill="{}"><title>rank {}, {}: {} ms</title></rect>)",
          x, y, w, bar, kColours[s], r, detail::step_parts[s].name,
          detail::milliseconds_text(seconds));
      x += w;
    }
    f.svg += '\n';
  }
  f.height = 24 + static_cast<double>(ranks) * (bar + 1);
  double x = kPageWidth / 2 + 30;
  for (std::size_t s = 0; s < detail::step_parts.size(); ++s) {
    if (p.stages.*detail::step_parts[s].seconds <= 0) continue;
    const double w = 22 + 5 * static_cast<double>(detail::step_parts[s].name.size());
    if (x + w > kPageWidth) x = kPageWidth / 2 + 30, f.height += 13;
    f.svg += fmt::format(
        R"(<rect x="{0}" y="{1}" width="9" height="9" fill="{2}"/><text x="{3}" y="{4}">{5}</text>)",
        x, f.height, kColours[s], x + 12, f.height + 9, detail::step_parts[s].name);
    x += w;
  }
  f.height += 14;
  return f;
}

std::string shade(double share) {
  return fmt::format("rgb({:.0f},{:.0f},255)", 245 - 200 * share, 248 - 150 * share);
}

/// "12.3": bytes in the unit of the most, without its name.
std::string in_unit_of(double most, double bytes) {
  for (; most >= 1024; most /= 1024) bytes /= 1024;
  return fmt::format("{:.{}f}", bytes, bytes >= 100 ? 0 : 1);
}

/// Bytes from rank (down) to rank (right): ids, vectors and gradients of a step. Many ranks are
/// drawn in groups of neighbours.
Fragment traffic_fragment(const Report& report) {
  const detail::Prediction& p = report.chosen().prediction;
  const std::size_t ranks = p.bytes.size(), group = (ranks + 63) / 64,
                    count = (ranks + group - 1) / group;
  std::vector<double> bytes(count * count);
  double all = 0;
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to) {
      if (from == to) continue;  // stays on its rank
      const std::size_t i = from * ranks + to;
      const double sent =
          p.id_traffic[i] + p.vector_traffic[i] + p.vector_traffic[to * ranks + from];
      bytes[from / group * count + to / group] += sent;
      all += sent;
    }
  const double most = std::max(1.0, *std::max_element(bytes.begin(), bytes.end()));
  const double cell = std::clamp(640.0 / static_cast<double>(count), 8.0, 40.0), left = 70,
               top = 34, side = cell * static_cast<double>(count);
  const auto name = [&](std::size_t i) {
    return group == 1 ? fmt::format("{}", i)
                      : fmt::format("{}-{}", i * group, std::min(ranks, (i + 1) * group) - 1);
  };
  Fragment f;
  f.svg = fmt::format(
      R"svg(<text x="{:.0f}" y="10" text-anchor="middle">to rank</text><text transform="translate(10,{:.0f}) rotate(-90)" text-anchor="middle">from rank</text>)svg",
      left + side / 2, top + side / 2);
  const std::size_t label =
      cell * static_cast<double>(group == 1 ? 1 : 2) < 24 || group > 1 ? (count + 15) / 16 : 1;
  for (std::size_t i = 0; i < count; i += label)
    f.svg += fmt::format(
        R"(<text x="{0:.1f}" y="{1:.0f}" text-anchor="middle">{2}</text><text x="{3:.0f}" y="{4:.1f}" text-anchor="end">{2}</text>)",
        left + (static_cast<double>(i) + 0.5) * cell, top - 6,
        group == 1 ? name(i) : fmt::format("{}", i * group), left - 5,
        top + (static_cast<double>(i) + 0.5) * cell + 4);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double x = left + static_cast<double>(i % count) * cell,
                 y = top + static_cast<double>(i / count) * cell;
    f.svg += fmt::format(
        R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"><title>{} to {}: {}</title></rect>)",
        x, y, cell - 0.5, cell - 0.5, shade(bytes[i] / most), name(i / count), name(i % count),
        detail::bytes_text(static_cast<std::int64_t>(bytes[i])));
    if (count <= 16)
      f.svg += fmt::format(
          R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle" fill="{}" pointer-events="none">{}</text>)",
          x + cell / 2, y + cell / 2 + 4, bytes[i] > 0.6 * most ? "#fff" : "#333",
          i / count == i % count && group == 1 ? "-" : in_unit_of(most, bytes[i]));
  }
  // The scale: from nothing to the most.
  const double x = left + side + 30;
  const std::string unit = detail::bytes_text(static_cast<std::int64_t>(most));
  for (int i = 0; i < 10; ++i)
    f.svg += fmt::format(R"(<rect x="{:.0f}" y="{:.0f}" width="18" height="12" fill="{}"/>)", x,
                         top + 12 * (9 - i), shade((i + 0.5) / 10));
  f.svg += fmt::format(
      R"(<text x="{0:.0f}" y="{1:.0f}">{2} (most)</text><text x="{0:.0f}" y="{3:.0f}">0</text><text x="{4:.0f}" y="{5:.0f}">numbers: {6}</text><text x="{4:.0f}" y="{7:.0f}">all together: {8} a step</text>)",
      x + 24, top + 9, unit, top + 120, x, top + 144, unit.substr(unit.find(' ') + 1), top + 160,
      detail::bytes_text(static_cast<std::int64_t>(all)));
  f.height = std::max(top + side, top + 170);
  return f;
}

/// One bar of a step's parts, `scale` pixels a second; one that is longer than `most` pixels is cut
/// and marked.
std::string step_bar(const Candidate& c, double scale, double most) {
  std::string bar;
  double left = most;
  for (std::size_t s = 0; s < detail::step_parts.size() && left > 0; ++s) {
    const double seconds = c.prediction.stages.*detail::step_parts[s].seconds,
                 w = std::min(left, scale * seconds);
    if (seconds <= 0) continue;
    bar +=
        fmt::format(R"(<i style="background:{};width:{:.1f}px" title="{}: {} ms"></i>)",
                    kColours[s], w, detail::step_parts[s].name, detail::milliseconds_text(seconds));
    left -= w;
  }
  return fmt::format(R"(<span class="bar{}">{}</span>{})", c.fits ? "" : " pale", bar,
                     c.prediction.stages.total() * scale > most
                         ? "<b title=\"longer than drawn\"> &raquo; cut</b>"
                         : "");
}

}  // namespace

std::string svg_of(const Report& report) {
  const Fragment tables = tables_fragment(report.chosen().layout, report.workload.memory),
                 ranks = ranks_fragment(report);
  const std::string background =
      fmt::format(R"(<rect x="-10" y="-10" width="{}" height="{:.0f}" fill="#fff"/>)",
                  kPageWidth + 20, tables.height + ranks.height + 60);
  return svg(
      background + tables.svg +
          fmt::format("<g transform=\"translate(0,{:.0f})\">{}</g>", tables.height + 12, ranks.svg),
      tables.height + ranks.height + 20);
}

namespace {

/// The plans beside each other, on one scale: the slowest, or four times the planned step where a
/// plan takes longer.
std::string comparison(const Report& report) {
  constexpr double kLength = 400;
  const double planned = report.chosen().prediction.stages.total();
  double slowest = planned;
  for (const Candidate& c : report.candidates)
    slowest = std::max(slowest, c.prediction.stages.total());
  const double scale = kLength / std::min(slowest, 4 * planned);
  std::string rows;
  for (const Candidate& c : report.candidates) {
    const detail::Prediction& p = c.prediction;
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:+.1f} "
        "%</td><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.3f}</td><td>{}</td></tr>\n",
        escaped(c.name), detail::milliseconds_text(p.step_seconds),
        100 * (p.step_seconds / report.chosen().prediction.step_seconds - 1),
        step_bar(c, scale, kLength), detail::bytes_text(p.most_bytes()), p.memory_imbalance(),
        p.time_imbalance(), c.fits ? "" : "does not fit");
  }
  return "<table><tr><th>plan</th><th>step, ms</th><th></th><th></th><th>fullest "
         "rank</th><th>memory, max/mean</th><th>time, max/mean</th>"
         "<th></th></tr>\n" +
         rows + "</table>\n";
}

/// The chosen step, part by part, each as long as its slowest rank.
std::string parts_table(const Report& report) {
  const detail::Prediction& p = report.chosen().prediction;
  std::string rows;
  for (std::size_t s = 0; s < detail::step_parts.size(); ++s)
    if (const double seconds = p.stages.*detail::step_parts[s].seconds; seconds > 0)
      rows += fmt::format(
          R"(<tr><td><i style="background:{};width:9px"></i> {}</td><td>{}</td><td>{:.1f} %</td></tr>
)",
          kColours[s], detail::step_parts[s].name, detail::milliseconds_text(seconds),
          100 * seconds / p.step_seconds);
  if (const double hidden = p.stages.total() - seconds_of(p.stages, report.workload); hidden > 0)
    rows += fmt::format("<tr><td>route beside the dense layers</td><td>-{}</td><td></td></tr>\n",
                        detail::milliseconds_text(hidden));
  return fmt::format(
      "<table><tr><th>part</th><th>ms</th><th></th></tr>\n{}<tr><th>step</th><th>{}</th><th></"
      "th></tr></table>\n",
      rows, detail::milliseconds_text(p.step_seconds));
}

std::string tables_table(const Report& report) {
  std::string rows;
  for (const detail::CutReason& r : report.reasons) {
    const TableSpec& t = report.model.tables[static_cast<std::size_t>(r.table)];
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</"
        "td></tr>\n",
        escaped(t.name), t.rows, t.width, detail::bytes_text(r.bytes),
        escaped(features_text(report, r.table)), describe(r.cut), ranks_text(report, r.table),
        escaped(describe(r)));
  }
  if (report.model.tables.size() > report.reasons.size())
    rows += fmt::format("<tr><td colspan=\"8\">and {} smaller tables</td></tr>\n",
                        report.model.tables.size() - report.reasons.size());
  return "<table><tr><th>table</th><th>rows</th><th>width</th><th>bytes</th><th>features (x ids "
         "per sample)</th><th>cut</th><th>ranks</th>"
         "<th>why, with the other tables unchanged</th></tr>\n" +
         rows + "</table>\n";
}

}  // namespace

std::string page_of(const Report& report) {
  const Fragment tables = tables_fragment(report.chosen().layout, report.workload.memory),
                 ranks = ranks_fragment(report), traffic = traffic_fragment(report),
                 legend = ranks_legend(report.chosen().layout);
  const detail::Prediction& p = report.chosen().prediction;
  std::string margin = detail::describe_margin(report.runner_up, p.step_seconds, report.measured);
  margin[0] = margin[0] == 'r' ? 'R' : 'A';
  return fmt::format(
      R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{0} on {1} ranks</title>
<style>body{{font:14px sans-serif;color:#333;max-width:1040px;margin:2em auto}}table{{border-collapse:collapse}}td,th{{padding:2px 10px 2px 0;text-align:left;vertical-align:top;white-space:nowrap}}td:last-child{{white-space:normal}}svg{{max-width:100%}}i{{display:inline-block;height:.8em}}.bar{{display:inline-flex;vertical-align:middle;height:.8em}}.pale{{opacity:.35}}</style></head><body>
<h1>{0} on {1} ranks</h1>
<p>{2} tables, {3} features, batch {4}; predicted step {5} ms.</p>
<p>{6}.</p>
<p>Constants of the prediction: {7}.</p>
<h2>Tables</h2><p>Boxes: rows (logarithm) by columns (logarithm), coloured by rank; grey: a copy on every rank. Point at a part to read what it is.</p>
{15}
{8}
{9}
<h2>Step</h2><p>Every part takes as long as its slowest rank, so that the step may take longer than any one rank's sum.</p>
{10}
<h2>Ranks</h2>
{11}
<h2>Traffic of a step</h2><p>Ids, vectors and gradients that ranks send to each other{12}.</p>
{13}
<h2>Comparison</h2>
<p>The planner's plan beside plain strategies{16}, on one scale; colours as above; pale: does not fit.</p>
{14}</body></html>
)",
      escaped(report.model.name), report.cluster.ranks, report.model.tables.size(),
      report.model.features.size(), report.workload.batch,
      detail::milliseconds_text(p.step_seconds), escaped(margin), escaped(report.source),
      svg(tables.svg, tables.height + 4), tables_table(report), parts_table(report),
      svg(ranks.svg, ranks.height + 4),
      p.bytes.size() > 64 ? ", each cell a group of neighbouring ranks" : "",
      svg(traffic.svg, traffic.height + 4), comparison(report), svg(legend.svg, legend.height),
      report.constrained ? ", which keep no pins and forbid no cuts" : "");
}

}  // namespace plan
