// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/vocabulary/block.hpp>
#include <tessera/vocabulary/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Maps raw 64-bit keys to rows of tables while it sees them, consistently over ranks. One object
/// per rank; every rank makes the same calls in the same order.
///
/// A table's rows but the first are cut into blocks; a key's hash says which block it belongs to,
/// and each block has one rank that decides alone. Blocks depend on the number of rows, not on
/// ranks or threads, and see keys in the order (feature, global sample, position): so, given the
/// same global batches, every key has the same row for any number of ranks and threads.
///
///     Vocabulary vocabulary(communicator, {.tables = {{.rows = 1'000'000, .admit_after = 5}}});
///     for (const auto& [table, row] : vocabulary.learn(keys, std::span(rows)))
///       embeddings.reset_rows(static_cast<int>(table), std::span(&row, 1));
///
/// `Own`: a policy that says in place of the options who gets a row, who loses it, or both.
template <class Comm, class Own>
class Vocabulary<Comm, Host, Own> {
 public:
  static constexpr std::int64_t kSharedRow = 0;

  /// Makes a vocabulary. Blocks are divided over the backend's threads. Throws InvalidArgument for
  /// tables without a row besides the shared one.
  /// `own`: one for each table.
  Vocabulary(Comm& communicator, const Host& backend, VocabularyOptions options,
             std::vector<Own> own)
      : communicator_(communicator),
        threads_(backend.threads()),
        layout_(std::move(options), communicator.size(), communicator.rank()),
        policies_(detail::key_policies<Own>(layout_.options, own)) {
    for (const detail::VocabularyLayout::Block& block : layout_.own)
      own_.push_back({block.table, block.begin, new_block(block), {}, nullptr});
  }
  Vocabulary(Comm& communicator, VocabularyOptions options, std::vector<Own> own)
      : Vocabulary(communicator, Host(), std::move(options), std::move(own)) {}
  Vocabulary(Comm& communicator, const Host& backend, VocabularyOptions options)
    requires std::is_same_v<Own, detail::NoPolicy>
      : Vocabulary(communicator, backend, options, std::vector<Own>(options.tables.size())) {}
  Vocabulary(Comm& communicator, VocabularyOptions options)
    requires std::is_same_v<Own, detail::NoPolicy>
      : Vocabulary(communicator, Host(), std::move(options)) {}
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// Learns one training batch: counts the keys of all ranks, admits and evicts, and returns the
  /// row of each of this rank's keys (`rows`, parallel to keys.ids). Returns the rows that changed
  /// hands, the same on every rank, ascending, valid until the next call: the caller gives them
  /// first values before it looks up this batch, and after it has updated what it looked up before.
  /// Collective.
  template <IdType Id>
  std::span<const detail::ReusedRow> learn(const KeyedJagged<std::int64_t>& keys,
                                           std::span<Id> rows) {
    require(step_ < std::numeric_limits<std::uint32_t>::max(),
            "Vocabulary: 2^32-1 batches are the most");
    const std::int64_t step = step_ + 1;  // what is refused is no step
    const bool report_keys = layout_.options.report_keys;
    const auto learn_keys = [&](OwnBlock& block, std::span<const std::int64_t> of_block,
                                std::span<std::int32_t> answers) {
      block.changes.clear();
      block.keys.learn(of_block, static_cast<std::uint32_t>(step), answers, report_keys,
                       block.changes);
    };
    translate(keys, rows, learn_keys);
    step_ = step;
    own_changes_.clear();
    for (const OwnBlock& block : own_) own_changes_.add(block.changes);
    detail::gather_changes(communicator_, own_changes_, report_keys, changes_);
    return changes_.reused;
  }
  /// Return the keys that lost their rows in the last call of `learn`, and those that got rows, the
  /// same on every rank, ascending by table and row; nothing unless VocabularyOptions::report_keys.
  /// A row that is in both lists goes from one key to the other.
  std::span<const detail::KeyRow> evicted() const { return changes_.evicted; }
  std::span<const detail::KeyRow> given() const { return changes_.given; }
  bool reports_keys() const { return layout_.options.report_keys; }

  /// Finds the rows of known keys, the shared row for all others. Changes nothing. Collective.
  template <IdType Id>
  void find(const KeyedJagged<std::int64_t>& keys, std::span<Id> rows) {
    translate(keys, rows,
              [](OwnBlock& block, std::span<const std::int64_t> of_block,
                 std::span<std::int32_t> answers) { block.keys.find(of_block, answers); });
  }

  int tables() const { return static_cast<int>(layout_.tables.size()); }
  /// Returns the number of batches learned.
  std::int64_t step() const { return step_; }
  /// Continues as after so many batches, on all ranks alike. Throws InvalidArgument for fewer than a
  /// key of this rank was last seen in; then other ranks may have gone on.
  void set_step(std::int64_t step) {
    std::int64_t last = 0;
    for (const OwnBlock& block : own_)
      block.keys.for_each([&](std::int64_t, std::int64_t, std::int64_t, std::int64_t seen) {
        last = std::max(last, seen);
      });
    detail::require_vocabulary_step(step, last);
    step_ = step;
  }
  /// Return the keys with a row of their own, and keys counted without one, among those that this
  /// rank decides about.
  std::int64_t admitted(int table) const {
    return count(table, &detail::VocabularyBlock<Own>::admitted);
  }
  std::int64_t candidates(int table) const {
    return count(table, &detail::VocabularyBlock<Own>::candidates);
  }

  /// Returns what this rank knows of a table. All ranks' records together are the whole, whatever
  /// the number of ranks.
  detail::VocabularyRecords export_records(int table) const {
    struct Record {
      std::int64_t key, row, count, step;
    };
    std::vector<Record> all;
    detail::VocabularyRecords records;
    const detail::VocabularyLayout::Table& of_table =
        layout_.tables.at(static_cast<std::size_t>(table));
    for (std::size_t b = 0; b < of_table.local.size(); ++b) {
      records.used.push_back(-1);
      if (of_table.local[b] < 0) continue;
      const OwnBlock& block = own_[static_cast<std::size_t>(of_table.local[b])];
      records.used.back() = block.keys.used_rows();
      block.keys.for_each(
          [&](std::int64_t key, std::int64_t row, std::int64_t count, std::int64_t step) {
            all.push_back({key, row < 0 ? -1 : block.begin + row, count, step});
          });
    }
    std::sort(all.begin(), all.end(),
              [](const Record& a, const Record& b) { return a.key < b.key; });
    for (const Record& r : all) {
      records.keys.push_back(r.key);
      records.rows.push_back(r.row);
      records.counts.push_back(r.count);
      records.steps.push_back(r.step);
    }
    return records;
  }

  /// Replaces what is known of a table by all records of another one, of any rows and seed. Keys
  /// keep their rows where this table's blocks allow it. Returns for each row of this table the one
  /// that its key had, -1: none. Throws InvalidArgument for what no vocabulary holds.
  std::vector<std::int64_t> adopt_records(int table, detail::VocabularyRecords records) {
    const auto [placed, from] = layout_.place(table, std::move(records));
    import_records(table, std::span(&placed, 1));
    return from;
  }

  /// Returns, of records that any ranks exported, those that this rank decides about: import_records
  /// takes them, too. Throws as that does.
  detail::VocabularyRecords own_records(int table,
                                        std::span<const detail::VocabularyRecords> parts) const {
    return layout_.own_records(table, parts);
  }

  /// Replaces what is known of a table by records that any ranks exported, in any order, joined or
  /// not; takes those that this rank decides about. `step()` becomes at least the last step of the
  /// records. Throws InvalidArgument for records of another table or with other options, and then
  /// leaves the table as it was.
  void import_records(int table, std::span<const detail::VocabularyRecords> parts) {
    const detail::VocabularyRecords records = layout_.own_records(table, parts);
    // a key counts as seen in a batch if that is its step
    step_ = std::max(step_, detail::last_vocabulary_step(parts));
    const detail::VocabularyLayout::Table& of_table =
        layout_.tables[static_cast<std::size_t>(table)];
    for (const int local : of_table.local)
      if (local >= 0)
        own_[static_cast<std::size_t>(local)].keys =
            new_block(layout_.own[static_cast<std::size_t>(local)]);
    for (std::size_t i = 0; i < records.keys.size(); ++i) {
      OwnBlock& block = own_[static_cast<std::size_t>(
          of_table.local[detail::VocabularyLayout::block_of(of_table, records.keys[i])])];
      block.keys.restore(records.keys[i], records.rows[i] < 0 ? -1 : records.rows[i] - block.begin,
                         records.counts[i], records.steps[i]);
    }
    for (std::size_t b = 0; b < of_table.local.size(); ++b)
      if (of_table.local[b] >= 0)
        own_[static_cast<std::size_t>(of_table.local[b])].keys.finish(records.used[b]);
  }

 private:
  struct OwnBlock {
    std::int64_t table;
    std::int64_t begin;  // first row
    detail::VocabularyBlock<Own> keys;
    detail::VocabularyChanges changes;
    std::exception_ptr error;
  };

  detail::VocabularyBlock<Own> new_block(const detail::VocabularyLayout::Block& block) const {
    const auto table = static_cast<std::size_t>(block.table);
    return {block, policies_[table], layout_.tables[table].seed};
  }

  std::int64_t count(int table, std::int64_t (detail::VocabularyBlock<Own>::*of)() const) const {
    std::int64_t sum = 0;
    for (const OwnBlock& block : own_)
      if (block.table == table) sum += (block.keys.*of)();
    return sum;
  }

  template <class F>
  void exchange(std::span<const F> send, std::span<const std::size_t> send_counts,
                std::vector<F>& receive, std::span<const std::size_t> receive_counts) {
    receive.resize(std::accumulate(receive_counts.begin(), receive_counts.end(), std::size_t{0}));
    communicator_.all_to_all(send, send_counts, std::span<F>(receive), receive_counts);
  }

  /// Sends keys to the ranks that decide about them, by feature and sample; rows come back.
  template <IdType Id, class Answer>
  void translate(const KeyedJagged<std::int64_t>& keys, std::span<Id> rows, const Answer& answer) {
    const std::size_t ranks = static_cast<std::size_t>(communicator_.size()),
                      features = layout_.options.feature_table.size();
    require(
        keys.features == static_cast<std::int64_t>(features) && rows.size() == keys.ids.size(),
        "Vocabulary: a batch of {} features with {} keys, room for {} rows; it knows {} features",
        keys.features, keys.ids.size(), rows.size(), features);
    keys.validate();
    for (const int t : layout_.options.feature_table)
      require(layout_.options.tables[static_cast<std::size_t>(t)].rows - 1 <=
                  std::numeric_limits<Id>::max(),
              "Vocabulary: rows need 64-bit ids");

    std::span<const std::int64_t> arrived = keys.ids;
    if (ranks == 1) {
      counts_in_.resize(features);
      for (std::size_t f = 0; f < features; ++f)
        counts_in_[f] = static_cast<std::size_t>(keys.end(static_cast<std::int64_t>(f)) -
                                                 keys.begin(static_cast<std::int64_t>(f)));
      receive_counts_.assign(1, keys.ids.size());
    } else {
      arrived = send(keys);
    }
    decide(arrived, answer);
    if (ranks == 1) {
      std::transform(rows_out_.begin(), rows_out_.end(), rows.begin(),
                     [](std::int32_t row) { return static_cast<Id>(row); });
      return;
    }
    exchange<std::int32_t>(rows_out_, receive_counts_, rows_in_, send_counts_);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<Id>(rows_in_[places_[i]]);
  }

  /// Returns the keys that this rank decides about, by rank and feature.
  std::span<const std::int64_t> send(const KeyedJagged<std::int64_t>& keys) {
    const std::size_t ranks = static_cast<std::size_t>(communicator_.size()),
                      features = layout_.options.feature_table.size();
    // Who decides about each key, and how many keys of each feature go to each rank.
    owners_.resize(keys.ids.size());
    counts_out_.assign(ranks * features, 0);
    for (std::size_t f = 0; f < features; ++f) {
      const detail::VocabularyLayout::Table& table = layout_.table_of(f);
      for (auto i = static_cast<std::size_t>(keys.begin(static_cast<std::int64_t>(f)));
           i < static_cast<std::size_t>(keys.end(static_cast<std::int64_t>(f))); ++i) {
        owners_[i] = table.owner[detail::VocabularyLayout::block_of(table, keys.ids[i])];
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
      send_counts_[r] = std::accumulate(
          counts_out_.begin() + static_cast<std::ptrdiff_t>(r * features),
          counts_out_.begin() + static_cast<std::ptrdiff_t>((r + 1) * features), std::size_t{0});
      receive_counts_[r] = std::accumulate(
          counts_in_.begin() + static_cast<std::ptrdiff_t>(r * features),
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
    return keys_in_;
  }

  /// Sorts the keys that arrived by block, in the order (feature, rank, sample), and lets threads
  /// decide block by block.
  template <class Answer>
  void decide(std::span<const std::int64_t> arrived, const Answer& answer) {
    require(arrived.size() <= std::numeric_limits<std::uint32_t>::max(),
            "Vocabulary: {} keys for one rank; 2^32-1 are the most", arrived.size());
    const std::size_t ranks = receive_counts_.size(),
                      features = layout_.options.feature_table.size();
    block_begin_.assign(own_.size() + 1, 0);
    blocks_.resize(arrived.size());
    rows_out_.resize(arrived.size());
    const auto for_each_key = [&](auto&& visit) {
      cursor_.assign(ranks, 0);
      for (std::size_t r = 1; r < ranks; ++r) cursor_[r] = cursor_[r - 1] + receive_counts_[r - 1];
      for (std::size_t f = 0; f < features; ++f)
        for (std::size_t r = 0; r < ranks; ++r)
          for (const std::size_t end = cursor_[r] + counts_in_[r * features + f]; cursor_[r] < end;
               ++cursor_[r])
            visit(f, cursor_[r]);
    };
    for_each_key([&](std::size_t f, std::size_t i) {
      const detail::VocabularyLayout::Table& table = layout_.table_of(f);
      blocks_[i] = table.local[detail::VocabularyLayout::block_of(table, arrived[i])];
      ++block_begin_[static_cast<std::size_t>(blocks_[i]) + 1];
    });
    for (std::size_t b = 0; b < own_.size(); ++b) block_begin_[b + 1] += block_begin_[b];
    sorted_.resize(arrived.size());
    sources_.resize(arrived.size());
    answers_.resize(arrived.size());
    block_at_.assign(block_begin_.begin(), block_begin_.end() - 1);
    for_each_key([&](std::size_t, std::size_t i) {
      const std::size_t to = block_at_[static_cast<std::size_t>(blocks_[i])]++;
      sorted_[to] = arrived[i];
      sources_[to] = static_cast<std::uint32_t>(i);
    });
    detail::parallel_for(threads_, std::ssize(own_), [&](std::int64_t b, int) {
      OwnBlock& block = own_[static_cast<std::size_t>(b)];
      const std::size_t begin = block_begin_[static_cast<std::size_t>(b)],
                        size = block_begin_[static_cast<std::size_t>(b) + 1] - begin;
      try {
        answer(block, {sorted_.data() + begin, size}, {answers_.data() + begin, size});
        for (std::size_t i = begin; i < begin + size; ++i)
          rows_out_[sources_[i]] = answers_[i] < 0
                                       ? std::int32_t{kSharedRow}
                                       : static_cast<std::int32_t>(block.begin + answers_[i]);
      } catch (...) {
        block.error = std::current_exception();  // must not leave a thread
      }
    });
    std::exception_ptr first;
    for (OwnBlock& block : own_)
      if (std::exception_ptr error = std::exchange(block.error, nullptr); error && !first)
        first = std::move(error);
    if (first) std::rethrow_exception(first);
  }

  Comm& communicator_;
  int threads_;
  detail::VocabularyLayout layout_;
  std::vector<detail::KeyPolicy<Own>> policies_;  // by table
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
  std::vector<std::uint32_t> sources_;
  std::vector<std::int32_t> answers_;
  detail::VocabularyChanges own_changes_, changes_;
};

}}  // namespace tessera::v0
