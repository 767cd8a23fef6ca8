// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/initialize.hpp>

#include <cmath>
#include <cstdint>

namespace tessera { inline namespace v0 {

/// Uniform in [-1/sqrt(rows), 1/sqrt(rows)): DLRM's (Naumov et al. 2019), and the default.
struct UniformByRows {
  TESSERA_HOST_DEVICE float operator()(const ElementKey& key) const {
    return (2 * unit_float(key.word()) - 1) / std::sqrt(static_cast<float>(key.table_rows));
  }
};

/// Uniform in [low, high).
///
///     using E = EmbeddingCollection<MyPlan, Sgd, Host, Comm, InitializeWith<Uniform>>;
///     const E::Options options{.initialize = {-0.05f, 0.05f}};
struct Uniform {
  float low = -0.01f;
  float high = 0.01f;
  TESSERA_HOST_DEVICE float operator()(const ElementKey& key) const {
    return low + (high - low) * unit_float(key.word());
  }
};

/// Normal, by Box and Muller (1958).
struct Normal {
  float mean = 0;
  float standard_deviation = 0.01f;
  TESSERA_HOST_DEVICE float operator()(const ElementKey& key) const {
    const std::uint64_t word = key.word();
    const float radius = std::sqrt(-2.0f * std::log(1.0f - unit_float(word)));
    return mean +
           standard_deviation * radius * std::cos(6.28318530717958647692f * unit_float(word << 24));
  }
};

/// One value.
struct Constant {
  float value = 0;
  TESSERA_HOST_DEVICE float operator()(const ElementKey&) const { return value; }
};

static_assert(Initializer<UniformByRows> && Initializer<Uniform> && Initializer<Normal> &&
              Initializer<Constant>);

namespace detail {

/// Uniform in [-bound, bound), or if that is negative as UniformByRows: a user's choice at run
/// time.
struct UniformWithin {
  float bound = -1;
  TESSERA_HOST_DEVICE float operator()(const ElementKey& key) const {
    return bound < 0 ? UniformByRows{}(key) : Uniform{-bound, bound}(key);
  }
};

}  // namespace detail

}}  // namespace tessera::v0
