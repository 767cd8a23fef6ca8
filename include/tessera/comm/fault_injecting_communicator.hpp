// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// One fault, on one rank, at one call.
struct Fault {
  enum class Kind {
    throws,  ///< throws CommunicatorError with `text` instead of the call
    /// returns without taking part in the call: this rank's data is lost, and its peers wait
    drops,
    delays,    ///< sleeps `delay` before the call
    corrupts,  ///< flips bit `bit` of what this rank receives (of nothing, if that is empty)
  };
  Kind kind = Kind::throws;
  int rank = 0;
  /// counted from 1 over all collectives, or those in `collectives`
  std::uint64_t call = 1;
  Collective collectives = Collective::all;  ///< the calls that count
  std::chrono::nanoseconds delay{0};
  std::uint64_t bit = 0;  ///< modulo the bits received
  std::string text = "injected fault";
};

/// Wraps any communicator and does harm at chosen calls, to test what a trainer makes of it. Keeps
/// a reference to the wrapped communicator and offers the collectives that it offers.
template <class Inner>
class FaultInjectingCommunicator {
 public:
  FaultInjectingCommunicator(Inner& inner, std::vector<Fault> faults) : inner_(inner) {
    static_assert(explain_communicator<Inner, Collective::none>());
    for (Fault& fault : faults) {
      require(fault.rank >= 0 && fault.rank < inner.size(), "Fault: rank {} is not in 0..{}",
              fault.rank, inner.size() - 1);
      require(fault.call >= 1, "Fault: calls are counted from 1, got {}", fault.call);
      if (fault.rank == inner.rank()) planned_.push_back({std::move(fault)});
    }
  }

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  Inner& inner() const { return inner_; }
  bool host_memory_only() const { return detail::host_memory_only(inner_); }
  void interrupt(const std::string& text)
    requires requires(Inner& inner) { inner.interrupt(text); }
  {
    inner_.interrupt(text);
  }

  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts)
    requires detail::HasAllToAll<Inner>
  {
    run(Collective::all_to_all, std::as_writable_bytes(receive),
        [&] { inner_.all_to_all(send, send_counts, receive, receive_counts); });
  }

  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts)
    requires detail::HasAllGather<Inner>
  {
    run(Collective::all_gather, std::as_writable_bytes(receive),
        [&] { inner_.all_gather(send, receive, counts); });
  }

  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum)
    requires detail::HasAllReduce<Inner>
  {
    run(Collective::all_reduce, std::as_writable_bytes(values),
        [&] { inner_.all_reduce(values, reduction); });
  }

  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts)
    requires detail::HasReduceScatter<Inner>
  {
    run(Collective::reduce_scatter, std::as_writable_bytes(receive),
        [&] { inner_.reduce_scatter(send, receive, counts); });
  }

  template <Exchangeable T>
  void broadcast(std::span<T> values, int root)
    requires detail::HasBroadcast<Inner>
  {
    run(Collective::broadcast, std::as_writable_bytes(values),
        [&] { inner_.broadcast(values, root); });
  }

  void barrier()
    requires detail::HasBarrier<Inner>
  {
    run(Collective::barrier, {}, [&] { inner_.barrier(); });
  }

 private:
  struct Planned {
    Fault fault;
    std::uint64_t calls = 0;  // that counted so far
  };

  template <class Call>
  void run(Collective collective, std::span<std::byte> received, Call call) {
    bool dropped = false;
    std::vector<std::uint64_t> bits;
    for (Planned& planned : planned_) {
      const Fault& fault = planned.fault;
      if (!detail::contains(fault.collectives, collective) || ++planned.calls != fault.call)
        continue;
      if (fault.kind == Fault::Kind::throws)
        throw CommunicatorError(rank(), detail::name_of(collective), fault.text);
      if (fault.kind == Fault::Kind::delays) std::this_thread::sleep_for(fault.delay);
      if (fault.kind == Fault::Kind::drops) dropped = true;
      if (fault.kind == Fault::Kind::corrupts) bits.push_back(fault.bit);
    }
    if (!dropped) call();
    for (const std::uint64_t bit : bits)
      if (!received.empty()) received[bit / 8 % received.size()] ^= std::byte{1} << (bit % 8);
  }

  Inner& inner_;
  std::vector<Planned> planned_;
};

}}  // namespace tessera::v0
