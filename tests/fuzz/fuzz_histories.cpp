// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No file of events may do more harm than a DataError; what is read is sorted by time within each
// user, the same in memory and by runs on disk, and however the bytes come in.
#include <tessera_data/history_reader.hpp>

#include "../support/bytes_of.hpp"
#include "../support/fuzz_bytes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

using namespace tessera;

namespace {

/// All that was read, or what was wrong.
std::string outcome(std::string_view text, std::size_t at_a_time, std::size_t memory,
                    BadLines bad_lines) {
  try {
    const HistoryReader reader(bytes_of(std::string(text), at_a_time), "fuzz",
                               {.label = "label", .bad_lines = bad_lines, .memory_bytes = memory});
    const Histories histories = reader.histories();
    fuzz::expect(histories.users() > 0 && histories.offsets.front() == 0 &&
                     histories.offsets.back() == std::ssize(histories.events),
                 "histories hold all events");
    for (std::int64_t u = 0; u < histories.users(); ++u) {
      const auto events = histories.of(u);
      fuzz::expect(!events.empty() && std::ranges::is_sorted(events, {}, &HistoryEvent::time),
                   "a user's events are in the order of time");
      for (const HistoryEvent& event : events)
        fuzz::expect(event.item >= 0 && event.item < histories.items && std::isfinite(event.label),
                     "items are rows, labels are numbers");
    }
    for (const HistoryPart part : {HistoryPart::train, HistoryPart::test})
      for (const HistoryRange& range : leave_one_out(histories, part, 2))
        fuzz::expect(0 <= range.begin && range.begin < range.target && range.target < range.end &&
                         range.end <= std::ssize(histories.of(range.user)),
                     "ranges are of the user's events");
    return fmt::format("{} {} {:x}", histories.users(), reader.bad_lines(), reader.checksum());
  } catch (const DataError& error) {
    return error.what();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const BadLines bad_lines : {BadLines::fatal, BadLines::skip})
    fuzz::expect(outcome(text, 1 << 16, 1 << 20, bad_lines) == outcome(text, 1, 100, bad_lines),
                 "the same from single bytes and little memory");
  return 0;
}
