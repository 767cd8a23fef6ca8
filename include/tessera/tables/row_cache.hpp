// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/op/copy_rows.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/cache_counters.hpp>
#include <tessera/tables/row_directory.hpp>
#include <tessera/tables/row_files.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// The rows of an arena where they stay: in the host's memory, or in files; and in a smaller arena,
/// the slots, those that batches in flight work with: weights and optimizer state together. A row
/// that is in a slot is read and changed there alone; it goes back before its slot is given up.
/// Batches are asked for one at a time; a batch that is looked up and updated meanwhile is not
/// disturbed. `Directory`: what says which rows are in which slots; tests plant faults in it.
template <class Backend, class Directory = detail::RowDirectory>
class RowCache {
 public:
  using Slot = detail::RowDirectory::Slot;
  /// Bytes for one slot besides its row.
  static constexpr std::int64_t slot_overhead =
      detail::RowDirectory::bytes_per_slot() + static_cast<std::int64_t>(sizeof(std::int64_t));
  static_assert(slot_overhead == cache_slot_bytes, "plans count it");

  /// Those rows of an arena that one batch, or one task, uses. They stay in their slots as long as
  /// this lives.
  class Pins {
   public:
    Pins() = default;
    Pins(Pins&& other) noexcept : cache_(std::move(other.cache_)), slots_(std::move(other.slots_)) {
      other.slots_.clear();
    }
    Pins& operator=(Pins&& other) noexcept {
      release(false);
      cache_ = std::move(other.cache_);
      slots_ = std::move(other.slots_);
      other.slots_.clear();
      return *this;
    }
    ~Pins() { release(false); }

    /// The rows are about to be changed in their slots.
    void mark_changed() const {
      if (!slots_.empty()) cache_->mark_changed(slots_);
    }
    /// The batch has no more use for them. `forget`: nor will one like it: see RowDirectory.
    void release(bool forget) noexcept {
      if (!slots_.empty()) cache_->unpin(slots_, forget);
      slots_.clear();
      cache_.reset();
    }

   private:
    friend RowCache;
    std::shared_ptr<RowCache> cache_;
    std::vector<Slot> slots_;
  };

  /// Batches come one after another; a task (an update that needs rows of other ranks' samples, a
  /// reset) is part of what goes on.
  enum class For : std::uint8_t { batch, task };

  /// `fields`: of the arena of slots (Arena::fields), as in `format`. `name`: for errors.
  RowCache(const Backend& backend, std::int64_t slots, std::vector<std::byte*> fields,
           detail::RecordFormat format, std::string name)
      : backend_(backend),
        format_(std::move(format)),
        slot_data_(std::move(fields)),
        directory_(slots),
        name_(std::move(name)) {
    table_rows_.resize(backend, static_cast<std::size_t>(slots));
  }

  std::int64_t slots() const { return directory_.slots(); }
  const detail::RecordFormat& format() const { return format_; }
  /// The arena row in each slot, in the backend's memory.
  const std::int64_t* table_rows() const { return table_rows_.data(); }
  CacheCounters counters() const {
    const std::scoped_lock lock(moving_, mutex_);
    CacheCounters counters = counters_;
    if (files_) {
      counters.read_bytes = files_->read_bytes();
      counters.written_bytes = files_->written_bytes();
    }
    return counters;
  }

  /// The rows stay in files, to which the caller adds those of the shards.
  detail::RowFiles& in_files(int queue_depth) { return files_.emplace(queue_depth); }
  /// The rows stay in an arena of the host's memory, of which these are the fields.
  void in_memory(std::vector<std::byte*> fields) { host_data_ = std::move(fields); }

  /// First values of all rows in files: make(first, count) puts those of so many rows into the first
  /// slots.
  template <class Make>
  void fill_all(std::int64_t rows, const Make& make) {
    const std::int64_t at_once =
        std::min(slots(), std::max<std::int64_t>(1, (std::int64_t{8} << 20) / format_.bytes));
    std::vector<std::int64_t> to, from(static_cast<std::size_t>(at_once));
    std::iota(from.begin(), from.end(), std::int64_t{0});
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

  /// Brings rows into slots of the cache `self`, where they stay as long as the result lives; slots[i]
  /// is the one of rows[i], none for a negative row. Rows may be listed more than once. Throws
  /// InvalidArgument, and changes nothing, where the cache is too small.
  static Pins acquire(const std::shared_ptr<RowCache>& self, const Backend& backend,
                      std::span<const std::int64_t> rows, std::span<Slot> slots, For what) {
    Pins pins;
    pins.cache_ = self;
    self->acquire(backend, rows, slots, what, pins);
    return pins;
  }
  /// What is where rows stay is all there is to know: changed rows go back. Not beside an update.
  void flush() {
    const std::lock_guard moving(moving_);
    refresh_locked();
    std::vector<std::pair<std::int64_t, std::int64_t>> dirty;  // row, slot
    {
      const std::lock_guard lock(mutex_);
      for (Slot slot = 0; slot < directory_.slots(); ++slot)
        if (directory_.dirty(slot)) dirty.emplace_back(directory_.row(slot), slot);
    }
    std::sort(dirty.begin(), dirty.end());
    const Moved all(dirty);
    for (std::size_t first = 0; first < dirty.size(); first += rows_at_once) {
      const std::size_t count = std::min(rows_at_once, dirty.size() - first);
      move(backend_,
           {std::span(all.rows).subspan(first, count), std::span(all.slots).subspan(first, count)},
           {});
      const std::lock_guard lock(mutex_);
      for (std::size_t i = first; i < first + count; ++i)
        directory_.mark_clean(static_cast<Slot>(all.slots[i]));
    }
    backend_.synchronize();
  }

  /// Rows may have been changed where they stay, after a flush: what is in slots is of no use.
  void reload() { stale_.store(true, std::memory_order_release); }
  /// Before slots are used: takes note of `reload`.
  void refresh() {
    if (!stale_.load(std::memory_order_acquire)) return;
    const std::lock_guard moving(moving_);
    refresh_locked();
  }

  /// Where the rows of a shard stay that begins at an arena row: field 0 is the weights, then come
  /// the states. Bytes from one row to the next: stride(field).
  std::byte* resting_rows(std::int64_t first, std::size_t field) {
    return files_ ? files_->view(first) + format_.fields[field].offset
                  : host_data_[field] + first * format_.fields[field].bytes;
  }
  /// The file of the shard of an arena row as it is now, after a flush; null: see DirectFile.
  std::shared_ptr<const detail::FileClone> clone(std::int64_t row) {
    const std::lock_guard moving(moving_);
    return files_ ? files_->clone(row) : nullptr;
  }
  std::int64_t stride(std::size_t field) const {
    return files_ ? format_.bytes : format_.fields[field].bytes;
  }

 private:
  static constexpr std::size_t rows_at_once = 8192;

  /// Rows and their slots.
  struct Moves {
    std::span<const std::int64_t> rows, slots;
  };
  struct Moved {
    std::vector<std::int64_t> rows, slots;
    explicit Moved(const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs) {
      for (const auto& [row, slot] : pairs) {
        rows.push_back(row);
        slots.push_back(slot);
      }
    }
    operator Moves() const { return {rows, slots}; }  // NOLINT(google-explicit-constructor)
  };

  void mark_changed(std::span<const Slot> slots) {
    const std::lock_guard lock(mutex_);
    for (const Slot slot : slots) directory_.mark_dirty(slot);
  }
  void unpin(std::span<const Slot> slots, bool forget) noexcept {
    const std::lock_guard lock(mutex_);
    for (const Slot slot : slots) {
      directory_.unpin(slot);
      if (forget) directory_.forget_batch(slot);
    }
  }

  void acquire(const Backend& backend, std::span<const std::int64_t> rows, std::span<Slot> slots,
               For what, Pins& pins) {
    if (what == For::task && find_all(rows, slots, pins)) return;
    const auto start = std::chrono::steady_clock::now();
    const std::lock_guard moving(moving_);
    refresh_locked();
    const std::vector<std::int64_t> missing = take_present(rows, slots, pins, what);
    if (!missing.empty()) fetch(backend, missing, pins);
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (slots[i] == detail::RowDirectory::none && rows[i] >= 0)
        slots[i] = directory_.find(rows[i]);
    counters_.rows += std::ssize(pins.slots_);
    counters_.fetched_rows += std::ssize(missing);
    counters_.seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// Pins the rows if all of them are there to stay: a task waits for no batch's rows then.
  bool find_all(std::span<const std::int64_t> rows, std::span<Slot> slots, Pins& pins) {
    if (stale_.load(std::memory_order_acquire)) return false;
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      slots[i] = rows[i] < 0 ? detail::RowDirectory::none : directory_.find(rows[i]);
      if (rows[i] >= 0 && (slots[i] == detail::RowDirectory::none || directory_.leaves(slots[i])))
        return false;
    }
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (rows[i] >= 0) {
        directory_.use(slots[i]);  // work of a GPU may end after the task's pins
        pin(slots[i], pins);
      }
    return true;
  }

  void pin(Slot slot, Pins& pins) {
    directory_.pin(slot);
    pins.slots_.push_back(slot);
  }

  /// Pins the rows that are there; returns the others, ascending.
  std::vector<std::int64_t> take_present(std::span<const std::int64_t> rows, std::span<Slot> slots,
                                         Pins& pins, For what) {
    const std::lock_guard lock(mutex_);
    if (what == For::batch) directory_.begin_batch();
    std::vector<std::int64_t> missing;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      slots[i] = rows[i] < 0 ? detail::RowDirectory::none : directory_.find(rows[i]);
      if (slots[i] != detail::RowDirectory::none) {
        if (directory_.use(slots[i]) || what == For::task) pin(slots[i], pins);
      } else if (rows[i] >= 0) {
        missing.push_back(rows[i]);
      }
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    return missing;
  }

  /// Gives the oldest slots to rows that are not there.
  void fetch(const Backend& backend, const std::vector<std::int64_t>& missing, Pins& pins) {
    std::vector<Slot> victims;
    std::vector<std::pair<std::int64_t, std::int64_t>> leaving, coming;
    {
      const std::lock_guard lock(mutex_);
      victims = directory_.victims(std::ssize(missing));
      if (victims.size() != missing.size()) {
        const std::int64_t needed = directory_.slots() + std::ssize(missing) - std::ssize(victims);
        throw InvalidArgument(fmt::format(
            "{} holds {} rows, but this batch, the one before it and those in flight use {} "
            "different ones: give it {} rows ({} bytes) or more, or make batches smaller",
            name_, directory_.slots(), needed, needed, needed * (format_.bytes + slot_overhead)));
      }
      for (std::size_t i = 0; i < victims.size(); ++i) {
        if (directory_.dirty(victims[i]))
          leaving.emplace_back(directory_.row(victims[i]), victims[i]);
        coming.emplace_back(missing[i], victims[i]);
        directory_.begin_leaving(victims[i]);
      }
    }
    std::sort(leaving.begin(), leaving.end());
    try {
      move(backend, Moved(leaving), Moved(coming));
    } catch (...) {  // the victims are where they were
      const std::lock_guard lock(mutex_);
      for (const Slot slot : victims) directory_.end_leaving(slot);
      throw;
    }
    const std::lock_guard lock(mutex_);
    for (const auto& [row, slot] : coming) {
      const Slot to = static_cast<Slot>(slot);
      directory_.end_leaving(to);
      directory_.remove(to);
      directory_.insert(to, row);
      directory_.use(to);
      pin(to, pins);
    }
  }

  void refresh_locked() {
    if (!stale_.load(std::memory_order_acquire)) return;
    if (files_) files_->write_views();
    std::vector<std::pair<std::int64_t, std::int64_t>> pinned;
    {
      const std::lock_guard lock(mutex_);
      for (Slot slot = 0; slot < directory_.slots(); ++slot) {
        directory_.mark_clean(slot);
        if (directory_.pins(slot) == 0)
          directory_.remove(slot);
        else
          pinned.emplace_back(directory_.row(slot), slot);
      }
    }
    std::sort(pinned.begin(), pinned.end());
    const Moved all(pinned);
    for (std::size_t first = 0; first < pinned.size(); first += rows_at_once) {
      const std::size_t count = std::min(rows_at_once, pinned.size() - first);
      move(backend_, {},
           {std::span(all.rows).subspan(first, count), std::span(all.slots).subspan(first, count)});
    }
    backend_.synchronize();
    stale_.store(false, std::memory_order_release);
  }

  /// First rows of slots go back, then others come; each list ascending by row. Where it throws, no
  /// slot has changed.
  void move(const Backend& backend, const Moves& back, const Moves& in) {
    const std::int64_t* const back_slots = upload(backend, back_slots_, back.slots);
    const std::int64_t* const in_slots = upload(backend, in_slots_, in.slots);
    const std::int64_t* const in_rows = upload(backend, in_rows_, in.rows);
    if (files_)
      move_files(backend, back, in, back_slots, in_slots);
    else
      move_memory(backend, back, in, back_slots, in_slots, in_rows);
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
                   const std::int64_t* back_slots, const std::int64_t* in_slots,
                   const std::int64_t* in_rows) {
    const std::int64_t* const back_rows = upload(backend, back_rows_, back.rows);
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
  static const std::int64_t* upload(const Backend& backend, Buffer<std::int64_t, Backend>& to,
                                    std::span<const std::int64_t> from) {
    std::int64_t* const memory = to.resize(backend, from.size()).data();
    if (!from.empty()) backend.copy(memory, from.data(), from.size_bytes());
    return memory;
  }

  Backend backend_;
  detail::RecordFormat format_;
  std::vector<std::byte*> slot_data_, host_data_;  // by field
  std::optional<detail::RowFiles> files_;
  std::atomic<bool> stale_ = false;

  /// Held by who moves rows, with what follows; never waited for under the other.
  mutable std::mutex moving_;
  Buffer<std::int64_t, Backend> table_rows_, back_rows_, back_slots_, in_rows_, in_slots_;
  Buffer<std::byte, Backend> staging_{Tier::host};
  std::vector<detail::RowFiles::Transfer> transfers_;

  mutable std::mutex mutex_;  // of what follows
  Directory directory_;
  CacheCounters counters_;
  std::string name_;
};

}  // namespace tessera::inline v0
