// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "interaction_of.hpp"

#include <tessera/dense/mlp.hpp>
#include <tessera/interaction/dot.hpp>

std::unique_ptr<dlrm::Interaction> dlrm::make_interaction(const Options& options,
                                                          const ModelShape& shape,
                                                          const tessera::Host& host) {
  return interaction_of(options, shape, host);
}
