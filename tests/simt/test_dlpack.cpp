// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tensors of GPUs between streams that do their work late.
#include <simt/every_order.hpp>

#include <tessera/dlpack.cuh>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

using namespace tessera;

namespace {

constexpr int count = 24;

template <int = 0>
__global__ void write_numbers(float* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = static_cast<float>(i + 1);
}

/// What a consumer on a stream of its own reads of a tensor that was just written.
std::vector<float> read_elsewhere(bool waits) {
  const gpu::Stream stream, other;
  const Cuda producer({.stream = stream.get()}), consumer({.stream = other.get()});
  const auto memory = std::make_shared<gpu::DeviceBuffer<float>>(producer.buffer<float>(count));
  producer.fill_zero(memory->data(), memory->bytes());
  consumer.wait_for(producer);  // for the allocation
  producer.launch("write_numbers", 1, 32, write_numbers<>, memory->data());
  auto tensor = to_dlpack(producer, MatrixView<float>(memory->data(), 4, 6), memory,
                          waits ? dlpack::stream_of(consumer) : -1);
  const DlpackTensor<float> taken =
      from_dlpack<float>(std::move(tensor), dlpack::device_of(consumer));
  CHECK(taken.matrix().data == memory->data());
  const auto copied = consumer.buffer<float>(count);
  consumer.copy(copied.data(), taken.matrix().data, copied.bytes());
  producer.wait_for(consumer);
  std::vector<float> found(count);
  consumer.copy(found.data(), copied.data(), copied.bytes());
  producer.synchronize();
  return found;
}

}  // namespace

TEST_CASE("the consumer's stream waits for what was given to the producer's, if it is named") {
  std::vector<float> written(count);
  for (int i = 0; i < count; ++i) written[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
  bool shows = false;
  simt::under_every_deferral([&] {
    CHECK(read_elsewhere(true) == written);
    shows |= read_elsewhere(false) != written;
  });
  CHECK(shows);  // -1: nothing waits
}

TEST_CASE("a tensor is of the thread's GPU, and goes to the default stream unless told") {
  gpu::check(cudaSetDevice(2), "choosing a GPU");
  {
    const gpu::Stream stream;
    const Cuda backend({.stream = stream.get()}), by_default;
    CHECK(dlpack::stream_of(by_default) == 1);
    CHECK(dlpack::stream_of(backend) == reinterpret_cast<std::intptr_t>(stream.get()));
    const auto memory = backend.buffer<std::int64_t>(3);
    const auto waits = [&] { return simt::stream_waits().counts[{nullptr, stream.get()}]; };
    const int before = waits();
    const auto tensor = to_dlpack(backend, std::span(memory.data(), 3), nullptr);
    CHECK(tensor->dl_tensor.device.device_type == dlpack::DeviceType::cuda);
    CHECK(tensor->dl_tensor.device.device_id == 2);
    CHECK(waits() == before + 1);
    static_cast<void>(to_dlpack(by_default, std::span(memory.data(), 3), nullptr));
    CHECK(waits() == before + 1);  // its own stream
    CHECK_THROWS_WITH_AS(to_dlpack(backend, std::span(memory.data(), 3), nullptr, 0),
                         doctest::Contains("stream 0; give 1 (the legacy default stream)"),
                         InvalidArgument);
    gpu::check(cudaSetDevice(1), "choosing a GPU");
    CHECK_THROWS_WITH_AS(
        from_dlpack<std::int64_t>(tensor.get(), dlpack::device_of(by_default)),
        doctest::Contains("is in GPU 2, but is to be used by GPU 1; move it there first"),
        InvalidArgument);
    gpu::check(cudaSetDevice(2), "choosing a GPU");
  }
  gpu::check(cudaSetDevice(0), "choosing a GPU");
}
