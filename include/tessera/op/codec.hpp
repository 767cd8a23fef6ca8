// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/codec.hpp>
#include <tessera/op/kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::inline v0::op {

/// Writes rows of floats one after another in the codec's form, C::bytes(width) each: row i is row
/// samples[i] of the source, or row i.
template <Codec C>
struct EncodeRows {
  struct Job {
    const float* source = nullptr;
    std::int64_t source_stride = 0;
    std::byte* target = nullptr;  ///< aligned to 4
    std::int64_t rows = 0;
    int width = 0;
    const std::int32_t* samples = nullptr;  ///< ascending; or null
  };
  struct Parameters {
    std::span<const Job> jobs;
  };
};

/// The way back: encoded row i goes to, or is added to, row samples[i] of the target (row i without
/// samples). Jobs run in order wherever two of them add to the same columns.
template <Codec C>
struct DecodeRows {
  struct Job {
    const std::byte* source = nullptr;  ///< aligned to 4
    float* target = nullptr;
    std::int64_t target_stride = 0;
    std::int64_t rows = 0;
    int width = 0;
    const std::int32_t* samples = nullptr;  ///< ascending; or null
    bool add = false;
  };
  struct Parameters {
    std::span<const Job> jobs;
  };
};

}  // namespace tessera::inline v0::op
