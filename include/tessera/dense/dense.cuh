// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/gradients.cuh>
#include <tessera/cuda/step_counter.cuh>
#include <tessera/dense/dense_kernels.cuh>
#include <tessera/dense/loss.hpp>
#include <tessera/dense/mlp.cuh>
#include <tessera/dense/optimizer.hpp>
#include <tessera/dense/parameters.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace op {

template <Optimizer O>
struct Kernel<UpdateParameters<O>, Cuda> {
  static void run(const Cuda& backend, const typename UpdateParameters<O>::Parameters& p) {
    backend.launch("update_parameters", gpu::ceil_divide(p.count, gpu::dense_threads),
                   gpu::dense_threads, gpu::update_parameters<O>, p.step, p.now, p.values,
                   p.gradients, p.states, p.count, p.weight_decay);
  }
};

template <>
struct Kernel<BinaryCrossEntropy, Cuda> {
  static void run(const Cuda& backend, const BinaryCrossEntropy::Parameters& p) {
    const std::int64_t blocks = gpu::ceil_divide(p.logits.rows, gpu::dense_threads);
    auto* const block_losses = backend.scratch_for<double>(gpu::ScratchSlot::entries, blocks);
    backend.launch("binary_cross_entropy", blocks, gpu::dense_threads, gpu::binary_cross_entropy<>,
                   p.logits, p.labels, p.shares, p.gradient, p.scale, block_losses);
    backend.launch("add_losses", 1, gpu::dense_threads, gpu::add_losses<>, block_losses,
                   static_cast<int>(blocks), p.scale, p.loss);
  }
};

}}}  // namespace tessera::v0::op
