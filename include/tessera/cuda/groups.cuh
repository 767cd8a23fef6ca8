// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera { inline namespace v0 { namespace gpu {

/// Returns bytes of a launch's groups. A kernel takes 32,764 bytes of parameters, but each launch
/// copies all of them: few if a group or two are the rule, many if groups are many and large.
template <class Group>
constexpr int group_bytes() {
  if constexpr (requires { Group::launch_bytes; })
    return Group::launch_bytes;
  else
    return 3900;
}

/// Groups of bags that one launch serves; they travel as a kernel parameter, so nothing is copied
/// ahead and a captured graph keeps them. Blocks are dealt out group by group.
template <class Group>
struct GroupBatch {
  static constexpr int capacity =
      group_bytes<Group>() / static_cast<int>(sizeof(Group) + sizeof(std::int64_t));
  Group groups[capacity];
  std::int64_t first_block[capacity + 1];
  int count;
  bool in_turns;  ///< each group has as many blocks; block by block

  /// Returns the group of a block.
  TESSERA_HOST_DEVICE int find(std::int64_t block) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_block[middle] <= block)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }

  /// Returns whether all groups have as many blocks.
  bool even() const {
    for (int g = 1; g < count; ++g)
      if (first_block[g + 1] - first_block[g] != first_block[1]) return false;
    return true;
  }

  struct Place {
    int group;
    std::int64_t block;  ///< of the group's
  };
  /// Returns a place, as `find` would. Where groups take turns, neighbouring columns of a row are
  /// written at about the same time. `MayTakeTurns`: whether the launch may have asked for that.
  template <bool MayTakeTurns>
  TESSERA_HOST_DEVICE Place place(std::uint32_t block) const {
    if (MayTakeTurns && in_turns) {
      const auto groups_in_turns = static_cast<std::uint32_t>(count);
      return {static_cast<int>(block % groups_in_turns), block / groups_in_turns};
    }
    const int group = find(block);
    return {group, block - first_block[group]};
  }
};

/// The blocks of a launch.
struct BlockShape {
  int threads = 0;
  std::size_t shared_bytes = 0;  ///< dynamic
  bool in_turns = false;         ///< GroupBatch's, where groups have as many blocks

  // NOLINTNEXTLINE(google-explicit-constructor)
  BlockShape(int threads_of_block, std::size_t shared = 0, bool groups_in_turns = false)
      : threads(threads_of_block), shared_bytes(shared), in_turns(groups_in_turns) {}
};

/// Launches `kernel(arguments..., batch)` for as many groups at a time as a kernel parameter holds.
/// `blocks_of(group)`: how many blocks a group needs; groups of none are left out.
template <class Group, class Groups, class BlocksOf, class Function, class... Arguments>
void launch_by_group(const Cuda& backend, std::string_view name, BlockShape block,
                     const Groups& groups, const BlocksOf& blocks_of, Function kernel,
                     const Arguments&... arguments) {
  GroupBatch<Group> batch{};
  const auto flush = [&] {
    batch.in_turns = block.in_turns && batch.even();
    launch(name,
           {.blocks = batch.first_block[batch.count],
            .threads = block.threads,
            .shared_bytes = block.shared_bytes,
            .stream = backend.stream()},
           kernel, arguments..., batch);
    batch.count = 0;
  };
  for (const auto& given : groups) {
    const Group& group = given;  // or made of it
    const std::int64_t blocks = blocks_of(group);
    if (blocks == 0) continue;
    batch.groups[batch.count] = group;
    batch.first_block[batch.count + 1] = batch.first_block[batch.count] + blocks;
    if (++batch.count == batch.capacity) flush();
  }
  if (batch.count > 0) flush();
}

/// As much of a small array as a kernel parameter holds.
template <class Item>
struct Parcel {
  static constexpr int capacity = 3900 / static_cast<int>(sizeof(Item));
  Item items[capacity];
  int count;
};

template <class Item>
__global__ void unpack(const Parcel<Item> __grid_constant__ parcel, Item* items) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < parcel.count) items[i] = parcel.items[i];
}

/// Puts a small host array into device memory without a copy that the host would wait for.
template <class Item>
void upload(const Cuda& backend, std::span<const Item> items, Item* device) {
  Parcel<Item> parcel{};
  for (std::size_t i = 0; i < items.size(); ++i) {
    parcel.items[parcel.count++] = items[i];
    if (parcel.count < parcel.capacity && i + 1 < items.size()) continue;
    backend.launch("unpack", 1, (parcel.count + 31) / 32 * 32, unpack<Item>, parcel,
                   device + (i + 1 - static_cast<std::size_t>(parcel.count)));
    parcel.count = 0;
  }
}

}}}  // namespace tessera::v0::gpu
