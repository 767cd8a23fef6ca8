// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/files.hpp"
#include "spans.hpp"

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/step/step_report.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlrm {

/// What a rank did when, in the trace event format that Perfetto and chrome://tracing open: a
/// process per rank; a thread for its steps, one for what it routes ahead, and on a GPU, where steps
/// are of its work, one for what the host does beside it.
class Trace {
 public:
  /// Collective: times count from when all ranks are here. Throws tessera::DataError on all of them
  /// where the first cannot write the file.
  Trace(tessera::AnyCommunicator& communicator, const std::string& file)
      : communicator_(communicator) {
    tessera::detail::on_all_ranks(communicator_, [&] {
      if (communicator_.rank() == 0) file_.emplace(file, "--trace");
    });
    communicator_.barrier();
    origin_ = Spans::now();
    name("process_name", steps, fmt::format("rank {}", communicator_.rank()));
    name("thread_name", steps, "steps");
    name("thread_name", routing, "ids routed ahead");
  }

  /// A step that has ended. `ahead`: it was routed on another thread.
  void add(const tessera::StepReport& report, std::span<const Span> spans, bool ahead) {
    for (const Span& span : spans) {
      if (span.beside && !std::exchange(host_named_, true)) name("thread_name", host, "host");
      event(span.name, span.begin, span.end, span.beside ? host : steps, "");
    }
    for (const tessera::detail::StageSpan& span : report.spans) {
      const tessera::detail::StageReport& stage = report[span.stage];
      event(tessera::detail::reported_stages[static_cast<std::size_t>(span.stage)], span.begin,
            span.end, ahead && span.stage == tessera::ReportedStage::route ? routing : steps,
            fmt::format(R"(,"args":{{"step":{},"bytes":{},"rows":{}}})", report.step, stage.bytes,
                        stage.rows));
    }
  }

  /// Writes all ranks' events, on the first rank. Collective.
  void write() {
    const auto ranks = static_cast<std::size_t>(communicator_.size());
    std::vector<std::size_t> counts(ranks);
    const std::size_t own = events_.size();
    communicator_.all_gather(std::span<const std::size_t>(&own, 1), std::span<std::size_t>(counts),
                             std::vector<std::size_t>(ranks, 1));
    std::vector<char> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
    communicator_.all_gather(std::span<const char>(events_.data(), own), std::span<char>(all),
                             counts);
    events_.clear();
    if (communicator_.rank() != 0) return;
    all.pop_back();  // the comma behind the last event
    file_->write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" +
                 std::string(all.data(), all.size()) + "]}\n");
  }

 private:
  static constexpr int steps = 0, routing = 1, host = 2;

  void name(std::string_view what, int thread, std::string_view text) {
    events_ += fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}},)",
                           what, communicator_.rank(), thread, text);
  }
  void event(std::string_view name, double begin, double end, int thread,
             std::string_view arguments) {
    events_ += fmt::format(
        R"({{"name":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{}{}}},)", name,
        1e6 * (begin - origin_), 1e6 * (end - begin), communicator_.rank(), thread, arguments);
  }

  tessera::AnyCommunicator& communicator_;
  std::optional<support::ResultFile> file_;
  double origin_ = 0;
  std::string events_;
  bool host_named_ = false;
};

}  // namespace dlrm
