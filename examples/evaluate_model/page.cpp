// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "evaluate.hpp"

#include "../tessera_plan/picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

namespace evaluate {
namespace {

constexpr double kLeft = 70, kTop = 28, kHeight = 220;
constexpr std::array<const char*, 6> kColours{"#4e79a7", "#f28e2b", "#e15759",
                                              "#76b7b2", "#59a14f", "#b07aa1"};

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< both positive
};

/// Both axes are logarithmic; every point is a circle that says its numbers. The vertical axis shows
/// `what`, in `unit`.
std::string chart(const std::vector<Curve>& curves, std::string_view what, std::string_view unit) {
  double left = 1e300, right = 0, low = 1e300, high = 0;
  for (const Curve& curve : curves)
    for (const auto& [x, y] : curve.points) {
      left = std::min(left, x), right = std::max(right, x);
      low = std::min(low, y), high = std::max(high, y);
    }
  low = std::floor(std::log10(low));
  high = std::max(std::ceil(std::log10(high)), low + 1);
  const double width = plan::kPageWidth - kLeft - 20,
               range = std::max(std::log2(right / left), 1.0);
  const auto at_x = [&](double x) { return kLeft + width * std::log2(x / left) / range; };
  const auto at_y = [&](double y) {
    return kTop + kHeight * (high - std::log10(y)) / (high - low);
  };
  std::string body = fmt::format(
      R"(<text x="8" y="{}" font-weight="bold">{}, {}</text><text x="{}" y="{}" text-anchor="end" font-weight="bold">samples of a request</text>)",
      kTop - 12, what, unit, plan::kPageWidth, kTop + kHeight + 30);
  for (double power = low; power <= high; ++power)
    body += fmt::format(
        R"(<line x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}" stroke="#ddd"/><text x="{3}" y="{4:.1f}" text-anchor="end">{5:g}</text>)",
        kLeft, kLeft + width, at_y(std::pow(10, power)), kLeft - 5, at_y(std::pow(10, power)) + 3,
        std::pow(10, power));
  std::set<double> places;
  for (const Curve& curve : curves)
    for (const auto& point : curve.points) places.insert(point.first);
  for (const double x : places)
    body += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{:g}</text>)", at_x(x),
                        kTop + kHeight + 14, x);
  double legend = kLeft;
  for (std::size_t c = 0; c < curves.size(); ++c) {
    const char* const colour = kColours[c % kColours.size()];
    std::string line, circles;
    for (const auto& [x, y] : curves[c].points) {
      line += fmt::format("{:.2f},{:.2f} ", at_x(x), at_y(y));
      circles += fmt::format(
          R"(<circle cx="{:.2f}" cy="{:.2f}" r="3" fill="{}"><title>{}, batch {}: {:.4g} {}</title></circle>)",
          at_x(x), at_y(y), colour, curves[c].name, x, y, unit);
    }
    body += fmt::format(
        R"(<polyline points="{0}" fill="none" stroke="{1}" stroke-width="1.5"/>{2}<rect x="{3}" y="{4}" width="9" height="9" fill="{1}"/><text x="{5}" y="{6}">{7}</text>)",
        line, colour, circles, legend, kTop + kHeight + 22, legend + 13, kTop + kHeight + 30,
        curves[c].name);
    body += '\n';
    legend += 40 + 6 * static_cast<double>(curves[c].name.size());
  }
  return plan::svg(body, kTop + kHeight + 36);
}

std::string loop_name(double load) {
  return load == 0 ? "Closed loop" : fmt::format("Open loop at {:.0f} %", 100 * load);
}

}  // namespace

std::string latency_page(const std::vector<Latency>& measured, const LatencyOptions& options) {
  std::string charts, rows;
  std::vector<Curve> throughput;
  for (const int threads : options.threads) {
    std::vector<double> loads{0};
    loads.insert(loads.end(), options.loads.begin(), options.loads.end());
    for (const double load : loads) {
      std::vector<Curve> curves{{"p50", {}}, {"p95", {}}, {"p99", {}}, {"max", {}}};
      for (const Latency& one : measured) {
        if (one.threads != threads || one.load != load) continue;
        const auto batch = static_cast<double>(one.batch);
        const double values[] = {one.p50, one.p95, one.p99, one.largest};
        for (std::size_t c = 0; c < curves.size(); ++c)
          curves[c].points.emplace_back(batch, std::max(values[c], 1e-3));
      }
      charts += fmt::format("<h2>{}, {} thread{}</h2>\n{}", loop_name(load), threads,
                            threads == 1 ? "" : "s", chart(curves, "latency", "µs"));
    }
    Curve& curve = throughput.emplace_back(
        Curve{fmt::format("{} thread{}", threads, threads == 1 ? "" : "s"), {}});
    for (const Latency& one : measured)
      if (one.threads == threads && one.load == 0)
        curve.points.emplace_back(static_cast<double>(one.batch), one.samples_per_second);
  }
  for (const Latency& one : measured)
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{:.1f}"
        "</td><td>{:.1f}</td><td>{:.0f}</td></tr>\n",
        loop_name(one.load), one.threads, one.batch, one.requests, one.p50, one.p95, one.p99,
        one.largest, one.samples_per_second);
  return fmt::format(
      R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Latency</title>
<style>body{{font:14px sans-serif;color:#333;max-width:1040px;margin:2em auto}}table{{border-collapse:collapse}}td,th{{padding:2px 14px 2px 0;text-align:right}}svg{{max-width:100%;height:auto}}</style></head><body>
<h1>Latency of {}</h1>
<p>Tables in {}. Microseconds from when a request was due to its scores, over samples of a request. In a closed loop each thread sends its next request when it has its scores. In an open loop requests come at random times, at a share of the closed loop's throughput, and their waiting for a thread counts.</p>
{}<h2>Throughput</h2><p>Closed loop.</p>
{}<h2>Figures</h2>
<table><tr><th>loop</th><th>threads</th><th>samples of a request</th><th>requests</th><th>p50, µs</th><th>p95, µs</th><th>p99, µs</th><th>max, µs</th><th>samples/s</th></tr>
{}</table></body></html>
)",
      plan::escaped(options.checkpoint.string()), options.format, charts,
      chart(throughput, "throughput", "samples/s"), rows);
}

}  // namespace evaluate
