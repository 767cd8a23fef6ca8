// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/vocabulary_policy.hpp>
#include <tessera/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Whose row a key gets that comes when all rows are taken.
enum class Eviction : std::uint8_t {
  none,            ///< no key's: it shares the shared row
  least_frequent,  ///< of those seen least, and less often than the newcomer
  oldest,          ///< of those not seen for the longest time
};

namespace detail {

/// The keys of one table, and the built-in policies.
struct VocabularyTable {
  /// of the table. Row 0 is shared by all keys that have no row of their own
  std::int64_t rows = 0;
  /// a key gets its row in the batch in which it is seen for this time, counted over all batches
  std::uint32_t admit_after = 1;
  Eviction eviction = Eviction::least_frequent;
  /// from then on in each batch that has the key with this probability
  float admit_probability = 1;
  /// a key that was not seen for more than so many batches loses its row; 0: never
  std::uint32_t time_to_live = 0;

  TESSERA_HOST_DEVICE bool admits(const SeenKey& seen) const {
    return seen.count >= admit_after &&
           (admit_probability >= 1 || seen.chance() < admit_probability);
  }
  TESSERA_HOST_DEVICE std::uint32_t score(const SeenKey& seen) const {
    if (time_to_live > 0 && seen.now - seen.step > time_to_live) return 0;
    return eviction == Eviction::least_frequent ? seen.count
           : eviction == Eviction::oldest       ? seen.step
                                                : 1;
  }
};
static_assert(AdmissionPolicy<VocabularyTable> && EvictionPolicy<VocabularyTable>);

/// Adds nothing to what a table's options say.
struct NoPolicy {};

/// What decides about a table's keys: the user's own policy, and the table's options for what that
/// does not say.
template <class Own>
struct KeyPolicy {
  static_assert(std::is_same_v<Own, NoPolicy> || AdmissionPolicy<Own> || EvictionPolicy<Own>,
                "Vocabulary: a policy needs bool admits(const SeenKey&) const or std::uint32_t "
                "score(const SeenKey&) const, and must be trivially copyable "
                "(docs/concepts/vocabulary.md)");
  VocabularyTable table;
  [[no_unique_address]] Own own;

  TESSERA_HOST_DEVICE bool admits(const SeenKey& seen) const {
    if constexpr (AdmissionPolicy<Own>)
      return own.admits(seen);
    else
      return table.admits(seen);
  }
  TESSERA_HOST_DEVICE std::uint32_t score(const SeenKey& seen) const {
    if constexpr (EvictionPolicy<Own>)
      return own.score(seen);
    else
      return table.score(seen);
  }
  /// Returns whether a key keeps at least its score as long as it has its row: then a full block
  /// need not be searched again for each newcomer.
  bool steady() const {
    if constexpr (requires { Own::scores_never_fall; })
      return Own::scores_never_fall;
    else
      return !EvictionPolicy<Own> && table.time_to_live == 0;
  }
};

/// Where scores may fall, keys of score 0 are searched for in every batch whose number this
/// divides, whether rows are needed or not.
inline constexpr std::uint32_t kVocabularySweep = 64;

}  // namespace detail

class Host;

/// Maps raw keys to rows of tables on a backend: vocabulary/vocabulary.hpp has that of Host,
/// vocabulary/vocabulary.cuh that of Cuda.
template <class Comm, class Backend = Host, class Own = detail::NoPolicy>
class Vocabulary;

/// The tables of a Vocabulary, and who gets and keeps their rows.
struct VocabularyOptions {
  std::vector<detail::VocabularyTable> tables{};
  /// whose keys each feature holds; empty: feature i has table i
  std::vector<int> feature_table{};
  std::uint64_t seed = 0;  ///< of the hash that gives keys to blocks of rows
  /// `evicted` and `given` say after each batch which keys lost and got rows
  bool report_keys = false;
};

template <class Comm>
Vocabulary(Comm&, VocabularyOptions) -> Vocabulary<Comm, Host>;
template <class Comm, class Backend>
Vocabulary(Comm&, const Backend&, VocabularyOptions) -> Vocabulary<Comm, Backend>;
template <class Comm, class Own>
Vocabulary(Comm&, VocabularyOptions, std::vector<Own>) -> Vocabulary<Comm, Host, Own>;
template <class Comm, class Backend, class Own>
Vocabulary(Comm&, const Backend&, VocabularyOptions, std::vector<Own>)
    -> Vocabulary<Comm, Backend, Own>;

namespace detail {

/// A row that now has another key than before: its weights and state belong to the old one.
struct ReusedRow {
  std::int64_t table = 0;
  std::int64_t row = 0;
  friend auto operator<=>(const ReusedRow&, const ReusedRow&) = default;
  friend bool operator==(const ReusedRow&, const ReusedRow&) = default;
};

/// A key that lost or got a row.
struct KeyRow {
  std::int64_t table = 0;
  std::int64_t row = 0;
  std::int64_t key = 0;
  friend auto operator<=>(const KeyRow&, const KeyRow&) = default;
  friend bool operator==(const KeyRow&, const KeyRow&) = default;
};

/// The rows of a batch, or of a rank's part of it: those that now have another key than before, and
/// if they are asked for the keys that lost rows and those that got some.
struct VocabularyChanges {
  std::vector<ReusedRow> reused;
  std::vector<KeyRow> evicted, given;
  void clear() {
    reused.clear();
    evicted.clear();
    given.clear();
  }
  void add(const VocabularyChanges& more) {
    reused.insert(reused.end(), more.reused.begin(), more.reused.end());
    evicted.insert(evicted.end(), more.evicted.begin(), more.evicted.end());
    given.insert(given.end(), more.given.begin(), more.given.end());
  }
};

/// What a vocabulary knows of some keys. A key that has no row has row -1. As plain arrays, to be
/// saved.
struct VocabularyRecords {
  std::vector<std::int64_t> keys;  ///< of one rank, in ascending order
  std::vector<std::int64_t> rows;  ///< parallel to keys, as the next two
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> steps;  ///< when the key was last seen
  /// per block of the table: how many of its rows were ever given out; -1: not known here
  std::vector<std::int64_t> used;
};

/// Returns the last step of records, or 0.
inline std::int64_t last_vocabulary_step(std::span<const VocabularyRecords> parts) {
  std::int64_t last = 0;
  for (const VocabularyRecords& part : parts)
    for (const std::int64_t step : part.steps) last = std::max(last, step);
  return last;
}
/// Throws InvalidArgument unless a vocabulary whose keys were last seen in step `last` can go on
/// behind `step`.
inline void require_vocabulary_step(std::int64_t step, std::int64_t last) {
  require(step >= last && step <= std::numeric_limits<std::uint32_t>::max(),
          "Vocabulary: step {} cannot be set: a key was seen in step {}, and 2^32-1 batches are "
          "the most",
          step, last);
}

/// A block of any size counts so many keys without a row before it forgets some.
inline constexpr std::int64_t kLeastVocabularyCandidates = 1024;

}  // namespace detail

/// Returns the key of a text.
constexpr std::int64_t vocabulary_key(std::string_view text) {
  return static_cast<std::int64_t>(detail::name_key(text));
}

namespace detail {

/// Returns which of a table's blocks a key belongs to: by the upper half of its hash.
TESSERA_HOST_DEVICE constexpr std::int64_t vocabulary_block(std::uint64_t seed, std::int64_t blocks,
                                                            std::int64_t key) {
  const std::uint64_t hash = mix64(static_cast<std::uint64_t>(key) ^ seed);
  return static_cast<std::int64_t>(((hash >> 32) * static_cast<std::uint64_t>(blocks)) >> 32);
}

/// Returns a seed that cannot be known, of the hash that places keys in memory: so keys cannot be
/// chosen to collide. No answer depends on it.
inline std::uint64_t secret_vocabulary_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

/// How the rows of a vocabulary's tables are cut into blocks, and which rank decides about each.
/// The same for every backend.
struct VocabularyLayout {
  struct Table {
    std::uint64_t seed;
    std::int64_t blocks;
    std::vector<std::int64_t> begin;  ///< first row of each block, and the end
    std::vector<int> owner;           ///< rank of each block
    std::vector<int> local;           ///< index in own, or -1
  };
  struct Block {
    std::int64_t table;
    std::int64_t begin;  ///< first row
    std::int64_t rows;
  };

  VocabularyOptions options;
  std::vector<Table> tables;
  std::vector<Block> own;  ///< this rank's, table by table

  /// Throws InvalidArgument for tables without a row besides the shared one.
  VocabularyLayout(VocabularyOptions given, int ranks, int rank) : options(std::move(given)) {
    if (options.feature_table.empty()) {
      options.feature_table.resize(options.tables.size());
      std::iota(options.feature_table.begin(), options.feature_table.end(), 0);
    }
    for (std::size_t t = 0; t < options.tables.size(); ++t) {
      const VocabularyTable& table = options.tables[t];
      require(table.rows >= 2 && table.rows <= std::numeric_limits<std::int32_t>::max() &&
                  table.admit_after >= 1,
              "Vocabulary: table {} has {} rows and admits keys after {} times; it needs 2 .. "
              "2^31-1 rows and at least 1",
              t, table.rows, table.admit_after);
      require(table.admit_probability > 0 && table.admit_probability <= 1,
              "Vocabulary: table {} admits keys with probability {}; give more than 0, at most 1",
              t, table.admit_probability);
      Table made{.seed = random_word(options.seed, t),
                 .blocks = std::clamp<std::int64_t>(table.rows / 4096, 1, 256),
                 .begin = {},
                 .owner = {},
                 .local = {}};
      for (std::int64_t b = 0; b <= made.blocks; ++b)
        made.begin.push_back(1 + (table.rows - 1) * b / made.blocks);
      for (std::int64_t b = 0; b < made.blocks; ++b) {
        made.owner.push_back(
            static_cast<int>((b * ranks / made.blocks + static_cast<std::int64_t>(t)) % ranks));
        made.local.push_back(made.owner.back() == rank ? static_cast<int>(own.size()) : -1);
        if (made.local.back() < 0) continue;
        const std::int64_t begin = made.begin[static_cast<std::size_t>(b)];
        own.push_back({static_cast<std::int64_t>(t), begin,
                       made.begin[static_cast<std::size_t>(b) + 1] - begin});
      }
      tables.push_back(std::move(made));
    }
    for (const int t : options.feature_table)
      require(t >= 0 && t < std::ssize(tables), "Vocabulary: a feature reads table {} of {}", t,
              tables.size());
  }

  static std::size_t block_of(const Table& table, std::int64_t key) {
    return table.blocks == 1
               ? 0
               : static_cast<std::size_t>(vocabulary_block(table.seed, table.blocks, key));
  }
  const Table& table_of(std::size_t feature) const {
    return tables[static_cast<std::size_t>(options.feature_table[feature])];
  }

  /// Returns, of records that any ranks exported, in any order, joined or not, those that this rank
  /// decides about, keys ascending. Throws InvalidArgument for records of another table or with
  /// other options, and for what no vocabulary holds.
  VocabularyRecords own_records(int t, std::span<const VocabularyRecords> parts) const {
    const Table& table = tables.at(static_cast<std::size_t>(t));
    const std::size_t blocks = table.local.size();
    std::vector<std::pair<const VocabularyRecords*, std::size_t>> found;
    VocabularyRecords own_part;
    own_part.used.assign(blocks, -1);
    for (const VocabularyRecords& part : parts) {
      const std::size_t n = part.keys.size();
      require(part.rows.size() == n && part.counts.size() == n && part.steps.size() == n &&
                  !part.used.empty() && part.used.size() % blocks == 0,
              "Vocabulary: the records of table {} have {} keys, {} rows, {} counts, {} steps and "
              "{} blocks; this table has {} blocks",
              t, n, part.rows.size(), part.counts.size(), part.steps.size(), part.used.size(),
              blocks);
      // Where parts were joined, their lists of blocks are one after another.
      for (std::size_t i = 0; i < part.used.size(); ++i)
        own_part.used[i % blocks] = std::max(own_part.used[i % blocks], part.used[i]);
      for (std::size_t i = 0; i < n; ++i)
        if (check(t, table, part, i)) found.emplace_back(&part, i);
    }
    for (std::size_t b = 0; b < blocks; ++b) {
      if (table.local[b] < 0) continue;
      const std::int64_t rows = table.begin[b + 1] - table.begin[b], used = own_part.used[b];
      require(used >= 0 && used <= rows,
              "Vocabulary: {} of {} rows of block {} of table {} cannot have been used; give "
              "records of all ranks",
              used, rows, b, t);
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.first->keys[a.second] < b.first->keys[b.second];
    });
    std::vector<bool> taken(static_cast<std::size_t>(table.begin.back()));
    for (const auto& [part, i] : found) {
      const std::int64_t key = part->keys[i], row = part->rows[i];
      require(own_part.keys.empty() || own_part.keys.back() != key,
              "Vocabulary: key {} of table {} is there twice", key, t);
      if (row >= 0) {
        const std::size_t b = block_of(table, key);
        require(row - table.begin[b] < own_part.used[b] && !taken[static_cast<std::size_t>(row)],
                "Vocabulary: row {} of table {} belongs to two keys, or was never used", row, t);
        taken[static_cast<std::size_t>(row)] = true;
      }
      own_part.keys.push_back(key);
      own_part.rows.push_back(row);
      own_part.counts.push_back(part->counts[i]);
      own_part.steps.push_back(part->steps[i]);
    }
    return own_part;
  }

  /// Gives the keys of a table of any rows and seed rows of table t: those that they have, where
  /// their blocks allow it, else free ones, keys seen most first. A key whose block is full is
  /// counted without a row. Returns records for `own_records`, and for each row of the table the
  /// one that its key had, -1: none. Throws InvalidArgument for records that do not fit together.
  std::pair<VocabularyRecords, std::vector<std::int64_t>> place(int t,
                                                                VocabularyRecords records) const {
    const Table& table = tables.at(static_cast<std::size_t>(t));
    const std::size_t n = records.keys.size();
    require(records.rows.size() == n && records.counts.size() == n && records.steps.size() == n,
            "Vocabulary: records of {} keys, {} rows, {} counts and {} steps", n,
            records.rows.size(), records.counts.size(), records.steps.size());
    std::vector<std::int64_t> from(static_cast<std::size_t>(table.begin.back()), -1);
    from[0] = 0;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < n; ++i)
      if (records.rows[i] >= 0) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::tuple(-records.counts[a], records.keys[a]) <
             std::tuple(-records.counts[b], records.keys[b]);
    });
    std::vector<std::int64_t> room;
    for (std::size_t b = 0; b + 1 < table.begin.size(); ++b)
      room.push_back(table.begin[b + 1] - table.begin[b]);
    std::erase_if(order, [&](std::size_t i) {
      const bool full = room[block_of(table, records.keys[i])]-- <= 0;
      if (full) records.rows[i] = -1;
      return full;
    });
    std::erase_if(order, [&](std::size_t i) {
      const std::size_t b = block_of(table, records.keys[i]);
      const std::int64_t row = records.rows[i];
      if (row < table.begin[b] || row >= table.begin[b + 1]) return false;
      std::int64_t& source = from[static_cast<std::size_t>(row)];
      return std::exchange(source, row) < 0;
    });
    std::vector<std::int64_t> next(table.begin.begin(), std::prev(table.begin.end()));
    for (const std::size_t i : order) {
      const std::size_t b = block_of(table, records.keys[i]);
      while (from[static_cast<std::size_t>(next[b])] >= 0) ++next[b];
      from[static_cast<std::size_t>(next[b])] = records.rows[i];
      records.rows[i] = next[b];
    }
    records.used.assign(next.size(), 0);
    for (std::size_t b = 0; b < next.size(); ++b)
      for (std::int64_t row = table.begin[b]; row < table.begin[b + 1]; ++row)
        if (from[static_cast<std::size_t>(row)] >= 0) records.used[b] = row + 1 - table.begin[b];
    return {std::move(records), std::move(from)};
  }

 private:
  /// Returns whether record i is this rank's.
  static bool check(int t, const Table& table, const VocabularyRecords& part, std::size_t i) {
    constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
    const std::int64_t key = part.keys[i], row = part.rows[i], count = part.counts[i],
                       step = part.steps[i];
    const std::size_t b = block_of(table, key);
    require(row == -1 || (row >= table.begin[b] && row < table.begin[b + 1]),
            "Vocabulary: key {} of table {} cannot have row {}: the records are of another table, "
            "or of other rows or seed",
            key, t, row);
    require(count >= 1 && count <= most && step >= 0 && step <= most,
            "Vocabulary: key {} of table {} cannot have count {} and step {}", key, t, count, step);
    return table.local[b] >= 0;
  }
};

/// Gathers all ranks' rows, ascending. Collective.
template <class Comm, class Row>
void gather_rows(Comm& communicator, std::span<const Row> own, std::vector<Row>& all) {
  const std::size_t ranks = static_cast<std::size_t>(communicator.size()), count = own.size();
  std::vector<std::size_t> counts(ranks);
  communicator.all_gather(std::span<const std::size_t>(&count, 1), std::span<std::size_t>(counts),
                          std::vector<std::size_t>(ranks, 1));
  all.resize(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  if (all.empty()) return;
  communicator.all_gather(own, std::span<Row>(all), counts);
  std::sort(all.begin(), all.end());
}
template <class Comm>
void gather_changes(Comm& communicator, const VocabularyChanges& own, bool report_keys,
                    VocabularyChanges& all) {
  gather_rows<Comm, ReusedRow>(communicator, own.reused, all.reused);
  if (!report_keys) return;
  gather_rows<Comm, KeyRow>(communicator, own.evicted, all.evicted);
  gather_rows<Comm, KeyRow>(communicator, own.given, all.given);
}

/// Returns the policy of each table. Throws InvalidArgument unless there are none, or one each.
template <class Own>
std::vector<KeyPolicy<Own>> key_policies(const VocabularyOptions& options,
                                         std::span<const Own> own) {
  require(own.size() == options.tables.size(),
          "Vocabulary: {} policies for {} tables; give one for each", own.size(),
          options.tables.size());
  std::vector<KeyPolicy<Own>> policies;
  for (std::size_t t = 0; t < own.size(); ++t) policies.push_back({options.tables[t], own[t]});
  return policies;
}

}  // namespace detail

}}  // namespace tessera::v0
