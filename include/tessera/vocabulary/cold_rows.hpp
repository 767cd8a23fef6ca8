// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/any_matrix.hpp>
#include <tessera/core/error.hpp>
#include <tessera/vocabulary/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Keeps the vectors and optimizer states of keys that lost their rows of a vocabulary, and gives
/// them back with the keys' next rows: a tier in host memory, of every rank for what it held. Takes
/// the place of reset_rows.
///
///     Vocabulary vocabulary(communicator, {.tables = {{.rows = 1'000'000}}, .report_keys = true});
///     ColdRows cold;
///     vocabulary.learn(keys, std::span(rows));
///     cold.exchange(communicator, vocabulary, embeddings);
class ColdRows {
 public:
  /// Keeps `most` keys, those that lost their rows last.
  explicit ColdRows(std::int64_t most = std::numeric_limits<std::int64_t>::max()) : most_(most) {
    require(most > 0, "ColdRows: {} keys are the most; give at least 1", most);
  }

  /// Takes what the keys had that lost their rows in the last `learn`, lets the rows that other
  /// keys have now start anew, and gives keys that were here their vectors and states back: the
  /// time for it is that of reset_rows. Flushes caches. Collective. Throws InvalidArgument for
  /// tables that the host cannot read.
  template <class Comm, class Vocabulary, class Collection>
  void exchange(Comm& communicator, const Vocabulary& vocabulary, Collection& collection) {
    static_assert(std::remove_cvref_t<decltype(collection.backend())>::host_readable,
                  "ColdRows: needs tables that the host can read");
    require(vocabulary.reports_keys(),
            "ColdRows: the vocabulary does not say which keys lost rows; give it .report_keys = "
            "true");
    if (!vocabulary.evicted().empty()) take(vocabulary.evicted(), collection);
    std::vector<std::int64_t> rows;
    std::vector<detail::KeyRow> back;
    for (std::size_t i = 0; i < vocabulary.given().size(); ++i) {
      const detail::KeyRow& given = vocabulary.given()[i];
      if (kept_.contains({given.table, given.key})) back.push_back(given);
      rows.push_back(given.row);
      if (i + 1 < vocabulary.given().size() && vocabulary.given()[i + 1].table == given.table)
        continue;
      collection.reset_rows(static_cast<int>(given.table), rows);  // so increments see them, too
      rows.clear();
    }
    if (!back.empty()) give(communicator, back, collection);
    while (std::ssize(kept_) > most_) {
      kept_.erase(order_.begin()->second);
      order_.erase(order_.begin());
    }
  }

  /// Returns the keys that are here, the same on every rank.
  std::int64_t size() const { return std::ssize(kept_); }

  /// What a rank keeps of a table's rows, for a checkpoint (SavedColdRows).
  struct Records {
    std::int64_t row_bytes = 0;        ///< of a whole row with its optimizer's state
    std::vector<std::int64_t> keys{};  ///< of each: the key, and its place in the order of eviction
    std::vector<std::uint8_t> rows{};  ///< zeros for columns that another rank keeps
  };
  /// Returns the tables of which there are rows, in order; the same on every rank.
  std::vector<std::int64_t> tables() const {
    std::vector<std::int64_t> found;
    for (const auto& [name, kept] : kept_)
      if (found.empty() || found.back() != name.first) found.push_back(name.first);
    return found;
  }
  Records export_records(std::int64_t table) const {
    Records r{.row_bytes = static_cast<std::int64_t>(row_bytes_.at(table))};
    for (auto it = kept_.lower_bound({table, std::numeric_limits<std::int64_t>::min()});
         it != kept_.end() && it->first.first == table; ++it) {
      const Kept& kept = it->second;
      if (kept.values.empty()) continue;
      r.keys.insert(r.keys.end(), {it->first.second, static_cast<std::int64_t>(kept.number)});
      const auto* const bytes = reinterpret_cast<const std::uint8_t*>(kept.values.data());
      r.rows.insert(r.rows.end(), bytes, bytes + kept.values.size());
    }
    return r;
  }
  /// Takes records of all ranks, in any number of calls, on every rank in the same order: this rank
  /// keeps the rows of its share of the keys. Throws InvalidArgument if the table's rows have other
  /// bytes, DataError for records that contradict each other; those before them have been taken.
  template <class Collection>
  void import_records(std::int64_t table, const Records& records, const Collection& collection) {
    const std::size_t bytes = record_bytes(collection, table);
    require(
        records.row_bytes == static_cast<std::int64_t>(bytes),
        "ColdRows: rows of {} bytes were kept of table '{}', but with their states they have {} "
        "now: the width, the elements or the optimizer is another",
        records.row_bytes, collection.layout().tables[static_cast<std::size_t>(table)].name, bytes);
    require<DataError>(
        records.keys.size() % 2 == 0 && records.rows.size() == records.keys.size() / 2 * bytes,
        "ColdRows: {} numbers of keys and {} bytes of rows: a record is a key, its "
        "place in the order of eviction, and {} bytes",
        records.keys.size(), records.rows.size(), bytes);
    row_bytes_[table] = bytes;
    const auto ranks = static_cast<std::uint64_t>(collection.layout().ranks()),
               rank = static_cast<std::uint64_t>(collection.tables().routing().rank());
    for (std::size_t i = 0; 2 * i < records.keys.size(); ++i) {
      const Name name{table, records.keys[2 * i]};
      const std::int64_t place = records.keys[2 * i + 1];
      const std::uint64_t number = static_cast<std::uint64_t>(place);
      const auto same = order_.find(number);
      const auto known = kept_.find(name);
      require<DataError>(place >= 0 && place < std::numeric_limits<std::int64_t>::max() &&
                             (same == order_.end() || same->second == name) &&
                             (known == kept_.end() || known->second.number == number),
                         "ColdRows: key {} of table '{}' has place {} in the order of eviction, "
                         "which is none, or another key's, or not the key's only one",
                         name.second,
                         collection.layout().tables[static_cast<std::size_t>(table)].name, place);
      order_[number] = name;
      Kept& kept = kept_[name];
      kept.number = number;
      next_ = std::max(next_, number + 1);
      if (number % ranks != rank) continue;
      kept.values.resize(bytes);
      for (std::size_t b = 0; b < bytes; ++b)
        kept.values[b] |= std::byte{records.rows[i * bytes + b]};
    }
  }

 private:
  using Name = std::pair<std::int64_t, std::int64_t>;  // table, key
  struct Kept {
    std::uint64_t number = 0;         // in the order in which they lost their rows
    std::vector<std::byte> values{};  // the whole row of each field; zeros of other ranks' columns
  };

  /// Calls visit(matrix as bytes of this rank's part, row's bytes, offset in a record) for each
  /// part of a row that this rank holds.
  template <class Shards, class Collection, class Visit>
  static void for_each_part(const Shards& shards, Collection& collection, const detail::KeyRow& row,
                            const Visit& visit) {
    const std::int64_t width =
        collection.layout().tables[static_cast<std::size_t>(row.table)].width;
    for (const auto& shard : shards) {
      if (shard.table != row.table || row.row < shard.rectangle.row_begin ||
          row.row >= shard.rectangle.row_end)
        continue;
      std::size_t at = 0;
      const auto field = [&](const auto& matrix, bool per_row) {
        with_matrix(matrix, [&]<class E>(MatrixView<E> values) {
          const std::size_t column =
              per_row ? 0 : static_cast<std::size_t>(shard.rectangle.column_begin);
          visit(reinterpret_cast<std::byte*>(values.row(row.row - shard.rectangle.row_begin)),
                static_cast<std::size_t>(values.columns) * sizeof(E), at + column * sizeof(E));
          at += (per_row ? 1 : static_cast<std::size_t>(width)) * sizeof(E);
        });
      };
      field(shard.weights, false);
      std::size_t k = 0;
      for (const auto& state : collection.tables().states(shard.table))
        field(shard.states[k++], state.per_row);
    }
  }

  template <class Collection>
  static std::size_t record_bytes(const Collection& collection, std::int64_t table) {
    const int t = static_cast<int>(table);
    const auto width =
        static_cast<std::size_t>(collection.layout().tables[static_cast<std::size_t>(table)].width);
    std::size_t bytes = width * tensor_type_size(collection.tables().element_type(t));
    for (const auto& state : collection.tables().states(t))
      bytes += (state.per_row ? 1 : width) * tensor_type_size(state.type);
    return bytes;
  }

  template <class Collection>
  void take(std::span<const detail::KeyRow> evicted, Collection& collection) {
    const auto shards = collection.tables().local_shards();
    for (const detail::KeyRow& row : evicted) {
      row_bytes_[row.table] = record_bytes(collection, row.table);
      Kept kept{.number = next_++};
      for_each_part(shards, collection, row,
                    [&](const std::byte* from, std::size_t bytes, std::size_t at) {
                      kept.values.resize(record_bytes(collection, row.table));
                      std::memcpy(kept.values.data() + at, from, bytes);
                    });
      order_[kept.number] = {row.table, row.key};
      kept_[{row.table, row.key}] = std::move(kept);
    }
  }

  template <class Comm, class Collection>
  void give(Comm& communicator, std::span<const detail::KeyRow> back, Collection& collection) {
    std::vector<std::size_t> begin{0};
    for (const detail::KeyRow& row : back)
      begin.push_back(begin.back() + record_bytes(collection, row.table));
    // A key's new row may be another rank's: each gives what it has of the old one.
    const std::size_t total = begin.back(), ranks = static_cast<std::size_t>(communicator.size());
    std::vector<std::byte> own(total), all(total * ranks);
    for (std::size_t i = 0; i < back.size(); ++i) {
      const auto found = kept_.find({back[i].table, back[i].key});
      std::ranges::copy(found->second.values, own.begin() + static_cast<std::ptrdiff_t>(begin[i]));
      order_.erase(found->second.number);
      kept_.erase(found);
    }
    communicator.all_gather(std::span<const std::byte>(own), std::span<std::byte>(all),
                            std::vector<std::size_t>(ranks, total));
    // what two ranks have of a row is the same, and what one has not is zero
    own.assign(total, std::byte{0});
    for (std::size_t i = 0; i < all.size(); ++i) own[i % total] |= all[i];
    collection.tables().flush();
    const auto shards = collection.tables().resting_shards();
    for (std::size_t i = 0; i < back.size(); ++i)
      for_each_part(shards, collection, back[i],
                    [&](std::byte* to, std::size_t bytes, std::size_t at) {
                      std::memcpy(to, own.data() + begin[i] + at, bytes);
                    });
    collection.tables().reload();  // what another thread brought meanwhile is read again
  }

  std::int64_t most_;
  std::uint64_t next_ = 0;
  std::map<Name, Kept> kept_;
  std::map<std::uint64_t, Name> order_;
  std::map<std::int64_t, std::size_t> row_bytes_;  // by table
};

}}  // namespace tessera::v0
