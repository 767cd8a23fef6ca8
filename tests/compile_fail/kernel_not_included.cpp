// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// An operation is run on a backend whose kernels are not included.
// expect: Kernel: no kernel of this operation for this backend is included; tessera/tessera.hpp has those of Host,
// at most g++: 14 lines
#include <tessera/host/backend.hpp>
#include <tessera/op/mark_rows.hpp>
#ifdef ALLOWED_TWIN
#include <tessera/host/mark_rows.hpp>
#endif

using namespace tessera;

void mark(const Host& host, const op::MarkRows<int>::Parameters& parameters) {
  op::run<op::MarkRows<int>>(host, parameters);
}
