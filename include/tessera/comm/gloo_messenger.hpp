// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/call_record.hpp>
#include <tessera/comm/deadline.hpp>
#include <tessera/comm/gloo_connections.hpp>
#include <tessera/comm/gloo_device.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// How ranks find each other: gives this rank's bytes to all ranks and returns those of all, in
/// rank order. Called once.
using GlooMeeting = std::function<std::vector<std::string>(std::string mine)>;

namespace detail {

/// Messages between processes over Gloo's TCP connections, with waits that end: when all is there,
/// when a peer closes its connection, or when nothing comes for too long. Each two ranks have two
/// connections: one for data, and one on which a rank says why it closes the first, and that it
/// waits, if asked. A failure ends a messenger for good: it tells all peers, closes the data's
/// connections, so that no byte comes any more, and later calls throw the same.
class GlooMessenger final : public CallRecord {
 public:
  /// Connects this rank with all others, whose addresses `meet` brings. `lost`, if given, returns
  /// whether a rank of the whole is gone.
  GlooMessenger(std::shared_ptr<GlooDevice> device, const GlooOptions& options, int rank, int size,
                const GlooMeeting& meet, const std::function<bool()>& lost)
      : device_(std::move(device)),
        options_(options),
        rank_(rank),
        size_(size),
        peers_(static_cast<std::size_t>(size)),
        data_(std::make_shared<GlooConnections>(device_->device(), rank, size,
                                                options.connect_timeout)),
        words_(std::make_shared<GlooConnections>(device_->device(), rank, size,
                                                 options.connect_timeout)) {
    set_size(size);
    device_->add(wait_);
    try {
      if (size > 1) connect(meet(own_addresses()), lost);
    } catch (...) {
      device_->remove(wait_);
      close();
      throw;
    }
    join();
  }
  ~GlooMessenger() {
    leave();
    device_->remove(wait_);
    close();
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::shared_ptr<GlooDevice>& device() const { return device_; }
  const GlooOptions& options() const { return options_; }
  /// Adds a messenger of some of these ranks, which hears of it when a rank of this one fails.
  void add_part(std::shared_ptr<GlooMessenger> part) {
    const std::lock_guard lock(ending_);
    parts_.push_back(std::move(part));
  }

  /// Returns whether a peer has closed its connection.
  bool closed(int peer) const {
    return GlooWait::closed(*peers_[static_cast<std::size_t>(peer)].never);
  }

  /// Returns whether any peer has.
  bool any_closed() const {
    bool any = false;
    data_->for_each_peer([&](int peer) { any = any || closed(peer); });
    return any;
  }
  /// Throws what any peer says that closes its connection soon, as one does that could not make a
  /// part: the whole numbers ranks as the caller does.
  void check_peers() {
    for (const auto deadline = Clock::now() + std::chrono::milliseconds(500);
         Clock::now() < deadline; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      data_->for_each_peer([&](int peer) {
        if (closed(peer)) lose(peer);
      });
  }

  /// Ends all connections. A peer that still waits for this rank then names it.
  void close() noexcept {
    data_->close();
    words_->close();
  }

  /// Starts the next call of a collective and returns its number. Throws CommunicatorError if a
  /// rank has failed.
  std::uint64_t begin_call(Collective collective) { return count_call(collective, rank_); }

  /// Forgets the messages of the last wait.
  void begin_transfers() { transfers_.clear(); }

  /// Posts a message, to be waited for; `bytes` stay in use until then. Tags, 1 and 2, keep kinds
  /// of messages apart.
  void send(int peer, std::span<const std::byte> bytes, int tag) {
    post(peer, {const_cast<std::byte*>(bytes.data()), bytes.size()}, tag, false);
  }
  void receive(int peer, std::span<std::byte> bytes, int tag) { post(peer, bytes, tag, true); }

  /// Waits for all posted messages; ends early when a peer that has still to send or to take some
  /// is gone, or when nothing comes for too long.
  void wait() {
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      LateWait wait;
      while (!transfers_[i].done)
        if (!finish(transfers_[i])) check_wait(i, wait);
    }
  }

  /// Ends all ranks' calls because of `rank_at_fault`. This rank is to throw next.
  void announce(int rank_at_fault, const std::string& text) noexcept {
    stop({rank_at_fault, false, text});
  }

  /// Tells all peers, here and in the parts, that this rank has failed: their waits end with a
  /// CommunicatorError that carries `text`. Any thread may call it.
  void fail(const std::string& text) noexcept {
    {
      const std::lock_guard lock(ending_);
      if (ended_) return;
      ended_ = true;
      farewell_ = FailureMessage(rank_, true, text);
      tell(farewell_, kEndSlot);
    }
    stop(farewell_);
    for (const auto& part : parts_) part->fail(text);
  }

  /// Waits until every peer has called `fail` too, or is gone, or for `time` at most.
  void await_failures_of_peers(std::chrono::nanoseconds time) noexcept {
    const auto deadline = deadline_after(time);
    words_->for_each_peer([&](int peer) {
      Peer& other = peer_of(peer);
      while (other.end != nullptr && !other.end_known && Clock::now() < deadline) {
        try {
          if (!wait_.wait(*other.end, true)) continue;
          record_end(other.end_message);
        } catch (const std::exception&) {
        }
        other.end_known = true;
      }
    });
  }

  /// Returns whether a peer before this rank is known to have called `fail` with the same text.
  bool told_by_lower_rank(const std::string& text) const { return told_below(rank_, text); }

 private:
  using Clock = std::chrono::steady_clock;
  using Buffer = GlooConnections::Buffer;
  /// Slots of the words' connections, and of the message that never comes.
  static constexpr std::uint64_t kReasonSlot = 1, kEndSlot = 2, kWordSlot = 3, kNeverSlot = 0;
  static constexpr int kConnectedTag = 3;
  static constexpr std::string_view kGreeting = "tessera gloo 1";

  struct Transfer {
    int peer = -1;
    bool receive = false;
    bool done = false;
    Buffer buffer;
  };

  struct Peer {
    FailureMessage reason_message, end_message;
    std::byte word{}, nothing{};
    Buffer reason, end, heard, never;  // receives of the three, and of what never comes
    bool end_known = false;
  };
  Peer& peer_of(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

  std::string greeting(int rank) const {
    return formatted("{}: rank {} of {}\n", kGreeting, rank, size_);
  }

  /// Returns what this rank brings to the meeting: for each peer where it listens for it.
  std::string own_addresses() {
    std::string all = greeting(rank_);
    data_->for_each_peer([&](int peer) {
      for (GlooConnections* connections : {data_.get(), words_.get()}) {
        const std::vector<char> address = connections->address_for(peer);
        all.append(address.data(), address.size());
      }
    });
    return all;
  }

  void connect(const std::vector<std::string>& brought, const std::function<bool()>& lost) {
    if (brought.size() != static_cast<std::size_t>(size_))
      throw CommunicatorError(
          -1, "meeting",
          formatted("rank {}: {} ranks have met, but there are {}", rank_, brought.size(), size_));
    const std::size_t bytes = data_->address_for(rank_ == 0 ? 1 : 0).size();
    std::string own, reached;  // where only a rank's machine reaches it, and where others do
    int alone = -1;
    for (int rank = 0; rank < size_; ++rank) {
      const std::string& theirs = brought[static_cast<std::size_t>(rank)];
      const std::string head = greeting(rank);
      if (theirs.size() != head.size() + static_cast<std::size_t>(size_ - 1) * 2 * bytes ||
          !theirs.starts_with(head))
        throw CommunicatorError(
            rank, "meeting",
            formatted("rank {}: what rank {} brought to the meeting begins with '{}', not with "
                      "'{}': it has another rank, number of ranks or version",
                      rank_, rank, theirs.substr(0, std::min(theirs.find('\n'), std::size_t{60})),
                      head.substr(0, head.size() - 1)));
      const std::string place = gloo_place(theirs.substr(head.size(), bytes));
      const bool loopback = place.starts_with("[127.") || place.starts_with("[::1]");
      if (loopback) alone = rank;
      (loopback ? own : reached) = place;
    }
    if (!own.empty() && !reached.empty())
      throw CommunicatorError(
          alone, "meeting",
          formatted("rank {} listens at {}, an address of its machine alone, but others at {}: "
                    "set GlooOptions::address or interface on each rank to what all reach",
                    alone, own, reached));
    const auto attempts = std::make_shared<Attempts>(size_);
    data_->for_each_peer([&](int peer) {
      const std::string& theirs = brought[static_cast<std::size_t>(peer)];
      const auto address = [&](std::size_t which) {
        const auto* const at =
            theirs.data() + greeting(peer).size() +
            (static_cast<std::size_t>(rank_ < peer ? rank_ : rank_ - 1) * 2 + which) * bytes;
        return std::vector<char>(at, at + bytes);
      };
      std::thread([attempts, peer, device = device_, data = data_, words = words_,
                   at_data = address(0), at_words = address(1)] {
        try {
          data->connect(peer, at_data);
          words->connect(peer, at_words);
          attempts->end(peer, "");
        } catch (const std::exception& error) {
          attempts->end(peer, gloo_text(error));
        }
      }).detach();
    });
    await(*attempts, lost);
    // When all say so, all have connected: who leaves from now on is heard.
    std::vector<std::byte> there(static_cast<std::size_t>(size_));
    const auto byte_of = [&](int peer) {
      return std::span(there).subspan(static_cast<std::size_t>(peer), 1);
    };
    data_->for_each_peer([&](int peer) { receive(peer, byte_of(peer), kConnectedTag); });
    data_->for_each_peer([&](int peer) { send(peer, byte_of(rank_), kConnectedTag); });
    wait();
  }

  /// What threads that connect, one for each peer, tell this one. They may outlive the messenger.
  struct Attempts {
    explicit Attempts(int size)
        : connected(static_cast<std::size_t>(size)), faults(static_cast<std::size_t>(size)) {}
    void end(int peer, const std::string& fault) {
      const std::lock_guard lock(mutex);
      connected[static_cast<std::size_t>(peer)] = fault.empty();
      faults[static_cast<std::size_t>(peer)] = fault;
    }
    std::mutex mutex;
    std::vector<bool> connected;
    std::vector<std::string> faults;
  };

  /// Waits until all have connected. If one fails the others get some time, to hear why.
  void await(Attempts& attempts, const std::function<bool()>& lost) {
    std::string fault;
    for (Clock::time_point since{};;) {
      bool all = true;
      int gone = lost && lost() ? rank_ : -1;
      data_->for_each_peer([&](int peer) {
        const std::lock_guard lock(attempts.mutex);
        const auto at = static_cast<std::size_t>(peer);
        std::string& said = attempts.faults[at];
        Peer& other = peer_of(peer);
        try {
          if (attempts.connected[at] && other.never == nullptr) listen(peer);
        } catch (const std::exception& error) {
          said = gloo_text(error);
        }
        all = all && (other.never != nullptr || !said.empty());
        if (gone < 0 && (!said.empty() || (other.never != nullptr && closed(peer)))) {
          gone = peer;
          fault = said;
        }
      });
      if (all && gone < 0) return;
      if (gone >= 0 && since == Clock::time_point()) since = Clock::now();
      if (gone >= 0 && (all || Clock::now() - since > std::chrono::milliseconds(300)))
        give_up_on(gone, fault);
      answer();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  [[noreturn]] void give_up_on(int gone, const std::string& fault) {
    if (gone == rank_) {
      announce(rank_, "the ranks that it is a part of have lost one");
    } else if (peer_of(gone).never != nullptr) {
      lose(gone);
    } else {
      announce(gone, formatted("rank {} has met it but cannot connect to it: {}; is its process "
                               "alive, and does every rank listen at an address that the others "
                               "reach?",
                               rank_, fault));
    }
    give_up();
  }

  /// Posts what a peer may say one day.
  void listen(int peer) {
    Peer& other = peer_of(peer);
    const auto bytes = [](auto& value) { return std::as_writable_bytes(std::span(&value, 1)); };
    other.reason = words_->post(peer, bytes(other.reason_message), kReasonSlot, true);
    other.end = words_->post(peer, bytes(other.end_message), kEndSlot, true);
    other.heard = words_->post(peer, bytes(other.word), kWordSlot, true);
    other.never = data_->post(peer, {&other.nothing, 1}, kNeverSlot, true);
  }

  void post(int peer, std::span<std::byte> bytes, int tag, bool receive) {
    for_each_piece(bytes, options_.max_message_bytes, [&](std::span<std::byte> piece) {
      try {
        transfers_.push_back(
            {.peer = peer,
             .receive = receive,
             .buffer = data_->post(peer, piece, static_cast<std::uint64_t>(tag), receive)});
      } catch (const std::exception&) {
        lose(peer);
      }
    });
  }

  /// Waits for a message, which has not been taken yet, until it is there, or until woken.
  bool finish(Transfer& transfer) {
    try {
      transfer.done = wait_.wait(*transfer.buffer, transfer.receive);
    } catch (const std::exception&) {
      lose(transfer.peer);
    }
    return transfer.done;
  }
  /// Returns whether a message is there, surely so after many wake-ups.
  bool finished(Transfer& transfer, int wakeups) {
    for (; !transfer.done && wakeups > 0; --wakeups) finish(transfer);
    return transfer.done;
  }

  /// Looks, when woken, for what ends the wait for transfer `at`.
  void check_wait(std::size_t at, LateWait& wait) {
    if (failed()) give_up();  // another thread has called `fail`
    if (interrupted()) {
      announce(rank_, interruption_text());
      give_up();
    }
    // A peer that this wait is not for may have failed just after this call, for which it has sent
    // all: then this rank finishes it, too.
    data_->for_each_peer([&](int peer) {
      if (std::atomic_ref(peer_of(peer).reason_message.text[0]).load() == 0) return;
      if (told_since_ == Clock::time_point()) told_since_ = Clock::now();
      if (Clock::now() - told_since_ > std::chrono::milliseconds(100)) lose(peer);
    });
    // Gloo tells neither of a message that is half sent or half received.
    for (std::size_t i = at; i < transfers_.size(); ++i)
      if (!transfers_[i].done && closed(transfers_[i].peer) && !finished(transfers_[i], 8))
        lose(transfers_[i].peer);
    answer();
    const std::vector<int> late = given_up(wait, options_.timeout, [&] {
      std::vector<int> peers;
      for (std::size_t i = at; i < transfers_.size(); ++i)
        if (!finished(transfers_[i], wait.verdicts == 0 ? 0 : 2))  // to ask needs no certainty
          peers.push_back(transfers_[i].peer);
      return peers;
    });
    if (late.empty()) return;
    announce(late.front(), late_text(rank_, options_.timeout, late, wait, "GlooOptions::timeout"));
    give_up();
  }

  void hear() noexcept override {
    words_->for_each_peer([&](int peer) {
      Peer& other = peer_of(peer);
      if (std::atomic_ref(other.word).load() == std::byte{}) return;  // Gloo can only wait for it
      try {
        GlooWait::take(*other.heard);
        take_word(peer, std::exchange(other.word, {}));
        other.heard = words_->post(peer, {&other.word, 1}, kWordSlot, true);
      } catch (const std::exception&) {  // the peer is gone
        other.word = {};
      }
    });
  }
  void say(int peer, const std::byte& word) noexcept override {
    const std::lock_guard lock(ending_);
    tell(peer, std::span(&word, 1), kWordSlot);
  }

  /// Gives up because a peer's connection is closed; the peer has said before why.
  [[noreturn]] void lose(int peer) {
    Peer& other = peer_of(peer);
    FailureMessage why(peer, false,
                       "it closed its connections and does not say why: its process has ended, or "
                       "was killed");
    const auto deadline = Clock::now() + std::chrono::seconds(1);
    try {
      while (!failed() && Clock::now() < deadline)
        if (wait_.wait(*other.reason, true)) {
          why = other.reason_message;
          break;
        }
    } catch (const std::exception&) {  // it is gone
    }
    why.ended = false;
    stop(why);
    give_up();
  }
  [[noreturn]] void give_up() const { throw failure_error(rank_); }

  /// Keeps the first failure, tells all peers and closes the data's connections.
  void stop(const FailureMessage& why) noexcept {
    {
      const std::lock_guard lock(ending_);
      if (failed()) return;
      record(why);
      reason_ = why;
      tell(reason_, kReasonSlot);
    }
    data_->close();
  }

  /// Sends a message, which must not change, to all peers that are there.
  void tell(const FailureMessage& message, std::uint64_t slot) noexcept {
    words_->for_each_peer(
        [&](int peer) { tell(peer, std::as_bytes(std::span(&message, 1)), slot); });
  }
  void tell(int peer, std::span<const std::byte> bytes, std::uint64_t slot) noexcept {
    if (peer_of(peer).never == nullptr) return;  // not connected
    try {
      told_.push_back(
          words_->post(peer, {const_cast<std::byte*>(bytes.data()), bytes.size()}, slot, false));
    } catch (const std::exception&) {
    }
  }

  std::shared_ptr<GlooDevice> device_;
  GlooOptions options_;
  int rank_, size_;
  std::vector<Peer> peers_;  // outlives the connections, which write into it
  GlooWait wait_;
  std::mutex ending_;  // guards what follows
  bool ended_ = false;
  FailureMessage reason_, farewell_;
  std::vector<std::shared_ptr<GlooMessenger>> parts_;
  std::shared_ptr<GlooConnections> data_, words_;
  std::vector<Transfer> transfers_;
  std::vector<Buffer> told_;
  Clock::time_point told_since_{};  // when the first failure of a peer was seen
};

}  // namespace detail

}}  // namespace tessera::v0
