// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A sequence reads weights of its ids: the feature is named.
// expect: Plan: a feature is weighted; sequences and max pooling take no weights (docs/errors.md)
// expect g++: FeatureNamed<tessera::v0::FixedString<8>{"history"}>
// expect clang++: FeatureNamed<'h', 'i', 's', 't', 'o', 'r', 'y'>
// expect nvcc: FeatureNamed<'h', 'i', 's', 't', 'o', 'r', 'y'>
// at most: 14 lines
#include <tessera/sharding/plan.hpp>

using namespace tessera;

using Item = Table<"item", 1000, 16>;
#ifdef ALLOWED_TWIN
using History = Feature<"history", "item", Sequence>;
#else
using History = Feature<"history", "item", Sequence, Weighted>;
#endif
static_assert(Plan<TableWise<Item>, Features<History>>::table_count == 1);
