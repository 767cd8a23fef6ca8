// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/op/copy_rows.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/any_row_cache.hpp>
#include <tessera/tables/arena.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/nearest_names.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// What a step knows of the tables of its rank: layout, arenas and caches, but no width, element type
/// or optimizer. A TableStore is one.
template <class Backend>
class RankTables {
 public:
  using Cache = AnyRowCache<Backend>;
  RankTables(const RankTables&) = delete;
  RankTables& operator=(const RankTables&) = delete;

  const Layout& layout() const { return layout_; }
  const RankLayout& routing() const { return routing_; }
  /// Returns what updates and lookups work with: an arena's rows, or of a cached one the slots of
  /// its cache.
  const std::vector<Arena<Backend>>& arenas() const { return arenas_; }
  /// Returns the cache that an arena's rows are behind, or null. Its rows are found by
  /// AnyRowCache::acquire.
  const std::shared_ptr<Cache>& cache(std::size_t a) const { return caches_[a]; }
  CacheCounters cache_counters() const {
    CacheCounters sum;
    for (const std::shared_ptr<Cache>& cache : caches_)
      if (cache != nullptr) sum += cache->counters();
    return sum;
  }

  int group_of(int table) const { return training_[static_cast<std::size_t>(table)].group; }
  bool trains(int table) const { return training_[static_cast<std::size_t>(table)].trains; }

  /// Returns the seed of stochastic rounding, and of the first values.
  std::uint64_t seed() const { return seed_; }
  void set_seed(std::uint64_t seed) { seed_ = seed; }

  /// Writes rows that updates changed where they stay, before they are read there.
  void flush() const { in_caches(&Cache::flush); }
  /// Lets caches read rows again that were written there, before which `flush` was called.
  void reload() const { in_caches(&Cache::reload); }
  /// Called before rows are used in caches.
  void refresh() const { in_caches(&Cache::refresh); }

  /// Copies rows of a shard's matrix, `stride` bytes apart, one after another into the host's
  /// memory, and waits for them. For backends whose memory the host cannot read.
  void fetch_rows(const std::byte* from, std::int64_t stride, std::span<const std::int64_t> rows,
                  std::int64_t row_bytes, std::byte* to) const {
    const std::size_t bytes = rows.size() * static_cast<std::size_t>(row_bytes);
    Buffer<std::int64_t, Backend> numbers;
    Buffer<std::byte, Backend> block;
    numbers.resize(backend_, rows.size());
    block.resize(backend_, bytes);
    backend_.copy(numbers.data(), rows.data(), rows.size_bytes());
    op::run<op::CopyRows>(backend_, {{from, stride, numbers.data()},
                                     {block.data(), row_bytes, nullptr},
                                     std::ssize(rows),
                                     row_bytes});
    backend_.copy(to, block.data(), bytes);
    backend_.synchronize();
  }

  /// Returns the index of a table of the plan. Throws InvalidArgument if there is none of that
  /// name.
  int table_index(std::string_view name) const {
    for (std::size_t t = 0; t < layout_.tables.size(); ++t)
      if (layout_.tables[t].name == name) return static_cast<int>(t);
    std::vector<std::string_view> names;
    for (const TableSpec& table : layout_.tables) names.push_back(table.name);
    throw InvalidArgument(formatted("EmbeddingCollection: the plan has no table '{}'; it has {}",
                                    name, nearest_names(name, names)));
  }

 protected:
  /// Takes a layout. `training`: by table.
  RankTables(const Backend& backend, Layout&& layout, int rank, PodVector<TableTraining> training,
             std::uint64_t seed);
  ~RankTables();

  /// Brings, in a cached arena, an arena row into a slot, which `at` becomes, while the result
  /// lives.
  typename Cache::Pins to_slot(std::size_t a, std::int64_t& at) const {
    if (caches_[a] == nullptr) return {};
    typename Cache::Slot slot = Cache::none;
    auto pins = Cache::acquire(caches_[a], backend_, {&at, 1}, {&slot, 1}, Cache::For::task);
    at = slot;
    return pins;
  }

  Backend backend_;
  Layout layout_;
  PodVector<TableTraining> training_;
  RankLayout routing_;
  std::uint64_t seed_;
  std::vector<Arena<Backend>> arenas_;
  std::vector<Arena<Backend>> resting_;         // of caches whose rows stay in the host's memory
  std::vector<std::shared_ptr<Cache>> caches_;  // by arena; null: all rows are in it

 private:
  void in_caches(void (Cache::*call)()) const {
    for (const std::shared_ptr<Cache>& cache : caches_)
      if (cache != nullptr) ((*cache).*call)();
  }
};

template <class Backend>
RankTables<Backend>::RankTables(const Backend& backend, Layout&& layout, int rank,
                                PodVector<TableTraining> training, std::uint64_t seed)
    : backend_(backend),
      layout_(std::move(layout)),
      training_(std::move(training)),
      routing_(layout_, rank, training_),
      seed_(seed) {}
template <class Backend>
RankTables<Backend>::~RankTables() = default;

}}}  // namespace tessera::v0::detail
