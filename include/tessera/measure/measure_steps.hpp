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

/// Measures steps with this rank's `batches`, in turn. Collective: every rank of `inner` calls it
/// with the same layout and as many batches. The result is the same on all ranks. On backends other
/// than the host (one rank, then) work is the time until the backend has done it. `files`: of tables
/// in files.
template <class WidthList, class O, IdType Id, class Inner, class Backend>
MeasuredSteps measure_steps(Inner& inner, const Layout& layout,
                            std::span<const KeyedJagged<Id>> batches, int steps,
                            const Backend& backend, const TableFiles& files = {}) {
  using Comm = CountingCommunicator<Inner>;
  using Embeddings = LayoutCollection<WidthList, O, Backend, Comm>;
  Comm communicator(inner);
  Embeddings embeddings(communicator, backend, layout, {.learning_rate = 1e-3f, .files = files});
  std::int64_t most_samples = 0;
  for (const KeyedJagged<Id>& batch : batches) most_samples = std::max(most_samples, batch.batch);
  const std::vector<float> small(static_cast<std::size_t>(most_samples * layout.columns()), 1e-3f);
  const Filled<float, Backend> output(backend, small), gradient(backend, small);
  Step<Id, Backend> step;

  using Clock = std::chrono::steady_clock;
  std::array<std::vector<double>, embedding_stages.size()> slowest, own, work;
  std::vector<double> whole;
  const auto run_steps = [&](bool staged) {
    for (int i = -2; i < steps; ++i) {
      const KeyedJagged<Id>& batch = batches[static_cast<std::size_t>(i + 2) % batches.size()];
      const MatrixView<float> y(output.span().data(), batch.batch, layout.columns());
      const MatrixView<const float> dy(gradient.span().data(), batch.batch, layout.columns());
      std::array<double, embedding_stages.size()> seconds{}, worked{};
      communicator.inner().barrier();
      auto last = Clock::now();
      double last_worked = processor_seconds();
      const auto begin = last;
      const auto lap = [&](std::size_t stage) {
        if (!staged) return;
        backend.synchronize();
        const double passed = std::chrono::duration<double>(Clock::now() - last).count();
        seconds[stage] += passed;
        worked[stage] += Backend::host_readable ? processor_seconds() - last_worked : passed;
        communicator.inner().barrier();
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
      lap(3);
      embeddings.split(step, dy);
      lap(3);
      embeddings.exchange_gradients(step);
      lap(4);
      embeddings.update(step, dy);
      lap(5);
      backend.synchronize();
      communicator.inner().barrier();
      double all = std::chrono::duration<double>(Clock::now() - begin).count();
      for (std::size_t s = 0; s < embedding_stages.size() && staged; ++s) {
        double most = seconds[s];
        communicator.inner().all_reduce(std::span<double>(&most, 1), Reduction::max);
        if (i < 0) continue;
        slowest[s].push_back(most);
        own[s].push_back(seconds[s]);
        work[s].push_back(worked[s]);
      }
      communicator.inner().all_reduce(std::span<double>(&all, 1), Reduction::max);
      if (i >= 0 && !staged) whole.push_back(all);
    }
  };
  run_steps(false);
  communicator.reset();
  run_steps(true);
  MeasuredSteps m;
  m.step_seconds = median_of(whole);
  for (std::size_t s = 0; s < embedding_stages.size(); ++s) {
    m.stages.*embedding_stages[s] = median_of(slowest[s]);
    double& all = m.work.*embedding_stages[s] = median_of(work[s]);
    communicator.inner().all_reduce(std::span<double>(&all, 1));
  }
  const Traffic total = communicator.total();
  const auto per_step = static_cast<std::uint64_t>(steps + 2);
  double bytes = static_cast<double>(total.bytes / per_step),
         messages = static_cast<double>(total.messages / per_step);
  communicator.inner().all_reduce(std::span<double>(&bytes, 1), Reduction::max);
  communicator.inner().all_reduce(std::span<double>(&messages, 1), Reduction::max);
  m.traffic.messages = static_cast<std::uint64_t>(messages);
  m.traffic.bytes = static_cast<std::uint64_t>(bytes);
  double most = median_of(own[1]) + median_of(own[5]), sum = most;
  communicator.inner().all_reduce(std::span<double>(&most, 1), Reduction::max);
  communicator.inner().all_reduce(std::span<double>(&sum, 1));
  m.time_imbalance = most * communicator.size() / sum;
  return m;
}

}}}  // namespace tessera::v0::detail
