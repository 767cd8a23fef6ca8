// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Raw keys to rows, while training sees them.
#include <tessera/concepts/vocabulary_policy.hpp>
#include <tessera/vocabulary/block.hpp>
#include <tessera/vocabulary/cold_rows.hpp>
#include <tessera/vocabulary/layout.hpp>
#include <tessera/vocabulary/vocabulary.hpp>
