// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// What ranks that are processes tell each other of a failure.
struct FailureMessage {
  int rank = -1;       ///< the one at fault
  bool ended = false;  ///< the sender makes no further call
  char text[1000] = {};

  FailureMessage() = default;
  FailureMessage(int rank_at_fault, bool ends, const std::string& why)
      : rank(rank_at_fault), ended(ends) {
    const std::string_view shown =
        why.empty() ? std::string_view("no reason given") : std::string_view(why);
    text[shown.copy(text, sizeof(text) - 1)] = 0;
  }
};

/// What a messenger knows of its calls and of what ended them: the base of MpiMessenger and
/// GlooMessenger, which have the same errors.
class CallRecord {
 public:
  /// Returns whether a failure has ended this: the first one, for good.
  bool failed() const { return failed_.load(); }

  /// Makes the thread that waits, or will, give up and say why; any thread may call it.
  void interrupt(const std::string& text) {
    const std::lock_guard lock(interrupting_);
    if (interrupted_.load()) return;
    interruption_ = text;
    interrupted_.store(true);
  }

  /// Returns the number of the last call; to be set back after calls that are not the user's.
  std::uint64_t calls() const { return calls_; }
  void recount(std::uint64_t calls) { calls_ = calls; }

 protected:
  /// Counts a call and returns its number. Throws CommunicatorError if a rank has failed.
  std::uint64_t count_call(Collective collective, int rank) {
    collective_ = collective;
    ++calls_;
    if (failed()) throw failure_error(rank);
    return calls_;
  }

  /// Keeps the first failure.
  void record(const FailureMessage& failure) noexcept {
    const std::lock_guard lock(recording_);
    if (failed_.load()) return;
    failure_ = failure;
    failed_.store(true);
  }
  FailureMessage failure() const noexcept {
    const std::lock_guard lock(recording_);
    return failure_;
  }

  /// Peers that have said that they make no further call.
  const std::vector<FailureMessage>& ended_peers() const { return ended_peers_; }
  void reserve_ends(int ranks) { ended_peers_.reserve(static_cast<std::size_t>(ranks)); }
  void record_end(const FailureMessage& message) noexcept { ended_peers_.push_back(message); }
  /// Returns whether a peer before `rank` is known to have ended with this text.
  bool told_below(int rank, const std::string& text) const {
    const FailureMessage own(rank, true, text);
    return std::any_of(ended_peers_.begin(), ended_peers_.end(), [&](const FailureMessage& other) {
      return other.rank < rank && std::string_view(other.text) == std::string_view(own.text);
    });
  }

  bool interrupted() const { return interrupted_.load(); }
  std::string interruption_text() const { return "it was interrupted: " + interruption_; }

  CommunicatorError failure_error(int rank) const {
    const FailureMessage why = failure();
    return {why.rank, name_of(collective_),
            fmt::format("{} on rank {} cannot finish: rank {} failed: {}", this_call(), rank,
                        why.rank, why.text)};
  }

  /// Returns what to tell of the sorted `late` peers. `option` is the timeout's name.
  std::string late_text(int rank, std::chrono::nanoseconds timeout, const std::vector<int>& late,
                        std::string_view option) const {
    std::string names;
    for (const int peer : late) names += fmt::format("{}{}", names.empty() ? "" : ", ", peer);
    return fmt::format(
        "late: rank {} waited {} ms in {} for rank(s) {}; it may be dead, or raise {}", rank,
        std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(), this_call(), names,
        option);
  }
  /// Sorts ranks, each once, and returns the first.
  static int sort_ranks(std::vector<int>& ranks) {
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks.front();
  }

  /// Calls `post` for each piece of at most `most` bytes.
  template <class Bytes, class Post>
  static void for_each_piece(Bytes bytes, std::size_t most, Post post) {
    for (std::size_t at = 0; at < bytes.size(); at += most)
      post(bytes.subspan(at, std::min(most, bytes.size() - at)));
  }

 private:
  std::string this_call() const {
    return calls_ == 0 ? std::string("connecting")
                       : fmt::format("{} (call {})", name_of(collective_), calls_);
  }

  std::uint64_t calls_ = 0;
  Collective collective_ = Collective::none;  // of the current call
  mutable std::mutex recording_;
  FailureMessage failure_;  // complete once this is true:
  std::atomic<bool> failed_{false};
  std::vector<FailureMessage> ended_peers_;
  std::mutex interrupting_;
  std::string interruption_;  // complete once this is true:
  std::atomic<bool> interrupted_{false};
};

}}}  // namespace tessera::v0::detail
