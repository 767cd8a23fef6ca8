// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <tessera/core/error.hpp>
#include <tessera/version.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

namespace support {
namespace {

using namespace tessera;

std::string range_text(std::int64_t begin, std::int64_t end) {
  return fmt::format("[{}, {})", begin, end);
}

}  // namespace

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::ptrdiff_t i = std::ssize(digits) - 3; i > (number < 0 ? 1 : 0); i -= 3)
    digits.insert(static_cast<std::size_t>(i), 1, ',');
  return digits;
}

std::string version_of(const std::string& program) {
  return fmt::format("{} {}.{}.{}", program, TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR,
                     TESSERA_VERSION_PATCH);
}

void print_plan(const Layout& layout, const detail::MemoryCost& cost) {
  fmt::print("{:<6} {:>10} {:>6}  {:<5} {:<20} {:<10} {:>10}\n", "table", "rows", "width", "rank",
             "holds rows", "columns", "bytes");
  int last = -1;
  for (const Shard& shard : layout.shards) {
    const TableSpec& table = layout.tables[static_cast<std::size_t>(shard.table)];
    const Rectangle& r = shard.rectangle;
    const bool again = shard.table == last;
    last = shard.table;
    fmt::print("{:<6} {:>10} {:>6}  {:<5} {:<20} {:<10} {:>10}{}\n", again ? "" : table.name,
               again ? "" : grouped(table.rows), again ? "" : std::to_string(table.width),
               shard.rank == every_rank ? "every" : std::to_string(shard.rank),
               range_text(r.row_begin, r.row_end), range_text(r.column_begin, r.column_end),
               detail::bytes_text(detail::memory_cost(table, cost).of(r)),
               shard.tier == Tier::host   ? "  on the host"
               : shard.tier == Tier::file ? "  in a file"
                                          : "");
  }
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const std::int64_t host = detail::bytes_in(layout, cost, rank, Tier::host),
                       file = detail::bytes_in(layout, cost, rank, Tier::file);
    fmt::print("rank {:<3} holds {:>10}{}{}\n", rank,
               detail::bytes_text(detail::bytes_in(layout, cost, rank, Tier::device)),
               host > 0 ? fmt::format(", and {} on the host", detail::bytes_text(host)) : "",
               file > 0 ? fmt::format(", and {} in files", detail::bytes_text(file)) : "");
  }
}

void open_standard_streams() {
  int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  while (file >= 0 && file <= STDERR_FILENO) file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (file >= 0) ::close(file);
}

void check_output() {
  const bool good = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  require<Error>(good, "cannot write to standard output: {}", std::strerror(errno));
}

int fail(const char* program, std::string text, int code) {
  constexpr std::size_t kMost = 2000;
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  if (text.size() > kMost)
    text = fmt::format("{} ... ({} more bytes)", text.substr(0, kMost), text.size() - kMost);
  std::fflush(stdout);
  // does not throw if it cannot be written
  std::fputs(fmt::format("{}: {}\n", program, text).c_str(), stderr);
  return code;
}

Progress::Progress(std::int64_t steps, bool every_call)
    : steps_(steps), every_call_(every_call), terminal_(isatty(STDOUT_FILENO) == 1) {}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void Progress::show(std::int64_t step, std::int64_t samples, double loss) {
  const auto now = Clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000);
  if (!every_call_ && now - shown_ < pause && step != steps_) return;
  shown_ = now;
  const double elapsed = seconds(), done = static_cast<double>(step) / static_cast<double>(steps_);
  const std::string state = fmt::format(
      "{:>3.0f} %  step {}/{}  {} samples/s  loss {:.4f}  {:.0f} s left", std::floor(100 * done),
      step, steps_, grouped(static_cast<std::int64_t>(static_cast<double>(samples) / elapsed)),
      loss, elapsed / done * (1 - done));
  if (!terminal_) {
    fmt::print("{}\n", state);
  } else {
    constexpr int kBar = 24;
    const int full = static_cast<int>(kBar * done);
    fmt::print("\r\033[K[{:=<{}}{:<{}}] {}", "", full, full < kBar ? ">" : "", kBar - full, state);
    if (step == steps_) fmt::print("\n");
  }
  std::fflush(stdout);
}

}  // namespace support
