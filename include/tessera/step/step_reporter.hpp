// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/counting_communicator.hpp>
#include <tessera/step/step_report.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_layout.hpp>
#include <tessera/update/apply_accumulated.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Fills a collection's StepReport, under ReportSteps. Without it, as here, nothing is there to
/// run.
template <bool reports, class Comm, class Backend>
class StepReporter {
 public:
  explicit StepReporter(const RankLayout&) {}
  using Ranks = Comm;
  using RanksHolder = Comm&;
  struct Timing {
    ~Timing() {}  // not trivial, so that no variable of it counts as unused
    template <class Lookups>
    void read_rows(const Lookups&) const {}
  };

  static Comm& counted(Comm& communicator) { return communicator; }
  template <class... Arguments>
  static Timing time(const Arguments&...) {
    return {};
  }
  static std::int64_t* row_counter(const Backend&) { return nullptr; }
  static std::int64_t* clip_counter() { return nullptr; }
  template <class State>
  static void batch_done(State&) {}
  template <class... Arguments>
  static void step_done(const Arguments&...) {}
};

template <class Comm, class Backend>
class StepReporter<true, Comm, Backend> {
 public:
  explicit StepReporter(const RankLayout& routing) : routing_(routing) {}
  /// The collectives of stages are counted.
  using Ranks = CountingCommunicator<Comm>;
  using RanksHolder = CountingCommunicator<Comm>;
  using Record = StageRecord<Backend>;

  /// A stage that runs: from construction to destruction.
  class Timing {
   public:
    Timing(Record* record, ReportedStage stage, const Backend& backend, const Ranks* ranks,
           std::int64_t rows)
        : record_(record), stage_(stage), backend_(backend), ranks_(ranks) {
      if (record_ == nullptr) return;
      record_->rows[at()] += rows;
      if (ranks_ != nullptr) bytes_ = ranks_->total().bytes;
      span_ = record_->clock.begin(backend_, stage_);
    }
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;
    ~Timing() {
      if (record_ == nullptr) return;
      record_->clock.end(backend_, span_);
      if (ranks_ != nullptr)
        record_->bytes[at()] += static_cast<std::int64_t>(ranks_->total().bytes - bytes_);
    }
    /// Reads what was looked up.
    template <class Lookups>
    void read_rows(const Lookups& lookups) const {
      if (record_ == nullptr) return;
      for (const auto& group : lookups)
        record_->rows[at()] +=
            Backend::host_readable ? group.bags.entries() : group.bags.entry_bound;
    }

   private:
    std::size_t at() const { return static_cast<std::size_t>(stage_); }
    Record* record_;
    ReportedStage stage_;
    const Backend& backend_;
    const Ranks* ranks_;
    std::uint64_t bytes_ = 0;
    std::size_t span_ = 0;
  };

  static Ranks counted(Comm& communicator) { return Ranks(communicator); }

  bool on() const { return on_; }
  void turn(bool on) { on_ = on; }

  /// Times a stage of a batch. `ranks`: whose messages are its own; null: none.
  template <class State>
  Timing time(State& step, ReportedStage stage, const Backend& backend,
              const Ranks* ranks = nullptr, std::int64_t rows = 0) const {
    if (on_ && stage == ReportedStage::route) step.record.clear();
    return {on_ ? &step.record : nullptr, stage, backend, ranks,
            on_ ? rows + moved(step, stage) : 0};
  }
  /// Times the optimizer's step.
  Timing time(const Backend& backend, const Ranks& ranks) {
    update_.clear();
    return {on_ ? &update_ : nullptr, ReportedStage::update, backend, &ranks, 0};
  }
  /// Returns where it counts rows, in the backend's memory, from 0 on; null: nowhere.
  std::int64_t* row_counter(const Backend& backend) {
    if (!on_) return nullptr;
    backend.fill_zero(counters_.resize(backend, 2).data(), 2 * sizeof(std::int64_t));
    return counters_.data();
  }
  /// Returns where clipping counts, likewise.
  std::int64_t* clip_counter() { return on_ ? counters_.data() + 1 : nullptr; }

  /// Notes that a batch has given its gradients.
  template <class State>
  void batch_done(State& step) {
    if (!on_) return;
    if (done_) batches_ = 0;
    done_ = false;
    if (batches_ == records_.size()) records_.emplace_back();
    std::swap(records_[batches_++], step.record);
    step.record.clear();
  }
  /// Notes that the optimizer has stepped.
  void step_done(std::int64_t step, std::int64_t split_rows, const Clipped& clipped) {
    if (!on_) return;
    report_ = StepReport{
        .step = step, .batches = static_cast<std::int64_t>(batches_), .norm = clipped.norm};
    clipped_ = clipped;
    update_.rows[static_cast<std::size_t>(ReportedStage::update)] = split_rows;
    done_ = true;
    read_ = false;
  }

  /// Returns the report of the last step. The host waits for the backend.
  const StepReport& report(const Backend& backend) {
    if (!done_ || std::exchange(read_, true)) return report_;
    for (std::size_t i = 0; i < batches_; ++i) add(records_[i]);
    add(update_);
    std::array<std::int64_t, 2> counted{};
    backend.copy(counted.data(), counters_.data(), sizeof(counted));
    backend.synchronize();
    report_[ReportedStage::update].rows += counted[0];
    if (clipped_.looked_at != 0)
      report_.clipped_share =
          static_cast<double>(counted[1]) / static_cast<double>(clipped_.looked_at);
    if (clipped_.all) report_.clipped_share = 1;
    for (const StageSpan& span : report_.spans)
      report_[span.stage].seconds += span.end - span.begin;
    return report_;
  }

 private:
  /// Returns what a stage moves between ranks: see StageReport.
  template <class State>
  std::int64_t moved(const State& step, ReportedStage stage) const {
    const std::span<const Piece> served = step.in_flight.order().served().pieces(),
                                 requested = step.in_flight.order().requested().pieces();
    if (stage == ReportedStage::exchange) return of_others(served, Way::vectors);
    if (stage == ReportedStage::assemble) return of_others(requested, Way::vectors);
    if (stage == ReportedStage::split) return of_others(requested, Way::gradients);
    if (stage == ReportedStage::exchange_gradients) return of_others(served, Way::gradients);
    return stage == ReportedStage::weight_gradients ? weights(step) : 0;
  }
  /// Returns the parts of vectors between this rank and others, of the slots that go a way.
  std::int64_t of_others(std::span<const Piece> pieces, Way way) const {
    std::int64_t rows = 0;
    for (const Piece& piece : pieces)
      if (piece.rank != routing_.rank() && piece.slot->goes(way)) rows += piece.rows;
    return rows;
  }
  template <class State>
  static std::int64_t weights(const State& step) {
    std::int64_t rows = 0;
    for (const auto& bags : step.routed.received())
      if (bags.weights != nullptr && bags.bags != 0)
        rows += Backend::host_readable ? bags.entries() : bags.entry_bound;
    return rows;
  }
  void add(Record& record) {
    record.clock.read(report_.spans);
    for (std::size_t i = 0; i < reported_stages.size(); ++i) {
      report_.stages[i].bytes += record.bytes[i];
      report_.stages[i].rows += record.rows[i];
    }
  }

  const RankLayout& routing_;
  bool on_ = true, done_ = false, read_ = true;
  std::vector<Record> records_;  ///< of the batches of the step
  std::size_t batches_ = 0;
  Record update_;
  Buffer<std::int64_t, Backend> counters_;  ///< rows updated, values or rows clipped
  Clipped clipped_;
  StepReport report_;
};

}  // namespace detail

}}  // namespace tessera::v0
