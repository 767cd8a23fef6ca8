// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

// TESSERA_CUDA_CHECK, growth while a stream is captured, and the driver's memory: with pools, and
// on a driver without them, which is what the default resource meets in this program.
#include <tessera/cuda/backend.cuh>
#include <tessera/tables/buffer.hpp>

#include <doctest/doctest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <gpu/graph.hpp>
#include <support/message_of.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

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

  advises([&] { backend.buffer<float>(10); });
  advises([&] { backend.allocate(8); });
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

namespace {

std::vector<std::pair<std::size_t, int>> placed;  // bytes and node of each piece
long note_place(void*, std::size_t bytes, int node) {
  placed.emplace_back(bytes, node);
  return 0;
}
/// Whether the address belongs to the process.
bool mapped(const void* p) {
  unsigned char in_memory = 0;
  return mincore(const_cast<void*>(p), 4096, &in_memory) == 0;
}

}  // namespace

TEST_CASE("page-locked memory in pieces: placed, locked, counted, and given back when one fails") {
  auto& pages = simt::HostPages::instance();
  gpu::PageLockedMemory memory({.piece = 8192, .least = 4096, .place = note_place});
  const auto whole = [&](std::size_t bytes) {
    void* const p = memory.allocate(bytes);
    CHECK(pages.holds(p));
    CHECK(pages.locked() == 0);
    CHECK(memory.bytes() == 0);
    memory.deallocate(p);
    CHECK(!pages.holds(p));
  };
  whole(0);
  whole(4095);
  placed.clear();
  for (const int node : {-1, 0, 3}) {
    simt::host_numa_node() = node;
    auto* const p = static_cast<std::byte*>(memory.allocate(8192 * 3 + 100));
    CHECK(memory.bytes() == 8192 * 3 + 4096);
    CHECK(pages.locked() == memory.bytes());
    if (node < 0) CHECK(placed.empty());
    if (node >= 0)
      CHECK(placed == decltype(placed){{8192, node}, {8192, node}, {8192, node}, {4096, node}});
    placed.clear();
    // Across borders CUDA does not copy; the parts do.
    std::vector<std::byte> there(8192 * 3 + 100), back(there.size());
    for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<std::byte>(i * 7);
    CHECK(cudaMemcpyAsync(p, there.data(), there.size(), cudaMemcpyDefault, nullptr) ==
          cudaErrorInvalidValue);
    static_cast<void>(cudaGetLastError());
    std::vector<std::size_t> parts;
    memory.for_each_part(p + 100, there.data(), 8192 * 2, [&](std::size_t at, std::size_t bytes) {
      CHECK(cudaMemcpyAsync(p + 100 + at, there.data() + at, bytes, cudaMemcpyDefault, nullptr) ==
            cudaSuccess);
      parts.push_back(bytes);
    });
    CHECK(parts == std::vector<std::size_t>{8092, 8192, 100});
    memory.for_each_part(back.data(), p + 100, 8192 * 2, [&](std::size_t at, std::size_t bytes) {
      CHECK(cudaMemcpyAsync(back.data() + at, p + 100 + at, bytes, cudaMemcpyDefault, nullptr) ==
            cudaSuccess);
    });
    back.resize(8192 * 2), there.resize(back.size());
    CHECK(back == there);
    memory.deallocate(p);
    CHECK(memory.bytes() == 0);
    CHECK(pages.locked() == 0);
    CHECK(!mapped(p));
  }
  // The third piece cannot be locked.
  simt::host_numa_node() = 0;
  pages.limit(20'000);
  placed.clear();
  const std::string text = message_of([&] { memory.allocate(8192 * 4); });
  CHECK(text.find("page-locking 32768 bytes of host memory: 16384 bytes were locked, the next 8192 "
                  "could not be") != std::string::npos);
  CHECK(text.find("cudaErrorMemoryAllocation") != std::string::npos);
  CHECK(placed.size() == 3);
  CHECK(pages.locked() == 0);
  CHECK(memory.bytes() == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  pages.limit(SIZE_MAX);
  // Devices that do not read registered memory by the host's pointer.
  simt::can_register() = false;
  whole(8192 * 3);
  simt::can_register() = true;
  simt::host_numa_node() = -1;
  CHECK(message_of([&] { memory.configure({.piece = 5000}); }).find("5000") != std::string::npos);
}

TEST_CASE("a backend's copies are cut at the borders of page-locked pieces") {
  auto& memory = gpu::PageLockedMemory::of_process();
  memory.configure({.piece = 4096, .least = 1});
  const gpu::Stream stream;
  const Cuda backend({.stream = stream.get()});
  constexpr std::size_t bytes = 5 * 4096 - 7;
  auto* const p = static_cast<std::byte*>(Cuda::allocate_host(bytes));
  auto* const other = static_cast<std::byte*>(Cuda::allocate_host(bytes));
  CHECK(memory.bytes() == 2 * 5 * 4096);
  Buffer<std::byte, Cuda> device;
  device.resize(backend, bytes);
  std::vector<std::byte> there(bytes), back(bytes);
  for (std::size_t i = 0; i < bytes; ++i) there[i] = static_cast<std::byte>(i * 11);
  backend.copy(p, there.data(), bytes);
  backend.copy(device.data(), p, bytes);
  backend.copy(other + 1000, device.data(), bytes - 1000);
  backend.copy(p + 3000, other + 2000, bytes - 3000);  // borders at different places
  backend.copy(back.data(), p, bytes);
  backend.synchronize();
  for (std::size_t i = 3000; i < bytes; ++i) there[i] = static_cast<std::byte>((i - 2000) * 11);
  CHECK(back == there);
  Cuda::deallocate_host(other, bytes);
  Cuda::deallocate_host(p, bytes);
  memory.configure({});
}

TEST_CASE("a backend's memory of the host comes from the node that the GPU is nearest to") {
  simt::host_numa_node() = 0;
  auto& memory = gpu::PageLockedMemory::of_process();
  void* const p = Cuda::allocate_host(3 << 20);
  CHECK(memory.bytes() == 3 << 20);
  CHECK(simt::HostPages::instance().locked() == 3 << 20);
  CHECK(message_of([&] { memory.configure({}); }).find("3145728 bytes are locked") !=
        std::string::npos);
  int policy = -1;
  unsigned long nodes[16]{};
  // Some containers refuse both calls; then the memory is where the system puts it.
  if (syscall(SYS_get_mempolicy, &policy, nodes, 8 * sizeof(nodes), p, MPOL_F_ADDR) == 0 &&
      policy != MPOL_DEFAULT) {
    CHECK(policy == MPOL_PREFERRED);
    CHECK(nodes[0] == 1);
  }
  Cuda::deallocate_host(p, 3 << 20);
  CHECK(memory.bytes() == 0);
  simt::host_numa_node() = -1;
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
