// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "run_log.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/regular_file.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace dlrm {

using namespace tessera;

RunLog::RunLog(const Options& options) : path_(options.log) {
  if (path_.empty()) return;
  std::error_code ignored;
  regular_ =
      !std::filesystem::exists(path_, ignored) || std::filesystem::is_regular_file(path_, ignored);
  const bool goes_on = options.resume && regular_ && std::filesystem::exists(path_, ignored);
  if (goes_on) read(path_);
  file_ = ::open(path_.c_str(),
                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (regular_ && !goes_on ? O_TRUNC : 0),
                 0666);
  if (file_ < 0) fail(errno);
}

RunLog::~RunLog() {
  if (file_ >= 0) ::close(file_);
}

void RunLog::read(const std::string& path) {
  const RegularFile file(path);
  std::string text(file.size(), '\0');
  text.resize(file.read(text.data(), text.size(), 0));
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

void RunLog::go_on(std::int64_t step) {
  const auto later = std::find_if(events_.begin(), events_.end(), [&](const Event& event) {
    return event["step"].get<std::int64_t>() > step || event["event"] == "end";
  });
  events_.erase(later, events_.end());
  ends_.resize(events_.size());
  if (regular_ && ::ftruncate(file_, static_cast<off_t>(ends_.empty() ? 0 : ends_.back())) != 0)
    fail(errno);
}

void RunLog::add(Event event) {
  // An option may hold bytes that are no UTF-8.
  if (file_ >= 0) write(event.dump(-1, ' ', false, Event::error_handler_t::replace) + '\n');
  events_.push_back(std::move(event));
}

void RunLog::write(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file_, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) fail(errno);
    if (count > 0) done += static_cast<std::size_t>(count);
  }
}

void RunLog::fail(int error) const {
  throw DataError(fmt::format("--log: cannot write '{}': {}", path_, std::strerror(error)));
}

}  // namespace dlrm
