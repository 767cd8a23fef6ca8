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
#include <utility>
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

/// What a messenger knows of its calls, of what ended them, and of peers that are late: the base of
/// MpiMessenger and GlooMessenger, which have the same errors.
class CallRecord {
 public:
  CallRecord(const CallRecord&) = delete;
  CallRecord& operator=(const CallRecord&) = delete;

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
  CallRecord() = default;
  ~CallRecord() = default;

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
  void set_size(int ranks) {
    ended_peers_.reserve(static_cast<std::size_t>(ranks));
    waits_.resize(static_cast<std::size_t>(ranks));
  }
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

  // A rank can be late because it waits itself, in this messenger or in another, for one that is
  // silent, and then has a name for it when its own time is up. So a rank asks those that it has
  // waited for too long whether they wait. A thread that waits answers for its whole process.

  /// A wait that may last too long. Its time is that between looks, of each a quarter of a second
  /// at most: a rank that is stopped, or its machine, does not wait.
  struct LateWait {
    std::chrono::steady_clock::time_point looked = std::chrono::steady_clock::now();
    std::chrono::nanoseconds lasted{};
    int verdicts = 0;  // 1: peers are asked; 2: the silent ones are named; 3: all are
  };
  static constexpr std::byte kAsks{1}, kWaits{2};

  /// Sends a word, which does not change, to a peer.
  virtual void say(int /*peer*/, const std::byte& /*word*/) noexcept {}
  /// Calls take_word for what peers have said. Another thread than the messenger's may call it.
  virtual void hear() noexcept {}
  void take_word(int peer, std::byte word) noexcept {
    if (word == kAsks) say(peer, kWaits);
    if (word == kWaits) waits_[static_cast<std::size_t>(peer)] = true;
  }
  /// Begins and ends what the next does for a messenger.
  void join() {
    const std::lock_guard lock(joining());
    joined().push_back(this);
  }
  void leave() {
    const std::lock_guard lock(joining());
    std::erase(joined(), this);
  }
  /// Answers peers of all messengers of this process, in which the calling thread waits.
  static void answer() noexcept {
    const std::lock_guard lock(joining());
    for (CallRecord* const messenger : joined()) messenger->hear();
  }

  /// Returns the peers on which a wait is to give up now, sorted; none: go on. They are those of
  /// `late()` that have not said within a second that they wait, or, if all have, those whose own
  /// time must be up, too. `timeout` 0: never.
  template <class Late>
  std::vector<int> given_up(LateWait& wait, std::chrono::nanoseconds timeout, Late late) {
    const std::chrono::nanoseconds answered = timeout + std::chrono::seconds(1);
    const std::chrono::nanoseconds limits[] = {timeout, answered, 2 * answered};
    const auto now = std::chrono::steady_clock::now();
    wait.lasted += std::min<std::chrono::nanoseconds>(now - std::exchange(wait.looked, now),
                                                      std::chrono::milliseconds(250));
    if (timeout.count() == 0 || wait.lasted < limits[std::min(wait.verdicts, 2)]) return {};
    std::vector<int> peers = late();
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    const std::lock_guard lock(joining());
    if (wait.verdicts == 1)
      std::erase_if(peers, [&](int peer) { return waits_[static_cast<std::size_t>(peer)]; });
    if (++wait.verdicts > 1) return peers;
    for (const int peer : peers) {
      waits_[static_cast<std::size_t>(peer)] = false;
      say(peer, kAsks);
    }
    return {};
  }

  CommunicatorError failure_error(int rank) const {
    const FailureMessage why = failure();
    return {why.rank, name_of(collective_),
            formatted("{} on rank {} cannot finish: rank {} failed: {}", this_call(), rank,
                      why.rank, why.text)};
  }

  /// Returns what to tell of the `late` peers. `option` is the timeout's name.
  std::string late_text(int rank, std::chrono::nanoseconds timeout, const std::vector<int>& late,
                        const LateWait& wait, std::string_view option) const {
    std::string names;
    for (const int peer : late) names += formatted("{}{}", names.empty() ? "" : ", ", peer);
    return formatted(
        "late: rank {} waited {} ms in {} for rank(s) {}; {}, or raise {}", rank,
        std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(), this_call(), names,
        wait.verdicts < 3 ? "it may be dead" : "it waits, too: call in one order on all ranks",
        option);
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
                       : formatted("{} (call {})", name_of(collective_), calls_);
  }

  static std::mutex& joining() {
    static std::mutex mutex;
    return mutex;
  }
  /// Returns the messengers of this process. Guarded, as are their words, by `joining`.
  static std::vector<CallRecord*>& joined() {
    static std::vector<CallRecord*> messengers;
    return messengers;
  }

  std::uint64_t calls_ = 0;
  Collective collective_ = Collective::none;  // of the current call
  mutable std::mutex recording_;
  FailureMessage failure_;  // complete once this is true:
  std::atomic<bool> failed_{false};
  std::vector<FailureMessage> ended_peers_;
  std::vector<bool> waits_;  // peers that have said so since they were asked
  std::mutex interrupting_;
  std::string interruption_;  // complete once this is true:
  std::atomic<bool> interrupted_{false};
};

}}}  // namespace tessera::v0::detail
