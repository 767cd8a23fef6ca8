// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/stream.cuh>
#include <tessera/tables/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace support {

/// How numbers of batches come to the GPU: through page-locked memory of two turns, so that the host
/// waits for a copy only if it is two ahead of it. Those of a turn stay there until the one after
/// the next; or, `in_place`, until the next, which come to the same place.
template <class T>
class Outbox {
 public:
  /// `most` at a time, as far as it is known.
  Outbox(const tessera::Cuda& backend, std::int64_t most, bool in_place = false)
      : backend_(backend), in_place_(in_place) {
    for (Turn& turn : turns_) turn.resize(backend_, static_cast<std::size_t>(most));
  }

  /// Sends values. Returns so many, or `room` if that is more: undefined numbers follow.
  std::span<const T> send(std::span<const T> values, std::int64_t room = 0) {
    std::swap(turns_[0], turns_[1]);
    if (in_place_) std::swap(turns_[0].to, turns_[1].to);
    Turn& turn = turns_[0];
    turn.copied.synchronize();
    turn.resize(backend_, std::max(values.size(), static_cast<std::size_t>(room)));
    std::copy(values.begin(), values.end(), turn.from.data());
    backend_.copy(turn.to.data(), turn.from.data(), values.size_bytes());
    turn.copied.record(backend_.stream());
    return turn.to.span();
  }

 private:
  struct Turn {
    void resize(const tessera::Cuda& backend, std::size_t count) {
      from.resize(backend, count);
      to.resize(backend, count);
    }
    tessera::Buffer<T, tessera::Cuda> from{tessera::Tier::host}, to{};
    tessera::gpu::Event copied{};
  };

  tessera::Cuda backend_;
  bool in_place_;
  Turn turns_[2];
};

}  // namespace support
