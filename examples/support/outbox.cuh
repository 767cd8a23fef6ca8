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
/// waits for a copy only where it is two ahead of it. Those of a turn stay there until the one after
/// the next.
template <class T>
class Outbox {
 public:
  /// `most` at a time, as far as it is known.
  Outbox(const tessera::Cuda& backend, std::int64_t most) : backend_(backend) {
    for (Turn& turn : turns_) turn.resize(backend_, static_cast<std::size_t>(most));
  }

  std::span<const T> send(std::span<const T> values) {
    std::swap(turns_[0], turns_[1]);
    Turn& turn = turns_[0];
    turn.copied.synchronize();
    turn.resize(backend_, values.size());
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
  Turn turns_[2];
};

}  // namespace support
