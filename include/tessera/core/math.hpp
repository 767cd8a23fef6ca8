// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <cmath>

namespace tessera::inline v0 {

/// For optimizers that are written for any value type: backends overload it for their vectors (host/lanes.hpp).
TESSERA_HOST_DEVICE inline float square_root(float x) { return std::sqrt(x); }

}  // namespace tessera::inline v0
