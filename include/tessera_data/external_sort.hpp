// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/io/temporary_file.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <queue>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Sorts more records than memory holds: sorted runs go to a temporary file, one pass merges them.
/// Records that are alike stay in the order in which they came. Records are plain bytes.
template <class Record, class Less>
class ExternalSort {
  static_assert(std::is_trivially_copyable_v<Record>);

 public:
  /// Makes a sort. `memory_bytes`: of records in memory, at least one record of each run.
  ExternalSort(std::filesystem::path folder, std::size_t memory_bytes, Less less = {})
      : folder_(std::move(folder)),
        // a stable sort takes half as much again
        capacity_(std::max<std::size_t>(1, memory_bytes / 3 * 2 / sizeof(Record))),
        less_(less) {}

  void add(const Record& record) {
    if (records_.size() == capacity_) write_run();
    records_.push_back(record);
  }

  bool on_disk() const { return file_.has_value(); }

  /// Calls visit(record) for all, in order. Once; the memory is free afterwards.
  template <class Visit>
  void finish(const Visit& visit) {
    if (!on_disk()) {
      sort();
      for (const Record& record : records_) visit(record);
    } else {
      if (!records_.empty()) write_run();
      merge(visit);
    }
    file_.reset();
    records_ = {};
  }

 private:
  struct Run {
    std::size_t next, end;       ///< records of the file that are not yet in memory
    std::vector<Record> buffer;  ///< the run's next ones
    std::size_t at = 0;
  };

  void sort() { std::stable_sort(records_.begin(), records_.end(), less_); }

  void write_run() {
    sort();
    if (!file_) file_.emplace(folder_);
    const std::size_t first = runs_.empty() ? 0 : runs_.back().end;
    file_->append(std::as_bytes(std::span(records_)));
    runs_.push_back({first, first + records_.size(), {}});
    records_.clear();
  }

  bool fill(Run& run, std::size_t most) {
    run.buffer.resize(std::min(most, run.end - run.next));
    run.at = 0;
    file_->read(std::as_writable_bytes(std::span(run.buffer)), run.next * sizeof(Record));
    run.next += run.buffer.size();
    return !run.buffer.empty();
  }

  template <class Visit>
  void merge(const Visit& visit) {
    records_ = {};
    const std::size_t most = std::max<std::size_t>(1, capacity_ / runs_.size());
    const auto later = [&](std::size_t a, std::size_t b) {
      const Record &x = runs_[a].buffer[runs_[a].at], &y = runs_[b].buffer[runs_[b].at];
      return less_(y, x) || (!less_(x, y) && b < a);
    };
    std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> first(later);
    for (std::size_t r = 0; r < runs_.size(); ++r)
      if (fill(runs_[r], most)) first.push(r);
    while (!first.empty()) {
      const std::size_t r = first.top();
      first.pop();
      Run& run = runs_[r];
      visit(run.buffer[run.at]);
      if (++run.at < run.buffer.size() || fill(run, most)) first.push(r);
    }
  }

  std::filesystem::path folder_;
  std::size_t capacity_;
  Less less_;
  std::vector<Record> records_;
  std::optional<TemporaryFile> file_;
  std::vector<Run> runs_;
};

}}}  // namespace tessera::v0::detail
