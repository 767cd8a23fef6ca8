// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tables/cache_counters.hpp>
#include <tessera/tables/row_files.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A RowCache as steps see it: they call it by pointer, so that plans without one compile no code for
/// it.
template <class Backend>
class AnyRowCache {
 public:
  using Slot = std::int32_t;
  static constexpr Slot none = -1;

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

    /// Notes that the rows are about to be changed in their slots.
    void mark_changed() const {
      if (!slots_.empty()) cache_->mark_changed(slots_);
    }
    /// Notes that the batch has no more use for them. `forget`: nor will one like it: see
    /// RowDirectory.
    void release(bool forget) noexcept {
      if (!slots_.empty()) cache_->unpin(slots_, forget);
      slots_.clear();
      cache_.reset();
    }

   private:
    friend AnyRowCache;
    std::shared_ptr<AnyRowCache> cache_;
    std::vector<Slot> slots_;
  };

  /// Batches come one after another; a task (an update that needs rows of other ranks' samples, a
  /// reset) is part of what goes on.
  enum class For : std::uint8_t { batch, task };

  AnyRowCache() = default;
  AnyRowCache(const AnyRowCache&) = delete;
  AnyRowCache& operator=(const AnyRowCache&) = delete;
  virtual ~AnyRowCache() = default;

  /// Brings rows into slots of the cache `self`, where they stay as long as the result lives;
  /// slots[i] is the one of rows[i], none for a negative row. Rows may be listed more than once.
  /// Throws InvalidArgument, and changes nothing, if the cache is too small.
  static Pins acquire(const std::shared_ptr<AnyRowCache>& self, const Backend& backend,
                      std::span<const std::int64_t> rows, std::span<Slot> slots, For what) {
    Pins pins;
    pins.cache_ = self;
    self->bring(backend, rows, slots, what, pins.slots_);
    return pins;
  }

  virtual std::int64_t slots() const = 0;
  virtual const RecordFormat& format() const = 0;
  /// Returns the arena row in each slot, in the backend's memory.
  virtual const std::int64_t* table_rows() const = 0;
  virtual CacheCounters counters() const = 0;
  /// Makes what is where rows stay all there is to know: changed rows go back. Not beside an
  /// update.
  virtual void flush() = 0;
  /// Notes that rows may have been changed where they stay, after a flush: what is in slots is of
  /// no use.
  virtual void reload() = 0;
  /// Takes note of `reload`, before slots are used.
  virtual void refresh() = 0;
  /// Returns where the rows of a shard stay that begins at an arena row: field 0 is the weights,
  /// then come the states. Bytes from one row to the next: stride(field).
  virtual std::byte* resting_rows(std::int64_t first, std::size_t field) = 0;
  virtual std::int64_t stride(std::size_t field) const = 0;
  /// Returns the flushed file of the shard of an arena row, of this moment; null: see DirectFile.
  virtual std::shared_ptr<const FileClone> clone(std::int64_t row) = 0;

 protected:
  virtual void bring(const Backend& backend, std::span<const std::int64_t> rows,
                     std::span<Slot> slots, For what, std::vector<Slot>& pinned) = 0;
  virtual void mark_changed(std::span<const Slot> slots) = 0;
  virtual void unpin(std::span<const Slot> slots, bool forget) noexcept = 0;
};

}}}  // namespace tessera::v0::detail
