// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// The newest version of something that many threads read and one replaces, as a whole. Reading
/// takes no lock and never waits; a version that was replaced lives until no reader has it
/// pinned and `publish` or `collect` is called. (Hazard pointers: M. Michael, 2004.)
template <class T>
class Published {
  /// A cache line of its own: readers do not disturb each other.
  struct alignas(64) Slot {
    std::atomic<const T*> pinned = nullptr;
  };

 public:
  class Reader;

  explicit Published(std::shared_ptr<const T> first)
      : current_(std::move(first)), newest_(current_.get()) {}
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  /// A version that stays as long as this lives.
  class Pin {
   public:
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin() { slot_.pinned.store(nullptr, std::memory_order_release); }
    const T& operator*() const { return *value_; }
    const T* operator->() const { return value_; }

   private:
    friend class Reader;
    Pin(Slot& slot, const T* value) : slot_(slot), value_(value) {}
    Slot& slot_;
    const T* value_;
  };

  /// What each thread that reads needs; must not outlive the Published. One pin at a time.
  class Reader {
   public:
    explicit Reader(const Published& of) : of_(of), slot_(of.add_slot()) {}
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader() { of_.remove_slot(slot_); }

    /// Returns the newest version.
    Pin pin() {
      // If what is still the newest after it was announced is freed, its publisher has seen the
      // announcement: both look after they have written, in the one order of all these accesses.
      for (const T* value = of_.newest_.load();;) {
        slot_->pinned.store(value);
        const T* const newest = of_.newest_.load();
        if (newest == value) return Pin(*slot_, value);
        value = newest;
      }
    }

   private:
    const Published& of_;
    typename std::list<Slot>::iterator slot_;
  };

  /// Returns the newest version, for as long as the caller likes. Takes a lock for a moment.
  std::shared_ptr<const T> current() const {
    const std::lock_guard lock(mutex_);
    return current_;
  }

  /// Publishes `value`: readers that pin from now on get it.
  void publish(std::shared_ptr<const T> value) {
    {
      const std::lock_guard lock(mutex_);
      std::swap(current_, value);
      newest_.store(current_.get());
      replaced_.push_back(std::move(value));
    }
    collect();
  }

  /// Lets go of replaced versions that no reader has pinned. Returns how many wait.
  std::size_t collect() {
    std::vector<std::shared_ptr<const T>> free;  // ends without the lock
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<const T>> kept;
    for (std::shared_ptr<const T>& version : replaced_) {
      bool pinned = false;
      for (const Slot& slot : slots_) pinned |= slot.pinned.load() == version.get();
      (pinned ? kept : free).push_back(std::move(version));
    }
    replaced_ = std::move(kept);
    return replaced_.size();
  }

 private:
  typename std::list<Slot>::iterator add_slot() const {
    const std::lock_guard lock(mutex_);
    return slots_.emplace(slots_.end());
  }
  void remove_slot(typename std::list<Slot>::iterator slot) const {
    const std::lock_guard lock(mutex_);
    slots_.erase(slot);
  }

  mutable std::mutex mutex_;  ///< of all but newest_
  std::shared_ptr<const T> current_;
  std::vector<std::shared_ptr<const T>> replaced_;
  mutable std::list<Slot> slots_;
  std::atomic<const T*> newest_;
};

}}  // namespace tessera::v0
