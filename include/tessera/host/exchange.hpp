// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/memory.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/op/exchange.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

namespace tessera { inline namespace v0 {

template <IdType Id>
struct op::Kernel<op::CheckIds<Id>, Host> {
  static void run(const Host&, const typename op::CheckIds<Id>::Parameters& p) {
    using Unsigned = std::make_unsigned_t<Id>;
    *p.result = {};
    // A table with more rows than Id can count has no bad id but the negative ones.
    const Unsigned limit =
        static_cast<Unsigned>(std::min<std::int64_t>(p.rows, std::numeric_limits<Id>::max()));
    const bool all = p.rows > std::numeric_limits<Id>::max();
    const auto is_bad = [&](Id id) { return all ? id < 0 : static_cast<Unsigned>(id) >= limit; };
    std::int64_t bad = 0;
    for (std::int64_t i = 0; i < p.count; ++i) bad += is_bad(p.ids[i]);
    if (bad == 0) return;
    p.result->bad = bad;
    p.result->first = std::find_if(p.ids, p.ids + p.count, is_bad) - p.ids;
  }
};

template <IdType Id>
struct op::Kernel<op::PackBags<Id>, Host> {
  using Block = typename op::PackBags<Id>::Block;

  static void run(const Host& backend, const typename op::PackBags<Id>::Parameters& p) {
    for (const typename op::PackBags<Id>::Job& job : p.jobs) {
      const One one{job.bags, job.blocks, p.count_only};
      if (job.whole)
        whole(one);
      else
        split(backend, one);
    }
  }

 private:
  struct One {
    const op::Bags<Id>& bags;
    std::span<Block> blocks;
    bool count_only;
  };

  /// Takes every bag with every id: no test per id.
  static void whole(const One& p) {
    Block& block = p.blocks.front();
    const op::Bags<Id>& bags = p.bags;
    const std::int64_t first = bags.begin(0), entries = bags.bags == 0 ? 0 : bags.entries();
    block.bags = bags.bags;
    block.entries = entries;
    if (p.count_only) return;
    const auto copy = [](auto* target, const auto* source, std::int64_t count) {
      if (target != nullptr)
        detail::copy_bytes(target, source, static_cast<std::size_t>(count) * sizeof(*target));
    };
    copy(block.ids, bags.ids + first, entries);
    copy(block.weights, bags.weights + (block.weights != nullptr ? first : 0), entries);
    copy(block.bag_scale, bags.bag_scale, bags.bags);
    if (block.lengths != nullptr)
      for (std::int64_t bag = 0; bag < bags.bags; ++bag)
        block.lengths[bag] = static_cast<std::uint32_t>(bags.end(bag) - bags.begin(bag));
    if (block.positions != nullptr)
      for (std::int64_t i = 0; i < entries; ++i) block.positions[i] = first + i;
  }

  static void split(const Host& backend, const One& p) {
    // The bag that each block last opened.
    auto* last = static_cast<std::int64_t*>(
        backend.scratch(detail::ScratchSlot::last_bags, p.blocks.size() * sizeof(std::int64_t)));
    std::fill_n(last, p.blocks.size(), std::int64_t{-1});
    for (Block& block : p.blocks) block.bags = block.entries = 0;
    for (std::int64_t bag = 0; bag < p.bags.bags; ++bag) {
      for (std::int64_t i = p.bags.begin(bag); i < p.bags.end(bag); ++i) {
        const std::size_t b = find(p.blocks, static_cast<std::int64_t>(p.bags.ids[i]));
        if (b == p.blocks.size()) continue;
        if (last[b] != bag) open(p, b, bag, last);
        add(p, b, i);
      }
    }
  }

  static void open(const One& p, std::size_t b, std::int64_t bag, std::int64_t* last) {
    Block& block = p.blocks[b];
    last[b] = bag;
    const std::int64_t at = block.bags++;
    if (p.count_only) return;
    if (block.samples != nullptr) block.samples[at] = static_cast<std::int32_t>(bag);
    if (block.lengths != nullptr) block.lengths[at] = 0;
    if (block.bag_scale != nullptr) block.bag_scale[at] = p.bags.bag_scale[bag];
  }

  static void add(const One& p, std::size_t b, std::int64_t i) {
    Block& block = p.blocks[b];
    const std::int64_t at = block.entries++;
    if (p.count_only) return;
    block.ids[at] = p.bags.ids[i];
    if (block.lengths != nullptr) ++block.lengths[block.bags - 1];
    if (block.weights != nullptr) block.weights[at] = p.bags.weights[i];
    if (block.positions != nullptr) block.positions[at] = i;
  }

  /// Returns the block that holds a row, or blocks.size().
  static std::size_t find(std::span<const Block> blocks, std::int64_t row) {
    const auto after =
        std::upper_bound(blocks.begin(), blocks.end(), row,
                         [](std::int64_t r, const Block& b) { return r < b.row_begin; });
    if (after == blocks.begin() || row >= (after - 1)->row_end) return blocks.size();
    return static_cast<std::size_t>(after - blocks.begin()) - 1;
  }
};

template <>
struct op::Kernel<op::OffsetsFromLengths, Host> {
  static void run(const Host&, const op::OffsetsFromLengths::Parameters& p) {
    for (const op::OffsetsFromLengths::Job& job : p.jobs) {
      std::int64_t offset = 0;
      for (std::int64_t i = 0; i < job.count; ++i) {
        job.offsets[i] = offset;
        offset += job.lengths[i];
      }
      job.offsets[job.count] = offset;
    }
  }
};

template <>
struct op::Kernel<op::ZeroRows, Host> {
  static void run(const Host&, const op::ZeroRows::Parameters& p) {
    for (std::int64_t row = 0; row < p.rows; ++row)
      std::memset(p.target + row * p.target_stride, 0,
                  static_cast<std::size_t>(p.width) * sizeof(float));
  }
};

}}  // namespace tessera::v0
