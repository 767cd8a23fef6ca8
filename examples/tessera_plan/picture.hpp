// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The picture of a plan, and what pages that show it share.
#pragma once

#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/plan.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plan {

/// As HTML and SVG take a text.
inline std::string escaped(std::string_view text) {
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
inline std::string colour(int rank) {
  if (rank < 0) return "#c8c8c8";
  const double hue = std::fmod(rank * 137.508, 360.0);
  return fmt::format("hsl({:.0f},{}%,{}%)", hue, 55 + rank / 3 % 3 * 10, 62 - rank / 9 % 3 * 9);
}

/// Rows that are not in the device's memory are paler, and said to be elsewhere.
inline double opacity(tessera::Tier tier) {
  return tier == tessera::Tier::device ? 1.0 : tier == tessera::Tier::host ? 0.5 : 0.25;
}
inline std::string_view where_text(tessera::Tier tier) {
  return tier == tessera::Tier::device ? ""
         : tier == tessera::Tier::host ? " of the host's memory"
                                       : " in a file";
}

inline constexpr double kPageWidth = 1000;

/// A part of a picture, as wide as a page.
struct Fragment {
  std::string svg;
  double height = 0;
};

/// Every table as a box, its height by the logarithm of its rows and its width by that of its
/// columns, cut as the plan cuts it.
inline Fragment tables_fragment(const tessera::Layout& layout,
                                const tessera::detail::MemoryCost& cost) {
  using namespace tessera;
  std::vector<std::vector<const Shard*>> shards(layout.tables.size());
  for (const Shard& s : layout.shards) shards[static_cast<std::size_t>(s.table)].push_back(&s);
  const double unit = layout.tables.size() > 400 ? 0.35 : layout.tables.size() > 100 ? 0.6 : 1;
  std::vector<std::size_t> order(layout.tables.size());
  for (std::size_t t = 0; t < order.size(); ++t) order[t] = t;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return layout.tables[a].rows > layout.tables[b].rows;
  });
  const double label = unit < 1 ? 2 : 13;
  Fragment f;
  double x = 0, y = 0, row_height = 0;
  for (const std::size_t t : order) {
    const TableSpec& table = layout.tables[t];
    const double w = unit * (10 + 10 * std::log2(1.0 + table.width)),
                 h = unit * (8 + 14 * std::log10(static_cast<double>(table.rows)));
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
          R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}" fill-opacity="{}" stroke="#fff" stroke-width=".6"><title>{}: rows [{}, {}), columns [{}, {}), {}, {}{}</title></rect>)",
          x + w * r.column_begin / table.width, y + h * static_cast<double>(r.row_begin) / rows,
          w * r.width() / table.width, h * static_cast<double>(r.rows()) / rows, colour(s->rank),
          opacity(s->tier), escaped(table.name), r.row_begin, r.row_end, r.column_begin,
          r.column_end, s->rank < 0 ? "every rank" : fmt::format("rank {}", s->rank),
          detail::bytes_text(detail::memory_cost(table, cost).of(r)), where_text(s->tier));
    }
    if (unit == 1)
      f.svg += fmt::format(R"(<text x="{:.1f}" y="{:.1f}">{}</text>)", x, y + h + 11,
                           escaped(table.name));
    f.svg += '\n';
    x += w + 4;
  }
  f.height = y + row_height + label;
  return f;
}

/// The colours of `tables_fragment`: of the first ranks, and of copies; and where rows lie.
inline Fragment ranks_legend(const tessera::Layout& layout) {
  using namespace tessera;
  constexpr int kMostRanks = 32;
  Fragment f{"", 16};
  double x = 0;
  const auto entry = [&](const std::string& fill, double opacity, const std::string& text) {
    const double width = 26 + 6 * static_cast<double>(text.size());
    if (x + width > kPageWidth) x = 0, f.height += 16;
    f.svg += fmt::format(
        R"(<rect x="{0:.0f}" y="{1:.0f}" width="9" height="9" fill="{2}" fill-opacity="{3}"/><text x="{4:.0f}" y="{5:.0f}">{6}</text>)",
        x, f.height - 12, fill, opacity, x + 13, f.height - 4, text);
    x += width;
  };
  const auto has = [&](auto which) { return std::ranges::any_of(layout.shards, which); };
  for (int rank = 0; rank < std::min(layout.ranks(), kMostRanks); ++rank)
    entry(colour(rank), 1, fmt::format("rank {}", rank));
  if (layout.ranks() > kMostRanks) entry("none", 1, fmt::format("... {}", layout.ranks() - 1));
  if (has([](const Shard& s) { return s.rank < 0; })) entry(colour(-1), 1, "every rank");
  for (const Tier tier : {Tier::host, Tier::file})
    if (has([&](const Shard& s) { return s.tier == tier; }))
      entry("#333", opacity(tier), "rows" + std::string(where_text(tier)));
  f.svg += '\n';
  return f;
}

/// A whole picture.
inline std::string svg(const std::string& body, double height) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" font-family="sans-serif" font-size="10" fill="#333">
{2}</svg>
)",
      kPageWidth, height, body);
}

/// The tables below their legend, and below a title if there is one.
inline Fragment plan_fragment(const tessera::Layout& layout,
                              const tessera::detail::MemoryCost& cost,
                              const std::string& title = {}) {
  const Fragment legend = ranks_legend(layout), tables = tables_fragment(layout, cost);
  const double top = title.empty() ? 0 : 20;
  const auto moved = [](double y, const std::string& svg) {
    return fmt::format("<g transform=\"translate(0,{:.0f})\">{}</g>", y, svg);
  };
  return {fmt::format(R"(<text x="0" y="14" font-size="13">{}</text>)", escaped(title)) +
              moved(top, legend.svg) + moved(top + legend.height + 4, tables.svg),
          top + legend.height + tables.height + 8};
}

}  // namespace plan
