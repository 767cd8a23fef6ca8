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
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera::inline v0 {

struct MpiOptions {
  /// How long a rank waits without any message from a peer before it gives up and names the peer; zero: for ever.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  /// Larger blocks travel in pieces of this many bytes (MPI counts in int).
  std::size_t max_message_bytes = std::size_t{1} << 30;
  /// `run_mpi_rank`: how long a rank that failed waits for its peers to say so too before it ends the job.
  std::chrono::nanoseconds grace = std::chrono::seconds(2);
};

/// Messages between the ranks of an MPI communicator, with waits that end: when all is there, when a peer says that it has failed,
/// or when nothing comes for too long. A failure ends it for good: all peers are told, and later calls throw the same.
class MpiMessenger {
 public:
  /// Duplicates `user`: a collective call of its ranks.
  MpiMessenger(MPI_Comm user, MpiOptions options) : options_(options) {
    require(options.max_message_bytes >= 1 && options.max_message_bytes <= std::size_t{1} << 30,
            "MpiOptions: max_message_bytes must be in 1..2^30, is {}", options.max_message_bytes);
    require_mpi(MPI_Comm_dup(user, &data_), "MPI_Comm_dup");
    require_mpi(MPI_Comm_dup(user, &faults_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(faults_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(data_, &rank_);
    MPI_Comm_size(data_, &size_);
  }
  MpiMessenger(const MpiMessenger&) = delete;
  MpiMessenger& operator=(const MpiMessenger&) = delete;
  /// Must not have failed: MPI may then hold its buffers still.
  ~MpiMessenger() {
    if (MpiEnvironment::finalized()) return;
    MPI_Comm_free(&data_);
    MPI_Comm_free(&faults_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm communicator() const { return data_; }
  const MpiOptions& options() const { return options_; }
  bool failed() const { return failure_.text[0] != 0; }

  /// Starts the next call of a collective and returns its number. Throws CommunicatorError if a rank has failed.
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

  /// Posts a message, to be waited for; `bytes` stay in use until then. Tags keep kinds of messages apart.
  void send(int peer, std::span<const std::byte> bytes, int tag) {
    for_each_piece(bytes, [&](std::span<const std::byte> piece) { send_piece(peer, piece, tag); });
  }
  void receive(int peer, std::span<std::byte> bytes, int tag) {
    for_each_piece(bytes, [&](std::span<std::byte> piece) { receive_piece(peer, piece, tag); });
  }

  /// Waits for all posted messages; ends early when a peer announces a failure or nothing comes for too long.
  void wait() {
    finished_.resize(requests_.size());
    statuses_.resize(requests_.size());
    Clock::time_point idle_since;
    for (std::size_t pending = requests_.size(), idle = 0; pending > 0;) {
      int count = 0;
      const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, finished_.data(), statuses_.data());
      if (code == MPI_ERR_IN_STATUS) {
        for (int i = 0; i < count; ++i)
          check_transfer(statuses_[static_cast<std::size_t>(i)].MPI_ERROR,
                         transfers_[static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)])].peer);
      } else {
        check_transfer(code, -1);
      }
      if (count > 0) {
        pending -= static_cast<std::size_t>(count);
        idle = 0;
      } else {
        if (++idle == 1) idle_since = Clock::now();
        idle_wait(idle, idle_since);
      }
    }
  }

  /// Ends all ranks' calls because of `rank_at_fault`. This rank is to throw next.
  void announce(int rank_at_fault, const std::string& text) noexcept { tell_peers(announcement_, rank_at_fault, text); }

  /// Tells all peers that this rank has failed: their waits end with a CommunicatorError that carries `text`.
  void fail(const std::string& text) noexcept {
    ending_.ended = true;
    tell_peers(ending_, rank(), text);
  }

  /// Any thread may call it: the thread that waits, or will, gives up.
  void interrupt() noexcept { interrupted_.store(true); }

  /// Waits until every peer has called `fail` too, or for `time` at most.
  void await_failures_of_peers(std::chrono::nanoseconds time) noexcept {
    const auto deadline = Clock::now() + time;
    while (ended_peers_ + 1 < size() && Clock::now() < deadline)
      if (!receive_failure()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kFaultTag = 1;

  struct FailureMessage {
    int rank = -1;
    bool ended = false;  // the sender makes no further call
    char text[1000] = {};
  };

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
    check_transfer(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer, tag, data_, &request), peer);
  }
  void receive_piece(int peer, std::span<std::byte> bytes, int tag) {
    MPI_Request& request = begin_transfer({.peer = peer, .receive = true});
    check_transfer(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer, tag, data_, &request), peer);
  }
  MPI_Request& begin_transfer(Transfer transfer) {
    transfers_.push_back(transfer);
    return requests_.emplace_back(MPI_REQUEST_NULL);
  }

  void check_transfer(int code, int peer) {
    if (code == MPI_SUCCESS) return;
    tell_peers(announcement_, peer,
               fmt::format("MPI says on rank {} of its messages with rank {}: {}", rank(), peer, mpi_error_text(code)));
    give_up();
  }

  /// One turn of a wait in which no message came. The longer it lasts, the more of the core it leaves to others.
  void idle_wait(std::size_t idle, Clock::time_point since) {
    if (idle < 64) return;
    const auto waited = Clock::now() - since;
    if (receive_failure()) give_up();
    if (interrupted_.load()) {
      tell_peers(announcement_, rank_, "it was interrupted: this rank gave the call up");
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
    tell_peers(
        announcement_, late.front(),
        fmt::format("late: rank {} waited {} ms in {} (call {}) for rank(s) {}; it may be dead, or raise MpiOptions::timeout", rank_,
                    std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout).count(), name_of(collective_), calls_, names));
  }

  CommunicatorError failure_error() const {
    return {failure_.rank, name_of(collective_),
            fmt::format("{} (call {}) on rank {} cannot finish: rank {} failed: {}", name_of(collective_), calls_, rank_, failure_.rank,
                        failure_.text)};
  }

  /// Takes back the receives that no message has reached yet, so that none is written into memory that the caller frees, and throws.
  [[noreturn]] void give_up() {
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (transfers_[i].receive && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    const auto deadline = Clock::now() + std::chrono::milliseconds(100);
    for (int done = 0; done == 0 && Clock::now() < deadline;)
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    throw failure_error();
  }

  /// Remembers why this communicator ends and sends it to all peers. Small messages: MPI takes them without a receiver.
  void tell_peers(FailureMessage& message, int rank_at_fault, const std::string& text) noexcept {
    message.rank = rank_at_fault;
    const std::string_view shown = text.empty() ? std::string_view("no reason given") : std::string_view(text);
    message.text[shown.copy(message.text, sizeof(message.text) - 1)] = 0;
    if (!failed()) failure_ = message;
    for (int peer = 0; peer < size_; ++peer) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (peer != rank_) MPI_Isend(&message, sizeof(FailureMessage), MPI_BYTE, peer, kFaultTag, faults_, &request);
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }

  /// Whether a peer's failure has arrived. The first one is what ends this communicator.
  bool receive_failure() noexcept {
    int arrived = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kFaultTag, faults_, &arrived, &status);
    if (arrived == 0) return false;
    FailureMessage message;
    MPI_Recv(&message, sizeof(message), MPI_BYTE, status.MPI_SOURCE, kFaultTag, faults_, MPI_STATUS_IGNORE);
    if (message.ended) ++ended_peers_;
    if (!failed()) failure_ = message;
    return true;
  }

  MpiOptions options_;
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm faults_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::uint64_t calls_ = 0;
  Collective collective_ = Collective::none;  // of the current call
  std::vector<MPI_Request> requests_;
  std::vector<Transfer> transfers_;  // what each request is
  std::vector<int> finished_;        // what MPI reports of them
  std::vector<MPI_Status> statuses_;
  FailureMessage failure_;                // what ended this
  FailureMessage announcement_, ending_;  // messages to the peers
  int ended_peers_ = 0;
  std::atomic<bool> interrupted_{false};
};

}  // namespace tessera::inline v0
