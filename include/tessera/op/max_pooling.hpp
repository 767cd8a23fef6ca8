// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/op/kernel.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace op {

/// Returns whether a value takes the place of the largest so far: equal ones do not, and NaN does
/// once.
TESSERA_HOST_DEVICE constexpr bool exceeds(float value, float largest) {
  return value > largest || (value != value && largest == largest);
}

/// The largest value of each column over a bag's rows, each times its weight if the bags have
/// weights; 0 for an empty bag. Negative ids are left out (see Bags); row_bias and scales are not
/// used.
struct PoolMax {
  struct Parameters {
    Bags<std::int32_t> bags;
    const float* rows = nullptr;  ///< [., width]
    int width = 0;
    float* output = nullptr;  ///< bag b's at output + b * output_stride
    std::int64_t output_stride = 0;
  };
};

/// The way back, per entry of the bags: an element of the bag's gradient for the first entry that
/// has the largest value, 0 for the others. The gradient of the weighted row: that of the row is
/// this times the weight.
struct PoolMaxBackward {
  struct Parameters {
    Bags<std::int32_t> bags;
    const float* rows = nullptr;
    int width = 0;
    const float* gradient = nullptr;  ///< bag b's at gradient + b * gradient_stride
    std::int64_t gradient_stride = 0;
    float* to = nullptr;  ///< [entries, width]: from the first bag's first entry on
  };
};

}}}  // namespace tessera::v0::op
