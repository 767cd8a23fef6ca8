// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera { inline namespace v0 {

/// What hidden activations and the products' copies of weights are stored in. Parameters and their
/// gradients are always float, and every product is summed in float.
enum class DensePrecision { float32, bfloat16 };

}}  // namespace tessera::v0
