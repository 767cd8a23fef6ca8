// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "record.hpp"

#include <tessera/optimizer/optimizers.hpp>

namespace lab {

std::vector<tessera::detail::RecordedSteps> record_adagrad(const Case& c, const Batches& batches,
                                                           int steps,
                                                           const std::function<void()>& built) {
  return record_on_threads<tessera::Adagrad>(c, batches, steps, built);
}

}  // namespace lab
