// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Once its batches have been seen, a step of the collection takes no memory: counted in operator
// new and aligned_alloc, which the backend takes its memory from, on all ranks together.
#include <tessera/tessera.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

#include "support/small_model.hpp"

namespace {
std::atomic<int> allocations{0};
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // which have an aligned_alloc of their own
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
#endif

namespace {
void* counted(std::size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

using namespace tessera;

TEST_CASE("a step allocates nothing once its batches have been seen") {
  for (const int ranks : {1, 3})
    for (const bool one_hot : {true, false}) {
      CAPTURE(ranks);
      CAPTURE(one_hot);
      run_ranks(ranks, [&](ThreadCommunicator& communicator) {
        LayoutCollection<Widths<16>, RowWiseAdagrad, Host, ThreadCommunicator> embeddings(
            communicator, Host{}, small_model::layout(ranks), {.seed = 1});
        std::vector<small_model::Batch> batches;
        for (int b = 0; b < 4; ++b)
          batches.emplace_back(communicator.rank(), b, 20 + b, embeddings.columns(), one_hot);
        const std::int64_t features = static_cast<std::int64_t>(small_model::features().size());
        const auto train = [&] {
          for (small_model::Batch& batch : batches) {
            const auto pooled = embeddings.forward(KeyedJagged<std::int64_t>{
                features, batch.samples, batch.ids, batch.offsets, batch.weights});
            embeddings.backward(pooled,
                                {batch.gradient.data(), batch.samples, embeddings.columns()});
          }
        };
        train();
        train();
        communicator.barrier();
        const int before = allocations;
        communicator.barrier();
        train();
        communicator.barrier();
        if (communicator.rank() == 0) CHECK(allocations - before == 0);
        communicator.barrier();
      });
    }
}
