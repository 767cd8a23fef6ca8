// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/dense/mlp.hpp>

#include <cstdint>

namespace tessera::inline v0 {

struct LinearOptions {
  bool bias = true;
  bool relu = false;
  DensePrecision precision = DensePrecision::float32;
  int threads = 1;
};

/// One fully connected layer, y = x W^T + b with W [out, in], optionally ReLU of it.
class Linear : public Mlp<> {
 public:
  using Options = LinearOptions;

  Linear(std::int64_t in, std::int64_t out, LinearOptions options = {})
      : Mlp<>({in, out}, {.last_relu = options.relu,
                          .bias = options.bias,
                          .precision = options.precision,
                          .threads = options.threads}) {}
};

}  // namespace tessera::inline v0
