// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/bags.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns the bags of any kind of group.
template <class Group>
constexpr const auto& bags_of(const Group& group) {
  if constexpr (requires { group.bags; }) {
    return group.bags;
  } else {
    return group.source.bags;
  }
}

/// Cuts the bags of all groups, taken as one sequence, into parts of about equal cost: a part is a
/// run of bags, which may span groups.
template <class Group>
class BagParts {
 public:
  BagParts(const Host& backend, std::span<const Group> groups, std::int64_t entry_cost,
           std::int64_t bag_cost)
      : groups_(groups), entry_cost_(entry_cost), bag_cost_(bag_cost) {
    cost_ = static_cast<std::int64_t*>(
        backend.scratch(ScratchSlot::bag_costs, (groups.size() + 1) * sizeof(std::int64_t)));
    cost_[0] = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& bags = bags_of(groups[g]);
      cost_[g + 1] =
          cost_[g] + (bags.bags == 0 ? 0 : bags.entries() * entry_cost + bags.bags * bag_cost);
    }
  }

  std::int64_t cost() const { return cost_[groups_.size()]; }

  /// Calls f(group index, first bag, last bag) for the runs of part `part` of `parts`, in order.
  template <class F>
  void for_part(std::int64_t part, std::int64_t parts, const F& f) const {
    const std::int64_t low = cost() / parts * part + cost() % parts * part / parts;
    const std::int64_t high = cost() / parts * (part + 1) + cost() % parts * (part + 1) / parts;
    for (std::size_t g = first_after(low); g < groups_.size() && cost_[g] < high; ++g) {
      const std::int64_t first = bag_at(g, low);
      const std::int64_t last = bag_at(g, high);
      if (first < last) f(g, first, last);
    }
  }

 private:
  /// Returns the first group that ends behind `cost`.
  std::size_t first_after(std::int64_t cost) const {
    std::size_t low = 0, high = groups_.size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (cost_[middle + 1] > cost) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  /// Returns the first bag of group `g` that begins at `cost` or behind it.
  std::int64_t bag_at(std::size_t g, std::int64_t cost) const {
    const auto& bags = bags_of(groups_[g]);
    std::int64_t low = 0, high = bags.bags;
    if (cost <= cost_[g]) return low;
    if (cost >= cost_[g + 1]) return high;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (cost_[g] + (bags.begin(middle) - bags.begin(0)) * entry_cost_ + middle * bag_cost_ >=
          cost) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  std::span<const Group> groups_;
  std::int64_t entry_cost_;
  std::int64_t bag_cost_;
  std::int64_t* cost_;
};

/// Asks for all cache lines of `bytes` at `address`. g++ takes a function that does nothing but
/// prefetch for a pure one and drops its calls: the empty statement keeps them.
template <bool Write = false>
[[gnu::always_inline]] inline void prefetch(const void* address, std::int64_t bytes) {
  asm volatile("");
  const char* line = static_cast<const char*>(address);
  for (std::int64_t offset = 0; offset < bytes; offset += 64)
    __builtin_prefetch(line + offset, Write ? 1 : 0);
  // Rows of 2^k bytes are aligned to them; any other row may end in one line more.
  if ((bytes & (bytes - 1)) != 0) __builtin_prefetch(line + bytes - 1, Write ? 1 : 0);
}

/// Returns how many rows ahead to prefetch: narrow rows are bound by the misses in flight, wide
/// ones by bytes.
constexpr int prefetch_distance(std::int64_t row_bytes) {
  const std::int64_t rows = 6144 / (row_bytes < 64 ? 64 : row_bytes);
  return rows < 4 ? 4 : static_cast<int>(rows);
}

/// Walks over the entries of all groups some way ahead of the loop that reads them, across the
/// borders of groups, so that a hundred small tables cost what one large one does. A loop keeps a
/// copy: no function but inlined ones sees its address, so it stays in registers.
template <class T, class Group>
class RowPrefetcher {
 public:
  RowPrefetcher(std::span<const Group> groups, const T* arena, int width)
      : groups_(groups), arena_(arena), width_(width) {}

  /// Begins at a bag of a group and goes `distance` entries ahead.
  [[gnu::noinline]] void start(std::size_t group, std::int64_t bag) {
    at_ = place(groups_, group, bag);
    for (int i = prefetch_distance(width_ * static_cast<std::int64_t>(sizeof(T))); i > 0; --i)
      step<0>();
  }

  template <int Width>
  [[gnu::always_inline]] void step() {
    if (at_.next == at_.stop) {
      at_ = after(groups_, at_);
      if (at_.next == at_.stop) return;
    }
    const std::int64_t width = Width != 0 ? Width : width_;
    prefetch(arena_ + (static_cast<std::int64_t>(*at_.next++) + at_.bias) * width,
             width * static_cast<std::int64_t>(sizeof(T)));
  }

 private:
  using IdPointer = decltype(bags_of(std::declval<const Group&>()).ids);
  /// The next entry, and where those of its group end.
  struct Place {
    IdPointer next = nullptr, stop = nullptr;
    std::int64_t bias = 0;
    std::size_t group = 0;
  };

  static Place place(std::span<const Group> groups, std::size_t group, std::int64_t bag) {
    const auto& bags = bags_of(groups[group]);
    if (bags.bags == 0) return {.group = group};
    return {bags.ids + bags.begin(bag), bags.ids + bags.end(bags.bags - 1), bags.row_bias, group};
  }
  [[gnu::noinline]] static Place after(std::span<const Group> groups, Place at) {
    while (at.next == at.stop && at.group + 1 < groups.size()) at = place(groups, at.group + 1, 0);
    return at;
  }

  std::span<const Group> groups_;
  const T* arena_;
  std::int64_t width_;
  Place at_;
};

/// Calls f(group, first bag, last bag, ahead) for runs of bags until all were given. Threads get
/// runs of equal bytes: a bag has `bag_bytes` besides its rows of `arena`. `ahead` is at the first
/// bag's first entry.
template <class T, class Group, class F>
[[gnu::always_inline]] inline void for_bags(const Host& backend, std::span<const Group> groups,
                                            const T* arena, int width, std::int64_t bag_bytes,
                                            const F& f) {
  const BagParts<Group> split(backend, groups, width * static_cast<std::int64_t>(sizeof(T)),
                              bag_bytes);
  const int threads = worthwhile_threads(backend.threads(), split.cost());
  const std::int64_t parts = threads == 1 ? 1 : threads * 4;
  parallel_for(threads, parts, [&](std::int64_t part, int) {
    RowPrefetcher<T, Group> ahead(groups, arena, width);
    bool started = false;
    split.for_part(part, parts, [&](std::size_t g, std::int64_t first, std::int64_t last) {
      if (!started) ahead.start(g, first);
      started = true;
      f(groups[g], first, last, ahead);
    });
  });
}

}  // namespace detail

}}  // namespace tessera::v0
