// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What the laboratory compiles for each optimizer.
#pragma once

#include "measure.hpp"

#include <tessera/codec/codecs.hpp>
#include <tessera/collection/layout_collection.hpp>
#include <tessera/collection/route_ahead.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/ghost_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/kernels.hpp>
#include <tessera/measure/measure_plans.hpp>
#include <tessera/settings/policies.hpp>

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

namespace lab {

/// One rank's part of the batches.
class OwnBatches {
 public:
  OwnBatches(const Case& c, const Batches& batches, int rank) {
    std::vector<std::size_t> order(c.layout.features.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (const tessera::KeyedJagged<std::int64_t>& batch : batches.views)
      slices_.emplace_back(batch, order, rank, c.ranks);
    for (const auto& slice : slices_) {
      views_.push_back(slice.view());
      if (batches.views.front().one_hot()) views_.back().offsets = {};
    }
  }
  std::span<const tessera::KeyedJagged<std::int64_t>> views() const { return views_; }

 private:
  std::vector<tessera::detail::SampleSlice<std::int64_t>> slices_;
  std::vector<tessera::KeyedJagged<std::int64_t>> views_;
};

/// What is measured of a rank whose tables have elements T.
template <class Optimizer, class T>
struct Measured {
  using Widths = tessera::Widths<8, 16, 32, 64, 128>;
  using Codecs = tessera::EncodeWithOneOf<tessera::Fp32, tessera::Bf16, tessera::Fp16>;
  using Comm = tessera::CountingCommunicator<tessera::AnyCommunicator>;
  using Tables =
      tessera::LayoutCollection<Widths, Optimizer, tessera::Host, Comm, Codecs, tessera::Storage<T>,
                                tessera::ReportSteps>;  // as record_steps has

  static typename Tables::Options options(const Case& c) {
    return {.learning_rate = 1e-3f,
            .forward_codec = c.codec,
            .backward_codec = c.codec,
            .deduplicate = c.deduplicate};
  }
};

template <class Optimizer, class T, class Built, class BeforeStep>
tessera::detail::RecordedSteps record_rank(tessera::AnyCommunicator& communicator, const Case& c,
                                           const tessera::Layout& layout, const OwnBatches& own,
                                           int steps, const Built& built,
                                           const BeforeStep& before_step) {
  using M = Measured<Optimizer, T>;
  return tessera::detail::record_steps<typename M::Widths, Optimizer, std::int64_t,
                                       typename M::Codecs, tessera::Storage<T>,
                                       tessera::ReportSteps>(
      communicator, layout, own.views(), steps, tessera::Host(), M::options(c),
      std::function<void()>(built), std::function<void(std::size_t)>(before_step));
}

/// Whole steps in which a thread routes the next batch, over `second`: their seconds. One more step
/// is run in the end, so that the last one that counts has a next batch, too.
template <class Optimizer, class T>
std::vector<double> record_overlapped(tessera::AnyCommunicator& communicator,
                                      tessera::AnyCommunicator& second, const Case& c,
                                      const OwnBatches& own, int steps) {
  using namespace tessera;
  using M = Measured<Optimizer, T>;
  using Clock = std::chrono::steady_clock;
  typename M::Comm main(communicator), routing(second);
  typename M::Tables tables(main, Host(), c.layout, M::options(c));
  const auto batch = [&](int step) -> const KeyedJagged<std::int64_t>& {
    return own.views()[static_cast<std::size_t>(step + 2) % own.views().size()];
  };
  std::int64_t most = 0;
  for (const KeyedJagged<std::int64_t>& view : own.views()) most = std::max(most, view.batch);
  const std::vector<float> small(static_cast<std::size_t>(most * tables.columns()), 1e-3f);
  const tessera::detail::Filled<float, Host> output(Host(), small), gradient(Host(), small);
  RouteAhead<typename M::Tables, std::int64_t, typename M::Comm, Host> ahead(tables, routing,
                                                                             Host());
  std::vector<double> seconds;
  ahead.start(batch(-2));
  for (int i = -2; i <= steps; ++i) {
    const std::int64_t samples = batch(i).batch, columns = tables.columns();
    const MatrixView<float> y(output.span().data(), samples, columns);
    const MatrixView<const float> dy(gradient.span().data(), samples, columns);
    communicator.barrier();
    const auto begin = Clock::now();
    Step<std::int64_t, Host>& step = ahead.take();
    if (i < steps) ahead.start(batch(i + 1));
    tables.backward(tables.forward_routed(step, y), dy);
    communicator.barrier();
    if (i >= 0 && i < steps)
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return seconds;
}

/// What each rank receives in the steps of each batch: all ranks run as threads, once, with tables
/// of few columns. [rank][batch]
template <class Optimizer, class T>
std::vector<std::vector<tessera::detail::ReceivedCalls>> rehearse(const Case& c,
                                                                  const Batches& batches) {
  using namespace tessera;
  const Layout layout = narrowed(c.layout);
  std::vector<std::vector<tessera::detail::ReceivedCalls>> all(
      static_cast<std::size_t>(c.ranks),
      std::vector<tessera::detail::ReceivedCalls>(batches.views.size()));
  const int steps = std::max(0, static_cast<int>(batches.views.size()) - 2);
  run_ranks(c.ranks, [&](ThreadCommunicator& rank) {
    const OwnBatches own(c, batches, rank.rank());
    tessera::detail::RecordingCommunicator recorder(rank);
    AnyCommunicator communicator(recorder);
    auto& calls = all[static_cast<std::size_t>(rank.rank())];
    const bool wanted = std::find(c.ghosts.begin(), c.ghosts.end(), rank.rank()) != c.ghosts.end();
    record_rank<Optimizer, T>(
        communicator, c, layout, own, steps, [] {},
        [&](std::size_t batch) {
          recorder.record(wanted && calls[batch].empty() ? &calls[batch] : nullptr);
        });
  });
  return all;
}

template <class Optimizer, class T>
Recorded record_ghosts(const Case& c, const Batches& batches, int steps, const Watch& watch) {
  using namespace tessera;
  Recorded all{std::vector<tessera::detail::RecordedSteps>(static_cast<std::size_t>(c.ranks)),
               std::vector<double>(static_cast<std::size_t>(c.ranks), 0.0)};
  const auto played = rehearse<Optimizer, T>(c, batches);
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  omp_set_num_threads(std::max(1, cores / c.ranks));  // as thread ranks share them
  for (const int rank : c.ghosts) {
    const OwnBatches own(c, batches, rank);
    GhostCommunicator ghost(rank, c.ranks, c.links);
    AnyCommunicator communicator(ghost);
    watch.begins();
    std::size_t begun = 0;
    all.ranks[static_cast<std::size_t>(rank)] = record_rank<Optimizer, T>(
        communicator, c, c.layout, own, steps, watch.built, [&](std::size_t batch) {
          watch.steps();
          if (begun++ == 0) ghost.reset_links();  // what the construction took
          ghost.play(played[static_cast<std::size_t>(rank)][batch]);
        });
    all.link_seconds[static_cast<std::size_t>(rank)] =
        ghost.link_seconds() / static_cast<double>(begun);
  }
  return all;
}

template <class Optimizer, class T>
Recorded record_case(const Case& c, const Batches& batches, int steps, const Watch& watch) {
  using namespace tessera;
  if (!c.ghosts.empty()) return record_ghosts<Optimizer, T>(c, batches, steps, watch);
  Recorded all{std::vector<tessera::detail::RecordedSteps>(static_cast<std::size_t>(c.ranks)),
               std::vector<double>(static_cast<std::size_t>(c.ranks), 0.0)};
  watch.begins();
  run_ranks(c.ranks, [&](ThreadCommunicator& rank) {
    const OwnBatches own(c, batches, rank.rank());
    AnyCommunicator communicator(rank);
    tessera::detail::RecordedSteps& own_steps = all.ranks[static_cast<std::size_t>(rank.rank())];
    own_steps = record_rank<Optimizer, T>(
        communicator, c, c.layout, own, steps,
        [&] {
          rank.barrier();
          if (rank.rank() == 0) watch.built();
          rank.barrier();
        },
        [](std::size_t) {});
    if (!c.overlap) return;
    ThreadCommunicator split = rank.split(0);
    AnyCommunicator second(split);
    own_steps.whole = record_overlapped<Optimizer, T>(communicator, second, c, own, steps);
  });
  return all;
}

/// Does the same for tables of 16 bits.
template <class Optimizer>
Recorded record_narrow_case(const Case& c, const Batches& batches, int steps, const Watch& watch) {
  return c.precision == "fp16"
             ? record_case<Optimizer, tessera::Half>(c, batches, steps, watch)
             : record_case<Optimizer, tessera::BFloat16>(c, batches, steps, watch);
}

}  // namespace lab
