// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/random.hpp>
#include <tessera/cuda/backend.cuh>
#include <tessera/op/step_counter.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

/// Sets the clock, in one thread.
template <Optimizer O>
__global__ void set_clock(const typename op::SetClock<O>::Parameters p) {
  if (p.steps >= 0) p.clock->steps = p.steps;
  if (p.learning_rate == p.learning_rate) p.clock->learning_rate = p.learning_rate;
}

/// Advances the clock, in one thread.
template <Optimizer O>
__global__ void advance_clock(const typename op::AdvanceClock<O>::Parameters p) {
  const std::int64_t steps = ++p.clock->steps;
  p.clock->now.step = p.optimizer.at(p.clock->learning_rate, steps);
  p.clock->now.rounding_seed = random_word(p.seed, steps);
}

}  // namespace gpu::detail

template <Optimizer O>
struct op::Kernel<op::SetClock<O>, Cuda> {
  static void run(const Cuda& backend, const typename op::SetClock<O>::Parameters& p) {
    backend.launch("set_clock", 1, 1, gpu::detail::set_clock<O>, p);
  }
};

template <Optimizer O>
struct op::Kernel<op::AdvanceClock<O>, Cuda> {
  static void run(const Cuda& backend, const typename op::AdvanceClock<O>::Parameters& p) {
    backend.launch("advance_clock", 1, 1, gpu::detail::advance_clock<O>, p);
  }
};

}}  // namespace tessera::v0
