// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/tables/any_row_cache.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_layout.hpp>
#include <tessera/tables/rank_tables.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The rows of some bags of one cached arena, held in slots, and the bags' ids as slots.
template <IdType Id, class Backend>
class HeldRows {
 public:
  using Cache = AnyRowCache<Backend>;

  /// Gives up what was held.
  void clear() {
    release(false);
    rows_.clear();
    parts_.clear();
  }
  /// Appends bags whose rows are to be held. Returns their number, for `placed`. Waits for the
  /// backend if the host cannot read ids.
  std::size_t append(const Backend& backend, const op::Bags<Id>& bags) {
    const Entries entries = entries_of(backend, bags);
    const std::size_t at = rows_.size(), count = static_cast<std::size_t>(entries.count);
    rows_.resize(at + count);
    const Id* ids = bags.ids + entries.first;
    if constexpr (!Backend::host_readable) {
      ids_.resize(count);
      backend.copy(ids_.data(), ids, count * sizeof(Id));
      backend.synchronize();
      ids = ids_.data();
    }
    for (std::size_t i = 0; i < count; ++i)
      rows_[at + i] = ids[i] < 0 ? std::int64_t{-1} : ids[i] + bags.row_bias;
    parts_.push_back({at, entries.first});
    return parts_.size() - 1;
  }
  /// Brings the rows of all appended bags into slots.
  void hold(const Backend& backend, const std::shared_ptr<Cache>& cache, typename Cache::For what) {
    slots_.resize(rows_.size());
    pins_ = Cache::acquire(cache, backend, rows_, slots_, what);
    ids_.assign(slots_.begin(), slots_.end());
    Id* const placed = placed_.resize(backend, ids_.size()).data();
    if (!ids_.empty()) backend.copy(placed, ids_.data(), ids_.size() * sizeof(Id));
  }

  /// Returns appended bags `i`, to be read from the slots.
  op::Bags<Id> placed(std::size_t i, op::Bags<Id> bags) const {
    if (!ids_.empty())  // else there is no memory, and nothing is read
      bags.ids = placed_.data() + (static_cast<std::int64_t>(parts_[i].at) - parts_[i].first);
    bags.row_bias = 0;
    return bags;
  }

  /// Notes that an update is about to change the rows.
  void mark_changed() const { pins_.mark_changed(); }
  /// Releases as AnyRowCache::Pins does.
  void release(bool forget) { pins_.release(forget); }

 private:
  struct Entries {
    std::int64_t first, count;
  };
  struct Part {
    std::size_t at;      // in rows_
    std::int64_t first;  // entry of the bags
  };

  static Entries entries_of(const Backend& backend, const op::Bags<Id>& bags) {
    if (bags.bags == 0) return {0, 0};
    if (bags.offsets == nullptr || Backend::host_readable) return {bags.begin(0), bags.entries()};
    std::int64_t ends[2];
    backend.copy(&ends[0], bags.offsets, sizeof(ends[0]));
    backend.copy(&ends[1], bags.offsets + bags.bags, sizeof(ends[1]));
    backend.synchronize();
    return {ends[0], ends[1] - ends[0]};
  }

  PodVector<Part> parts_;
  std::vector<std::int64_t> rows_;
  std::vector<typename Cache::Slot> slots_;
  std::vector<Id> ids_;
  Buffer<Id, Backend> placed_;
  typename Cache::Pins pins_;
};

/// The rows of a routed batch that are behind caches: they are in slots from `route` to the end of
/// the step.
template <IdType Id, class Backend>
class ResidentRows {
 public:
  /// Brings the rows of all received bags (by own slot * ranks + source) into slots of their
  /// arenas' caches. Where it throws, the step holds none.
  void hold(const Backend& backend, const RankTables<Backend>& tables,
            std::span<const op::Bags<Id>> received) {
    const RankLayout& routing = tables.routing();
    const std::size_t ranks = static_cast<std::size_t>(routing.ranks());
    release(false);
    arenas_.clear();
    for (std::size_t a = 0; a < routing.arenas().size(); ++a)
      if (tables.cache(a) != nullptr) arenas_.resize(a + 1);
    if (arenas_.empty()) return;
    for (HeldRows<Id, Backend>& held : arenas_) held.clear();
    first_part_.assign(received.size() + 1, 0);
    places_.clear();
    for (std::size_t i = 0; i < received.size(); ++i) {
      const Slot& slot = routing.own_slot(i / ranks);
      first_part_[i] = places_.size();
      for (const SlotPart& part : slot.parts) {
        op::Bags<Id> bags = received[i];
        bags.row_bias = part.row_bias;
        const auto a = static_cast<std::size_t>(part.arena);
        const bool cached = tables.cache(a) != nullptr && bags.bags != 0;
        places_.push_back({part.arena, cached ? arenas_[a].append(backend, bags) : nowhere});
      }
    }
    try {
      for (std::size_t a = 0; a < arenas_.size(); ++a)
        if (tables.cache(a) != nullptr)
          arenas_[a].hold(backend, tables.cache(a), AnyRowCache<Backend>::For::batch);
    } catch (...) {
      release(false);
      throw;
    }
  }

  /// Returns a part's bags, of received bags `i`, to be read from slots if its arena has a cache.
  op::Bags<Id> placed(const op::Bags<Id>& bags, std::size_t i, std::size_t part) const {
    if (arenas_.empty()) return bags;
    const Place& place = places_[first_part_[i] + part];
    return place.bags == nowhere
               ? bags
               : arenas_[static_cast<std::size_t>(place.arena)].placed(place.bags, bags);
  }

  void mark_changed(std::size_t arena) const {
    if (arena < arenas_.size()) arenas_[arena].mark_changed();
  }
  void release(bool forget) {
    for (HeldRows<Id, Backend>& held : arenas_) held.release(forget);
  }

 private:
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
  struct Place {
    int arena;
    std::size_t bags;  // of that arena's
  };

  std::vector<HeldRows<Id, Backend>> arenas_;  // up to the last one with a cache
  std::vector<std::size_t> first_part_;        // in places_, by received bags
  PodVector<Place> places_;
};

}}}  // namespace tessera::v0::detail
