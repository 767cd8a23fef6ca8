// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/clock.hpp>
#include <tessera/core/pod_vector.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// The stages of a step, in their order. `apply` after `accumulate` counts as update.
enum class ReportedStage : std::uint8_t {
  route,
  lookup,
  exchange,
  assemble,
  split,
  exchange_gradients,
  weight_gradients,
  update
};

namespace detail {

inline constexpr std::array<std::string_view, 8> reported_stages{
    "route", "lookup", "exchange", "assemble", "split", "exchange_gradients", "weight_gradients",
    "update"};

/// When a stage ran once: seconds of std::chrono::steady_clock.
struct StageSpan {
  ReportedStage stage{};
  double begin = 0, end = 0;
};

/// One stage of a step on one rank.
struct StageReport {
  double seconds = 0;
  std::int64_t bytes = 0;  ///< sent to other ranks
  /// route: ids of this rank's batch; lookup: rows read; exchange, assemble: vectors (parts of
  /// vectors, if columns are cut) for other ranks, and of them; split, exchange_gradients: their
  /// gradients, for other ranks and of them; weight_gradients: weights whose gradients this rank
  /// works out for rows that it owns; update: rows changed
  std::int64_t rows = 0;
  /// the slowest rank's seconds over the mean of all ranks; 0: not known (gather_reports)
  double imbalance = 0;
};

}  // namespace detail

/// What a step of the optimizer took on one rank, over all batches that it accumulated.
struct StepReport {
  std::int64_t step = 0;     ///< counted from 1
  std::int64_t batches = 0;  ///< that were given to it; one counts once for each of its losses
  std::array<detail::StageReport, detail::reported_stages.size()> stages{};
  /// of all gradients before they were clipped; NaN but under ClipByGlobalNorm
  double norm = std::numeric_limits<double>::quiet_NaN();
  /// share of this rank's gradients that clipping made smaller: of elements, or of rows
  double clipped_share = 0;
  double imbalance = 0;                    ///< as of a stage, of the whole step
  std::vector<detail::StageSpan> spans{};  ///< in the order of their ends

  const detail::StageReport& operator[](ReportedStage stage) const {
    return stages[static_cast<std::size_t>(stage)];
  }
  detail::StageReport& operator[](ReportedStage stage) {
    return stages[static_cast<std::size_t>(stage)];
  }
  double seconds() const;
  std::int64_t bytes() const;
  /// Returns the distinct rows (parts of rows, if columns are cut) that this rank updated.
  std::int64_t merged_rows() const { return (*this)[ReportedStage::update].rows; }
};

namespace detail {

/// How evenly ranks share a stage.
struct StageBalance {
  double mean = 0, most = 0;  ///< seconds
  int slowest = 0;            ///< rank
  /// Returns most over mean; 1: all take as long
  double imbalance() const { return mean > 0 ? most / mean : 1; }
};

}  // namespace detail

/// Returns how evenly a stage's time is spread over the ranks.
detail::StageBalance balance(std::span<const StepReport> of_ranks, ReportedStage stage);

/// Does the same for whole steps.
detail::StageBalance balance(std::span<const StepReport> of_ranks);

/// Returns every rank's report, on every rank, without spans, and with what is known of their
/// imbalance. Collective.
template <class Comm>
std::vector<StepReport> gather_reports(Comm& communicator, const StepReport& own) {
  constexpr std::size_t stages = detail::reported_stages.size(), numbers = 3 * stages + 4;
  std::array<double, numbers> mine{};
  const auto pack = [&](auto& report, auto* at, const auto& move) {
    for (std::size_t i = 0; i < stages; ++i) {
      move(report.stages[i].seconds, *at++);
      move(report.stages[i].bytes, *at++);
      move(report.stages[i].rows, *at++);
    }
    move(report.step, *at++);
    move(report.batches, *at++);
    move(report.norm, *at++);
    move(report.clipped_share, *at++);
  };
  pack(own, mine.data(),
       [](const auto& value, double& to) { to = static_cast<double>(value); });  // exact to 2^53
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<double> all(ranks * numbers);
  communicator.all_gather(std::span<const double>(mine), std::span<double>(all),
                          std::vector<std::size_t>(ranks, numbers));
  std::vector<StepReport> reports(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    pack(reports[r], all.data() + r * numbers, [](auto& value, double from) {
      value = static_cast<std::remove_reference_t<decltype(value)>>(from);
    });
  StepReport imbalances;
  for (std::size_t i = 0; i < stages; ++i)
    imbalances.stages[i].imbalance = balance(reports, static_cast<ReportedStage>(i)).imbalance();
  imbalances.imbalance = balance(reports).imbalance();
  for (StepReport& report : reports) {
    report.imbalance = imbalances.imbalance;
    for (std::size_t i = 0; i < stages; ++i)
      report.stages[i].imbalance = imbalances.stages[i].imbalance;
  }
  return reports;
}

namespace detail {

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Whether a backend works behind the host's back, and marks points in its work by itself.
template <class Backend>
concept MarksTime = requires(const Backend& backend, typename Backend::TimeMark& mark) {
  backend.mark(mark);
  { backend.recording() } -> std::same_as<bool>;
};

/// When stages began and ended: by the host's clock, as work is done when an operation returns.
template <class Backend, bool = MarksTime<Backend>>
class StageClock {
 public:
  void clear() { spans_.clear(); }
  /// Returns the number of the span.
  std::size_t begin(const Backend&, ReportedStage stage) {
    spans_.push_back({stage, steady_seconds(), 0});
    return spans_.size() - 1;
  }
  void end(const Backend&, std::size_t span) { spans_[span].end = steady_seconds(); }
  void read(std::vector<StageSpan>& to) { to.insert(to.end(), spans_.begin(), spans_.end()); }

 private:
  std::vector<StageSpan> spans_;
};

/// By marks in the backend's order of work. What is recorded for a replay (a CUDA graph) leaves
/// none.
template <class Backend>
class StageClock<Backend, true> {
  using Mark = typename Backend::TimeMark;

 public:
  void clear() { count_ = 0; }
  std::size_t begin(const Backend& backend, ReportedStage stage) {
    if (backend.recording()) return none;
    if (count_ == marks_.size()) marks_.emplace_back();
    stages_.resize(marks_.size());
    stages_[count_] = stage;
    backend.mark(marks_[count_].first);
    return count_++;
  }
  void end(const Backend& backend, std::size_t span) {
    if (span != none) backend.mark(marks_[span].second);
  }
  /// Reads the times; the host waits.
  void read(std::vector<StageSpan>& to) {
    if (count_ == 0) return;
    const Mark& last = marks_[count_ - 1].second;
    last.synchronize();
    const double now = steady_seconds();
    const auto at = [&](const Mark& mark) { return now - 1e-3 * mark.until(last); };
    for (std::size_t i = 0; i < count_; ++i)
      to.push_back({stages_[i], at(marks_[i].first), at(marks_[i].second)});
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  std::vector<std::pair<Mark, Mark>> marks_;
  PodVector<ReportedStage> stages_;
  std::size_t count_ = 0;
};

/// What the stages of one batch, or an `apply`, leave behind for a StepReport.
template <class Backend>
struct StageRecord {
  StageClock<Backend> clock;
  std::array<std::int64_t, reported_stages.size()> bytes{}, rows{};

  void clear() {
    clock.clear();
    bytes = rows = {};
  }
};

}  // namespace detail

#ifdef TESSERA_INLINE
TESSERA_INLINE double StepReport::seconds() const {
  double sum = 0;
  for (const detail::StageReport& stage : stages) sum += stage.seconds;
  return sum;
}

TESSERA_INLINE std::int64_t StepReport::bytes() const {
  std::int64_t sum = 0;
  for (const detail::StageReport& stage : stages) sum += stage.bytes;
  return sum;
}

TESSERA_INLINE detail::StageBalance balance(std::span<const StepReport> of_ranks,
                                            ReportedStage stage) {
  detail::StageBalance balance;
  for (std::size_t r = 0; r < of_ranks.size(); ++r) {
    const double seconds = of_ranks[r][stage].seconds;
    balance.mean += seconds / static_cast<double>(of_ranks.size());
    if (seconds > balance.most) {
      balance.most = seconds;
      balance.slowest = static_cast<int>(r);
    }
  }
  return balance;
}

TESSERA_INLINE detail::StageBalance balance(std::span<const StepReport> of_ranks) {
  std::vector<StepReport> whole(of_ranks.size());
  for (std::size_t r = 0; r < whole.size(); ++r) whole[r].stages[0].seconds = of_ranks[r].seconds();
  return balance(whole, static_cast<ReportedStage>(0));
}
#endif

}}  // namespace tessera::v0
