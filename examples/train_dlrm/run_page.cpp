// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "../support/report.hpp"
#include "../tessera_plan/picture.hpp"
#include "run_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace dlrm {
namespace {

using plan::escaped;
using plan::kPageWidth;

constexpr std::array<const char*, 3> kColours{"#4e79a7", "#e15759", "#59a14f"};
constexpr double kLeft = 70, kTop = 28, kChartHeight = 180;

/// Of stage `s` of `all`: hues around the circle, neighbours also unlike in lightness.
std::string stage_colour(std::size_t s, std::size_t all) {
  return fmt::format("hsl({:.0f},60%,{}%)",
                     360.0 * static_cast<double>(s) / static_cast<double>(all),
                     s % 2 == 0 ? 42 : 64);
}

/// What an axis shows: the vertical one above its numbers, the horizontal one at its end.
std::string titles(const std::string& vertical, const std::string& horizontal) {
  return fmt::format(
      R"(<text x="{}" y="{}" font-weight="bold">{}</text><text x="{}" y="{}" text-anchor="end" font-weight="bold">{}</text>)",
      8, kTop - 12, escaped(vertical), kPageWidth, kTop + kChartHeight + 30, escaped(horizontal));
}

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

/// Curves over the steps of the run. Every point is a circle that says its numbers. `unit`: of the
/// values.
std::string chart(const std::vector<Curve>& curves, const std::string& unit) {
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
  std::string body = titles(unit, "step");
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

/// The seconds of a step by stage, of a few reports that are neighbours.
struct Bar {
  double step = 0, sum = 0;
  std::map<std::string, double> seconds;
};

std::vector<Bar> bars_of(const RunLog& log) {
  constexpr std::size_t kMostBars = 60;
  std::vector<const RunLog::Event*> reports;
  for (const RunLog::Event& e : log.events())
    if (e["event"] == "report" && e.contains("stages")) reports.push_back(&e);
  const std::size_t group = std::max<std::size_t>(1, (reports.size() + kMostBars - 1) / kMostBars);
  std::vector<Bar> bars;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (i % group == 0) bars.emplace_back();
    const double share =
        1.0 / static_cast<double>(std::min(group, reports.size() - i / group * group));
    for (const auto& [name, seconds] : (*reports[i])["stages"].items()) {
      bars.back().seconds[name] += share * seconds.get<double>();
      bars.back().sum += share * seconds.get<double>();
    }
    bars.back().step = (*reports[i])["step"].get<double>();
  }
  return bars;
}

/// Stacked bars, the longest stage below. The scale is that of ordinary steps: a longer bar ends at
/// the top, where its time stands.
std::string stages_chart(const RunLog& log) {
  const std::vector<Bar> bars = bars_of(log);
  if (bars.empty()) return "<p>The run has none.</p>\n";
  std::map<std::string, double> totals;
  std::vector<double> sums;
  for (const Bar& bar : bars) {
    sums.push_back(bar.sum);
    for (const auto& [name, seconds] : bar.seconds) totals[name] += seconds;
  }
  std::vector<std::string> names;
  double all = 0;
  for (const auto& [name, seconds] : totals) names.push_back(name), all += seconds;
  std::ranges::sort(names, std::greater(), [&](const std::string& name) { return totals[name]; });
  std::ranges::sort(sums);
  const double median = sums[sums.size() / 2],
               most = std::max(std::min(sums.back(), 2 * median), 1e-12);
  const double width = (kPageWidth - kLeft - 20) / static_cast<double>(bars.size()),
               bottom = kTop + kChartHeight;
  std::string body = titles("ms per step", "step");
  const double tick = tick_of(1e3 * most);
  for (int i = 0; i * tick <= 1e3 * most; ++i) {
    const double at = bottom - kChartHeight * i * tick / (1e3 * most);
    body += fmt::format(
        R"(<line x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}" stroke="#ddd"/><text x="{3}" y="{4:.1f}" text-anchor="end">{5:g}</text>)",
        kLeft, kPageWidth - 20, at, kLeft - 5, at + 3, i * tick);
  }
  for (std::size_t b = 0; b < bars.size(); ++b) {
    const double left = kLeft + width * static_cast<double>(b);
    double y = bottom;
    for (std::size_t n = 0; n < names.size(); ++n) {
      const auto found = bars[b].seconds.find(names[n]);
      if (found == bars[b].seconds.end() || found->second <= 0) continue;
      const double height = std::min(kChartHeight * found->second / most, y - kTop);
      y -= height;
      body += fmt::format(
          R"(<rect data-stage="{0}" x="{1:.1f}" y="{2:.2f}" width="{3:.1f}" height="{4:.2f}" fill="{5}"><title>to step {6:.0f}, {0}: {7:.4f} ms</title></rect>)",
          escaped(names[n]), left, y, width * 0.9, height, stage_colour(n, names.size()),
          bars[b].step, 1e3 * found->second);
    }
    if (bars[b].sum > most)
      body += fmt::format(
          R"(<path d="M{0:.1f} {1} l{2:.1f} -7 l{2:.1f} 7 z" fill="#333"/><text x="{3:.1f}" y="{4}">{5:.3g} ms</text>)",
          left, kTop, width * 0.45, left + width * 0.9 + 2, kTop - 1, 1e3 * bars[b].sum);
    if (b == 0 || b + 1 == bars.size() || (b + 1) % std::max<std::size_t>(1, bars.size() / 6) == 0)
      body += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{:.0f}</text>)",
                          left + width * 0.45, bottom + 14, bars[b].step);
    body += '\n';
  }
  constexpr double kColumn = 240;
  double x = kLeft, y = bottom + 40;
  for (std::size_t n = 0; n < names.size(); ++n) {
    if (x + kColumn > kPageWidth) x = kLeft, y += 14;
    body += fmt::format(
        R"(<rect x="{}" y="{}" width="9" height="9" fill="{}"/><text x="{}" y="{}">{}: {:.3g} ms, {:.1f} %</text>)",
        x, y, stage_colour(n, names.size()), x + 13, y + 8, escaped(names[n]),
        1e3 * totals[names[n]] / static_cast<double>(bars.size()), 100 * totals[names[n]] / all);
    x += kColumn;
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
    if (!value.is_structured() && name != "event" && value != "")
      rows +=
          fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escaped(name), escaped(text_of(value)));
  return "<table>\n" + rows + "</table>\n";
}

/// What came out, before all else: numbers with their names and units.
std::string result_of(const RunLog& log, const RunLog::Event& end) {
  std::string rows;
  const auto row = [&](const char* what, const std::string& value) {
    rows += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", what, value);
  };
  const auto number = [&](const char* name) {
    return end.contains(name) && end[name].is_number() ? end[name].get<double>() : NAN;
  };
  const auto fixed = [&](const char* what, const char* name) {
    if (std::isfinite(number(name))) row(what, fmt::format("{:.4f}", number(name)));
  };
  fixed("test AUC", "auc");
  fixed("test log loss", "logloss");
  const Curve tests = curve_of(log, "test", "auc", "");
  if (!tests.points.empty()) {
    const auto best = std::ranges::max_element(
        tests.points, {}, [](const std::pair<double, double>& point) { return point.second; });
    row("best test AUC", fmt::format("{:.4f}, at step {:.0f}", best->second, best->first));
  }
  fixed("AUC of the true probabilities", "best_auc");
  fixed("normalized entropy", "normalized_entropy");
  fixed("calibration", "calibration");
  if (std::isfinite(number("seconds"))) row("time", fmt::format("{:.1f} s", number("seconds")));
  for (const auto& [what, name, unit] : {std::tuple("speed", "samples_per_second", " samples/s"),

                                         {"steps", "steps", ""},
                                         {"training samples", "train_samples", ""},
                                         {"test samples", "test_samples", ""},
                                         {"parameters of tables", "embedding_parameters", ""},
                                         {"parameters of layers", "dense_parameters", ""}})
    if (std::isfinite(number(name))) row(what, support::grouped(std::llround(number(name))) + unit);
  return "<table class=\"result\">\n" + rows + "</table>\n";
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
  const auto about = [&](const char* name) {
    return begin != nullptr && begin->contains(name) ? escaped(text_of((*begin)[name]))
                                                     : std::string("?");
  };
  return fmt::format(
      R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>train_dlrm</title>
<style>body{{font:14px sans-serif;color:#333;max-width:1040px;margin:2em auto}}table{{border-collapse:collapse}}td{{padding:2px 14px 2px 0;vertical-align:top}}.result td:last-child{{font-weight:bold}}svg{{max-width:100%;height:auto}}</style></head><body>
<h1>train_dlrm</h1>
<h2>Result</h2>
{}<p>{}; {} ranks of {} thread(s).</p>
<h2>Loss</h2><p>Log loss: the mean of the training samples since the point before, and of the test samples.</p>
{}<h2>AUC</h2>
{}<h2>Learning rates</h2>
{}<h2>Samples per second</h2>
{}<h2>Time of a step by stage</h2><p>Mean over the ranks. A bar with a triangle is longer than the scale, by its number.</p>
{}<h2>Plan</h2><p>Boxes: rows (logarithm) by columns (logarithm), coloured by rank; grey: a copy on every rank. Point at a part to read what it is.</p>
{}<h2>Options</h2>
{}</body></html>
)",
      end != nullptr ? result_of(log, *end) : "<p>The run has not ended.</p>\n", about("data"),
      about("ranks"), about("threads_per_rank"),
      chart({curve_of(log, "report", "loss", "training loss"),
             curve_of(log, "test", "logloss", "test log loss")},
            "log loss"),
      chart({curve_of(log, "test", "auc", "test AUC")}, "AUC"),
      chart({curve_of(log, "report", "rate", "tables"),
             curve_of(log, "report", "dense_rate", "linear layers")},
            "learning rate"),
      chart({curve_of(log, "report", "samples_per_second", "samples/s")}, "samples per second"),
      stages_chart(log), log.plan_picture, table_of(options));
}

}  // namespace dlrm
