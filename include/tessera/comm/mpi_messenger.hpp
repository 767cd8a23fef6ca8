// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/call_record.hpp>
#include <tessera/comm/deadline.hpp>
#include <tessera/comm/mpi_environment.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// How long a rank waits, and how large a message may be.
struct MpiOptions {
  /// How long a rank waits without any message from a peer before it gives up and names the peer,
  /// unless that waits, too, which it is asked and has a second to say. Zero: for ever.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  /// Larger blocks travel in pieces of this many bytes (MPI counts in int).
  std::size_t max_message_bytes = std::size_t{1} << 30;
  /// `run_mpi_rank`: how long a rank that failed waits for its peers to say so too before it ends
  /// the job.
  std::chrono::nanoseconds grace = std::chrono::seconds(2);
};

namespace detail {

/// Where the ranks of an MPI communicator tell each other that they have failed. That of a part
/// lives on in what it was split from, so that a rank whose part is gone can still tell those that
/// wait in theirs. Any thread may call it.
class MpiFailureChannel {
 public:
  using Message = FailureMessage;

  /// Duplicates `user`: a collective call of its ranks.
  explicit MpiFailureChannel(MPI_Comm user) {
    require_mpi(MPI_Comm_dup(user, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  MpiFailureChannel(const MpiFailureChannel&) = delete;
  MpiFailureChannel& operator=(const MpiFailureChannel&) = delete;
  ~MpiFailureChannel() {
    if (!MpiEnvironment::finalized()) MPI_Comm_free(&comm_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Sends `message`, which must not change, to all peers. Small messages: MPI takes them
  /// without a receiver.
  void tell(const Message& message) noexcept {
    for (int peer = 0; peer < size_; ++peer) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (peer != rank_)
        MPI_Isend(&message, sizeof(Message), MPI_BYTE, peer, kTag, comm_, &request);
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }
  /// Returns whether a peer's message was there.
  bool receive(Message& message) noexcept {
    int arrived = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &arrived, &status);
    if (arrived != 0)
      MPI_Recv(&message, sizeof(message), MPI_BYTE, status.MPI_SOURCE, kTag, comm_,
               MPI_STATUS_IGNORE);
    return arrived != 0;
  }

  /// Sends a word, which must not change, to a peer.
  void say(int peer, const std::byte& word) noexcept {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(&word, 1, MPI_BYTE, peer, kWordTag, comm_, &request);
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
  /// Returns the peer whose word was there, or -1.
  int hear(std::byte& word) noexcept {
    int arrived = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kWordTag, comm_, &arrived, &status);
    if (arrived == 0) return -1;
    MPI_Recv(&word, 1, MPI_BYTE, status.MPI_SOURCE, kWordTag, comm_, MPI_STATUS_IGNORE);
    return status.MPI_SOURCE;
  }

  /// Tells all peers, here and in the parts, that this rank makes no further call.
  void end(const std::string& text) noexcept {
    const std::lock_guard lock(mutex_);
    if (ending_.ended) return;
    ending_ = Message(rank_, true, text);
    tell(ending_);
    for (const auto& part : parts_) part->end(text);
  }
  void add_part(std::shared_ptr<MpiFailureChannel> part) {
    const std::lock_guard lock(mutex_);
    parts_.push_back(std::move(part));
  }

 private:
  static constexpr int kTag = 1, kWordTag = 2;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::mutex mutex_;  // guards what follows
  Message ending_;
  std::vector<std::shared_ptr<MpiFailureChannel>> parts_;
};

/// Messages between the ranks of an MPI communicator, with waits that end: when all is there, when
/// a peer says that it has failed, or when nothing comes for too long. A failure ends it for good:
/// all peers are told, and later calls throw the same.
class MpiMessenger final : public CallRecord {
 public:
  /// Duplicates `user`: a collective call of its ranks.
  MpiMessenger(MPI_Comm user, MpiOptions options)
      : options_(options), faults_(std::make_shared<MpiFailureChannel>(user)) {
    require(options.max_message_bytes >= 1 && options.max_message_bytes <= std::size_t{1} << 30,
            "MpiOptions: max_message_bytes must be in 1..2^30, is {}", options.max_message_bytes);
    set_size(size());
    require_mpi(MPI_Comm_dup(user, &data_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
    join();
  }
  /// Ends a messenger that must not have failed: MPI may then hold its buffers still.
  ~MpiMessenger() {
    leave();
    if (!MpiEnvironment::finalized()) MPI_Comm_free(&data_);
  }

  int rank() const { return faults_->rank(); }
  int size() const { return faults_->size(); }
  MPI_Comm communicator() const { return data_; }
  /// Adds a messenger of some of these ranks, which hears of it when a rank of this one fails.
  void add_part(const MpiMessenger& part) { faults_->add_part(part.faults_); }
  const MpiOptions& options() const { return options_; }

  /// Starts the next call of a collective and returns its number. Throws CommunicatorError if a
  /// rank has failed.
  std::uint64_t begin_call(Collective collective) {
    // Twice: a probe may say no and only then fetch what has come meanwhile.
    static_cast<void>(receive_failure() || receive_failure());
    return count_call(collective, rank());
  }

  /// Forgets the messages of the last wait.
  void begin_transfers() {
    requests_.clear();
    transfers_.clear();
  }

  /// Posts a message, to be waited for; `bytes` stay in use until then. Tags keep kinds of messages
  /// apart.
  void send(int peer, std::span<const std::byte> bytes, int tag) {
    for_each_piece(bytes, options_.max_message_bytes,
                   [&](std::span<const std::byte> piece) { send_piece(peer, piece, tag); });
  }
  void receive(int peer, std::span<std::byte> bytes, int tag) {
    for_each_piece(bytes, options_.max_message_bytes,
                   [&](std::span<std::byte> piece) { receive_piece(peer, piece, tag); });
  }

  /// Waits for all posted messages; ends early when a peer announces a failure or nothing comes for
  /// too long.
  void wait() {
    finished_.resize(requests_.size());
    statuses_.resize(requests_.size());
    LateWait idle_wait;
    Clock::time_point failed_since;
    for (std::size_t pending = requests_.size(), idle = 0; pending > 0;) {
      int count = 0;
      const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                    finished_.data(), statuses_.data());
      if (code == MPI_ERR_IN_STATUS) {
        for (int i = 0; i < count; ++i)
          check_transfer(
              statuses_[static_cast<std::size_t>(i)].MPI_ERROR,
              transfers_[static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)])].peer);
      } else {
        check_transfer(code, -1);
      }
      if (count > 0) {
        pending -= static_cast<std::size_t>(count);
        idle = 0;
      } else {
        if (++idle == 1) idle_wait = {};
        if (idle >= 64) wait_idly(idle_wait, failed_since);
      }
    }
  }

  /// Ends all ranks' calls because of `rank_at_fault`. This rank is to throw next.
  void announce(int rank_at_fault, const std::string& text) noexcept {
    announcement_ = Message(rank_at_fault, false, text);
    record(announcement_);
    faults_->tell(announcement_);
  }

  /// Tells all peers that this rank has failed: their waits end with a CommunicatorError that
  /// carries `text`.
  void fail(const std::string& text) noexcept {
    record(Message(rank(), true, text));
    faults_->end(text);
  }

  /// Waits until every peer has called `fail` too, or for `time` at most.
  void await_failures_of_peers(std::chrono::nanoseconds time) noexcept {
    const auto deadline = deadline_after(time);
    while (std::ssize(ended_peers()) + 1 < size() && Clock::now() < deadline)
      if (!receive_failure()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// Returns whether a peer before this rank is known to have called `fail` with the same text.
  bool told_by_lower_rank(const std::string& text) const { return told_below(rank(), text); }

 private:
  using Clock = std::chrono::steady_clock;
  using Message = MpiFailureChannel::Message;

  struct Transfer {
    int peer = -1;
    bool receive = false;
  };

  void send_piece(int peer, std::span<const std::byte> bytes, int tag) {
    MPI_Request& request = begin_transfer({.peer = peer, .receive = false});
    check_transfer(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer, tag,
                             data_, &request),
                   peer);
  }
  void receive_piece(int peer, std::span<std::byte> bytes, int tag) {
    MPI_Request& request = begin_transfer({.peer = peer, .receive = true});
    check_transfer(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer, tag,
                             data_, &request),
                   peer);
  }
  MPI_Request& begin_transfer(Transfer transfer) {
    transfers_.push_back(transfer);
    return requests_.emplace_back(MPI_REQUEST_NULL);
  }

  void check_transfer(int code, int peer) {
    if (code == MPI_SUCCESS) return;
    announce(peer, formatted("MPI says on rank {} of its messages with rank {}: {}", rank(), peer,
                             mpi_error_text(code)));
    give_up();
  }

  /// Takes one turn of a wait in which no message came. The longer it lasts, the more of the core
  /// it leaves to others.
  void wait_idly(LateWait& wait, Clock::time_point& failed_since) {
    const Clock::time_point now = Clock::now();
    // A peer may have failed just after this call, for which it has sent all: then this rank
    // finishes it, too.
    if ((receive_failure() || failed()) && failed_since == Clock::time_point()) failed_since = now;
    if (failed_since != Clock::time_point() && now - failed_since > std::chrono::milliseconds(100))
      give_up();
    if (interrupted()) {
      announce(rank(), interruption_text());
      give_up();
    }
    if (wait.lasted.count() == 0 && now - wait.looked < std::chrono::milliseconds(20)) {
      std::this_thread::yield();
      return;
    }
    answer();
    const std::vector<int> late = given_up(wait, options_.timeout, [&] {
      std::vector<int> peers;
      for (std::size_t i = 0; i < requests_.size(); ++i)
        if (requests_[i] != MPI_REQUEST_NULL) peers.push_back(transfers_[i].peer);
      return peers;
    });
    if (!late.empty()) {
      announce(late.front(),
               late_text(rank(), options_.timeout, late, wait, "MpiOptions::timeout"));
      give_up();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  void say(int peer, const std::byte& word) noexcept override { faults_->say(peer, word); }
  void hear() noexcept override {
    std::byte word{};
    for (int peer = 0; (peer = faults_->hear(word)) >= 0;) take_word(peer, word);
  }

  /// Takes back the receives that no message has reached yet, so that none is written into memory
  /// that the caller frees, and throws.
  [[noreturn]] void give_up() {
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (transfers_[i].receive && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    const auto deadline = Clock::now() + std::chrono::milliseconds(100);
    for (int done = 0; done == 0 && Clock::now() < deadline;)
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    throw failure_error(rank());
  }

  /// Returns whether a peer's failure has arrived. The first one is what ends this communicator.
  bool receive_failure() noexcept {
    Message message;
    if (!faults_->receive(message)) return false;
    record(message);
    if (message.ended) record_end(message);
    return true;
  }

  MpiOptions options_;
  MPI_Comm data_ = MPI_COMM_NULL;
  std::shared_ptr<MpiFailureChannel> faults_;
  std::vector<MPI_Request> requests_;
  std::vector<Transfer> transfers_;  // what each request is
  std::vector<int> finished_;        // what MPI reports of them
  std::vector<MPI_Status> statuses_;
  Message announcement_;  // to the peers
};

}  // namespace detail

}}  // namespace tessera::v0
