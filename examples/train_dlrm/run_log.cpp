// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "run_log.hpp"

#include "../support/files.hpp"

#include <tessera/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace dlrm {

using namespace tessera;

namespace {
constexpr const char* kOption = "--log";

/// Seconds since 1970.
double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}
}

RunLog::RunLog(const Options& options) : path_(options.log) {
  if (!options.tensorboard.empty()) tensorboard_.emplace(options.tensorboard, "--tensorboard");
  if (options.metrics_port >= 0) {
    metrics_ = metrics_servers()(options.metrics_port);
    fmt::print("metrics: http://127.0.0.1:{}/metrics\n", metrics_->port());
    std::fflush(stdout);  // whoever asked for any port waits for it
  }
  if (path_.empty()) return;
  std::error_code ignored;
  regular_ =
      !std::filesystem::exists(path_, ignored) || std::filesystem::is_regular_file(path_, ignored);
  goes_on_ = options.resume && regular_ && std::filesystem::exists(path_, ignored);
  if (goes_on_) read(path_);
  // what is there stays until this run has something to say: it may yet be refused
  file_ = support::open_output(path_, {kOption, path_}, O_CREAT | O_APPEND);
  replaces_ = regular_ && !goes_on_;
}

RunLog::~RunLog() {
  if (file_ >= 0) ::close(file_);
}

void RunLog::read(const std::string& path) {
  events_.clear();
  ends_.clear();
  const std::string text = support::read_file(path, kOption, std::size_t{1} << 34);
  std::size_t begin = 0;
  // A last line without an end is what a kill left of one.
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    Event event = Event::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                               text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    require<DataError>(event.is_object() && event.contains("event") && event.contains("step") &&
                           event["step"].is_number_integer(),
                       "--log: line {} of '{}' is none that this program wrote; give another file, "
                       "or leave --resume out to begin it anew",
                       events_.size() + 1, path);
    events_.push_back(std::move(event));
    ends_.push_back(end + 1);
  }
}

void RunLog::go_on(std::int64_t step, bool ended) {
  // An earlier run may have written until it gave up the checkpoints' folder.
  if (goes_on_) read(path_);
  whole_ = ended && !events_.empty() && events_.back()["event"] == "end" &&
           events_.back()["step"] == step;
  if (whole_) return;
  const auto later = std::find_if(events_.begin(), events_.end(), [&](const Event& event) {
    return event["step"].get<std::int64_t>() > step || event["event"] == "end";
  });
  events_.erase(later, events_.end());
  ends_.resize(events_.size());
  shorten();
}

void RunLog::shorten() {
  replaces_ = false;
  if (regular_ && ::ftruncate(file_, static_cast<off_t>(ends_.empty() ? 0 : ends_.back())) != 0)
    throw DataError(std::string("--log: cannot shorten '") + path_ + "': " + std::strerror(errno));
}

void RunLog::publish(const Event& event) {
  const auto kind = event["event"].get<std::string>();
  if (kind != "report" && kind != "test") return;
  std::vector<support::NamedNumber> numbers;
  for (const auto& [name, value] : event.items()) {
    if (value.is_number() && name != "step") {
      numbers.emplace_back(kind + "/" + name, value.get<double>());
      latest_[fmt::format("tessera_{}_{}", kind, name)] = value.get<double>();
    }
    if (!value.is_object()) continue;
    for (const auto& [stage, seconds] : value.items()) {
      numbers.emplace_back(name + "/" + stage, seconds.get<double>());
      latest_[fmt::format("tessera_stage_seconds{{stage=\"{}\"}}", stage)] = seconds.get<double>();
    }
  }
  const auto step = event["step"].get<std::int64_t>();
  if (tensorboard_) tensorboard_->add(now(), step, numbers);
  if (!metrics_) return;
  latest_["tessera_step"] = static_cast<double>(step);
  std::string text, type;
  for (const auto& [name, value] : latest_) {
    const std::string metric = name.substr(0, name.find('{'));
    if (std::exchange(type, metric) != metric) text += fmt::format("# TYPE {} gauge\n", metric);
    text += fmt::format("{} {}\n", name, value);
  }
  metrics_->set(std::move(text));
}

void RunLog::add(Event event) {
  const bool known = event["event"] == "test" && std::ranges::any_of(events_, [&](const Event& e) {
                       return e["event"] == "test" && e["step"] == event["step"];
                     });
  if (whole_ || known) return;
  if (replaces_) shorten();
  if (tensorboard_ || metrics_) publish(event);
  if (file_ >= 0 && fault_.empty()) try {
      // An option may hold bytes that are no UTF-8.
      support::write_all(file_, event.dump(-1, ' ', false, Event::error_handler_t::replace) + '\n',
                         {kOption, path_});
    } catch (const DataError& error) {
      if (event["event"] == "begin") throw;
      fault_ = error.what();  // ends no training, but is no success
      fmt::print(stderr, "train_dlrm: warning: {}; the training goes on without it\n", fault_);
    }
  const bool ends = event["event"] == "end";
  events_.push_back(std::move(event));
  require<DataError>(!ends || fault_.empty(), "{}", fault_);
}

}  // namespace dlrm
