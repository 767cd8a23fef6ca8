// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/host/backend.hpp>
#include <tessera/host/jagged.hpp>

using JaggedBackend = tessera::Host;

#include <jagged/cases.hpp>
