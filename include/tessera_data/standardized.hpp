// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns whether numbers x of which a model takes (x - shift) * scale must be doubles: floats of
/// their size, as of seconds since 1970, are more than 1/16,384 of what the model takes for 1
/// apart. Other numbers are rounded to floats first, as clients that send floats do.
inline bool needs_double(double shift, double scale) { return std::abs(shift * scale) > 0x1p10; }

}}}  // namespace tessera::v0::detail
