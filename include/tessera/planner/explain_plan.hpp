// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>
#include <tessera/planner/runner_up.hpp>
#include <tessera/planner/strategies.hpp>

#include <tessera/core/format.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

// What a plan's prediction says, in words: the step by its parts, the next best plan, and why each
// table is cut so. At run time only. docs/cost_model.md says how far a prediction can be
// trusted.

namespace detail {
using StageMember = double StageTimes::*;
}

namespace detail {

/// The parts of a step, in its order.
struct StepPart {
  StageMember seconds;
  std::string_view name;
};

inline constexpr std::array<StepPart, 8> step_parts{
    {{&StageTimes::route, "route"},
     {&StageTimes::lookup, "lookup"},
     {&StageTimes::exchange, "exchange"},
     {&StageTimes::assemble, "assemble"},
     {&StageTimes::exchange_gradients, "exchange of gradients"},
     {&StageTimes::update, "update"},
     {&StageTimes::dense, "dense layers"},
     {&StageTimes::all_reduce, "sum of dense gradients"}}};

/// The stages of the embeddings.
inline constexpr std::array<StageMember, 6> embedding_stages{&StageTimes::route,
                                                             &StageTimes::lookup,
                                                             &StageTimes::exchange,
                                                             &StageTimes::assemble,
                                                             &StageTimes::exchange_gradients,
                                                             &StageTimes::update};

/// Returns "5.183 ms = route 0.111 + lookup 0.106 + ...": parts of 0 ms are left out.
inline std::string describe_step(const Prediction& p, const Workload& workload) {
  std::string text;
  for (const StepPart& part : step_parts)
    if (const double seconds = p.stages.*part.seconds; seconds >= 1e-9)
      text +=
          formatted("{}{} {}", text.empty() ? "" : " + ", part.name, milliseconds_text(seconds));
  if (const double hidden = p.stages.total() - p.stages.total(workload.overlap_route); hidden > 0)
    text += formatted(" - {} of route beside the dense layers", milliseconds_text(hidden));
  return formatted("{} ms = {}", milliseconds_text(p.step_seconds), text);
}

/// Returns how a table is cut, seen from its rectangles. `places` stays empty.
inline TableCut cut_of_shards(const std::vector<Shard>& shards) {
  bool one_row_range = true, one_column_range = true, everywhere = false;
  std::vector<int> columns;
  for (const Shard& s : shards) {
    const Rectangle &r = s.rectangle, &first = shards.front().rectangle;
    everywhere |= s.rank == every_rank;
    one_row_range &= r.row_begin == first.row_begin && r.row_end == first.row_end;
    one_column_range &= r.column_begin == first.column_begin && r.column_end == first.column_end;
    if (std::find(columns.begin(), columns.end(), r.column_begin) == columns.end())
      columns.push_back(r.column_begin);
  }
  const int parts = std::max(1, static_cast<int>(columns.size()));
  const Tier tier = shards.empty() ? Tier::device : shards.front().tier;
  TableCut cut{.cut = Cut::table_wise, .tier = tier};
  for (const Shard& s : shards) cut.cache_rows = std::max(cut.cache_rows, s.cache_rows);
  if (everywhere) {
    cut.cut = Cut::replicated;
  } else if (shards.size() > 1) {
    cut.cut = one_row_range ? Cut::column_wise : one_column_range ? Cut::row_wise : Cut::grid;
    cut.parts = parts;
  }
  return cut;
}

/// Returns whether a policy cuts the table into these rectangles, those of any rank wherever they
/// are.
inline bool cuts_into(const PlannedPolicy& policy, const TableSpec& table, const Topology& topology,
                      const std::vector<Shard>& shards) {
  std::size_t found = 0;
  const int count = policy.count(table, topology);
  for (int i = 0; i < count; ++i) {
    const ShardRequest asked = policy.shard(table, topology, i);
    if (asked.rectangle.empty()) continue;
    const bool everywhere = asked.place.kind == Place::Kind::every,
               fixed = asked.place.kind == Place::Kind::rank;
    found +=
        static_cast<std::size_t>(std::count_if(shards.begin(), shards.end(), [&](const Shard& s) {
          return s.rectangle == asked.rectangle && s.tier == asked.tier &&
                 (s.rank == every_rank) == everywhere && (!fixed || s.rank == asked.place.index);
        }));
  }
  return found == shards.size();
}

}  // namespace detail

/// Returns "row-wise", "column-wise 4 on the host, behind a cache"; a policy of the user's by its
/// name.
inline std::string describe(const detail::TableCut& cut) {
  if (cut.cut == Cut::own) return std::string(cut.policy.name);
  const std::string_view where = cut.tier == Tier::file   ? " in a file"
                                 : cut.tier != Tier::host ? ""
                                 : cut.cache_rows == 0    ? " on the host"
                                                          : " on the host, behind a cache";
  return cut.parts > 1 ? detail::formatted("{} {}{}", to_string(cut.cut), cut.parts, where)
                       : detail::formatted("{}{}", to_string(cut.cut), where);
}

namespace detail {

/// Why one table is cut so: what the step would be with its other cuts, if nothing else
/// changes.
struct CutReason {
  /// Another cut of the table, its parts on the ranks that carry least.
  struct Other {
    TableCut cut{};
    double step_seconds = -1;  ///< negative: there is none
    std::int64_t most_bytes = 0;
    std::string_view part{};  ///< of the step that grows most
    int rectangles = 1;
  };
  int table = 0;
  TableCut cut{};
  bool pinned = false;
  bool unsuited = false;  ///< it stays whole, as what is pinned or allowed does not suit it
  int ranks = 1;
  double step_seconds = 0;      ///< of the plan
  std::int64_t bytes = 0;       ///< of the whole table, optimizer state included
  std::int64_t most_bytes = 0;  ///< on the plan's fullest rank
  std::int64_t room = 0;        ///< of a rank; 0: no limit
  int rectangles = 1;
  Other best{};          ///< the fastest other cut that fits
  Other without_room{};  ///< the fastest that does not fit
  std::string cache{};   ///< describe_cache
};

/// Returns, of a table OnHost, whether a cache pays: "a cache of 5000 rows would have 81 % of a
/// batch's rows: 1.200 ms of the step instead of 3.400; caches of this table pay from a hit rate of
/// 35 % on". Of its first rectangle that is there; empty if there is none, or all fit the cache.
/// The cache is the rectangle's, else as CostModel::cache_rows has it.
inline std::string describe_cache(const std::vector<Shard>& shards, const CostModel& model) {
  const auto at = std::find_if(shards.begin(), shards.end(),
                               [](const Shard& s) { return s.tier == Tier::host; });
  if (at == shards.end()) return {};
  const std::int64_t cached =
      at->cache_rows != 0 ? at->cache_rows : model.cache_rows(at->table, at->rectangle);
  if (cached >= at->rectangle.rows()) return {};
  const CacheGain gain = model.cache_gain(at->table, at->rectangle, at->rank == every_rank, cached);
  return formatted(
      "a cache of {} rows {} {:.0f} % of a batch's rows: {} ms of the step instead of {}; {}",
      cached, at->cache_rows != 0 ? "has" : "would have", 100 * gain.hit_rate,
      milliseconds_text(gain.seconds), milliseconds_text(gain.seconds_without),
      gain.pays_from > 1    ? "caches of this table never pay"
      : gain.pays_from <= 0 ? "caches of this table pay at any hit rate"
                            : formatted("caches of this table pay from a hit rate of {:.0f} % on",
                                        100 * gain.pays_from));
}

/// Predicts a plan with another cut of one table, without going through the others again.
class OtherCuts {
 public:
  OtherCuts(const Layout& layout, const CostModel& model, const PlanConstraints& constraints)
      : layout_(layout), model_(model), constraints_(constraints), by_table_(layout.tables.size()) {
    plan_ = predict(layout, model);
    for (const Shard& s : layout.shards) by_table_[static_cast<std::size_t>(s.table)].push_back(s);
    for (const Shard& s : layout.shards) count(s, 1);
    layout_.shards.clear();
    empty_ = predict(layout_, model);
    const std::int64_t memory = model.cluster().memory_per_rank;
    room_ = memory == 0 ? 0 : std::max<std::int64_t>(memory - constraints.reserve, 0);
    for (const TablePin& pin : constraints.pins)
      if (pin.policy.given()) policies_.push_back(pin.policy);
    policies_.insert(policies_.end(), constraints.policies.begin(), constraints.policies.end());
    constraints_.pins.swap(pins_);
  }

  CutReason explain(int table) {
    const std::vector<Shard>& own = by_table_[static_cast<std::size_t>(table)];
    const TableSpec& spec = layout_.tables[static_cast<std::size_t>(table)];
    const auto pin = std::find_if(pins_.begin(), pins_.end(),
                                  [&](const TablePin& p) { return p.table == spec.name; });
    const bool pinned = pin != pins_.end();
    const TableCut cut = cut_of(own, spec);
    CutReason reason{
        .table = table,
        .cut = cut,
        .pinned = pinned,
        .unsuited = cut.cut == Cut::table_wise &&
                    (pinned ? pin->cut != Cut::table_wise && pin->cut != Cut::own && pin->parts != 1
                            : !constraints_.allows(Cut::table_wise)),
        .ranks = layout_.ranks(),
        .step_seconds = plan_.step_seconds,
        .bytes = model_.memory(table).of({0, spec.rows, 0, spec.width}),
        .most_bytes = plan_.most_bytes(),
        .room = room_,
        .rectangles = static_cast<int>(own.size()),
        .cache = describe_cache(own, model_)};
    if (reason.pinned || reason.ranks == 1) return reason;
    const Prediction rest = without(own);
    std::vector<CutOption> options;
    append_cut_options(layout_, table, model_, constraints_, options);
    for (const CutOption& o : options) {
      if (o.cut == reason.cut.cut && (o.parts == reason.cut.parts || o.cut == Cut::hot_rows) &&
          o.policy.shard == reason.cut.policy.shard && o.tier == reason.cut.tier &&
          (o.cache_rows == 0) == (reason.cut.cache_rows == 0))
        continue;
      TableCut cut{.cut = o.cut,
                   .parts = o.parts,
                   .places = places(o, rest),
                   .policy = o.policy,
                   .tier = o.tier,
                   .cache_rows = o.cache_rows};
      std::vector<Shard> shards;
      append_shards(shards, table, spec, cut, layout_.topology);
      const Prediction p = with(rest, shards);
      CutReason::Other& slot = fits_cluster(p, model_.cluster(), constraints_.reserve)
                                   ? reason.best
                                   : reason.without_room;
      if (slot.step_seconds < 0 || p.step_seconds < slot.step_seconds)
        slot = {std::move(cut), p.step_seconds, p.most_bytes(), grown(p),
                static_cast<int>(shards.size())};
    }
    for (const Shard& s : own) count(s, 1);
    return reason;
  }

 private:
  /// Returns how a table is cut. Policies are known by their rectangles, where those are no plain
  /// cut's.
  TableCut cut_of(const std::vector<Shard>& own, const TableSpec& spec) const {
    if (own.size() > 1)
      for (const PlannedPolicy& policy : policies_)
        if (cuts_into(policy, spec, layout_.topology, own))
          return {.cut = Cut::own, .policy = policy};
    TableCut cut = cut_of_shards(own);
    const auto take = [&](const TableCut& other) {
      std::vector<Shard> dealt;
      append_shards(dealt, own.front().table, spec, other, layout_.topology);
      if (std::is_permutation(dealt.begin(), dealt.end(), own.begin(), own.end(),
                              [](const Shard& a, const Shard& b) {
                                return a.rectangle == b.rectangle && a.rank == b.rank;
                              }))
        cut = other;
    };
    if (cut.cut == Cut::row_wise && own.size() > static_cast<std::size_t>(layout_.ranks()))
      take({.cut = Cut::interleaved});
    if (cut.cut == Cut::replicated && own.size() > 1)
      for (const Shard& s : own)
        if (s.rank == every_rank && s.rectangle.row_end <= std::numeric_limits<int>::max())
          take({.cut = Cut::hot_rows, .parts = static_cast<int>(s.rectangle.row_end)});
    return cut;
  }

  void count(const Shard& s, int times) {
    replicas_ += s.rank == every_rank ? times : 0;
    const int width = s.rectangle.width();
    auto at = std::find_if(widths_.begin(), widths_.end(),
                           [&](const auto& w) { return w.first == width; });
    if (at == widths_.end()) at = widths_.insert(at, {width, 0});
    at->second += times;
  }

  /// Adds what a step costs once, whatever the rectangles: calls per width, and the collectives of
  /// replicas' updates.
  static void add_calls(Prediction& p, const CostModel& model, std::size_t widths, bool replicas,
                        double times) {
    const double launches = times * static_cast<double>(widths) * model.cluster().launch_seconds;
    for (StageTimes& s : p.ranks) {
      s.lookup += launches;
      s.update += launches + (replicas ? times * 3 * model.collective_seconds() : 0);
    }
  }
  std::size_t width_count() const {
    return static_cast<std::size_t>(
        std::count_if(widths_.begin(), widths_.end(), [](const auto& w) { return w.second > 0; }));
  }

  /// Adds some rectangles of one table to `to`, calls aside.
  void add(Prediction& to, const std::vector<Shard>& shards, double times) {
    layout_.shards = shards;
    Prediction p = predict(layout_, model_);
    layout_.shards.clear();
    std::vector<int> widths;
    bool replicas = false;
    for (const Shard& s : shards) {
      replicas |= s.rank == every_rank;
      if (std::find(widths.begin(), widths.end(), s.rectangle.width()) == widths.end())
        widths.push_back(s.rectangle.width());
    }
    add_calls(p, model_, widths.size(), replicas, -1);
    for (std::size_t r = 0; r < to.ranks.size(); ++r) {
      for (const StepPart& part : step_parts)
        to.ranks[r].*part.seconds +=
            times * (p.ranks[r].*part.seconds - empty_.ranks[r].*part.seconds);
      for (const Tier tier : all_tiers)
        to.bytes_in(tier)[r] += static_cast<std::int64_t>(times) * p.bytes_in(tier)[r];
    }
  }

  /// Returns the plan without a table's rectangles, and without calls. Takes them out of the
  /// counts, too.
  Prediction without(const std::vector<Shard>& own) {
    Prediction rest = plan_;
    add_calls(rest, model_, width_count(), replicas_ > 0, -1);
    add(rest, own, -1);
    for (const Shard& s : own) count(s, -1);
    return rest;
  }
  Prediction with(const Prediction& rest, const std::vector<Shard>& shards) {
    Prediction p = rest;
    add(p, shards, 1);
    for (const Shard& s : shards) count(s, 1);
    add_calls(p, model_, width_count(), replicas_ > 0, 1);
    for (const Shard& s : shards) count(s, -1);
    finish(p, model_);
    return p;
  }

  /// Returns where the parts of a cut go: those ranks, or nodes, first that have room and carry
  /// least.
  std::vector<int> places(const CutOption& o, const Prediction& rest) const {
    if (o.cut == Cut::replicated || o.cut == Cut::row_wise) return {};
    const std::vector<int> by_rank = least_loaded(1, o.bytes, rest),
                           by_node = least_loaded(layout_.topology.node_size(), o.bytes, rest);
    std::vector<int> chosen;
    const auto choose = [&](const std::vector<int>& order) {
      chosen.push_back(order[chosen.size() % order.size()]);
    };
    if (o.pieces.empty())
      for (int k = 0; k < o.parts; ++k) choose(o.cut == Cut::grid ? by_node : by_rank);
    PlaceNumbers numbers;
    for (const PartCost& piece : o.pieces)
      if (numbers.next(piece.place) == static_cast<int>(chosen.size()))
        choose(piece.place.kind == Place::Kind::any ? by_rank : by_node);
    return chosen;
  }

  /// Returns ranks, or nodes of `size` ranks: first those that have room for `bytes` and carry
  /// least.
  std::vector<int> least_loaded(int size, std::int64_t bytes, const Prediction& rest) const {
    std::vector<std::pair<std::pair<bool, double>, int>> order;
    for (int place = 0; place < layout_.ranks() / size; ++place) {
      bool full = false;
      double seconds = 0;
      for (int r = place * size; r < (place + 1) * size; ++r) {
        full |= room_ > 0 && rest.bytes[static_cast<std::size_t>(r)] + bytes > room_;
        seconds = std::max(seconds, rest.ranks[static_cast<std::size_t>(r)].embeddings());
      }
      order.push_back({{full, seconds}, place});
    }
    std::sort(order.begin(), order.end());
    std::vector<int> places;
    for (const auto& [load, place] : order) places.push_back(place);
    return places;
  }

  std::string_view grown(const Prediction& p) const {
    const auto more = [&](const StepPart& part) {
      return p.stages.*part.seconds - plan_.stages.*part.seconds;
    };
    return std::max_element(step_parts.begin(), step_parts.end(),
                            [&](const StepPart& a, const StepPart& b) { return more(a) < more(b); })
        ->name;
  }

  Layout layout_;  // tables and features; rectangles of one table at a time
  const CostModel& model_;
  PlanConstraints constraints_;
  std::vector<std::vector<Shard>> by_table_;
  std::vector<TablePin> pins_;
  std::vector<PlannedPolicy> policies_;  // the user's
  Prediction plan_, empty_;
  std::vector<std::pair<int, int>> widths_;  // and how many rectangles have them
  int replicas_ = 0;
  std::int64_t room_ = 0;  // of a rank; 0: no limit
};

/// Returns the reasons of some tables' cuts. `constraints` are those that the plan was made under.
inline std::vector<CutReason> explain_cuts(const Layout& layout, const CostModel& model,
                                           const PlanConstraints& constraints,
                                           const std::vector<int>& tables) {
  OtherCuts others(layout, model, constraints);
  std::vector<CutReason> reasons;
  for (const int table : tables) reasons.push_back(others.explain(table));
  return reasons;
}

inline std::string describe_choice(const CutReason& r) {
  if (r.pinned && !r.unsuited) return "pinned";
  if (r.ranks == 1) return "there is one rank";
  if (r.unsuited)
    return r.pinned ? "whole, as the cut that is pinned does not suit it on these ranks"
                    : "whole, though forbidden, as no cut that is allowed suits it";
  const auto percent = [&](const CutReason::Other& o) {
    return 100 * (o.step_seconds / r.step_seconds - 1);
  };
  std::string text;
  if (r.room > 0 && r.bytes > r.room && r.cut.cut != Cut::table_wise)
    text = formatted("larger than a rank's memory ({} of {}); ", bytes_text(r.bytes),
                     bytes_text(r.room));
  else if (r.cut.cut == Cut::replicated)
    text = formatted("a copy on every rank ({}) needs no exchange; ", bytes_text(r.bytes));
  const CutReason::Other &best = r.best, &full = r.without_room;
  if (full.step_seconds >= 0 && full.step_seconds < r.step_seconds * 0.999 &&
      (best.step_seconds < 0 || full.step_seconds < best.step_seconds))
    text += formatted("{} would be {:.1f} % faster, but a rank would hold {} of {}; ",
                      describe(full.cut), -percent(full), bytes_text(full.most_bytes),
                      bytes_text(r.room));
  if (best.step_seconds < 0)
    return text + (full.step_seconds < 0 ? "no other cut is allowed" : "no other cut fits");
  const double more = percent(best);
  if (more > 0.1)
    return text +
           formatted("the next best, {}, makes the step {} ms ({:.1f} %) longer, mostly in {}",
                     describe(best.cut), milliseconds_text(best.step_seconds - r.step_seconds),
                     more, best.part);
  if (more >= -0.1) return text + formatted("{} would take as long", describe(best.cut));
  text += formatted("{} would be {:.1f} % faster, but ", describe(best.cut), -more);
  // what the planner weighs against time
  const double memory = r.room == 0 ? 0
                                    : static_cast<double>(best.most_bytes - r.most_bytes) /
                                          static_cast<double>(r.room);
  if (100 * memory > -more / 2)
    return text + formatted("the fullest rank would hold {} of {} instead of {}",
                            bytes_text(best.most_bytes), bytes_text(r.room),
                            bytes_text(r.most_bytes));
  if (best.rectangles > r.rectangles && more > -0.5)
    return text + formatted("it needs {} rectangles instead of {}", best.rectangles, r.rectangles);
  return text + "the search does not try every plan";
}

}  // namespace detail

/// Returns the reason in words, without the table's name and cut; of tables OnHost whether a cache
/// pays.
inline std::string describe(const detail::CutReason& r) {
  return detail::describe_choice(r) + (r.cache.empty() ? "" : "; ") + r.cache;
}

}}  // namespace tessera::v0
