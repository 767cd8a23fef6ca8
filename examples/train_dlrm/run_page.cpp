// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "../tessera_plan/picture.hpp"
#include "run_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlrm {
namespace {

using plan::escaped;
using plan::kPageWidth;

constexpr std::array<const char*, 20> kColours{
    "#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1",
    "#ff9da7", "#9c755f", "#bab0ac", "#86bcb6", "#d37295", "#a0cbe8", "#ffbe7d",
    "#8cd17d", "#b6992d", "#499894", "#d4a6c8", "#d7b5a6", "#79706e"};
constexpr double kLeft = 70, kTop = 14, kChartHeight = 180;

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< step, value
};

/// The numbers that events of one kind have under a name.
Curve curve_of(const RunLog& log, const char* event, const char* name, std::string title) {
  Curve curve{std::move(title), {}};
  for (const RunLog::Event& e : log.events())
    if (e["event"] == event && e.contains(name) && e[name].is_number())
      curve.points.emplace_back(e["step"].get<double>(), e[name].get<double>());
  return curve;
}

/// A step of 1, 2 or 5 times a power of ten that cuts a range into 4 to 10 parts.
double tick_of(double range) {
  const double power = std::pow(10, std::floor(std::log10(range / 4)));
  for (const double factor : {5.0, 2.0})
    if (range / (factor * power) >= 4) return factor * power;
  return power;
}

/// Curves over the steps of the run. Every point is a circle that says its numbers.
std::string chart(const std::vector<Curve>& curves) {
  double last = 0, least = 0, most = 0;
  bool any = false;
  for (const Curve& curve : curves)
    for (const auto& [step, value] : curve.points) {
      last = std::max(last, step);
      least = any ? std::min(least, value) : value;
      most = any ? std::max(most, value) : value;
      any = true;
    }
  if (!any) return "<p>The run has none.</p>\n";
  if (most - least < 1e-12 * std::max(1.0, std::abs(most))) most = least + 1;
  const double tick = tick_of(most - least), low = std::floor(least / tick) * tick,
               high = std::ceil(most / tick) * tick, width = kPageWidth - kLeft - 20;
  const auto x = [&](double step) { return kLeft + width * step / std::max(last, 1.0); };
  const auto y = [&](double value) { return kTop + kChartHeight * (high - value) / (high - low); };
  std::string body;
  for (int i = 0; low + i * tick <= high + tick / 2; ++i)
    body += fmt::format(
        R"(<line x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}" stroke="#ddd"/><text x="{3}" y="{4:.1f}" text-anchor="end">{5:g}</text>)",
        kLeft, kLeft + width, y(low + i * tick), kLeft - 5, y(low + i * tick) + 3,
        std::abs(low + i * tick) < tick / 2 ? 0.0 : low + i * tick);
  const double step_tick = std::max(1.0, tick_of(std::max(last, 1.0)));
  for (double step = 0; step <= last; step += step_tick)
    body += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{:.0f}</text>)", x(step),
                        kTop + kChartHeight + 14, step);
  double legend = kLeft;
  for (std::size_t c = 0; c < curves.size(); ++c) {
    const Curve& curve = curves[c];
    std::string line, circles;
    for (const auto& [step, value] : curve.points) {
      line += fmt::format("{:.2f},{:.2f} ", x(step), y(value));
      circles += fmt::format(
          R"(<circle cx="{:.2f}" cy="{:.2f}" r="2" fill="{}"><title>step {:.0f}: {}</title></circle>)",
          x(step), y(value), kColours[c], step, value);
    }
    body += fmt::format(
        R"(<g data-curve="{0}"><polyline points="{1}" fill="none" stroke="{2}" stroke-width="1.5"/>{3}</g><rect x="{4}" y="{5}" width="9" height="9" fill="{2}"/><text x="{6}" y="{7}">{0}</text>)",
        escaped(curve.name), line, kColours[c], circles, legend, kTop + kChartHeight + 22,
        legend + 13, kTop + kChartHeight + 30);
    body += '\n';
    legend += 40 + 6 * static_cast<double>(curve.name.size());
  }
  return plan::svg(body, kTop + kChartHeight + 36);
}

/// Stacked bars: the seconds of a step by stage, one bar for a few reports that are neighbours.
std::string stages_chart(const RunLog& log) {
  std::vector<std::string> names;
  std::vector<std::map<std::string, double>> bars;
  std::vector<double> steps;
  constexpr std::size_t kMostBars = 60;
  std::vector<const RunLog::Event*> reports;
  for (const RunLog::Event& e : log.events())
    if (e["event"] == "report" && e.contains("stages")) reports.push_back(&e);
  if (reports.empty()) return "<p>The run has none.</p>\n";
  const std::size_t group = (reports.size() + kMostBars - 1) / kMostBars;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (i % group == 0) bars.emplace_back(), steps.push_back(0);
    const double share =
        1.0 / static_cast<double>(std::min(group, reports.size() - i / group * group));
    for (const auto& [name, seconds] : (*reports[i])["stages"].items()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      bars.back()[name] += share * seconds.get<double>();
    }
    steps.back() = (*reports[i])["step"].get<double>();
  }
  double most = 1e-12;
  for (const auto& bar : bars) {
    double sum = 0;
    for (const auto& [name, seconds] : bar) sum += seconds;
    most = std::max(most, sum);
  }
  const double width = (kPageWidth - kLeft - 20) / static_cast<double>(bars.size());
  std::string body = fmt::format(
      R"(<text x="{0}" y="{1}" text-anchor="end">{2:.4g} ms</text><text x="{0}" y="{3}" text-anchor="end">0</text>)",
      kLeft - 5, kTop + 4, 1e3 * most, kTop + kChartHeight);
  for (std::size_t b = 0; b < bars.size(); ++b) {
    double y = kTop + kChartHeight;
    for (std::size_t n = 0; n < names.size(); ++n) {
      const double seconds = bars[b][names[n]], height = kChartHeight * seconds / most;
      if (seconds <= 0) continue;
      y -= height;
      body += fmt::format(
          R"(<rect data-stage="{0}" x="{1:.1f}" y="{2:.2f}" width="{3:.1f}" height="{4:.2f}" fill="{5}"><title>to step {6:.0f}, {0}: {7:.4f} ms</title></rect>)",
          escaped(names[n]), kLeft + width * static_cast<double>(b), y, width * 0.9, height,
          kColours[n % kColours.size()], steps[b], 1e3 * seconds);
    }
    body += '\n';
  }
  double x = kLeft, y = kTop + kChartHeight + 8;
  for (std::size_t n = 0; n < names.size(); ++n) {
    const double wide = 30 + 6 * static_cast<double>(names[n].size());
    if (x + wide > kPageWidth) x = kLeft, y += 14;
    body += fmt::format(
        R"(<rect x="{}" y="{}" width="9" height="9" fill="{}"/><text x="{}" y="{}">{}</text>)", x,
        y, kColours[n % kColours.size()], x + 13, y + 8, escaped(names[n]));
    x += wide;
  }
  return plan::svg(body, y + 14);
}

std::string text_of(const RunLog::Event& value) {
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Members of an object as rows of two cells.
std::string table_of(const RunLog::Event& object) {
  std::string rows;
  for (const auto& [name, value] : object.items())
    if (!value.is_structured() && name != "event")
      rows +=
          fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escaped(name), escaped(text_of(value)));
  return "<table>\n" + rows + "</table>\n";
}

}  // namespace

std::string run_page(const RunLog& log) {
  const RunLog::Event* begin = nullptr;
  const RunLog::Event* end = nullptr;
  for (const RunLog::Event& event : log.events()) {
    if (event["event"] == "begin") begin = &event;
    if (event["event"] == "end") end = &event;
  }
  const RunLog::Event none = RunLog::Event::object();
  const RunLog::Event options =
      begin != nullptr && begin->contains("options") ? (*begin)["options"] : none;
  return fmt::format(
      R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>train_dlrm</title>
<style>body{{font:14px sans-serif;color:#333;max-width:1040px;margin:2em auto}}table{{border-collapse:collapse}}td{{padding:2px 14px 2px 0;vertical-align:top}}svg{{max-width:100%;height:auto}}</style></head><body>
<h1>train_dlrm</h1>
<p>{}</p>
<h2>Result</h2>
{}<h2>Loss</h2><p>Mean of the training samples since the point before.</p>
{}<h2>AUC</h2>
{}<h2>Learning rates</h2>
{}<h2>Samples per second</h2>
{}<h2>Time of a step by stage</h2><p>Mean over the ranks.</p>
{}<h2>Plan</h2><p>Boxes: rows (logarithm) by columns (logarithm), coloured by rank; grey: a copy on every rank. Point at a part to read what it is.</p>
{}<h2>Options</h2>
{}</body></html>
)",
      begin != nullptr && begin->contains("data") ? escaped(text_of((*begin)["data"])) : "",
      end != nullptr ? table_of(*end) : "<p>The run has not ended.</p>\n",
      chart({curve_of(log, "report", "loss", "loss")}),
      chart({curve_of(log, "test", "auc", "test AUC")}),
      chart({curve_of(log, "report", "rate", "tables"),
             curve_of(log, "report", "dense_rate", "linear layers")}),
      chart({curve_of(log, "report", "samples_per_second", "samples/s")}), stages_chart(log),
      log.plan_picture, table_of(options));
}

}  // namespace dlrm
