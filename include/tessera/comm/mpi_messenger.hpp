// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/mpi_environment.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

struct MpiOptions {
  /// How long a rank waits without any message from a peer before it gives up and names the peer;
  /// zero: for ever.
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
  struct Message {
    int rank = -1;
    bool ended = false;  // the sender makes no further call
    char text[1000] = {};

    Message() = default;
    Message(int rank_at_fault, bool ends, const std::string& why)
        : rank(rank_at_fault), ended(ends) {
      const std::string_view shown =
          why.empty() ? std::string_view("no reason given") : std::string_view(why);
      text[shown.copy(text, sizeof(text) - 1)] = 0;
    }
  };

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
  static constexpr int kTag = 1;

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
class MpiMessenger {
 public:
  /// Duplicates `user`: a collective call of its ranks.
  MpiMessenger(MPI_Comm user, MpiOptions options)
      : options_(options), faults_(std::make_shared<MpiFailureChannel>(user)) {
    require(options.max_message_bytes >= 1 && options.max_message_bytes <= std::size_t{1} << 30,
            "MpiOptions: max_message_bytes must be in 1..2^30, is {}", options.max_message_bytes);
    require_mpi(MPI_Comm_dup(user, &data_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
    ended_peers_.reserve(static_cast<std::size_t>(size()));
  }
  MpiMessenger(const MpiMessenger&) = delete;
  MpiMessenger& operator=(const MpiMessenger&) = delete;
  /// Ends a messenger that must not have failed: MPI may then hold its buffers still.
  ~MpiMessenger() {
    if (!MpiEnvironment::finalized()) MPI_Comm_free(&data_);
  }

  int rank() const { return faults_->rank(); }
  int size() const { return faults_->size(); }
  MPI_Comm communicator() const { return data_; }
  /// Adds a messenger of some of these ranks, which hears of it when a rank of this one fails.
  void add_part(const MpiMessenger& part) { faults_->add_part(part.faults_); }
  const MpiOptions& options() const { return options_; }
  bool failed() const { return failure_.text[0] != 0; }

  /// Starts the next call of a collective and returns its number. Throws CommunicatorError if a
  /// rank has failed.
  std::uint64_t begin_call(Collective collective) {
    collective_ = collective;
    ++calls_;
    // Twice: a probe may say no and only then fetch what has come meanwhile.
    static_cast<void>(receive_failure() || receive_failure());
    if (failed()) throw failure_error();
    return calls_;
  }

  /// Forgets the messages of the last wait.
  void begin_transfers() {
    requests_.clear();
    transfers_.clear();
  }

  /// Posts a message, to be waited for; `bytes` stay in use until then. Tags keep kinds of messages
  /// apart.
  void send(int peer, std::span<const std::byte> bytes, int tag) {
    for_each_piece(bytes, [&](std::span<const std::byte> piece) { send_piece(peer, piece, tag); });
  }
  void receive(int peer, std::span<std::byte> bytes, int tag) {
    for_each_piece(bytes, [&](std::span<std::byte> piece) { receive_piece(peer, piece, tag); });
  }

  /// Waits for all posted messages; ends early when a peer announces a failure or nothing comes for
  /// too long.
  void wait() {
    finished_.resize(requests_.size());
    statuses_.resize(requests_.size());
    Clock::time_point idle_since, failed_since;
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
        if (++idle == 1) idle_since = Clock::now();
        idle_wait(idle, idle_since, failed_since);
      }
    }
  }

  /// Ends all ranks' calls because of `rank_at_fault`. This rank is to throw next.
  void announce(int rank_at_fault, const std::string& text) noexcept {
    announcement_ = Message(rank_at_fault, false, text);
    if (!failed()) failure_ = announcement_;
    faults_->tell(announcement_);
  }

  /// Tells all peers that this rank has failed: their waits end with a CommunicatorError that
  /// carries `text`.
  void fail(const std::string& text) noexcept {
    if (!failed()) failure_ = Message(rank(), true, text);
    faults_->end(text);
  }

  /// Makes the thread that waits, or will, give up and say why; any thread may call it.
  void interrupt(const std::string& text) {
    const std::lock_guard lock(interrupting_);
    if (interrupted_.load()) return;
    interruption_ = text;
    interrupted_.store(true);
  }

  /// Waits until every peer has called `fail` too, or for `time` at most.
  void await_failures_of_peers(std::chrono::nanoseconds time) noexcept {
    const auto deadline = Clock::now() + time;
    while (std::ssize(ended_peers_) + 1 < size() && Clock::now() < deadline)
      if (!receive_failure()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// Returns whether a peer before this rank is known to have called `fail` with the same text.
  bool told_by_lower_rank(const std::string& text) const {
    const Message own(rank(), true, text);
    return std::any_of(ended_peers_.begin(), ended_peers_.end(), [&](const Message& other) {
      return other.rank < rank() && std::string_view(other.text) == std::string_view(own.text);
    });
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Message = MpiFailureChannel::Message;

  struct Transfer {
    int peer = -1;
    bool receive = false;
  };

  template <class Bytes, class Post>
  void for_each_piece(Bytes bytes, Post post) const {
    for (std::size_t at = 0; at < bytes.size(); at += options_.max_message_bytes)
      post(bytes.subspan(at, std::min(options_.max_message_bytes, bytes.size() - at)));
  }
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
    announce(peer, fmt::format("MPI says on rank {} of its messages with rank {}: {}", rank(), peer,
                               mpi_error_text(code)));
    give_up();
  }

  /// Takes one turn of a wait in which no message came. The longer it lasts, the more of the core
  /// it leaves to others.
  void idle_wait(std::size_t idle, Clock::time_point since, Clock::time_point& failed_since) {
    if (idle < 64) return;
    const Clock::time_point now = Clock::now();
    const auto waited = now - since;
    // A peer may have failed just after this call, for which it has sent all: then this rank
    // finishes it, too.
    if ((receive_failure() || failed()) && failed_since == Clock::time_point()) failed_since = now;
    if (failed_since != Clock::time_point() && now - failed_since > std::chrono::milliseconds(100))
      give_up();
    if (interrupted_.load()) {
      announce(rank(), "it was interrupted: " + interruption_);
      give_up();
    }
    if (options_.timeout.count() != 0 && waited > options_.timeout) {
      tell_of_late_ranks();
      give_up();
    }
    if (waited < std::chrono::milliseconds(20)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void tell_of_late_ranks() {
    std::vector<int> late;
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (requests_[i] != MPI_REQUEST_NULL) late.push_back(transfers_[i].peer);
    std::sort(late.begin(), late.end());
    late.erase(std::unique(late.begin(), late.end()), late.end());
    std::string names;
    for (const int peer : late) names += fmt::format("{}{}", names.empty() ? "" : ", ", peer);
    announce(
        late.front(),
        fmt::format("late: rank {} waited {} ms in {} (call {}) for rank(s) {}; it may be dead, or "
                    "raise MpiOptions::timeout",
                    rank(),
                    std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout).count(),
                    name_of(collective_), calls_, names));
  }

  CommunicatorError failure_error() const {
    return {failure_.rank, name_of(collective_),
            fmt::format("{} (call {}) on rank {} cannot finish: rank {} failed: {}",
                        name_of(collective_), calls_, rank(), failure_.rank, failure_.text)};
  }

  /// Takes back the receives that no message has reached yet, so that none is written into memory
  /// that the caller frees, and throws.
  [[noreturn]] void give_up() {
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (transfers_[i].receive && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    const auto deadline = Clock::now() + std::chrono::milliseconds(100);
    for (int done = 0; done == 0 && Clock::now() < deadline;)
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    throw failure_error();
  }

  /// Returns whether a peer's failure has arrived. The first one is what ends this communicator.
  bool receive_failure() noexcept {
    Message message;
    if (!faults_->receive(message)) return false;
    if (message.ended) ended_peers_.push_back(message);  // it has room for all
    if (!failed()) failure_ = message;
    return true;
  }

  MpiOptions options_;
  MPI_Comm data_ = MPI_COMM_NULL;
  std::shared_ptr<MpiFailureChannel> faults_;
  std::uint64_t calls_ = 0;
  Collective collective_ = Collective::none;  // of the current call
  std::vector<MPI_Request> requests_;
  std::vector<Transfer> transfers_;  // what each request is
  std::vector<int> finished_;        // what MPI reports of them
  std::vector<MPI_Status> statuses_;
  Message failure_;       // what ended this
  Message announcement_;  // to the peers
  std::vector<Message> ended_peers_;
  std::mutex interrupting_;
  std::string interruption_;  // complete once this is true:
  std::atomic<bool> interrupted_{false};
};

}  // namespace detail

}}  // namespace tessera::v0
