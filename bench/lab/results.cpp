// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "results.hpp"

#include "../../examples/support/files.hpp"
#include "../../examples/tessera_plan/json_text.hpp"

#include <tessera/core/error.hpp>
#include <tessera/planner/explain_plan.hpp>
#include <tessera/step/step_report.hpp>
#include <tessera/version.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>

namespace lab {
namespace {

using nlohmann::json;
using tessera::DataError;
using tessera::require;

double median(std::vector<double> values) { return percentiles_of(std::move(values)).p50; }

/// Each step's slowest rank, of `what` ("whole", or a stage of "seconds"), in milliseconds.
std::vector<double> slowest(const json& record, const char* what, std::size_t stage) {
  std::vector<double> most;
  for (const json& rank : record.at("ranks")) {
    const json& values = std::string_view(what) == "whole" ? rank.at(what) : rank.at(what)[stage];
    most.resize(std::max(most.size(), values.size()), 0);  // of ghosts some have none
    for (std::size_t i = 0; i < values.size(); ++i)
      most[i] = std::max(most[i], 1e3 * values[i].get<double>());
  }
  return most;
}

void append(std::vector<double>& to, const std::vector<double>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// Bytes of a rank. A laboratory's tables OnHost are in the same memory as the others.
double memory_of(const tessera::detail::Prediction& p, std::size_t rank) {
  return static_cast<double>(p.bytes[rank] + p.host_bytes[rank]);
}

Result result_of(const Case& c, const std::vector<json>& rounds) {
  Result result;
  result.of = &c;
  std::vector<double> steps;
  std::array<std::vector<double>, kStages> stages;
  std::vector<std::array<std::vector<double>, kStages>> own(static_cast<std::size_t>(c.ranks)),
      waits(static_cast<std::size_t>(c.ranks));
  result.ranks.resize(static_cast<std::size_t>(c.ranks));
  std::vector<double> tables, peaks;
  const json* last = nullptr;
  for (const json& record : rounds) {
    if (record.contains("error")) {
      result.error = record["error"].get<std::string>();
      continue;
    }
    last = &record;
    const std::vector<double> whole = slowest(record, "whole", 0);
    result.rounds.push_back(median(whole));
    append(steps, whole);
    tables.push_back(record.at("tables_bytes").get<double>());
    peaks.push_back(record.at("peak_bytes").get<double>());
    for (std::size_t s = 0; s < kStages; ++s) {
      append(stages[s], slowest(record, "seconds", s));
      for (std::size_t r = 0; r < own.size(); ++r) {
        append(own[r][s], record["ranks"][r].at("seconds")[s].get<std::vector<double>>());
        append(waits[r][s], record["ranks"][r].at("waits")[s].get<std::vector<double>>());
      }
    }
  }
  for (std::size_t r = 0; r < c.prediction.bytes.size(); ++r) {
    const double bytes = memory_of(c.prediction, r);
    if (c.ghosts.empty())
      result.predicted_tables += bytes;
    else if (std::find(c.ghosts.begin(), c.ghosts.end(), static_cast<int>(r)) != c.ghosts.end())
      result.predicted_tables = std::max(result.predicted_tables, bytes);
  }
  if (last == nullptr) {
    if (result.error.empty()) result.error = "it was not measured";
    return result;
  }
  result.step = percentiles_of(steps);
  result.tables_bytes = median(tables);
  result.peak_bytes = median(peaks);
  for (std::size_t s = 0; s < kStages; ++s) {
    result.stages[s] = percentiles_of(stages[s]);
    if (c.predicted)
      result.predicted_stage_ms[s] =
          1e3 * (c.prediction.stages.*tessera::detail::embedding_stages[s]);
  }
  if (c.predicted) result.predicted_ms = 1e3 * c.prediction.step_seconds;
  const double count = last->at("steps").get<double>();
  for (std::size_t r = 0; r < result.ranks.size(); ++r) {
    RankResult& rank = result.ranks[r];
    const json& from = (*last)["ranks"][r];
    for (std::size_t s = 0; s < kStages; ++s) {
      rank.stage_ms[s] = 1e3 * median(own[r][s]);
      rank.wait_ms[s] = 1e3 * median(waits[r][s]);
      rank.bytes[s] = from.at("bytes")[s].get<double>() / count;
      rank.messages[s] = from.at("messages")[s].get<double>() / count;
    }
    for (std::size_t s = 0; s < rank.rows.size(); ++s)
      rank.rows[s] = from.at("rows")[s].get<double>() / count;
    if (from.contains("cache")) {
      rank.cache_rows = from["cache"].at("rows").get<double>() / count;
      rank.fetched_rows = from["cache"].at("fetched_rows").get<double>() / count;
    }
    rank.link_ms = 1e3 * last->at("link_seconds")[r].get<double>();
    result.link_ms = std::max(result.link_ms, rank.link_ms);
    rank.predicted_bytes = memory_of(c.prediction, r);
  }
  return result;
}

/// The text in lines of at most 100 columns.
std::string wrapped(std::string_view text) {
  constexpr std::size_t most = 100;
  std::string out;
  while (text.size() > most) {
    std::size_t cut = text.rfind(' ', most);
    if (cut == text.npos || cut == 0) cut = most;
    out += std::string(text.substr(0, cut)) + "\n";
    text.remove_prefix(text[cut] == ' ' ? cut + 1 : cut);
  }
  return out + std::string(text) + "\n";
}

/// Milliseconds in at most 7 columns, below three hours.
std::string short_text(double value, int digits) {
  return value < std::pow(10, digits) ? fmt::format("{:.{}g}", value, digits)
                                      : fmt::format("{:.0f}", value);
}

std::string interval_text(const Interval& interval) {
  return interval.from == Interval::From::nothing
             ? "-"
             : short_text(interval.low, 2) + "-" + short_text(interval.high, 2);
}

/// "auto is fastest: 2.10 ms, 31 % less than table-wise; 5 of 6 rounds agree."
void answer(Group& group) {
  std::erase_if(group.results, [](const Result* r) { return !r->error.empty(); });
  std::sort(group.results.begin(), group.results.end(), [](const Result* a, const Result* b) {
    return std::pair(!a->of->fits, a->whole_ms()) < std::pair(!b->of->fits, b->whole_ms());
  });
  if (group.results.empty()) {
    group.answer = fmt::format("On {}: no case could be measured.", group.name);
    return;
  }
  const Result& first = *group.results.front();
  if (!first.of->fits) {
    group.answer = fmt::format("On {}: no plan fits the cluster's memory.", group.name);
    return;
  }
  group.answer = fmt::format("On {}: {} is fastest, {:.3g} ms a step", group.name, first.of->plan,
                             first.whole_ms());
  if (!first.of->ghosts.empty())
    group.answer += fmt::format(" ({:.3g} measured, {:.3g} modelled for the links)", first.step.p50,
                                first.link_ms);
  if (group.results.size() > 1 && group.results[1]->of->fits) {
    const Result& second = *group.results[1];
    const std::size_t count = std::min(first.rounds.size(), second.rounds.size());
    std::size_t agree = 0;
    for (std::size_t i = 0; i < count; ++i)
      agree += first.rounds[i] + first.link_ms < second.rounds[i] + second.link_ms;
    group.answer += fmt::format(", {:.0f} % less than {}; {} of {} rounds agree",
                                100 * (1 - first.whole_ms() / second.whole_ms()), second.of->plan,
                                agree, count);
    if (first.wide() || second.wide())
      group.answer += ", but their steps spread too widely to be sure";
  }
  group.answer += ".";
  const auto planned = std::find_if(group.results.begin(), group.results.end(),
                                    [](const Result* r) { return r->of->plan == "auto"; });
  if (planned != group.results.end() && group.results.size() > 1)
    group.regret = (*planned)->whole_ms() / first.whole_ms();
}

/// Other ghosts, or the same on other links, are another case.
std::string compared_name(const std::string& name, std::uint64_t ghost_checksum) {
  return fmt::format("{} {:x}", name, ghost_checksum);
}

}  // namespace

Percentiles percentiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {values.front(), at(0.1), at(0.5), at(0.9)};
}

double RankResult::sent() const { return std::accumulate(bytes.begin(), bytes.end(), 0.0); }
double RankResult::sent_messages() const {
  return std::accumulate(messages.begin(), messages.end(), 0.0);
}
double RankResult::waited() const { return std::accumulate(wait_ms.begin(), wait_ms.end(), 0.0); }

double Result::most_sent() const {
  double most = 0;
  for (const RankResult& rank : ranks) most = std::max(most, rank.sent());
  return most;
}
double Result::most_messages() const {
  double most = 0;
  for (const RankResult& rank : ranks) most = std::max(most, rank.sent_messages());
  return most;
}
double Result::hit_rate() const {
  double asked = 0, fetched = 0;
  for (const RankResult& rank : ranks) {
    asked += rank.cache_rows;
    fetched += rank.fetched_rows;
  }
  return asked > 0 ? 1 - fetched / asked : -1;
}
double Result::fullest() const {
  double most = 0;
  for (std::size_t r = 0; r < of->prediction.bytes.size(); ++r)
    most = std::max(most, memory_of(of->prediction, r));
  return most;
}
double Result::imbalance() const {
  double most = 0, sum = 0, count = 0;
  for (const RankResult& rank : ranks) {
    if (!rank.measured()) continue;
    const double own = rank.stage_ms[1] + rank.stage_ms[5];
    most = std::max(most, own);
    sum += own;
    ++count;
  }
  return sum > 0 ? most * count / sum : 1;
}
bool Result::wide() const { return step.spread() > kWide; }

std::map<std::string, std::vector<double>> read_old_rounds(const std::string& path,
                                                           const Batches& batches) {
  std::map<std::string, std::vector<double>> rounds;
  try {
    const json old = plan::parse_json<json>(support::read_file(path, "--compare"), path);
    require<DataError>(old.is_object() && old.contains("laboratory"),
                       "--compare: '{}' is no results.json of the laboratory", path);
    const json& of = old.at("context");
    const auto same = [&](const char* what, const json& now) {
      require<DataError>(of.at(what) == now, "--compare: '{}' has the {} {}, this run {}", path,
                         what, of.at(what).dump(), now.dump());
    };
    same("batch", batches.samples);
    require<DataError>(of.at("checksum") == batches.checksum,
                       "--compare: '{}' is of other tables, features or ids ({}, {})", path,
                       of.at("model").dump(), of.at("ids").dump());
    for (const json& c : old.at("laboratory").at("cases"))
      if (c.contains("rounds_ms"))
        rounds[compared_name(c.at("name").get<std::string>(),
                             c.at("ghost_checksum").get<std::uint64_t>())] =
            c.at("rounds_ms").get<std::vector<double>>();
  } catch (const json::exception& error) {
    throw DataError(fmt::format("--compare: '{}': {}", path, error.what()));
  }
  return rounds;
}

Report report_of(const Settings& settings, const std::vector<Case>& cases, const Rounds& rounds,
                 const std::map<std::string, std::vector<double>>& old) {
  Report report;
  std::vector<double> fixed;
  for (const Case& c : cases) {
    const auto found = rounds.find(c.name);
    static const std::vector<json> none;
    const std::vector<json>& records = found == rounds.end() ? none : found->second;
    report.results.push_back(result_of(c, records));
    for (const json& record : records)
      if (record.contains("fixed_work_ms")) fixed.push_back(record["fixed_work_ms"].get<double>());
    const Result& result = report.results.back();
    const auto before = old.find(compared_name(c.name, c.ghost_checksum()));
    if (settings.compare.empty() || !result.error.empty()) continue;
    if (before == old.end() || before->second.empty()) {
      report.changes[c.name] = "new";
      continue;
    }
    const auto [old_least, old_most] =
        std::minmax_element(before->second.begin(), before->second.end());
    const auto [least, most] = std::minmax_element(result.rounds.begin(), result.rounds.end());
    const double change = 100 * (median(result.rounds) / median(before->second) - 1);
    // beyond noise: every round of one is slower than every round of the other, of several
    report.changes[c.name] = before->second.size() < 2 || result.rounds.size() < 2
                                 ? fmt::format("{:+.0f} %, one round", change)
                             : *least > *old_most || *most < *old_least
                                 ? fmt::format("{:+.0f} %", change)
                                 : std::string("same");
  }
  for (const auto& before : old)
    if (std::none_of(cases.begin(), cases.end(), [&](const Case& c) {
          return compared_name(c.name, c.ghost_checksum()) == before.first;
        }))
      report.missing += (report.missing.empty() ? "Not in this run, in the earlier one: " : "; ") +
                        before.first.substr(0, before.first.rfind(' '));
  report.fixed_work = percentiles_of(fixed);
  const plan::Constants& constants = settings.constants;
  add_intervals(report, settings.cluster == "host" && constants.measured &&
                            constants.source.starts_with("measured on this machine"));
  for (const Result& result : report.results) {
    const std::string name = result.of->group();
    const auto found = std::find_if(report.groups.begin(), report.groups.end(),
                                    [&](const Group& g) { return g.name == name; });
    (found == report.groups.end() ? report.groups.emplace_back(Group{name, {}, {}, 0}) : *found)
        .results.push_back(&result);
  }
  for (Group& group : report.groups) answer(group);
  return report;
}

std::string interval_note(const Report& report) {
  std::map<std::string, int> sources;
  bool missing = false;
  for (const Result& r : report.results) {
    if (r.interval.from != Interval::From::nothing)
      ++sources[describe(r.interval, !r.of->ghosts.empty())];
    missing |= r.error.empty() && r.predicted_ms > 0 && r.interval.from == Interval::From::nothing;
  }
  std::string text;
  for (const auto& [source, count] : sources)
    text +=
        wrapped(fmt::format("Interval, where the step is expected: {} ({} cases).", source, count));
  if (missing)
    text += wrapped(
        "No interval: fewer than nine other cases in the run, and constants that were not measured "
        "on this machine, or a machine that is not quiet, or ghost ranks.");
  return text;
}

std::string text_of(const Report& report, const Settings& settings, const Batches& batches) {
  using tessera::detail::bytes_text;
  std::string text = wrapped(fmt::format("{}: {} tables, ids {}", settings.model.name,
                                         settings.model.tables.size(), batches.source));
  text += wrapped(fmt::format("predictions: {}", settings.constants.source));
  text += wrapped(fmt::format(
      "machine: a loop of fixed work took {:.1f} ms, P10 {:.1f}, P90 {:.1f} (spread {:.0f} %)",
      report.fixed_work.p50, report.fixed_work.p10, report.fixed_work.p90,
      100 * report.fixed_work.spread()));
  for (const Group& group : report.groups) {
    text += "\n" + wrapped(group.answer);
    if (group.results.empty()) continue;
    if (group.regret > 0)
      text += fmt::format("The planner's plan takes {:.2f} x the fastest's time.\n", group.regret);
    const bool ghosts = !group.results.front()->of->ghosts.empty();
    text +=
        fmt::format("{:<16}{:>8}{:>8}{:>8}{:>8}{:>8}{:>16}{:>10}{:>10}\n", "plan", "P50 ms", "P10",
                    "P90", ghosts ? "+links" : "best", "predict", "interval", "sent", "fullest");
    for (const Result* r : group.results) {
      std::string plan = r->of->plan;
      if (plan.size() > 15) {
        plan.erase(0, plan.size() - 13);
        while (!plan.empty() && (plan[0] & '\xC0') == '\x80') plan.erase(0, 1);  // whole characters
        plan.insert(0, "..");
      }
      text += fmt::format(
          "{:<16}{:>8}{:>8}{:>8}{:>8}{:>8} {:>15}{:>10}{:>10} {}\n", plan,
          short_text(r->step.p50, 3), short_text(r->step.p10, 3), short_text(r->step.p90, 3),
          short_text(ghosts ? r->link_ms : r->step.best, 3),
          r->predicted_ms > 0 ? short_text(r->predicted_ms, 3) : "-", interval_text(r->interval),
          bytes_text(static_cast<std::int64_t>(r->most_sent())),
          bytes_text(static_cast<std::int64_t>(r->fullest())),
          !r->of->fits ? "no room"
          : r->wide()  ? "wide"
                       : "");
    }
    std::string hits, changes;
    for (const Result* r : group.results)
      if (r->hit_rate() >= 0)
        hits += fmt::format("{} {} {:.1f} %", hits.empty() ? "Rows that were in their cache:" : ",",
                            r->of->plan, 100 * r->hit_rate());
    if (!hits.empty()) text += wrapped(hits + ".");
    for (const Result* r : group.results)
      if (const auto change = report.changes.find(r->of->name); change != report.changes.end())
        changes += fmt::format("{} {} {}", changes.empty() ? "Since the earlier run:" : ";",
                               r->of->plan, change->second);
    if (!changes.empty()) text += wrapped(changes + ".");
  }
  for (const Result& r : report.results)
    if (!r.error.empty()) text += wrapped(fmt::format("{}: failed: {}", r.of->name, r.error));
  if (!report.missing.empty()) text += wrapped(report.missing + ".");
  text += "sent: by the rank that sends most, in a step; fullest: its tables and optimizer state\n";
  if (std::any_of(report.results.begin(), report.results.end(),
                  [](const Result& r) { return !r.of->fits; }))
    text += "no room: the plan does not fit the memory that --cluster gives a rank\n";
  text += interval_note(report);
  if (std::any_of(report.results.begin(), report.results.end(),
                  [](const Result& r) { return !r.of->ghosts.empty(); }))
    text += "ghost ranks: P50 to P90 are measured, links are modelled and come on top\n";
  return text;
}

nlohmann::ordered_json json_of(const Report& report, const Settings& settings,
                               const Batches& batches) {
  using Json = nlohmann::ordered_json;
  const plan::Calibration machine = plan::this_machine();
  Json json;
  json["context"] = {{"date", machine.date},
                     {"executable", settings.program},
                     {"num_cpus", machine.cores},
                     {"mhz_per_cpu", 0},
                     {"processor", machine.processor},
                     {"library_version", fmt::format("{}.{}.{}", TESSERA_VERSION_MAJOR,
                                                     TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH)},
                     {"library_build_type", "release"},
                     {"model", settings.model_file},
                     {"ids", batches.source},
                     {"batch", batches.samples},
                     {"checksum", batches.checksum},
                     {"constants", settings.constants.source}};
  json["benchmarks"] = Json::array();
  Json cases = Json::array();
  std::size_t family = 0;
  for (const Result& r : report.results) {
    Json counters;
    for (std::size_t s = 0; s < kStages; ++s)
      counters[fmt::format("{}_ms", kStageNames[s])] = r.stages[s].p50;
    if (r.predicted_ms > 0) counters["predicted_ms"] = r.predicted_ms;
    counters["bytes_per_rank"] = r.most_sent();
    counters["messages_per_rank"] = r.most_messages();
    counters["memory_balance"] = r.of->prediction.memory_imbalance();
    counters["time_balance"] = r.imbalance();
    for (std::size_t i = 0; i < r.rounds.size(); ++i) {
      Json run{{"name", r.of->name},
               {"family_index", family},
               {"per_family_instance_index", 0},
               {"run_name", r.of->name},
               {"run_type", "iteration"},
               {"repetitions", r.rounds.size()},
               {"repetition_index", i},
               {"threads", 1},
               {"iterations", settings.steps},
               {"real_time", r.rounds[i]},
               {"cpu_time", r.rounds[i]},
               {"time_unit", "ms"}};
      run.update(counters);
      run["label"] = r.of->group();
      json["benchmarks"].push_back(std::move(run));
    }
    ++family;
    Json c{{"name", r.of->name}, {"plan", r.of->plan}, {"group", r.of->group()}};
    if (!r.error.empty()) {
      c["error"] = r.error;
      cases.push_back(std::move(c));
      continue;
    }
    const auto percentiles = [](const Percentiles& p) {
      return Json{{"best", p.best}, {"p10", p.p10}, {"p50", p.p50}, {"p90", p.p90}};
    };
    c["ranks"] = r.of->ranks;
    c["fits_cluster"] = r.of->fits;
    c["axes"] = {{"optimizer", r.of->optimizer},
                 {"codec", r.of->codec},
                 {"deduplicate", r.of->deduplicate},
                 {"precision", r.of->precision},
                 {"overlap", r.of->overlap}};
    if (!r.of->ghosts.empty()) {
      c["ghosts"] = r.of->ghosts;
      c["modelled_links_ms"] = r.link_ms;
    }
    c["ghost_checksum"] = r.of->ghost_checksum();
    c["step_ms"] = percentiles(r.step);
    c["spread"] = r.step.spread();
    c["too_wide"] = r.wide();
    c["rounds_ms"] = r.rounds;
    for (std::size_t s = 0; s < kStages; ++s) {
      c["stages_ms"][kStageNames[s]] = percentiles(r.stages[s]);
      if (r.predicted_ms > 0) c["predicted_stages_ms"][kStageNames[s]] = r.predicted_stage_ms[s];
    }
    if (r.predicted_ms > 0) c["predicted_ms"] = r.predicted_ms;
    if (r.interval.from != Interval::From::nothing)
      c["predicted_interval"] = {{"low_ms", r.interval.low},
                                 {"high_ms", r.interval.high},
                                 {"holds", describe(r.interval, !r.of->ghosts.empty())}};
    c["imbalance"] = r.imbalance();
    c["memory"] = {{"predicted_tables_bytes", r.predicted_tables},
                   {"measured_tables_bytes", r.tables_bytes},
                   {"measured_peak_bytes", r.peak_bytes}};
    if (r.hit_rate() >= 0) c["hit_rate"] = r.hit_rate();
    if (const auto change = report.changes.find(r.of->name); change != report.changes.end())
      c["change"] = change->second;
    for (const RankResult& rank : r.ranks) {
      Json of_rank;
      for (std::size_t s = 0; s < kStages; ++s) {
        of_rank["stages_ms"][kStageNames[s]] = rank.stage_ms[s];
        of_rank["waits_ms"][kStageNames[s]] = rank.wait_ms[s];
        of_rank["bytes"][kStageNames[s]] = rank.bytes[s];
        of_rank["messages"][kStageNames[s]] = rank.messages[s];
      }
      for (std::size_t s = 0; s < rank.rows.size(); ++s)
        of_rank["rows"][std::string(tessera::detail::reported_stages[s])] = rank.rows[s];
      if (rank.cache_rows > 0)
        of_rank["cache"] = {{"rows", rank.cache_rows}, {"fetched_rows", rank.fetched_rows}};
      of_rank["predicted_bytes"] = rank.predicted_bytes;
      if (!r.of->ghosts.empty()) of_rank["modelled_links_ms"] = rank.link_ms;
      c["by_rank"].push_back(std::move(of_rank));
    }
    const tessera::Layout& layout = r.of->layout;
    for (const tessera::Shard& s : layout.shards)
      c["shards"].push_back({{"table", layout.tables[static_cast<std::size_t>(s.table)].name},
                             {"rows", {s.rectangle.row_begin, s.rectangle.row_end}},
                             {"columns", {s.rectangle.column_begin, s.rectangle.column_end}},
                             {"rank", s.rank}});
    cases.push_back(std::move(c));
  }
  Json groups = Json::array();
  for (const Group& group : report.groups) {
    groups.push_back({{"name", group.name}, {"answer", group.answer}});
    if (group.regret > 0) groups.back()["regret"] = group.regret;
  }
  json["laboratory"] = {{"fixed_work_ms",
                         {{"p10", report.fixed_work.p10},
                          {"p50", report.fixed_work.p50},
                          {"p90", report.fixed_work.p90}}},
                        {"groups", groups},
                        {"cases", cases}};
  return json;
}

std::string csv_of(const Report& report) {
  const auto quoted = [](const std::string& text) {
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
  };
  std::string text =
      "plan,ranks,ghosts,optimizer,codec,deduplicate,precision,overlap,rank,step_best_ms,step_p10_"
      "ms,step_p50_ms,"
      "step_p90_ms,predicted_ms,predicted_low_ms,predicted_high_ms,spread,bytes_sent,messages_sent,"
      "tables_bytes_predicted,"
      "tables_bytes_measured,peak_bytes_measured,imbalance,waited_ms,links_ms_modelled,hit_rate";
  for (const char* stage : kStageNames)
    text += fmt::format(",{0}_p10_ms,{0}_p50_ms,{0}_p90_ms,{0}_bytes,{0}_wait_ms", stage);
  text += ",error\n";
  for (const Result& r : report.results) {
    const auto begin = [&](const std::string& rank) {
      return fmt::format("{},{},{},{},{},{},{},{},{}", quoted(r.of->plan), r.of->ranks,
                         r.of->ghosts.size(), r.of->optimizer, r.of->codec,
                         r.of->deduplicate ? "on" : "off", r.of->precision,
                         r.of->overlap ? "on" : "off", rank);
    };
    if (!r.error.empty()) {  // no figures, as in results.json
      text += begin("all") + std::string(17 + 5 * kStages + 1, ',') + quoted(r.error) + "\n";
      continue;
    }
    const bool known = r.interval.from != Interval::From::nothing;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},,{},{}", begin("all"),
                        r.step.best, r.step.p10, r.step.p50, r.step.p90,
                        r.predicted_ms > 0 ? fmt::format("{}", r.predicted_ms) : "",
                        known ? fmt::format("{}", r.interval.low) : "",
                        known ? fmt::format("{}", r.interval.high) : "", r.step.spread(),
                        r.most_sent(), r.most_messages(), r.predicted_tables, r.tables_bytes,
                        r.peak_bytes, r.imbalance(), r.link_ms,
                        r.hit_rate() < 0 ? "" : fmt::format("{}", r.hit_rate()));
    for (std::size_t s = 0; s < kStages; ++s)
      text += fmt::format(",{},{},{},,", r.stages[s].p10, r.stages[s].p50, r.stages[s].p90);
    text += "," + quoted(r.error) + "\n";
    for (std::size_t i = 0; i < r.ranks.size(); ++i) {
      const RankResult& rank = r.ranks[i];
      text += fmt::format(
          "{},,,,,,,,,{},{},{},,,,{},{},{}", begin(std::to_string(i)), rank.sent(),
          rank.sent_messages(), rank.predicted_bytes, rank.waited(), rank.link_ms,
          rank.cache_rows > 0 ? fmt::format("{}", 1 - rank.fetched_rows / rank.cache_rows) : "");
      for (std::size_t s = 0; s < kStages; ++s)
        text += fmt::format(",,{},,{},{}", rank.stage_ms[s], rank.bytes[s], rank.wait_ms[s]);
      text += ",\"\"\n";
    }
  }
  return text;
}

}  // namespace lab
