// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "record.hpp"

#include <tessera/optimizer/optimizers.hpp>

namespace lab {

Recorded record_rowwise_adagrad(const Case& c, const Batches& batches, int steps,
                                const Watch& watch) {
  return record_case<tessera::RowWiseAdagrad, float>(c, batches, steps, watch);
}

}  // namespace lab
