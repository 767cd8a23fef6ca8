// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "record.hpp"

#include <tessera/optimizer/optimizers.hpp>

namespace lab {

Recorded record_narrow_adam(const Case& c, const Batches& batches, int steps, const Watch& watch) {
  return record_narrow_case<tessera::Adam>(c, batches, steps, watch);
}

}  // namespace lab
