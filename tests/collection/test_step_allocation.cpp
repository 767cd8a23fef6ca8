// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Once its batches have been seen, a step of the collection takes no memory: counted in operator
// new and aligned_alloc, which the backend takes its memory from, on all ranks together. And what
// gradients that are accumulated take, by the bytes of aligned_alloc that are not freed.
#include <tessera/checkpoint.hpp>
#include <tessera/tessera.hpp>

#include <doctest/doctest.h>
#include <simt/sanitizer.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <vector>

#include "support/small_model.hpp"

namespace {
std::atomic<int> allocations{0};
thread_local bool exhausted = false;  ///< arrays get no memory
}  // namespace

#if !defined(SIMT_ASAN) && !defined(SIMT_TSAN)  // which have an aligned_alloc of their own
namespace {
/// Bytes of blocks of aligned_alloc that live, and the most there were, while `on`.
struct Aligned {
  bool on = false;
  struct Block {
    void* memory;
    std::size_t bytes;
  };
  std::array<Block, 1024> blocks{};
  std::size_t bytes = 0, most = 0;

  void add(void* memory, std::size_t size) {
    for (Block& block : blocks)
      if (block.memory == nullptr) {
        block = {memory, size};
        bytes += size;
        most = std::max(most, bytes);
        return;
      }
    std::abort();
  }
  void remove(const void* memory) {
    for (Block& block : blocks)
      if (block.memory == memory) {
        bytes -= block.bytes;
        block = {};
      }
  }
} aligned;
}  // namespace

extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  ++allocations;
  void* const memory = __libc_memalign(alignment, bytes);
  if (aligned.on && memory != nullptr) aligned.add(memory, bytes);
  return memory;
}
extern "C" void __libc_free(void* memory);
extern "C" void free(void* memory) noexcept {
  if (aligned.on && memory != nullptr) aligned.remove(memory);
  __libc_free(memory);
}
#define TESSERA_COUNTS_BYTES 1
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
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  if (exhausted) throw std::bad_alloc();
  return counted(bytes);
}
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

TEST_CASE("no memory for rows that are being saved fails the save, not the step") {
  SelfCommunicator self;
  LayoutCollection<Widths<4>, Sgd, Host, SelfCommunicator> e(
      self, Host{},
      make_layout({1}, {{.name = "a", .rows = 10, .width = 4}}, {}, {{0, {0, 10, 0, 4}, 0}}),
      {.learning_rate = 1});
  CheckpointContents contents;
  contents.add(e);
  detail::Snapshot snapshot(contents, 1 << 20);
  const std::int64_t id = 3;
  const KeyedJagged<std::int64_t> batch{1, 1, std::span(&id, 1), {}, {}};
  const std::array<float, 4> gradient{1, 1, 1, 1};
  const auto pooled = e.forward(batch);
  const float before = pooled.values(0, 0);
  exhausted = true;
  e.backward(pooled, {gradient.data(), 1, 4});
  exhausted = false;
  CHECK(e.steps() == 1);
  CHECK(e.forward(batch).values(0, 0) == before - 1);
  CHECK_THROWS_WITH(snapshot(contents.rows()[0], std::array<std::int64_t, 1>{16}, 0, 10),
                    "no memory for rows that steps change before they are saved");
}

#if defined(TESSERA_COUNTS_BYTES)
TEST_CASE(
    "gradients that are accumulated take the memory of their distinct rows, not of their ids") {
  constexpr std::int64_t rows = 100'000, width = 32, samples = 20'000, distinct = 1000;
  SelfCommunicator self;
  LayoutCollection<Widths<32>, Sgd, Host, SelfCommunicator> e(
      self, Host{},
      make_layout({1}, {{"t", rows, width}}, {{"f", "t"}}, {{0, {0, rows, 0, width}, 0}}), {});
  std::vector<std::int64_t> ids(samples), offsets;
  for (std::int64_t s = 0; s <= samples; ++s) offsets.push_back(s);
  const std::vector<float> gradient(samples * width, 0.5f);
  const MatrixView<const float> view{gradient.data(), samples, width};
  const auto look_up = [&](int batch) {
    for (std::int64_t s = 0; s < samples; ++s)
      ids[static_cast<std::size_t>(s)] = batch * distinct / 2 + s % distinct;
    return e.forward(KeyedJagged<std::int64_t>{1, samples, ids, offsets, {}});
  };
  e.backward(look_up(0), view);  // what a step needs anyway
  aligned.on = true;
  constexpr std::size_t row = width * sizeof(float) + sizeof(std::int64_t), slack = 64 << 10;
  for (int batch = 0; batch < 6; ++batch) {
    CAPTURE(batch);
    const auto pooled = look_up(batch);
    aligned.most = aligned.bytes;
    e.accumulate(pooled, view);
    const std::size_t sum = (distinct + static_cast<std::size_t>(batch) * distinct / 2) * row;
    CHECK(aligned.bytes >= sum);  // it is counted
    // nor do they take more while they are merged: sums go on where they are
    CHECK(aligned.bytes <= sum + slack);
    CHECK(aligned.most <= sum + slack);
  }
  aligned.on = false;
  e.apply();
}
#endif
