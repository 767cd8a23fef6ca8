// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The first program on a machine with a GPU, ten seconds: what all the others need, a line each. It
// needs nothing of the library, and no other library than the driver's, so that it runs where they
// do not. Exit code: 0, 1 if something is missing, 77 without a GPU.
#include <cuda_runtime.h>

#include <dlfcn.h>
#include <algorithm>
#include <cstddef>
#include <cstdio>

namespace {

int missing = 0;

/// Prints what a call answered; whether it succeeded.
bool ok(const char* what, cudaError_t code) {
  if (code == cudaSuccess) {
    std::printf("ok       %s\n", what);
    return true;
  }
  std::printf("MISSING  %s: %s (%s)\n", what, cudaGetErrorName(code), cudaGetErrorString(code));
  static_cast<void>(cudaGetLastError());
  ++missing;
  return false;
}

__global__ void add_one(int* value) { ++*value; }

void device() {
  cudaDeviceProp properties{};
  if (!ok("device properties", cudaGetDeviceProperties(&properties, 0))) return;
  int driver = 0, runtime = 0, pools = 0, clock = 0;
  std::size_t free_bytes = 0, bytes = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, 0);
  cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 0);
  cudaMemGetInfo(&free_bytes, &bytes);
  std::printf(
      "         %s, sm_%d%d, %d multiprocessors, %d MHz, %.1f of %.1f GB free, L2 %d MB, driver "
      "for CUDA %d, runtime %d\n",
      properties.name, properties.major, properties.minor, properties.multiProcessorCount,
      clock / 1000, static_cast<double>(free_bytes) * 1e-9, static_cast<double>(bytes) * 1e-9,
      properties.l2CacheSize >> 20, driver, runtime);
  if (pools == 0) {
    std::printf("MISSING  memory pools: the library falls back on cudaMalloc\n");
    ++missing;
  }
}

void memory(cudaStream_t stream) {
  void* p = nullptr;
  if (ok("cudaMalloc", cudaMalloc(&p, 1 << 20))) ok("cudaFree", cudaFree(p));
  if (ok("memory pool: cudaMallocAsync", cudaMallocAsync(&p, 1 << 20, stream)))
    ok("memory pool: cudaFreeAsync", cudaFreeAsync(p, stream));
  if (ok("page-locked memory: cudaMallocHost", cudaMallocHost(&p, 1 << 20)))
    ok("cudaFreeHost", cudaFreeHost(p));
  ok("waiting for a stream", cudaStreamSynchronize(stream));
}

/// A launch, captured and replayed twice.
void capture(cudaStream_t stream) {
  int *value = nullptr, result = -1;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  if (!ok("memory of the graph", cudaMalloc(reinterpret_cast<void**>(&value), sizeof(int)))) return;
  cudaMemset(value, 0, sizeof(int));
  add_one<<<1, 1, 0, stream>>>(value);
  ok("kernel", cudaStreamSynchronize(stream));
  ok("beginning a capture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  add_one<<<1, 1, 0, stream>>>(value);
  if (ok("ending a capture", cudaStreamEndCapture(stream, &graph)) &&
      ok("instantiating a graph", cudaGraphInstantiate(&exec, graph, 0))) {
    for (int i = 0; i < 2; ++i) ok("launching a graph", cudaGraphLaunch(exec, stream));
    ok("waiting for a graph", cudaStreamSynchronize(stream));
    cudaMemcpy(&result, value, sizeof(int), cudaMemcpyDefault);
    if (result != 3) {
      std::printf("MISSING  a kernel and two replays of it add %d, not 3\n", result);
      ++missing;
    }
    cudaGraphExecDestroy(exec);
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaFree(value);
}

/// GB/s read and written by copies within the GPU, from the host and to it.
void copies(cudaStream_t stream) {
  constexpr std::size_t bytes = std::size_t{256} << 20;
  void *a = nullptr, *b = nullptr, *host = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  if (ok("memory of the copies", cudaMalloc(&a, bytes)) &&
      ok("memory of the copies", cudaMalloc(&b, bytes)) &&
      ok("page-locked memory of the copies", cudaMallocHost(&host, bytes)) &&
      ok("events", cudaEventCreate(&begin)) && ok("events", cudaEventCreate(&end))) {
    const auto best = [&](void* to, const void* from) {
      float least = 1e30f;
      for (int i = 0; i < 10; ++i) {
        float milliseconds = 0;
        cudaEventRecord(begin, stream);
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
        cudaEventRecord(end, stream);
        if (cudaEventSynchronize(end) != cudaSuccess ||
            cudaEventElapsedTime(&milliseconds, begin, end) != cudaSuccess)
          return 0.0;
        least = std::min(least, milliseconds);
      }
      return static_cast<double>(bytes) * 1e-6 / least;
    };
    std::printf(
        "         256 MiB: %.0f GB/s read and written within the GPU, %.1f GB/s from the host, "
        "%.1f GB/s to it\n",
        2 * best(b, a), best(a, host), best(host, a));
  }
  ok("copies", cudaStreamSynchronize(stream));
  cudaFree(a);
  cudaFree(b);
  cudaFreeHost(host);
}

/// A library that some programs load, and its version.
template <class Version>
void library(const char* name, const char* symbol, const Version& version) {
  void* const handle = dlopen(name, RTLD_NOW);
  void* const function = handle == nullptr ? nullptr : dlsym(handle, symbol);
  if (function == nullptr) {
    std::printf("MISSING  %s: %s\n", name, dlerror());
    ++missing;
    return;
  }
  std::printf("ok       %s, version %ld\n", name, version(function));
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // whatever hangs, the lines before it are read
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    std::printf("no GPU (%s)\n", cudaGetErrorString(error));
    return 77;
  }
  device();
  cudaStream_t stream = nullptr;
  if (ok("stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))) {
    memory(stream);
    capture(stream);
    copies(stream);
  }
  library("libcublasLt.so.13", "cublasLtGetVersion", [](void* function) {
    return static_cast<long>(reinterpret_cast<std::size_t (*)()>(function)());
  });
  library("libnccl.so.2", "ncclGetVersion", [](void* function) {
    int version = 0;
    reinterpret_cast<int (*)(int*)>(function)(&version);
    return static_cast<long>(version);
  });
  return missing == 0 ? 0 : 1;
}
