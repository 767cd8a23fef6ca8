// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/random.hpp>
#include <tessera/table/vocabulary_block.hpp>

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// The keys of one table.
struct VocabularyTable {
  std::int64_t rows = 0;          ///< of the table. Row 0 is shared by all keys that have no row of their own
  std::uint32_t admit_after = 1;  ///< a key gets its row in the batch in which it is seen for this time, counted over all batches
  Eviction eviction = Eviction::least_frequent;
};

struct VocabularyOptions {
  std::vector<VocabularyTable> tables;
  std::vector<int> feature_table;  ///< whose keys each feature holds; empty: feature i has table i
  std::uint64_t seed = 0;          ///< of the hashes: against keys that were chosen to collide
  int threads = 1;                 ///< of each rank
};

/// A row that now stands for another key than before: its weights and state belong to the old one.
struct ReusedRow {
  std::int64_t table = 0;
  std::int64_t row = 0;
  friend auto operator<=>(const ReusedRow&, const ReusedRow&) = default;
};

/// The key of a text.
constexpr std::int64_t vocabulary_key(std::string_view text) { return static_cast<std::int64_t>(name_key(text)); }

/// Maps raw 64-bit keys to rows of tables while it sees them, consistently over ranks. One object per rank; every rank makes the same
/// calls in the same order.
///
/// A table's rows but the first are cut into blocks; a key's hash says which block it belongs to, and each block has one rank that
/// decides alone. Blocks depend on the number of rows, not on ranks or threads, and see keys in the order (feature, global sample,
/// position): so, given the same global batches, every key has the same row for any number of ranks and threads.
template <class Comm>
class Vocabulary {
 public:
  static constexpr std::int64_t kSharedRow = 0;

  /// Throws InvalidArgument for tables without a row besides the shared one.
  Vocabulary(Comm& communicator, VocabularyOptions options) : communicator_(communicator), options_(std::move(options)) {
    if (options_.feature_table.empty()) {
      options_.feature_table.resize(options_.tables.size());
      std::iota(options_.feature_table.begin(), options_.feature_table.end(), 0);
    }
    const std::int64_t ranks = communicator_.size();
    for (std::size_t t = 0; t < options_.tables.size(); ++t) {
      const VocabularyTable& table = options_.tables[t];
      require(table.rows >= 2 && table.rows <= std::numeric_limits<std::int32_t>::max() && table.admit_after >= 1,
              "Vocabulary: table {} has {} rows and admits keys after {} times; it needs 2 .. 2^31-1 rows and at least 1", t, table.rows,
              table.admit_after);
      Table made{.seed = random_word(options_.seed, t),
                 .blocks = std::clamp<std::int64_t>(table.rows / 4096, 1, 256),
                 .begin = {},
                 .owner = {},
                 .local = {}};
      for (std::int64_t b = 0; b <= made.blocks; ++b) made.begin.push_back(1 + (table.rows - 1) * b / made.blocks);
      for (std::int64_t b = 0; b < made.blocks; ++b) {
        made.owner.push_back(static_cast<int>((b * ranks / made.blocks + static_cast<std::int64_t>(t)) % ranks));
        made.local.push_back(-1);
        if (made.owner.back() != communicator_.rank()) continue;
        made.local.back() = static_cast<int>(own_.size());
        own_.push_back({static_cast<std::int64_t>(t),
                        made.begin[static_cast<std::size_t>(b)],
                        new_block(table, made, static_cast<std::size_t>(b)),
                        {},
                        nullptr});
      }
      tables_.push_back(std::move(made));
    }
    for (const int t : options_.feature_table)
      require(t >= 0 && t < std::ssize(tables_), "Vocabulary: a feature reads table {} of {}", t, tables_.size());
  }
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// One training batch: counts the keys of all ranks, admits and evicts, and answers the row of each of this rank's keys (`rows`, parallel
  /// to keys.ids). Returns the rows that changed hands, the same on every rank, ascending, valid until the next call: the caller gives
  /// them first values before it looks up this batch, and after it has updated what it looked up before. Collective.
  template <IdType Id>
  std::span<const ReusedRow> learn(const KeyedJagged<std::int64_t>& keys, std::span<Id> rows) {
    require(step_ < std::numeric_limits<std::uint32_t>::max(), "Vocabulary: 2^32-1 batches are the most");
    ++step_;
    translate(keys, rows, [this](OwnBlock& block, std::span<const std::int64_t> of_block, std::span<std::int32_t> answers) {
      block.reused.clear();
      block.keys.learn(of_block, static_cast<std::uint32_t>(step_), answers, block.reused);
    });
    gather_reused();
    return reused_;
  }

  /// The rows of known keys, the shared row for all others. Changes nothing. Collective.
  template <IdType Id>
  void find(const KeyedJagged<std::int64_t>& keys, std::span<Id> rows) {
    translate(keys, rows, [](OwnBlock& block, std::span<const std::int64_t> of_block, std::span<std::int32_t> answers) {
      block.keys.find(of_block, answers);
    });
  }

  int tables() const { return static_cast<int>(tables_.size()); }
  /// Batches learned.
  std::int64_t step() const { return step_; }
  void set_step(std::int64_t step) { step_ = step; }
  /// Keys with a row of their own, and keys counted without one, among those that this rank decides about.
  std::int64_t admitted(int table) const { return count(table, &VocabularyBlock::admitted); }
  std::int64_t candidates(int table) const { return count(table, &VocabularyBlock::candidates); }

  /// What this rank knows of a table. All ranks' records together are the whole, whatever the number of ranks.
  VocabularyRecords export_records(int table) const {
    struct Record {
      std::int64_t key, row, count, step;
    };
    std::vector<Record> all;
    VocabularyRecords records;
    const Table& of_table = tables_.at(static_cast<std::size_t>(table));
    for (std::size_t b = 0; b < of_table.local.size(); ++b) {
      records.used.push_back(-1);
      if (of_table.local[b] < 0) continue;
      const OwnBlock& block = own_[static_cast<std::size_t>(of_table.local[b])];
      records.used.back() = block.keys.used_rows();
      block.keys.for_each([&](std::int64_t key, std::int64_t row, std::int64_t count, std::int64_t step) {
        all.push_back({key, row < 0 ? -1 : block.begin + row, count, step});
      });
    }
    std::sort(all.begin(), all.end(), [](const Record& a, const Record& b) { return a.key < b.key; });
    for (const Record& r : all) {
      records.keys.push_back(r.key);
      records.rows.push_back(r.row);
      records.counts.push_back(r.count);
      records.steps.push_back(r.step);
    }
    return records;
  }

  /// Replaces what is known of a table by records that any ranks exported, in any order, joined or not; takes those that this rank decides
  /// about. Throws InvalidArgument for records of another table or with other options, and then leaves the table as it was.
  void import_records(int table, std::span<const VocabularyRecords> parts) {
    const Table& of_table = tables_.at(static_cast<std::size_t>(table));
    std::vector<VocabularyBlock> made;
    std::vector<std::int64_t> used(of_table.local.size(), -1);
    for (std::size_t b = 0; b < of_table.local.size(); ++b)
      if (of_table.local[b] >= 0) made.push_back(new_block(options_.tables[static_cast<std::size_t>(table)], of_table, b));
    for (const VocabularyRecords& part : parts) {
      const std::size_t n = part.keys.size();
      require(part.rows.size() == n && part.counts.size() == n && part.steps.size() == n && !part.used.empty() &&
                  part.used.size() % used.size() == 0,
              "Vocabulary: the records of table {} have {} keys, {} rows, {} counts, {} steps and {} blocks; this table has {} blocks",
              table, n, part.rows.size(), part.counts.size(), part.steps.size(), part.used.size(), used.size());
      // Where parts were joined, their lists of blocks stand one after another.
      for (std::size_t i = 0; i < part.used.size(); ++i) used[i % used.size()] = std::max(used[i % used.size()], part.used[i]);
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t b = block_of(of_table, part.keys[i]);
        const bool inside = part.rows[i] == -1 || (part.rows[i] >= of_table.begin[b] && part.rows[i] < of_table.begin[b + 1]);
        require(inside, "Vocabulary: key {} of table {} cannot have row {}: the records are of another table, or of other rows or seed",
                part.keys[i], table, part.rows[i]);
        if (of_table.local[b] < 0) continue;
        made[nth_own(of_table, b)].restore(part.keys[i], part.rows[i] == -1 ? -1 : part.rows[i] - of_table.begin[b], part.counts[i],
                                           part.steps[i]);
      }
    }
    for (std::size_t b = 0; b < used.size(); ++b)
      if (of_table.local[b] >= 0) {
        require(used[b] >= 0, "Vocabulary: the records of table {} lack block {}: give those of all ranks", table, b);
        made[nth_own(of_table, b)].finish(used[b]);
      }
    for (std::size_t b = 0; b < used.size(); ++b)
      if (of_table.local[b] >= 0) own_[static_cast<std::size_t>(of_table.local[b])].keys = std::move(made[nth_own(of_table, b)]);
  }

 private:
  struct Table {
    std::uint64_t seed;
    std::int64_t blocks;
    std::vector<std::int64_t> begin;  // first row of each block, and the end
    std::vector<int> owner;           // rank of each block
    std::vector<int> local;           // index in own_, or -1
  };

  struct OwnBlock {
    std::int64_t table;
    std::int64_t begin;  // first row
    VocabularyBlock keys;
    std::vector<std::int64_t> reused;
    std::exception_ptr error;
  };

  static VocabularyBlock new_block(const VocabularyTable& table, const Table& made, std::size_t b) {
    return VocabularyBlock(made.begin[b + 1] - made.begin[b], table.admit_after, table.eviction, made.seed);
  }

  /// By the upper half of the hash; the lower half places the key within the block.
  static std::size_t block_of(const Table& table, std::int64_t key) {
    if (table.blocks == 1) return 0;
    const std::uint64_t hash = mix64(static_cast<std::uint64_t>(key) ^ table.seed);
    return static_cast<std::size_t>(((hash >> 32) * static_cast<std::uint64_t>(table.blocks)) >> 32);
  }

  /// Own blocks of a table stand one after another.
  static std::size_t nth_own(const Table& table, std::size_t b) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < b; ++i) n += table.local[i] >= 0;
    return n;
  }

  std::int64_t count(int table, std::int64_t (VocabularyBlock::*of)() const) const {
    std::int64_t sum = 0;
    for (const OwnBlock& block : own_)
      if (block.table == table) sum += (block.keys.*of)();
    return sum;
  }

  template <class F>
  void exchange(std::span<const F> send, std::span<const std::size_t> send_counts, std::vector<F>& receive,
                std::span<const std::size_t> receive_counts) {
    receive.resize(std::accumulate(receive_counts.begin(), receive_counts.end(), std::size_t{0}));
    communicator_.all_to_all(send, send_counts, std::span<F>(receive), receive_counts);
  }

  /// Keys go to the ranks that decide about them, by feature and sample; rows come back.
  template <IdType Id, class Answer>
  void translate(const KeyedJagged<std::int64_t>& keys, std::span<Id> rows, const Answer& answer) {
    const std::size_t ranks = static_cast<std::size_t>(communicator_.size()), features = options_.feature_table.size();
    require(keys.features == static_cast<std::int64_t>(features) && rows.size() == keys.ids.size(),
            "Vocabulary: a batch of {} features with {} keys, room for {} rows; it knows {} features", keys.features, keys.ids.size(),
            rows.size(), features);
    keys.validate();
    for (const int t : options_.feature_table)
      require(options_.tables[static_cast<std::size_t>(t)].rows - 1 <= std::numeric_limits<Id>::max(), "Vocabulary: rows need 64-bit ids");

    // Who decides about each key, and how many keys of each feature go to each rank.
    owners_.resize(keys.ids.size());
    counts_out_.assign(ranks * features, 0);
    for (std::size_t f = 0; f < features; ++f) {
      const Table& table = table_of(f);
      for (auto i = static_cast<std::size_t>(keys.begin(static_cast<std::int64_t>(f)));
           i < static_cast<std::size_t>(keys.end(static_cast<std::int64_t>(f))); ++i) {
        owners_[i] = table.owner[block_of(table, keys.ids[i])];
        ++counts_out_[static_cast<std::size_t>(owners_[i]) * features + f];
      }
    }
    send_counts_.assign(ranks, features);
    exchange<std::size_t>(counts_out_, send_counts_, counts_in_, send_counts_);
    receive_counts_.assign(ranks, 0);
    std::vector<std::size_t>& at = cursor_;
    at.assign(ranks, 0);
    std::size_t total = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      at[r] = total;
      send_counts_[r] = std::accumulate(counts_out_.begin() + static_cast<std::ptrdiff_t>(r * features),
                                        counts_out_.begin() + static_cast<std::ptrdiff_t>((r + 1) * features), std::size_t{0});
      receive_counts_[r] = std::accumulate(counts_in_.begin() + static_cast<std::ptrdiff_t>(r * features),
                                           counts_in_.begin() + static_cast<std::ptrdiff_t>((r + 1) * features), std::size_t{0});
      total += send_counts_[r];
    }
    keys_out_.resize(total);
    places_.resize(total);
    for (std::size_t i = 0; i < total; ++i) {
      places_[i] = at[static_cast<std::size_t>(owners_[i])]++;
      keys_out_[places_[i]] = keys.ids[i];
    }
    exchange<std::int64_t>(keys_out_, send_counts_, keys_in_, receive_counts_);
    decide(answer);
    exchange<std::int32_t>(rows_out_, receive_counts_, rows_in_, send_counts_);
    for (std::size_t i = 0; i < total; ++i) rows[i] = static_cast<Id>(rows_in_[places_[i]]);
  }

  const Table& table_of(std::size_t feature) const { return tables_[static_cast<std::size_t>(options_.feature_table[feature])]; }

  /// Sorts the keys that arrived by block, in the order (feature, rank, sample), and lets threads decide block by block.
  template <class Answer>
  void decide(const Answer& answer) {
    const std::size_t ranks = receive_counts_.size(), features = options_.feature_table.size();
    block_begin_.assign(own_.size() + 1, 0);
    blocks_.resize(keys_in_.size());
    rows_out_.resize(keys_in_.size());
    const auto for_each_key = [&](auto&& visit) {
      cursor_.assign(ranks, 0);
      for (std::size_t r = 1; r < ranks; ++r) cursor_[r] = cursor_[r - 1] + receive_counts_[r - 1];
      for (std::size_t f = 0; f < features; ++f)
        for (std::size_t r = 0; r < ranks; ++r)
          for (const std::size_t end = cursor_[r] + counts_in_[r * features + f]; cursor_[r] < end; ++cursor_[r]) visit(f, cursor_[r]);
    };
    for_each_key([&](std::size_t f, std::size_t i) {
      const Table& table = table_of(f);
      blocks_[i] = table.local[block_of(table, keys_in_[i])];
      ++block_begin_[static_cast<std::size_t>(blocks_[i]) + 1];
    });
    for (std::size_t b = 0; b < own_.size(); ++b) block_begin_[b + 1] += block_begin_[b];
    sorted_.resize(keys_in_.size());
    sources_.resize(keys_in_.size());
    answers_.resize(keys_in_.size());
    block_at_.assign(block_begin_.begin(), block_begin_.end() - 1);
    for_each_key([&](std::size_t, std::size_t i) {
      const std::size_t to = block_at_[static_cast<std::size_t>(blocks_[i])]++;
      sorted_[to] = keys_in_[i];
      sources_[to] = i;
    });
    const std::int64_t blocks = std::ssize(own_);
    const auto decide_block = [&](std::int64_t b) {
      OwnBlock& block = own_[static_cast<std::size_t>(b)];
      const std::size_t begin = block_begin_[static_cast<std::size_t>(b)], size = block_begin_[static_cast<std::size_t>(b) + 1] - begin;
      block.reused.clear();
      if (size == 0) return;
      try {
        answer(block, {sorted_.data() + begin, size}, {answers_.data() + begin, size});
        for (std::size_t i = begin; i < begin + size; ++i)
          rows_out_[sources_[i]] = answers_[i] < 0 ? std::int32_t{kSharedRow} : static_cast<std::int32_t>(block.begin + answers_[i]);
      } catch (...) {
        block.error = std::current_exception();  // must not leave a thread
      }
    };
    if (options_.threads > 1) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(options_.threads)
      for (std::int64_t b = 0; b < blocks; ++b) decide_block(b);
    } else {
      for (std::int64_t b = 0; b < blocks; ++b) decide_block(b);
    }
    for (OwnBlock& block : own_)
      if (block.error) std::rethrow_exception(std::exchange(block.error, nullptr));
  }

  void gather_reused() {
    own_reused_.clear();
    for (const OwnBlock& block : own_)
      for (const std::int64_t row : block.reused) own_reused_.push_back({block.table, block.begin + row});
    const std::size_t ranks = static_cast<std::size_t>(communicator_.size()), own = own_reused_.size();
    receive_counts_.resize(ranks);
    communicator_.all_gather(std::span<const std::size_t>(&own, 1), std::span<std::size_t>(receive_counts_),
                             std::vector<std::size_t>(ranks, 1));
    reused_.resize(std::accumulate(receive_counts_.begin(), receive_counts_.end(), std::size_t{0}));
    if (reused_.empty()) return;
    communicator_.all_gather(std::span<const ReusedRow>(own_reused_), std::span<ReusedRow>(reused_), receive_counts_);
    std::sort(reused_.begin(), reused_.end());
  }

  Comm& communicator_;
  VocabularyOptions options_;
  std::vector<Table> tables_;
  std::vector<OwnBlock> own_;
  std::int64_t step_ = 0;

  // Memory of a call, kept.
  std::vector<int> owners_;
  std::vector<std::size_t> counts_out_, counts_in_;  // by rank, feature
  std::vector<std::size_t> send_counts_, receive_counts_, cursor_;
  std::vector<std::int64_t> keys_out_, keys_in_;
  std::vector<std::size_t> places_;  // of this rank's keys in keys_out_
  std::vector<std::int32_t> rows_out_, rows_in_;
  std::vector<int> blocks_;                          // of the keys received: index in own_
  std::vector<std::size_t> block_begin_, block_at_;  // by own block: place in the next three
  std::vector<std::int64_t> sorted_;
  std::vector<std::size_t> sources_;
  std::vector<std::int32_t> answers_;
  std::vector<ReusedRow> own_reused_, reused_;
};

}  // namespace tessera::inline v0
