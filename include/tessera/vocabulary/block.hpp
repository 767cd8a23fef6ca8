// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/random.hpp>
#include <tessera/vocabulary/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A part of a vocabulary: keys on one side, a block of rows [0, rows) on the other. Open
/// addressing with linear probing, at most half full; a slot is 24 bytes. What it answers depends
/// on the batches alone, not on the order of its slots.
template <class Own = NoPolicy>
class VocabularyBlock {
 public:
  static constexpr std::int32_t kShared = -1;  ///< of keys without a row of their own

  VocabularyBlock(const VocabularyLayout::Block& block, const KeyPolicy<Own>& policy,
                  std::uint64_t seed)
      : table_(block.table),
        begin_(block.begin),
        rows_(block.rows),
        policy_(policy),
        policy_seed_(seed) {}

  /// Learns one batch, step `step` (ascending, from 1): counts every key, gives rows to those that
  /// the policy admits, and returns each one's row. Adds rows that now have another key than before
  /// to `changes`; with report_keys keys that lost or got rows, too. A row that this batch reads is
  /// not taken away.
  void learn(std::span<const std::int64_t> keys, std::uint32_t step,
             std::span<std::int32_t> answers, bool report_keys, VocabularyChanges& changes) {
    touched_.clear();
    for (std::size_t i = 0; i < std::min(kAhead, keys.size()); ++i)
      __builtin_prefetch(&slots_[place(keys[i])], 1);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (i + kAhead < keys.size()) __builtin_prefetch(&slots_[place(keys[i + kAhead])], 1);
      Slot& slot = insert(keys[i]);
      // or of a call of this step that has thrown, whose list is gone
      if (slot.step != step || slot.touched >= touched_.size() ||
          touched_[slot.touched].key != keys[i]) {
        slot.step = step;
        slot.touched = static_cast<std::uint32_t>(touched_.size());
        touched_.push_back({keys[i], 0, slot.row});
      }
      slot.count += slot.count != std::numeric_limits<std::uint32_t>::max();
      touched_[slot.touched].count = slot.count;
      answers[i] = static_cast<std::int32_t>(slot.touched);
    }
    admit(step, report_keys, changes);
    for (std::int32_t& answer : answers) answer = touched_[static_cast<std::size_t>(answer)].row;
    if (candidates_ > std::max(rows_, kLeastVocabularyCandidates)) forget();
  }

  /// Finds the keys' rows; changes nothing.
  void find(std::span<const std::int64_t> keys, std::span<std::int32_t> answers) const {
    for (std::size_t i = 0; i < std::min(kAhead, keys.size()); ++i)
      __builtin_prefetch(&slots_[place(keys[i])]);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (i + kAhead < keys.size()) __builtin_prefetch(&slots_[place(keys[i + kAhead])]);
      const Slot& slot = slots_[slot_of(keys[i])];
      answers[i] = slot.row == kFree ? kShared : slot.row;
    }
  }

  /// Return the keys with a row, and keys that are counted without one.
  std::int64_t admitted() const { return static_cast<std::int64_t>(size_) - candidates_; }
  std::int64_t candidates() const { return candidates_; }
  std::int64_t used_rows() const { return used_; }
  /// Returns the slots that the search for a key looks at, at most.
  std::size_t longest_search() const {
    std::size_t longest = 0;
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].row != kFree)
        longest = std::max(longest, ((i - place(slots_[i].key)) & (slots_.size() - 1)) + 1);
    return longest;
  }

  /// Calls visit(key, row, count, step) for each key, in no useful order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Slot& slot : slots_)
      if (slot.row != kFree) visit(slot.key, slot.row, slot.count, slot.step);
  }

  /// Rebuilds what for_each showed: every key once, with what VocabularyLayout::own_records lets
  /// pass; then `finish`.
  void restore(std::int64_t key, std::int64_t row, std::int64_t count, std::int64_t step) {
    Slot& slot = insert(key);
    slot.row = static_cast<std::int32_t>(row);
    slot.count = static_cast<std::uint32_t>(count);
    slot.step = static_cast<std::uint32_t>(step);
    candidates_ -= row != kShared;
  }
  void finish(std::int64_t used) {
    std::vector<bool> taken(static_cast<std::size_t>(used));
    for (const Slot& slot : slots_)
      if (slot.row >= 0) taken[static_cast<std::size_t>(slot.row)] = true;
    used_ = used;
    free_.clear();
    for (std::int64_t row = used - 1; row >= 0; --row)
      if (!taken[static_cast<std::size_t>(row)]) free_.push_back(static_cast<std::int32_t>(row));
  }

 private:
  static constexpr std::int32_t kFree = -2;
  static constexpr std::size_t kAhead = 16;

  struct Slot {
    std::int64_t key = 0;
    std::uint32_t count = 0;
    std::uint32_t step = 0;     // last seen
    std::int32_t row = kFree;   // or kShared
    std::uint32_t touched = 0;  // index in touched_, in the step that saw it
  };
  static_assert(sizeof(Slot) == 24);

  struct Touched {
    std::int64_t key;
    std::uint32_t count;
    std::int32_t row;
  };

  std::size_t place(std::int64_t key) const {
    return mix64(static_cast<std::uint64_t>(key) ^ seed_) & (slots_.size() - 1);
  }

  /// Returns the key's slot, or the free one where it would be.
  std::size_t slot_of(std::int64_t key) const {
    std::size_t i = place(key);
    while (slots_[i].row != kFree && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  Slot& insert(std::int64_t key) {
    std::size_t i = slot_of(key);
    if (slots_[i].row == kFree) {
      if (2 * (size_ + 1) > slots_.size()) {
        rebuild(2 * slots_.size(), [](const Slot&) { return true; });
        i = slot_of(key);
      }
      slots_[i] = Slot{.key = key, .row = kShared};
      ++size_;
      ++candidates_;
    }
    return slots_[i];
  }

  template <class Keep>
  void rebuild(std::size_t capacity, const Keep& keep) {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(capacity));
    for (const Slot& slot : old)
      if (slot.row != kFree && keep(slot)) slots_[slot_of(slot.key)] = slot;
  }

  SeenKey seen(std::int64_t key, std::uint32_t count, std::uint32_t last, std::uint32_t now) const {
    return {.key = key, .count = count, .step = last, .now = now, .seed = policy_seed_};
  }

  /// Gives rows to the keys of this batch that have earned one.
  void admit(std::uint32_t step, bool report_keys, VocabularyChanges& changes) {
    newcomers_.clear();
    std::uint32_t most = 0;
    for (std::size_t t = 0; t < touched_.size(); ++t) {
      if (touched_[t].row != kShared) continue;
      const SeenKey key = seen(touched_[t].key, touched_[t].count, step, step);
      if (!policy_.admits(key)) continue;
      newcomers_.push_back({policy_.score(key), t});
      most = std::max(most, newcomers_.back().score);
    }
    const std::int64_t wanted = std::ssize(newcomers_);
    if (wanted > vacant() || (!policy_.steady() && step % kVocabularySweep == 0))
      make_room(wanted - vacant(), most, step, report_keys, changes);
    if (wanted > vacant())
      std::stable_sort(newcomers_.begin(), newcomers_.end(),
                       [](const Newcomer& a, const Newcomer& b) { return a.score > b.score; });
    newcomers_.resize(static_cast<std::size_t>(std::min(wanted, vacant())));
    for (const Newcomer& newcomer : newcomers_) {
      std::int32_t row;
      if (free_.empty()) {
        row = static_cast<std::int32_t>(used_++);
      } else {
        row = free_.back();
        free_.pop_back();
        changes.reused.push_back({table_, begin_ + row});
      }
      Touched& touched = touched_[newcomer.touched];
      if (report_keys) changes.given.push_back({table_, begin_ + row, touched.key});
      touched.row = slots_[slot_of(touched.key)].row = row;
      --candidates_;
      least_ = std::min(least_, newcomer.score);
    }
  }

  std::int64_t vacant() const { return std::ssize(free_) + rows_ - used_; }

  /// Takes rows away, those of score 0 and as many as are needed: a sixteenth of the block at once,
  /// so that the search through the block is worth its time.
  void make_room(std::int64_t shortage, std::uint32_t most, std::uint32_t step, bool report_keys,
                 VocabularyChanges& changes) {
    if (policy_.steady() && most <= least_) return;  // no key has a lower score
    std::uint32_t least = std::numeric_limits<std::uint32_t>::max();
    std::size_t worthless = 0;
    victims_.clear();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      if (slot.row < 0) continue;
      const std::uint32_t score = policy_.score(seen(slot.key, slot.count, slot.step, step));
      least = std::min(least, score);
      if (slot.step == step || (score != 0 && (score >= most || shortage <= 0))) continue;
      victims_.push_back({score, i});
      worthless += score == 0;
    }
    const auto wanted =
        std::max(worthless, shortage > 0 ? static_cast<std::size_t>(std::max(shortage, rows_ / 16))
                                         : std::size_t{0});
    if (victims_.size() > wanted) {
      const auto rank = [&](const Victim& v) {
        const Slot& s = slots_[v.slot];
        return std::tuple(v.score, s.step, s.count, s.row);
      };
      std::nth_element(victims_.begin(), victims_.begin() + static_cast<std::ptrdiff_t>(wanted),
                       victims_.end(),
                       [&](const Victim& a, const Victim& b) { return rank(a) < rank(b); });
      victims_.resize(wanted);
    }
    for (const Victim& v : victims_) {
      Slot& slot = slots_[v.slot];
      if (report_keys) changes.evicted.push_back({table_, begin_ + slot.row, slot.key});
      free_.push_back(std::exchange(slot.row, kShared));
    }
    candidates_ += std::ssize(victims_);
    std::sort(free_.begin(), free_.end(), std::greater());  // the lowest is taken first
    // a lower bound from here on, whichever key was evicted
    least_ = least;
  }

  /// Halves the counts of keys without a row, and drops those that reach 0, until half as many are
  /// left.
  void forget() {
    while (2 * candidates_ > std::max(rows_, kLeastVocabularyCandidates)) {
      std::int64_t left = 0;
      for (Slot& slot : slots_)
        if (slot.row == kShared) left += (slot.count /= 2) != 0;
      size_ -= static_cast<std::size_t>(candidates_ - left);
      candidates_ = left;
      rebuild(slots_.size(), [](const Slot& slot) { return slot.count != 0; });
    }
  }

  struct Newcomer {
    std::uint32_t score;
    std::size_t touched;
  };
  struct Victim {
    std::uint32_t score;
    std::size_t slot;
  };

  std::int64_t table_, begin_, rows_;
  KeyPolicy<Own> policy_;
  std::uint64_t policy_seed_;
  std::uint64_t seed_ = secret_vocabulary_seed();
  std::vector<Slot> slots_ = std::vector<Slot>(64);
  std::size_t size_ = 0;            // keys
  std::int64_t candidates_ = 0;     // of them, without a row
  std::int64_t used_ = 0;           // rows [0, used_) were given out at some time
  std::vector<std::int32_t> free_;  // of those, without a key now; descending
  std::uint32_t least_ = 0;         // no key with a row has a lower score, if scores never fall
  // the distinct keys of a batch, in the order of their first places
  std::vector<Touched> touched_;
  std::vector<Newcomer> newcomers_;
  std::vector<Victim> victims_;
};

}}}  // namespace tessera::v0::detail
