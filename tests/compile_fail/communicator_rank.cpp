// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A communicator does not say which rank it is, nor how many there are.
// expect: Communicator: need int rank() const (docs/concepts/communicator.md)
// expect: Communicator: need int size() const (docs/concepts/communicator.md)
#include <tessera/concepts/communicator.hpp>

using namespace tessera;

struct Pigeons {
  void barrier();
#ifdef ALLOWED_TWIN
  int rank() const { return 0; }
  int size() const { return 1; }
#endif
};
static_assert(explain_communicator<Pigeons, Collective::barrier>());
