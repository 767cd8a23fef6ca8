// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/bridges/dlpack.hpp>
#include <tessera/bridges/dlpack_structs.hpp>
#include <tessera/core/error.hpp>
#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/error.cuh>
#include <tessera/cuda/stream.cuh>

#include <cstdint>
#include <memory>
#include <utility>

namespace tessera { inline namespace v0 {

namespace dlpack {

/// Returns the GPU of this thread, which a Cuda works with: whose memory it reads.
inline Device device_of(const Cuda&) {
  Device device{.device_type = DeviceType::cuda};
  gpu::check(cudaGetDevice(&device.device_id), "asking which GPU a tensor is for");
  return device;
}
/// Returns what a consumer on this backend gives a producer as `stream`: 1 for the default stream,
/// else its handle. After the producer's answer the backend's work may read the tensor.
inline std::intptr_t stream_of(const Cuda& backend) {
  const auto stream = reinterpret_cast<std::intptr_t>(backend.stream());
  return stream == 0 ? 1 : stream;
}

}  // namespace dlpack

/// Offers memory of a GPU: a matrix or a span, written by what `backend` was given so far.
/// `stream`, whose later work reads it, is the argument of Python's `__dlpack__`: 1 (or None) is
/// the legacy default stream, 2 the one of the thread, -1 no stream: the consumer waits itself.
/// Later work of that stream starts after the backend's; the host does not wait. Throws
/// InvalidArgument for 0, which names no stream.
template <class Managed = dlpack::ManagedTensorVersioned, class View>
dlpack::Owned<Managed> to_dlpack(const Cuda& backend, const View& view,
                                 std::shared_ptr<const void> owner, std::intptr_t stream = 1) {
  require(stream == -1 || stream > 0,
          "to_dlpack: stream {}; give 1 (the legacy default stream), 2 (the thread's), a stream's "
          "handle, or -1 (no stream waits)",
          stream);
  auto tensor = to_dlpack<Managed>(view, std::move(owner), dlpack::device_of(backend));
  if (stream != -1 && stream != dlpack::stream_of(backend)) {
    gpu::Event written;
    written.record(backend.stream());
    written.block(stream == 1 ? cudaStreamLegacy : reinterpret_cast<cudaStream_t>(stream));
  }
  return tensor;
}

}}  // namespace tessera::v0
