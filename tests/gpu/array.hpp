// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tessera.cuh>

#include <support/on_backend.hpp>

// What tests of both backends share.

namespace on_backend {

template <>
struct MemoryOf<Cuda> {
  using type = CudaTransfer;
  static type of(const Cuda& backend) { return CudaTransfer(backend); }
};

}  // namespace on_backend

namespace {

using namespace tessera;
using on_backend::Array;
using on_backend::read;
using on_backend::ThreadRanks;

}  // namespace
