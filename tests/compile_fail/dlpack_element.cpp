// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A tensor is read as a type that DLPack has no name for.
// expect: from_dlpack: float, double, Half, BFloat16, integers, bool
#include <tessera/dlpack.hpp>

using namespace tessera;

#ifdef ALLOWED_TWIN
using Value = double;
#else
using Value = long double;
#endif

DlpackTensor<Value> take(dlpack::ManagedTensor* tensor) { return from_dlpack<Value>(tensor); }
