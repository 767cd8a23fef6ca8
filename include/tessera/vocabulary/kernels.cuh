// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/vocabulary/layout.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace gpu { namespace detail {

// Keys are entries 0, 1, 2, ...; a hash table of entry numbers finds them (open addressing, linear
// probing, at most half full). Threads race for places in that table and for the numbers of new
// entries, and no result depends on either: what comes first in a batch is found by atomicMax over
// places, and all other atomics are sums, minima and maxima of integers.

inline constexpr int vocabulary_threads = 256;
inline constexpr std::uint32_t no_entry = 0xffffffffu;

/// A feature's table, as far as its keys' owners go.
struct VocabularyFeature {
  std::uint64_t seed;
  std::int64_t blocks;
  std::int64_t first_block;  ///< of the table, among the blocks of all tables
};

struct VocabularyBlockInfo {
  std::uint64_t seed;
  std::int64_t table, begin;  ///< first row, of the table
  std::uint32_t first_row;    ///< of the block, among the rows of this rank's blocks
  std::uint64_t policy_seed;  ///< of SeenKey
};

/// What kernels count for the host in a batch, by block.
struct VocabularyTally {
  std::uint32_t newcomers, most;  ///< keys that have earned a row, and the largest score of any
  std::uint32_t added;            ///< keys that were not known
  std::uint32_t eligible;         ///< rows that may be taken away
  std::uint32_t worthless;        ///< of them, those of score 0
  std::uint32_t not_least;        ///< complement of the least score of a key with a row
  std::uint32_t left;             ///< keys without a row that are not forgotten
};

/// What the host decides for a block.
struct VocabularyGrant {
  std::uint32_t first, granted;  ///< of the sorted newcomers
  /// the first of them get free rows, from this place of `free_rows`
  std::uint32_t from_free, free_at;
  std::uint32_t used;       ///< the others the rows from here on
  std::uint32_t reused_at;  ///< where to report rows that have changed hands
  std::uint32_t given_at;   ///< and keys that got rows
  std::uint32_t scarce;     ///< the highest scores first
};

/// A block where rows are taken away. A list of them ends with one that has `first` alone:
/// the number of rows of all.
struct ShortBlock {
  std::uint32_t block, first;  ///< first: place of its first row among those of all short blocks
  std::uint32_t is_short;      ///< has fewer rows than newcomers; else rows of score 0 alone go
  std::uint32_t eligible_first, victims;
  std::uint32_t evicted_at;  ///< where to report keys that lost their rows
};

struct VocabularyState {
  std::uint32_t* index;  ///< mask + 1 numbers of entries, or no_entry
  std::uint64_t mask;
  std::int64_t* keys;  ///< by entry, as all to `seen`
  std::uint32_t* blocks;
  std::uint32_t* counts;
  std::uint32_t* steps;  ///< last seen
  std::int32_t* rows;    ///< of the block, or -1
  /// in the batch: step, then the complement of the first place; the largest counts
  unsigned long long* first;
  std::uint32_t* seen;      ///< so often in the batch; zero between batches
  std::uint32_t* owners;    ///< by row of this rank: its entry, or no_entry
  std::int32_t* free_rows;  ///< by block: rows that were used before and have no key, ascending
  std::uint32_t* least;     ///< by block: no key with a row has a lower score, if they never fall
  VocabularyTally* tallies;
  const VocabularyBlockInfo* infos;

  __device__ SeenKey seen_key(std::uint32_t e, std::uint32_t now) const {
    return {.key = keys[e],
            .count = counts[e],
            .step = steps[e],
            .now = now,
            .seed = infos[blocks[e]].policy_seed};
  }
  __device__ std::uint64_t place(std::int64_t key, std::uint32_t block) const {
    return mix64(static_cast<std::uint64_t>(key) ^ infos[block].seed) & mask;
  }
  __device__ std::uint32_t find(std::int64_t key, std::uint32_t block) const {
    for (std::uint64_t slot = place(key, block);; slot = (slot + 1) & mask) {
      const std::uint32_t e = index[slot];
      if (e == no_entry || (keys[e] == key && blocks[e] == block)) return e;
    }
  }
};

/// Keys that this rank decides about, in the order (feature, global sample, position).
struct VocabularyBatch {
  std::int64_t* keys;
  std::uint32_t* blocks;
  std::uint32_t* sources;  ///< where each stood among the keys that arrived
  std::int32_t* answers;   ///< rows, in the order in which the keys arrived
  std::uint32_t* entries;
  std::uint32_t* slots;
  std::uint32_t* ranks;  ///< count + 1: marks, then sums of marks
  std::uint32_t count;
  std::uint32_t known;  ///< entries before this batch
  std::uint32_t step;

  __device__ unsigned long long stamp(std::uint32_t i) const {
    return static_cast<unsigned long long>(step) << 32 | (0xffffffffu - i);
  }
};

__device__ inline std::uint32_t vocabulary_thread() {
  return blockIdx.x * vocabulary_threads + threadIdx.x;
}

/// Returns the last of `count` ascending numbers that is at most `value`.
template <class T, class At>
__device__ std::uint32_t last_at_most(std::uint32_t count, T value, At at) {
  std::uint32_t low = 0, high = count - 1;
  while (low < high) {
    const std::uint32_t middle = low + (high - low + 1) / 2;
    if (at(middle) <= value)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/// Finds which rank decides about each key; how many keys of each feature go to each.
template <int = 0>
__global__ void vocabulary_owners(const VocabularyFeature* features,
                                  const std::uint32_t feature_count,
                                  const std::int64_t* feature_begin, const std::int32_t* owners,
                                  const std::int64_t* keys, const std::uint32_t count,
                                  std::uint32_t* key_owners, std::uint32_t* order,
                                  unsigned long long* counts) {
  const std::uint32_t i = vocabulary_thread();
  if (i >= count) return;
  const std::uint32_t f = last_at_most(feature_count, static_cast<std::int64_t>(i),
                                       [&](std::uint32_t at) { return feature_begin[at]; });
  const VocabularyFeature feature = features[f];
  const auto owner = static_cast<std::uint32_t>(
      owners[feature.first_block +
             tessera::detail::vocabulary_block(feature.seed, feature.blocks, keys[i])]);
  key_owners[i] = owner;
  order[i] = i;
  atomicAdd(&counts[owner * feature_count + f], 1ull);
}

template <int = 0>
__global__ void vocabulary_gather(const std::int64_t* from, const std::uint32_t* order,
                                  const std::uint32_t count, std::int64_t* to) {
  const std::uint32_t i = vocabulary_thread();
  if (i < count) to[i] = from[order[i]];
}

/// Puts keys, which arrived by rank and feature (`arrived`: where each such segment begins), in
/// order by feature and rank (`arranged`).
template <int = 0>
__global__ void vocabulary_arrange(const VocabularyFeature* features,
                                   const std::uint32_t feature_count, const std::int32_t* locals,
                                   const std::int64_t* arrived, const std::int64_t* arranged,
                                   const std::uint32_t segments, const std::int64_t* keys,
                                   const VocabularyBatch b) {
  const std::uint32_t i = vocabulary_thread();
  if (i >= b.count) return;
  const std::uint32_t segment = last_at_most(segments, static_cast<std::int64_t>(i),
                                             [&](std::uint32_t at) { return arrived[at]; });
  const VocabularyFeature feature = features[segment % feature_count];
  const std::int64_t to = arranged[segment] + (static_cast<std::int64_t>(i) - arrived[segment]);
  b.keys[to] = keys[i];
  b.blocks[to] = static_cast<std::uint32_t>(
      locals[feature.first_block +
             tessera::detail::vocabulary_block(feature.seed, feature.blocks, keys[i])]);
  b.sources[to] = i;
}

/// Finds known keys' entries. Nothing else changes the table meanwhile.
template <int = 0>
__global__ void vocabulary_find(const VocabularyState s, const VocabularyBatch b) {
  const std::uint32_t i = vocabulary_thread();
  if (i < b.count) b.entries[i] = s.find(b.keys[i], b.blocks[i]);
}

/// Gives unknown keys places in the table, under numbers behind those of all entries.
template <int = 0>
__global__ void vocabulary_claim(const VocabularyState s, const VocabularyBatch b) {
  const std::uint32_t i = vocabulary_thread();
  if (i >= b.count || b.entries[i] != no_entry) return;
  const std::int64_t key = b.keys[i];
  const std::uint32_t block = b.blocks[i];
  std::uint64_t slot = s.place(key, block);
  for (;; slot = (slot + 1) & s.mask) {
    const std::uint32_t there = atomicCAS(&s.index[slot], no_entry, b.known + i);
    if (there == no_entry) break;
    if (there >= b.known && b.keys[there - b.known] == key && b.blocks[there - b.known] == block)
      break;
  }
  b.slots[i] = static_cast<std::uint32_t>(slot);
}

template <int = 0>
__global__ void vocabulary_mark_new(const VocabularyState s, const VocabularyBatch b) {
  const std::uint32_t i = vocabulary_thread();
  if (i > b.count) return;
  b.ranks[i] = i < b.count && b.entries[i] == no_entry && s.index[b.slots[i]] == b.known + i;
}

/// Adds new entries: of equal keys, the one that has the place in the table makes it.
template <int = 0>
__global__ void vocabulary_add(const VocabularyState s, const VocabularyBatch b) {
  const std::uint32_t i = vocabulary_thread();
  if (i >= b.count || b.entries[i] != no_entry) return;
  const std::uint32_t maker = s.index[b.slots[i]] - b.known, e = b.known + b.ranks[maker];
  b.entries[i] = e;
  if (maker != i) return;
  s.keys[e] = b.keys[i];
  s.blocks[e] = b.blocks[i];
  s.counts[e] = 0;
  s.steps[e] = 0;
  s.rows[e] = -1;
  atomicAdd(&s.tallies[b.blocks[i]].added, 1u);
}

template <int = 0>
__global__ void vocabulary_number(const VocabularyState s, const VocabularyBatch b) {
  const std::uint32_t i = vocabulary_thread();
  if (i < b.count && b.ranks[i + 1] != b.ranks[i]) s.index[b.slots[i]] = b.entries[i];
}

template <int = 0>
__global__ void vocabulary_count(const VocabularyState s, const VocabularyBatch b) {
  const std::uint32_t i = vocabulary_thread();
  if (i >= b.count) return;
  atomicAdd(&s.seen[b.entries[i]], 1u);
  atomicMax(&s.first[b.entries[i]], b.stamp(i));
}

/// Touches each key once, at its first place: its count, and whether it has now earned a row.
/// `policies`: by block.
template <class Policy>
__global__ void vocabulary_touch(const VocabularyState s, const VocabularyBatch b,
                                 const Policy* policies) {
  const std::uint32_t i = vocabulary_thread();
  if (i > b.count) return;
  b.ranks[i] = 0;
  if (i == b.count) return;
  const std::uint32_t e = b.entries[i];
  if (s.first[e] != b.stamp(i)) return;
  const std::uint32_t room = 0xffffffffu - s.counts[e],
                      count = s.counts[e] + (s.seen[e] < room ? s.seen[e] : room);
  s.counts[e] = count;
  s.seen[e] = 0;
  s.steps[e] = b.step;
  const std::uint32_t block = b.blocks[i];
  if (s.rows[e] >= 0) return;
  const SeenKey seen = s.seen_key(e, b.step);
  if (!policies[block].admits(seen)) return;
  b.ranks[i] = 1;
  atomicAdd(&s.tallies[block].newcomers, 1u);
  atomicMax(&s.tallies[block].most, policies[block].score(seen));
}

template <int = 0>
__global__ void vocabulary_list_newcomers(const VocabularyBatch b, std::uint32_t* newcomers) {
  const std::uint32_t i = vocabulary_thread();
  if (i < b.count && b.ranks[i + 1] != b.ranks[i]) newcomers[b.ranks[i]] = b.entries[i];
}

/// Writes keys to sort newcomers by: first, if there are not enough rows, by their scores; then
/// by block.
template <class Policy>
__global__ void vocabulary_newcomer_keys(const VocabularyState s, const Policy* policies,
                                         const VocabularyGrant* grants, const bool by_block,
                                         const std::uint32_t step, const std::uint32_t* newcomers,
                                         const std::uint32_t count, std::uint32_t* keys) {
  const std::uint32_t i = vocabulary_thread();
  if (i >= count) return;
  const std::uint32_t e = newcomers[i], block = s.blocks[e];
  keys[i] = by_block                    ? block
            : grants[block].scarce != 0 ? ~policies[block].score(s.seen_key(e, step))
                                        : 0;
}

/// Gives rows to the first of each block's newcomers. `given`: null, or where to report them.
template <class Policy>
__global__ void vocabulary_grant(const VocabularyState s, const Policy* policies,
                                 const VocabularyGrant* grants, const std::uint32_t step,
                                 const std::uint32_t* newcomers, const std::uint32_t count,
                                 tessera::detail::ReusedRow* reused,
                                 tessera::detail::KeyRow* given) {
  const std::uint32_t i = vocabulary_thread();
  if (i >= count) return;
  const std::uint32_t e = newcomers[i], block = s.blocks[e];
  const VocabularyGrant grant = grants[block];
  const VocabularyBlockInfo& info = s.infos[block];
  const std::uint32_t nth = i - grant.first;
  if (nth >= grant.granted) return;
  const std::int32_t row = nth < grant.from_free
                               ? s.free_rows[grant.free_at + nth]
                               : static_cast<std::int32_t>(grant.used + (nth - grant.from_free));
  s.rows[e] = row;
  s.owners[info.first_row + static_cast<std::uint32_t>(row)] = e;
  atomicMin(&s.least[block], policies[block].score(s.seen_key(e, step)));
  if (nth < grant.from_free) reused[grant.reused_at + nth] = {info.table, info.begin + row};
  if (given != nullptr) given[grant.given_at + nth] = {info.table, info.begin + row, s.keys[e]};
}

/// Returns the short block that holds place `t` of all their rows.
__device__ inline std::uint32_t short_block_of(const ShortBlock* blocks, std::uint32_t count,
                                               std::uint32_t t) {
  return last_at_most(count, t, [&](std::uint32_t at) { return blocks[at].first; });
}
__device__ inline std::uint32_t& owner_of(const VocabularyState& s, const ShortBlock& block,
                                          std::uint32_t t) {
  return s.owners[s.infos[block.block].first_row + (t - block.first)];
}

/// Writes keys to sort the rows of short blocks by, those to be taken away first: pass 0, 1, 2,
/// then by block. `places` is set in pass 0.
template <class Policy>
__global__ void vocabulary_victim_keys(const VocabularyState s, const Policy* policies,
                                       const ShortBlock* short_blocks, const std::uint32_t count,
                                       const std::uint32_t step, const int pass,
                                       std::uint32_t* places, std::uint32_t* keys) {
  const std::uint32_t i = vocabulary_thread();
  if (i >= short_blocks[count].first) return;
  if (pass == 0) places[i] = i;
  const std::uint32_t k = short_block_of(short_blocks, count, places[i]),
                      block = short_blocks[k].block;
  const std::uint32_t e = owner_of(s, short_blocks[k], places[i]);
  const std::uint32_t score = e == no_entry ? 0 : policies[block].score(s.seen_key(e, step));
  const bool eligible =
      e != no_entry && s.steps[e] != step &&
      (score == 0 || (short_blocks[k].is_short != 0 && score < s.tallies[block].most));
  if (pass == 3)
    keys[i] = eligible ? k : count;
  else
    keys[i] = !eligible ? 0 : pass == 0 ? s.counts[e] : pass == 1 ? s.steps[e] : score;
  if (pass != 0 || e == no_entry) return;
  if (eligible) atomicAdd(&s.tallies[block].eligible, 1u);
  if (eligible && score == 0) atomicAdd(&s.tallies[block].worthless, 1u);
  atomicMax(&s.tallies[block].not_least, ~score);
}

/// Takes rows away. `evicted`: null, or where to report the keys.
template <int = 0>
__global__ void vocabulary_evict(const VocabularyState s, const ShortBlock* short_blocks,
                                 const std::uint32_t count, const std::uint32_t* places,
                                 const std::uint32_t eligible, tessera::detail::KeyRow* evicted) {
  const std::uint32_t i = vocabulary_thread();
  if (i >= eligible) return;
  const std::uint32_t k =
      last_at_most(count, i, [&](std::uint32_t at) { return short_blocks[at].eligible_first; });
  const std::uint32_t nth = i - short_blocks[k].eligible_first;
  if (nth >= short_blocks[k].victims) return;
  std::uint32_t& owner = owner_of(s, short_blocks[k], places[i]);
  if (evicted != nullptr) {
    const VocabularyBlockInfo& info = s.infos[short_blocks[k].block];
    evicted[short_blocks[k].evicted_at + nth] = {info.table, info.begin + s.rows[owner],
                                                 s.keys[owner]};
  }
  s.rows[owner] = -1;
  owner = no_entry;
}

template <int = 0>
__global__ void vocabulary_mark_free(const VocabularyState s, const ShortBlock* short_blocks,
                                     const std::uint32_t count, std::uint32_t* ranks) {
  const std::uint32_t t = vocabulary_thread(), end = short_blocks[count].first;
  if (t > end) return;
  ranks[t] =
      t < end && owner_of(s, short_blocks[short_block_of(short_blocks, count, t)], t) == no_entry;
}

/// Lists the free rows of short blocks, ascending; and what is now the least count of their keys.
template <int = 0>
__global__ void vocabulary_list_free(const VocabularyState s, const ShortBlock* short_blocks,
                                     const std::uint32_t count, const std::uint32_t* ranks) {
  const std::uint32_t t = vocabulary_thread();
  if (t >= short_blocks[count].first) return;
  const ShortBlock block = short_blocks[short_block_of(short_blocks, count, t)];
  if (t == block.first) s.least[block.block] = ~s.tallies[block.block].not_least;
  if (ranks[t + 1] != ranks[t])
    s.free_rows[s.infos[block.block].first_row + (ranks[t] - ranks[block.first])] =
        static_cast<std::int32_t>(t - block.first);
}

/// Writes the row of each key, in the order in which the keys arrived.
template <int = 0>
__global__ void vocabulary_answer(const VocabularyState s, const VocabularyBatch b) {
  const std::uint32_t i = vocabulary_thread();
  if (i >= b.count) return;
  const std::uint32_t e = b.entries[i];
  const std::int32_t row = e == no_entry ? -1 : s.rows[e];
  b.answers[b.sources[i]] =
      row < 0 ? 0 : static_cast<std::int32_t>(s.infos[b.blocks[i]].begin + row);
}

/// Writes the answers in the order of the caller's keys. `order` null: they are in it.
template <class Id>
__global__ void vocabulary_hand_back(const std::int32_t* answers, const std::uint32_t* order,
                                     const std::uint32_t count, Id* rows) {
  const std::uint32_t i = vocabulary_thread();
  if (i < count) rows[order == nullptr ? i : order[i]] = static_cast<Id>(answers[i]);
}

/// Halves the counts of keys without a row, in blocks whose `forget` is set.
template <int = 0>
__global__ void vocabulary_halve(const VocabularyState s, const std::uint32_t entries,
                                 const std::uint8_t* forget) {
  const std::uint32_t e = vocabulary_thread();
  if (e >= entries || s.rows[e] >= 0 || forget[s.blocks[e]] == 0) return;
  s.counts[e] /= 2;
  if (s.counts[e] != 0) atomicAdd(&s.tallies[s.blocks[e]].left, 1u);
}

/// Marks which entries stay: all but those of blocks [drop_begin, drop_end), and but those whose
/// count is 0.
template <int = 0>
__global__ void vocabulary_mark_kept(const VocabularyState s, const std::uint32_t entries,
                                     const std::uint32_t drop_begin, const std::uint32_t drop_end,
                                     std::uint32_t* ranks) {
  const std::uint32_t e = vocabulary_thread();
  if (e > entries) return;
  ranks[e] =
      e < entries && s.counts[e] != 0 && !(s.blocks[e] >= drop_begin && s.blocks[e] < drop_end);
}

template <int = 0>
__global__ void vocabulary_move_kept(const VocabularyState from, const VocabularyState to,
                                     const std::uint32_t entries, const std::uint32_t* ranks) {
  const std::uint32_t e = vocabulary_thread();
  if (e >= entries || ranks[e + 1] == ranks[e]) return;
  const std::uint32_t n = ranks[e];
  to.keys[n] = from.keys[e];
  to.blocks[n] = from.blocks[e];
  to.counts[n] = from.counts[e];
  to.steps[n] = from.steps[e];
  to.rows[n] = from.rows[e];
}

/// Fills an empty table, and the list of rows' owners.
template <int = 0>
__global__ void vocabulary_index(const VocabularyState s, const std::uint32_t entries) {
  const std::uint32_t e = vocabulary_thread();
  if (e >= entries) return;
  std::uint64_t slot = s.place(s.keys[e], s.blocks[e]);
  while (atomicCAS(&s.index[slot], no_entry, e) != no_entry) slot = (slot + 1) & s.mask;
  if (s.rows[e] >= 0)
    s.owners[s.infos[s.blocks[e]].first_row + static_cast<std::uint32_t>(s.rows[e])] = e;
}

}}}}  // namespace tessera::v0::gpu::detail
