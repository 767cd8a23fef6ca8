// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/simt.hpp>

#include <tessera/comm/thread_communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace simt {

/// Where the exchanges of several ranks' streams meet: the n-th of each rank with the n-th of the
/// others. One is done when the last stream has come to it, for all at once.
class StreamMeetings {
 public:
  /// What a rank sends to and receives from each: the place of the first byte, and how many.
  struct Part {
    std::vector<std::pair<const void*, std::size_t>> send;
    std::vector<std::pair<void*, std::size_t>> receive;
    std::span<float> sum{};  ///< in place of both: becomes the sum of all ranks', in their order
  };

  explicit StreamMeetings(std::size_t ranks) : next_(ranks) {}
  /// Those of a group of threads.
  static std::shared_ptr<StreamMeetings> of(const tessera::ThreadGroup& group) {
    static std::mutex mutex;
    static std::map<const tessera::ThreadGroup*, std::weak_ptr<StreamMeetings>> all;
    const std::lock_guard lock(mutex);
    std::shared_ptr<StreamMeetings> found = all[&group].lock();
    if (!found)
      all[&group] = found =
          std::make_shared<StreamMeetings>(static_cast<std::size_t>(group.size()));
    return found;
  }

  /// A rank's stream has come to its next meeting, whose number it returns.
  std::size_t arrive(std::size_t rank, const Part& part) {
    const std::lock_guard lock(mutex_);
    const std::size_t number = next_[rank]++;
    Meeting& meeting = meetings_[number];
    meeting.parts.resize(next_.size());
    meeting.parts[rank] = part;
    ++meeting.arrived;
    return number;
  }
  /// Whether all have come. Moves the bytes if so.
  bool met(std::size_t number) {
    const std::lock_guard lock(mutex_);
    Meeting& meeting = meetings_[number];
    if (meeting.arrived < next_.size()) return false;
    if (std::exchange(meeting.done, true)) return true;
    const DeviceAccess access;
    if (!meeting.parts[0].sum.empty()) {
      add_up(meeting.parts);
      return true;
    }
    for (std::size_t to = 0; to < next_.size(); ++to)
      for (std::size_t from = 0; from < next_.size(); ++from) {
        const auto& [source, sent] = meeting.parts[from].send[to];
        const auto& [target, received] = meeting.parts[to].receive[from];
        if (sent != received) throw std::logic_error("a rank does not send what another receives");
        if (sent != 0) std::memcpy(target, source, sent);
      }
    return true;
  }

 private:
  struct Meeting {
    std::vector<Part> parts;
    std::size_t arrived = 0;
    bool done = false;
  };
  static void add_up(const std::vector<Part>& parts) {
    for (std::size_t i = 0; i < parts[0].sum.size(); ++i) {
      float sum = parts[0].sum[i];
      for (std::size_t r = 1; r < parts.size(); ++r) sum += parts[r].sum[i];
      for (const Part& part : parts) part.sum[i] = sum;
    }
  }

  std::mutex mutex_;
  std::vector<std::size_t> next_;
  std::map<std::size_t, Meeting> meetings_;
};

/// What NcclCommunicator is on GPUs, for ranks that are threads of the emulator: exchanges of
/// device memory are work of a stream, which can be captured; those of host memory are done before
/// the call returns, and cannot.
class StreamCommunicator {
 public:
  StreamCommunicator(tessera::ThreadCommunicator& threads, cudaStream_t stream)
      : threads_(threads), stream_(stream), meetings_(StreamMeetings::of(threads.group())) {}

  int rank() const { return threads_.rank(); }
  int size() const { return threads_.size(); }
  static constexpr bool queues_calls() { return true; }
  void interrupt(const std::string& text) { threads_.interrupt(text); }

  template <tessera::Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    if (!of_stream(send.empty() ? receive.data() : send.data()))
      return threads_.all_to_all<T>(send, send_counts, receive, receive_counts);
    StreamMeetings::Part part;
    const T* from = send.data();
    T* to = receive.data();
    for (std::size_t r = 0; r < send_counts.size(); ++r) {
      part.send.emplace_back(std::exchange(from, from + send_counts[r]),
                             send_counts[r] * sizeof(T));
      part.receive.emplace_back(std::exchange(to, to + receive_counts[r]),
                                receive_counts[r] * sizeof(T));
    }
    meet(part);
  }
  template <tessera::Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    if (!of_stream(send.empty() ? receive.data() : send.data()))
      return threads_.all_gather<T>(send, receive, counts);
    StreamMeetings::Part part;
    T* to = receive.data();
    for (const std::size_t count : counts) {
      part.send.emplace_back(send.data(), send.size_bytes());
      part.receive.emplace_back(std::exchange(to, to + count), count * sizeof(T));
    }
    meet(part);
  }
  template <tessera::Reducible T>
  void all_reduce(std::span<T> values, tessera::Reduction reduction = tessera::Reduction::sum) {
    if constexpr (std::is_same_v<T, float>)
      if (of_stream(values.data()) && reduction == tessera::Reduction::sum) {
        StreamMeetings::Part part;
        part.sum = values;
        return meet(part);
      }
    threads_.all_reduce(values, reduction);
  }

 private:
  bool of_stream(const void* buffer) const {
    if (buffer == nullptr || DeviceHeap::instance().holds(buffer)) return true;
    if (capturing(stream_)) throw std::logic_error("an exchange of host memory cannot be captured");
    return false;
  }
  void meet(const StreamMeetings::Part& part) {
    enqueue_when(stream_,
                 [meetings = meetings_, rank = static_cast<std::size_t>(rank()), part,
                  number = std::optional<std::size_t>()]() mutable {
                   if (!number) number = meetings->arrive(rank, part);
                   return meetings->met(*number);
                 },
                 {});
  }

  tessera::ThreadCommunicator& threads_;
  cudaStream_t stream_;
  std::shared_ptr<StreamMeetings> meetings_;
};

}  // namespace simt
