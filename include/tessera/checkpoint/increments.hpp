// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/save.hpp>
#include <tessera/core/row_marks.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Remembers which rows of tables changed since the last full checkpoint: one bit for each row,
/// where the tables are, in device memory too. Until it exists nothing of it costs anything. The
/// collections must outlive it.
class ChangedRows {
 public:
  explicit ChangedRows(const CheckpointContents& contents) : contents_(contents) {
    for (const auto& begin : contents.marks()) marks_.push_back(begin());
  }
  ChangedRows(const ChangedRows&) = delete;
  ChangedRows& operator=(const ChangedRows&) = delete;

  /// Takes all rows to be as the last full checkpoint holds them.
  void clear() {
    for (const auto& marks : marks_) marks->clear();
  }

  /// Returns which of `rows`, counted from the first, changed, ascending. Waits for the updates so
  /// far.
  std::vector<std::int64_t> changed(const detail::CheckpointRows& rows) const {
    return marks_[static_cast<std::size_t>(rows.source)]->changed(rows.arena, rows.arena_row,
                                                                  rows.arena_row + rows.rows);
  }

  const CheckpointContents& contents() const { return contents_; }

 private:
  const CheckpointContents& contents_;
  std::vector<std::unique_ptr<detail::RowMarks>> marks_;  ///< by source
};

namespace detail {

/// The contents of an increment: tables' tensors hold changed rows only, and "NAME.rows" says
/// which, ascending.
struct Increment {
  CheckpointContents contents;
  std::deque<std::vector<std::int64_t>> numbers;  ///< what the row numbers' tensors view
};

/// Rows of one table that the same shards hold, on all ranks.
struct RowInterval {
  std::int32_t tensor = 0;  ///< the table's first
  std::int32_t unused = 0;
  std::int64_t begin = 0, end = 0;
};

/// Returns where [begin, end) is in an ascending list: the first index and how many.
inline std::pair<std::int64_t, std::int64_t> between(const std::vector<std::int64_t>& list,
                                                     std::int64_t begin, std::int64_t end) {
  const auto first = std::lower_bound(list.begin(), list.end(), begin),
             last = std::lower_bound(first, list.end(), end);
  return {first - list.begin(), last - first};
}

/// Makes an increment. `whole`: the contents of `changed`, and perhaps more that is no table.
template <class Comm>
Increment make_increment(Comm& communicator, const CheckpointContents& whole,
                         const ChangedRows& changed) {
  // Where any shard of a table begins or ends, on any rank.
  std::map<std::int32_t, std::set<std::int64_t>> cuts;
  std::vector<RowInterval> own;
  for (const CheckpointRows& rows : whole.rows())
    if (rows.source >= 0)
      own.push_back({rows.parts[0].tensor, 0, rows.row_begin, rows.row_begin + rows.rows});
  for (const RowInterval& interval : gather_all(communicator, std::span<const RowInterval>(own)))
    for (const std::int64_t cut : {interval.begin, interval.end}) cuts[interval.tensor].insert(cut);

  // A row that changed did so on every rank that has part of it, so that all who know an interval's
  // count know the same.
  std::map<std::pair<std::int32_t, std::int64_t>, std::size_t> index;
  for (const auto& [tensor, places] : cuts)
    for (auto at = places.begin(); std::next(at) != places.end(); ++at)
      index.emplace(std::pair(tensor, *at), index.size());
  std::vector<std::int64_t> counts(index.size(), 0);
  std::vector<std::vector<std::int64_t>> lists;
  for (const CheckpointRows& rows : whole.rows()) {
    lists.emplace_back();
    if (rows.source < 0) continue;
    lists.back() = changed.changed(rows);
    const std::set<std::int64_t>& places = cuts[rows.parts[0].tensor];
    for (auto at = places.find(rows.row_begin); *at < rows.row_begin + rows.rows; ++at)
      counts[index.at({rows.parts[0].tensor, *at})] =
          between(lists.back(), *at - rows.row_begin, *std::next(at) - rows.row_begin).second;
  }
  const std::vector<std::int64_t> all =
      gather_all(communicator, std::span<const std::int64_t>(counts));
  for (std::size_t i = 0; i < all.size(); ++i)
    counts[i % counts.size()] = std::max(counts[i % counts.size()], all[i]);

  // Rows before each interval, and of each table.
  std::map<std::int32_t, std::int64_t> totals;
  std::vector<std::int64_t> before(counts.size());
  for (const auto& [key, i] : index) {
    before[i] = totals[key.first];
    totals[key.first] += counts[i];
  }

  Increment increment{whole, {}};
  std::vector<CheckpointRows> pieces;
  for (std::size_t k = 0; k < whole.rows().size(); ++k) {
    const CheckpointRows& rows = whole.rows()[k];
    if (rows.source < 0) continue;
    const std::int32_t tensor = rows.parts[0].tensor;
    const std::set<std::int64_t>& places = cuts[tensor];
    for (auto at = places.find(rows.row_begin); *at < rows.row_begin + rows.rows; ++at) {
      const auto [first, count] =
          between(lists[k], *at - rows.row_begin, *std::next(at) - rows.row_begin);
      if (count == 0) continue;
      CheckpointRows piece = rows;
      piece.row_begin = before[index.at({tensor, *at})];
      piece.rows = count;
      piece.chosen.assign(lists[k].begin() + first, lists[k].begin() + first + count);
      if (rows.parts[0].write && rows.parts[0].column_begin == 0) {
        std::vector<std::int64_t>& numbers = increment.numbers.emplace_back();
        for (const std::int64_t r : piece.chosen) numbers.push_back(rows.row_begin + r);
      } else {
        increment.numbers.emplace_back();
      }
      pieces.push_back(std::move(piece));
    }
  }
  increment.contents.make_sparse(totals, std::move(pieces), increment.numbers);
  return increment;
}

}  // namespace detail

/// Saves the rows that changed since the full checkpoint `base` (as save_checkpoint answered it),
/// and all that is not a table: loading it loads both. Its cost goes with the rows that changed.
/// `contents`: those of `changed`, to a copy of which more may have been added: what a vocabulary
/// knows. Collective, and otherwise as save_checkpoint. The extra memory is 16 bytes for each
/// changed row. Rows that were changed by other means than updates and `reset_rows` are not seen;
/// after a load, save in full first.
template <Communicator<detail::kCheckpointCollectives> Comm>
CheckpointBase save_increment(Comm& communicator, const std::filesystem::path& directory,
                              const CheckpointContents& contents, const ChangedRows& changed,
                              const CheckpointBase& base, std::int64_t step,
                              const SaveOptions& options = {}) {
  const detail::Increment increment = detail::make_increment(communicator, contents, changed);
  detail::Save save(communicator, directory, increment.contents, step, options, base);
  return save.publish(communicator, [&] { save.write(detail::LiveRows{}); });
}
/// Does the same for the contents of `changed` alone.
template <Communicator<detail::kCheckpointCollectives> Comm>
CheckpointBase save_increment(Comm& communicator, const std::filesystem::path& directory,
                              const ChangedRows& changed, const CheckpointBase& base,
                              std::int64_t step, const SaveOptions& options = {}) {
  return save_increment(communicator, directory, changed.contents(), changed, base, step, options);
}

}}  // namespace tessera::v0
