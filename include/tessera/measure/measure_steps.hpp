// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Steps of the embeddings alone, under any layout, on ranks of any communicator: the time of every
// stage, and what it sends.
#pragma once

#include <tessera/collection/layout_collection.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/planner/cost.hpp>
#include <tessera/planner/explain_plan.hpp>
#include <tessera/step/step_report.hpp>
#include <tessera/tables/buffer.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// What a plan took: medians over the steps, each stage's slowest rank.
struct MeasuredSteps {
  StageTimes stages{};
  StageTimes work{};          ///< processor time of each stage, summed over the ranks
  double step_seconds = 0;    ///< of whole steps, without a barrier between stages
  Traffic traffic{};          ///< of a step, of the rank that sends most
  double time_imbalance = 1;  ///< max/mean over the ranks of the time in lookup and update
};

inline double median_of(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

/// Returns the processor time of this thread, which other work on the machine hardly changes.
inline double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// An array on a backend, filled from the host.
template <class T, class Backend>
class Filled {
 public:
  Filled(const Backend& backend, const std::vector<T>& values) {
    if (!values.empty())
      backend.copy(buffer_.resize(backend, values.size()).data(), values.data(),
                   values.size() * sizeof(T));
  }
  std::span<T> span() const { return buffer_.span(); }

 private:
  Buffer<T, Backend> buffer_;
};

/// What one rank took, step by step.
struct RecordedSteps {
  template <class T>
  using Staged = std::array<T, embedding_stages.size()>;

  Staged<std::vector<double>> seconds{};  ///< of each stage
  Staged<std::vector<double>> waits{};    ///< at the barrier after it
  Staged<std::vector<double>> work{};     ///< processor time
  std::vector<double> whole{};            ///< of whole steps, without a barrier between stages
  Staged<Traffic> traffic{};              ///< of all timed steps, staged ones
  std::array<std::int64_t, reported_stages.size()> rows{};  ///< the same, under ReportSteps
};

/// Records steps with this rank's `batches`, in turn: so many whole ones, then as many in which the
/// ranks meet after each stage. Collective: every rank of `inner` calls it with the same layout and
/// as many batches. On backends other than the host (one rank, then) work is the time until the
/// backend has done it. `Policies`: of the collection; `built` is called when it is there,
/// `before_step(b)` before each step of batch b.
template <class WidthList, class O, IdType Id, class... Policies, class Inner, class Backend,
          class Built, class BeforeStep>
RecordedSteps record_steps(
    Inner& inner, const Layout& layout, std::span<const KeyedJagged<Id>> batches, int steps,
    const Backend& backend,
    const typename LayoutCollection<WidthList, O, Backend, CountingCommunicator<Inner>,
                                    Policies...>::Options& options,
    const Built& built, const BeforeStep& before_step) {
  using Comm = CountingCommunicator<Inner>;
  using Embeddings = LayoutCollection<WidthList, O, Backend, Comm, Policies...>;
  Comm communicator(inner);
  Embeddings embeddings(communicator, backend, layout, options);
  built();
  std::int64_t most_samples = 0;
  for (const KeyedJagged<Id>& batch : batches) most_samples = std::max(most_samples, batch.batch);
  const std::vector<float> small(static_cast<std::size_t>(most_samples * layout.columns()), 1e-3f);
  const Filled<float, Backend> output(backend, small), gradient(backend, small);
  Step<Id, Backend> step;

  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  RecordedSteps records;
  const auto run_steps = [&](bool staged) {
    for (int i = -2; i < steps; ++i) {
      const std::size_t turn = static_cast<std::size_t>(i + 2) % batches.size();
      const KeyedJagged<Id>& batch = batches[turn];
      before_step(turn);
      const MatrixView<float> y(output.span().data(), batch.batch, layout.columns());
      const MatrixView<const float> dy(gradient.span().data(), batch.batch, layout.columns());
      communicator.inner().barrier();
      Traffic sent = communicator.total();
      auto last = Clock::now();
      double last_worked = processor_seconds(), stage_seconds = 0, stage_work = 0, stage_wait = 0;
      const auto begin = last;
      const auto lap = [&](std::size_t stage, bool ends = true) {
        if (!staged) return;
        backend.synchronize();
        const double passed = seconds_since(last);
        stage_seconds += passed;
        stage_work += Backend::host_readable ? processor_seconds() - last_worked : passed;
        last = Clock::now();
        communicator.inner().barrier();
        stage_wait += seconds_since(last);
        if (ends) {
          if (i >= 0) {
            records.seconds[stage].push_back(stage_seconds);
            records.work[stage].push_back(stage_work);
            records.waits[stage].push_back(stage_wait);
            records.traffic[stage] = records.traffic[stage] + (communicator.total() - sent);
          }
          sent = communicator.total();
          stage_seconds = stage_work = stage_wait = 0;
        }
        last = Clock::now();
        last_worked = processor_seconds();
      };
      embeddings.route(step, batch);
      lap(0);
      embeddings.lookup(step, y);
      lap(1);
      embeddings.exchange(step);
      lap(2);
      embeddings.assemble(step, y);
      lap(3, false);
      embeddings.split(step, dy);
      lap(3);
      embeddings.exchange_gradients(step);
      lap(4);
      embeddings.update(step, dy);
      lap(5);
      backend.synchronize();
      communicator.inner().barrier();
      const double all = seconds_since(begin);
      if (i >= 0 && !staged) records.whole.push_back(all);
      if constexpr (requires { embeddings.step_report(); })
        if (i >= 0 && staged)
          for (std::size_t s = 0; s < reported_stages.size(); ++s)
            records.rows[s] += embeddings.step_report().stages[s].rows;
    }
  };
  run_steps(false);
  run_steps(true);
  return records;
}

/// Measures steps with this rank's `batches`, as record_steps. The result is the same on all ranks.
/// `files`: of tables in files.
template <class WidthList, class O, IdType Id, class Inner, class Backend>
MeasuredSteps measure_steps(Inner& inner, const Layout& layout,
                            std::span<const KeyedJagged<Id>> batches, int steps,
                            const Backend& backend, const TableFiles& files = {}) {
  RecordedSteps records = record_steps<WidthList, O, Id>(
      inner, layout, batches, steps, backend, {.learning_rate = 1e-3f, .files = files}, [] {},
      [](std::size_t) {});
  const auto slowest = [&](std::vector<double> values) {
    inner.all_reduce(std::span<double>(values), Reduction::max);
    return median_of(std::move(values));
  };
  MeasuredSteps m;
  m.step_seconds = slowest(records.whole);
  Traffic total;
  for (std::size_t s = 0; s < embedding_stages.size(); ++s) {
    m.stages.*embedding_stages[s] = slowest(records.seconds[s]);
    double& all = m.work.*embedding_stages[s] = median_of(records.work[s]);
    inner.all_reduce(std::span<double>(&all, 1));
    total = total + records.traffic[s];
  }
  const auto per_step = static_cast<std::uint64_t>(steps);
  double bytes = static_cast<double>(total.bytes / per_step),
         messages = static_cast<double>(total.messages / per_step);
  inner.all_reduce(std::span<double>(&bytes, 1), Reduction::max);
  inner.all_reduce(std::span<double>(&messages, 1), Reduction::max);
  m.traffic.messages = static_cast<std::uint64_t>(messages);
  m.traffic.bytes = static_cast<std::uint64_t>(bytes);
  double most = median_of(records.seconds[1]) + median_of(records.seconds[5]), sum = most;
  inner.all_reduce(std::span<double>(&most, 1), Reduction::max);
  inner.all_reduce(std::span<double>(&sum, 1));
  m.time_imbalance = most * inner.size() / sum;
  return m;
}

}}}  // namespace tessera::v0::detail
