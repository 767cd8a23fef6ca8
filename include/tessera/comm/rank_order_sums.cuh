// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/collective_checks.hpp>
#include <tessera/comm/rank_memory.cuh>
#include <tessera/concepts/communicator.hpp>
#include <tessera/cuda/backend.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 {

/// A communicator of GPU ranks, NCCL's say, whose sums of floats are in rank order: the bits of
/// thread ranks, MPI and Gloo. Each rank is sent its slice of all ranks' values, adds them up in a
/// kernel, and all gather the slices: the bytes of a ring, and two calls in place of one. All else
/// is `Inner`'s, whose calls on device memory must be in the order of the backend's stream.
///
///     RankOrderSums ordered(nccl, backend);
///     BucketedAllReduce buckets(ordered, gradients, 1 << 20, backend, backend);
template <Communicator Inner>
class RankOrderSums {
 public:
  RankOrderSums(Inner& inner, const Cuda& backend)
      : inner_(inner), backend_(backend), adds_(backend) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  bool queues_calls() const { return detail::queues_calls(inner_); }
  void interrupt(const std::string& text)
    requires requires(Inner& inner) { inner.interrupt(text); }
  {
    inner_.interrupt(text);
  }

  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    inner_.template all_to_all<T>(send, send_counts, receive, receive_counts);
  }
  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    inner_.template all_gather<T>(send, receive, counts);
  }
  template <Exchangeable T>
  void broadcast(std::span<T> values, int root) {
    inner_.broadcast(values, root);
  }
  void barrier() { inner_.barrier(); }
  /// Makes `calls`, no sums of floats among them, as `Inner`'s group.
  template <class Calls>
  void group(const Calls& calls) {
    detail::together(inner_, calls);
  }

  /// Replaces `values` on every rank by the reduction over all ranks, element by element.
  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    if (!in_order<T>(reduction)) return inner_.all_reduce(values, reduction);
    // slices that begin where NCCL moves 16 bytes at a time
    constexpr std::size_t unit = 128 / sizeof(T);
    const auto ranks = static_cast<std::size_t>(size());
    const std::size_t units = (values.size() + unit - 1) / unit;
    std::vector<std::size_t> counts(ranks);
    std::size_t begin = 0, mine = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == static_cast<std::size_t>(rank())) mine = begin;
      const std::size_t end =
          std::min(values.size(), unit * detail::slice_begin(units, ranks, r + 1));
      counts[r] = end - begin;
      begin = end;
    }
    const std::span<T> slice = values.subspan(mine, counts[static_cast<std::size_t>(rank())]);
    add_up<T>(values, counts, slice);
    inner_.template all_gather<T>(slice, values, counts);
  }

  /// Adds up all ranks' `send`; rank r gets block r of the sum, of counts[r] elements.
  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts) {
    if (!in_order<T>(Reduction::sum))
      return inner_.template reduce_scatter<T>(send, receive, counts);
    detail::check_counts(Collective::reduce_scatter, rank(), size(), "send", send.size(), counts);
    detail::check_own_count(Collective::reduce_scatter, rank(), "receive", receive.size(), counts);
    add_up<T>(send, counts, receive);
  }

 private:
  /// Returns whether the result depends on the order.
  template <class T>
  bool in_order(Reduction reduction) const {
    return std::is_floating_point_v<T> && reduction == Reduction::sum && size() > 1;
  }

  /// Makes `sum` the sum over ranks of the block of `values` that is this rank's.
  template <class T>
  void add_up(std::span<const T> values, std::span<const std::size_t> counts, std::span<T> sum) {
    const auto ranks = static_cast<std::size_t>(size());
    const std::vector<std::size_t> received(ranks, sum.size());
    const bool on_device = CudaTransfer::on_device(values.empty() ? sum.data() : values.data());
    const std::span<T> blocks = room<T>(ranks * sum.size(), on_device);
    inner_.template all_to_all<T>(values, counts, blocks, received);
    const auto block = [&](std::size_t r) { return blocks.data() + r * sum.size(); };
    // So many at a time, the sum of those before as the first.
    constexpr std::size_t most = gpu::detail::reduce_ranks;
    for (std::size_t done = 0; done < ranks;) {
      const std::size_t before = done == 0 ? 0 : 1, more = std::min(ranks - done, most - before);
      adds_.reduce<T>(
          static_cast<int>(before + more),
          [&](int i) {
            const auto source = static_cast<std::size_t>(i);
            return source < before ? static_cast<const T*>(sum.data())
                                   : block(done + source - before);
          },
          1, [&](int) { return sum.data(); }, sum.size(), Reduction::sum);
      done += more;
    }
  }

  /// Returns memory where blocks of others arrive, on the device or the host as the values are.
  template <class T>
  std::span<T> room(std::size_t count, bool on_device) {
    const std::size_t bytes = count * sizeof(T);
    if (!on_device) {
      host_.resize(std::max(host_.size(), bytes));
      return {reinterpret_cast<T*>(host_.data()), count};
    }
    if (device_.bytes() < bytes) {
      backend_.before_growth(bytes);
      device_ = {};
      device_ = backend_.buffer<std::byte>(static_cast<std::int64_t>(bytes));
    }
    return {reinterpret_cast<T*>(device_.data()), count};
  }

  Inner& inner_;
  Cuda backend_;
  CudaTransfer adds_;
  gpu::DeviceBuffer<std::byte> device_;
  std::vector<std::byte> host_;
};

}}  // namespace tessera::v0
