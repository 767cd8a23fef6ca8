// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A sequence reads weights of its ids: the feature is named.
// expect: Plan: a feature is weighted; sequences and max pooling take no weights (docs/errors.md)
// first error g++: FeatureNamed<tessera::v0::FixedString<8>{"history"}>
// first error clang++: FeatureNamed<'h', 'i', 's', 't', 'o', 'r', 'y'>
// first error nvcc: FeatureNamed<'h', 'i', 's', 't', 'o', 'r', 'y'>
// at most: 18 lines
#include <tessera/sharding/plan.hpp>

using namespace tessera;

using Item = Table<"item", 1000, 16>;
#ifdef ALLOWED_TWIN
using History = Feature<"history", "item", Sequence>;
#else
using History = Feature<"history", "item", Sequence, Weighted>;
#endif
static_assert(Plan<TableWise<Item>, Features<History>>::table_count == 1);
