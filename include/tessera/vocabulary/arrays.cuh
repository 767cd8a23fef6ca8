// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/tables/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 { namespace gpu {

/// Returns room for `count` elements; what was there is lost if that needs new memory.
template <class T>
T* grow(const Cuda& backend, Buffer<T, Cuda>& buffer, std::int64_t count) {
  return buffer.resize(backend, static_cast<std::size_t>(count)).data();
}

/// Copies an array of the host into `buffer`. The host waits until it has been read.
template <class T>
const T* upload(const Cuda& backend, Buffer<T, Cuda>& buffer, const std::vector<T>& values) {
  T* to = grow(backend, buffer, static_cast<std::int64_t>(values.size()));
  backend.copy(to, values.data(), values.size() * sizeof(T));
  return to;
}

/// Returns the first `count` elements. The host waits.
template <class T>
std::vector<T> download(const Cuda& backend, const Buffer<T, Cuda>& buffer, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  backend.copy(values.data(), buffer.data(), values.size() * sizeof(T));
  backend.synchronize();
  return values;
}

}}}  // namespace tessera::v0::gpu
