// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// --log and --report: what they say is what happened, also over a kill and a resume; the page's curves have the log's points.
#include <trainer/command.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using Json = nlohmann::json;

const std::string kModel =
    "--samples 6000 --max-rows 100 --bottom-mlp 16 --top-mlp 16 --batch-size 100 --print-every 6 "
    "--evals-per-epoch 3 ";

std::vector<Json> events_of(const std::filesystem::path& file) {
  std::vector<Json> events;
  std::istringstream lines(text_of(file));
  for (std::string line; std::getline(lines, line);) events.push_back(Json::parse(line));
  return events;
}

/// The steps and values of one kind of event.
std::vector<std::pair<double, double>> points_of(const std::vector<Json>& events, const char* event,
                                                 const char* name) {
  std::vector<std::pair<double, double>> points;
  for (const Json& e : events)
    if (e["event"] == event) points.emplace_back(e["step"], e[name]);
  return points;
}

/// The centres of the circles of a curve, as the page draws them.
std::vector<std::pair<double, double>> circles_of(const std::string& page,
                                                  const std::string& curve) {
  const std::size_t begin = page.find("<g data-curve=\"" + curve + "\">");
  REQUIRE(begin != std::string::npos);
  const std::string group = page.substr(begin, page.find("</g>", begin) - begin);
  const std::regex circle("<circle cx=\"([0-9.]+)\" cy=\"([0-9.]+)\"");
  std::vector<std::pair<double, double>> circles;
  for (std::sregex_iterator at(group.begin(), group.end(), circle), end; at != end; ++at)
    circles.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  return circles;
}

/// One straight map takes the values to where they are drawn: two of them tell it, the others must agree.
void check_drawn(const std::vector<std::pair<double, double>>& points,
                 const std::vector<std::pair<double, double>>& circles) {
  REQUIRE(points.size() == circles.size());
  REQUIRE(points.size() > 2);
  for (const auto member : {0, 1}) {
    const auto of = [&](const std::pair<double, double>& p) {
      return member == 0 ? p.first : p.second;
    };
    const auto less = [&](const auto& a, const auto& b) { return of(a) < of(b); };
    const auto low = std::min_element(points.begin(), points.end(), less) - points.begin(),
               high = std::max_element(points.begin(), points.end(), less) - points.begin();
    const double scale =
        (of(circles[static_cast<std::size_t>(high)]) - of(circles[static_cast<std::size_t>(low)])) /
        (of(points[static_cast<std::size_t>(high)]) - of(points[static_cast<std::size_t>(low)]));
    CHECK((member == 0 ? scale > 0 : scale < 0));  // upwards is smaller in a picture
    for (std::size_t i = 0; i < points.size(); ++i)
      CHECK(std::abs(of(circles[static_cast<std::size_t>(low)]) +
                     scale * (of(points[i]) - of(points[static_cast<std::size_t>(low)])) -
                     of(circles[i])) < 0.05);
  }
}

/// What stays the same when a run is repeated.
Json timeless(Json event) {
  for (const char* name : {"seconds", "samples_per_second", "stages", "bytes_sent", "memory_bytes",
                           "options", "evaluations"})
    event.erase(name);
  return event;
}

}  // namespace

TEST_CASE("the log has what happened, and the page's curves have the log's points") {
  const TemporaryFolder folder;
  const std::string log = (folder.path / "run.jsonl").string(),
                    page_file = (folder.path / "run.html").string();
  const Json json = results(kModel + "--ranks 2 --learning-rate 0.5 --log " + log + " --report " +
                            page_file + " --save " + (folder.path / "model").string());
  const std::vector<Json> events = events_of(log);
  CHECK(events.front()["event"] == "begin");
  CHECK(events.front()["options"]["--batch-size"] == "100");
  CHECK(events.back()["event"] == "end");
  CHECK(events.back()["auc"] == json["auc"]);
  const auto losses = points_of(events, "report", "loss"),
             rates = points_of(events, "report", "rate"), aucs = points_of(events, "test", "auc");
  REQUIRE(losses.size() == 9);  // 54 steps
  for (std::size_t i = 0; i < losses.size(); ++i) {
    CHECK(losses[i].first == 6.0 * static_cast<double>(i + 1));
    // of the step that was the last before the report, counted from 0
    CHECK(rates[i].second == doctest::Approx(0.5 * (1 - (losses[i].first - 1) / 54)));
  }
  CHECK(losses.front().second == doctest::Approx(std::log(2)).epsilon(0.2));
  REQUIRE(aucs.size() == json["evaluations"].size());
  for (std::size_t i = 0; i < aucs.size(); ++i) {
    CHECK(aucs[i].first == json["evaluations"][i]["step"]);
    CHECK(aucs[i].second == json["evaluations"][i]["auc"]);
  }
  for (const Json& event : events) {
    if (event["event"] != "report") continue;
    double seconds = 0;
    for (const auto& [name, value] : event["stages"].items()) {
      CHECK(value.get<double>() >= 0);
      seconds += value.get<double>();
    }
    CHECK(seconds > 0);
    for (const char* stage : {"read batch", "lookup", "update", "top MLP"})
      CHECK(event["stages"].contains(stage));
    CHECK(event["bytes_sent"].get<double>() > 0);
    CHECK(event["memory_bytes"].get<double>() > 1e6);
  }

  // As a browser sees it, where there is one.
  std::string page = text_of(page_file);
  if (std::system("command -v chromium >/dev/null") == 0) {
    const std::string seen = (folder.path / "seen.html").string();
    const std::string command =
        "timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
        "--user-data-dir='" +
        (folder.path / "profile").string() + "' --dump-dom 'file://" + page_file + "' >'" + seen +
        "' 2>/dev/null";
    REQUIRE(std::system(command.c_str()) == 0);
    page = text_of(seen);
  } else {
    MESSAGE("no chromium: the page is read as it was written");
  }
  check_drawn(losses, circles_of(page, "training loss"));
  check_drawn(rates, circles_of(page, "tables"));
  check_drawn(aucs, circles_of(page, "test AUC"));
  for (const char* text : {"data-stage=\"read batch\"", "C26", "--batch-size", "rows [0, ",
                           ">ms per step<", ">log loss<", ">rank 1<", ">rank 0<"})
    CHECK(page.find(text) != std::string::npos);
  // results first, with the best step
  CHECK(page.find("<h2>Result") < page.find("<h2>Loss"));
  const auto best = std::ranges::max_element(aucs, {}, [](const auto& p) { return p.second; });
  CHECK(page.find(fmt::format("{:.4f}, at step {:.0f}", best->second, best->first)) !=
        std::string::npos);

  // One step of ten seconds, as the log of the ended run tells it now, hides no other.
  std::vector<Json> slow = events;
  for (Json& event : slow)
    if (event["event"] == "report") {
      event["stages"]["read batch"] = 10.0;
      break;
    }
  {
    std::ofstream lines(log);
    for (const Json& event : slow) lines << event.dump() << '\n';
  }
  results(kModel + "--ranks 2 --learning-rate 0.5 --resume --log " + log + " --report " +
          page_file + " --save " + (folder.path / "model").string());
  CHECK(events_of(log) == slow);
  const std::string outlier = text_of(page_file);
  std::map<double, double> heights;
  std::set<std::string> colours, stages;
  const std::regex bar(
      "data-stage=\"([^\"]+)\" x=\"([0-9.]+)\"[^>]* height=\"([0-9.]+)\" "
      "fill=\"([^\"]+)\"");
  for (std::sregex_iterator at(outlier.begin(), outlier.end(), bar), end; at != end; ++at) {
    heights[std::stod((*at)[2])] += std::stod((*at)[3]);
    stages.insert((*at)[1]);
    colours.insert((*at)[4]);
  }
  REQUIRE(heights.size() == 9);
  std::vector<double> sorted;
  for (const auto& [x, height] : heights) sorted.push_back(height);
  std::ranges::sort(sorted);
  CHECK(sorted[4] > 80);  // of 180
  CHECK(sorted.back() < 180.1);
  CHECK(colours.size() == stages.size());
}

TEST_CASE("a resumed run goes on behind the lines of its checkpoint") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path / name).string(); };
  results(kModel + "--ranks 1 --log " + path("whole.jsonl"));
  // Ended at step 30, with a checkpoint of 24 alone: lines of 30 are dropped.
  results(kModel + "--ranks 1 --max-steps 30 --save-every 24 --save " + path("model") + " --log " +
          path("run.jsonl"));
  REQUIRE(std::filesystem::remove_all(path("model") + "/step-000000000030") > 0);
  std::ofstream(path("run.jsonl"), std::ios::app)
      << R"({"event":"report","st)";  // a kill in the middle of a line
  results(kModel + "--ranks 1 --resume --save " + path("model") + " --log " + path("run.jsonl"));
  std::vector<Json> whole = events_of(path("whole.jsonl")), run = events_of(path("run.jsonl"));
  std::erase_if(run,
                [](const Json& event) { return event["event"] == "begin" && event["step"] != 0; });
  REQUIRE(run.size() == whole.size());
  for (std::size_t i = 0; i < run.size(); ++i) CHECK(timeless(run[i]) == timeless(whole[i]));
}

TEST_CASE("a run that is refused leaves an earlier one's log") {
  const TemporaryFolder folder;
  const std::string log = (folder.path / "log").string(),
                    how = kModel + "--ranks 1 --max-steps 3 --save " +
                          (folder.path / "model").string() + " --log " + log;
  results(how);
  const std::string text = text_of(log);
  CHECK(!text.empty());
  const Outcome again = train_dlrm(how, false);
  CHECK(again.err.find("holds checkpoints of an earlier training") != std::string::npos);
  CHECK(text_of(log) == text);
  results(kModel + "--ranks 1 --max-steps 2 --log " + log);  // begins it anew
  CHECK(std::ranges::count(events_of(log), "begin", [](const Json& e) { return e["event"]; }) == 1);
}

TEST_CASE("files that cannot be are one line") {
  const TemporaryFolder folder;
  const auto fails = [&](const std::string& options, const std::string& says) {
    const Outcome outcome = train_dlrm("--samples 100 --max-rows 10 " + options, false);
    INFO(outcome.err);
    CHECK(outcome.status != 0);
    CHECK(outcome.err.find(says) != std::string::npos);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  };
  const std::string file = (folder.path / "x").string(), other = (folder.path / "y").string();
  fails("--log " + file + "/y", "--log: cannot write");
  fails("--report " + file + "/y", "--report: cannot write");
  fails("--log " + file + " --json " + file, "is the file of --");
  std::ofstream(other) << "this is no log\n";
  fails("--resume --save " + file + " --log " + other, "--log: line 1 of");
  CHECK(text_of(other) == "this is no log\n");
}
