// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What the laboratory compiles for each optimizer.
#pragma once

#include "measure.hpp"

#include <tessera/codec/codecs.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/ghost_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/host/kernels.hpp>
#include <tessera/measure/measure_plans.hpp>
#include <tessera/settings/policies.hpp>

#include <omp.h>

#include <algorithm>
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

template <class Optimizer, class Built, class BeforeStep>
tessera::detail::RecordedSteps record_rank(tessera::AnyCommunicator& communicator, const Case& c,
                                           const tessera::Layout& layout, const OwnBatches& own,
                                           int steps, const Built& built,
                                           const BeforeStep& before_step) {
  using namespace tessera;
  return tessera::detail::record_steps<Widths<8, 16, 32, 64, 128>, Optimizer, std::int64_t,
                                       EncodeWithOneOf<Fp32, Bf16, Fp16>, ReportSteps>(
      communicator, layout, own.views(), steps, Host(),
      {.learning_rate = 1e-3f,
       .forward_codec = c.codec,
       .backward_codec = c.codec,
       .deduplicate = c.deduplicate},
      std::function<void()>(built), std::function<void(std::size_t)>(before_step));
}

/// What each rank receives in the steps of each batch: all ranks run as threads, once, with tables
/// of few columns. [rank][batch]
template <class Optimizer>
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
    record_rank<Optimizer>(
        communicator, c, layout, own, steps, [] {},
        [&](std::size_t batch) {
          recorder.record(wanted && calls[batch].empty() ? &calls[batch] : nullptr);
        });
  });
  return all;
}

template <class Optimizer>
Recorded record_ghosts(const Case& c, const Batches& batches, int steps, const Watch& watch) {
  using namespace tessera;
  Recorded all{std::vector<tessera::detail::RecordedSteps>(static_cast<std::size_t>(c.ranks)),
               std::vector<double>(static_cast<std::size_t>(c.ranks), 0.0)};
  const auto played = rehearse<Optimizer>(c, batches);
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  omp_set_num_threads(std::max(1, cores / c.ranks));  // as thread ranks share them
  for (const int rank : c.ghosts) {
    const OwnBatches own(c, batches, rank);
    GhostCommunicator ghost(rank, c.ranks, c.links);
    AnyCommunicator communicator(ghost);
    watch.begins();
    std::size_t begun = 0;
    all.ranks[static_cast<std::size_t>(rank)] = record_rank<Optimizer>(
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

template <class Optimizer>
Recorded record_case(const Case& c, const Batches& batches, int steps, const Watch& watch) {
  using namespace tessera;
  if (!c.ghosts.empty()) return record_ghosts<Optimizer>(c, batches, steps, watch);
  Recorded all{std::vector<tessera::detail::RecordedSteps>(static_cast<std::size_t>(c.ranks)),
               std::vector<double>(static_cast<std::size_t>(c.ranks), 0.0)};
  watch.begins();
  run_ranks(c.ranks, [&](ThreadCommunicator& rank) {
    const OwnBatches own(c, batches, rank.rank());
    AnyCommunicator communicator(rank);
    all.ranks[static_cast<std::size_t>(rank.rank())] = record_rank<Optimizer>(
        communicator, c, c.layout, own, steps,
        [&] {
          rank.barrier();
          if (rank.rank() == 0) watch.built();
          rank.barrier();
        },
        [](std::size_t) {});
  });
  return all;
}

}  // namespace lab
