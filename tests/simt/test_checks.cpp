// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

// TESSERA_CUDA_CHECK, growth while a stream is captured, and the driver's memory: with pools, and
// on a driver without them, which is what the default resource meets in this program.
#include <tessera/cuda/arrays.cuh>
#include <tessera/cuda/backend.cuh>
#include <tessera/tables/buffer.hpp>

#include <doctest/doctest.h>
#include <unistd.h>
#include <gpu/graph.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

// Both are read once, by whatever comes first.
[[maybe_unused]] const bool prepared = [] {
  simt::has_memory_pools() = false;
  return setenv("TESSERA_CUDA_CHECK", "1", 1) == 0;
}();

__global__ void add_one(int* value) { ++*value; }
__global__ void has_a_fault() {
  if (blockIdx.x == 0 && threadIdx.x == 0) simt::planted_fault() = cudaErrorInvalidValue;
}

template <class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

/// What f writes to stderr.
template <class F>
std::string printed_by(const F& f) {
  std::FILE* const file = std::tmpfile();
  std::fflush(stderr);
  const int kept = dup(2);
  dup2(fileno(file), 2);
  f();
  std::fflush(stderr);
  dup2(kept, 2);
  close(kept);
  std::rewind(file);
  std::string text;
  for (int c = 0; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("a fault is named by the kernel that met it, and by no later one") {
  const gpu::Stream stream;
  CHECK(message_of([&] {
          gpu::launch("has_a_fault",
                      {.blocks = 3, .threads = 32, .shared_bytes = 128, .stream = stream.get()},
                      has_a_fault);
        }) ==
        "running kernel has_a_fault (grid 3, block 32, 128 bytes of dynamic shared memory): CUDA "
        "error cudaErrorInvalidValue "
        "(cudaErrorInvalidValue)");
  const Cuda backend({.stream = stream.get()});
  CHECK(message_of([&] { backend.launch("add_one", 1, 1, add_one, static_cast<int*>(nullptr)); }) ==
        "work of the stream before kernel add_one (grid 1, block 1, 0 bytes of dynamic shared "
        "memory): CUDA error cudaErrorInvalidValue "
        "(cudaErrorInvalidValue)");
  simt::planted_fault() = cudaSuccess;
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("a captured launch waits for nothing") {
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  auto* const value = static_cast<int*>(backend.allocate(sizeof(int)));
  backend.fill_zero(value, sizeof(int));
  const Graph graph(stream, [&] { backend.launch("add_one", 1, 1, add_one, value); });
  for (int i = 0; i < 3; ++i) graph.launch();
  int read = 0;
  backend.copy(&read, value, sizeof(int));
  backend.synchronize();
  CHECK(read == 3);
  backend.deallocate(value, sizeof(int));
}

TEST_CASE("frees that fail are printed, and are no error of the next call") {
  const gpu::Stream stream;
  gpu::AsyncMemoryResource pool;
  void* const p = pool.allocate(8, stream.get());
  const std::string text =
      printed_by([&] { Graph(stream, [&] { pool.deallocate(p, 8, stream.get()); }); });
  CHECK(text ==
        "tessera: freeing device memory: CUDA error cudaErrorStreamCaptureUnsupported "
        "(cudaErrorStreamCaptureUnsupported)\n");
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  pool.deallocate(p, 8, stream.get());
}

TEST_CASE("what would grow while a stream is captured throws, and keeps what it has") {
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  const auto advises = [&](const auto& grow) {
    const std::string message = message_of([&] { Graph(stream, grow); });
    CAPTURE(message);
    CHECK(message.find("run the largest batch once before capturing") != std::string::npos);
  };
  void* const scratch = backend.scratch(gpu::ScratchSlot::sources, 100);
  advises([&] { backend.scratch(gpu::ScratchSlot::sources, 1000); });
  CHECK(backend.scratch(gpu::ScratchSlot::sources, 100) == scratch);

  Buffer<int, Cuda> buffer;
  const int* const data = buffer.resize(backend, 10).data();
  advises([&] { buffer.resize(backend, 100); });
  CHECK(buffer.size() == 10);
  CHECK(buffer.resize(backend, 5).data() == data);

  auto device = backend.buffer<float>(10);
  const float* const floats = device.data();
  advises([&] { device.reserve_discard(11); });
  advises([&] { gpu::room(backend, device, 11); });
  CHECK((device.data() == floats && device.size() == 10));
  device.reserve_discard(9);
  CHECK(device.data() == floats);
  device.reserve_discard(11);
  CHECK(device.size() == 11);

  advises([&] { backend.allocate(8); });
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("the driver's pool keeps what is freed, unless somebody chose otherwise") {
  const auto threshold = [](int device) {
    cudaMemPool_t pool = nullptr;
    std::uint64_t bytes = 0;
    gpu::check(cudaDeviceGetDefaultMemPool(&pool, device), "asking for a pool");
    gpu::check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes),
               "asking a pool");
    return bytes;
  };
  cudaMemPool_t chosen = nullptr;
  std::uint64_t five = 5;
  gpu::check(cudaDeviceGetDefaultMemPool(&chosen, 1), "asking for a pool");
  gpu::check(cudaMemPoolSetAttribute(chosen, cudaMemPoolAttrReleaseThreshold, &five),
             "telling a pool");
  gpu::AsyncMemoryResource pool;
  for (const int device : {0, 1}) {
    cudaSetDevice(device);
    const gpu::Stream stream;
    pool.deallocate(pool.allocate(8, stream.get()), 8, stream.get());
    cudaSetDevice(0);
  }
  CHECK(threshold(0) == UINT64_MAX);
  CHECK(threshold(1) == 5);
}

TEST_CASE(
    "without memory pools the default resource is cudaMalloc, whose frees wait for the stream") {
  const gpu::Stream stream;
  const std::size_t blocks = simt::DeviceHeap::instance().count();
  gpu::DeviceBuffer<int> buffer(4, stream.get());
  CHECK(simt::DeviceHeap::instance().count() == blocks + 1);
  const std::string text = printed_by([&] {
    simt::planted_fault() = cudaErrorInvalidValue;
    buffer = {};
    simt::planted_fault() = cudaSuccess;
  });
  CHECK(text.find("waiting for a stream in order to free device memory") != std::string::npos);
  CHECK(simt::DeviceHeap::instance().count() == blocks);
}
