// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

// Faults planted in kernels must be caught: by the emulator itself, by wrong results under some
// order, or by the sanitizer that this test is built with. A sanitizer ends the process, so each of
// those faults is a test case that is skipped unless named, and the driver runs this binary again
// for each.
#include <tessera/cuda/launch.cuh>
#include <tessera/cuda/memory.cuh>

#include <doctest/doctest.h>
#include <simt/run_again.hpp>
#include <support/message_of.hpp>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace gpu = tessera::gpu;

namespace {

enum class Fault {
  none,
  global_out_of_bounds,
  static_shared_out_of_bounds,
  dynamic_shared_out_of_bounds,
  missing_barrier,
  missing_second_barrier,
  missing_warp_sync,
  blocks_race,
  divergent_barrier,
  skipped_barrier,
  lane_outside_mask,
  wrong_masks,
  shuffle_from_outside,
  exited_lane,
  deadlock,
  misaligned,
  too_much_shared,
  trap,
  copied,  // none: the tile comes by copy_later
  copy_read_early,
  copy_forgotten,
  misaligned_copy
};

// Reverses each tile of 64 numbers through shared memory, twice, and adds a warp's neighbours.
template <Fault F>
__global__ void reverse_tiles(const float* in, float* out, int tiles, int* total) {
  float* tile = gpu::dynamic_shared<float>();
  auto& warp = gpu::block_shared<float[64]>();
  const int t = static_cast<int>(threadIdx.x), n = static_cast<int>(blockDim.x), lane = t % 32;
  if constexpr (F == Fault::too_much_shared) gpu::block_shared<float[13000]>()[t] = 0;
  if constexpr (F == Fault::divergent_barrier) {
    if (t < 32)
      __syncthreads();
    else
      __syncthreads();
  }
  if constexpr (F == Fault::skipped_barrier)
    if (t < 32) __syncthreads();
  if constexpr (F == Fault::exited_lane)
    if (lane == 7) return;
  if constexpr (F == Fault::lane_outside_mask)
    if (lane < 16) __ballot_sync(0xffff0000u, 1);
  if constexpr (F == Fault::wrong_masks) __ballot_sync(lane < 16 ? 0xffffffffu : 0xffff0001u, 1);
  if constexpr (F == Fault::deadlock)
    if (t != 40) __syncwarp();
  if constexpr (F == Fault::trap)
    if (t == 3) __trap();
  if constexpr (F == Fault::shuffle_from_outside)
    if (lane < 16) __shfl_sync(0x0000ffffu, lane, 16);
  if constexpr (F == Fault::misaligned) out[t] = __ldg(reinterpret_cast<const float4*>(in + 1)).x;
  if constexpr (F == Fault::misaligned_copy) gpu::copy_later(tile, in + 1, 16);
  for (int i = static_cast<int>(blockIdx.x); i < tiles; i += static_cast<int>(gridDim.x)) {
    const float* source = in + i * n;
    if constexpr (F == Fault::copied || F == Fault::copy_read_early || F == Fault::copy_forgotten) {
      if (t % 4 == 0) gpu::copy_later(tile + t, source + t, 16);
      if constexpr (F == Fault::copied) gpu::wait_for_copies();
    } else {
      tile[t] = source[F == Fault::global_out_of_bounds && i == tiles - 1 ? t + 1 : t];
    }
    if constexpr (F == Fault::dynamic_shared_out_of_bounds) tile[t + 1] = 0;
    if constexpr (F != Fault::missing_barrier) __syncthreads();
    const float v = tile[n - 1 - t];
    warp[F == Fault::static_shared_out_of_bounds ? t + 1 : t] = v;
    if constexpr (F != Fault::missing_warp_sync) __syncwarp();
    out[i * n + t] = v + warp[t ^ 1];
    if constexpr (F == Fault::blocks_race)
      if (t == 5) *total += 1;
    if constexpr (F == Fault::copy_read_early) gpu::wait_for_copies();
    if constexpr (F != Fault::missing_second_barrier) __syncthreads();
  }
  if constexpr (F != Fault::blocks_race)
    if (t == 0) atomicAdd(total, __shfl_sync(1u, 1, 0));
}

constexpr int tiles = 6, blocks = 3, threads = 64;

template <Fault F>
std::vector<float> run() {
  gpu::DeviceBuffer<float> in(tiles * threads, nullptr), out(tiles * threads, nullptr);
  gpu::DeviceBuffer<int> total(1, nullptr);
  std::vector<float> values(tiles * threads);
  std::iota(values.begin(), values.end(), 0.0f);
  gpu::copy(in.data(), values.data(), tiles * threads, nullptr);
  gpu::zero(total.data(), 1, nullptr);
  gpu::launch("reverse_tiles",
              {.blocks = blocks, .threads = threads, .shared_bytes = threads * sizeof(float)},
              reverse_tiles<F>, in.data(), out.data(), tiles, total.data());
  gpu::copy(values.data(), out.data(), tiles * threads, nullptr);
  return values;
}

std::vector<float> expected() {
  std::vector<float> out;
  for (int i = 0; i < tiles; ++i)
    for (int t = 0; t < threads; ++t)
      out.push_back(static_cast<float>(i * threads + (threads - 1 - t)) +
                    static_cast<float>(i * threads + (threads - 1 - (t ^ 1))));
  return out;
}

template <Fault F>
std::string error_of() {
  return message_of<simt::Error>(run<F>);
}

/// In how many of the orders the results are not what they should be.
template <Fault F>
int wrong_orders() {
  int wrong = 0;
  simt::under_every_order([&] { wrong += run<F>() != expected(); });
  return wrong;
}

/// Reads one of four numbers, of which the first two are a workspace.
int number_of_a_workspace(int which) {
  const gpu::DeviceBuffer<int> device(4, nullptr);
  simt::DeviceHeap::instance().reserve_workspace(device.data(), 2 * sizeof(int));
  int number = 0;
  gpu::copy(&number, device.data() + which, 1, nullptr);
  return number;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("without a fault the kernel is right under every order") {
  simt::under_every_order([] {
    CHECK(run<Fault::none>() == expected());
    CHECK(run<Fault::copied>() == expected());
  });
}

TEST_CASE("the emulator names the fault, the thread and the place") {
  const std::string divergent = error_of<Fault::divergent_barrier>();
  CHECK(contains(divergent, "divergent __syncthreads"));
  CHECK(contains(divergent, "block (0,0,0), thread (32,0,0)"));
  CHECK(contains(divergent, "test_planted_faults.cpp:"));
  CHECK(contains(error_of<Fault::skipped_barrier>(), "divergent __syncthreads"));
  CHECK(contains(error_of<Fault::lane_outside_mask>(), "a mask that does not name it"));
  CHECK(contains(error_of<Fault::wrong_masks>(), "different masks"));
  CHECK(
      contains(error_of<Fault::shuffle_from_outside>(), "a shuffle reads a lane outside its mask"));
  CHECK(contains(error_of<Fault::exited_lane>(),
                 "a thread exits while others of its block wait in __syncthreads"));
  CHECK(contains(error_of<Fault::misaligned>(), "misaligned load"));
  CHECK(contains(error_of<Fault::too_much_shared>(), "too much static shared memory"));
  CHECK(contains(error_of<Fault::trap>(), "__trap (block (0,0,0), thread (3,0,0)"));
  CHECK(contains(error_of<Fault::copy_forgotten>(),
                 "a thread exits before its copies to shared memory have arrived"));
  CHECK(contains(error_of<Fault::misaligned_copy>(), "pointers are not aligned to 16 bytes"));
  const std::string deadlock = error_of<Fault::deadlock>();
  CHECK(contains(deadlock, "deadlock in block (0,0,0): thread (0,0,0) waits in __syncthreads at"));
  CHECK(contains(deadlock, "64 of 64 threads"));
  CHECK(run<Fault::none>() == expected());  // and it is of use afterwards
}

TEST_CASE("a missing barrier changes the results of some order") {
  CHECK((simt::has_tsan || wrong_orders<Fault::missing_barrier>() > 0));
  CHECK((simt::has_tsan || wrong_orders<Fault::missing_second_barrier>() > 0));
  CHECK((simt::has_tsan || wrong_orders<Fault::missing_warp_sync>() > 0));
  CHECK((simt::has_tsan || wrong_orders<Fault::copy_read_early>() > 0));
}

TEST_CASE("planted: global_out_of_bounds" * doctest::skip()) { run<Fault::global_out_of_bounds>(); }
TEST_CASE("planted: static_shared_out_of_bounds" * doctest::skip()) {
  run<Fault::static_shared_out_of_bounds>();
}
TEST_CASE("planted: dynamic_shared_out_of_bounds" * doctest::skip()) {
  run<Fault::dynamic_shared_out_of_bounds>();
}
TEST_CASE("planted: missing_barrier" * doctest::skip()) { run<Fault::missing_barrier>(); }
TEST_CASE("planted: missing_second_barrier" * doctest::skip()) {
  run<Fault::missing_second_barrier>();
}
TEST_CASE("planted: missing_warp_sync" * doctest::skip()) { run<Fault::missing_warp_sync>(); }
TEST_CASE("planted: blocks_race" * doctest::skip()) { run<Fault::blocks_race>(); }
TEST_CASE("planted: host_reads_device" * doctest::skip()) {
  const gpu::DeviceBuffer<int> device(1, nullptr);
  CHECK(device.data()[0] != 0);
}
TEST_CASE("planted: workspace_touched" * doctest::skip()) { number_of_a_workspace(1); }
TEST_CASE("planted: none" * doctest::skip()) { run<Fault::none>(); }

TEST_CASE("the address sanitizer sees accesses out of bounds" * doctest::skip(!simt::has_asan)) {
  CHECK(contains(output_of("planted: global_out_of_bounds"), "AddressSanitizer: use-after-poison"));
  // A compiler that knows the array's bound is first, if undefined behaviour is checked, too: by a
  // report or, where it traps, by an illegal instruction.
  const std::string fixed = output_of("planted: static_shared_out_of_bounds");
  CHECK((contains(fixed, "AddressSanitizer: use-after-poison") ||
         contains(fixed, "out of bounds for type") || contains(fixed, "AddressSanitizer: ILL")));
  CHECK(contains(output_of("planted: dynamic_shared_out_of_bounds"),
                 "AddressSanitizer: use-after-poison"));
  CHECK(contains(output_of("planted: host_reads_device"), "AddressSanitizer: use-after-poison"));
  CHECK(contains(output_of("planted: workspace_touched"), "AddressSanitizer: use-after-poison"));
  CHECK(number_of_a_workspace(2) == -1);  // behind it
  CHECK(contains(output_of("planted: none"), "Status: SUCCESS"));
}

TEST_CASE("the thread sanitizer sees races within and between blocks" *
          doctest::skip(!simt::has_tsan)) {
  for (const char* name : {"planted: missing_barrier", "planted: missing_second_barrier",
                           "planted: missing_warp_sync", "planted: blocks_race"}) {
    INFO(name);
    CHECK(contains(output_of(name), "ThreadSanitizer: data race"));
  }
  CHECK_FALSE(contains(output_of("planted: none"), "ThreadSanitizer"));
}
