// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// An n-gram of no tokens, and no table for it.
// expect: NgramHash: give orders, which are 1 token or more: Orders<2, 3>
// expect: NgramHash: give 1 head or more: Heads<8>
#include <tessera/vocabulary/ngram_hash.hpp>

using namespace tessera;

#ifdef ALLOWED_TWIN
using Hash = NgramHash<Orders<1>, Heads<1>>;
#else
using Hash = NgramHash<Orders<2, 0>, Heads<0>>;
#endif
static_assert(Hash::tables() == 1);
