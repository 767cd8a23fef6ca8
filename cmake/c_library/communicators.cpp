// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "handles.hpp"

#include <tessera/comm/call_record.hpp>
#include <tessera/comm/message_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#if TESSERA_C_GLOO
#include <tessera/gloo.hpp>
#endif
#if TESSERA_C_MPI
#include <tessera/mpi.hpp>
#endif

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using tessera_c::call;
using tessera_c::checked;

namespace tessera_c { namespace {

std::chrono::nanoseconds timeout_of(double seconds, std::string_view call) {
  tessera::require(std::isfinite(seconds) && seconds >= 0 && seconds < 1e9,
                   "{}: timeout_seconds is {}; give 0 (for ever) or more", call, seconds);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::ceil(seconds * 1e9)));
}

/// Messages that the caller's functions carry: a Messenger of MessageCommunicator.
class CallersMessenger final : public tessera::detail::CallRecord {
 public:
  explicit CallersMessenger(const tessera_messages& messages) : messages_(messages) {}

  int rank() const { return messages_.rank; }
  int size() const { return messages_.size; }

  std::uint64_t begin_call(tessera::Collective collective) {
    return count_call(collective, rank());
  }
  void begin_transfers() {}
  // Both ranks of a message know its size: none is sent that is empty.
  void send(int peer, std::span<const std::byte> bytes, int tag) {
    if (bytes.empty()) return;
    check("send", peer, messages_.send(messages_.context, peer, tag, bytes.data(), bytes.size()));
  }
  void receive(int peer, std::span<std::byte> bytes, int tag) {
    if (bytes.empty()) return;
    check("receive", peer,
          messages_.receive(messages_.context, peer, tag, bytes.data(), bytes.size()));
  }
  void wait() { check("wait", -1, messages_.wait(messages_.context)); }

  void announce(int rank_at_fault, const std::string& text) noexcept {
    record({rank_at_fault, false, text});
  }
  void fail(const std::string& text) noexcept {
    record({rank(), true, text});
    if (messages_.fail != nullptr) messages_.fail(messages_.context, text.c_str());
  }
  void interrupt(const std::string& text) { fail(text); }

 private:
  void check(const char* function, int peer, int result) {
    if (result == 0) return;
    const std::string text =
        fmt::format("rank {}: the caller's function {}{} returned {}", rank(), function,
                    peer < 0 ? "" : fmt::format(" (peer {})", peer), result);
    record({peer, true, text});
    throw tessera::CommunicatorError(peer, function, text);
  }

  tessera_messages messages_;
};

class CallersCommunicator : public tessera::detail::MessageCommunicator<CallersMessenger> {
 public:
  explicit CallersCommunicator(const tessera_messages& messages)
      : MessageCommunicator(std::make_shared<CallersMessenger>(messages)) {}
};

/// A rank's handle of a group of threads, which lives as long as one of them.
struct ThreadRank : tessera::ThreadCommunicator {
  ThreadRank(std::shared_ptr<tessera::ThreadGroup> given, int rank)
      : ThreadCommunicator(*given, rank), group_of_all(std::move(given)) {}
  std::shared_ptr<tessera::ThreadGroup> group_of_all;
};

}  // namespace
}  // namespace tessera_c

tessera_status tessera_communicator_self(tessera_communicator** out) {
  return call([&] {
    checked(out, "tessera_communicator_self", "out") =
        new tessera_communicator(std::make_shared<tessera::SelfCommunicator>());
  });
}

tessera_status tessera_communicator_threads(int ranks, double timeout_seconds,
                                            tessera_communicator** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_communicator_threads";
    checked(out, name, "out");
    const auto timeout = tessera_c::timeout_of(timeout_seconds, name);
    const auto group =
        std::make_shared<tessera::ThreadGroup>(ranks, tessera::ThreadGroupOptions{timeout});
    std::vector<std::unique_ptr<tessera_communicator>> made;
    for (int r = 0; r < ranks; ++r)
      made.push_back(std::make_unique<tessera_communicator>(
          std::make_shared<tessera_c::ThreadRank>(group, r), timeout));
    for (const auto& one : made) one->waits = made[0]->waits;
    for (int r = 0; r < ranks; ++r) out[r] = made[static_cast<std::size_t>(r)].release();
  });
}

tessera_status tessera_communicator_gloo([[maybe_unused]] double timeout_seconds,
                                         [[maybe_unused]] tessera_communicator** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_communicator_gloo";
#if TESSERA_C_GLOO
    checked(out, name, "out");
    const tessera::RankOfJob place = tessera::rank_from_environment();
    tessera::GlooOptions options{.timeout = tessera_c::timeout_of(timeout_seconds, name)};
    if (const char* const interface = std::getenv("GLOO_SOCKET_IFNAME"))
      options.interface = interface;
    else if (!place.one_machine() && !place.address.empty())
      options.address = tessera::address_towards(place.address);
    tessera::MeetingOptions meeting;
    if (options.timeout.count() != 0) meeting.timeout = std::min(meeting.timeout, options.timeout);
    *out = new tessera_communicator(
        std::make_shared<tessera::GlooCommunicator>(options, place.rank, place.size,
                                                    [&](std::string mine) {
                                                      return tessera::meet_at_rank_0(
                                                          place, std::move(mine), meeting);
                                                    }),
        options.timeout);
#else
    throw tessera_c::Unsupported(
        fmt::format("{}: this library was built without Gloo; install libgloo-dev, libboost-dev "
                    "and libssl-dev, "
                    "and build it again",
                    name));
#endif
  });
}

tessera_status tessera_communicator_mpi([[maybe_unused]] const void* comm,
                                        [[maybe_unused]] double timeout_seconds,
                                        [[maybe_unused]] tessera_communicator** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_communicator_mpi";
#if TESSERA_C_MPI
    checked(out, name, "out");
    int initialized = 0;
    MPI_Initialized(&initialized);
    tessera::require(initialized != 0, "{}: MPI is not started; call MPI_Init_thread first", name);
    const auto timeout = tessera_c::timeout_of(timeout_seconds, name);
    *out = new tessera_communicator(
        std::make_shared<tessera::MpiCommunicator>(
            comm == nullptr ? MPI_COMM_WORLD : *static_cast<const MPI_Comm*>(comm),
            tessera::MpiOptions{.timeout = timeout}),
        timeout);
#else
    throw tessera_c::Unsupported(fmt::format(
        "{}: this library was built without MPI; build it with TESSERA_C_MPI=ON", name));
#endif
  });
}

tessera_status tessera_communicator_messages(const tessera_messages* messages,
                                             tessera_communicator** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_communicator_messages";
    const tessera_messages& given = tessera_c::sized(messages, name, "messages");
    checked(out, name, "out");
    tessera::require(given.size >= 1 && given.rank >= 0 && given.rank < given.size,
                     "{}: rank {} of {} is none", name, given.rank, given.size);
    tessera::require(given.send != nullptr && given.receive != nullptr && given.wait != nullptr,
                     "{}: the functions send, receive and wait are needed", name);
    *out = new tessera_communicator(std::make_shared<tessera_c::CallersCommunicator>(given));
  });
}

tessera_status tessera_communicator_rank(const tessera_communicator* communicator, int* rank,
                                         int* size) {
  return call([&] {
    const auto& any = *checked(communicator, "tessera_communicator_rank", "communicator").any;
    if (rank != nullptr) *rank = any.rank();
    if (size != nullptr) *size = any.size();
  });
}

tessera_status tessera_communicator_fail(tessera_communicator* communicator, const char* text) {
  return call([&] {
    tessera_communicator& of = checked(communicator, "tessera_communicator_fail", "communicator");
    const std::string why = text == nullptr ? "a rank has failed" : text;
    if (of.fail) of.fail(why);
    of.waits->end(why);
  });
}

tessera_status tessera_all_reduce(tessera_communicator* communicator, float* values, size_t count) {
  return call([&] {
    constexpr std::string_view name = "tessera_all_reduce";
    checked(communicator, name, "communicator")
        .any->all_reduce(tessera_c::array(values, count, name, "values"));
  });
}

tessera_status tessera_barrier(tessera_communicator* communicator) {
  return call([&] { checked(communicator, "tessera_barrier", "communicator").any->barrier(); });
}

void tessera_communicator_destroy(tessera_communicator* communicator) { delete communicator; }
