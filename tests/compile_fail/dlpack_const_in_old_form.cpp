// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Elements that are const are offered in the form that cannot say so.
// expect: to_dlpack: ManagedTensor cannot say that it is read-only; offer const elements as ManagedTensorVersioned
#include <tessera/dlpack.hpp>

using namespace tessera;

#ifdef ALLOWED_TWIN
using Form = dlpack::ManagedTensorVersioned;
#else
using Form = dlpack::ManagedTensor;
#endif

dlpack::Owned<Form> offer(MatrixView<const float> rows) { return to_dlpack<Form>(rows, nullptr); }
