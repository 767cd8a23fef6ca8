// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/codec.hpp>
#include <tessera/config.hpp>
#include <tessera/op/kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace op {

/// Rows of floats that will follow one another in a codec's form: row i is row samples[i] of
/// the source, or row i.
struct EncodeJob {
  const float* source = nullptr;
  std::int64_t source_stride = 0;
  std::byte* target = nullptr;  ///< aligned to 4
  std::int64_t rows = 0;
  int width = 0;
  const std::int32_t* samples = nullptr;  ///< ascending; or null

  TESSERA_HOST_DEVICE constexpr const float* row(std::int64_t i) const {
    return source + (samples != nullptr ? samples[i] : i) * source_stride;
  }
  template <Codec C>
  TESSERA_HOST_DEVICE constexpr std::byte* encoded(std::int64_t i) const {
    return target + static_cast<std::size_t>(i) * C::bytes(width);
  }
};

/// The way back: encoded row i goes to, or is added to, row samples[i] of the target (row i without
/// samples). Jobs run in order wherever two of them add to the same columns.
struct DecodeJob {
  const std::byte* source = nullptr;  ///< aligned to 4
  float* target = nullptr;
  std::int64_t target_stride = 0;
  std::int64_t rows = 0;
  int width = 0;
  const std::int32_t* samples = nullptr;  ///< ascending; or null
  /// to what is there, in the order of the jobs; if no job adds, no element is written twice
  bool add = false;

  TESSERA_HOST_DEVICE constexpr float* row(std::int64_t i) const {
    return target + (samples != nullptr ? samples[i] : i) * target_stride;
  }
  template <Codec C>
  TESSERA_HOST_DEVICE constexpr const std::byte* encoded(std::int64_t i) const {
    return source + static_cast<std::size_t>(i) * C::bytes(width);
  }
};

/// Writes rows in the codec's form, C::bytes(width) each.
template <Codec C>
struct EncodeRows {
  using Job = EncodeJob;
  struct Parameters {
    std::span<const Job> jobs;
  };
};

/// Reads them again.
template <Codec C>
struct DecodeRows {
  using Job = DecodeJob;
  struct Parameters {
    std::span<const Job> jobs;
  };
};

}}}  // namespace tessera::v0::op
