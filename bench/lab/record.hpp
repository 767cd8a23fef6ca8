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
#include <tessera/tables/cache_counters.hpp>

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <utility>
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

  static typename Tables::Options options(const Case& c, const char* folder) {
    return {.learning_rate = 1e-3f,
            .forward_codec = c.codec,
            .backward_codec = c.codec,
            .deduplicate = c.deduplicate,
            .files = {.folder = c.files + folder}};
  }
};

template <class Optimizer, class T, class Built, class BeforeStep>
tessera::detail::RecordedSteps record_rank(tessera::AnyCommunicator& communicator, const Case& c,
                                           const tessera::Layout& layout, const OwnBatches& own,
                                           int steps, const char* folder, const Built& built,
                                           const BeforeStep& before_step) {
  using M = Measured<Optimizer, T>;
  return tessera::detail::record_steps<typename M::Widths, Optimizer, std::int64_t,
                                       typename M::Codecs, tessera::Storage<T>,
                                       tessera::ReportSteps>(
      communicator, layout, own.views(), steps, tessera::Host(), M::options(c, folder),
      std::function<void()>(built), std::function<void(std::size_t)>(before_step));
}

/// What record_steps does not tell.
struct WholeSteps {
  std::vector<double> seconds;
  tessera::detail::CacheCounters caches;
};

/// Records whole steps alone, as record_steps has them; over `second`, unless it is null, a thread
/// routes the next batch meanwhile. One more step is run in the end, so that the last one that
/// counts has a next batch, too.
template <class Optimizer, class T, class BeforeStep>
WholeSteps record_whole(tessera::AnyCommunicator& communicator, tessera::AnyCommunicator* second,
                        const Case& c, const OwnBatches& own, int steps,
                        const BeforeStep& before_step) {
  using namespace tessera;
  using M = Measured<Optimizer, T>;
  using Clock = std::chrono::steady_clock;
  typename M::Comm main(communicator), routing(second == nullptr ? communicator : *second);
  typename M::Tables tables(main, Host(), c.layout, M::options(c, "/whole"));
  const auto turn = [&](int step) {
    return static_cast<std::size_t>(step + 2) % own.views().size();
  };
  const auto batch = [&](int step) { return own.views()[turn(step)]; };
  std::int64_t most = 0;
  for (const KeyedJagged<std::int64_t>& view : own.views()) most = std::max(most, view.batch);
  const std::vector<float> small(static_cast<std::size_t>(most * tables.columns()), 1e-3f);
  const tessera::detail::Filled<float, Host> output(Host(), small), gradient(Host(), small);
  std::optional<RouteAhead<typename M::Tables, std::int64_t, typename M::Comm, Host>> ahead;
  if (second != nullptr) ahead.emplace(tables, routing, Host());
  Step<std::int64_t, Host> routed;
  WholeSteps whole;
  if (ahead) ahead->start(batch(-2));
  for (int i = -2; i <= steps; ++i) {
    const std::int64_t samples = batch(i).batch, columns = tables.columns();
    const MatrixView<float> y(output.span().data(), samples, columns);
    const MatrixView<const float> dy(gradient.span().data(), samples, columns);
    before_step(turn(i));
    communicator.barrier();
    const auto begin = Clock::now();
    if (!ahead) tables.route(routed, batch(i));
    Step<std::int64_t, Host>& step = ahead ? ahead->take() : routed;
    // nothing is being routed: before the first batch that counts, and behind the last
    if (i == -1 || i == steps - 1) {
      const tessera::detail::CacheCounters counters = tables.tables().cache_counters();
      whole.caches.rows = counters.rows - whole.caches.rows;
      whole.caches.fetched_rows = counters.fetched_rows - whole.caches.fetched_rows;
    }
    if (ahead && i < steps) ahead->start(batch(i + 1));
    tables.backward(tables.forward_routed(step, y), dy);
    communicator.barrier();
    if (i >= 0 && i < steps)
      whole.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return whole;
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
        communicator, c, layout, own, steps, "/rehearsal", [] {},
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
               std::vector<double>(static_cast<std::size_t>(c.ranks), 0.0),
               std::vector<tessera::detail::CacheCounters>(static_cast<std::size_t>(c.ranks))};
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
        communicator, c, c.layout, own, steps, "/staged", watch.built, [&](std::size_t batch) {
          watch.steps();
          if (begun++ == 0) ghost.reset_links();  // what the construction took
          ghost.play(played[static_cast<std::size_t>(rank)][batch]);
        });
    all.link_seconds[static_cast<std::size_t>(rank)] =
        ghost.link_seconds() / static_cast<double>(begun);
    if (c.cached())
      all.caches[static_cast<std::size_t>(rank)] =
          record_whole<Optimizer, T>(communicator, nullptr, c, own, steps, [&](std::size_t batch) {
            ghost.play(played[static_cast<std::size_t>(rank)][batch]);
          }).caches;
  }
  return all;
}

template <class Optimizer, class T>
Recorded record_case(const Case& c, const Batches& batches, int steps, const Watch& watch) {
  using namespace tessera;
  if (!c.ghosts.empty()) return record_ghosts<Optimizer, T>(c, batches, steps, watch);
  Recorded all{std::vector<tessera::detail::RecordedSteps>(static_cast<std::size_t>(c.ranks)),
               std::vector<double>(static_cast<std::size_t>(c.ranks), 0.0),
               std::vector<tessera::detail::CacheCounters>(static_cast<std::size_t>(c.ranks))};
  watch.begins();
  run_ranks(c.ranks, [&](ThreadCommunicator& rank) {
    const OwnBatches own(c, batches, rank.rank());
    AnyCommunicator communicator(rank);
    tessera::detail::RecordedSteps& own_steps = all.ranks[static_cast<std::size_t>(rank.rank())];
    own_steps = record_rank<Optimizer, T>(
        communicator, c, c.layout, own, steps, "/staged",
        [&] {
          rank.barrier();
          if (rank.rank() == 0) watch.built();
          rank.barrier();
        },
        [](std::size_t) {});
    if (!c.overlap && !c.cached()) return;
    ThreadCommunicator split = rank.split(0);
    AnyCommunicator second(split);
    WholeSteps whole = record_whole<Optimizer, T>(communicator, c.overlap ? &second : nullptr, c,
                                                  own, steps, [](std::size_t) {});
    if (c.overlap) own_steps.whole = std::move(whole.seconds);
    all.caches[static_cast<std::size_t>(rank.rank())] = whole.caches;
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
