// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// N-grams of tokens to rows of tables, on the host.
#include <tessera/vocabulary/ngram_hash.hpp>
