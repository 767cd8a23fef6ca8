// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace {

/// Ends the process with ctest's code for "skipped" where there is no GPU, before any test starts.
[[maybe_unused]] const bool has_gpu = [] {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return true;
  std::fprintf(stderr, "skipped: no GPU (%s)\n", cudaGetErrorString(error));
  std::exit(77);
}();

}  // namespace

inline constexpr bool slow_run = false;

/// Runs a test's body on the GPU, twice: the hardware's order differs from run to run, the bits
/// must not.
template <class Function>
void in_every_order(const Function& function) {
  function();
  function();
}

/// Runs a body that works with several streams.
template <class Function>
void under_every_deferral(const Function& function) {
  function();
}
