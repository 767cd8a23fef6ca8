// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A communicator lacks an exchange that is needed, and others that are not.
// expect: Communicator: need all_to_all(span<const T> send, span<const size_t> send_counts, span<T> receive, span<const size_t>
// receive_counts) for every trivially copyable T (docs/concepts/communicator.md)
#include <tessera/concepts/communicator.hpp>

using namespace tessera;

struct Pigeons {
  int rank() const { return 0; }
  int size() const { return 1; }
#ifdef ALLOWED_TWIN
  template <class T>
  void all_to_all(std::span<const T>, std::span<const std::size_t>, std::span<T>,
                  std::span<const std::size_t>);
#endif
};
static_assert(explain_communicator<Pigeons, Collective::all_to_all>());
