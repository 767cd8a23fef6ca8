// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/clock.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/core/random.hpp>
#include <tessera/op/copy_rows.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/tables/any_row_cache.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/cache_counters.hpp>
#include <tessera/tables/row_directory.hpp>
#include <tessera/tables/row_files.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The rows of an arena where they stay: in the host's memory, or in files; and in a smaller arena,
/// the slots, those that batches in flight work with: weights and optimizer state together. A row
/// that is in a slot is read and changed there alone; it goes back before its slot is given up.
/// Batches are asked for one at a time; a batch that is looked up and updated meanwhile is not
/// disturbed. `Directory`: what says which rows are in which slots; tests plant faults in it.
template <class Backend, class Directory = RowDirectory>
class RowCache final : public AnyRowCache<Backend> {
  using Base = AnyRowCache<Backend>;

 public:
  using Slot = RowDirectory::Slot;
  using typename Base::For;
  static_assert(std::is_same_v<Slot, typename Base::Slot> && RowDirectory::none == Base::none);
  /// Bytes for one slot besides its row.
  static constexpr std::int64_t slot_overhead =
      RowDirectory::bytes_per_slot() + static_cast<std::int64_t>(sizeof(std::int64_t));
  static_assert(slot_overhead == cache_slot_bytes, "plans count it");

  /// Makes a cache. `fields`: of the arena of slots (Arena::fields), as in `format`. `name`: for
  /// errors.
  RowCache(const Backend& backend, std::int64_t slots, PodVector<std::byte*> fields,
           RecordFormat format, std::string name)
      : backend_(backend),
        format_(std::move(format)),
        slot_data_(std::move(fields)),
        directory_(slots),
        name_(std::move(name)) {
    table_rows_.resize(backend, static_cast<std::size_t>(slots));
  }

  std::int64_t slots() const override { return directory_.slots(); }
  const RecordFormat& format() const override { return format_; }
  const std::int64_t* table_rows() const override { return table_rows_.data(); }
  CacheCounters counters() const override {
    const std::scoped_lock lock(moving_, mutex_);
    CacheCounters counters = counters_;
    if (files_) {
      counters.read_bytes = files_->read_bytes();
      counters.written_bytes = files_->written_bytes();
    }
    return counters;
  }

  /// Lets the rows stay in files, to which the caller adds those of the shards.
  RowFiles& in_files(int queue_depth) { return files_.emplace(queue_depth); }
  /// Lets the rows stay in an arena of the host's memory, of which these are the fields.
  void in_memory(PodVector<std::byte*> fields) { host_data_ = std::move(fields); }

  /// Writes first values of all rows in files: make(first, count) puts those of so many rows into
  /// the first slots.
  template <class Make>
  void fill_all(std::int64_t rows, const Make& make) {
    const std::int64_t at_once =
        std::min(slots(), std::max<std::int64_t>(1, (std::int64_t{8} << 20) / format_.bytes));
    std::vector<std::int64_t> to;
    std::vector<Slot> from(static_cast<std::size_t>(at_once));
    std::iota(from.begin(), from.end(), Slot{0});
    for (std::int64_t first = 0; first < rows; first += at_once) {
      const auto count = static_cast<std::size_t>(std::min(at_once, rows - first));
      make(first, static_cast<std::int64_t>(count));
      to.resize(count);
      std::iota(to.begin(), to.end(), first);
      move(backend_, {to, std::span(from).first(count)}, {});
    }
    counters_ = {};
    files_->forget_bytes();
  }

  void flush() override {
    const std::lock_guard moving(moving_);
    refresh_locked();
    Moved dirty;
    {
      const std::lock_guard lock(mutex_);
      for (Slot slot = 0; slot < directory_.slots(); ++slot)
        if (directory_.dirty(slot)) dirty.add(directory_.row(slot), slot);
    }
    dirty.sort();
    for (std::size_t first = 0; first < dirty.rows.size(); first += rows_at_once) {
      const Moves some = dirty.from(first);
      move(backend_, some, {});
      const std::lock_guard lock(mutex_);
      for (const Slot slot : some.slots) directory_.mark_clean(slot);
    }
    backend_.synchronize();
  }

  void reload() override { stale_.store(true, std::memory_order_release); }
  void refresh() override {
    if (!stale_.load(std::memory_order_acquire)) return;
    const std::lock_guard moving(moving_);
    refresh_locked();
  }

  std::byte* resting_rows(std::int64_t first, std::size_t field) override {
    return files_ ? files_->view(first) + format_.fields[field].offset
                  : host_data_[field] + first * format_.fields[field].bytes;
  }
  std::shared_ptr<const FileClone> clone(std::int64_t row) override {
    const std::lock_guard moving(moving_);
    return files_ ? files_->clone(row) : nullptr;
  }
  std::int64_t stride(std::size_t field) const override {
    return files_ ? format_.bytes : format_.fields[field].bytes;
  }

 private:
  static constexpr std::size_t rows_at_once = 8192;
  static constexpr Slot first_missing = RowDirectory::none - 1;

  struct Moves {
    std::span<const std::int64_t> rows;
    std::span<const Slot> slots;
  };
  struct Moved {
    std::vector<std::int64_t> rows;
    std::vector<Slot> slots;

    void add(std::int64_t row, Slot slot) {
      rows.push_back(row);
      slots.push_back(slot);
    }
    void clear() {
      rows.clear();
      slots.clear();
    }
    void sort() {
      std::vector<std::pair<std::int64_t, Slot>> pairs(rows.size());
      for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = {rows[i], slots[i]};
      std::sort(pairs.begin(), pairs.end());
      for (std::size_t i = 0; i < pairs.size(); ++i) std::tie(rows[i], slots[i]) = pairs[i];
    }
    Moves from(std::size_t first) const {
      const std::size_t count = std::min(rows_at_once, rows.size() - first);
      return {std::span(rows).subspan(first, count), std::span(slots).subspan(first, count)};
    }
    operator Moves() const { return {rows, slots}; }  // NOLINT(google-explicit-constructor)
  };

  /// Numbers different rows in the order in which they come.
  class Numbering {
   public:
    /// Begins for at most so many rows.
    void begin(std::size_t most) {
      rows_.clear();
      numbers_.assign(std::bit_ceil(2 * most), -1);
    }
    std::int32_t operator()(std::int64_t row) {
      const std::size_t mask = numbers_.size() - 1;
      std::size_t i = static_cast<std::size_t>(mix64(static_cast<std::uint64_t>(row))) & mask;
      for (; numbers_[i] >= 0; i = (i + 1) & mask)
        if (rows_[static_cast<std::size_t>(numbers_[i])] == row) return numbers_[i];
      numbers_[i] = static_cast<std::int32_t>(rows_.size());
      rows_.push_back(row);
      return numbers_[i];
    }
    const std::vector<std::int64_t>& rows() const { return rows_; }

   private:
    std::vector<std::int64_t> rows_;
    std::vector<std::int32_t> numbers_;  // by hash
  };

  void mark_changed(std::span<const Slot> slots) override {
    const std::lock_guard lock(mutex_);
    for (const Slot slot : slots) directory_.mark_dirty(slot);
  }
  void unpin(std::span<const Slot> slots, bool forget) noexcept override {
    const std::lock_guard lock(mutex_);
    for (const Slot slot : slots) {
      directory_.unpin(slot);
      if (forget) directory_.forget_batch(slot);
    }
  }

  void bring(const Backend& backend, std::span<const std::int64_t> rows, std::span<Slot> slots,
             For what, std::vector<Slot>& pins) override {
    if (what == For::task && find_all(rows, slots, pins)) return;
    const auto start = std::chrono::steady_clock::now();
    const std::lock_guard moving(moving_);
    refresh_locked();
    const std::size_t missing = take_present(rows, slots, pins, what);
    std::vector<Slot> found;
    if (missing != 0) found = fetch(backend, pins);
    const std::lock_guard lock(mutex_);
    if (missing != 0)
      for (Slot& slot : slots)
        if (slot < RowDirectory::none) slot = found[static_cast<std::size_t>(first_missing - slot)];
    counters_.rows += std::ssize(pins);
    counters_.fetched_rows += static_cast<std::int64_t>(missing);
    counters_.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// Pins the rows if all of them are there to stay: a task waits for no batch's rows then.
  bool find_all(std::span<const std::int64_t> rows, std::span<Slot> slots,
                std::vector<Slot>& pins) {
    if (stale_.load(std::memory_order_acquire)) return false;
    const std::lock_guard lock(mutex_);
    bool all = true;
    directory_.find_each(rows, [&](std::size_t i, Slot slot) {
      slots[i] = slot;
      if (rows[i] >= 0 && (slot == RowDirectory::none || directory_.leaves(slot))) all = false;
    });
    if (!all) return false;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (rows[i] >= 0) {
        directory_.use(slots[i]);  // work of a GPU may end after the task's pins
        pin(slots[i], pins);
      }
    return true;
  }

  void pin(Slot slot, std::vector<Slot>& pins) {
    directory_.pin(slot);
    pins.push_back(slot);
  }

  /// Pins the rows that are there. Returns how many others there are: their slots are
  /// first_missing, and so on downwards.
  std::size_t take_present(std::span<const std::int64_t> rows, std::span<Slot> slots,
                           std::vector<Slot>& pins, For what) {
    const std::lock_guard lock(mutex_);
    if (what == For::batch) directory_.begin_batch();
    pins.reserve(rows.size());
    bool any = false;
    directory_.find_each(rows, [&](std::size_t i, Slot slot) {
      slots[i] = slot;
      if (slot != RowDirectory::none) {
        if (directory_.use(slot) || what == For::task) pin(slot, pins);
      } else if (rows[i] >= 0) {
        if (!any) missing_.begin(rows.size() - i);
        any = true;
        slots[i] = first_missing - missing_(rows[i]);
      }
    });
    return any ? missing_.rows().size() : 0;
  }

  /// Gives the oldest slots to the rows that are not there. Returns the slots.
  std::vector<Slot> fetch(const Backend& backend, std::vector<Slot>& pins) {
    const std::vector<std::int64_t>& missing = missing_.rows();
    std::vector<Slot> victims;
    leaving_.clear();
    {
      const std::lock_guard lock(mutex_);
      victims = directory_.victims(std::ssize(missing));
      if (victims.size() != missing.size()) {
        for (const Slot slot : pins) directory_.forget_batch(slot);
        const std::int64_t needed = directory_.slots() + std::ssize(missing) - std::ssize(victims);
        throw InvalidArgument(formatted(
            "{} holds {} rows, but this batch, the one before it and those in flight use {} "
            "different ones: give it {} rows ({} bytes) or more, or make batches smaller",
            name_, directory_.slots(), needed, needed, needed * (format_.bytes + slot_overhead)));
      }
      for (const Slot slot : victims) {
        if (directory_.dirty(slot)) leaving_.add(directory_.row(slot), slot);
        directory_.begin_leaving(slot);
      }
    }
    Moves coming{missing, victims};
    if (files_) {
      leaving_.sort();
      coming_.rows = missing;
      coming_.slots = victims;
      coming_.sort();
      coming = coming_;
    }
    try {
      move(backend, leaving_, coming);
    } catch (...) {  // the victims are where they were
      const std::lock_guard lock(mutex_);
      for (const Slot slot : victims) directory_.end_leaving(slot);
      throw;
    }
    const std::lock_guard lock(mutex_);
    directory_.replace(victims, missing);
    pins.insert(pins.end(), victims.begin(), victims.end());
    return victims;
  }

  void refresh_locked() {
    if (!stale_.load(std::memory_order_acquire)) return;
    if (files_) files_->write_views();
    Moved pinned;
    {
      const std::lock_guard lock(mutex_);
      for (Slot slot = 0; slot < directory_.slots(); ++slot) {
        directory_.mark_clean(slot);
        if (directory_.pins(slot) == 0)
          directory_.remove(slot);
        else
          pinned.add(directory_.row(slot), slot);
      }
    }
    pinned.sort();
    for (std::size_t first = 0; first < pinned.rows.size(); first += rows_at_once)
      move(backend_, {}, pinned.from(first));
    backend_.synchronize();
    stale_.store(false, std::memory_order_release);
  }

  /// Moves rows: first those of slots go back, then others come; from and to files each list
  /// ascending by row. Where it throws, no slot has changed.
  void move(const Backend& backend, const Moves& back, const Moves& in) {
    const std::size_t numbers = 2 * (back.rows.size() + in.rows.size());
    std::int64_t* const lists = lists_.resize(backend, numbers).data();
    std::int64_t* to = host_lists_.resize(backend, numbers).data();
    for (const Moves& moves : {back, in}) {
      to = std::copy(moves.rows.begin(), moves.rows.end(), to);
      to = std::copy(moves.slots.begin(), moves.slots.end(), to);
    }
    if (numbers != 0) backend.copy(lists, host_lists_.data(), numbers * sizeof(std::int64_t));
    const std::int64_t *const back_rows = lists, *const back_slots = back_rows + back.rows.size(),
                              *const in_rows = back_slots + back.rows.size(),
                              *const in_slots = in_rows + in.rows.size();
    if (files_)
      move_files(backend, back, in, back_slots, in_slots);
    else
      move_memory(backend, back, in, back_rows, back_slots, in_rows, in_slots);
    run_copy(backend,
             {{reinterpret_cast<const std::byte*>(in_rows), sizeof(std::int64_t), nullptr},
              {reinterpret_cast<std::byte*>(table_rows_.data()), sizeof(std::int64_t), in_slots},
              std::ssize(in.rows),
              sizeof(std::int64_t)});
    backend.synchronize();  // the lists are used again, maybe on another stream
    const std::lock_guard lock(mutex_);
    counters_.written_rows += std::ssize(back.rows);
    counters_.written_bytes += std::ssize(back.rows) * format_.bytes;
    counters_.read_bytes += std::ssize(in.rows) * format_.bytes;
  }

  void move_files(const Backend& backend, const Moves& back, const Moves& in,
                  const std::int64_t* back_slots, const std::int64_t* in_slots) {
    std::byte* const out_records = staging_
                                       .resize(backend, (back.rows.size() + in.rows.size()) *
                                                            static_cast<std::size_t>(format_.bytes))
                                       .data();
    std::byte* const in_records = out_records + std::ssize(back.rows) * format_.bytes;
    for (std::size_t f = 0; f < slot_data_.size(); ++f) {
      const auto& [offset, bytes] = format_.fields[f];
      run_copy(backend, {{slot_data_[f], bytes, back_slots},
                         {out_records + offset, format_.bytes, nullptr},
                         std::ssize(back.rows),
                         bytes});
    }
    backend.synchronize();
    transfers_.clear();
    std::size_t i = 0, j = 0;
    while (i != back.rows.size() || j != in.rows.size()) {
      const bool write =
          j == in.rows.size() || (i != back.rows.size() && back.rows[i] < in.rows[j]);
      const std::size_t k = write ? i++ : j++;
      transfers_.push_back(
          {write ? back.rows[k] : in.rows[k],
           (write ? out_records : in_records) + static_cast<std::int64_t>(k) * format_.bytes,
           write});
    }
    files_->exchange(transfers_);
    for (std::size_t f = 0; f < slot_data_.size(); ++f) {
      const auto& [offset, bytes] = format_.fields[f];
      run_copy(backend, {{in_records + offset, format_.bytes, nullptr},
                         {slot_data_[f], bytes, in_slots},
                         std::ssize(in.rows),
                         bytes});
    }
  }

  void move_memory(const Backend& backend, const Moves& back, const Moves& in,
                   const std::int64_t* back_rows, const std::int64_t* back_slots,
                   const std::int64_t* in_rows, const std::int64_t* in_slots) {
    for (std::size_t f = 0; f < slot_data_.size(); ++f) {
      const std::int64_t bytes = format_.fields[f].bytes;
      run_copy(backend, {{slot_data_[f], bytes, back_slots},
                         {host_data_[f], bytes, back_rows},
                         std::ssize(back.rows),
                         bytes});
      run_copy(backend, {{host_data_[f], bytes, in_rows},
                         {slot_data_[f], bytes, in_slots},
                         std::ssize(in.rows),
                         bytes});
    }
  }

  static void run_copy(const Backend& backend, const op::CopyRows::Parameters& parameters) {
    if (parameters.count != 0) op::run<op::CopyRows>(backend, parameters);
  }

  Backend backend_;
  RecordFormat format_;
  PodVector<std::byte*> slot_data_, host_data_;  // by field
  std::optional<RowFiles> files_;
  std::atomic<bool> stale_ = false;

  /// Held by who moves rows, with what follows; never waited for under the other.
  mutable std::mutex moving_;
  Numbering missing_;
  Moved leaving_, coming_;
  Buffer<std::int64_t, Backend> table_rows_, lists_, host_lists_{Tier::host};
  Buffer<std::byte, Backend> staging_{Tier::host};
  PodVector<RowFiles::Transfer> transfers_;

  mutable std::mutex mutex_;  // of what follows
  Directory directory_;
  CacheCounters counters_;
  std::string name_;
};

}}}  // namespace tessera::v0::detail
