// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The results as one page that needs nothing else.
#include "results.hpp"

#include <tessera/planner/explain_plan.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lab {
namespace {

using tessera::detail::bytes_text;

constexpr std::array<const char*, kStages> kColours{"#4e79a7", "#f28e2b", "#e15759",
                                                    "#76b7b2", "#b07aa1", "#59a14f"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

/// At most so many bytes, of whole characters.
std::string beginning_of(const std::string& text, std::size_t most) {
  std::size_t size = std::min(most, text.size());
  while (size > 0 && size < text.size() && (text[size] & '\xC0') == '\x80') --size;
  return text.substr(0, size);
}

std::string bytes(double value) { return bytes_text(static_cast<std::int64_t>(value)); }

/// A round number that is not below the value: the end of an axis.
double round_up(double value) {
  if (!(value > 0)) return 1;
  const double unit = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0})
    if (step * unit >= value) return step * unit;
  return 10 * unit;
}

struct Point {
  double x = 0, y = 0;
  std::string name;
  bool planned = false, front = false;
  double low = 0, high = 0;  ///< where y was expected; 0: not known
  bool fits = true;          ///< the cluster's memory: else it is on no front
};

/// A picture of points: less is better on both axes, so that the front is marked and joined.
std::string scatter(std::vector<Point> points, const std::string& x_title,
                    const std::string& y_title, bool front, bool diagonal, bool x_is_bytes) {
  constexpr double left = 56, top = 14, width = 400, height = 230, right = 14, bottom = 44;
  double most_x = 0, most_y = 0;
  for (const Point& p : points) most_x = std::max(most_x, p.x), most_y = std::max(most_y, p.y);
  if (diagonal) most_x = most_y = std::max(most_x, most_y);
  most_x = round_up(1.02 * most_x), most_y = round_up(1.02 * most_y);
  const auto at_x = [&](double x) { return left + width * x / most_x; };
  const auto at_y = [&](double y) { return top + height * (1 - y / most_y); };
  for (Point& p : points)
    p.front =
        front && p.fits && std::none_of(points.begin(), points.end(), [&](const Point& other) {
          return other.fits && other.x <= p.x && other.y <= p.y && (other.x < p.x || other.y < p.y);
        });
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2} over {3}\"><rect x=\"{4}\" "
      "y=\"{5}\" width=\"{6}\" height=\"{7}\" fill=\"none\" stroke=\"#999\"/>",
      left + width + right, top + height + bottom, escaped(y_title), escaped(x_title), left, top,
      width, height);
  for (const double share : {0.0, 0.5, 1.0}) {
    const double x = share * most_x, y = share * most_y;
    svg += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text><text x=\"{}\" y=\"{}\" "
        "text-anchor=\"end\">{:.3g}</text>",
        at_x(x), top + height + 15, share == 1 ? "end" : "middle",
        x_is_bytes ? bytes(x) : fmt::format("{:.3g}", x), left - 5, at_y(y) + 4, y);
  }
  svg += fmt::format(
      "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text><text transform=\"translate(12,{}) "
      "rotate(-90)\" text-anchor=\"middle\">{}</text>",
      left + width / 2, top + height + 34, escaped(x_title), top + height / 2, escaped(y_title));
  if (diagonal)
    svg += fmt::format(
        "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#999\" stroke-dasharray=\"4 3\"/>",
        at_x(0), at_y(0), at_x(most_x), at_y(most_y));
  std::string line;
  for (const Point& p : points)
    if (p.front) line += fmt::format("{:.1f},{:.1f} ", at_x(p.x), at_y(p.y));
  if (!line.empty())
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#59a14f\"/>", line);
  std::vector<double> labels;  // where there is one already
  for (const Point& p : points) {
    const bool at_end = at_x(p.x) > left + 0.7 * width;
    double y = at_y(p.y) + 4;
    while (std::any_of(labels.begin(), labels.end(),
                       [&](double other) { return std::abs(other - y) < 11; }))
      y += 11;
    labels.push_back(y);
    if (p.high > 0)
      svg += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#bbb\" "
          "stroke-width=\"3\"><title>{3}: expected from {4:.3g} to {5:.3g}</title></line>",
          at_x(p.x), at_y(std::min(p.low, most_y)), at_y(std::min(p.high, most_y)), escaped(p.name),
          p.low, p.high);
    svg += fmt::format(
        "<circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"{2}\" fill=\"{3}\"><title>{4}</title></circle>"
        "<text x=\"{5:.1f}\" y=\"{6:.1f}\" text-anchor=\"{7}\">{4}</text>",
        at_x(p.x), at_y(p.y), p.planned ? 6 : 4,
        p.planned ? "#e15759"
        : p.front ? "#59a14f"
                  : "#4e79a7",
        escaped(p.name), at_x(p.x) + (at_end ? -9 : 9), y, at_end ? "end" : "start");
  }
  return svg + "</svg>";
}

/// Bars of one case's ranks: stages, then what it waited at barriers.
std::string bars(const Group& group) {
  constexpr double left = 150, width = 330, step = 15;
  constexpr std::size_t most_ranks = 16;
  double most = 0, y = 4;
  for (const Result* r : group.results)
    for (const RankResult& rank : r->ranks) {
      double sum = rank.waited();
      for (const double ms : rank.stage_ms) sum += ms;
      most = std::max({most, sum, r->whole_ms(), r->predicted_ms});
    }
  if (most <= 0) most = 1;
  std::string body;
  for (const Result* r : group.results) {
    const double begin = y;
    body +=
        fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-weight=\"bold\">{}</text>",
                    left - 30, y + 11, escaped(beginning_of(r->of->plan, 20)));
    std::size_t drawn = 0;
    for (std::size_t i = 0; i < r->ranks.size() && drawn < most_ranks; ++i) {
      const RankResult& rank = r->ranks[i];
      if (!rank.measured()) continue;
      ++drawn;
      double x = left;
      body +=
          fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", left - 5, y + 11, i);
      for (std::size_t s = 0; s <= kStages; ++s) {
        const double ms = s < kStages ? rank.stage_ms[s] : rank.waited();
        const double length = width * ms / most;
        body += fmt::format(
            "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{} "
            "{:.3g} ms</title></rect>",
            x, y + 1, length, step - 3, s < kStages ? kColours[s] : "#ddd",
            s < kStages ? kStageNames[s] : "waits at barriers", ms);
        x += length;
      }
      y += step;
    }
    const auto mark = [&](double ms, const char* dash, const char* what) {
      body += fmt::format(
          "<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\" stroke=\"#000\" "
          "stroke-width=\"1.5\"{3}><title>{4} {5:.3g} ms</title></line>",
          left + width * ms / most, begin, y - 1, dash, what, ms);
    };
    mark(r->whole_ms(), "", "whole step");
    if (r->predicted_ms > 0) mark(r->predicted_ms, " stroke-dasharray=\"3 2\"", "predicted");
    y += 7;
  }
  std::string key;
  for (std::size_t s = 0; s < kStages; ++s)
    key += fmt::format("<span><i style=\"background:{}\"></i>{}</span> ", kColours[s],
                       std::string_view(kStageNames[s]) == "exchange_gradients"
                           ? "exchange of gradients"
                           : kStageNames[s]);
  return "<p class=\"key\">" + key +
         "<span><i style=\"background:#ddd\"></i>waits at barriers</span></p>" +
         fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"stages\">{}</svg>",
                     left + width + 10, y + 4, body) +
         fmt::format(
             "<p class=\"note\">A bar for each rank, medians, with a barrier after each stage. "
             "Full width: {:.3g} ms. Black line: a whole step without barriers; dashed: as "
             "predicted.{}</p>",
             most,
             std::any_of(group.results.begin(), group.results.end(),
                         [](const Result* r) { return r->ranks.size() > most_ranks; })
                 ? " The first 16 ranks are drawn; results.json has all."
                 : "");
}

std::string table(const Group& group, const Report& report) {
  std::string text =
      "<div class=\"wide\"><table><tr><th>plan<th>step P50<th>P10<th>P90<th>best<th>predicted"
      "<th>expected<th>off<th>sent<th>messages<th>fullest rank<th>tables, all "
      "ranks<th>measured<th>peak"
      "<th>slowest/mean<th></tr>";
  for (const Result* r : group.results) {
    std::string note = r->wide() ? fmt::format("spread {:.0f} %: too wide", 100 * r->step.spread())
                                 : fmt::format("spread {:.0f} %", 100 * r->step.spread());
    if (!r->of->fits) note += "; does not fit the memory that the cluster gives a rank";
    if (!r->of->ghosts.empty())
      note += fmt::format("; links {:.3g} ms, modelled, come on top", r->link_ms);
    if (r->hit_rate() >= 0)
      note += fmt::format("; {:.1f} % of the rows behind a cache were in it", 100 * r->hit_rate());
    if (const auto change = report.changes.find(r->of->name); change != report.changes.end())
      note += "; " + change->second;
    text += fmt::format(
        "<tr><td>{}<td>{:.3g}<td>{:.3g}<td>{:.3g}<td>{:.3g}<td>{}<td>{}<td>{}<td>{}<td>{:.0f}<td>{}"
        "<td>{}<td>{}<td>{}<td>{:.2f}<td>{}</tr>",
        escaped(r->of->plan), r->step.p50, r->step.p10, r->step.p90, r->step.best,
        r->predicted_ms > 0 ? fmt::format("{:.3g}", r->predicted_ms) : "–",
        r->interval.high > 0 ? fmt::format("{:.3g} to {:.3g}", r->interval.low, r->interval.high)
                             : "–",
        r->predicted_ms > 0 ? fmt::format("{:+.0f} %", 100 * (r->predicted_ms / r->whole_ms() - 1))
                            : "–",
        bytes(r->most_sent()), r->most_messages(), bytes(r->fullest()), bytes(r->predicted_tables),
        bytes(r->tables_bytes), bytes(r->peak_bytes), r->imbalance(), escaped(note));
  }
  return text +
         "</table></div><p class=\"note\">Times in milliseconds. Sent and messages: of the rank "
         "that sends most, in a step. Fullest rank, tables: predicted, with optimizer state; "
         "measured: what the process grew by when all ranks' tables stood, and its peak. " +
         escaped(interval_note(report)) + "</p>";
}

}  // namespace

std::string page_of(const Report& report, const Settings& settings, const Batches& batches) {
  double worst = 0;
  for (const Group& group : report.groups) worst = std::max(worst, group.regret);
  std::size_t most_rounds = 0;
  for (const Result& r : report.results) most_rounds = std::max(most_rounds, r.rounds.size());
  std::string body =
      fmt::format("<h1>{}: which plan is fastest</h1>", escaped(settings.model.name));
  for (const Group& group : report.groups)
    body += "<p class=\"answer\">" + escaped(group.answer) + "</p>";
  if (worst > 0)
    body += fmt::format(
        "<p class=\"figure\"><b>{:.2f} ×</b> the planner's regret: its plan's time over the "
        "fastest plan's{}</p>",
        worst, report.groups.size() > 1 ? ", in the worst group" : "");
  body += fmt::format(
      "<p class=\"note\">{} tables, {} features, batch {}; ids {}. Predictions: {}. Machine: {}; a "
      "loop of fixed work took {:.1f} ms (P10 {:.1f}, P90 {:.1f}), so the machine itself spreads "
      "by {:.0f} %. {} rounds of {} steps, cases in random turn. A case whose steps spread by more "
      "than {:.0f} % is called too wide.</p>",
      settings.model.tables.size(), settings.model.features.size(), batches.samples,
      escaped(batches.source), escaped(settings.constants.source),
      escaped(plan::this_machine().processor), report.fixed_work.p50, report.fixed_work.p10,
      report.fixed_work.p90, 100 * report.fixed_work.spread(), most_rounds, settings.steps,
      100 * kWide);
  for (const Group& group : report.groups) {
    if (group.results.empty()) continue;
    body += "<h2>" + escaped(group.name) + "</h2>";
    if (group.regret > 0)
      body +=
          fmt::format("<p>The planner's plan takes {:.2f} × the fastest's time.</p>", group.regret);
    if (!group.results.front()->of->ghosts.empty())
      body +=
          "<p>Measured on this machine: route, lookup, assemble, update and memory of each rank "
          "that "
          "was run alone, with the ids that its peers would have sent. Modelled: the time of its "
          "messages on the cluster's links, which is added to the step. Not there: waits for "
          "slower "
          "ranks.</p>";
    std::vector<Point> memory, sent, predicted;
    for (const Result* r : group.results) {
      const bool planned = r->of->plan == "auto";
      const bool fits = r->of->fits;
      memory.push_back({r->fullest(), r->whole_ms(), r->of->plan, planned, false, 0, 0, fits});
      sent.push_back({r->most_sent(), r->whole_ms(), r->of->plan, planned, false, 0, 0, fits});
      if (r->predicted_ms > 0)
        predicted.push_back({r->predicted_ms, r->whole_ms(), r->of->plan, planned, false,
                             r->interval.low, r->interval.high});
    }
    body += "<div class=\"pictures\"><figure>" +
            scatter(memory, "bytes of the fullest rank", "step, ms", true, false, true) +
            "<figcaption>Time over memory: green, nothing is better in both</figcaption></figure>"
            "<figure>" +
            scatter(sent, "bytes that the busiest rank sends", "step, ms", true, false, true) +
            "<figcaption>Time over bytes sent</figcaption></figure>";
    if (!predicted.empty())
      body += "<figure>" + scatter(predicted, "predicted, ms", "measured, ms", false, true, false) +
              "<figcaption>Prediction against measurement; dashed: equal; grey: where it was "
              "expected</figcaption></figure>";
    body += "</div>" + bars(group) + table(group, report);
  }
  for (const Result& r : report.results)
    if (!r.error.empty())
      body += fmt::format("<p><b>{}</b> failed: {}</p>", escaped(r.of->name), escaped(r.error));
  if (!report.missing.empty()) body += "<p>" + escaped(report.missing) + ".</p>";
  return "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width,initial-scale=1\"><title>" +
         escaped(settings.model.name) +
         ": plans compared</title><style>body{font:15px/1.45 sans-serif;margin:1.2em "
         "auto;max-width:"
         "75em;padding:0 .8em;color:#222}h1{font-size:1.5em}.answer{font-size:1.15em;margin:.3em "
         "0}.figure "
         "b{font-size:2.2em}.note,figcaption{color:#555;font-size:.85em}.pictures{display:"
         "grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22em),1fr));gap:1em}figure{"
         "margin:0}svg{width:100%;max-width:46em;height:auto;font:11px sans-serif}.wide{overflow-x:"
         "auto}table{border-collapse:collapse;font-size:.85em}td,th{padding:.15em .6em;text-align:"
         "right;white-space:nowrap;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-"
         "align:left}.key span{white-space:nowrap;margin-right:.8em;font-size:.85em}.key i{display:"
         "inline-block;width:.8em;height:.8em;margin-right:.3em}</style>" +
         body + "</html>\n";
}

}  // namespace lab
