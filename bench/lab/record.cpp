// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <tessera/codec/codecs.hpp>
#include <tessera/collection/layout_collection.hpp>
#include <tessera/collection/route_ahead.hpp>
#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/ghost_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/kernels.hpp>
#include <tessera/measure/measure_plans.hpp>
#include <tessera/settings/optimizers_by_name.hpp>
#include <tessera/settings/policies.hpp>
#include <tessera/tables/cache_counters.hpp>

#include <omp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lab {
namespace {

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

// The optimizer and precision of a case are chosen at run time, as in the trainers: a collection for
// each of them would be compiled as often. Tables of 16 bits have kernels for any width.
using tessera::Adagrad, tessera::Adam, tessera::RowWiseAdagrad, tessera::Sgd, tessera::Train;
using Optimizers = tessera::detail::InEachPrecision<
    tessera::TrainingGroups<Train<Sgd>, Train<Adagrad>, Train<RowWiseAdagrad>, Train<Adam>>>::type;
using Widths =
    tessera::WidthsFor<tessera::Widths<8, 16, 32, 64, 128>, Sgd, Adagrad, RowWiseAdagrad, Adam>;
using Codecs = tessera::EncodeWithOneOf<tessera::Fp32, tessera::Bf16, tessera::Fp16>;
using Comm = tessera::CountingCommunicator<tessera::AnyCommunicator>;
using Tables = tessera::LayoutCollection<Widths, Optimizers, tessera::Host, Comm, Codecs,
                                         tessera::ReportSteps>;  // as record_steps has

template <std::size_t N>
int index_in(const std::array<std::string_view, N>& names, std::string_view name) {
  return static_cast<int>(std::ranges::find(names, name) - names.begin());
}

Tables::Options options(const Case& c, const char* folder) {
  constexpr std::array<std::string_view, 4> names{"sgd", "adagrad", "rowwise-adagrad", "adam"};
  Optimizers optimizers;
  optimizers.group_of_table.assign(
      c.layout.tables.size(),
      4 * index_in(tessera::detail::kTablePrecisions, c.precision) + index_in(names, c.optimizer));
  return {.learning_rate = 1e-3f,
          .optimizer = std::move(optimizers),
          .forward_codec = c.codec,
          .backward_codec = c.codec,
          .deduplicate = c.deduplicate,
          .files = {.folder = c.files + folder}};
}

tessera::detail::RecordedSteps record_rank(tessera::AnyCommunicator& communicator, const Case& c,
                                           const tessera::Layout& layout, const OwnBatches& own,
                                           int steps, const char* folder,
                                           const std::function<void()>& built,
                                           const std::function<void(std::size_t)>& before_step) {
  return tessera::detail::record_steps<Widths, Optimizers, std::int64_t, Codecs,
                                       tessera::ReportSteps>(
      communicator, layout, own.views(), steps, tessera::Host(), options(c, folder), built,
      before_step);
}

/// What record_steps does not tell.
struct WholeSteps {
  std::vector<double> seconds;
  tessera::detail::CacheCounters caches;
};

/// Records whole steps alone, as record_steps has them; over `second`, unless it is null, a thread
/// routes the next batch meanwhile. One more step is run in the end, so that the last one that
/// counts has a next batch, too.
WholeSteps record_whole(tessera::AnyCommunicator& communicator, tessera::AnyCommunicator* second,
                        const Case& c, const OwnBatches& own, int steps,
                        const std::function<void(std::size_t)>& before_step) {
  using namespace tessera;
  using Clock = std::chrono::steady_clock;
  Comm main(communicator), routing(second == nullptr ? communicator : *second);
  Tables tables(main, Host(), c.layout, options(c, "/whole"));
  const auto turn = [&](int step) {
    return static_cast<std::size_t>(step + 2) % own.views().size();
  };
  const auto batch = [&](int step) { return own.views()[turn(step)]; };
  std::int64_t most = 0;
  for (const KeyedJagged<std::int64_t>& view : own.views()) most = std::max(most, view.batch);
  const std::vector<float> small(static_cast<std::size_t>(most * tables.columns()), 1e-3f);
  const tessera::detail::Filled<float, Host> output(Host(), small), gradient(Host(), small);
  std::optional<RouteAhead<Tables, std::int64_t, Comm, Host>> ahead;
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
    record_rank(
        communicator, c, layout, own, steps, "/rehearsal", [] {},
        [&](std::size_t batch) {
          recorder.record(wanted && calls[batch].empty() ? &calls[batch] : nullptr);
        });
  });
  return all;
}

Recorded record_ghosts(const Case& c, const Batches& batches, int steps, const Watch& watch) {
  using namespace tessera;
  Recorded all{std::vector<tessera::detail::RecordedSteps>(static_cast<std::size_t>(c.ranks)),
               std::vector<double>(static_cast<std::size_t>(c.ranks), 0.0),
               std::vector<tessera::detail::CacheCounters>(static_cast<std::size_t>(c.ranks))};
  const auto played = rehearse(c, batches);
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  omp_set_num_threads(std::max(1, cores / c.ranks));  // as thread ranks share them
  for (const int rank : c.ghosts) {
    const OwnBatches own(c, batches, rank);
    GhostCommunicator ghost(rank, c.ranks, c.links);
    AnyCommunicator communicator(ghost);
    watch.begins();
    std::size_t begun = 0;
    all.ranks[static_cast<std::size_t>(rank)] = record_rank(
        communicator, c, c.layout, own, steps, "/staged", watch.built, [&](std::size_t batch) {
          watch.steps();
          if (begun++ == 0) ghost.reset_links();  // what the construction took
          ghost.play(played[static_cast<std::size_t>(rank)][batch]);
        });
    all.link_seconds[static_cast<std::size_t>(rank)] =
        ghost.link_seconds() / static_cast<double>(begun);
    if (c.cached())
      all.caches[static_cast<std::size_t>(rank)] =
          record_whole(communicator, nullptr, c, own, steps, [&](std::size_t batch) {
            ghost.play(played[static_cast<std::size_t>(rank)][batch]);
          }).caches;
  }
  return all;
}

}  // namespace

Recorded record_case(const Case& c, const Batches& batches, int steps, const Watch& watch) {
  using namespace tessera;
  if (!c.ghosts.empty()) return record_ghosts(c, batches, steps, watch);
  Recorded all{std::vector<tessera::detail::RecordedSteps>(static_cast<std::size_t>(c.ranks)),
               std::vector<double>(static_cast<std::size_t>(c.ranks), 0.0),
               std::vector<tessera::detail::CacheCounters>(static_cast<std::size_t>(c.ranks))};
  watch.begins();
  run_ranks(c.ranks, [&](ThreadCommunicator& rank) {
    const OwnBatches own(c, batches, rank.rank());
    AnyCommunicator communicator(rank);
    tessera::detail::RecordedSteps& own_steps = all.ranks[static_cast<std::size_t>(rank.rank())];
    own_steps = record_rank(
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
    WholeSteps whole = record_whole(communicator, c.overlap ? &second : nullptr, c, own, steps,
                                    [](std::size_t) {});
    if (c.overlap) own_steps.whole = std::move(whole.seconds);
    all.caches[static_cast<std::size_t>(rank.rank())] = whole.caches;
  });
  return all;
}

}  // namespace lab
