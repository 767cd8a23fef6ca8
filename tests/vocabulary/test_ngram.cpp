// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/ngram.hpp>

using NgramBackend = tessera::Host;

#include <vocabulary/ngram_cases.hpp>
