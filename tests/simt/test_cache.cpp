// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A few steps; long_cache.cpp does hundreds.
#include <simt/every_order.hpp>

#include <tessera/planner/cost.hpp>

#include <gpu/cache_cases.hpp>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace tessera;

TEST_CASE("tables of the host and in files behind caches on the GPU: one model, to the bit") {
  cache_cases::one_model(Tier::host, {1, 2}, {.steps = 6});
  cache_cases::one_model(Tier::file, {2}, {.steps = 6});
}

TEST_CASE("checkpoints of tables in files behind caches on the GPU") { cache_cases::checkpoints(); }

namespace {

/// Tables of 1.8 MB in all on a rank that has 512 KiB.
using Large = Table<"large", 16'000, 16>;
using Wide = Table<"wide", 8'000, 20>;
using Small = Table<"small", 100, 20>;
template <class A, class B>
using PlanOf = Plan<A, B, TableWise<Small>>;
using Resident = PlanOf<RowWise<Large>, TableWise<Wide>>;
using Behind = PlanOf<Cached<800, RowWise<Large>>, Cached<400, OnFile<TableWise<Wide>>>>;

constexpr Cluster kSmall{.ranks = 1, .memory_per_rank = 512_KiB, .host_memory_per_rank = 2_MiB};
constexpr detail::MemoryCost kCost = memory_cost_of<RowWiseAdagrad>;
static_assert(!detail::check_memory(Resident::layout({1}), kCost, kSmall.memory_per_rank).ok());
static_assert(detail::check_memory(Behind::layout({1}), kCost, kSmall.memory_per_rank,
                                   kSmall.host_memory_per_rank)
                  .ok());

/// The most bytes of the device that were allocated at a time, and of them the tables'.
template <class P>
std::pair<std::int64_t, std::int64_t> device_bytes(const std::string& folder) {
  auto& heap = simt::DeviceHeap::instance();
  std::int64_t tables = 0, most = 0;
  run_ranks(1, [&](ThreadCommunicator& host) {
    const caches::TwoBackends<Cuda> own;
    ThreadCommunicator second_host = host.split(0);
    auto c = on_backend::ThreadRanks<Cuda>::make(host, own.first),
         second = on_backend::ThreadRanks<Cuda>::make(second_host, own.second);
    using E = LayoutCollection<Widths<>, RowWiseAdagrad, Cuda, decltype(c)>;
    const auto before = static_cast<std::int64_t>(heap.bytes());
    heap.forget_most();
    E e(c, own.first, P::layout({1}), {.files = {.folder = folder}});
    tables = static_cast<std::int64_t>(heap.bytes()) - before;
    RouteAhead<E, std::int64_t, decltype(c), Cuda> ahead(e, second, own.second);
    std::minstd_rand random(3);
    std::vector<std::unique_ptr<on_backend::BatchOn<std::int64_t, Cuda>>> batches;
    const std::vector<float> ones(static_cast<std::size_t>(30 * e.columns()), 1.0f);
    on_backend::Array<float, Cuda> gradient(own.first, ones), output(own.first, ones);
    for (int step = 0; step < 12; ++step) {
      std::vector<std::int64_t> ids;
      for (const TableSpec& table : e.layout().tables)
        for (int i = 0; i < 30; ++i)
          ids.push_back(static_cast<std::int64_t>(random()) % table.rows);
      batches.push_back(std::make_unique<on_backend::BatchOn<std::int64_t, Cuda>>(
          own.first, KeyedJagged<std::int64_t>{3, 30, ids, {}, {}}));
    }
    ahead.start(batches[0]->keyed());
    for (std::size_t step = 0; step < batches.size(); ++step) {
      const auto pooled = e.forward_routed(ahead.take(), {output.data(), 30, e.columns()});
      if (step + 1 < batches.size()) ahead.start(batches[step + 1]->keyed());
      e.backward(pooled, {gradient.data(), 30, e.columns()});
    }
    most = static_cast<std::int64_t>(heap.most_bytes()) - before;
  });
  return {most, tables};
}

}  // namespace

TEST_CASE("the device's memory is what the plan says of it, and its budget is kept") {
  const TemporaryFolder folder;
  const auto [most, tables] = device_bytes<Behind>(folder.path.string());
  const auto [resident_most, resident_tables] = device_bytes<Resident>("");
  const auto planned = [](const Layout& layout) {
    return detail::bytes_in(layout, kCost, 0, Tier::device);
  };
  // with all that a step needs
  CHECK(most <= kSmall.memory_per_rank);
  CHECK(resident_most > 3 * kSmall.memory_per_rank);
  // tables alone: what the emulator rounds blocks up to aside
  CHECK(tables <= planned(Behind::layout({1})));
  CHECK(tables > planned(Behind::layout({1})) / 2);
  CHECK(std::abs(resident_tables - planned(Resident::layout({1}))) < 8'000);
}
