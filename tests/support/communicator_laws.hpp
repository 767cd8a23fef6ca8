// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/any_communicator.hpp>

#include <tessera/laws/communicator_laws.hpp>

#include <string>
#include <vector>

/// The laws of a communicator behind AnyCommunicator, compiled once for all tests: they cost more
/// than most of these.
std::vector<std::string> laws_of(tessera::AnyCommunicator& communicator,
                                 tessera::laws::CommunicatorLawOptions options = {});
