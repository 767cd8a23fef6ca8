// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "communicator_laws.hpp"

std::vector<std::string> laws_of(tessera::AnyCommunicator& communicator,
                                 tessera::laws::CommunicatorLawOptions options) {
  return tessera::laws::communicator_laws(communicator, options);
}
