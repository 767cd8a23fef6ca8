// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// After the first steps of each batch size a training step takes no memory for data: counted in
// operator new and in posix_memalign, which oneDNN takes its memory from (on processors with
// AVX-512). Small blocks are not counted: oneDNN makes a table of arguments (under 1 KiB) per call.
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>
#include <tessera/interaction/cross.hpp>
#include <tessera/interaction/dot.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

#include "support/random_matrix.hpp"

namespace {

std::atomic<int> large_allocations{0}, onednn_allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  if (bytes >= 1024) ++large_allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(bytes, 16); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return counted(bytes, 16); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (bytes >= 1024) ++onednn_allocations;
  *memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  return *memory ? 0 : 12;  // ENOMEM
}

using namespace tessera;
using test::Matrix;

TEST_CASE("a training step allocates nothing once its batch sizes have been seen") {
  using Dot = DotInteraction<5, 16>;
  constexpr std::int64_t most = 1300;
  for (const DensePrecision precision : {DensePrecision::float32, DensePrecision::bfloat16}) {
    if (!detail::supported(precision)) continue;
    const Host host({.threads = 2});
    Mlp<> bottom(host, {13, 64, 16}, {.last_relu = true, .precision = precision}),
        top(host, {Dot::columns(), 64, 1}, {.precision = precision});
    CrossInteraction<Linear<>> cross(host, Dot::columns(), {.layers = 2, .rank = 8});
    DenseParameters parameters(host, 1, bottom, cross, top);
    DenseOptimizer sgd(host, Sgd{});
    const Matrix<float> dense(most, 13, 0, 1);
    const std::vector<float> labels(most, 1.0f);
    Matrix<float> x(most, Dot::input_columns(), 0, 2), dx(most, Dot::input_columns(), 0),
        z(most, Dot::columns(), 0), c(most, Dot::columns(), 0), dz(most, Dot::columns(), 0),
        dc(most, Dot::columns(), 0), y(most, 1, 0), dy(most, 1, 0);
    const auto step = [&](std::int64_t batch) {
      const auto rows = [&](auto& matrix) { return matrix.view().row_range(0, batch); };
      bottom.forward(rows(dense), rows(x).column_range(0, 16));
      Dot::forward(host, rows(x), rows(z));
      cross.forward(rows(z), rows(c));
      top.forward(rows(c), rows(y));
      BinaryCrossEntropyWithLogits{}.forward_backward(
          rows(y), std::span<const float>(labels).first(static_cast<std::size_t>(batch)), rows(dy));
      top.backward(rows(dy), rows(dc));
      cross.backward(rows(dc), rows(dz));
      Dot::backward(host, rows(x), rows(dz), rows(dx));
      bottom.backward(rows(dx).column_range(0, 16));
      sgd.step(parameters, 0.01f);
    };
    step(most);
    step(77);
    step(most);
    CHECK(onednn_allocations > 0);  // both counters count
    // asking makes a primitive: before counting
    const bool packs_ahead = detail::supported(DensePrecision::bfloat16);
    const int before = large_allocations, onednn_before = onednn_allocations;
    for (int i = 0; i < 3; ++i) {
      step(most);
      step(77);
    }
    CHECK(large_allocations == before);
    // Without AVX-512 oneDNN multiplies through its sgemm, which takes memory to pack matrices at
    // every call.
    if (packs_ahead) CHECK(onednn_allocations == onednn_before);
    const std::vector<float> seen(4096);
    CHECK(large_allocations > before);
  }
}
